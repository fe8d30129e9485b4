//! Keeps a live cluster current: each kind is listed once, then followed by a stream of events.
//!
//! Every stream has a thread of its own (`feed`), which writes its events to one `reflector_state`. Callers take an index of the
//! whole state at intervals; changes of endpoints are recorded event by event. While the state of a kind may be incomplete (its
//! stream has been gone for longer than [`GRACE`], it is listed again, or it is forbidden), the index marks that kind as missing:
//! names stay, and no verdict is based on it.
//!
//! The streams are independent, so that one may be a moment ahead of another, and all are a moment behind the cluster: an entry
//! younger than [`DEFAULT_SETTLE`] may go to an endpoint that was not reported yet. The index is older than that while a change
//! waits for the next one, and while a silent stream is not proven to be alive: [`Follower::behind`].

mod connect;
mod event;
mod feed;
mod pace;
mod reflector_state;
mod store;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
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
use super::connection::{ConnectionOptions, LiveError};
use super::index::{Endpoint, Name};
use super::list_status::{Listed, gaps};
use super::lister::ClusterReadError;
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

/// Age below which an entry may go to an endpoint that no event reported yet.
pub const DEFAULT_SETTLE: Duration = Duration::from_millis(2500);
/// Wait for the streams to open after the first lists.
const FIRST_STREAMS_TIMEOUT: Duration = Duration::from_secs(1);
/// A list, or the part of it that a selector chooses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feed {
    Services,
    Slices,
    Nodes,
    ServiceCidrs,
    /// All Pods.
    Pods,
    /// Pods of this node.
    PodsOf(String),
    /// Pods with this address.
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

/// A server whose answers may last for a long time.
pub trait Stream: Server + Send {
    /// Bounds reading and requests by this time. Data that arrives later can be read by a later call.
    fn until(&mut self, deadline: Instant);
}

/// A change of one endpoint of a Service port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointChange {
    pub namespace: Name,
    pub service: Name,
    /// Name of the Service port.
    pub port: Option<Name>,
    /// Number of the Service port.
    pub number: u16,
    pub protocol: u8,
    /// Current state; the last state, when the endpoint is gone.
    pub endpoint: Endpoint,
    pub change: Change,
}

/// Follows a cluster until it is dropped.
pub struct Follower {
    reflector: Arc<ReflectorState>,
    login: Arc<dyn Login>,
    limit: Duration,
    ranges: Vec<IpNet>,
    /// Feeds that are read, each with the flag that ends its reader.
    feeds: BTreeMap<Feed, Arc<AtomicBool>>,
    /// Status of each list in the last index.
    listed: Vec<Listed>,
    /// Addresses whose owners the last index knows.
    asked: HashSet<IpAddr>,
    /// Earliest time of the next index, unless a list is lost or recovered.
    not_before: Instant,
}

/// Feeds on which verdicts depend.
const DECIDING: [Feed; 2] = [Feed::Services, Feed::Slices];

const FIRST: [Feed; 4] = [
    Feed::Services,
    Feed::Slices,
    Feed::Nodes,
    Feed::ServiceCidrs,
];

impl Follower {
    /// Connects, reads every list within `options.limit`, and continues to follow them.
    ///
    /// # Errors
    /// Nothing could be read at all. Smaller gaps are listed in [`Loaded::listed`], and are retried.
    pub fn start(
        options: &ConnectionOptions,
        choose_pods: Option<ChoosePods>,
        service_ranges: &[IpNet],
    ) -> Result<(Self, Loaded), LiveError> {
        let deadline = Instant::now() + options.limit;
        let limit = options.limit;
        let (login, whom) = connect::connect(options, deadline)?;
        let mut follower = Follower {
            reflector: Arc::default(),
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
        follower.reflector.wait(&[Feed::Services], deadline, &never);
        let error = follower.reflector.known().first_error.clone();
        if let Some(error) = error.filter(GetError::ends_all) {
            return Err(live::explained(ClusterReadError::Get(error), &whom, limit));
        }
        follower.reflector.wait(&FIRST, deadline, &never);
        follower.read_pods(choose_pods, deadline)?;
        let pods: Vec<Feed> = follower.feeds.keys().cloned().collect();
        follower.reflector.wait(&pods, deadline, &never);
        // A user that may list and not watch must be detected at once, while another source can still be chosen.
        let soon = deadline.min(Instant::now() + FIRST_STREAMS_TIMEOUT);
        follower.reflector.wait_for_streams(&DECIDING, soon);
        if Instant::now() >= deadline && follower.knows_nothing() {
            return Err(LiveError::timed_out(limit));
        }
        let mut loaded = follower.build().map_err(|error| {
            live::explained(ClusterReadError::ServiceRange(error), &whom, limit)
        })?;
        let warnings = std::mem::take(&mut follower.reflector.known().warnings);
        loaded.warnings.extend(warnings);
        loaded.warnings.extend(gaps(&loaded.listed));
        Ok((follower, loaded))
    }

    fn knows_nothing(&self) -> bool {
        !FIRST.iter().any(|feed| self.reflector.is_whole(feed))
    }

    /// Reads the Pods that are chosen by the rest of the cluster; all of them without a choice.
    fn read_pods(
        &mut self,
        choose: Option<ChoosePods>,
        deadline: Instant,
    ) -> Result<(), LiveError> {
        let chosen = choose.and_then(|choose| {
            let mut builder = Builder::new(&self.ranges);
            self.reflector.known().store.fill(&mut builder);
            choose(&builder.without_pods())
        });
        let Some(chosen) = chosen else {
            return self.read(Feed::Pods);
        };
        let of_node = Feed::PodsOf(chosen.node);
        self.read(of_node.clone())?;
        self.reflector.wait(&[of_node], deadline, &|| false);
        self.ask(chosen.addresses).map(|_| ())
    }

    /// Starts to follow one feed.
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
            handle: FeedHandle::new(&self.reflector, &feed, &over),
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
            self.reflector.remove(feed);
        }
    }

    /// Reports whether only Pods of one node, and those of some addresses, are followed.
    pub fn chooses_pods(&self) -> bool {
        !self.feeds.contains_key(&Feed::Pods)
    }

    /// Follows the Pods of these addresses, and of no others. Where the deciding ones cannot be selected, all Pods are followed from
    /// now on. Returns `false` while the node's own Pods are not known: the caller must ask again later.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn ask(&mut self, addresses: ChosenAddresses) -> Result<bool, LiveError> {
        let of_node = self.feeds.keys().find(|f| matches!(f, Feed::PodsOf(_)));
        let Some(of_node) = of_node.cloned() else {
            return Ok(true);
        };
        if addresses != ChosenAddresses::default() && !self.reflector.is_whole(&of_node) {
            return Ok(false);
        }
        let deciding = addresses.deciding.len();
        let addresses = addresses.one_by_one(self.reflector.known().store.pods(&of_node));
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

    /// Age of the last index, without the delay of the streams: a newer change waits to be included, or no event proves that none
    /// exists.
    pub fn behind(&self) -> Duration {
        let as_of = self.reflector.known().as_of();
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
