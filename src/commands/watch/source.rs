//! The cluster that a watch judges by, and how it is kept current: a file is read again when it changes, this node's rules
//! when they changed, and the API is followed.

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
use ctk_cluster::service_scope::{ChosenAddresses, MOST_NAMED};
use ctk_cluster::source::{ClusterSource, Loaded};
use ctnetlink::flow::Flow;

use super::endpoints::{Heard, Led, Poller};

/// Between two looks whether the node's rules changed, and two readings where that cannot be told.
const RULES: Duration = Duration::from_secs(10);

/// Addresses that are asked for although no entry is known to need it, for so long.
const FORESEEN: usize = 25;
const FORESEEN_FOR: Duration = Duration::from_secs(5);

pub(super) struct Source<'a> {
    query: &'a SourceQuery,
    follower: Option<Follower>,
    /// A newer index than the one that is judged by.
    newer: Option<Loaded>,
    /// When this node's rules are read again, where they are the source.
    next_rules: Option<Instant>,
    /// State of the rules when they were read wholly.
    revision: Option<Revision>,
    /// Modification time of the cluster file that was read.
    file_time: Option<SystemTime>,
    led: Led,
    poller: Option<Poller>,
    /// Addresses whose owners are asked for, and those that decide a verdict.
    asked: ChosenAddresses,
    in_question: HashSet<IpAddr>,
    /// Addresses whose owners are only to be named: the lowest ones.
    unnamed: BTreeSet<IpAddr>,
    /// Addresses of endpoints that have just gone, and until when they are asked for.
    foreseen: HashMap<IpAddr, Instant>,
}

impl<'a> Source<'a> {
    pub fn new(query: &'a SourceQuery) -> Self {
        Source {
            query,
            follower: None,
            newer: None,
            next_rules: None,
            revision: None,
            file_time: None,
            led: Led::default(),
            poller: None,
            asked: ChosenAddresses::default(),
            in_question: HashSet::new(),
            unnamed: BTreeSet::new(),
            foreseen: HashMap::new(),
        }
    }

    /// Reads the cluster for the first time, and begins to follow what can be followed.
    ///
    /// # Errors
    /// The source that was named cannot be read.
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
            let saved = cluster.as_ref().is_some_and(Cluster::is_rules_only);
            self.poller = (!saved)
                .then(|| Poller::start(&self.query.netns, interval))
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

