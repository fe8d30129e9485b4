use std::collections::HashSet;
use std::io::Read;
use std::net::IpAddr;
use std::time::Duration;

use super::*;
use crate::read_scope::ChoosePods;
use crate::service_scope::{ChosenAddresses, MAX_NAME_LOOKUPS};

/// A server that returns prepared answers in the order of the requests.
struct Script {
    answers: Vec<Result<&'static str, GetError>>,
    asked: Vec<String>,
    body: &'static [u8],
}

impl Read for Script {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.body.read(buffer)
    }
}

impl Server for Script {
    fn get(&mut self, path: &str) -> Result<(), GetError> {
        self.asked.push(path.to_owned());
        let answer = match self.answers.is_empty() {
            true => Err(GetError::Forbidden),
            false => self.answers.remove(0),
        };
        self.body = answer?.as_bytes();
        Ok(())
    }
}

fn script(answers: Vec<Result<&'static str, GetError>>) -> Script {
    Script {
        answers,
        asked: Vec::new(),
        body: b"",
    }
}

fn asking(left: Duration) -> Asking {
    Asking {
        deadline: Instant::now() + left,
        consistent: false,
    }
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_token_of_any_text_survives_in_a_query() {
    assert_eq!(encoded("aZ9-_.~"), "aZ9-_.~");
    assert_eq!(encoded("a b&c=d/é"), "a%20b%26c%3Dd%2F%C3%A9");
    let more =
        r#"{"kind":"ServiceList","apiVersion":"v1","metadata":{"continue":"a=b&c"},"items":[]}"#;
    let end = r#"{"kind":"ServiceList","apiVersion":"v1","items":[]}"#;
    let mut server = script(vec![Ok(more), Ok(end)]);
    read(&mut server, asking(LONG), ReadScope::default(), &[]).unwrap();
    let services = &server.asked[..2];
    assert_eq!(
        services,
        [
            "/api/v1/services?limit=500",
            "/api/v1/services?limit=500&continue=a%3Db%26c"
        ]
    );
}

#[test]
fn a_fatal_failure_is_an_error_at_first_and_a_gap_later() {
    for error in [
        GetError::Unauthorized,
        GetError::TimedOut,
        GetError::Connection("refused".to_owned()),
    ] {
        let mut server = script(vec![Err(error.clone())]);
        let failed = read(&mut server, asking(LONG), ReadScope::default(), &[]).unwrap_err();
        assert_eq!(failed.to_string(), error.to_string());
        assert_eq!(server.asked.len(), 1);

        let services = r#"{"kind":"ServiceList","apiVersion":"v1","items":[]}"#;
        let mut server = script(vec![Ok(services), Err(error)]);
        let loaded = read(&mut server, asking(LONG), ReadScope::default(), &[]).unwrap();
        let states: Vec<State> = loaded.listed.iter().map(|one| one.state).collect();
        let failed = State::Failed;
        assert_eq!(states, [State::Complete, failed, failed, failed, failed]);
        assert_eq!(server.asked.len(), 2, "the others are not tried");
        assert!(!loaded.summary.complete);
    }
}

#[test]
fn no_wait_exceeds_the_remaining_time() {
    for (after, left) in [
        (None, Duration::ZERO),
        (Some(Duration::from_secs(3600)), LONG),
        (Some(Duration::MAX), LONG),
    ] {
        let busy = GetError::Busy { status: 503, after };
        let mut server = script(vec![Err(busy); 20]);
        let loaded = read(&mut server, asking(left), ReadScope::default(), &[]).unwrap();
        assert_eq!(
            server.asked.len(),
            Kind::ALL.len(),
            "each kind once, and no wait: {after:?}"
        );
        assert!(loaded.listed.iter().all(|one| one.state == State::Failed));
    }
}

/// A server with one Pod, that of node `n`. Returns the requests after those for all other kinds.
fn pods_asked(address: IpAddr) -> (Loaded, Vec<String>) {
    pods_asked_for(ChosenAddresses {
        deciding: HashSet::from([address]),
        named: Vec::new(),
    })
}

/// The same requests for several addresses.
fn pods_asked_for(addresses: ChosenAddresses) -> (Loaded, Vec<String>) {
    const SERVICES: &str = r#"{"kind":"ServiceList","apiVersion":"v1","items":[]}"#;
    const SLICES: &str =
        r#"{"kind":"EndpointSliceList","apiVersion":"discovery.k8s.io/v1","items":[]}"#;
    const NODES: &str = r#"{"kind":"NodeList","apiVersion":"v1","items":[]}"#;
    const RANGES: &str =
        r#"{"kind":"ServiceCIDRList","apiVersion":"networking.k8s.io/v1","items":[]}"#;
    const PODS: &str = r#"{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"namespace":"a","name":"b"},
        "spec":{"nodeName":"n"},"status":{"podIP":"10.0.0.1","podIPs":[{"ip":"10.0.0.1"},{"ip":"fd00::1"}]}}]}"#;
    let mut answers = [SERVICES, SLICES, NODES, RANGES].map(Ok).to_vec();
    answers.resize(4 + 2 * MAX_NAME_LOOKUPS, Ok(PODS));
    let mut server = script(answers);
    let choose: ChoosePods = Box::new(move |_| {
        Some(ChosenPods {
            node: "n".to_owned(),
            addresses,
        })
    });
    let wanted = ReadScope {
        pods: Some(choose),
        ..ReadScope::default()
    };
    let loaded = read(&mut server, asking(LONG), wanted, &[]).unwrap();
    (loaded, server.asked.split_off(4))
}

