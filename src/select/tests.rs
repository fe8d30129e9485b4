//! Resolution of names by a cluster, and selection of entries by the resolved names.

use std::sync::LazyLock;

use super::*;
use crate::attribution::{EndpointName, FrontendKind, Names, ServiceName};
use crate::filter::BadValue;
use ctk_cluster::testing::world;
use ctnetlink::flow::{Flow, L4, Tuple};

static CLUSTER: LazyLock<Index> = LazyLock::new(|| {
    world(&[
        "svc kube-system/kube-dns 10.96.0.10 dns:53/UDP@32053 dns-tcp:53/TCP metrics:9153/TCP",
        "slice kube-system/kube-dns dns:53/UDP 10.244.0.11->coredns-a",
        "svc shop/web 10.96.0.20 80/TCP",
        "svc blog/web 10.96.0.21 80/TCP",
        "pod shop/web-1 10.244.1.1 @node1",
        "pod shop/db-0 10.244.1.2 @node1",
        "pod blog/db-0 10.244.1.3 @node1",
        "svc shop/a 10.96.0.30 x:53/UDP external=203.0.113.5",
        "svc shop/b 10.96.0.31 y:53/UDP external=203.0.113.5",
    ])
});

fn matched(address: &str, protocol: u8, port: u16) -> FrontendMatch<'static> {
    FrontendMatch::Addresses(CLUSTER.frontends(address.parse().unwrap(), protocol, port))
}

fn picks<T: std::str::FromStr<Err = BadValue> + Clone>(text: &str) -> Picks<T> {
    let list = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
    Picks::from([list].as_slice())
}

fn resolved(set: impl FnOnce(&mut Selectors)) -> Result<Selection, SelectError> {
    let mut selectors = Selectors::default();
    set(&mut selectors);
    Selection::resolve(&selectors, Directory::Index(&CLUSTER))
}

fn selection(set: impl FnOnce(&mut Selectors)) -> Selection {
    resolved(set).expect("all names are known")
}

fn pod<'c>(namespace: &'c str, name: &'c str) -> Party<'c> {
    Party {
        kind: PartyKind::Pod,
        namespace: Some(namespace),
        name: Some(name),
        node: None,
    }
}

fn nameless(kind: PartyKind) -> Party<'static> {
    Party {
        kind,
        namespace: None,
        name: None,
        node: None,
    }
}

fn flow(protocol: u8) -> Flow {
    let tuple = |src: &str, sport, dst: &str, dport| Tuple {
        src: src.parse().unwrap(),
        dst: dst.parse().unwrap(),
        protocol,
        l4: if protocol == 1 {
            L4::None
        } else {
            L4::Ports {
                src: sport,
                dst: dport,
            }
        },
    };
    Flow::new(
        tuple("10.244.1.1", 4000, "10.96.0.10", 53),
        tuple("10.244.0.11", 53, "10.244.1.1", 4000),
    )
}

/// web-1 asks kube-dns and coredns-a answers.
fn dns() -> Entry<'static> {
    let mut entry = Entry::bare(flow(17));
    entry.names.client = Some(pod("shop", "web-1"));
    entry.names.matched = matched("10.96.0.10", 17, 53);
    entry.names.service = Some(ServiceName {
        namespace: Some("kube-system"),
        name: Some("kube-dns"),
        port: Some("dns"),
        frontend: FrontendKind::ClusterIp,
        port_number: 53,
    });
    entry.names.endpoint = Some(endpoint(pod("kube-system", "coredns-a")));
    entry
}

