//! Comparison of rules of each kind with clusters: differences that are reported, and rightly omitted endpoints.

use super::*;
use crate::build::Builder;
use crate::list_decoder;
use crate::rules::{iptables, ipvs, nft, text};
use crate::service_scope::{Destinations, ServiceScope};
use crate::testing::{self, bare_world, world};

const SVC: &str = "svc kube-system/kube-dns 10.96.0.10 dns:53/UDP@32053";
const TWO: &str = "slice kube-system/kube-dns dns:53/UDP 10.244.1.7(ready) 10.244.1.8(ready)";

/// Endpoints of `10.96.0.10:53` in every rule set of these tests, in the form of iptables.
fn by_iptables(targets: &[&str]) -> NodeRules {
    let mut text = String::from(
        "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-NODEPORTS - [0:0]\n:KUBE-SVC-A - [0:0]\n:KUBE-SVC-K - [0:0]\n-A PREROUTING -j KUBE-SERVICES\n\
         -A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m comment --comment \"default/kubernetes:https cluster IP\" -m tcp --dport 443 -j KUBE-SVC-K\n\
         -A KUBE-SVC-K -j KUBE-SEP-K\n-A KUBE-SEP-K -p tcp -m tcp -j DNAT --to-destination 192.168.7.254:6443\n\
         -A KUBE-SERVICES -d 10.96.0.10/32 -p udp -m comment --comment \"kube-system/kube-dns:dns cluster IP\" -m udp --dport 53 -j KUBE-SVC-A\n",
    );
    for (place, target) in targets.iter().enumerate() {
        text += &format!(
            "-A KUBE-SVC-A -j KUBE-SEP-{place}\n-A KUBE-SEP-{place} -p udp -m udp -j DNAT --to-destination {target}\n"
        );
    }
    iptables::read(&(text + "COMMIT\n"))
}

