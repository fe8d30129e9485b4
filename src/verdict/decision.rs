//! Result of the decision table, before it becomes a judgement.

use ctk_cluster::index::{PortId, Service};
use ctk_cluster::rules::RuleService;

use super::evidence::Detail;
use super::{Reason, Verdict};

/// A reason, and the objects that its sentence names.
pub(super) struct Decision<'c> {
    pub reason: Reason,
    pub port: Option<PortId>,
    pub owner: Option<&'c Service>,
    /// Service as the node's rules name it.
    pub named: Option<&'c RuleService>,
    pub detail: Detail<'c>,
}

impl<'c> Decision<'c> {
    pub(super) fn new(reason: Reason) -> Self {
        Decision {
            reason,
            port: None,
            owner: None,
            named: None,
            detail: Detail::None,
        }
    }

    pub(super) fn incomplete(because: &'static str) -> Self {
        Decision::new(Reason::SourceIncomplete).with(Detail::Because(because))
    }

    pub(super) fn with(mut self, detail: Detail<'c>) -> Self {
        self.detail = detail;
        self
    }

    pub(super) fn of(mut self, port: PortId) -> Self {
        self.port = Some(port);
        self
    }

    /// Whether the decision holds only where kube-proxy translates. Facts (where the entry leads) and rules that are not
    /// kube-proxy's hold everywhere.
    pub(super) fn is_by_kube_proxy(&self) -> bool {
        let fact = matches!(
            self.reason.verdict(),
            Verdict::Ok | Verdict::Unknown | Verdict::Unrelated
        );
        !fact && !matches!(self.detail, Detail::Rule(_))
    }
}
