//! Endpoints that a chain of kube-proxy leads to. The walk is the same for every rule format; the readers interpret each chain.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

use super::{RuleFrontend, RuleKind, RuleService};

/// Visits a chain and every chain that it leads to, each once. `look` returns the names of the latter.
pub(super) fn each_chain(start: &str, mut look: impl FnMut(&str) -> Vec<String>) {
    let mut visited = HashSet::from([start.to_owned()]);
    let mut ahead = vec![start.to_owned()];
    while let Some(chain) = ahead.pop() {
        let onward = look(&chain).into_iter();
        ahead.extend(onward.filter(|next| visited.insert(next.clone())));
    }
}

/// Endpoints that a chain can lead to.
#[derive(Clone, Debug, Default)]
pub(super) struct ChainReach {
    /// Sorted, each once.
    pub targets: Vec<SocketAddr>,
    pub refused: bool,
    /// A rule on the path has an unknown match, so that other packets may go elsewhere.
    pub not_understood: bool,
    /// A rule on the path leads to an unknown target or to a missing chain.
    pub unknown_target: bool,
}

impl ChainReach {
    /// Reports whether some packets may be translated or refused.
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

/// Results by the chain that a frontend jumps to: several frontends jump to one.
#[derive(Debug, Default)]
pub(super) struct Reached(HashMap<String, ChainReach>);

impl Reached {
    /// `look` notes the effect of one chain, and returns the names of the chains that it leads to.
    pub fn from(
        &mut self,
        chain: &str,
        mut look: impl FnMut(&str, &mut ChainReach) -> Vec<String>,
    ) -> ChainReach {
        if let Some(known) = self.0.get(chain) {
            return known.clone();
        }
        let mut reach = ChainReach::default();
        each_chain(chain, |chain| look(chain, &mut reach));
        reach.targets.sort_unstable();
        reach.targets.dedup();
        self.0.insert(chain.to_owned(), reach.clone());
        reach
    }
}
