//! Selectors on the names of an entry and on its verdict.
//!
//! Names are resolved once into a [`Selection`], by the cluster that was read. An unknown name, or one in two namespaces, is an
//! error and never an empty answer. A property that an entry lacks (no matched Service, no verdict) satisfies no selector,
//! plain or negated, as in [`crate::filter`].

pub mod name;
mod resolve;

use std::fmt;

use crate::attribution::{FrontendMatch, Party, PartyKind};
use crate::entry::Entry;
use crate::filter::Picks;
use crate::filter::cidr::Cidr;
use crate::filter::protocol::UDP;
use crate::verdict::{Reason, Refreshing, Verdict};
use ctk_cluster::index::{Index, Name, PortId};
use ctk_cluster::rules::NodeRules;
use ctnetlink::flow::AddressPort;

use name::{Namespace, PartyName, PodName, PortRef, ReasonWord, ServiceRef, VerdictWord};

/// Kind of a [`SelectError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectErrorKind {
    /// No object has the name. With an incomplete source an object that was not read may have it.
    Unknown,
    /// The source tells no names of this kind, so that the name may exist.
    NotTold,
    /// Several objects have the name.
    Ambiguous,
}

/// Source of names.
#[derive(Clone, Copy)]
pub enum Directory<'c> {
    Index(&'c Index),
    /// The node's rules, which name Services only.
    Rules(&'c NodeRules),
}

/// A name that cannot be resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectError {
    pub kind: SelectErrorKind,
    /// Flag of the selector.
    pub flag: &'static str,
    /// Text without the flag.
    pub message: String,
    /// Names that may have been meant.
    pub hint: Option<String>,
}

impl fmt::Display for SelectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.flag, self.message)
    }
}

impl std::error::Error for SelectError {}

/// Flag of the selector on Services, whose names are known without the Pods.
pub const SERVICE_FLAG: &str = "--svc";

/// Selectors before their names are resolved.
#[derive(Clone, Debug, Default)]
pub struct Selectors {
    pub services: Picks<ServiceRef>,
    pub pods: Picks<PodName>,
    pub clients: Picks<PartyName>,
    pub endpoints: Picks<PartyName>,
    pub namespaces: Picks<Namespace>,
    pub verdicts: Picks<VerdictWord>,
    pub reasons: Picks<ReasonWord>,
    pub stale: bool,
    pub refreshing: bool,
    /// A protocol was named, so that `stale` selects every protocol and not UDP alone.
    pub names_a_protocol: bool,
}

impl Selectors {
    /// Returns whether the selectors need a cluster. An address as client or endpoint, and `--refreshing`, need none.
    pub fn wants_cluster(&self) -> bool {
        let pod = |party: &PartyName| matches!(party, PartyName::Pod(_));
        let parties = [&self.clients, &self.endpoints];
        self.stale
            || !self.services.is_empty()
            || !self.pods.is_empty()
            || !self.namespaces.is_empty()
            || !self.verdicts.is_empty()
            || !self.reasons.is_empty()
            || parties
                .iter()
                .any(|picks| picks.plain().iter().chain(picks.negated()).any(pod))
    }

    /// Returns whether endpoints of this Service port are selected. All are, unless Services are selected. `number`: number of
    /// the port, when it is known.
    pub fn wants_endpoints_of(
        &self,
        namespace: &str,
        name: &str,
        port: Option<&str>,
        number: Option<u16>,
    ) -> bool {
        let is_meant = |pick: &ServiceRef| {
            let service = &pick.service;
            let of_port = match &pick.port {
                None => true,
                Some(PortRef::Name(wanted)) => port == Some(wanted),
                Some(PortRef::Number(wanted)) => number == Some(*wanted),
            };
            of_port
                && *service.name == *name
                && service.namespace.as_deref().is_none_or(|n| n == namespace)
        };
        let (plain, negated) = (self.services.plain(), self.services.negated());
        (plain.is_empty() || plain.iter().any(is_meant)) && !negated.iter().any(is_meant)
    }
}

/// Ports of a Service that exists.
#[derive(Clone, Debug)]
pub enum ServicePick {
    Ports(Vec<PortId>),
    /// Names from the node's rules.
    Named {
        namespace: Name,
        name: Name,
        /// Names of the selected ports, `None` for a port without a name.
        ports: Vec<Option<Name>>,
    },
}

/// A pod that exists.
#[derive(Clone, Debug)]
struct ResolvedPod {
    namespace: Box<str>,
    name: Box<str>,
    /// The pod shares the addresses of its node, so that an entry with such an address may belong to it.
    host_network: bool,
}

#[derive(Clone, Debug)]
enum ResolvedParty {
    Pod(ResolvedPod),
    Net(Cidr),
    Socket(AddressPort),
}

/// Answer of `--stale` for an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StaleMatch {
    Selected,
    /// The verdict is not stale.
    Excluded,
    /// The entry is stale, and its protocol was not named.
    HeldBack,
}

