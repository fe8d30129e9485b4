//! What is to be deleted, what is held back, and why. Pure.
//!
//! A verdict is an opinion about an entry; a delete acts on it. So selectors by verdict or reason follow stricter rules
//! here than in a listing: TCP and SCTP entries need to be named, entries that may still be of use need `--include`, and
//! nothing that was not decided is ever deleted for its verdict.

use std::str::FromStr;

use crate::filter::{BadValue, Picks};
use crate::select::Selectors;
use crate::verdict::{Activity, Judgement, Reason, Replies, Verdict};
use ctnetlink::flow::{Flow, Status};

const UDP: u8 = 17;

/// What `--include` names: entries that a verdict selector holds back by itself.
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

    /// The verdict of the entries that it includes.
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

/// Why an entry that was asked for by its verdict is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Held {
    /// Not UDP, and its protocol was not named.
    Protocol,
    Draining,
    Pending,
    /// Not included, or without the evidence that nothing answers any more.
    Suspect,
    Detached,
    /// To an endpoint that is not serving and not terminating, of a Service that has no other: a pod that is not ready for a
    /// moment.
    LastEndpoint,
    ForeignZone,
}

impl Held {
    pub const ALL: [Held; 7] = [
        Held::Protocol,
        Held::Draining,
        Held::Pending,
        Held::Suspect,
        Held::Detached,
        Held::LastEndpoint,
        Held::ForeignZone,
    ];

    /// The key of the summary's `held_back`.
    pub const fn name(self) -> &'static str {
        match self {
            Held::Protocol => "protocol",
            Held::Draining => "draining",
            Held::Pending => "pending",
            Held::Suspect => "suspect",
            Held::Detached => "detached",
            Held::LastEndpoint => "last-endpoint",
            Held::ForeignZone => "foreign-zone",
        }
    }

    /// What to add to the command line, if it is meant.
    pub const fn advice(self) -> &'static str {
        match self {
            Held::Protocol => "TCP and SCTP are taken when named: --tcp, --sctp",
            Held::Draining => {
                "--include draining takes endpoints that still serve while they terminate"
            }
            Held::Pending => {
                "--include pending takes them, but a new packet would not be translated either"
            }
            Held::Suspect => {
                "--include suspect takes those of which counters show that the answers stopped"
            }
            Held::Detached => "--include detached cuts connections to pods that live",
            Held::LastEndpoint => {
                "--reason endpoint-not-serving takes them, but no other endpoint could take their packets"
            }
            Held::ForeignZone => "--zone N takes entries of that zone",
        }
    }
}

/// A verdict, as far as it decides over a delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judged {
    pub reason: Reason,
    /// See [`Judgement::is_of_last_endpoint`].
    pub last_endpoint: bool,
}

impl From<Judgement<'_>> for Judged {
    fn from(judgement: Judgement<'_>) -> Self {
        Judged {
            reason: judgement.reason,
            last_endpoint: judgement.is_of_last_endpoint(),
        }
    }
}

/// What becomes of one entry that passed every other selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Planned,
    Held(Held),
    /// Not asked for, or never to be deleted for its verdict.
    Left,
}

/// The verdict selectors of a purge.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    stale: bool,
    verdicts: Picks<Verdict>,
    reasons: Picks<Reason>,
    names_a_protocol: bool,
    include: Vec<IncludeWord>,
}

/// A verdict selector that can never be.
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

impl Policy {
    /// # Errors
    /// A selector that names `unknown` or `unrelated`, or a reason of theirs; `include` without a verdict selector.
    pub fn new(selectors: &Selectors, include: &[IncludeWord]) -> Result<Self, PolicyError> {
        let mut policy = Policy {
            stale: selectors.stale,
            names_a_protocol: selectors.names_a_protocol,
            include: include.to_vec(),
            ..Policy::default()
        };
        let typed = &selectors.verdicts;
        for (negated, words) in [(false, typed.plain()), (true, typed.negated())] {
            for word in words {
                if !negated && is_never(word.0) {
                    return Err(PolicyError::Never {
                        flag: "--verdict",
                        word: word.0.name(),
                        verdict: word.0.name(),
                    });
                }
                policy.verdicts.push(negated, word.0);
            }
        }
        let typed = &selectors.reasons;
        for (negated, words) in [(false, typed.plain()), (true, typed.negated())] {
            for word in words {
                if !negated && is_never(word.0.verdict()) {
                    return Err(PolicyError::Never {
                        flag: "--reason",
                        word: word.0.name(),
                        verdict: word.0.verdict().name(),
                    });
                }
                policy.reasons.push(negated, word.0);
            }
        }
        if !include.is_empty() && !policy.selects_by_verdict() {
            return Err(PolicyError::IncludeAlone);
        }
        Ok(policy)
    }

    /// The rules of verdict selectors apply.
    pub fn selects_by_verdict(&self) -> bool {
        self.stale || !self.verdicts.is_empty() || !self.reasons.is_empty()
    }

