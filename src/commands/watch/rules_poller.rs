//! Polling of this node's rules for changes of their endpoints, on a thread of its own.

use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use crate::session::node_rules;
use crate::watch::endpoint_event::{EndpointEvent, RuleTargets};
use ctk_cluster::rules::NodeRules;
use ctk_cluster::rules::present::Revision;
use ctnetlink::netns::Netns;

/// Shortest pause between two polls: the tools print all rules each time.
const MIN_POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Shortest pause between two polls while kube-proxy has no rules.
const ABSENT_POLL_INTERVAL: Duration = Duration::from_secs(60);
/// The pause after a poll is at least this many times as long as the poll.
const PAUSE_FACTOR: u32 = 10;

/// Result of a poll.
#[derive(Debug, Default)]
pub(super) struct RulesUpdate {
    pub events: Vec<EndpointEvent>,
    /// Note on rules that are not understood, so that changes of their endpoints are not seen.
    pub note: Option<String>,
}

/// State of the rules at the last poll.
#[derive(Debug, Default)]
struct RulesState {
    targets: RuleTargets,
    /// kube-proxy's rules were present in a poll.
    has_seen_rules: bool,
    /// Revision of the rules when they were read completely.
    revision: Option<Revision>,
    /// Last note on rules that are not understood.
    not_understood: Option<String>,
}

impl RulesState {
    /// Reads kube-proxy's rules of the namespace when they may have changed.
    fn poll(&mut self, netns: &Netns) -> RulesUpdate {
        // Taken before the reading, so that a change during the reading is read again.
        let revision = node_rules::revision(netns);
        if revision.is_some() && revision == self.revision {
            return RulesUpdate::default();
        }
        let read = node_rules::automatic(netns);
        self.revision = revision.filter(|_| read.as_ref().is_some_and(|read| !read.rules.cut));
        // Removal of all rules and a failed reading look the same: neither is a change.
        let Some(read) = read.filter(|read| read.rules.has_kube_proxy()) else {
            return RulesUpdate::default();
        };
        self.has_seen_rules = true;
        RulesUpdate {
            events: self.targets.update(&read.rules, SystemTime::now()),
            note: self.new_note(&read.rules),
        }
    }

    /// Returns the note when it differs from the last one.
    fn new_note(&mut self, rules: &NodeRules) -> Option<String> {
        let note = node_rules::not_understood(rules);
        let is_new = note != self.not_understood;
        self.not_understood.clone_from(&note);
        let note = note.filter(|_| is_new)?;
        Some(format!("{note}; changes of their endpoints are not shown"))
    }
}

/// Handle of the polling thread.
pub(super) struct RulesPoller(Receiver<RulesUpdate>);

impl RulesPoller {
    /// Starts to poll. `interval`: interval of the watch; zero for polls that are as rare as possible.
    pub fn start(netns: &Netns, interval: Duration) -> Option<Self> {
        let (sender, receiver) = sync_channel(1);
        let netns = netns.clone();
        let pause = match interval {
            Duration::ZERO => 2 * MIN_POLL_INTERVAL,
            interval => interval.max(MIN_POLL_INTERVAL),
        };
        let work = move || {
            let mut state = RulesState::default();
            loop {
                let began = Instant::now();
                let update = state.poll(&netns);
                let took = began.elapsed();
                if sender.send(update).is_err() {
                    return;
                }
                // kube-proxy may start later than this watch.
                let pause = match state.has_seen_rules {
                    true => pause,
                    false => pause.max(ABSENT_POLL_INTERVAL),
                };
                std::thread::sleep(pause.max(took * PAUSE_FACTOR));
            }
        };
        let spawned = std::thread::Builder::new()
            .name("rules".to_owned())
            .spawn(work);
        spawned.ok().map(|_| RulesPoller(receiver))
    }

    /// Takes the changes since the last call. `None`: the thread has ended.
    pub fn take_update(&self) -> Option<RulesUpdate> {
        match self.0.try_recv() {
            Ok(update) => Some(update),
            Err(TryRecvError::Empty) => Some(RulesUpdate::default()),
            Err(TryRecvError::Disconnected) => None,
        }
    }
}
