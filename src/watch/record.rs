//! Records of a watch: the changes of entries and endpoints that it prints.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::attribution::EndpointName;
use crate::entry::Entry;
use crate::verdict::Verdict;

/// A pod that had an address earlier in the watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormerPod {
    pub namespace: Box<str>,
    pub name: Box<str>,
}

impl fmt::Display for FormerPod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// An entry with what the watch knows of its past.
#[derive(Clone, Debug)]
pub struct WatchedEntry<'c> {
    pub entry: Entry<'c>,
    /// The pod that had the reply source earlier in this watch, when no pod has it now.
    pub endpoint_was: Option<Arc<FormerPod>>,
}

/// One change, or one mark in the stream of changes.
#[derive(Debug)]
pub enum Record<'c> {
    /// An entry that existed when the watch began.
    Snapshot(WatchedEntry<'c>),
    /// An entry that was created, or that matches from now on.
    New(WatchedEntry<'c>),
    /// A change of status, mark or another attribute. Also the last record of an entry that matches no longer.
    Update(WatchedEntry<'c>),
    Destroy(WatchedEntry<'c>),
    /// A refill of the timer since the last look, with the seconds left then and now. The kernel sends no event for it.
    Refresh {
        watched: WatchedEntry<'c>,
        before: u32,
        after: u32,
    },
    /// A change of the verdict, caused by the cluster or by the entry.
    Verdict {
        watched: WatchedEntry<'c>,
        before: Option<Verdict>,
        after: Option<Verdict>,
    },
    /// A flow that has another endpoint than its previous entry; `before` is the text of that endpoint.
    Move {
        watched: WatchedEntry<'c>,
        before: String,
    },
    /// A change of an endpoint of a Service port.
    Endpoint(EndpointChange<'c>),
    /// A loss of events, with the number of overruns of the kernel's buffer or of the queue since the last gap.
    Gap {
        overruns: u64,
    },
    /// The view equals a dump, for the first time or again after a gap.
    Synced,
}

/// A change of one endpoint.
#[derive(Clone, Copy, Debug)]
pub struct EndpointChange<'c> {
    /// Namespace and name of the Service, when they are known.
    pub service: Option<(&'c str, &'c str)>,
    /// Name of the Service port; `None` also for a port without a name.
    pub port: Option<&'c str>,
    /// IANA protocol number.
    pub protocol: u8,
    pub address: SocketAddr,
    /// State after the change; last known state of an endpoint that is gone.
    pub endpoint: EndpointName<'c>,
    pub change: Change,
    pub seen_by: SeenBy,
}

/// Kind of a change. Ready, serving and terminating name the condition that changed; its new value is in the endpoint. An
/// endpoint that is added carries its first conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Added,
    Ready,
    Serving,
    Terminating,
    Gone,
}

impl Change {
    /// Name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Change::Added => "added",
            Change::Ready => "ready",
            Change::Serving => "serving",
            Change::Terminating => "terminating",
            Change::Gone => "gone",
        }
    }
}

/// Source that reported a change of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeenBy {
    /// An EndpointSlice.
    Api,
    /// The rules of this node.
    Rules,
}

impl SeenBy {
    /// Name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            SeenBy::Api => "api",
            SeenBy::Rules => "rules",
        }
    }
}

impl<'c> Record<'c> {
    /// Name in the JSON field `type`; `None` for a move, which JSON shows as `destroy` and `new`.
    pub const fn name(&self) -> Option<&'static str> {
        Some(match self {
            Record::Snapshot(_) => "snapshot",
            Record::New(_) => "new",
            Record::Update(_) => "update",
            Record::Destroy(_) => "destroy",
            Record::Refresh { .. } => "refresh",
            Record::Verdict { .. } => "verdict",
            Record::Endpoint(_) => "endpoint",
            Record::Gap { .. } => "gap",
            Record::Synced => "synced",
            Record::Move { .. } => return None,
        })
    }

    pub fn watched(&self) -> Option<&WatchedEntry<'c>> {
        match self {
            Record::Snapshot(watched)
            | Record::New(watched)
            | Record::Update(watched)
            | Record::Destroy(watched)
            | Record::Refresh { watched, .. }
            | Record::Verdict { watched, .. }
            | Record::Move { watched, .. } => Some(watched),
            Record::Endpoint(_) | Record::Gap { .. } | Record::Synced => None,
        }
    }

    pub fn entry(&self) -> Option<&Entry<'c>> {
        self.watched().map(|watched| &watched.entry)
    }
}