fn by_nft(targets: &[&str]) -> NodeRules {
    let chain = |name: &str| {
        format!(r#"{{"chain":{{"family":"ip","table":"kube-proxy","name":"{name}"}}}}"#)
    };
    let rule = |chain: &str, expr: &str| {
        format!(
            r#"{{"rule":{{"family":"ip","table":"kube-proxy","chain":"{chain}","expr":[{expr}]}}}}"#
        )
    };
    let mut all = vec![chain("svc"), chain("api"), chain("e-api")];
    let element = |ip: &str, protocol: &str, port: u16, name: &str, to: &str| {
        format!(
            r#"[{{"elem":{{"val":{{"concat":["{ip}","{protocol}",{port}]}},"comment":"{name}"}}}},{{"goto":{{"target":"{to}"}}}}]"#
        )
    };
    all.push(format!(
        r#"{{"map":{{"family":"ip","table":"kube-proxy","name":"service-ips","elem":[{},{}]}}}}"#,
        element("10.96.0.1", "tcp", 443, "default/kubernetes:https", "api"),
        element("10.96.0.10", "udp", 53, "kube-system/kube-dns:dns", "svc"),
    ));
    let goto = |to: &str| format!(r#"{{"goto":{{"target":"{to}"}}}}"#);
    let dnat = |target: &str| {
        let (ip, port) = target.rsplit_once(':').unwrap();
        format!(r#"{{"dnat":{{"addr":"{ip}","port":{port}}}}}"#)
    };
    all.push(rule("api", &goto("e-api")));
    all.push(rule("e-api", &dnat("192.168.7.254:6443")));
    for (place, target) in targets.iter().enumerate() {
        let name = format!("e{place}");
        all.push(chain(&name));
        all.push(rule("svc", &goto(&name)));
        all.push(rule(&name, &dnat(target)));
    }
    nft::read(&format!(r#"{{"nftables":[{}]}}"#, all.join(",")), &[]).unwrap()
}

/// `target` or `target=weight`.
fn by_ipvs(targets: &[&str]) -> NodeRules {
    let hex = |place: &str| {
        let place: std::net::SocketAddrV4 = place.parse().unwrap();
        format!("{:08X}:{:04X}", place.ip().to_bits(), place.port())
    };
    let mut text = format!(
        "IP Virtual Server version 1.2.1 (size=4096)\nProt LocalAddress:Port Scheduler Flags\n  -> RemoteAddress:Port Forward Weight ActiveConn InActConn\n\
         TCP  {} rr\n  -> {}      Masq    1      0          0\nUDP  {} rr\n",
        hex("10.96.0.1:443"),
        hex("192.168.7.254:6443"),
        hex("10.96.0.10:53"),
    );
    for target in targets {
        let (target, weight) = target.split_once('=').unwrap_or((target, "1"));
        text += &format!(
            "  -> {}      Masq    {weight}      0          0\n",
            hex(target)
        );
    }
    ipvs::read(&text)
}

fn told(index: &Index, rules: &NodeRules) -> Vec<String> {
    let found = compare(index, rules);
    found
        .iter()
        .map(|one| format!("{one} [{}]", one.difference.word()))
        .collect()
}

#[test]
fn every_kind_of_rules_is_compared_with_the_api() {
    let lingers = "rules still list 10.244.1.9 for kube-system/kube-dns [lingering-endpoint]";
    let lacks = "rules lack 10.244.1.8 for kube-system/kube-dns [missing-endpoint]";
    let slice = |endpoints: &str| format!("slice kube-system/kube-dns dns:53/UDP {endpoints}");
    let both = "10.244.1.7(ready) 10.244.1.8(ready)";
    for (endpoints, service, targets, expected) in [
        (both, SVC, &["10.244.1.7:53", "10.244.1.8:53"][..], &[][..]),
        (
            both,
            SVC,
            &["10.244.1.7:53", "10.244.1.8:53", "10.244.1.9:53"],
            &[lingers],
        ),
        (both, SVC, &["10.244.1.7:53"], &[lacks]),
        (
            both,
            SVC,
            &["10.244.1.7:53", "10.244.1.9:53"],
            &[lingers, lacks],
        ),
        // Another port of the same address is another endpoint.
        (
            both,
            SVC,
            &["10.244.1.7:53", "10.244.1.8:54"],
            &[
                "rules still list 10.244.1.8 for kube-system/kube-dns [lingering-endpoint]",
                lacks,
            ],
        ),
        // Terminating: present or not, as kube-proxy decides. An endpoint that serves while it terminates does not linger.
        (
            "10.244.1.7 10.244.1.8(!ready,serving,terminating)",
            SVC,
            &["10.244.1.7:53"],
            &[],
        ),
        (
            "10.244.1.8(!ready,serving,terminating)",
            SVC,
            &["10.244.1.8:53"],
            &[],
        ),
        (
            "10.244.1.7 10.244.1.8(ready,terminating)",
            SVC,
            &["10.244.1.7:53"],
            &[],
        ),
        // Listed, and no longer serving.
        (
            "10.244.1.7 10.244.1.9(!ready,!serving)",
            SVC,
            &["10.244.1.7:53", "10.244.1.9:53"],
            &[lingers],
        ),
        // publishNotReadyAddresses.
        (
            "10.244.1.7 10.244.1.8(ready,!serving)",
            SVC,
            &["10.244.1.7:53"],
            &[lacks],
        ),
        // Policy Local omits endpoints elsewhere.
        (
            "10.244.1.7@node1 10.244.1.8@node2",
            "svc kube-system/kube-dns 10.96.0.10 dns:53/UDP internalTrafficPolicy=Local",
            &["10.244.1.7:53"],
            &[],
        ),
        // A Service of another proxy: kube-proxy may have left any rule.
        (
            both,
            "svc kube-system/kube-dns 10.96.0.10 dns:53/UDP label=service.kubernetes.io/service-proxy-name=x",
            &["10.244.1.9:53"],
            &[],
        ),
    ] {
        let slice = slice(endpoints);
        let index = world(&[service, &slice, "cidr 10.96.0.0/16"]);
        for rules in [by_iptables(targets), by_nft(targets), by_ipvs(targets)] {
            assert_eq!(rules.not_understood(), 0);
            assert_eq!(
                told(&index, &rules),
                expected,
                "{service} {endpoints} {targets:?} {rules:?}"
            );
        }
    }
}

#[test]
fn hints_make_the_whole_service_port_depend_on_zones() {
    let slice = r#"{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","addressType":"IPv4",
        "metadata":{"name":"k","namespace":"kube-system","labels":{"kubernetes.io/service-name":"kube-dns"}},
        "ports":[{"name":"dns","port":53,"protocol":"UDP"}],"endpoints":[
        {"addresses":["10.244.1.7"],"conditions":{"ready":true},"hints":{"forZones":[{"name":"a"}]}},
        {"addresses":["10.244.1.8"],"conditions":{"ready":true},"hints":{"forZones":[{"name":"b"}]}}]}"#;
    let index = world(&[SVC, slice]);
    assert!(told(&index, &by_iptables(&["10.244.1.7:53"])).is_empty());
    // An endpoint that lingers does so in any zone.
    let found = told(&index, &by_iptables(&["10.244.1.7:53", "10.244.1.9:53"]));
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn servers_of_weight_0_are_no_difference() {
    let index = world(&[SVC, TWO]);
    let rules = by_ipvs(&["10.244.1.7:53", "10.244.1.8:53", "10.244.1.9:53=0"]);
    assert!(told(&index, &rules).is_empty());
    let rules = by_ipvs(&["10.244.1.7:53", "10.244.1.8:53=0"]);
    assert_eq!(
        told(&index, &rules),
        ["rules lack 10.244.1.8 for kube-system/kube-dns [missing-endpoint]"]
    );
}

#[test]
fn frontends_that_only_one_side_has_are_reported() {
    let kube_dns = [SVC, TWO, "cidr 10.96.0.0/16"];
    let more = [
        "svc shop/web 10.96.0.44 80/TCP",
        "slice shop/web 80/TCP 10.244.1.20(ready)",
    ];
    let lacks = "rules lack 10.96.0.44:80 for shop/web [missing-frontend]";
    let index = world(&[&kube_dns[..], &more[..]].concat());
    let whole = ["10.244.1.7:53", "10.244.1.8:53"];
    for rules in [by_iptables(&whole), by_nft(&whole), by_ipvs(&whole)] {
        assert_eq!(told(&index, &rules), [lacks]);
        // A rule that is not understood, or not read, may be the missing one.
        for (cut, unknown_shapes) in [(true, 0), (false, 1)] {
            let rules = NodeRules {
                cut,
                unknown_shapes,
                ..rules.clone()
            };
            assert!(told(&index, &rules).is_empty());
        }
    }
    // No rule is needed without a usable endpoint, or where kube-proxy serves the other family only.
    for (service, slice) in [
        (more[0], "slice shop/web 80/TCP 10.244.1.20(!ready)"),
        (
            "svc shop/web fd00:96::44 80/TCP",
            "slice shop/web 80/TCP fd00::20(ready)",
        ),
        (
            "svc shop/web 10.96.0.44 80/TCP internalTrafficPolicy=Local",
            more[1],
        ),
    ] {
        let index = world(&[&kube_dns[..], &[service, slice]].concat());
        assert!(
            told(&index, &by_iptables(&whole)).is_empty(),
            "{service} {slice}"
        );
    }
    let gone = world(&["cidr 10.96.0.0/16"]);
    for (rules, name) in [
        (by_iptables(&whole), "kube-system/kube-dns"),
        (by_nft(&whole), "kube-system/kube-dns"),
        (by_ipvs(&whole), "a Service"),
    ] {
        let line = format!(
            "rules still list 10.96.0.10:53 for {name}, which no Service has any more [lingering-frontend]"
        );
        assert_eq!(told(&gone, &rules), [line]);
    }
    // Another balancer on the node: its address was not necessarily that of a Service.
    assert!(told(&world(&[]), &by_ipvs(&whole)).is_empty());
}

#[test]
fn node_ports_follow_the_external_policy() {
    let (rules, _) = text::read(
        "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-NODEPORTS - [0:0]\n:KUBE-EXT-A - [0:0]\n-A PREROUTING -j KUBE-SERVICES\n\
         -A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS\n\
         -A KUBE-NODEPORTS -p udp -m comment --comment \"kube-system/kube-dns:dns\" -m udp --dport 32053 -j KUBE-EXT-A\n\
         -A KUBE-EXT-A -j KUBE-SEP-A\n-A KUBE-SEP-A -p udp -m udp -j DNAT --to-destination 10.244.1.7:53\nCOMMIT\n",
        None,
    )
    .unwrap();
    let index = world(&[SVC, TWO]);
    let found = compare(&index, &rules);
    let [one] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!(
        one.frontend,
        FrontendAddress::NodePort {
            ipv6: false,
            port: 32053
        }
    );
    assert_eq!(
        one.difference,
        Difference::MissingEndpoint("10.244.1.8:53".parse().unwrap())
    );
    let local = world(&[&format!("{SVC} externalTrafficPolicy=Local"), TWO]);
    assert!(told(&local, &rules).is_empty());
    // IPVS: a virtual server on each address of the node.
    let mut ipvs = by_ipvs(&["10.244.1.7:53", "10.244.1.8:53"]);
    let key = ("192.168.7.1".parse().unwrap(), 17, 32053);
    let frontend = RuleFrontend {
        targets: vec!["10.244.1.9:53".parse().unwrap()],
        understood: true,
        ..RuleFrontend::default()
    };
    ipvs.frontends.insert(key, frontend);
    let words: Vec<&str> = compare(&index, &ipvs)
        .iter()
        .map(|one| one.difference.word())
        .collect();
    assert_eq!(
        words,
        ["lingering-endpoint", "missing-endpoint", "missing-endpoint"]
    );
}

#[test]
fn an_incomplete_api_or_missing_kube_proxy_yields_no_difference() {
    let rules = by_iptables(&["10.244.1.9:53"]);
    assert!(compare(&bare_world(&[SVC, TWO]), &rules).is_empty());
    assert!(compare(&world(&[SVC, TWO]), &NodeRules::default()).is_empty());
    assert!(!compare(&world(&[SVC, TWO]), &rules).is_empty());
}

#[test]
fn objects_that_a_narrow_reading_omitted_are_not_compared() {
    let lines = [
        "svc default/kubernetes 10.96.0.1 https:443/TCP",
        "slice default/kubernetes https:6443/TCP 192.168.7.254(ready)",
        "svc kube-system/kube-dns 10.96.0.10 dns:53/UDP",
    ];
    let rules = by_iptables(&["10.244.1.9:53"]);
    let build = |lines: &[&str], narrow: &dyn Fn(&mut Builder)| {
        let mut builder = Builder::new(&[]);
        list_decoder::read(testing::list(lines).as_bytes(), &mut builder).unwrap();
        narrow(&mut builder);
        builder.finish().unwrap().index
    };
    // Only slices of another Service were read: this one appears to have no endpoint.
    let other = ServiceScope::Named(vec![(None, "other".into())]);
    let whole = build(&lines, &|_| ());
    assert_eq!(compare(&whole, &rules).len(), 1);
    let narrow = build(&lines, &|builder| drop(builder.slices_of(&other)));
    assert!(compare(&narrow, &rules).is_empty());
    // Only another Service was read: this one appears to be deleted.
    let whole = build(&lines[..2], &|_| ());
    assert_eq!(compare(&whole, &rules).len(), 1);
    let none = Destinations::default();
    let narrow = build(&lines[..2], &|builder| builder.knows_services_of(&none));
    assert!(compare(&narrow, &rules).is_empty());
}
