//! Objects whose parts are multiplied with each other: beyond a bound they are left out, and their kind is not complete.

use crate::testing::{loaded, world};

fn words(number: usize, word: impl Fn(usize) -> String) -> String {
    let all: Vec<String> = (0..number).map(word).collect();
    all.join(" ")
}

fn ports(number: usize) -> String {
    words(number, |n| format!("p{n}:{}/UDP", n + 1))
}

fn addresses(network: u8, number: usize) -> impl Fn(&str) -> String {
    move |before| {
        words(number, |n| {
            format!("{before}{network}.0.{}.{}", n >> 8, n & 255)
        })
    }
}

#[test]
fn a_service_with_very_many_ports_and_addresses_makes_services_incomplete() {
    let service = |number: usize| {
        let external = addresses(203, number)("external=");
        format!("svc a/s 10.96.0.20 {} {external}", ports(number))
    };
    let few = world(&[&service(200)]);
    assert!(few.completeness().services);
    assert_eq!(few.frontends([203, 0, 0, 7].into(), 17, 5).len(), 1);
    let many = loaded(&[&service(300)]);
    assert!(!many.index.completeness().services);
    assert!(many.index.completeness().slices);
    assert!(!many.summary.complete);
    let told = many.warnings.join("\n");
    assert!(
        told.contains("very many addresses and ports") && told.contains("a/s"),
        "{told}"
    );
}

#[test]
fn a_service_with_very_many_ports_and_endpoints_makes_slices_incomplete() {
    let lines = |number: usize| {
        let endpoints = addresses(10, number)("");
        [
            format!("svc a/s 10.96.0.20 {}", ports(number)),
            format!("slice a/s {} {endpoints}", ports(number)),
        ]
    };
    let few = lines(200);
    let few = world(&[&few[0], &few[1]]);
    assert!(few.completeness().slices);
    let id = few.service_named("a", "s").unwrap();
    assert!(
        few.ports_of(id)
            .all(|(_, port)| port.endpoints.len() == 200)
    );
    let many = lines(600);
    let many = loaded(&[&many[0], &many[1]]);
    assert!(!many.index.completeness().slices);
    assert!(many.index.completeness().services);
    let told = many.warnings.join("\n");
    assert!(
        told.contains("very many endpoints and ports") && told.contains("a/s"),
        "{told}"
    );
}

#[test]
fn a_pod_and_a_node_with_very_many_addresses_make_their_kinds_incomplete() {
    let pod = |number: usize| {
        let ips: Vec<_> = (0..number)
            .map(|n| serde_json::json!({"ip": format!("10.0.0.{n}")}))
            .collect();
        serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "a", "name": "p"},
            "status": {"podIPs": ips, "phase": "Running"}})
        .to_string()
    };
    let node = |number: usize| {
        let all = (0..number)
            .map(|n| serde_json::json!({"type": "InternalIP", "address": format!("10.1.0.{n}")}));
        let all: Vec<_> = all.collect();
        serde_json::json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"addresses": all}})
            .to_string()
    };
    for (number, whole) in [(64, true), (65, false)] {
        let index = world(&[&pod(number), &node(number)]);
        assert_eq!(index.completeness().pods, whole, "{number}");
        assert_eq!(index.completeness().nodes, whole, "{number}");
    }
}
