//! Checks of a reading of the cluster by which entries are deleted, and of a later reading in its place. Pure.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use crate::this_node::NetnsOwner;
use ctk_cluster::rules::Proxy;
use ctk_cluster::source::SourceKind;

/// Properties of one reading of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterReading {
    /// `None`: this node's rules alone.
    pub kind: Option<SourceKind>,
    /// Nothing in the source is newer.
    pub time: Option<SystemTime>,
    /// Services and EndpointSlices are whole, or this node's rules were read and understood.
    pub complete: bool,
    /// Identity of the cluster, see [`ctk_cluster::index::Index::uid`].
    pub uid: Option<String>,
    /// Resources and rules that the source lacks, Service ranges aside, for messages.
    pub lacking: Vec<&'static str>,
    /// Objects that the source lacks, Service ranges among them.
    pub missing: BTreeSet<&'static str>,
    /// Name of this node.
    pub node: Option<String>,
    pub netns_owner: NetnsOwner,
    /// kube-proxy's modes, where rules were read.
    pub proxies: BTreeSet<Proxy>,
}

/// Reason not to delete by a reading.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadingRefused {
    #[error("the cluster source is incomplete ({}), so nothing is deleted by name or verdict", .0.join(", "))]
    Incomplete(Vec<&'static str>),
    #[error("the cluster source is from the future, so its age is not known: nothing was deleted")]
    FromTheFuture,
    #[error("the cluster source is {} old, --max-age is {}: nothing was deleted",
        humantime::format_duration(Duration::from_secs(.age.as_secs())), humantime::format_duration(*.max_age))]
    TooOld { age: Duration, max_age: Duration },
}

/// Property of the first reading that a later one lacks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadingLost {
    #[error("it is a source of another kind than at the first look")]
    Kind,
    #[error("it is another cluster than at the first look")]
    Identity,
    #[error("it is older than at the first look")]
    Time,
    #[error("it lacks {}, which the first look found", .0.join(", "))]
    Resources(Vec<&'static str>),
    #[error("it does not show any more that this namespace is the node's")]
    NetnsOwner,
    #[error("it does not show this node any more")]
    Node,
    #[error("kube-proxy's rules ({}) are not on this node any more, or cannot be read", .0.join(", "))]
    Rules(Vec<&'static str>),
}

impl ClusterReading {
    /// Checks a reading by itself. `max_age`: oldest source that is accepted, for names as for verdicts: the address of a Pod may
    /// belong to another one by now.
    ///
    /// # Errors
    /// The reading is incomplete, newer than `now`, or older than `max_age`.
    pub fn check(&self, now: SystemTime, max_age: Duration) -> Result<(), ReadingRefused> {
        if !self.complete {
            return Err(ReadingRefused::Incomplete(self.lacking.clone()));
        }
        let age = self.time.and_then(|time| now.duration_since(time).ok());
        let age = age.ok_or(ReadingRefused::FromTheFuture)?;
        match age > max_age {
            true => Err(ReadingRefused::TooOld { age, max_age }),
            false => Ok(()),
        }
    }

    /// Checks that a later reading shows at least what this one shows.
    ///
    /// # Errors
    /// The first property that `later` lacks.
    pub fn check_later(&self, later: &ClusterReading) -> Result<(), ReadingLost> {
        if self.kind != later.kind {
            return Err(ReadingLost::Kind);
        }
        if self.uid.is_some() && self.uid != later.uid {
            return Err(ReadingLost::Identity);
        }
        if later.time < self.time {
            return Err(ReadingLost::Time);
        }
        let lacks: Vec<_> = later.missing.difference(&self.missing).copied().collect();
        if !lacks.is_empty() {
            return Err(ReadingLost::Resources(lacks));
        }
        if self.netns_owner == NetnsOwner::Node && later.netns_owner != NetnsOwner::Node {
            return Err(ReadingLost::NetnsOwner);
        }
        if self.node.is_some() && self.node != later.node {
            return Err(ReadingLost::Node);
        }
        let proxies = self.proxies.difference(&later.proxies);
        let gone: Vec<_> = proxies.map(|proxy| proxy.name()).collect();
        match gone.is_empty() {
            true => Ok(()),
            false => Err(ReadingLost::Rules(gone)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading() -> ClusterReading {
        ClusterReading {
            kind: Some(SourceKind::File),
            time: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(100)),
            complete: true,
            uid: Some("a".to_owned()),
            lacking: vec!["pods"],
            missing: BTreeSet::from(["pods"]),
            node: Some("node1".to_owned()),
            netns_owner: NetnsOwner::Node,
            proxies: BTreeSet::from([Proxy::Iptables]),
        }
    }

    #[test]
    fn a_later_reading_that_lost_nothing_is_accepted() {
        let more = ClusterReading {
            time: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(101)),
            missing: BTreeSet::new(),
            proxies: BTreeSet::from([Proxy::Iptables, Proxy::Ipvs]),
            ..reading()
        };
        let unknown = ClusterReading {
            uid: None,
            node: None,
            netns_owner: NetnsOwner::Foreign,
            ..reading()
        };
        for (first, later) in [
            (reading(), reading()),
            (reading(), more),
            (unknown, reading()),
        ] {
            assert_eq!(first.check_later(&later), Ok(()), "{first:?} {later:?}");
        }
    }

    #[test]
    fn a_later_reading_that_lost_anything_is_refused_by_name() {
        type Change = fn(&mut ClusterReading);
        let losses: [(Change, &str); 9] = [
            (|b| b.kind = Some(SourceKind::Stdin), "another kind"),
            (|b| b.kind = None, "another kind"),
            (|b| b.uid = Some("b".to_owned()), "another cluster"),
            (|b| b.uid = None, "another cluster"),
            (|b| b.time = Some(SystemTime::UNIX_EPOCH), "older"),
            (
                |b| b.missing = BTreeSet::from(["pods", "servicecidrs"]),
                "lacks servicecidrs,",
            ),
            (|b| b.netns_owner = NetnsOwner::Foreign, "is the node's"),
            (|b| b.node = None, "this node"),
            (|b| b.proxies.clear(), "rules (iptables)"),
        ];
        for (change, words) in losses {
            let mut later = reading();
            change(&mut later);
            let why = reading().check_later(&later).unwrap_err().to_string();
            assert!(why.contains(words), "{words}: {why}");
        }
    }

    #[test]
    fn a_reading_that_is_incomplete_or_too_old_is_refused() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let incomplete = ClusterReading {
            complete: false,
            ..reading()
        };
        let timeless = ClusterReading {
            time: None,
            ..reading()
        };
        let minute = Duration::from_secs(60);
        let too_old = ReadingRefused::TooOld {
            age: Duration::from_secs(61),
            max_age: Duration::from_secs(60),
        };
        for (reading, now, max_age, expected) in [
            (reading(), at(100), minute, Ok(())),
            (reading(), at(160), minute, Ok(())),
            (reading(), at(161), minute, Err(too_old)),
            (
                reading(),
                at(99),
                minute,
                Err(ReadingRefused::FromTheFuture),
            ),
            (
                timeless,
                at(100),
                minute,
                Err(ReadingRefused::FromTheFuture),
            ),
            (
                incomplete,
                at(100),
                minute,
                Err(ReadingRefused::Incomplete(vec!["pods"])),
            ),
        ] {
            assert_eq!(reading.check(now, max_age), expected, "{now:?}");
        }
    }
}