fn endpoint(party: Party<'_>) -> EndpointName<'_> {
    EndpointName {
        party,
        ready: None,
        serving: None,
        terminating: None,
        manual: false,
    }
}

#[test]
fn a_name_selects_the_entries_of_its_object() {
    type Set = fn(&mut Selectors, &str);
    let svc: Set = |s, text| s.services = picks(text);
    let pods: Set = |s, text| s.pods = picks(text);
    let client: Set = |s, text| s.clients = picks(text);
    let behind: Set = |s, text| s.endpoints = picks(text);
    let namespace: Set = |s, text| s.namespaces = picks(text);
    let entry = dns();
    for (flag, set, text, expected) in [
        ("--svc", svc, "kube-dns", true),
        ("--svc", svc, "kube-system/kube-dns", true),
        ("--svc", svc, "kube-dns:dns", true),
        ("--svc", svc, "kube-dns:53", true),
        ("--svc", svc, "kube-dns:32053", true),
        ("--svc", svc, "kube-dns:metrics", false),
        ("--svc", svc, "kube-dns:9153", false),
        ("--svc", svc, "shop/web", false),
        ("--svc", svc, "shop/web,kube-dns", true),
        ("--svc", svc, "!shop/web", true),
        ("--svc", svc, "!kube-dns", false),
        ("--svc", svc, "!kube-dns:metrics", true),
        ("--pod", pods, "web-1", true),
        ("--pod", pods, "coredns-a", true),
        ("--pod", pods, "shop/db-0", false),
        ("--pod", pods, "!coredns-a", false),
        ("--pod", pods, "!shop/db-0", true),
        ("--client", client, "web-1", true),
        ("--client", client, "coredns-a", false),
        ("--client", client, "10.244.1.1", true),
        ("--client", client, "10.244.1.1:4000", true),
        ("--client", client, "10.244.1.1:4001", false),
        ("--client", client, "!10.244.1.0/24", false),
        ("--endpoint", behind, "coredns-a", true),
        ("--endpoint", behind, "web-1", false),
        ("--endpoint", behind, "10.244.0.11", true),
        ("--endpoint", behind, "10.244.0.11:53", true),
        ("--endpoint", behind, "10.244.0.11:54", false),
        ("--endpoint", behind, "10.96.0.10", false),
        ("--endpoint", behind, "!10.244.0.11:53", false),
        ("-n", namespace, "shop", true),
        ("-n", namespace, "kube-system", true),
        ("-n", namespace, "blog", false),
        ("-n", namespace, "!blog", true),
        ("-n", namespace, "!kube-system", false),
    ] {
        let selection = selection(|s| set(s, text));
        assert_eq!(selection.test(&entry), expected, "{flag} {text}");
    }
}

#[test]
fn a_property_that_an_entry_lacks_satisfies_no_selector() {
    let bare = Entry::bare(flow(17));
    let mut unknown = dns();
    unknown.names.client = Some(nameless(PartyKind::Unknown));
    unknown.names.endpoint = None;
    let mut rule = dns();
    rule.names.matched = FrontendMatch::Nothing;
    rule.names.service = Some(ServiceName {
        namespace: None,
        name: None,
        port: None,
        frontend: FrontendKind::Rule,
        port_number: 53,
    });
    for text in ["kube-dns", "!kube-dns", "!shop/web"] {
        let selection = selection(|s| s.services = picks(text));
        assert!(
            !selection.test(&bare) && !selection.test(&rule),
            "--svc {text}"
        );
    }
    for text in ["web-1", "!web-1"] {
        let any = selection(|s| s.pods = picks(text));
        let client = selection(|s| s.clients = picks(text));
        for entry in [&bare, &unknown] {
            assert!(!any.test(entry) && !client.test(entry), "{text}");
        }
    }
    for text in ["shop", "!shop"] {
        assert!(
            !selection(|s| s.namespaces = picks(text)).test(&bare),
            "-n {text}"
        );
    }
    for text in ["ok", "!ok", "stale", "!stale"] {
        assert!(
            !selection(|s| s.verdicts = picks(text)).test(&bare),
            "--verdict {text}"
        );
    }
    assert!(!selection(|s| s.reasons = picks("!no-dnat")).test(&bare));
    assert!(!selection(|s| s.stale = true).test(&bare));
    for text in ["10.244.0.11:53", "!10.244.0.11:54"] {
        let ping = Entry::bare(flow(1));
        assert!(
            !selection(|s| s.endpoints = picks(text)).test(&ping),
            "--endpoint {text}"
        );
    }
}

#[test]
fn a_party_that_is_no_pod_passes_a_negated_pod() {
    for kind in [PartyKind::External, PartyKind::Node] {
        let mut entry = dns();
        entry.names.client = Some(nameless(kind));
        assert!(selection(|s| s.clients = picks("!web-1")).test(&entry));
        assert!(!selection(|s| s.clients = picks("web-1")).test(&entry));
    }
}

#[test]
fn verdicts_and_reasons_must_both_match() {
    let both = selection(|s| {
        s.verdicts = picks("stale,pending");
        s.reasons = picks("!no-dnat");
    });
    for (judgement, expected) in [
        (Some((Verdict::Stale, Reason::EndpointGone)), true),
        (Some((Verdict::Pending, Reason::NoDnatNoRule)), true),
        (Some((Verdict::Stale, Reason::NoDnat)), false),
        (Some((Verdict::Ok, Reason::Endpoint)), false),
        (None, false),
    ] {
        assert_eq!(both.judged(judgement), expected, "{judgement:?}");
    }
    assert!(Selection::default().judged(None));
}

#[test]
fn stale_selects_udp_alone_unless_a_protocol_is_named() {
    for (protocol, verdict, alone, named) in [
        (
            17,
            Some(Verdict::Stale),
            StaleMatch::Selected,
            StaleMatch::Selected,
        ),
        (
            6,
            Some(Verdict::Stale),
            StaleMatch::HeldBack,
            StaleMatch::Selected,
        ),
        (
            132,
            Some(Verdict::Stale),
            StaleMatch::HeldBack,
            StaleMatch::Selected,
        ),
        (
            17,
            Some(Verdict::Ok),
            StaleMatch::Excluded,
            StaleMatch::Excluded,
        ),
        (
            6,
            Some(Verdict::Detached),
            StaleMatch::Excluded,
            StaleMatch::Excluded,
        ),
        (6, None, StaleMatch::Excluded, StaleMatch::Excluded),
    ] {
        let mut wanted = selection(|s| s.stale = true);
        assert_eq!(
            wanted.stale_match_of(verdict, protocol),
            alone,
            "{protocol} {verdict:?}"
        );
        wanted.names_a_protocol = true;
        assert_eq!(
            wanted.stale_match_of(verdict, protocol),
            named,
            "{protocol} {verdict:?}"
        );
        let unasked = Selection::default().stale_match_of(verdict, protocol);
        assert_eq!(
            unasked,
            StaleMatch::Selected,
            "an entry is held back without --stale"
        );
    }
}

#[test]
fn refreshing_selects_only_entries_with_a_seen_refill() {
    let selection = selection(|s| s.refreshing = true);
    for (refreshing, expected) in [
        (Refreshing::Yes, true),
        (Refreshing::No, false),
        (Refreshing::Unknown, false),
    ] {
        let mut entry = dns();
        entry.refreshing = refreshing;
        assert_eq!(selection.test(&entry), expected, "{refreshing:?}");
    }
}

#[test]
fn an_entry_that_lacks_only_a_second_look_is_counted() {
    let wanted = |more: fn(&mut Selectors)| {
        selection(|s| {
            s.refreshing = true;
            more(s);
        })
    };
    let entry = dns();
    assert_eq!(entry.refreshing, Refreshing::Unknown);
    assert!(wanted(|_| ()).refreshing_unknown(&entry));
    assert!(wanted(|s| s.services = picks("kube-dns")).refreshing_unknown(&entry));
    for others in [
        (|s| s.services = picks("!kube-dns")) as fn(&mut Selectors),
        |s| s.stale = true,
        |s| s.verdicts = picks("stale"),
    ] {
        assert!(!wanted(others).refreshing_unknown(&entry));
    }
    assert!(!Selection::default().refreshing_unknown(&entry));
    let mut silent = dns();
    silent.refreshing = Refreshing::No;
    assert!(!wanted(|_| ()).refreshing_unknown(&silent));
}

#[test]
fn an_entry_without_the_name_that_is_excluded_is_counted() {
    let mut unnamed = dns();
    unnamed.names = Names::default();
    type Set = fn(&mut Selectors);
    let cases: [(Set, bool); 6] = [
        (|s| s.services = picks("!kube-dns"), true),
        (|s| s.clients = picks("!shop/web-1"), true),
        (|s| s.namespaces = picks("!shop"), true),
        // The entry does not match these.
        (|s| s.services = picks("kube-dns"), false),
        (|s| s.clients = picks("!10.0.0.0/8"), false),
        // Another selector excludes the entry anyway.
        (
            |s| {
                s.services = picks("!kube-dns");
                s.stale = true;
            },
            false,
        ),
    ];
    for (position, (set, counted)) in cases.into_iter().enumerate() {
        assert_eq!(
            selection(set).party_unknown(&unnamed),
            counted,
            "case {position}"
        );
    }
    let negated = selection(|s| s.services = picks("!kube-dns"));
    assert!(!negated.party_unknown(&dns()), "it has the name");
}

#[test]
fn unknown_names_offer_close_ones() {
    type Set = fn(&mut Selectors);
    let cases: [(Set, &str, Option<&str>); 9] = [
        (
            |s| s.services = picks("kube-dnss"),
            "--svc: there is no Service kube-dnss",
            Some("kube-system/kube-dns"),
        ),
        (
            |s| s.services = picks("shop/kube-dns"),
            "no Service shop/kube-dns",
            Some("kube-system/kube-dns"),
        ),
        (
            |s| s.services = picks("kube-dns:dsn"),
            "kube-dns has no port dsn",
            Some("dns (53), dns-tcp (53), metrics (9153)"),
        ),
        (
            |s| s.services = picks("shop/web:81"),
            "shop/web has no port 81",
            Some("its ports are 80"),
        ),
        (
            |s| s.pods = picks("coredns"),
            "--pod: there is no pod coredns",
            Some("kube-system/coredns-a"),
        ),
        (
            |s| s.clients = picks("!web-2"),
            "--client: there is no pod web-2",
            Some("shop/web-1"),
        ),
        (
            |s| s.endpoints = picks("shop/coredns-a"),
            "--endpoint: there is no pod",
            Some("kube-system/coredns-a"),
        ),
        (
            |s| s.namespaces = picks("kube-sytem"),
            "--namespace: there is no namespace kube-sytem",
            Some("kube-system"),
        ),
        (
            |s| s.services = picks("zzzzzzzz"),
            "no Service zzzzzzzz",
            None,
        ),
    ];
    for (set, message, hint) in cases {
        let error = resolved(set).expect_err(message);
        assert_eq!(error.kind, SelectErrorKind::Unknown, "{error}");
        assert!(error.to_string().contains(message), "{error}");
        match hint {
            Some(hint) => assert!(
                error.hint.as_ref().is_some_and(|h| h.contains(hint)),
                "{error:?}"
            ),
            None => assert_eq!(error.hint, None),
        }
    }
}

#[test]
fn a_name_in_two_namespaces_lists_both() {
    type Set = fn(&mut Selectors);
    let cases: [(Set, [&str; 2]); 3] = [
        (|s| s.services = picks("web"), ["blog/web", "shop/web"]),
        (|s| s.pods = picks("db-0"), ["blog/db-0", "shop/db-0"]),
        (|s| s.clients = picks("!db-0"), ["blog/db-0", "shop/db-0"]),
    ];
    for (set, names) in cases {
        let error = resolved(set).expect_err("two namespaces");
        assert_eq!(error.kind, SelectErrorKind::Ambiguous);
        for name in names {
            assert!(
                error.hint.as_ref().is_some_and(|h| h.contains(name)),
                "{error:?}"
            );
        }
    }
    selection(|s| s.services = picks("shop/web"));
    selection(|s| s.pods = picks("blog/db-0"));
}

#[test]
fn a_port_without_a_name_is_selected_by_its_number() {
    let mut entry = dns();
    entry.names.matched = matched("10.96.0.20", 6, 80);
    assert!(selection(|s| s.services = picks("shop/web:80")).test(&entry));
    assert!(!selection(|s| s.services = picks("blog/web:80")).test(&entry));
}

#[test]
fn services_that_share_an_address_are_both_selected_by_it() {
    let mut entry = dns();
    entry.names.matched = matched("203.0.113.5", 17, 53);
    for (text, expected) in [
        ("shop/a", true),
        ("shop/b", true),
        ("b:y", true),
        ("kube-dns", false),
        ("!shop/b", false),
        ("!kube-dns", true),
    ] {
        let selection = selection(|s| s.services = picks(text));
        assert_eq!(selection.test(&entry), expected, "{text}");
    }
}
