//! What happens to endpoints, as records among the flows: by the API, and by this node's rules.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::attribution;
use crate::attribution::{EndpointName, Party, PartyKind};
use crate::select::Selectors;
use crate::session::node_rules;
use crate::watch::record::{self, Change, SeenBy};
use ctk_cluster::follow::{self, EndpointChange};
use ctk_cluster::index::Index;
use ctk_cluster::rules::NodeRules;
use ctk_cluster::rules::changes::{Target, Targets, changes, targets};
use ctk_cluster::rules::present::Revision;
use ctnetlink::netns::Netns;

/// Between two looks whether the rules changed: the tools print all of them each time.
const LEAST: Duration = Duration::from_secs(5);

/// Between two looks for kube-proxy's rules where there are none.
const SELDOM: Duration = Duration::from_secs(60);
/// Reading takes one part in so many of the time at most.
const SHARE: u32 = 10;

/// What was heard.
#[derive(Debug)]
pub(super) struct Heard {
    /// Nanoseconds since the Unix epoch.
    pub time: u64,
    what: What,
}

#[derive(Debug)]
enum What {
    Api(EndpointChange),
    /// The rules gained it, or lost it; the number of the Service port, where it is known.
    Rules(bool, Target, Option<u16>),
}

impl Heard {
    pub fn of_api(time: SystemTime, change: EndpointChange) -> Self {
        Heard {
            time: nanos(time),
            what: What::Api(change),
        }
    }

    pub fn is_wanted(&self, selectors: &Selectors) -> bool {
        match &self.what {
            What::Api(change) => selectors.wants_endpoints_of(
                &change.namespace,
                &change.service,
                change.port.as_deref(),
                Some(change.number),
            ),
            What::Rules(_, target, number) => {
                let (namespace, name, port) = &target.service;
                selectors.wants_endpoints_of(namespace, name, port.as_deref(), *number)
            }
        }
    }

    /// As it is told; `index` knows who has an address.
    pub fn record<'t>(&'t self, index: Option<&'t Index>) -> record::EndpointChange<'t> {
        let party = |place: SocketAddr, protocol: u8| {
            attribution::party_at(index?, place.ip(), Some((protocol, place.port())))
        };
        match &self.what {
            What::Api(change) => {
                let endpoint = &change.endpoint;
                let address = SocketAddr::new(endpoint.address, endpoint.port);
                let unknown;
                let index = match index {
                    Some(index) => index,
                    None => {
                        unknown = NOTHING.get_or_init(Index::default);
                        unknown
                    }
                };
                let party = party(address, change.protocol);
                record::EndpointChange {
                    service: Some((&change.namespace, &change.service)),
                    port: change.port.as_deref(),
                    protocol: change.protocol,
                    address,
                    endpoint: attribution::listed_endpoint(index, endpoint, party),
                    change: word(change.change),
                    seen_by: SeenBy::Api,
                }
            }
            What::Rules(gained, target, _) => {
                let (namespace, name, port) = &target.service;
                let nobody = Party {
                    kind: PartyKind::Unknown,
                    namespace: None,
                    name: None,
                    node: None,
                };
                record::EndpointChange {
                    service: Some((namespace, name)),
                    port: port.as_deref(),
                    protocol: target.protocol,
                    address: target.place,
                    endpoint: EndpointName {
                        party: party(target.place, target.protocol).unwrap_or(nobody),
                        ready: None,
                        serving: None,
                        terminating: None,
                        manual: false,
                    },
                    change: match gained {
                        true => Change::Added,
                        false => Change::Gone,
                    },
                    seen_by: SeenBy::Rules,
                }
            }
        }
    }
}

static NOTHING: std::sync::OnceLock<Index> = std::sync::OnceLock::new();

fn word(change: follow::Change) -> Change {
    match change {
        follow::Change::Added => Change::Added,
        follow::Change::Ready => Change::Ready,
        follow::Change::Serving => Change::Serving,
        follow::Change::Terminating => Change::Terminating,
        follow::Change::Gone => Change::Gone,
    }
}

fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

/// Where the rules led when they were read last.
#[derive(Debug, Default)]
pub(super) struct Led {
    targets: Option<Targets>,
    /// kube-proxy's rules were there once.
    seen: bool,
    /// State of the rules when they were read wholly.
    revision: Option<Revision>,
    /// The last note about rules that are not understood.
    noted: Option<String>,
}

/// What the rules tell.
#[derive(Debug, Default)]
pub(super) struct OfRules {
    pub heard: Vec<Heard>,
    /// For stderr: some rules are not understood, so that changes of their endpoints are not seen.
    pub note: Option<String>,
}

impl Led {
    /// Reads kube-proxy's rules of the namespace where they may have changed.
    fn look(&mut self, netns: &Netns) -> OfRules {
        // Before the reading: what changes meanwhile is read again.
        let revision = node_rules::revision(netns);
        if revision.is_some() && revision == self.revision {
            return OfRules::default();
        }
        let read = node_rules::automatic(netns);
        self.revision = revision.filter(|_| read.as_ref().is_some_and(|read| !read.rules.cut));
        // All rules gone, or not readable for once: kube-proxy's are not told from that.
        let Some(read) = read.filter(|read| read.rules.has_kube_proxy()) else {
            return OfRules::default();
        };
        self.seen = true;
        OfRules {
            heard: self.read(&read.rules, SystemTime::now()),
            note: self.note(&read.rules),
        }
    }

    /// Told once, and again when the number changes.
    fn note(&mut self, rules: &NodeRules) -> Option<String> {
        let noted = node_rules::not_understood(rules);
        let is_new = noted != self.noted;
        self.noted.clone_from(&noted);
        let note = noted.filter(|_| is_new)?;
        Some(format!("{note}; changes of their endpoints are not told"))
    }

    /// What changed since the last reading. Rules that are not wholly known say nothing.
    pub fn read(&mut self, rules: &NodeRules, time: SystemTime) -> Vec<Heard> {
        let Some(now) = targets(rules) else {
            return Vec::new();
        };
        let found = match &self.targets {
            Some(before) => changes(before, &now),
            None => Vec::new(),
        };
        self.targets = Some(now);
        let time = nanos(time);
        let heard = found.into_iter().map(|(gained, target, number)| Heard {
            time,
            what: What::Rules(gained, target, number),
        });
        heard.collect()
    }
}

/// Reads this node's rules when they changed, on a thread of its own.
pub(super) struct Poller(Receiver<OfRules>);

impl Poller {
    /// Tells of kube-proxy's rules in the namespace, from when they are there. `interval`: 0 = as rarely as can be.
    pub fn start(netns: &Netns, interval: Duration) -> Option<Self> {
        let (sender, receiver) = sync_channel(1);
        let netns = netns.clone();
        let pause = match interval {
            Duration::ZERO => 2 * LEAST,
            interval => interval.max(LEAST),
        };
        let work = move || {
            let mut led = Led::default();
            loop {
                let began = Instant::now();
                let of_rules = led.look(&netns);
                let took = began.elapsed();
                if sender.send(of_rules).is_err() {
                    return;
                }
                // It may start later than this watch.
                let pause = match led.seen {
                    true => pause,
                    false => pause.max(SELDOM),
                };
                std::thread::sleep(pause.max(took * SHARE));
            }
        };
        let spawned = std::thread::Builder::new()
            .name("rules".to_owned())
            .spawn(work);
        spawned.ok().map(|_| Poller(receiver))
    }

    /// What is new. `None`: nothing will ever be.
    pub fn news(&self) -> Option<OfRules> {
        match self.0.try_recv() {
            Ok(of_rules) => Some(of_rules),
            Err(TryRecvError::Empty) => Some(OfRules::default()),
            Err(TryRecvError::Disconnected) => None,
        }
    }
}
