//! Part of a live cluster that is read, and the part of an earlier reading that is kept.

use std::collections::BTreeSet;

use super::index::{Index, Name};
use super::service_scope::{ChosenPods, ServiceScope};
use super::source::Loaded;

/// Chooses the Pods to read, from all other kinds; `None` reads all of them.
pub type ChoosePods = Box<dyn FnOnce(&Index) -> Option<ChosenPods> + Send>;

/// Part of the cluster that is read; by default all of it.
#[derive(Default)]
pub struct ReadScope {
    pub slices: Option<ServiceScope>,
    pub pods: Option<ChoosePods>,
    /// Set when an earlier reading is renewed.
    pub again: Option<Reread>,
}

/// Renewal of an earlier reading.
pub struct Reread {
    /// Earlier reading, from which Nodes, Pods and ServiceCIDRs are taken.
    pub first: Box<Loaded>,
    /// Services to read, by namespace and name. All of them are read when one of the destinations has lost its owner.
    pub services: Option<BTreeSet<(Name, Name)>>,
}
