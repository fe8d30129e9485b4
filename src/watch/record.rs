//! What a watch tells.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::attribution::EndpointName;

use crate::entry::Entry;
use crate::verdict::Verdict;

/// Namespace and name of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodName {
    pub namespace: Box<str>,
    pub name: Box<str>,
}

impl fmt::Display for PodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// An entry of a watch.
#[derive(Clone, Debug)]
pub struct Followed<'c> {
    pub entry: Entry<'c>,
    /// The pod that had the reply source earlier in this watch, where nobody has it now.
    pub endpoint_was: Option<Arc<PodName>>,
}

/// One thing that happened.
#[derive(Debug)]
pub enum Record<'c> {
    /// An entry that was there when the watch began.
    Snapshot(Followed<'c>),
    /// An entry that was made, or that matches from now on.
    New(Followed<'c>),
    /// Status, mark or another attribute changed. Also the last word of an entry that does not match any more.
    Update(Followed<'c>),
    Destroy(Followed<'c>),
    /// Its timer was refilled since the last look; seconds left then and now. The kernel makes no event of it.
    Refresh {
        followed: Followed<'c>,
        before: u32,
        after: u32,
    },
    /// The verdict changed, because the cluster did or because the entry did.
    Verdict {
        followed: Followed<'c>,
        before: Option<Verdict>,
        after: Option<Verdict>,
    },
    /// A flow goes elsewhere than it did: its last entry's endpoint, as text.
    Move {
        followed: Followed<'c>,
        before: String,
    },
    /// An endpoint of a Service port changed.
    Endpoint(EndpointChange<'c>),
    /// Events were lost; how often the kernel or the printing overran since the last one.
    Gap {
        overruns: u64,
    },
    /// The view equals a dump (again).
    Synced,
}

/// What happened to an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct EndpointChange<'c> {
    /// Namespace and name of the Service, where they are known.
    pub service: Option<(&'c str, &'c str)>,
    /// Name of the Service port; `None` also where it has none.
    pub port: Option<&'c str>,
    /// IANA number.
    pub protocol: u8,
    pub address: SocketAddr,
    /// As it is now; as it was last, when it is gone.
    pub endpoint: EndpointName<'c>,
    pub change: Change,
    pub seen_by: SeenBy,
}

/// Ready, serving and terminating name the condition that changed: the endpoint says to what. One that is added says in
/// which condition it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Added,
    Ready,
    Serving,
    Terminating,
    Gone,
}

impl Change {
    /// The word of JSON.
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

/// Who told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeenBy {
    /// An EndpointSlice.
    Api,
    /// The rules of this node.
    Rules,
}

impl SeenBy {
    /// The word of JSON.
    pub const fn name(self) -> &'static str {
        match self {
            SeenBy::Api => "api",
            SeenBy::Rules => "rules",
        }
    }
}

impl<'c> Record<'c> {
    /// The word of JSON's `type`; `None` for a move, which JSON tells by `destroy` and `new`.
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

    pub fn followed(&self) -> Option<&Followed<'c>> {
        match self {
            Record::Snapshot(followed)
            | Record::New(followed)
            | Record::Update(followed)
            | Record::Destroy(followed)
            | Record::Refresh { followed, .. }
            | Record::Verdict { followed, .. }
            | Record::Move { followed, .. } => Some(followed),
            Record::Endpoint(_) | Record::Gap { .. } | Record::Synced => None,
        }
    }

    pub fn entry(&self) -> Option<&Entry<'c>> {
        self.followed().map(|followed| &followed.entry)
    }
}
