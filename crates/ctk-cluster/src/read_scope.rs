//! What is read of a living cluster, and what of an earlier reading is kept.

use std::collections::BTreeSet;

use super::index::{Index, Name};
use super::service_scope::{ChosenPods, ServiceScope};
use super::source::Loaded;

/// Says which Pods are read, when all other kinds are; `None` for all of them.
pub type ChoosePods = Box<dyn FnOnce(&Index) -> Option<ChosenPods> + Send>;

/// What is read; by default all of it.
#[derive(Default)]
pub struct ReadScope {
    pub slices: Option<ServiceScope>,
    pub pods: Option<ChoosePods>,
    /// For a second look.
    pub again: Option<Reread>,
}

/// A reading that renews an earlier one.
pub struct Reread {
    /// Nodes, Pods and ServiceCIDRs are taken from it.
    pub first: Box<Loaded>,
    /// Only these Services are read, by namespace and name. All of them are when one of the destinations has lost its owner.
    pub services: Option<BTreeSet<(Name, Name)>>,
}
