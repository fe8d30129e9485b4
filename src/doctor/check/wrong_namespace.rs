//! Execution in a Pod: the Pod's own table shows little of the node, and every healthy flow to a clusterIP looks
//! untranslated there.

use crate::doctor::{Check, Facts, Finding, Thresholds};
use crate::entry::Entry;
use crate::this_node::{NetnsOwner, ThisNode};
use crate::verdict::Reason;

/// Name of the check.
pub const NAME: &str = "wrong-namespace";

#[derive(Default)]
pub struct WrongNamespace {
    /// Entries without a verdict because of the namespace.
    foreign: u64,
}

impl Check for WrongNamespace {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "not the node's namespace"
    }

    fn looks_for(&self) -> &'static str {
        "A network namespace that is not the node's, so that entries cannot be judged."
    }

    fn observe(&mut self, entry: &Entry<'_>, _: &Facts<'_>) {
        let reason = entry.judgement.as_ref().map(|judgement| judgement.reason);
        self.foreign += u64::from(reason == Some(Reason::ForeignNetns));
    }

    fn findings(&self, facts: &Facts<'_>, _: &Thresholds) -> Vec<Finding> {
        let foreign = facts
            .node
            .is_some_and(|node| node.namespace == NetnsOwner::Foreign);
        // Rules that are not kube-proxy's say of a namespace without known Nodes neither that it is a node's nor the contrary.
        let expected = facts.index.is_some() && foreign;
        if !expected && self.foreign == 0 {
            return self.not_initial(facts).into_iter().collect();
        }
        let message = format!(
            "{} is not known to be the node's: {} of {} entries cannot be judged, and counters are this namespace's own",
            facts.netns, self.foreign, facts.scan.scanned
        );
        vec![
            Finding::warning(NAME, message)
                .with("foreign", self.foreign)
                .with("entries", facts.scan.scanned)
                .with("initial_namespace", facts.initial)
                .help("run it in the node's network namespace: hostNetwork: true, or --netns 1 with hostPID: true; --node names the Node where it cannot be found"),
        ]
    }
}

impl WrongNamespace {
    /// Reports a namespace other than the initial one. Without objects of a cluster nothing shows its owner.
    fn not_initial(&self, facts: &Facts<'_>) -> Option<Finding> {
        let is_node = |node: &ThisNode| node.namespace == NetnsOwner::Node;
        let is_known = facts.index.is_some() || facts.node.is_some_and(is_node);
        if is_known || facts.initial != Some(false) {
            return None;
        }
        let message = format!(
            "{} is not the one that the machine started with: its {} entries and its counters are its own",
            facts.netns, facts.scan.scanned
        );
        Some(
            Finding::info(NAME, message)
                .with("entries", facts.scan.scanned)
                .with("initial_namespace", false)
                .help("the machine's own table: --netns 1, where its processes can be seen"),
        )
    }
}
