//! What a walk through chains that are not kube-proxy's gathers: DNAT rules, and the guards before them, which end a chain
//! for some packets. The walk is the same whoever wrote the chains: its readers say what a rule does.

use super::matches::{GUARDS, Guard, Matches, Ports};
use super::{Forward, ForwardTarget, NodeRules};

/// Chains within chains; iptables and the kernel (`NFT_JUMP_STACK_SIZE`) allow 16.
pub const DEPTH: usize = 32;
/// Rules looked at; a chain that many others call is looked at for each.
const STEPS: usize = 200_000;

/// One walk, from a hook to wherever it leads; then from the next one.
#[derive(Debug, Default)]
pub struct Walked {
    pub found: Vec<Forward>,
    /// Those met so far, from the hook on.
    guards: Vec<Guard>,
    steps: usize,
    /// Not all was looked at.
    cut: bool,
}

impl Walked {
    /// What a packet is at the hook from which the walk begins anew.
    pub fn at_hook(&mut self, output: bool) -> Matches {
        self.guards.clear();
        Matches::at_hook(output)
    }

    /// Whether one more rule, with so much depth left, may be looked at.
    pub fn step(&mut self, depth: usize) -> bool {
        self.steps += 1;
        let may = depth > 0 && self.steps <= STEPS;
        self.cut |= !may;
        may
    }

    pub fn guard(&mut self, matches: &Matches, rule: &str, ends_all: bool) {
        if self.guards.len() < GUARDS {
            self.guards.push(Guard {
                matches: matches.clone(),
                rule: rule.to_owned(),
                ends_all,
            });
        }
    }

    pub fn mark(&self) -> usize {
        self.guards.len()
    }

    /// At the end of a chain that began at `mark`: packets that it gave back go on behind it.
    pub fn leave(&mut self, mark: usize) {
        let mut place = 0;
        self.guards.retain(|guard| {
            place += 1;
            place <= mark || guard.ends_all
        });
    }

    /// A rule that translates; see [`Matches::forwards`].
    pub fn emit(&mut self, here: Matches, rule: &str, to: impl Fn(&Ports) -> Vec<ForwardTarget>) {
        self.found.extend(here.forwards(&self.guards, rule, to));
    }

    /// What was found becomes part of the rules.
    pub fn give(mut self, rules: &mut NodeRules) {
        rules.forwards.append(&mut self.found);
        rules.cut |= self.cut;
    }
}
