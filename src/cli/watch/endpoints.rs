//! What happens to endpoints, as records among the flows: by the API, and by this node's rules.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::cli::node_rules;
use crate::cluster::follow::{self, EndpointChange};
use crate::cluster::index::Index;
use crate::cluster::rules::NodeRules;
use crate::cluster::rules::changes::{Target, Targets, changes, targets};
use crate::entry::{EndpointName, Party, PartyKind};
use crate::label;
use crate::netns::Netns;
use crate::select::Selectors;
use crate::watch::record::{self, Change, SeenBy};

/// Between two readings of the rules: the tools print all of them each time.
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
            label::party_at(index?, place.ip(), Some((protocol, place.port())))
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
                    endpoint: label::listed_endpoint(index, endpoint, party),
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
pub(super) struct Led(Option<Targets>);

impl Led {
    /// There were rules that were wholly known.
    fn has_read(&self) -> bool {
        self.0.is_some()
    }

    /// What changed since the last reading. Rules that are not wholly known say nothing.
    pub fn read(&mut self, rules: &NodeRules, time: SystemTime) -> Vec<Heard> {
        let Some(now) = targets(rules) else {
            return Vec::new();
        };
        let found = match &self.0 {
            Some(before) => changes(before, &now),
            None => Vec::new(),
        };
        self.0 = Some(now);
        let time = nanos(time);
        let heard = found.into_iter().map(|(gained, target, number)| Heard {
            time,
            what: What::Rules(gained, target, number),
        });
        heard.collect()
    }
}

/// Reads this node's rules now and then, on a thread of its own.
pub(super) struct Poller(Receiver<Vec<Heard>>);

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
                // All rules gone, or not readable for once: kube-proxy's are not told from that.
                let read = node_rules::of_kube_proxy(&netns);
                let heard = read.map(|read| led.read(&read.rules, SystemTime::now()));
                let (seen, took) = (heard.is_some() || led.has_read(), began.elapsed());
                if sender.send(heard.unwrap_or_default()).is_err() {
                    return;
                }
                // It may start later than this watch.
                let pause = match seen {
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
    pub fn news(&self) -> Option<Vec<Heard>> {
        match self.0.try_recv() {
            Ok(heard) => Some(heard),
            Err(TryRecvError::Empty) => Some(Vec::new()),
            Err(TryRecvError::Disconnected) => None,
        }
    }
}
