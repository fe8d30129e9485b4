//! Evidence of a verdict as one sentence. Stored as references and formatted only when it is printed.

use std::fmt;

use ctk_cluster::index::{Index, Pod, PortId, Service};
use ctk_cluster::rules::RuleService;
use ctnetlink::flow::{AddressPort, Flow};

use super::{Activity, PortChange, Reason, Refreshing};

/// Facts that the sentence needs beside the reason.
#[derive(Clone, Copy, Debug)]
pub enum Detail<'c> {
    None,
    /// Fixed clause that names the missing fact or the responsible component.
    Because(&'static str),
    /// The entry may be younger than the cluster source.
    YoungerThanSource,
    /// Pod that has the address of the reply source.
    Pod(&'c Pod),
    /// No other endpoint of the Service serves.
    LastEndpoint,
    /// Number of endpoints that count for this reason.
    Endpoints(usize),
    /// Text of the node's rule that decided.
    Rule(&'c str),
    /// The client's own source, the source that the destination sees, and the text of the rule that leads to the former.
    Displaced(AddressPort, AddressPort, &'c str),
}

/// One sentence for an operator, printed with `Display`.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'c> {
    pub(super) reason: Reason,
    pub(super) destination: AddressPort,
    pub(super) reply_source: AddressPort,
    pub(super) zone: u16,
    pub(super) service: Option<(&'c Index, PortId)>,
    /// Service that owns the destination address without a matching port.
    pub(super) owner: Option<&'c Service>,
    /// Service as the node's rules name it, where only these are known.
    pub(super) named: Option<&'c RuleService>,
    pub(super) detail: Detail<'c>,
    /// Result of several observations of the entry.
    pub(super) activity: Option<Activity>,
    pub(super) port_change: Option<PortChange>,
}

impl<'c> Evidence<'c> {
    pub(crate) fn new(reason: Reason, flow: &Flow) -> Self {
        Evidence {
            reason,
            destination: flow.original.destination(),
            reply_source: flow.reply.source(),
            zone: flow.zone.id,
            service: None,
            owner: None,
            named: None,
            detail: Detail::None,
            activity: None,
            port_change: None,
        }
    }

    fn endpoints(&self) -> usize {
        let Some((index, id)) = self.service else {
            return 0;
        };
        index
            .port(id)
            .endpoints
            .counts(self.destination.address)
            .serving
    }
}

/// Prints namespace and name of the matched Service, or of the owner of the address.
struct PrintedName<'a>(&'a Evidence<'a>);

impl fmt::Display for PrintedName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let matched = self.0.service.map(|(index, id)| {
            let port = index.port(id);
            index.service(port.service)
        });
        match matched.or(self.0.owner) {
            Some(service) => write!(f, "{}/{}", service.namespace, service.name),
            None => match self.0.named {
                Some(service) => write!(f, "{}/{}", service.namespace, service.name),
                // Only the node's rules are known, and they hold no Service name.
                None => f.write_str("its Service"),
            },
        }
    }
}

impl fmt::Display for Evidence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.verdict_clause(f)?;
        match &self.activity {
            Some(activity) if activity.refreshing != Refreshing::Unknown => {
                write!(f, "; {activity}")?;
            }
            _ => {}
        }
        match &self.port_change {
            Some(change) => write!(f, "; {change}"),
            None => Ok(()),
        }
    }
}