/// Selectors resolved against a cluster. The default one passes every entry.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    services: Picks<ServicePick>,
    pods: Picks<ResolvedPod>,
    clients: Picks<ResolvedParty>,
    endpoints: Picks<ResolvedParty>,
    namespaces: Picks<Box<str>>,
    verdicts: Picks<Verdict>,
    reasons: Picks<Reason>,
    stale: bool,
    refreshing: bool,
    names_a_protocol: bool,
}

impl Selection {
    /// # Errors
    ///
    /// A Service, port, pod or namespace that the directory does not have, or a name without a namespace that two namespaces
    /// have.
    pub fn resolve(selectors: &Selectors, known: Directory<'_>) -> Result<Self, SelectError> {
        resolve::resolve(selectors, known)
    }

    /// Returns whether every entry passes.
    pub fn is_empty(&self) -> bool {
        // The pattern names all fields, so that a new field does not compile before it is added here.
        let Selection {
            services,
            pods,
            clients,
            endpoints,
            namespaces,
            verdicts,
            reasons,
            stale,
            refreshing,
            names_a_protocol: _,
        } = self;
        let parties = clients.is_empty() && endpoints.is_empty();
        let names = services.is_empty() && pods.is_empty() && namespaces.is_empty();
        let judged = verdicts.is_empty() && reasons.is_empty() && !stale;
        names && parties && judged && !refreshing
    }

    /// Returns whether the entry passes every selector except those on verdicts.
    pub fn by_names(&self, entry: &Entry<'_>) -> bool {
        (!self.refreshing || entry.refreshing == Refreshing::Yes) && self.by_parties(entry)
    }

    /// Returns whether only `--refreshing` excludes the entry, because refills are not known yet. Callers count these.
    pub fn refreshing_unknown(&self, entry: &Entry<'_>) -> bool {
        self.refreshing
            && entry.refreshing == Refreshing::Unknown
            && self.by_parties(entry)
            && self.stale_match(entry) == StaleMatch::Selected
            && self.by_judgement(entry)
    }

    /// Returns whether a selector on client, Service, endpoint or namespace exists.
    pub fn has_parties(&self) -> bool {
        !self.services.is_empty()
            || !self.pods.is_empty()
            || !self.clients.is_empty()
            || !self.endpoints.is_empty()
            || !self.namespaces.is_empty()
    }

    /// Returns whether the entry passes the selectors on client, Service, endpoint and namespace, which do not change while it
    /// lives.
    pub fn by_parties(&self, entry: &Entry<'_>) -> bool {
        self.parties(entry) == Answer::Yes
    }

    /// Returns whether only a negated selector excludes the entry, because the entry lacks the name. Callers count these.
    pub fn party_unknown(&self, entry: &Entry<'_>) -> bool {
        self.parties(entry) == Answer::Lacking
            && self.stale_match(entry) == StaleMatch::Selected
            && self.by_judgement(entry)
    }

    fn parties(&self, entry: &Entry<'_>) -> Answer {
        let Entry { flow, names, .. } = entry;
        let endpoint = names.endpoint.as_ref().map(|endpoint| &endpoint.party);
        let client = names.client.as_ref();
        [
            answer(&self.services, |pick| pick.is_matched(names.matched)),
            answer(&self.pods, |pick| pick.is_either(client, endpoint)),
            answer(&self.clients, |pick| {
                pick.matches(client, flow.original.source())
            }),
            answer(&self.endpoints, |pick| {
                pick.matches(endpoint, flow.reply.source())
            }),
            answer(&self.namespaces, |namespace| {
                has_namespace(entry, namespace)
            }),
        ]
        .into_iter()
        .max()
        .unwrap_or_default()
    }

    /// Returns whether the entry passes every selector.
    pub fn test(&self, entry: &Entry<'_>) -> bool {
        self.stale_match(entry) == StaleMatch::Selected && self.others(entry)
    }

    /// Returns whether only `--stale` excludes the entry, because its protocol was not named. Callers count these.
    pub fn stale_held_back(&self, entry: &Entry<'_>) -> bool {
        self.stale_match(entry) == StaleMatch::HeldBack && self.others(entry)
    }

    /// Returns whether the entry is excluded because its verdict is open, and one of the `possible` reasons would select it.
    pub fn may_be_meant(&self, entry: &Entry<'_>, possible: &[Reason]) -> bool {
        let is_selected = |reason: Reason| {
            let judgement = (reason.verdict(), reason);
            self.stale_match_of(Some(judgement.0), entry.flow.protocol()) == StaleMatch::Selected
                && self.judged(Some(judgement))
        };
        let open = entry.judgement.as_ref().map(|judgement| judgement.reason);
        open.is_some_and(|open| !is_selected(open))
            && possible.iter().any(|reason| is_selected(*reason))
    }

    fn stale_match(&self, entry: &Entry<'_>) -> StaleMatch {
        let verdict = entry.judgement.as_ref().map(|j| j.verdict());
        self.stale_match_of(verdict, entry.flow.protocol())
    }