const OF_NODE: &str = "/api/v1/pods?fieldSelector=spec.nodeName%3Dn&resourceVersion=0";

#[test]
fn addresses_of_this_nodes_own_pods_are_not_requested() {
    for address in ["10.0.0.1", "fd00::1"] {
        let address: IpAddr = address.parse().unwrap();
        let (loaded, asked) = pods_asked(address);
        assert_eq!(asked, [OF_NODE], "{address}");
        assert!(loaded.index.pods_known_at(address), "{address}");
        assert!(!loaded.index.pods_known_at("10.0.0.77".parse().unwrap()));
    }
}

#[test]
fn pods_are_not_requested_by_an_address_of_another_family_than_their_first() {
    for (address, last) in [
        (
            "10.0.0.9",
            "fieldSelector=status.podIP%3D10.0.0.9&resourceVersion=0",
        ),
        ("fd00::9", "resourceVersion=0"),
    ] {
        let address: IpAddr = address.parse().unwrap();
        let (loaded, asked) = pods_asked(address);
        assert_eq!(asked, [OF_NODE, &format!("/api/v1/pods?{last}")]);
        assert!(loaded.index.pods_known_at(address));
        let other = loaded.index.pods_known_at("10.0.0.77".parse().unwrap());
        assert_eq!(
            other,
            address.is_ipv6(),
            "all are known, or those that were asked for"
        );
    }
}

#[test]
fn addresses_that_need_only_a_name_are_bounded_and_never_cause_a_read_of_all_pods() {
    let address = |n: u8| IpAddr::from([10, 0, 0, n]);
    let named = [1].into_iter().chain(100..200).map(address);
    let (loaded, asked) = pods_asked_for(ChosenAddresses {
        deciding: HashSet::from([address(100)]),
        named: std::iter::once("fd00::9".parse().unwrap())
            .chain(named)
            .collect(),
    });
    assert_eq!(asked.len(), 2 + MAX_NAME_LOOKUPS, "{asked:?}");
    let last = address(100 + MAX_NAME_LOOKUPS as u8);
    assert!(loaded.index.pods_known_at(last));
    assert!(!loaded.index.pods_known_at(address(150)));
}
