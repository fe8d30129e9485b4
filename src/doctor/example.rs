//! Entries as evidence: lines by which `ctk ls`, `conntrack` or `grep` finds them again.

use std::borrow::Cow;
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde_json::Value;

use crate::attribution::{Party, ServiceName};

use super::rows::{MAX_ROWS, Rows};
use crate::entry::Entry;
use crate::verdict::Refreshing;
use ctnetlink::flow::{Tuple, protocol_name};

/// A few entries, urgent ones first.
#[derive(Clone, Debug, Default)]
pub struct Examples {
    examples: Vec<(bool, Example)>,
}

impl Examples {
    /// Adds the entry while fewer than [`MAX_ROWS`] are stored. An urgent entry replaces one that is not.
    pub fn push(&mut self, entry: &Entry<'_>, urgent: bool) {
        if self.examples.len() < MAX_ROWS {
            self.examples.push((urgent, Example::of(entry)));
        } else if urgent && let Some(calm) = self.examples.iter_mut().find(|(urgent, _)| !urgent) {
            *calm = (true, Example::of(entry));
        }
    }

    pub fn to_json(&self) -> Value {
        self.sorted().into_iter().map(Example::line).collect()
    }

    pub fn rows(&self) -> Rows {
        Rows::new(&COLUMNS, self.sorted().into_iter().map(Example::cells))
    }

    fn sorted(&self) -> Vec<&Example> {
        let mut all: Vec<&(bool, Example)> = self.examples.iter().collect();
        all.sort_by_key(|(urgent, _)| !urgent);
        all.into_iter().map(|(_, example)| example).collect()
    }
}

/// Columns of [`Example::cells`].
const COLUMNS: [&str; 9] = [
    "PROTO",
    "STATE",
    "CLIENT",
    "FROM",
    "TO",
    "LEADS TO",
    "ANSWERS GO TO",
    "TTL",
    "REFRESHED",
];

/// What identifies an entry.
#[derive(Clone, Debug)]
struct Example {
    protocol: String,
    state: Option<&'static str>,
    unreplied: bool,
    client: Option<String>,
    from: String,
    to: String,
    leads_to: Option<String>,
    /// Name of the Pod that has the address of `leads_to`.
    endpoint: Option<String>,
    answers_to: Option<String>,
    left: Option<Duration>,
    refreshing: Refreshing,
}

impl Example {
    fn of(entry: &Entry<'_>) -> Self {
        let flow = &entry.flow;
        let (original, reply) = (&flow.original, &flow.reply);
        Example {
            protocol: protocol(flow.protocol()),
            state: flow.state.and_then(|state| state.name()),
            unreplied: flow.status.is_unreplied(),
            client: entry.names.client.and_then(party),
            from: source(original),
            to: destination(original),
            leads_to: flow.is_dnat().then(|| source(reply)),
            endpoint: entry.names.endpoint.and_then(|one| party(one.party)),
            answers_to: flow.is_snat().then(|| destination(reply)),
            left: flow.timeout.map(|left| Duration::from_secs(left.into())),
            refreshing: entry.refreshing,
        }
    }

    /// `udp shop/web-1 10.244.1.5:40123 > 10.96.0.10:53, leads to 10.244.1.7:53, 118s left, refreshing`
    fn line(&self) -> String {
        let mut line = self.protocol.clone();
        let words = [
            self.state,
            self.unreplied.then_some("UNREPLIED"),
            self.client.as_deref(),
        ];
        for word in words.into_iter().flatten() {
            let _ = write!(line, " {word}");
        }
        let _ = write!(line, " {} > {}", self.from, self.to);
        for (what, place) in [
            ("leads to", &self.leads_to),
            ("answers go to", &self.answers_to),
        ] {
            if let Some(place) = place {
                let _ = write!(line, ", {what} {place}");
            }
        }
        if let Some(left) = self.left {
            let _ = write!(line, ", {} left", humantime::format_duration(left));
        }
        if self.refreshing == Refreshing::Yes {
            line.push_str(", refreshing");
        }
        line
    }

    fn cells(&self) -> Vec<Option<String>> {
        let unreplied = self.unreplied.then_some("UNREPLIED");
        let state: Vec<&str> = self.state.into_iter().chain(unreplied).collect();
        let leads_to = self.leads_to.as_ref().map(|place| match &self.endpoint {
            Some(pod) => format!("{place} ({pod})"),
            None => place.clone(),
        });
        vec![
            Some(self.protocol.clone()),
            (!state.is_empty()).then(|| state.join(" ")),
            self.client.clone(),
            Some(self.from.clone()),
            Some(self.to.clone()),
            leads_to,
            self.answers_to.clone(),
            self.left
                .map(|left| humantime::format_duration(left).to_string()),
            (self.refreshing != Refreshing::Unknown).then(|| self.refreshing.name().to_owned()),
        ]
    }
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
            Example::of(&entry).line(),
            "udp 10.0.0.1:4000 > 10.96.0.10:53, leads to 10.1.0.7:53, 1m 58s left, refreshing"
        );
        let mut examples = Examples::default();
        examples.push(&entry, true);
        let rows = examples.rows();
        assert_eq!(
            rows.columns,
            ["PROTO", "FROM", "TO", "LEADS TO", "TTL", "REFRESHED"]
        );
        assert_eq!(rows.cells[0][4].as_deref(), Some("1m 58s"));
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