    fn stale_match_of(&self, verdict: Option<Verdict>, protocol: u8) -> StaleMatch {
        if !self.stale {
            StaleMatch::Selected
        } else if verdict != Some(Verdict::Stale) {
            StaleMatch::Excluded
        } else if self.names_a_protocol || protocol == UDP {
            StaleMatch::Selected
        } else {
            StaleMatch::HeldBack
        }
    }

    /// Every selector except `--stale`.
    fn others(&self, entry: &Entry<'_>) -> bool {
        self.by_names(entry) && self.by_judgement(entry)
    }

    fn by_judgement(&self, entry: &Entry<'_>) -> bool {
        self.judged(entry.judgement.as_ref().map(|j| (j.verdict(), j.reason)))
    }

    fn judged(&self, judgement: Option<(Verdict, Reason)>) -> bool {
        let verdicts = answer(&self.verdicts, |wanted| {
            judgement.map(|(verdict, _)| verdict == *wanted)
        });
        let reasons = answer(&self.reasons, |wanted| {
            judgement.map(|(_, reason)| reason == *wanted)
        });
        verdicts.max(reasons) == Answer::Yes
    }
}

/// Answer of a selector for an entry. The greatest one decides among several selectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Answer {
    #[default]
    Yes,
    /// The entry lacks the value that a negated selector tests, and passes the others.
    Lacking,
    No,
}

/// Like [`Picks::pass`], for values that an entry may lack: `None` neither equals a plain value nor differs from a negated one.
fn answer<T>(picks: &Picks<T>, equals: impl Fn(&T) -> Option<bool>) -> Answer {
    let plain = picks.plain();
    if !plain.is_empty() && !plain.iter().any(|pick| equals(pick) == Some(true)) {
        return Answer::No;
    }
    let excluded = |pick| match equals(pick) {
        Some(false) => Answer::Yes,
        None => Answer::Lacking,
        Some(true) => Answer::No,
    };
    let negated = picks.negated().iter().map(excluded);
    negated.max().unwrap_or_default()
}

impl ServicePick {
    /// # Errors
    ///
    /// As [`Selection::resolve`] for `--svc`.
    pub fn resolve(typed: &ServiceRef, known: Directory<'_>) -> Result<Self, SelectError> {
        match known {
            Directory::Index(index) => resolve::service(typed, index),
            Directory::Rules(rules) => resolve::service_by_rules(typed, rules),
        }
    }

    /// Compares the frontend that the original destination matched. Services can share a frontend.
    fn is_matched(&self, matched: FrontendMatch<'_>) -> Option<bool> {
        match self {
            ServicePick::Ports(wanted) => {
                let mut ports = matched.ports().map(|(id, _)| id).peekable();
                ports.peek()?;
                Some(ports.any(|id| wanted.contains(&id)))
            }
            ServicePick::Named {
                namespace,
                name,
                ports,
            } => {
                let FrontendMatch::Rule(frontend) = matched else {
                    return None;
                };
                let service = frontend.service.as_ref()?;
                let same = service.namespace == *namespace && service.name == *name;
                Some(same && ports.contains(&service.port))
            }
        }
    }
}

impl ResolvedPod {
    /// Returns whether the party is this pod; `None` when the party is not known.
    fn is(&self, party: Option<&Party<'_>>) -> Option<bool> {
        let party = party?;
        match party.kind {
            PartyKind::Pod | PartyKind::HostNetwork => {
                Some(party.namespace == Some(&self.namespace) && party.name == Some(&self.name))
            }
            PartyKind::Node if self.host_network => None,
            PartyKind::Node | PartyKind::External => Some(false),
            PartyKind::Unknown => None,
        }
    }

    fn is_either(&self, client: Option<&Party<'_>>, endpoint: Option<&Party<'_>>) -> Option<bool> {
        match (self.is(client), self.is(endpoint)) {
            (None, None) => None,
            (a, b) => Some(a == Some(true) || b == Some(true)),
        }
    }
}

impl ResolvedParty {
    /// Compares one side of an entry. `place`: address and port of the side in its tuple.
    fn matches(&self, party: Option<&Party<'_>>, place: AddressPort) -> Option<bool> {
        match self {
            ResolvedParty::Pod(pod) => pod.is(party),
            ResolvedParty::Net(net) => Some(net.contains(place.address)),
            // An entry without ports lacks the value.
            ResolvedParty::Socket(wanted) => place.port.map(|_| place == *wanted),
        }
    }
}

fn has_namespace(entry: &Entry<'_>, namespace: &str) -> Option<bool> {
    let names = &entry.names;
    let all = [
        names.client.and_then(|client| client.namespace),
        names.service.and_then(|service| service.namespace),
        names.endpoint.and_then(|endpoint| endpoint.party.namespace),
    ];
    let mut known = all.into_iter().flatten().peekable();
    known.peek()?;
    Some(known.any(|name| name == namespace))
}

#[cfg(test)]
mod tests;
