//! Changes of the endpoints of a Service, from their old and new states. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::index::{Endpoint, Name};

/// Identity of an endpoint of one Service: name and number of the Service port, protocol, address, port.
pub type EndpointKey = (Option<Name>, u16, u8, IpAddr, u16);

/// Endpoints of one Service.
pub type Endpoints = BTreeMap<EndpointKey, Endpoint>;

/// Kind of a change. `Ready`, `Serving` and `Terminating` name the condition that changed; the endpoint holds its new value. An
/// `Added` endpoint holds its first conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Added,
    Ready,
    Serving,
    Terminating,
    Gone,
}

/// Returns every change, in the order of the endpoints, at most one for each. Of several conditions that change at once the most
/// significant one is named: an endpoint that begins to terminate is not ready any more as a consequence.
pub fn changes(before: &Endpoints, now: &Endpoints) -> Vec<(Change, EndpointKey, Endpoint)> {
    let mut found = Vec::new();
    for (key, endpoint) in before {
        if !now.contains_key(key) {
            found.push((Change::Gone, key.clone(), endpoint.clone()));
        }
    }
    for (key, endpoint) in now {
        let mut tell = |change| found.push((change, key.clone(), endpoint.clone()));
        match before.get(key) {
            None => tell(Change::Added),
            Some(before) if before.terminating != endpoint.terminating => tell(Change::Terminating),
            Some(before) if before.ready != endpoint.ready => tell(Change::Ready),
            Some(before) if before.serving != endpoint.serving => tell(Change::Serving),
            Some(_) => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `r` ready, `s` serving, `t` terminating; `None` for a missing endpoint.
    fn endpoints(conditions: Option<&str>) -> Endpoints {
        let address: IpAddr = "10.244.1.7".parse().unwrap();
        let made = conditions.map(|has| {
            let endpoint = Endpoint {
                hinted: false,
                address,
                port: 53,
                ready: has.contains('r'),
                serving: has.contains('s'),
                terminating: has.contains('t'),
                node: None,
                pod: None,
                secondary: Box::default(),
            };
            ((Some(Name::from("dns")), 53, 17, address, 53), endpoint)
        });
        made.into_iter().collect()
    }

    #[test]
    fn each_change_of_an_endpoint_is_one_record_with_its_word() {
        use Change::{Added, Gone, Ready, Serving, Terminating};
        let cases: &[(Option<&str>, Option<&str>, &[Change])] = &[
            (None, None, &[]),
            (None, Some(""), &[Added]),
            (None, Some("rs"), &[Added]),
            (None, Some("st"), &[Added]),
            (Some(""), Some("rs"), &[Ready]),
            (Some("rs"), Some(""), &[Ready]),
            (Some("rs"), Some("st"), &[Terminating]),
            (Some("st"), Some("t"), &[Serving]),
            (Some("t"), Some("rs"), &[Terminating]),
            (Some("r"), Some("rs"), &[Serving]),
            (Some("rs"), Some("rs"), &[]),
            (Some("t"), None, &[Gone]),
            (Some("rs"), None, &[Gone]),
        ];
        for (before, now, expected) in cases {
            let found = changes(&endpoints(*before), &endpoints(*now));
            let words: Vec<Change> = found.iter().map(|(change, ..)| *change).collect();
            assert_eq!(words, *expected, "{before:?} -> {now:?}");
        }
    }

    #[test]
    fn a_change_holds_the_current_conditions_and_for_a_removed_endpoint_the_last() {
        let found = changes(&endpoints(Some("rs")), &endpoints(Some("st")));
        let (_, key, endpoint) = &found[0];
        assert_eq!((key.2, key.4), (17, 53));
        assert!(!endpoint.ready && endpoint.serving && endpoint.terminating);
        let found = changes(&endpoints(Some("st")), &endpoints(None));
        assert!(found[0].2.serving && found[0].2.terminating);
    }

    #[test]
    fn the_same_address_on_another_port_is_another_endpoint() {
        let mut moved = Endpoints::new();
        for ((name, number, protocol, address, _), mut endpoint) in endpoints(Some("rs")) {
            endpoint.port = 8053;
            moved.insert((name, number, protocol, address, 8053), endpoint);
        }
        let found = changes(&endpoints(Some("rs")), &moved);
        let told: Vec<(Change, u16)> = found.iter().map(|(c, key, _)| (*c, key.4)).collect();
        let expected = [(Change::Gone, 53), (Change::Added, 8053)];
        assert_eq!(told, expected);
    }
}
