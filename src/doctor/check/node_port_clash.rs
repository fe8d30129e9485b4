//! Connections that were translated to a source port which is a node port: an answer that the kernel takes for a new packet
//! goes to the Service of that node port, and the connection never completes. `--random-fully` chooses among all ports from
//! 1024 on, the node ports included.

use std::cmp::Reverse;
use std::net::IpAddr;

use crate::doctor::example::{self, Examples};
use crate::doctor::expected_reply::expects_reply;
use crate::doctor::groups::BoundedGroups;
use crate::doctor::{Check, Facts, Finding, Severity, Thresholds};
use crate::entry::Entry;
use crate::plural::count;

const NAME: &str = "node-port-clash";

/// Protocol, own address and port that answers go to.
type Place = (u8, IpAddr, u16);

#[derive(Default)]
pub struct NodePortClash(BoundedGroups<Place, Clash>);

#[derive(Default)]
struct Clash {
    service: Option<String>,
    entries: u64,
    unreplied: u64,
    /// Unanswered entries of protocols that always answer.
    due: u64,
    examples: Examples,
}

impl Check for NodePortClash {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "translated source port is a node port"
    }

    fn looks_for(&self) -> &'static str {
        "Connections that were translated to a source port which is a node port of a Service."
    }

    fn lacks(&self, facts: &Facts<'_>) -> Option<&'static str> {
        facts.lacks_objects()
    }

    fn observe(&mut self, entry: &Entry<'_>, facts: &Facts<'_>) {
        let flow = &entry.flow;
        let (Some(index), Some(port)) = (facts.index, flow.reply.dport()) else {
            return;
        };
        let ports = index.node_ports(flow.protocol(), port);
        let Some(first) = ports.first().filter(|_| flow.is_snat()) else {
            return;
        };
        if !facts.is_own(flow.reply.dst) {
            return;
        }
        let group = self.0.at((flow.protocol(), flow.reply.dst, port));
        let unreplied = flow.status.is_unreplied();
        group.entries += 1;
        group.unreplied += u64::from(unreplied);
        group.due += u64::from(unreplied && expects_reply(flow));
        group.examples.push(entry, unreplied);
        if group.service.is_none() {
            let service = index.service(index.port(*first).service);
            group.service = Some(format!("{}/{}", service.namespace, service.name));
        }
    }

    fn findings(&self, _: &Facts<'_>, _: &Thresholds) -> Vec<Finding> {
        let mut found: Vec<_> = self.0.iter().collect();
        found.sort_by_key(|(place, clash)| (Reverse((clash.due, clash.entries)), **place));
        found.into_iter().map(finding).collect()
    }
}

fn finding(((protocol, address, port), clash): (&Place, &Clash)) -> Finding {
    let severity = match clash.due {
        0 => Severity::Info,
        _ => Severity::Warning,
    };
    let at = example::socket(*address, Some(*port));
    let protocol = example::protocol(*protocol);
    let service = clash.service.clone().unwrap_or_default();
    let state = match clash.unreplied {
        0 => "all were answered".to_owned(),
        n => format!("{n} without an answer, which may reach that Service instead"),
    };
    let message = format!(
        "{}: answers go to {at}/{protocol}, and {port} is the node port of {service}; {state}",
        count(
            clash.entries,
            "connection was translated to a node port",
            "connections were translated to a node port"
        )
    );
    Finding::new(NAME, severity, message)
        .with("address", address.to_string())
        .with("port", *port)
        .with("protocol", protocol.as_str())
        .with("service", service)
        .with("entries", clash.entries)
        .with("unreplied", clash.unreplied)
        .with("answer_due", clash.due)
        .examples(&clash.examples)
        .because(NAME)
        .help(format!(
            "move the node port, or let masquerading choose outside the node ports (--to-ports 32768-65535, nft: masquerade to :32768-65535); see \
             them: ctk ls --snat --reply-dst {address} --reply-dport {port}"
        ))
}
