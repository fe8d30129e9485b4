//! Pairs of source address and destination whose source ports are used up. New connections of the pair fail though the
//! table is not full.

use std::cmp::Reverse;
use std::net::IpAddr;

use crate::doctor::example::{self, Examples};
use crate::doctor::groups::BoundedGroups;
use crate::doctor::{Check, Facts, Finding, Severity, Thresholds};
use crate::entry::Entry;
use crate::percent::{percent, rounded};
use crate::plural::count;
use crate::service::is_open;

pub const NAME: &str = "port-exhaustion";
/// Number of ports 1024-65535, among which masquerading chooses (`nf_nat_l4proto_unique_tuple` of the kernel) for a
/// client's port of 1024 or above.
const MASQUERADE_PORTS: u64 = 64_512;

/// Seconds for which a closed socket holds its port (`TCP_TIMEWAIT_LEN` of the kernel). By default the entry lives twice as
/// long, so the socket exists while more than this is left of the entry.
const TIME_WAIT_SECONDS: u32 = 60;

/// Zone, protocol, source address as the destination sees it, and destination. With the source port they form a reply
/// tuple, which is unique in a zone.
type AddressPair = (u16, u8, IpAddr, IpAddr, u16);

#[derive(Default)]
pub struct PortExhaustion(BoundedGroups<AddressPair, UsedPorts>);

#[derive(Default)]
struct UsedPorts {
    masqueraded: u64,
    /// Connections of this node's own processes.
    own: u64,
    examples: Examples,
}

impl Check for PortExhaustion {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "source ports used up"
    }

    fn looks_for(&self) -> &'static str {
        "One source address that runs out of source ports to one destination."
    }

    fn observe(&mut self, entry: &Entry<'_>, facts: &Facts<'_>) {
        let flow = &entry.flow;
        let (Some(port), snat) = (flow.reply.sport(), flow.is_snat()) else {
            return;
        };
        if !snat && !facts.is_own(flow.original.src) {
            return;
        }
        let group = self.0.at((
            flow.zone.id,
            flow.protocol(),
            flow.reply.dst,
            flow.reply.src,
            port,
        ));
        match snat {
            // A tuple is occupied for the life of its entry.
            true => group.masqueraded += 1,
            false if is_open(flow) || flow.timeout.is_some_and(|left| left > TIME_WAIT_SECONDS) => {
                group.own += 1;
            }
            // The socket has released its port; the entry stays for twice as long.
            false => return,
        }
        group.examples.push(entry, false);
    }

    fn findings(&self, facts: &Facts<'_>, thresholds: &Thresholds) -> Vec<Finding> {
        let own_ports = facts
            .local_ports
            .map(|(first, last)| u64::from(last - first) + 1);
        let mut found: Vec<Finding> = Vec::new();
        let mut pairs: Vec<_> = self.0.iter().collect();
        pairs.sort_by_key(|(pair, ports)| (Reverse(ports.masqueraded + ports.own), **pair));
        for (pair, ports) in pairs {
            let all = ports.masqueraded + ports.own;
            let masquerade =
                (ports.masqueraded > 0).then_some((all, MASQUERADE_PORTS, "1024-65535"));
            let own = own_ports.map(|range| (ports.own, range, "net.ipv4.ip_local_port_range"));
            let worst = masquerade
                .into_iter()
                .chain(own)
                .filter_map(|(used, of, range)| Some((percent(used, of)?, used, of, range)))
                .max_by(|one, other| one.0.total_cmp(&other.0));
            if let Some((share, used, of, range)) =
                worst.filter(|worst| worst.0 >= thresholds.ports_used as f64)
            {
                let missed = self.0.missed();
                found.push(finding(
                    pair,
                    ports,
                    (share, used, of, range),
                    missed,
                    thresholds.ports_critical,
                ));
            }
        }
        found
    }
}