    /// Reads a file or the rules, also once more.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn read(&mut self) -> Result<Option<Cluster>, CommandError> {
        self.revision = None;
        // Before the reading: what changes meanwhile is read again.
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
        self.next_rules = live.then(|| Instant::now() + RULES);
        Ok(cluster)
    }

    /// When the rules, which are due to be read again, were seen to be those that were read. `None`: they must be read.
    pub fn unchanged(&mut self) -> Option<SystemTime> {
        let read = self.revision.as_ref()?;
        let time = SystemTime::now();
        if node_rules::revision(&self.query.netns).as_ref() != Some(read) {
            return None;
        }
        self.next_rules = self.next_rules.map(|_| Instant::now() + RULES);
        Some(time)
    }

    /// It could not be read again: not before it changes again, or is due again.
    pub fn put_off(&mut self, time: Option<SystemTime>) -> &'static str {
        self.file_time = time;
        self.next_rules = self.next_rules.map(|_| Instant::now() + RULES);
        match self.next_rules {
            None => "the new cluster file is not used",
            Some(_) => "this node's rules are not used as they are now",
        }
    }

    /// What a new reading of the rules shows.
    pub fn led(&mut self, cluster: Option<&Cluster>) -> Vec<Heard> {
        let rules = cluster.filter(|cluster| cluster.is_live_rules());
        match rules.and_then(Cluster::node_rules) {
            Some(rules) => self.led.read(rules, SystemTime::now()),
            None => Vec::new(),
        }
    }

    pub fn is_followed(&self) -> bool {
        self.follower.is_some()
    }

    /// How far the newest state lies behind the cluster; `None` where it is not followed.
    pub fn behind(&self) -> Option<Duration> {
        self.follower.as_ref().map(Follower::behind)
    }

    /// A newer state than the one that is judged by.
    pub fn take_newer(&mut self) -> Option<Loaded> {
        self.newer.take()
    }

    /// The file changed, or it is time to read the rules.
    pub fn is_due(&self) -> bool {
        self.modified() != self.file_time || self.next_rules.is_some_and(|at| at <= Instant::now())
    }

    /// When the cluster file was written; as it was read for everything that is no file.
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

    /// What happened to endpoints since, in order of time.
    pub fn news(&mut self) -> Vec<Heard> {
        let mut heard = self.changes();
        // Before the next index, which would leave open what hangs on the answer.
        self.ask();
        if let Some(follower) = &mut self.follower {
            let news = follower.news();
            news.notes.iter().for_each(note);
            if let Some(loaded) = news.loaded {
                self.newer = Some(loaded);
            }
        }
        if let Some(poller) = &self.poller {
            match poller.news() {
                Some(of_rules) => {
                    of_rules.note.iter().for_each(note);
                    heard.extend(of_rules.heard);
                }
                None => self.poller = None,
            }
        }
        heard.sort_by_key(|heard| heard.time);
        heard
    }

    /// What the API told of endpoints. Flows to one that is gone will hang on who has its address now.
    fn changes(&mut self) -> Vec<Heard> {
        let Some(follower) = &mut self.follower else {
            return Vec::new();
        };
        let (changes, chooses) = (follower.changes(), follower.chooses_pods());
        for (_, change) in &changes {
            let gone = change.change == Change::Gone && chooses;
            if gone && self.foreseen.len() < FORESEEN {
                let until = Instant::now() + FORESEEN_FOR;
                self.foreseen.insert(change.endpoint.address, until);
            }
        }
        let changes = changes.into_iter();
        changes
            .map(|(time, change)| Heard::of_api(time, change))
            .collect()
    }

    /// Who has the address in question of this flow must be asked, unless it is known.
    pub fn consider(&mut self, flow: &Flow, index: &Index, node: &ThisNode) {
        // Pods of this node are known without asking; what an answer told is known only for as long as it is asked for.
        let foreign = |address: IpAddr| {
            let mut pods = index.pods_at(address);
            !pods.any(|pod| pod.node.is_some() && pod.node.as_deref() == node.name.as_deref())
        };
        match pod_choice::question(flow, index, node) {
            Some(Question::Decides(address)) if foreign(address) => {
                self.in_question.insert(address);
            }
            Some(Question::Names(address)) if foreign(address) => {
                self.unnamed.insert(address);
                if self.unnamed.len() > MOST_NAMED {
                    self.unnamed.pop_last();
                }
            }
            _ => {}
        }
    }

    /// The table is looked at anew.
    pub fn forget_questions(&mut self) {
        self.in_question.clear();
        self.unnamed.clear();
    }

    /// Not all Pods are known, so that it must be asked who has an address.
    pub fn asks(&self) -> bool {
        self.follower.as_ref().is_some_and(Follower::chooses_pods)
    }

    /// Asks for the addresses in question.
    pub fn ask(&mut self) {
        let now = Instant::now();
        self.foreseen.retain(|_, until| *until > now);
        let mut wanted = ChosenAddresses {
            deciding: self.in_question.clone(),
            named: self.unnamed.iter().copied().collect(),
        };
        wanted.deciding.extend(self.foreseen.keys());
        if self.asked == wanted {
            return;
        }
        let follower = self.follower.as_mut().filter(|f| f.chooses_pods());
        match follower.map_or(Ok(true), |follower| follower.ask(wanted.clone())) {
            Ok(true) => self.asked = wanted,
            // It cannot be asked yet.
            Ok(false) => {}
            Err(error) => {
                self.asked = wanted;
                note(format!("who has an address cannot be asked: {error}"));
            }
        }
    }

    /// Says what of the source is missing at first; whether nothing is judged for it.
    ///
    /// # Errors
    /// Names or verdicts were asked for, and there is no source of them.
    pub fn require(&self, cluster: Option<&Cluster>, asked: bool) -> Result<bool, CommandError> {
        cluster::require(self.query, cluster, asked)?;
        let missing = cluster.and_then(|cluster| caveats::incompleteness(cluster, 0));
        missing.iter().for_each(note);
        Ok(missing.is_some())
    }
}
