//! What kube-proxy's chains lead to. The walk is the same whoever wrote the chains: its readers say what is in one.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

use super::{RuleFrontend, RuleKind, RuleService};

/// Looks at a chain and at every one that it leads to, each once; `look` gives the names of those.
pub(super) fn each_chain(start: &str, mut look: impl FnMut(&str) -> Vec<String>) {
    let mut visited = HashSet::from([start.to_owned()]);
    let mut ahead = vec![start.to_owned()];
    while let Some(chain) = ahead.pop() {
        let onward = look(&chain).into_iter();
        ahead.extend(onward.filter(|next| visited.insert(next.clone())));
    }
}

/// What a chain can lead to.
#[derive(Clone, Debug, Default)]
pub(super) struct Reach {
    /// Sorted, each once.
    pub targets: Vec<SocketAddr>,
    pub refused: bool,
    /// A rule on the way matches by what the reader does not know, so that other packets may go elsewhere.
    pub not_understood: bool,
    /// A rule on the way leads to what the reader does not know: a target of another kind, or a chain that is missing.
    pub unknown_target: bool,
}

impl Reach {
    /// Some packets may be translated or refused.
    pub fn may_translate(&self) -> bool {
        !self.targets.is_empty() || self.refused || self.unknown_target
    }

    pub fn frontend(self, service: Option<RuleService>, kind: RuleKind) -> RuleFrontend {
        RuleFrontend {
            kind,
            service,
            targets: self.targets,
            refused: self.refused,
            understood: !self.not_understood && !self.unknown_target,
            ..RuleFrontend::default()
        }
    }
}

/// What was found, by the chain that a frontend jumps to: several jump to one.
#[derive(Debug, Default)]
pub(super) struct Reached(HashMap<String, Reach>);

impl Reached {
    /// `look` notes what one chain does, and gives the names of those that it leads to.
    pub fn from(
        &mut self,
        chain: &str,
        mut look: impl FnMut(&str, &mut Reach) -> Vec<String>,
    ) -> Reach {
        if let Some(known) = self.0.get(chain) {
            return known.clone();
        }
        let mut reach = Reach::default();
        each_chain(chain, |chain| look(chain, &mut reach));
        reach.targets.sort_unstable();
        reach.targets.dedup();
        self.0.insert(chain.to_owned(), reach.clone());
        reach
    }
}
