//! Cluster that a watch judges by, kept current: a file and this node's rules are read again when they change, and the API is
//! followed.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};

use crate::error::CommandError;
use crate::query::{EntryQuery, SourceQuery};
use crate::session::caveats;
use crate::session::cluster::{self, Cluster};
use crate::session::cluster_source::{self, Purpose};
use crate::session::node_rules;
use crate::session::pod_choice::{self, Question};
use crate::shell::names;
use crate::terminal::messages::note;
use crate::this_node::ThisNode;
use ctk_cluster::follow::{Change, Follower};
use ctk_cluster::index::Index;
use ctk_cluster::read_scope::ReadScope;
use ctk_cluster::rules::present::Revision;
use ctk_cluster::service_scope::{ChosenAddresses, MAX_NAME_LOOKUPS};
use ctk_cluster::source::{ClusterSource, Loaded};
use ctnetlink::flow::Flow;

use crate::watch::endpoint_event::{EndpointEvent, RuleTargets};
use crate::watch::freshness::SourceFreshness;

use super::rules_poller::RulesPoller;

/// Pause between two checks whether the node's rules changed, or two readings when that cannot be checked.
const RULES_INTERVAL: Duration = Duration::from_secs(10);

/// Most addresses that are requested in advance, before an entry needs them.
const MAX_PREFETCHED: usize = 25;
/// Time for which an address is requested in advance.
const PREFETCH_TIME: Duration = Duration::from_secs(5);

pub(super) struct WatchedCluster<'a> {
    query: &'a SourceQuery,
    follower: Option<Follower>,
    /// A newer state than the one that judges.
    newer: Option<Loaded>,
    /// Time of the next reading of this node's rules, when they are the source.
    next_rules: Option<Instant>,
    /// Revision of the rules when they were read completely.
    revision: Option<Revision>,
    /// Modification time of the cluster file that was read.
    file_time: Option<SystemTime>,
    rule_targets: RuleTargets,
    poller: Option<RulesPoller>,
    /// Addresses whose owners are requested from the API.
    requested: ChosenAddresses,
    /// Addresses whose owners decide a verdict.
    deciding: HashSet<IpAddr>,
    /// Addresses whose owners are needed for names only; the lowest ones.
    unnamed: BTreeSet<IpAddr>,
    /// Addresses of endpoints that have just gone, and the end of their requests in advance.
    prefetched: HashMap<IpAddr, Instant>,
}

impl<'a> WatchedCluster<'a> {
    pub fn new(query: &'a SourceQuery) -> Self {
        WatchedCluster {
            query,
            follower: None,
            newer: None,
            next_rules: None,
            revision: None,
            file_time: None,
            rule_targets: RuleTargets::default(),
            poller: None,
            requested: ChosenAddresses::default(),
            deciding: HashSet::new(),
            unnamed: BTreeSet::new(),
            prefetched: HashMap::new(),
        }
    }

    /// Reads the cluster for the first time, and starts to follow the API when it is the source.
    ///
    /// # Errors
    /// The chosen source cannot be read.
    pub fn open(
        &mut self,
        entries: &EntryQuery,
        interval: Duration,
    ) -> Result<Option<Cluster>, CommandError> {
        let cluster = match self.follow(entries)? {
            Some(cluster) => Some(cluster),
            None => self.read()?,
        };
        if self.next_rules.is_none() && cluster.is_some() {
            let is_saved = cluster.as_ref().is_some_and(Cluster::is_rules_only);
            self.poller = (!is_saved)
                .then(|| RulesPoller::start(&self.query.netns, interval))
                .flatten();
        }
        Ok(cluster)
    }

    fn follow(&mut self, entries: &EntryQuery) -> Result<Option<Cluster>, CommandError> {
        let demo = self.query.builtin.0.is_some();
        let api = match self.query.cluster {
            ClusterSource::Api => true,
            ClusterSource::Auto => !demo,
            _ => false,
        };
        if !api {
            return Ok(None);
        }
        let choice = pod_choice::choice(self.query, entries);
        let Some((follower, loaded)) = cluster_source::follow(self.query, choice)? else {
            return Ok(None);
        };
        let loaded = match self.query.cluster {
            ClusterSource::Auto => {
                let complete = loaded.summary.complete;
                let rules = || node_rules::automatic(&self.query.netns);
                let rules = (!complete).then(rules).flatten();
                cluster_source::prefer_complete_source(Some(loaded), rules.as_ref(), &|text| {
                    note(text);
                })
            }
            _ => Some(loaded),
        };
        let Some(loaded) = loaded else {
            return Ok(None);
        };
        self.follower = Some(follower);
        let cluster = Cluster::followed(self.query, loaded);
        names::keep(cluster.directory(), names::Keep::Always);
        Ok(Some(cluster))
    }