fn finding(
    (zone, protocol, source, address, port): &AddressPair,
    ports: &UsedPorts,
    (share, used, of, range): (f64, u64, u64, &str),
    missed: u64,
    critical: u64,
) -> Finding {
    let severity = match share >= critical as f64 {
        true => Severity::Critical,
        false => Severity::Warning,
    };
    let protocol = example::protocol(*protocol);
    let destination = example::socket(*address, Some(*port));
    let in_zone = match zone {
        0 => String::new(),
        zone => format!(" in zone {zone}"),
    };
    let message = format!(
        "{source} to {destination}/{protocol}{in_zone}: {} use {} % of the {of} source ports ({range})",
        count(used, "entry", "entries"),
        rounded(share),
    );
    Finding::new(NAME, severity, message)
        .with("source", source.to_string())
        .with("destination", destination)
        .with("protocol", protocol)
        .with("zone", *zone)
        .with("masqueraded", ports.masqueraded)
        .with("own", ports.own)
        .with("used", used)
        .with("available", of)
        .with("percent", share)
        .with("missed_at_most", missed)
        .examples(&ports.examples)
        .help(format!(
            "reuse connections (keep-alive, pools), add a masquerade or destination address, or shorten net.netfilter.nf_conntrack_tcp_timeout_time_wait; who: ctk top --by client --reply-dst {source} --reply-src {address}"
        ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::testing::flow;
    use crate::this_node::{NetnsOwner, ThisNode};
    use ctnetlink::flow::{ProtocolState, TcpDirection};
    use ctnetlink::rtnetlink::LocalAddress;

    /// Masqueraded connections to 203.0.113.10:443, spread over these source addresses.
    fn seen(connections: u32, sources: &[&str], zones: u32) -> Vec<Finding> {
        let mut check = PortExhaustion::default();
        let facts = Facts::default();
        for n in 0..connections {
            let place = n as usize % sources.len();
            let port = 1024 + n / sources.len() as u32;
            let mut flow = flow(
                6,
                &format!("10.244.{}.{}:40000", n % 200, n / 200 % 200),
                "203.0.113.10:443",
                "203.0.113.10:443",
            );
            let masqueraded = format!("{}:{port}", sources[place]);
            flow.reply = crate::doctor::testing::tuple(6, "203.0.113.10:443", &masqueraded);
            flow.zone.id = (n % zones) as u16;
            check.observe(&Entry::bare(flow), &facts);
        }
        check.findings(&facts, &Thresholds::default())
    }

    #[test]
    fn a_pair_without_free_ports_is_found_and_a_second_address_helps() {
        let found = seen(63_900, &["192.0.2.11"], 1);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].severity, Severity::Critical);
        assert_eq!(
            found[0].message,
            "192.0.2.11 to 203.0.113.10:443/tcp: 63900 entries use 99.1 % of the 64512 source ports (1024-65535)"
        );
        assert_eq!(found[0].evidence["used"], 63_900);
        assert!(seen(63_900, &["192.0.2.11", "192.0.2.12"], 1).is_empty());
        // Each zone has its own ports.
        assert!(seen(63_900, &["192.0.2.11"], 2).is_empty());
    }

    #[test]
    fn ports_that_sockets_released_are_not_used_up() {
        let node = ThisNode {
            name: None,
            local: Some(vec![LocalAddress {
                interface: "eth0".to_owned(),
                network: "192.0.2.11/24".parse().unwrap(),
            }]),
            routes: None,
            namespace: NetnsOwner::Node,
        };
        let facts = Facts {
            node: Some(&node),
            local_ports: Some((40_000, 40_099)),
            ..Facts::default()
        };
        const ESTABLISHED: u8 = 3;
        const TIME_WAIT_SECONDS: u8 = 7;
        for (state, left, used) in [
            (ESTABLISHED, 400_000, Some(97)),
            (TIME_WAIT_SECONDS, 61, Some(97)),
            (TIME_WAIT_SECONDS, 60, None),
        ] {
            let mut check = PortExhaustion::default();
            for port in 40_000..40_097 {
                let client = format!("192.0.2.11:{port}");
                let mut flow = flow(6, &client, "203.0.113.10:443", "203.0.113.10:443");
                flow.state = Some(ProtocolState::Tcp {
                    state,
                    original: TcpDirection::default(),
                    reply: TcpDirection::default(),
                });
                flow.timeout = Some(left);
                check.observe(&Entry::bare(flow), &facts);
            }
            let found = check.findings(&facts, &Thresholds::default());
            let own = found
                .first()
                .map(|finding| finding.evidence["own"].as_u64());
            assert_eq!(own, used.map(Some), "{state} {left}");
        }
    }
}
