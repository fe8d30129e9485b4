//! Selectors by the names behind an entry and by its verdict.
//!
//! Typed names become a [`Selection`] once, against the cluster that was read: a name that nobody has, or that two
//! namespaces have, is an error and never an empty answer. What an entry lacks (no Service matched, no verdict sought)
//! satisfies no test, plain or negated, as in [`crate::filter`].

pub mod name;
mod resolve;

use crate::attribution::FrontendMatch;
use crate::attribution::{Party, PartyKind};
use crate::entry::Entry;
use crate::filter::Picks;
use crate::filter::cidr::Cidr;
use crate::filter::protocol::UDP;
use crate::verdict::{Reason, Refreshing, Verdict};
use ctk_cluster::index::{Index, Name, PortId};
use ctk_cluster::rules::NodeRules;
use ctnetlink::flow::AddressPort;

use name::{Namespace, PartyName, PodName, PortRef, ReasonWord, ServiceRef, VerdictWord};

/// Why a name cannot be resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectErrorKind {
    /// Nobody has the name; with an incomplete source somebody may have it all the same.
    Unknown,
    /// The source tells no names of this sort, so somebody may have it.
    NotTold,
    /// Several have it.
    Ambiguous,
}

/// Where names are looked up.
#[derive(Clone, Copy)]
pub enum Directory<'c> {
    Index(&'c Index),
    /// The node's rules name Services, and nothing else.
    Rules(&'c NodeRules),
}

/// A name that cannot be resolved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SelectError {
    pub kind: SelectErrorKind,
    /// Begins with the flag.
    pub message: String,
    /// Names that may have been meant.
    pub hint: Option<String>,
}

/// Selectors as typed.
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
    /// Stale entries of other protocols than UDP are wanted, too.
    pub names_a_protocol: bool,
}

impl Selectors {
    /// A cluster must be read to answer. An address as client or endpoint, and `--refreshing`, need none.
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
}

impl Selectors {
    /// Whether what happens to the endpoints of this Service port is of interest: always, unless Services are selected. The
    /// number of a port is not known everywhere.
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

/// The ports of a Service that exists.
#[derive(Clone, Debug)]
pub enum ServicePick {
    Ports(Vec<PortId>),
    /// As the node's rules name it.
    Named {
        namespace: Name,
        name: Name,
        /// Names of the ports that are meant, `None` for an unnamed one.
        ports: Vec<Option<Name>>,
    },
}

/// A pod that exists.
#[derive(Clone, Debug)]
struct PodPick {
    namespace: Box<str>,
    name: Box<str>,
    /// It shares its node's addresses, so it may be behind one of those without being named.
    host_network: bool,
}

#[derive(Clone, Debug)]
enum PartyPick {
    Pod(PodPick),
    Net(Cidr),
    Place(AddressPort),
}

/// What `--stale` says of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stale {
    Wanted,
    Unwanted,
    HeldBack,
}