    /// What becomes of `flow`, which passed every selector but those by verdict. `judged` is `None` when no verdict was
    /// sought, and for entries that are not confirmed or are dying: those are never deleted.
    pub fn fate(&self, flow: &Flow, judged: Option<Judged>, replies: Replies) -> Fate {
        let confirmed = flow.status.contains(Status::CONFIRMED);
        if !confirmed || flow.status.contains(Status::DYING) {
            return Fate::Left;
        }
        if !self.selects_by_verdict() {
            return Fate::Planned;
        }
        let Some(Judged {
            reason,
            last_endpoint,
        }) = judged
        else {
            return Fate::Left;
        };
        let verdict = reason.verdict();
        let wanted = self.wants(reason);
        if is_never(verdict) {
            let zone = reason == Reason::ForeignZone && (wanted || self.stale);
            return match zone {
                true => Fate::Held(Held::ForeignZone),
                false => Fate::Left,
            };
        }
        // What was excluded by name stays excluded.
        let included = self.include.iter().any(|word| word.verdict() == verdict)
            && !self.verdicts.negated().contains(&verdict)
            && !self.reasons.negated().contains(&reason);
        let held = match verdict {
            Verdict::Draining => Some(Held::Draining),
            Verdict::Pending => Some(Held::Pending),
            Verdict::Suspect => Some(Held::Suspect),
            Verdict::Detached => Some(Held::Detached),
            _ if last_endpoint && !self.reasons.plain().contains(&reason) => {
                Some(Held::LastEndpoint)
            }
            _ => None,
        };
        // Those beside the stale ones are counted with --stale, so that nobody wonders where they went.
        if !(wanted || included || (self.stale && held.is_some())) {
            return Fate::Left;
        }
        if flow.protocol() != UDP && !self.names_a_protocol {
            return Fate::Held(Held::Protocol);
        }
        match held {
            None => Fate::Planned,
            Some(held) if !included => Fate::Held(held),
            // Rules list what new packets get: only stopped answers show that an old endpoint is really gone.
            Some(Held::Suspect) if replies != Replies::Stopped => Fate::Held(Held::Suspect),
            Some(_) => Fate::Planned,
        }
    }

    fn wants(&self, reason: Reason) -> bool {
        (!self.stale || reason.verdict() == Verdict::Stale)
            && self.verdicts.pass(|wanted| *wanted == reason.verdict())
            && self.reasons.pass(|wanted| *wanted == reason)
    }
}

/// Nobody decided, or the entry is none of a Service's.
const fn is_never(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Unknown | Verdict::Unrelated)
}

/// One entry to delete: at most 256 bytes, and what [`ctnetlink::flow::Rare`] takes where an entry has labels, a helper or a
/// security context.
#[derive(Clone, Debug)]
pub struct Planned {
    pub flow: Flow,
    /// Why it was judged to be deleted; `None` where no verdict was sought.
    pub reason: Option<Reason>,
    /// What several looks at it showed; `None` where one was enough.
    pub seen: Option<Activity>,
}

/// What a purge would do, made from one scan of the table. It does not change any more.
#[derive(Debug, Default)]
pub struct Plan {
    planned: Vec<Planned>,
    held: [u64; Held::ALL.len()],
    /// Entries without an id, which cannot be named exactly.
    nameless: u64,
}

/// Gathers a [`Plan`].
#[derive(Debug, Default)]
pub struct PlanBuilder(Plan);

impl PlanBuilder {
    pub fn add(&mut self, planned: Planned, fate: Fate) {
        match fate {
            Fate::Left => {}
            Fate::Held(held) => self.0.held[held as usize] += 1,
            Fate::Planned if planned.flow.id.is_none() => self.0.nameless += 1,
            Fate::Planned => self.0.planned.push(planned),
        }
    }

    /// `doubled`: the table changed its shape during the scan, so that entries may have come twice.
    pub fn finish(mut self, doubled: bool) -> Plan {
        if doubled {
            let key =
                |planned: &Planned| (planned.flow.zone, planned.flow.original, planned.flow.id);
            self.0.planned.sort_unstable_by_key(key);
            self.0.planned.dedup_by_key(|planned| key(planned));
        }
        self.0
    }
}

impl Plan {
    pub fn planned(&self) -> &[Planned] {
        &self.planned
    }

    pub fn is_empty(&self) -> bool {
        self.planned.is_empty()
    }

    pub fn len(&self) -> usize {
        self.planned.len()
    }

    /// Entries that the kernel gave no id, so that a delete could not name them exactly. Left alone.
    pub fn nameless(&self) -> u64 {
        self.nameless
    }

    /// What was held back, and how many of it.
    pub fn held(&self) -> impl Iterator<Item = (Held, u64)> {
        let counts = Held::ALL.into_iter().zip(self.held);
        counts.filter(|(_, count)| *count > 0)
    }
}

#[cfg(test)]
mod tests;
