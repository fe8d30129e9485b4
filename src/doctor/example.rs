//! Entries as evidence: lines by which `ctk ls`, `conntrack` or `grep` finds them again.

use std::borrow::Cow;
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde_json::Value;

use crate::attribution::{Party, ServiceName};

use crate::entry::Entry;
use crate::verdict::Refreshing;
use ctnetlink::flow::{Tuple, protocol_name};

/// Upper bound of the examples of one finding.
const MAX_EXAMPLES: usize = 3;

/// A few entries, urgent ones first.
#[derive(Clone, Debug, Default)]
pub struct Examples {
    lines: Vec<(bool, String)>,
}

impl Examples {
    /// Adds the entry while fewer than [`MAX_EXAMPLES`] are stored. An urgent entry replaces one that is not.
    pub fn push(&mut self, entry: &Entry<'_>, urgent: bool) {
        if self.lines.len() < MAX_EXAMPLES {
            self.lines.push((urgent, line(entry)));
        } else if urgent && let Some(calm) = self.lines.iter_mut().find(|(urgent, _)| !urgent) {
            *calm = (true, line(entry));
        }
    }

    pub fn to_json(&self) -> Value {
        let mut lines: Vec<&(bool, String)> = self.lines.iter().collect();
        lines.sort_by_key(|(urgent, _)| !urgent);
        lines.into_iter().map(|(_, line)| line.as_str()).collect()
    }
}

/// `udp shop/web-1 10.244.1.5:40123 > 10.96.0.10:53, leads to 10.244.1.7:53, 118s left, refreshing`
fn line(entry: &Entry<'_>) -> String {
    let flow = &entry.flow;
    let (original, reply) = (&flow.original, &flow.reply);
    let mut line = protocol(flow.protocol());
    if let Some(state) = flow.state.and_then(|state| state.name()) {
        let _ = write!(line, " {state}");
    }
    if flow.status.is_unreplied() {
        line.push_str(" UNREPLIED");
    }
    if let Some(client) = entry.names.client.and_then(party) {
        let _ = write!(line, " {client}");
    }
    let _ = write!(line, " {} > {}", source(original), destination(original));
    if flow.is_dnat() {
        let _ = write!(line, ", leads to {}", source(reply));
    }
    if flow.is_snat() {
        let _ = write!(line, ", answers go to {}", destination(reply));
    }
    if let Some(left) = flow.timeout {
        let left = Duration::from_secs(left.into());
        let _ = write!(line, ", {} left", humantime::format_duration(left));
    }
    if entry.refreshing == Refreshing::Yes {
        line.push_str(", refreshing");
    }
    line
}

/// IANA name of a protocol, else `proto-N`.
pub fn protocol(number: u8) -> String {
    protocol_name(number).map_or_else(|| format!("proto-{number}"), str::to_owned)
}

/// Quotes a name inside a command that is made to be copied. Names come from outside and may hold characters that a shell
/// interprets.
pub fn shell_word(text: &str) -> Cow<'_, str> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_./:".contains(&b);
    match !text.is_empty() && !text.starts_with('-') && text.bytes().all(plain) {
        true => text.into(),
        false => format!("'{}'", text.replace('\'', r"'\''")).into(),
    }
}

/// `10.96.0.10:53`, `[fd00::a]:53`; the address alone without a port.
pub fn socket(address: IpAddr, port: Option<u16>) -> String {
    match port {
        Some(port) => SocketAddr::new(address, port).to_string(),
        None => address.to_string(),
    }
}

fn source(tuple: &Tuple) -> String {
    socket(tuple.src, tuple.sport())
}

fn destination(tuple: &Tuple) -> String {
    socket(tuple.dst, tuple.dport())
}

/// `shop/web-1`, or the name of a node; `None` for an unknown party.
pub fn party(party: Party<'_>) -> Option<String> {
    match (party.namespace, party.name?) {
        (Some(namespace), name) => Some(format!("{namespace}/{name}")),
        (None, name) => Some(name.to_owned()),
    }
}

/// `kube-system/kube-dns:dns`; the port number where the port has no name. `None` without a Service name.
pub fn service(service: &ServiceName<'_>) -> Option<String> {
    let (namespace, name) = (service.namespace?, service.name?);
    Some(match service.port {
        Some(port) => format!("{namespace}/{name}:{port}"),
        None => format!("{namespace}/{name}:{}", service.port_number),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::testing::udp;

    #[test]
    fn an_example_can_be_found_again() {
        let mut flow = udp("10.0.0.1:4000", "10.96.0.10:53", "10.1.0.7:53");
        flow.timeout = Some(118);
        let mut entry = Entry::bare(flow);
        entry.refreshing = Refreshing::Yes;
        assert_eq!(
            line(&entry),
            "udp 10.0.0.1:4000 > 10.96.0.10:53, leads to 10.1.0.7:53, 1m 58s left, refreshing"
        );
    }

    #[test]
    fn a_copied_command_runs_nothing_else() {
        for (text, expected) in [
            ("kube-system/kube-dns:dns", "kube-system/kube-dns:dns"),
            ("a$(reboot)", "'a$(reboot)'"),
            ("a;b", "'a;b'"),
            ("a'b", r"'a'\''b'"),
            ("-x", "'-x'"),
            ("", "''"),
        ] {
            assert_eq!(shell_word(text), expected);
        }
    }

    #[test]
    fn urgent_examples_replace_others() {
        let mut examples = Examples::default();
        for (n, urgent) in [
            (1, false),
            (2, false),
            (3, true),
            (4, true),
            (5, true),
            (6, true),
        ] {
            let flow = udp(&format!("10.0.0.{n}:1"), "10.96.0.10:53", "10.1.0.7:53");
            examples.push(&Entry::bare(flow), urgent);
        }
        let text = examples.to_json().to_string();
        assert_eq!(text.matches("udp").count(), 3);
        assert!(
            !text.contains("10.0.0.1:1") && !text.contains("10.0.0.2:1"),
            "{text}"
        );
    }
}