    /// Reads a file or the rules, for the first time or again.
    ///
    /// # Errors
    /// The source cannot be read.
    pub fn read(&mut self) -> Result<Option<Cluster>, CommandError> {
        self.revision = None;
        // Taken before the reading, so that a change during the reading is read again.
        let revision = node_rules::revision(&self.query.netns);
        let read = match self.next_rules {
            None => Cluster::read,
            Some(_) => Cluster::read_again,
        };
        let cluster = read(self.query, Purpose::Follow, ReadScope::default())?;
        self.file_time = match self.query.cluster {
            ClusterSource::Rules(None) | ClusterSource::Auto => None,
            _ => cluster.as_ref().and_then(Cluster::time),
        };
        let live = cluster.as_ref().is_some_and(Cluster::is_live_rules);
        let rules = cluster.as_ref().and_then(Cluster::node_rules);
        let whole = live && rules.is_some_and(|rules| !rules.cut);
        self.revision = revision.filter(|_| whole);
        self.next_rules = live.then(|| Instant::now() + RULES_INTERVAL);
        Ok(cluster)
    }

    /// Checks whether the rules, which are due, are still those that were read. Returns the time of the check, or `None` when
    /// they must be read.
    pub fn check_unchanged(&mut self) -> Option<SystemTime> {
        let read = self.revision.as_ref()?;
        let time = SystemTime::now();
        if node_rules::revision(&self.query.netns).as_ref() != Some(read) {
            return None;
        }
        self.next_rules = self.next_rules.map(|_| Instant::now() + RULES_INTERVAL);
        Some(time)
    }

