//! Entries that a purge takes for their verdict, holds back, or leaves. Pure.
//!
//! A verdict is an opinion about an entry, and a delete acts on it. Selectors by verdict or reason therefore follow stricter
//! rules here than in a listing: TCP and SCTP must be named, entries that may still be of use need `--include`, and an entry
//! that was not decided is never deleted for its verdict.

use std::str::FromStr;

use crate::filter::protocol::UDP;
use crate::filter::{BadValue, Picks};
use crate::select::Selectors;
use crate::verdict::{Judgement, Reason, Replies, Verdict};
use ctnetlink::flow::{Flow, Status};

/// Value of `--include`: entries that a selector by verdict holds back by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IncludeWord {
    Draining,
    Pending,
    Suspect,
    Detached,
}

impl IncludeWord {
    pub const ALL: [IncludeWord; 4] = [
        IncludeWord::Draining,
        IncludeWord::Pending,
        IncludeWord::Suspect,
        IncludeWord::Detached,
    ];

    /// Verdict of the entries that the word includes.
    pub const fn verdict(self) -> Verdict {
        match self {
            IncludeWord::Draining => Verdict::Draining,
            IncludeWord::Pending => Verdict::Pending,
            IncludeWord::Suspect => Verdict::Suspect,
            IncludeWord::Detached => Verdict::Detached,
        }
    }
}

impl FromStr for IncludeWord {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let word = Self::ALL
            .into_iter()
            .find(|word| word.verdict().name() == text);
        word.ok_or_else(|| {
            BadValue::new(format!(
                "{text:?} cannot be included: it takes draining, pending, suspect or detached"
            ))
        })
    }
}

/// Reason for which an entry that a selector by verdict means is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HoldReason {
    /// Not UDP, and its protocol was not named.
    Protocol,
    Draining,
    Pending,
    /// Not included, or without evidence that its answers stopped.
    Suspect,
    Detached,
    /// Its endpoint is not serving and not terminating, and the Service has no other: a pod that is briefly not ready.
    LastEndpoint,
    ForeignZone,
}

impl HoldReason {
    pub const ALL: [HoldReason; 7] = [
        HoldReason::Protocol,
        HoldReason::Draining,
        HoldReason::Pending,
        HoldReason::Suspect,
        HoldReason::Detached,
        HoldReason::LastEndpoint,
        HoldReason::ForeignZone,
    ];

    /// Key in `held_back_by` of the summary.
    pub const fn name(self) -> &'static str {
        match self {
            HoldReason::Protocol => "protocol",
            HoldReason::Draining => "draining",
            HoldReason::Pending => "pending",
            HoldReason::Suspect => "suspect",
            HoldReason::Detached => "detached",
            HoldReason::LastEndpoint => "last-endpoint",
            HoldReason::ForeignZone => "foreign-zone",
        }
    }

    /// Flag that takes such entries all the same, and its effect.
    pub const fn advice(self) -> &'static str {
        match self {
            HoldReason::Protocol => "TCP and SCTP are taken when named: --tcp, --sctp",
            HoldReason::Draining => {
                "--include draining takes endpoints that still serve while they terminate"
            }
            HoldReason::Pending => {
                "--include pending takes them, but a new packet would not be translated either"
            }
            HoldReason::Suspect => {
                "--include suspect takes those of which counters show that the answers stopped"
            }
            HoldReason::Detached => "--include detached cuts connections to pods that live",
            HoldReason::LastEndpoint => {
                "--reason endpoint-not-serving takes them, but no other endpoint could take their packets"
            }
            HoldReason::ForeignZone => "--zone N takes entries of that zone",
        }
    }
}

/// Part of a [`Judgement`] that decides about a delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeleteVerdict {
    pub reason: Reason,
    /// See [`Judgement::is_of_last_endpoint`].
    pub last_endpoint: bool,
    /// See [`Judgement::is_unsettled`].
    pub unsettled: bool,
}

impl From<&Judgement<'_>> for DeleteVerdict {
    fn from(judgement: &Judgement<'_>) -> Self {
        DeleteVerdict {
            reason: judgement.reason,
            last_endpoint: judgement.is_of_last_endpoint(),
            unsettled: judgement.is_unsettled(),
        }
    }
}

/// Decision on an entry that passed every selector but those by verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanDecision {
    Delete,
    Hold(HoldReason),
    /// Not asked for, or never deleted for its verdict.
    Leave,
}

/// Selectors by verdict of a purge, with `--include`.
#[derive(Clone, Debug, Default)]
pub struct VerdictPolicy {
    stale: bool,
    verdicts: Picks<Verdict>,
    reasons: Picks<Reason>,
    names_a_protocol: bool,
    include: Vec<IncludeWord>,
}

/// Selector by verdict that a purge never carries out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    #[error("{flag} {word}: entries that are {verdict} are never deleted for their verdict")]
    Never {
        flag: &'static str,
        word: &'static str,
        verdict: &'static str,
    },
    #[error("--include goes with a selector by verdict: --stale, --verdict or --reason")]
    IncludeAlone,
}

