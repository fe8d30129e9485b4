//! A reason before it becomes a judgement.

use ctk_cluster::index::{PortId, Service};
use ctk_cluster::rules::RuleService;

use super::evidence::Detail;
use super::{Reason, Verdict};

/// A reason with what its sentence needs.
pub(super) struct Decision<'c> {
    pub reason: Reason,
    pub port: Option<PortId>,
    pub owner: Option<&'c Service>,
    /// The Service as the node's rules name it.
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

    /// It only holds where kube-proxy translates: it says more than where the entry leads, and no other rule said it.
    pub(super) fn is_by_kube_proxy(&self) -> bool {
        let fact = matches!(
            self.reason.verdict(),
            Verdict::Ok | Verdict::Unknown | Verdict::Unrelated
        );
        !fact && !matches!(self.detail, Detail::Rule(_))
    }
}
