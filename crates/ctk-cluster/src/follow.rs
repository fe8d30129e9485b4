//! Keeps a living cluster current: each kind is listed once, and followed by a stream of events from there.
//!
//! Every stream has a thread of its own (`feed`), which writes what it hears on one `board`. Whoever judges takes an
//! index of all of it now and then; what happened to endpoints is noted event by event. While what is known of a kind may
//! lack something (its stream is gone for longer than [`GRACE`], it is listed anew, it is forbidden), that kind counts as
//! missing in the index: names stay, and nothing is judged by it.
//!
//! The streams are independent of each other, so one may be a moment ahead of another, and all are a moment behind the
//! cluster: an entry younger than [`DEFAULT_SETTLE`] may go to an endpoint that was not heard of yet. What is judged by is older
//! still while a change waits to be built in, and while nothing proves that a silent stream lives: [`Follower::behind`].

mod connect;
mod event;
mod feed;
mod pace;
mod reflector_state;
mod store;
#[cfg(test)]
mod tests;
mod transition;
mod update;

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ipnet::IpNet;

use super::build::Builder;
use super::connection::{LiveError, Options};
use super::index::{Endpoint, Name};
use super::list_status::{Listed, gaps};
use super::lister::ReadError;
use super::live;
use super::object::Kind;
use super::read_scope::ChoosePods;
use super::server::{GetError, Server};
use super::service_scope::ChosenAddresses;
use super::source::Loaded;
use connect::Login;
use pace::Pace;
pub use reflector_state::GRACE;
use reflector_state::{FeedHandle, ReflectorState};
use store::Decoder;
pub use transition::Change;
pub use update::ClusterUpdate;

/// An entry younger than this may go to an endpoint that nobody told of yet.
pub const DEFAULT_SETTLE: Duration = Duration::from_millis(2500);
/// Streams that are not open by so long after the lists are not waited for.
const FIRST_STREAMS: Duration = Duration::from_secs(1);
/// A list, or the part of it that a selector chooses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feed {
    Services,
    Slices,
    Nodes,
    ServiceCidrs,
    /// All Pods.
    Pods,
    /// Those of this node.
    PodsOf(String),
    /// Those with this address.
    PodsAt(IpAddr),
}

impl Feed {
    fn kind(&self) -> Kind {
        match self {
            Feed::Services => Kind::Service,
            Feed::Slices => Kind::EndpointSlice,
            Feed::Nodes => Kind::Node,
            Feed::ServiceCidrs => Kind::ServiceCidr,
            Feed::Pods | Feed::PodsOf(_) | Feed::PodsAt(_) => Kind::Pod,
        }
    }

    fn selector(&self) -> Option<String> {
        match self {
            Feed::PodsOf(node) => Some(format!("spec.nodeName={node}")),
            Feed::PodsAt(address) => Some(format!("status.podIP={address}")),
            _ => None,
        }
    }
}

/// A server whose answers may go on for a long time.
pub trait Stream: Server + Send {
    /// Reading and asking take no longer than until then. What is not there by then may be read later.
    fn until(&mut self, deadline: Instant);
}

/// What happened to one endpoint of a Service port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointChange {
    pub namespace: Name,
    pub service: Name,
    /// Name of the Service port.
    pub port: Option<Name>,
    /// Number of the Service port.
    pub number: u16,
    pub protocol: u8,
    /// As it is now; as it was, when it is gone.
    pub endpoint: Endpoint,
    pub change: Change,
}

/// Follows a cluster until it is dropped.
pub struct Follower {
    board: Arc<ReflectorState>,
    login: Arc<dyn Login>,
    limit: Duration,
    ranges: Vec<IpNet>,
    /// Every feed that is read, with the word that ends it.
    feeds: BTreeMap<Feed, Arc<AtomicBool>>,
    /// What the last index said of each list.
    listed: Vec<Listed>,
    /// Addresses of which the last index knows who has them.
    asked: HashSet<IpAddr>,
    /// No index is built before, unless a list is lost or found.
    not_before: Instant,
}

/// What verdicts hang on.
const DECIDING: [Feed; 2] = [Feed::Services, Feed::Slices];

const FIRST: [Feed; 4] = [
    Feed::Services,
    Feed::Slices,
    Feed::Nodes,
    Feed::ServiceCidrs,
];