/// Selectors resolved against a cluster. The default one passes every entry.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    services: Picks<ServicePick>,
    pods: Picks<PodPick>,
    clients: Picks<PartyPick>,
    endpoints: Picks<PartyPick>,
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
    /// A Service, port, pod or namespace that the directory does not have, or a name without namespace that two have.
    pub fn resolve(selectors: &Selectors, known: Directory<'_>) -> Result<Self, SelectError> {
        resolve::resolve(selectors, known)
    }

    /// Every entry passes.
    pub fn is_empty(&self) -> bool {
        // All fields by name: a new one that is forgotten here does not compile.
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

    /// The entry is selected by every selector but those on verdicts.
    pub fn by_names(&self, entry: &Entry<'_>) -> bool {
        (!self.refreshing || entry.refreshing == Refreshing::Yes) && self.by_parties(entry)
    }

    /// `--refreshing` leaves this entry out only because it is not known whether it is: worth a count.
    pub fn refreshing_unknown(&self, entry: &Entry<'_>) -> bool {
        self.refreshing
            && entry.refreshing == Refreshing::Unknown
            && self.by_parties(entry)
            && self.asked_stale(entry) == Stale::Wanted
            && self.by_judgement(entry)
    }

    /// Some selector is about client, Service, endpoint or namespace.
    pub fn has_parties(&self) -> bool {
        !self.services.is_empty()
            || !self.pods.is_empty()
            || !self.clients.is_empty()
            || !self.endpoints.is_empty()
            || !self.namespaces.is_empty()
    }

    /// The entry is selected by client, Service, endpoint and namespace: what stays the same while it lives.
    pub fn by_parties(&self, entry: &Entry<'_>) -> bool {
        self.parties(entry) == Answer::Yes
    }

    /// A negated selector leaves this entry out only because it lacks the name that was excluded: worth a count.
    pub fn party_unknown(&self, entry: &Entry<'_>) -> bool {
        self.parties(entry) == Answer::Lacking
            && self.asked_stale(entry) == Stale::Wanted
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
                pick.stands(client, flow.original.source())
            }),
            answer(&self.endpoints, |pick| {
                pick.stands(endpoint, flow.reply.source())
            }),
            answer(&self.namespaces, |namespace| {
                has_namespace(entry, namespace)
            }),
        ]
        .into_iter()
        .max()
        .unwrap_or_default()
    }

    /// The entry is selected.
    pub fn test(&self, entry: &Entry<'_>) -> bool {
        self.asked_stale(entry) == Stale::Wanted && self.others(entry)
    }

    /// `--stale` leaves this entry out only because its protocol was not named: worth a count.
    pub fn stale_held_back(&self, entry: &Entry<'_>) -> bool {
        self.asked_stale(entry) == Stale::HeldBack && self.others(entry)
    }

    /// The verdict that was asked for may be that of this entry, which is left out because its verdict is open: one of
    /// `possible` is the right one.
    pub fn may_be_meant(&self, entry: &Entry<'_>, possible: &[Reason]) -> bool {
        let is_selected = |reason: Reason| {
            let judgement = (reason.verdict(), reason);
            self.stale_says(Some(judgement.0), entry.flow.protocol()) == Stale::Wanted
                && self.judged(Some(judgement))
        };
        let open = entry.judgement.as_ref().map(|judgement| judgement.reason);
        open.is_some_and(|open| !is_selected(open))
            && possible.iter().any(|reason| is_selected(*reason))
    }

    fn asked_stale(&self, entry: &Entry<'_>) -> Stale {
        let verdict = entry.judgement.as_ref().map(|j| j.verdict());
        self.stale_says(verdict, entry.flow.protocol())
    }

    fn stale_says(&self, verdict: Option<Verdict>, protocol: u8) -> Stale {
        if !self.stale {
            Stale::Wanted
        } else if verdict != Some(Verdict::Stale) {
            Stale::Unwanted
        } else if self.names_a_protocol || protocol == UDP {
            Stale::Wanted
        } else {
            Stale::HeldBack
        }
    }

    /// Everything but `--stale`.
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

/// What a selector says of an entry. The later ones win where several are asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Answer {
    #[default]
    Yes,
    /// It lacks the value that a negated selector asks for, and passes all the rest.
    Lacking,
    No,
}

/// As [`Picks::pass`], for values that an entry may lack: `None` equals no plain value and is no other value either.
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

    /// By the frontend that the original destination matched, and nothing else. Services can share one.
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

impl PodPick {
    /// `None` when nobody can tell who the party is.
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

impl PartyPick {
    /// `place` is where the party stands in the tuple.
    fn stands(&self, party: Option<&Party<'_>>, place: AddressPort) -> Option<bool> {
        match self {
            PartyPick::Pod(pod) => pod.is(party),
            PartyPick::Net(net) => Some(net.contains(place.address)),
            // The port of an entry without ports is lacking, and with it the whole value.
            PartyPick::Place(wanted) => place.port.map(|_| place == *wanted),
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
