//! Properties of a reading of the cluster that a later one must have, too, before anything is deleted by it.

use std::collections::BTreeSet;
use std::time::SystemTime;

use crate::session::cluster::Cluster;
use crate::this_node::NetnsOwner;
use ctk_cluster::rules::Proxy;
use ctk_cluster::source::SourceKind;

/// Taken of each reading; two of them are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Basis {
    /// `None` for the node's rules alone.
    kind: Option<SourceKind>,
    /// Nothing newer is in the source.
    time: Option<SystemTime>,
    /// See [`ctk_cluster::index::Index::uid`].
    uid: Option<String>,
    /// Resources that the source lacks.
    missing: BTreeSet<&'static str>,
    node: Option<String>,
    namespace: NetnsOwner,
    /// kube-proxy's modes, where rules were read.
    proxies: BTreeSet<Proxy>,
}

impl Basis {
    pub fn of(cluster: &Cluster) -> Self {
        let loaded = cluster.loaded.as_ref();
        let missing = loaded.map(|loaded| loaded.summary.missing.iter().copied());
        let rules = cluster.node_rules();
        Basis {
            kind: loaded.map(|loaded| loaded.source.kind),
            time: cluster.time(),
            uid: cluster
                .index()
                .and_then(|index| index.uid())
                .map(str::to_owned),
            missing: missing.into_iter().flatten().collect(),
            node: cluster.node.name.clone(),
            namespace: cluster.node.namespace,
            proxies: rules.map(|rules| rules.proxies.clone()).unwrap_or_default(),
        }
    }

    /// Why a later reading cannot stand for this one; `None` where it can.
    pub fn lost_by(&self, later: &Basis) -> Option<String> {
        if self.kind != later.kind {
            return Some("it is a source of another kind than at the first look".to_owned());
        }
        if self.uid.is_some() && self.uid != later.uid {
            return Some("it is another cluster than at the first look".to_owned());
        }
        if later.time < self.time {
            return Some("it is older than at the first look".to_owned());
        }
        let lacks: Vec<&str> = later.missing.difference(&self.missing).copied().collect();
        if !lacks.is_empty() {
            return Some(format!(
                "it lacks {}, which the first look found",
                lacks.join(", ")
            ));
        }
        if self.namespace == NetnsOwner::Node && later.namespace != NetnsOwner::Node {
            return Some("it does not show any more that this namespace is the node's".to_owned());
        }
        if self.node.is_some() && self.node != later.node {
            return Some("it does not show this node any more".to_owned());
        }
        let gone: Vec<&str> = self
            .proxies
            .difference(&later.proxies)
            .map(|proxy| proxy.name())
            .collect();
        if !gone.is_empty() {
            return Some(format!(
                "kube-proxy's rules ({}) are not on this node any more, or cannot be read",
                gone.join(", ")
            ));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn basis() -> Basis {
        Basis {
            kind: Some(SourceKind::File),
            time: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(100)),
            uid: Some("a".to_owned()),
            missing: BTreeSet::from(["pods"]),
            node: Some("node1".to_owned()),
            namespace: NetnsOwner::Node,
            proxies: BTreeSet::from([Proxy::Iptables]),
        }
    }

    #[test]
    fn a_reading_that_lost_nothing_stands_for_the_first() {
        let more = Basis {
            time: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(101)),
            missing: BTreeSet::new(),
            proxies: BTreeSet::from([Proxy::Iptables, Proxy::Ipvs]),
            ..basis()
        };
        let unknown = Basis {
            uid: None,
            node: None,
            namespace: NetnsOwner::Foreign,
            ..basis()
        };
        for (first, later) in [(basis(), basis()), (basis(), more), (unknown, basis())] {
            assert_eq!(first.lost_by(&later), None, "{first:?} {later:?}");
        }
    }

    #[test]
    fn every_loss_is_named() {
        type Change = fn(&mut Basis);
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
            (|b| b.namespace = NetnsOwner::Foreign, "is the node's"),
            (|b| b.node = None, "this node"),
            (|b| b.proxies.clear(), "rules (iptables)"),
        ];
        for (change, words) in losses {
            let mut later = basis();
            change(&mut later);
            let why = basis().lost_by(&later).unwrap_or_default();
            assert!(why.contains(words), "{words}: {why}");
        }
    }
}