impl Evidence<'_> {
    /// Writes the clause about the verdict.
    fn verdict_clause(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (to, from) = (self.destination, self.reply_source);
        if let Detail::Rule(rule) = self.detail {
            return by_rule(f, self.reason, from, rule);
        }
        let name = PrintedName(self);
        match self.reason {
            Reason::Endpoint => write!(f, "{from} is a serving endpoint of {name}"),
            Reason::EndpointTerminating => {
                write!(f, "{from} is terminating and still serves {name}")
            }
            Reason::EndpointGone => write!(
                f,
                "{from} is no endpoint of {name}, which has {}",
                self.endpoints()
            ),
            Reason::EndpointNotServing => {
                let others = match self.detail {
                    Detail::LastEndpoint => "; no other endpoint serves",
                    _ => "",
                };
                write!(
                    f,
                    "{from} is listed as an endpoint of {name}, but neither ready nor serving{others}"
                )
            }
            Reason::PortGone => write!(
                f,
                "{name} has no port {to} any more, the entry still leads to {from}"
            ),
            Reason::EndpointPortChanged => write!(
                f,
                "{} serves {name} on another port than {}",
                from.address,
                from.port.unwrap_or_default()
            ),
            Reason::ServiceEmpty => write!(
                f,
                "{name} has no serving endpoint, the entry still leads to {from}; a new packet will be refused or dropped"
            ),
            Reason::ServiceGone => write!(
                f,
                "no Service owns {}, which lies in the Service range; the entry still leads to {from}{}",
                to.address, PodNote(self.detail)
            ),
            Reason::NoDnat => write!(
                f,
                "never translated: {from} answers for itself, while {name} has {}",
                counted(self.detail, self.endpoints())
            ),
            Reason::Misdelivery => match self.detail {
                Detail::Pod(pod) => write!(
                    f,
                    "{} now belongs to pod {}/{}, which is no endpoint of {name}",
                    from.address, pod.namespace, pod.name
                ),
                _ => write!(f, "{} now belongs to a pod that is no endpoint of {name}", from.address),
            },
            Reason::PodNotEndpoint => match self.detail {
                Detail::Pod(pod) => write!(
                    f,
                    "pod {}/{} at {} lives, but is no endpoint of {name}",
                    pod.namespace, pod.name, from.address
                ),
                _ => write!(f, "the pod at {} lives, but is no endpoint of {name}", from.address),
            },
            Reason::NoDnatNoEndpoint => write!(
                f,
                "never translated, and {name} has no endpoint that this node could use: deleting will not help yet"
            ),
            Reason::NoDnatNoRule => write!(
                f,
                "never translated, and this node has no rule for {to}: deleting will not help yet"
            ),
            Reason::NotInNodeRules => write!(
                f,
                "this node's rules do not list {from} for {to}; they leave out endpoints that terminate or are elsewhere"
            ),
            Reason::SourceIncomplete => match self.detail {
                Detail::Because(fact) => write!(f, "not decided: {fact}"),
                Detail::YoungerThanSource => f.write_str(
                    "not decided: the entry is younger than the cluster source, its endpoint may be, too",
                ),
                _ => f.write_str("not decided: the cluster source is incomplete"),
            },
            Reason::ForeignZone => write!(
                f,
                "conntrack zone {} is managed by somebody else; name it with --zone to judge it",
                self.zone
            ),
            Reason::Offloaded => {
                f.write_str("handed to a flow table: timer and counters say nothing about it")
            }
            Reason::NotKubeProxy => match self.detail {
                Detail::Because(fact) => write!(f, "{to}: {fact}"),
                _ => write!(f, "kube-proxy does not translate {name}"),
            },
            Reason::NodelocalDns => write!(
                f,
                "{} is on a local interface: a node-local DNS cache answers there",
                to.address
            ),
            Reason::ServiceRangeUnknown => write!(
                f,
                "no Service owns {}, and the Service range is not known; name it with --service-cidr",
                to.address
            ),
            Reason::SecondaryAddress => write!(
                f,
                "{} is a further address of an endpoint of {name}, which kube-proxy does not use",
                from.address
            ),
            Reason::ServiceHop => write!(
                f,
                "{from} is another frontend of {name}: the endpoint is chosen at the next hop"
            ),
            Reason::CniInternal => write!(
                f,
                "{} is a link-local address of the network plugin: the endpoint is chosen at the next hop",
                from.address
            ),
            Reason::ForeignNetns => f.write_str(
                "this network namespace is not known to be the node's, and Service addresses are translated in the node's",
            ),
            Reason::NoFrontend => {
                write!(f, "{to} is no frontend of a Service{}", Displaced(to, self.detail))
            }
            Reason::OtherPort => write!(f, "{name} has {}, but not this protocol and port", to.address),
            Reason::RemoteNodePort => {
                write!(f, "{to} is a node port of another node, which is verdict_clause there")
            }
        }
    }
}

/// Writes the clause about a rule that belongs to no Service.
fn by_rule(
    f: &mut fmt::Formatter<'_>,
    reason: Reason,
    from: AddressPort,
    rule: &str,
) -> fmt::Result {
    match reason {
        Reason::Endpoint => write!(f, "{from} is a target of this node's rule: {rule}"),
        Reason::EndpointGone => write!(f, "{from} is no target of this node's rule: {rule}"),
        Reason::NoDnat => write!(
            f,
            "never translated, while this node has a rule for it: {rule}"
        ),
        _ => write!(
            f,
            "this node has a rule that may not hold for this entry: {rule}"
        ),
    }
}

/// Prints the cause of a changed source port, where a rule of this node shows it.
struct Displaced<'c>(AddressPort, Detail<'c>);

impl fmt::Display for Displaced<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Displaced(to, Detail::Displaced(own, activity, rule)) = *self else {
            return Ok(());
        };
        let (before, after) = (
            own.port.unwrap_or_default(),
            activity.port.unwrap_or_default(),
        );
        let taken = AddressPort {
            port: own.port,
            ..activity
        };
        write!(
            f,
            "; source port changed {before} -> {after}: see who has the tuple of {to} -> {taken}, which this node's rule \
             forwards: {rule}"
        )
    }
}

/// Prints the Pod that has the address of the reply source now.
struct PodNote<'c>(Detail<'c>);

impl fmt::Display for PodNote<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Detail::Pod(pod) => write!(
                f,
                ", which is pod {}/{}, no endpoint for this address",
                pod.namespace, pod.name
            ),
            _ => Ok(()),
        }
    }
}

fn counted(detail: Detail<'_>, known: usize) -> String {
    let count = match detail {
        Detail::Endpoints(count) => count,
        _ => known,
    };
    match count {
        1 => "1 usable endpoint".to_owned(),
        n => format!("{n} usable endpoints"),
    }
}