impl VerdictPolicy {
    /// # Errors
    /// A selector names `unknown` or `unrelated`, or a reason of theirs; `include` without a selector by verdict.
    pub fn new(selectors: &Selectors, include: &[IncludeWord]) -> Result<Self, PolicyError> {
        let policy = VerdictPolicy {
            stale: selectors.stale,
            verdicts: values(&selectors.verdicts, |word| word.0),
            reasons: values(&selectors.reasons, |word| word.0),
            names_a_protocol: selectors.names_a_protocol,
            include: include.to_vec(),
        };
        let verdicts = policy.verdicts.plain().iter();
        let reasons = policy.reasons.plain().iter();
        let mut named = verdicts
            .map(|verdict| ("--verdict", verdict.name(), *verdict))
            .chain(reasons.map(|reason| ("--reason", reason.name(), reason.verdict())));
        if let Some((flag, word, verdict)) =
            named.find(|(_, _, verdict)| is_never_deleted(*verdict))
        {
            let verdict = verdict.name();
            return Err(PolicyError::Never {
                flag,
                word,
                verdict,
            });
        }
        if !include.is_empty() && !policy.selects_by_verdict() {
            return Err(PolicyError::IncludeAlone);
        }
        Ok(policy)
    }

    /// The rules of selectors by verdict apply.
    pub fn selects_by_verdict(&self) -> bool {
        self.stale || !self.verdicts.is_empty() || !self.reasons.is_empty()
    }

    /// `--include` names the word.
    pub fn includes(&self, word: IncludeWord) -> bool {
        self.include.contains(&word)
    }

    /// Decides on `flow`, which passed every selector but those by verdict. `judged` is `None` where no verdict was sought, and
    /// for entries that are not confirmed or are dying: these are never deleted.
    pub fn decide(
        &self,
        flow: &Flow,
        judged: Option<DeleteVerdict>,
        replies: Replies,
    ) -> PlanDecision {
        if !flow.status.contains(Status::CONFIRMED) || flow.status.contains(Status::DYING) {
            return PlanDecision::Leave;
        }
        if !self.selects_by_verdict() {
            return PlanDecision::Delete;
        }
        match judged {
            Some(judged) => self.decide_by_verdict(flow, judged, replies),
            None => PlanDecision::Leave,
        }
    }

    fn decide_by_verdict(
        &self,
        flow: &Flow,
        judged: DeleteVerdict,
        replies: Replies,
    ) -> PlanDecision {
        let reason = judged.reason;
        let selected = self.selects(reason);
        if is_never_deleted(reason.verdict()) {
            return match reason == Reason::ForeignZone && (selected || self.stale) {
                true => PlanDecision::Hold(HoldReason::ForeignZone),
                false => PlanDecision::Leave,
            };
        }
        let (hold, included) = (self.hold_reason(judged), self.is_included(reason));
        // With --stale, held entries of other verdicts are counted, so that the summary accounts for them.
        if !(selected || included || (self.stale && hold.is_some())) {
            return PlanDecision::Leave;
        }
        let by_verdict = match hold {
            Some(hold) if !included => Some(hold),
            // Rules list only the endpoints of new packets: stopped answers alone show that an old endpoint is gone.
            Some(HoldReason::Suspect) if replies != Replies::Stopped => Some(HoldReason::Suspect),
            _ => None,
        };
        // The protocol comes last: an entry counts under it only if it is deleted when its protocol is named.
        let by_protocol = flow.protocol() != UDP && !self.names_a_protocol;
        match by_verdict.or(by_protocol.then_some(HoldReason::Protocol)) {
            Some(hold) => PlanDecision::Hold(hold),
            None => PlanDecision::Delete,
        }
    }

    /// Reason to hold back an entry unless it is included.
    fn hold_reason(&self, judged: DeleteVerdict) -> Option<HoldReason> {
        match judged.reason.verdict() {
            Verdict::Draining => Some(HoldReason::Draining),
            Verdict::Pending => Some(HoldReason::Pending),
            Verdict::Suspect => Some(HoldReason::Suspect),
            Verdict::Detached => Some(HoldReason::Detached),
            _ => {
                let named = self.reasons.plain().contains(&judged.reason);
                (judged.last_endpoint && !named).then_some(HoldReason::LastEndpoint)
            }
        }
    }

    /// `--include` names the verdict, and no negated selector excludes it.
    fn is_included(&self, reason: Reason) -> bool {
        let verdict = reason.verdict();
        self.include.iter().any(|word| word.verdict() == verdict)
            && !self.verdicts.negated().contains(&verdict)
            && !self.reasons.negated().contains(&reason)
    }

    fn selects(&self, reason: Reason) -> bool {
        (!self.stale || reason.verdict() == Verdict::Stale)
            && self.verdicts.pass(|selected| *selected == reason.verdict())
            && self.reasons.pass(|selected| *selected == reason)
    }
}

fn values<W, T>(typed: &Picks<W>, value: impl Fn(&W) -> T) -> Picks<T> {
    let mut values = Picks::default();
    for word in typed.plain() {
        values.push(false, value(word));
    }
    for word in typed.negated() {
        values.push(true, value(word));
    }
    values
}

/// No decision was possible, or the entry belongs to no Service.
const fn is_never_deleted(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Unknown | Verdict::Unrelated)
}

#[cfg(test)]
mod tests;