    /// Postpones the reading of a source that could not be read, until it changes or is due again. Returns a description of
    /// the source.
    pub fn postpone(&mut self, time: Option<SystemTime>) -> &'static str {
        self.file_time = time;
        self.next_rules = self.next_rules.map(|_| Instant::now() + RULES_INTERVAL);
        match self.next_rules {
            None => "the new cluster file is not used",
            Some(_) => "this node's rules are not used as they are now",
        }
    }

    /// Returns the changes of endpoints that a new reading of the rules shows.
    pub fn rule_changes(&mut self, cluster: Option<&Cluster>) -> Vec<EndpointEvent> {
        let rules = cluster.filter(|cluster| cluster.is_live_rules());
        match rules.and_then(Cluster::node_rules) {
            Some(rules) => self.rule_targets.update(rules, SystemTime::now()),
            None => Vec::new(),
        }
    }

    /// Freshness of the state that judges. A followed source advances without a new state; a newer state that was not taken
    /// yet holds it back, as [`Follower::behind`] tells.
    pub fn freshness(&self, cluster: Option<&Cluster>) -> SourceFreshness {
        match &self.follower {
            Some(follower) => SourceFreshness::of_following(SystemTime::now(), follower.behind()),
            None => SourceFreshness::of_reading(cluster.and_then(Cluster::time)),
        }
    }

    /// Takes a newer state than the one that judges.
    pub fn take_newer(&mut self) -> Option<Loaded> {
        self.newer.take()
    }

    /// Returns whether the file changed or the rules are due.
    pub fn is_due(&self) -> bool {
        self.modified() != self.file_time || self.next_rules.is_some_and(|at| at <= Instant::now())
    }

    /// Time of modification of the cluster file; that of the last reading for any other source.
    pub fn modified(&self) -> Option<SystemTime> {
        match &self.query.cluster {
            ClusterSource::File(path) | ClusterSource::Rules(Some(path)) => {
                let metadata = std::fs::metadata(path)
                    .ok()
                    .filter(|metadata| metadata.is_file());
                metadata
                    .and_then(|metadata| metadata.modified().ok())
                    .or(self.file_time)
            }
            _ => self.file_time,
        }
    }

    /// Takes the changes of endpoints since the last call, in order of time, and receives a newer state.
    pub fn take_endpoint_events(&mut self) -> Vec<EndpointEvent> {
        let mut events = self.api_changes();
        // Requested before the next state, which leaves verdicts open that depend on the answer.
        self.request_owners();
        if let Some(follower) = &mut self.follower {
            let news = follower.news();
            news.notes.iter().for_each(note);
            if let Some(loaded) = news.loaded {
                self.newer = Some(loaded);
            }
        }
        if let Some(poller) = &self.poller {
            match poller.take_update() {
                Some(update) => {
                    update.note.iter().for_each(note);
                    events.extend(update.events);
                }
                None => self.poller = None,
            }
        }
        events.sort_by_key(|event| event.time);
        events
    }

    /// Takes the changes of endpoints that the API reported. The verdicts on flows to an endpoint that is gone depend on the
    /// new owner of its address, which is therefore requested in advance.
    fn api_changes(&mut self) -> Vec<EndpointEvent> {
        let Some(follower) = &mut self.follower else {
            return Vec::new();
        };
        let (changes, chooses) = (follower.changes(), follower.chooses_pods());
        for (_, change) in &changes {
            let is_gone = change.change == Change::Gone && chooses;
            if is_gone && self.prefetched.len() < MAX_PREFETCHED {
                let until = Instant::now() + PREFETCH_TIME;
                self.prefetched.insert(change.endpoint.address, until);
            }
        }
        let changes = changes.into_iter();
        changes
            .map(|(time, change)| EndpointEvent::of_api(time, change))
            .collect()
    }

    /// Notes the address whose owner is needed to judge or name this flow, unless it is known.
    pub fn note_unknown_owner(&mut self, flow: &Flow, index: &Index, node: &ThisNode) {
        // Pods of this node are always known; others only for as long as they are requested.
        let foreign = |address: IpAddr| {
            let mut pods = index.pods_at(address);
            !pods.any(|pod| pod.node.is_some() && pod.node.as_deref() == node.name.as_deref())
        };
        match pod_choice::question(flow, index, node) {
            Some(Question::Decides(address)) if foreign(address) => {
                self.deciding.insert(address);
            }
            Some(Question::Names(address)) if foreign(address) => {
                self.unnamed.insert(address);
                if self.unnamed.len() > MAX_NAME_LOOKUPS {
                    self.unnamed.pop_last();
                }
            }
            _ => {}
        }
    }

    /// Forgets the noted addresses, before a look at the table.
    pub fn forget_unknown_owners(&mut self) {
        self.deciding.clear();
        self.unnamed.clear();
    }

    /// Returns whether only chosen Pods are read, so that owners of addresses must be requested.
    pub fn requests_owners(&self) -> bool {
        self.follower.as_ref().is_some_and(Follower::chooses_pods)
    }

    /// Requests the owners of the noted addresses from the API.
    pub fn request_owners(&mut self) {
        let now = Instant::now();
        self.prefetched.retain(|_, until| *until > now);
        let mut addresses = ChosenAddresses {
            deciding: self.deciding.clone(),
            named: self.unnamed.iter().copied().collect(),
        };
        addresses.deciding.extend(self.prefetched.keys());
        if self.requested == addresses {
            return;
        }
        let follower = self.follower.as_mut().filter(|f| f.chooses_pods());
        match follower.map_or(Ok(true), |follower| follower.ask(addresses.clone())) {
            Ok(true) => self.requested = addresses,
            // The follower accepts no request yet.
            Ok(false) => {}
            Err(error) => {
                self.requested = addresses;
                note(format!(
                    "the owners of addresses cannot be requested: {error}"
                ));
            }
        }
    }

    /// Prints a note on missing parts of the source. Returns whether they prevent all verdicts.
    ///
    /// # Errors
    /// Names or verdicts are needed, and no source tells them.
    pub fn require(&self, cluster: Option<&Cluster>, asked: bool) -> Result<bool, CommandError> {
        cluster::require(self.query, cluster, asked)?;
        let missing = cluster.and_then(|cluster| caveats::incompleteness(cluster, 0));
        missing.iter().for_each(note);
        Ok(missing.is_some())
    }
}