impl Follower {
    /// Connects, reads every list within `options.limit`, and goes on following them.
    ///
    /// # Errors
    /// Nothing could be read at all. Whatever less is missing stands in [`Loaded::listed`], and is tried again.
    pub fn start(
        options: &Options,
        choose_pods: Option<ChoosePods>,
        service_ranges: &[IpNet],
    ) -> Result<(Self, Loaded), LiveError> {
        let deadline = Instant::now() + options.limit;
        let limit = options.limit;
        let (login, whom) = connect::connect(options, deadline)?;
        let mut follower = Follower {
            board: Arc::default(),
            login,
            limit,
            ranges: service_ranges.to_vec(),
            feeds: BTreeMap::new(),
            listed: Vec::new(),
            asked: HashSet::new(),
            not_before: Instant::now(),
        };
        for feed in FIRST {
            follower.read(feed)?;
        }
        let never = || false;
        follower.board.wait(&[Feed::Services], deadline, &never);
        let error = follower.board.known().first_error.clone();
        if let Some(error) = error.filter(GetError::ends_all) {
            return Err(live::explained(ReadError::Get(error), &whom, limit));
        }
        follower.board.wait(&FIRST, deadline, &never);
        follower.read_pods(choose_pods, deadline)?;
        let pods: Vec<Feed> = follower.feeds.keys().cloned().collect();
        follower.board.wait(&pods, deadline, &never);
        // Who may list and not watch is to know at once, while there may be another source to go on to.
        let soon = deadline.min(Instant::now() + FIRST_STREAMS);
        follower.board.wait_for_streams(&DECIDING, soon);
        if Instant::now() >= deadline && follower.knows_nothing() {
            return Err(LiveError::timed_out(limit));
        }
        let mut loaded = follower
            .build()
            .map_err(|error| live::explained(ReadError::ServiceRange(error), &whom, limit))?;
        let warnings = std::mem::take(&mut follower.board.known().warnings);
        loaded.warnings.extend(warnings);
        loaded.warnings.extend(gaps(&loaded.listed));
        Ok((follower, loaded))
    }

    fn knows_nothing(&self) -> bool {
        !FIRST.iter().any(|feed| self.board.is_whole(feed))
    }

    /// Reads the Pods that are chosen by what else is known of the cluster; all of them without a choice.
    fn read_pods(
        &mut self,
        choose: Option<ChoosePods>,
        deadline: Instant,
    ) -> Result<(), LiveError> {
        let chosen = choose.and_then(|choose| {
            let mut builder = Builder::new(&self.ranges);
            self.board.known().store.fill(&mut builder);
            choose(&builder.without_pods())
        });
        let Some(chosen) = chosen else {
            return self.read(Feed::Pods);
        };
        let of_node = Feed::PodsOf(chosen.node);
        self.read(of_node.clone())?;
        self.board.wait(&[of_node], deadline, &|| false);
        self.ask(chosen.addresses).map(|_| ())
    }

    /// Begins to follow one feed.
    fn read(&mut self, feed: Feed) -> Result<(), LiveError> {
        if self.feeds.contains_key(&feed) {
            return Ok(());
        }
        let over = Arc::new(AtomicBool::new(false));
        let (credential, server) = self.login.client();
        let reader = feed::Reader {
            pace: Pace::of(&feed),
            troubled: false,
            recoveries: 0,
            post: FeedHandle::new(&self.board, &feed, &over),
            server,
            login: Arc::clone(&self.login),
            credential,
            limit: self.limit,
            ranges: self.ranges.clone(),
            decoder: Decoder::new(&self.ranges),
            partial: None,
        };
        self.feeds.insert(feed, over);
        let spawned = std::thread::Builder::new()
            .name("feed".to_owned())
            .stack_size(512 * 1024)
            .spawn(move || reader.run());
        spawned
            .map(|_| ())
            .map_err(|error| LiveError::no_thread(&error))
    }

    fn end(&mut self, feed: &Feed) {
        if let Some(over) = self.feeds.remove(feed) {
            over.store(true, Ordering::Relaxed);
            self.board.remove(feed);
        }
    }

    /// Only Pods of one node are followed, and those of some addresses.
    pub fn chooses_pods(&self) -> bool {
        !self.feeds.contains_key(&Feed::Pods)
    }

    /// Who has these addresses must be known, and no others; where those that decide cannot be selected, all Pods are followed from now
    /// on. `false`: that is not known for want of the node's own Pods, so it is to be asked again later.
    ///
    /// # Errors
    /// There can be no other thread.
    pub fn ask(&mut self, addresses: ChosenAddresses) -> Result<bool, LiveError> {
        let of_node = self.feeds.keys().find(|f| matches!(f, Feed::PodsOf(_)));
        let Some(of_node) = of_node.cloned() else {
            return Ok(true);
        };
        if addresses != ChosenAddresses::default() && !self.board.is_whole(&of_node) {
            return Ok(false);
        }
        let deciding = addresses.deciding.len();
        let addresses = addresses.one_by_one(self.board.known().store.pods(&of_node));
        let of_pods = self.feeds.keys().filter(|feed| feed.kind() == Kind::Pod);
        let of_pods: Vec<Feed> = of_pods.cloned().collect();
        let Some(addresses) = addresses else {
            tracing::info!(addresses = deciding, "all Pods are followed now");
            for feed in of_pods {
                self.end(&feed);
            }
            return self.read(Feed::Pods).map(|()| true);
        };
        for feed in of_pods {
            if matches!(&feed, Feed::PodsAt(address) if !addresses.contains(address)) {
                self.end(&feed);
            }
        }
        for address in addresses {
            self.read(Feed::PodsAt(address))?;
        }
        Ok(true)
    }

    /// How far the last index lies behind the cluster, the delay of a stream aside: something newer waits to be built in, or
    /// nothing proves that there is nothing newer.
    pub fn behind(&self) -> Duration {
        let as_of = self.board.known().as_of();
        as_of.map_or(Duration::ZERO, |as_of| as_of.elapsed())
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        for over in self.feeds.values() {
            over.store(true, Ordering::Relaxed);
        }
    }
}
