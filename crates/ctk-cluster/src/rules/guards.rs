//! State of a walk through chains of other programs than kube-proxy: DNAT rules, and the guards before them, which end a chain
//! for some packets. The walk is the same for every rule format; the readers interpret each rule.

use super::matches::{EndingRule, MAX_GUARDS, Matches, Ports};
use super::{Forward, ForwardTarget, NodeRules};

/// Maximum depth of nested chains; iptables and the kernel (`NFT_JUMP_STACK_SIZE`) allow 16.
pub const MAX_DEPTH: usize = 32;
/// Maximum number of visited rules, and of elements of sets and maps in them. A chain that many others call is visited for each, and
/// a set that many rules use is read for each.
const MAX_STEPS: usize = 200_000;

/// One walk from a hook along its chains; further hooks reuse it.
#[derive(Debug, Default)]
pub struct Walked {
    pub found: Vec<Forward>,
    /// Guards met so far, from the hook on.
    guards: Vec<EndingRule>,
    steps: usize,
    /// The walk reached a bound.
    cut: bool,
}

impl Walked {
    /// Restarts the walk with the conditions of a hook.
    pub fn at_hook(&mut self, output: bool) -> Matches {
        self.guards.clear();
        Matches::at_hook(output)
    }

    /// Reports whether one more rule may be visited at this depth. The walk ends where it may not.
    pub fn step(&mut self, depth: usize) -> bool {
        // Deeper than the kernel allows: the chains are a loop, and every further path would be walked to the same depth.
        self.steps(if depth > 0 { 1 } else { usize::MAX })
    }

    /// Reports whether this many elements may be visited.
    pub fn steps(&mut self, elements: usize) -> bool {
        self.steps = self.steps.saturating_add(elements);
        let may = self.steps <= MAX_STEPS;
        self.cut |= !may;
        may
    }

    pub fn guard(&mut self, matches: &Matches, rule: &str, ends_all: bool) {
        if self.guards.len() < MAX_GUARDS {
            self.guards.push(EndingRule {
                matches: matches.clone(),
                rule: rule.to_owned(),
                ends_all,
            });
        }
    }

    pub fn mark(&self) -> usize {
        self.guards.len()
    }

    /// Ends a chain that began at `mark`: packets that it returned continue after it.
    pub fn leave(&mut self, mark: usize) {
        let mut place = 0;
        self.guards.retain(|guard| {
            place += 1;
            place <= mark || guard.ends_all
        });
    }

    /// Adds a rule that translates; see [`Matches::forwards`].
    pub fn emit(&mut self, here: Matches, rule: &str, to: impl Fn(&Ports) -> Vec<ForwardTarget>) {
        self.found.extend(here.forwards(&self.guards, rule, to));
    }

    /// Moves the findings into the rules.
    pub fn give(mut self, rules: &mut NodeRules) {
        rules.forwards.append(&mut self.found);
        rules.cut |= self.cut;
    }
}
