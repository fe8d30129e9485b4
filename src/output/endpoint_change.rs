//! A change of an endpoint, as a line and as the fields of a JSON record.

use crate::watch::record::{Change, EndpointChange, SeenBy};

use super::color::Style;
use super::{escape, json, write};

pub(super) fn style(change: &EndpointChange<'_>) -> Style {
    let ready = change.endpoint.ready;
    match change.change {
        Change::Added if of_rules(change) || ready == Some(true) => Style::Good,
        Change::Ready if ready == Some(true) => Style::Good,
        Change::Gone => Style::Bad,
        Change::Added | Change::Ready | Change::Serving | Change::Terminating => Style::Warning,
    }
}

/// `udp  kube-system/kube-dns:dns  kube-system/coredns-a 10.244.1.7:53  terminating, serving  (api)`
pub(super) fn line(change: &EndpointChange<'_>, out: &mut Vec<u8>) {
    write::protocol(out, change.protocol);
    out.extend_from_slice(b"  ");
    match change.service {
        None => out.push(b'-'),
        Some((namespace, name)) => {
            escape::text(out, &format!("{namespace}/{name}"));
            if let Some(port) = change.port {
                out.push(b':');
                escape::text(out, port);
            }
        }
    }
    out.extend_from_slice(b"  ");
    let party = &change.endpoint.party;
    if let Some((namespace, name)) = party.namespace.zip(party.name) {
        escape::text(out, &format!("{namespace}/{name}"));
        out.push(b' ');
    }
    out.extend_from_slice(change.address.to_string().as_bytes());
    out.extend_from_slice(b"  ");
    out.extend_from_slice(words(change).as_bytes());
    let by = format!("  ({})", change.seen_by.name());
    out.extend_from_slice(by.as_bytes());
}

/// Whether the change was seen in rules, which hold no conditions.
fn of_rules(change: &EndpointChange<'_>) -> bool {
    change.seen_by == SeenBy::Rules
}

/// The change, and the conditions after it.
fn words(change: &EndpointChange<'_>) -> String {
    let endpoint = &change.endpoint;
    let is = |condition: Option<bool>| condition == Some(true);
    let negated = |word: &str, condition| match is(condition) {
        true => word.to_owned(),
        false => format!("not {word}"),
    };
    let terminating = || format!("terminating, {}", negated("serving", endpoint.serving));
    match change.change {
        Change::Added if of_rules(change) => "added".to_owned(),
        Change::Added if is(endpoint.terminating) => format!("added, {}", terminating()),
        Change::Added => format!("added, {}", negated("ready", endpoint.ready)),
        Change::Gone => "gone".to_owned(),
        Change::Ready if is(endpoint.ready) => "ready".to_owned(),
        Change::Ready => format!("not ready, {}", negated("serving", endpoint.serving)),
        Change::Serving => negated("serving", endpoint.serving),
        Change::Terminating if is(endpoint.terminating) => terminating(),
        Change::Terminating => "not terminating".to_owned(),
    }
}

/// Appends the fields that follow `type`.
pub(super) fn fields(change: &EndpointChange<'_>, out: &mut Vec<u8>) {
    let words = format!(
        ",\"change\":\"{}\",\"seen_by\":\"{}\",\"service\":",
        change.change.name(),
        change.seen_by.name()
    );
    out.extend_from_slice(words.as_bytes());
    match change.service {
        None => out.extend_from_slice(b"null"),
        Some((namespace, name)) => {
            out.extend_from_slice(b"{\"namespace\":");
            json::text(out, Some(namespace));
            out.extend_from_slice(b",\"name\":");
            json::text(out, Some(name));
            out.extend_from_slice(b",\"port\":");
            json::text(out, change.port);
            // The change applies to every frontend of the Service.
            out.extend_from_slice(b",\"frontend\":null}");
        }
    }
    out.extend_from_slice(b",\"endpoint\":");
    json::endpoint_fields(out, &change.endpoint);
    out.extend_from_slice(b",\"address\":\"");
    write::address(out, change.address.ip());
    out.extend_from_slice(b"\",\"port\":");
    write::number(out, change.address.port());
    out.extend_from_slice(b",\"protocol\":\"");
    write::protocol(out, change.protocol);
    out.extend_from_slice(b"\"}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribution::{EndpointName, Party, PartyKind};

    fn change(change: Change, seen_by: SeenBy, has: Option<&str>) -> EndpointChange<'static> {
        let condition = |letter: char| has.map(|has| has.contains(letter));
        EndpointChange {
            service: Some(("kube-system", "kube-dns")),
            port: Some("dns"),
            protocol: 17,
            address: "10.244.1.7:53".parse().unwrap(),
            endpoint: EndpointName {
                party: Party {
                    kind: PartyKind::Pod,
                    namespace: Some("kube-system"),
                    name: Some("coredns-a\u{1b}[2J"),
                    node: None,
                },
                ready: condition('r'),
                serving: condition('s'),
                terminating: condition('t'),
                manual: false,
            },
            change,
            seen_by,
        }
    }

    #[test]
    fn a_line_shows_the_change_and_the_conditions_after_it() {
        use Change::{Added, Gone, Ready, Serving, Terminating};
        for (what, by, has, expected) in [
            (Added, SeenBy::Api, Some("rs"), "added, ready  (api)"),
            (Added, SeenBy::Api, Some(""), "added, not ready  (api)"),
            (
                Added,
                SeenBy::Api,
                Some("st"),
                "added, terminating, serving  (api)",
            ),
            (Added, SeenBy::Rules, None, "added  (rules)"),
            (Ready, SeenBy::Api, Some("rs"), "ready  (api)"),
            (
                Ready,
                SeenBy::Api,
                Some(""),
                "not ready, not serving  (api)",
            ),
            (Serving, SeenBy::Api, Some("t"), "not serving  (api)"),
            (
                Terminating,
                SeenBy::Api,
                Some("st"),
                "terminating, serving  (api)",
            ),
            (Gone, SeenBy::Rules, None, "gone  (rules)"),
        ] {
            let mut out = Vec::new();
            line(&change(what, by, has), &mut out);
            let text = String::from_utf8(out).unwrap();
            assert!(text.ends_with(expected), "{text}");
            assert!(text.starts_with("udp  kube-system/kube-dns:dns  kube-system/coredns-a"));
            assert!(!text.contains('\u{1b}'), "{text}");
        }
    }

    #[test]
    fn unknown_fields_are_null() {
        let mut out = b"{\"type\":\"endpoint\"".to_vec();
        fields(&change(Change::Gone, SeenBy::Rules, None), &mut out);
        out.push(b'}');
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(value["change"], "gone");
        assert_eq!(value["seen_by"], "rules");
        assert_eq!(value["service"]["name"], "kube-dns");
        assert_eq!(value["service"]["port"], "dns");
        let endpoint = &value["endpoint"];
        assert_eq!(endpoint["name"], "coredns-a\u{1b}[2J");
        assert_eq!(
            (&endpoint["address"], &endpoint["port"]),
            (&"10.244.1.7".into(), &53.into())
        );
        assert_eq!(endpoint["protocol"], "udp");
        for key in ["ready", "serving", "terminating", "node"] {
            assert!(endpoint[key].is_null(), "{key}");
        }
    }
}
