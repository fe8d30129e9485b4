//! Accumulated half-closed TCP connections: one side has closed, the other has not. The state is conntrack's; the socket of
//! the side that closed may be gone already, so `ss` and `netstat` show nothing.

use std::cmp::Reverse;

use crate::doctor::example::{self, Examples};
use crate::doctor::groups::BoundedGroups;
use crate::doctor::{Check, Facts, Finding, Thresholds};
use crate::entry::Entry;
use crate::plural::count;
use ctnetlink::flow::{ProtocolState, TcpDirection};

const NAME: &str = "half-closed";
const FIN_WAIT: u8 = 4;
const CLOSE_WAIT: u8 = 5;
const LAST_ACK: u8 = 6;
/// `IP_CT_TCP_FLAG_CLOSE_INIT` of the kernel: this side sent the first FIN.
const CLOSE_INIT: u8 = 4;

/// Connections by client and by the Service or destination that it connects to.
#[derive(Default)]
pub struct HalfClosed(BoundedGroups<(String, String), Workload>);

#[derive(Default)]
struct Workload {
    fin_wait: u64,
    close_wait: u64,
    last_ack: u64,
    closed_by_client: u64,
    closed_by_server: u64,
    /// Seconds until the last connection ends.
    longest: Option<u32>,
    examples: Examples,
}

impl Workload {
    fn all(&self) -> u64 {
        self.fin_wait + self.close_wait + self.last_ack
    }
}

impl Check for HalfClosed {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "half-closed connections"
    }

    fn looks_for(&self) -> &'static str {
        "Many connections of which one side has closed and the other has not."
    }

    fn observe(&mut self, entry: &Entry<'_>, _: &Facts<'_>) {
        let flow = &entry.flow;
        let Some(ProtocolState::Tcp {
            state,
            original,
            reply,
        }) = flow.state
        else {
            return;
        };
        if !matches!(state, FIN_WAIT | CLOSE_WAIT | LAST_ACK) {
            return;
        }
        let client = entry.names.client.and_then(example::party);
        let service = entry.names.service.as_ref().and_then(example::service);
        let destination = || example::socket(flow.original.dst, flow.original.dport());
        let group = self.0.at((
            client.unwrap_or_else(|| flow.original.src.to_string()),
            service.unwrap_or_else(destination),
        ));
        match state {
            FIN_WAIT => group.fin_wait += 1,
            CLOSE_WAIT => group.close_wait += 1,
            _ => group.last_ack += 1,
        }
        group.closed_by_client += u64::from(began_closing(original));
        group.closed_by_server += u64::from(began_closing(reply));
        group.longest = group.longest.max(flow.timeout);
        group.examples.push(entry, state == CLOSE_WAIT);
    }

    fn findings(&self, _: &Facts<'_>, thresholds: &Thresholds) -> Vec<Finding> {
        let all = self.0.iter();
        let mut found: Vec<_> = all
            .filter(|(_, group)| group.all() >= thresholds.half_closed)
            .collect();
        found.sort_by_key(|(key, group)| (Reverse(group.all()), *key));
        let finding = |((client, service), group): (&(String, String), &Workload)| {
            let message = format!(
                "{client} to {service}: {} half-closed (CLOSE_WAIT {}, FIN_WAIT {}, LAST_ACK {})",
                count(group.all(), "TCP connection is", "TCP connections are"),
                group.close_wait,
                group.fin_wait,
                group.last_ack
            );
            Finding::warning(NAME, message)
                .with("client", client.as_str())
                .with("service", service.as_str())
                .with("close_wait", group.close_wait)
                .with("fin_wait", group.fin_wait)
                .with("last_ack", group.last_ack)
                .with("closed_first_by_client", group.closed_by_client)
                .with("closed_first_by_server", group.closed_by_server)
                .with("longest_timeout_seconds", group.longest)
                .examples(&group.examples)
                .help(help(group))
        };
        found.into_iter().map(finding).collect()
    }
}

fn began_closing(side: TcpDirection) -> bool {
    side.flags.is_some_and(|flags| flags & CLOSE_INIT != 0)
}

fn help(group: &Workload) -> String {
    let cause = match group.closed_by_client.cmp(&group.closed_by_server) {
        std::cmp::Ordering::Greater => "the client closed and the server does not",
        std::cmp::Ordering::Less => "the server closed and the client does not",
        std::cmp::Ordering::Equal => "one side closed and the other does not",
    };
    format!(
        "{cause}: look for leaked sockets there; conntrack's state is not the socket's, and entries stay for net.netfilter.nf_conntrack_tcp_timeout_close_wait (kube-proxy sets 1h)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::testing::flow;

    #[test]
    fn half_closed_connections_are_counted_by_workload_and_by_the_side_that_closed() {
        let mut check = HalfClosed::default();
        let facts = Facts::default();
        for (port, state) in [(1, 5), (2, 5), (3, 5), (4, 4), (5, 6), (6, 3), (7, 7)] {
            let mut flow = flow(
                6,
                &format!("10.244.1.30:4000{port}"),
                "10.96.4.4:80",
                "10.244.2.40:8080",
            );
            let closed = TcpDirection {
                flags: Some(CLOSE_INIT | 1),
                window_scale: None,
            };
            flow.state = Some(ProtocolState::Tcp {
                state,
                original: closed,
                reply: TcpDirection::default(),
            });
            flow.timeout = Some(3500 + port);
            check.observe(&Entry::bare(flow), &facts);
        }
        let thresholds = Thresholds {
            half_closed: 5,
            ..Thresholds::default()
        };
        let found = check.findings(&facts, &thresholds);
        assert_eq!(
            found[0].message,
            "10.244.1.30 to 10.96.4.4:80: 5 TCP connections are half-closed (CLOSE_WAIT 3, FIN_WAIT 1, LAST_ACK 1)"
        );
        assert_eq!(found[0].evidence["closed_first_by_client"], 5);
        assert_eq!(found[0].evidence["longest_timeout_seconds"], 3505);
        assert!(
            found[0]
                .help
                .as_deref()
                .unwrap()
                .starts_with("the client closed")
        );
        assert!(check.findings(&facts, &Thresholds::default()).is_empty());
    }
}
