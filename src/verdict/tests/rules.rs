//! Verdicts by the node's own rules, alone and beside a cluster.

use super::*;
use ctk_cluster::datapath::Datapath;
use ctk_cluster::rules::{
    Condition, Forward, ForwardTarget, RuleFrontend, TargetAddresses, TargetPorts, ipvs,
};

fn frontend(targets: &[&str]) -> RuleFrontend {
    RuleFrontend {
        targets: targets.iter().map(|t| t.parse().unwrap()).collect(),
        understood: true,
        ..RuleFrontend::default()
    }
}

#[test]
fn rules_alone_never_make_a_missing_endpoint_stale() {
    let mut rules = NodeRules::default();
    let key = |ip: &str, port| (ip.parse::<IpAddr>().unwrap(), 17, port);
    rules
        .frontends
        .insert(key("10.96.0.10", 53), frontend(&["10.244.0.11:53"]));
    rules.frontends.insert(
        key("10.96.0.20", 53),
        RuleFrontend {
            refused: true,
            ..frontend(&[])
        },
    );
    rules.frontends.insert(
        key("10.96.0.30", 53),
        RuleFrontend {
            understood: false,
            ..frontend(&[])
        },
    );
    rules
        .node_ports
        .insert((false, 17, 32053), frontend(&["10.244.0.11:53"]));
    let node = this_node();
    let setting = Setting {
        index: None,
        rules: Some(&rules),
        node: &node,
        zones: &[],
        time: None,
    };
    for (entry, expected) in [
        (C_VIP_E1, "ok/endpoint"),
        (
            "10.244.0.2:1 10.96.0.10:53 10.244.0.12:53",
            "suspect/not-in-node-rules",
        ),
        (C_VIP_VIP, "stale/no-dnat"),
        (
            "10.244.0.2:1 10.96.0.20:53 10.96.0.20:53",
            "pending/no-dnat-no-endpoint",
        ),
        (
            "10.244.0.2:1 10.96.0.20:53 10.244.0.12:53",
            "suspect/not-in-node-rules",
        ),
        (
            "10.244.0.2:1 10.96.0.30:53 10.244.0.12:53",
            "unknown/source-incomplete",
        ),
        (
            "10.244.0.2:1 10.96.0.10:54 10.244.0.12:53",
            "unrelated/other-port",
        ),
        (
            "10.244.0.2:1 192.168.7.1:32053 10.244.0.11:53",
            "ok/endpoint",
        ),
        (
            "10.244.0.2:1 198.51.100.1:53 198.51.100.1:53",
            "unrelated/no-frontend",
        ),
    ] {
        assert_eq!(setting.judge(entry).unwrap().0, expected, "{entry}");
    }
    let nothing = Setting {
        rules: None,
        ..setting
    };
    assert_eq!(
        nothing.judge(C_VIP_E1).unwrap().0,
        "unknown/source-incomplete"
    );
}

#[test]
fn rules_beside_the_cluster_tell_whether_a_new_packet_would_be_translated() {
    let index = cluster(&[VIP, "slice a/dns dns:53/UDP 10.244.0.11"]);
    let node = this_node();
    let with = |frontend: Option<RuleFrontend>, entry: &str| {
        let mut rules = NodeRules::default();
        if let Some(frontend) = frontend {
            rules
                .frontends
                .insert(("10.96.0.10".parse().unwrap(), 17, 53), frontend);
        }
        let setting = Setting {
            index: Some(&index),
            rules: Some(&rules),
            node: &node,
            zones: &[],
            time: None,
        };
        setting.judge(entry).unwrap().0
    };
    assert_eq!(with(None, C_VIP_VIP), "pending/no-dnat-no-rule");
    assert_eq!(
        with(Some(frontend(&["10.244.0.11:53"])), C_VIP_VIP),
        "stale/no-dnat"
    );
    let refused = RuleFrontend {
        refused: true,
        ..frontend(&[])
    };
    assert_eq!(
        with(Some(refused), C_VIP_VIP),
        "pending/no-dnat-no-endpoint"
    );
    let odd = RuleFrontend {
        understood: false,
        ..frontend(&["10.244.0.11:53"])
    };
    assert_eq!(with(Some(odd), C_VIP_VIP), "unknown/source-incomplete");
    // The cluster decides where both are known.
    assert_eq!(
        with(
            Some(frontend(&["10.244.0.99:53"])),
            "10.244.0.2:1 10.96.0.10:53 10.244.0.99:53"
        ),
        "stale/endpoint-gone"
    );
}

fn range(first: &str, last: &str) -> TargetAddresses {
    TargetAddresses::Range(first.parse().unwrap()..=last.parse().unwrap())
}

/// A published container port: 52897/udp on every local address -> 172.17.0.9:51820.
fn docker(conditions: Vec<Condition>) -> NodeRules {
    NodeRules {
        forwards: vec![Forward {
            protocol: 17,
            destination: None,
            ipv6: None,
            local_only: true,
            ports: 52897..=52897,
            targets: vec![ForwardTarget {
                addresses: range("172.17.0.9", "172.17.0.9"),
                ports: TargetPorts::Range(51820..=51820),
            }],
            conditions,
            rule: "-A DOCKER ! -i docker0 -p udp --dport 52897 -j DNAT --to-destination 172.17.0.9:51820".into(),
        }],
        ..NodeRules::default()
    }
}

#[test]
fn published_container_ports_are_judged_by_every_rule_that_could_match() {
    let mut node = this_node();
    node.local
        .as_mut()
        .unwrap()
        .push(local("docker0", "172.17.0.1/16"));
    let not_docker = Condition::Interface {
        names: vec!["docker0".into()],
        equal: false,
    };
    let odd = Condition::Other("-m recent --name x".into());
    let source = Condition::Source {
        net: "198.51.100.0/24".parse().unwrap(),
        equal: true,
    };
    let untranslated = "198.51.100.60:40555 192.168.7.1:52897 192.168.7.1:52897 unreplied";
    for (conditions, entry, expected) in [
        (vec![not_docker.clone()], untranslated, "stale/no-dnat"),
        (
            vec![not_docker.clone()],
            "198.51.100.61:40556 192.168.7.1:52897 172.17.0.9:51820",
            "ok/endpoint",
        ),
        (
            vec![not_docker.clone()],
            "198.51.100.61:40556 192.168.7.1:52897 172.17.0.8:51820",
            "stale/endpoint-gone",
        ),
        // The container port itself is no frontend.
        (
            vec![not_docker.clone()],
            "198.51.100.62:40557 192.168.7.1:51820 192.168.7.1:51820",
            "unrelated/no-frontend",
        ),
        // A container that talks to its host's published port goes through the proxy process.
        (
            vec![not_docker.clone()],
            "172.17.0.5:40557 192.168.7.1:52897 192.168.7.1:52897",
            "unknown/not-kube-proxy",
        ),
        (vec![odd.clone()], untranslated, "unknown/not-kube-proxy"),
        (
            vec![odd],
            "198.51.100.61:40556 192.168.7.1:52897 172.17.0.8:51820",
            "unknown/not-kube-proxy",
        ),
        (vec![source.clone()], untranslated, "stale/no-dnat"),
        (
            vec![source.clone()],
            "203.0.113.1:40555 192.168.7.1:52897 192.168.7.1:52897",
            "unknown/not-kube-proxy",
        ),
        (
            vec![source],
            "198.51.100.61:40556 192.168.7.1:52897 172.17.0.8:51820",
            "unknown/not-kube-proxy",
        ),
        (
            vec![],
            "198.51.100.61:40556 198.51.100.99:52897 172.17.0.8:51820",
            "unrelated/no-frontend",
        ),
    ] {
        let rules = docker(conditions);
        // The rules were read in this namespace, so its owner does not matter.
        for namespace in [NetnsOwner::Node, NetnsOwner::Foreign] {
            let node = ThisNode {
                namespace,
                ..node.clone()
            };
            let setting = Setting {
                index: None,
                rules: Some(&rules),
                node: &node,
                zones: &[],
                time: None,
            };
            assert_eq!(
                setting.judge(entry).unwrap().0,
                expected,
                "{entry} {namespace:?}"
            );
        }
    }
}

#[test]
fn a_foreign_rule_to_the_same_endpoint_keeps_the_entry() {
    let index = cluster(&[
        "svc a/s 10.96.0.9 x:52897/UDP external=192.168.7.1",
        "slice a/s x:52897/UDP 10.244.0.11",
    ]);
    let (rules, node) = (docker(vec![]), this_node());
    let setting = Setting {
        index: Some(&index),
        rules: Some(&rules),
        node: &node,
        zones: &[],
        time: None,
    };
    let entry = "198.51.100.1:1 192.168.7.1:52897 172.17.0.9:51820";
    assert_eq!(setting.judge(entry).unwrap().0, "unknown/not-kube-proxy");
}

#[test]
fn shifted_and_ranged_targets_are_honoured() {
    let mut rules = docker(vec![]);
    let targets = |ports| {
        vec![ForwardTarget {
            addresses: range("172.17.0.9", "172.17.0.10"),
            ports,
        }]
    };
    rules.forwards[0].ports = 8000..=8010;
    let node = this_node();
    for (ports, reply, expected) in [
        (TargetPorts::Shift(9000), "172.17.0.9:9002", "ok/endpoint"),
        (
            TargetPorts::Shift(9000),
            "172.17.0.9:9003",
            "stale/endpoint-gone",
        ),
        (TargetPorts::Range(1..=100), "172.17.0.10:50", "ok/endpoint"),
        (
            TargetPorts::Range(1..=100),
            "172.17.0.10:101",
            "stale/endpoint-gone",
        ),
        (TargetPorts::Unchanged, "172.17.0.10:7", "ok/endpoint"),
        (
            TargetPorts::Unchanged,
            "172.17.0.11:8002",
            "stale/endpoint-gone",
        ),
    ] {
        rules.forwards[0].targets = targets(ports);
        let setting = Setting {
            index: None,
            rules: Some(&rules),
            node: &node,
            zones: &[],
            time: None,
        };
        let entry = format!("198.51.100.1:1 192.168.7.1:8002 {reply}");
        assert_eq!(setting.judge(&entry).unwrap().0, expected, "{entry}");
    }
}

/// As `/proc/net/ip_vs` shows it: kube-dns with one server and one that is on its way out, a Service without any, node
/// port 32053, and a frontend of C52.
const IP_VS: &str = "IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
UDP  0A60000A:0035 rr
  -> 0AF4000B:0035      Masq    1      0          2
  -> 0AF4000C:0035      Masq    0      0          1
UDP  0A600014:0035 rr
UDP  C0A80701:7D35 rr
  -> 0AF4000B:0035      Masq    1      0          0
UDP  0A607F09:0202 rr
  -> 0AF48003:0202      Masq    1      0          2
";

#[test]
fn ipvs_servers_are_judged_as_rules_are() {
    let rules = ipvs::read(IP_VS);
    let node = this_node();
    let setting = Setting {
        index: None,
        rules: Some(&rules),
        node: &node,
        zones: &[],
        time: None,
    };
    for (entry, expected) in [
        (C_VIP_E1, "ok/endpoint"),
        (
            "10.244.0.2:1 10.96.0.10:53 10.244.0.12:53",
            "draining/endpoint-terminating",
        ),
        (
            "10.244.0.2:1 10.96.0.10:53 10.244.0.13:53",
            "suspect/not-in-node-rules",
        ),
        (C_VIP_VIP, "stale/no-dnat"),
        (
            "10.244.0.2:1 10.96.0.20:53 10.96.0.20:53 unreplied",
            "pending/no-dnat-no-endpoint",
        ),
        (
            "10.244.0.2:1 10.96.0.20:53 10.244.0.12:53",
            "suspect/not-in-node-rules",
        ),
        (
            "203.0.113.9:1 192.168.7.1:32053 10.244.0.11:53",
            "ok/endpoint",
        ),
        (
            "203.0.113.9:1 192.168.7.1:32053 192.168.7.1:32053 unreplied",
            "stale/no-dnat",
        ),
        (
            "10.244.0.2:1 10.96.0.10:9153 10.96.0.10:9153",
            "unrelated/other-port",
        ),
        (
            "192.0.2.19:45117 10.96.127.9:514 10.244.129.16:514 unreplied",
            "suspect/not-in-node-rules",
        ),
    ] {
        assert_eq!(setting.judge(entry).unwrap().0, expected, "{entry}");
    }
}

#[test]
fn ipvs_servers_beside_the_cluster_decide_on_untranslated_entries() {
    let index = cluster(&[
        VIP,
        "slice a/dns dns:53/UDP 10.244.0.11",
        "svc log/syslog 10.96.127.9 514/UDP",
        "slice log/syslog 514/UDP 10.244.128.3",
    ]);
    let (rules, nothing) = (ipvs::read(IP_VS), NodeRules::default());
    let node = this_node();
    let node_port = "203.0.113.9:1 192.168.7.1:32053 192.168.7.1:32053 unreplied";
    for (rules, entry, expected) in [
        (&rules, C_VIP_VIP, "stale/no-dnat"),
        (&nothing, C_VIP_VIP, "pending/no-dnat-no-rule"),
        (&rules, node_port, "stale/no-dnat"),
        (&nothing, node_port, "pending/no-dnat-no-rule"),
        (
            &rules,
            "192.0.2.19:45117 10.96.127.9:514 10.244.129.16:514 unreplied",
            "stale/endpoint-gone",
        ),
    ] {
        let setting = Setting {
            index: Some(&index),
            rules: Some(rules),
            node: &node,
            zones: &[],
            time: None,
        };
        assert_eq!(setting.judge(entry).unwrap().0, expected, "{entry}");
    }
}

#[test]
fn entries_are_not_stale_where_bpf_programs_replace_kube_proxy() {
    let index = cluster(&[
        VIP,
        "slice a/dns dns:53/UDP 10.244.0.11 10.244.0.14(!ready,serving,terminating)",
    ]);
    let node = this_node();
    let docker = docker(Vec::new());
    for (entry, without, with) in [
        (C_VIP_VIP, "stale/no-dnat", "unknown/not-kube-proxy"),
        (
            "10.244.0.2:1 10.96.0.10:53 10.244.0.12:53",
            "stale/endpoint-gone",
            "unknown/not-kube-proxy",
        ),
        (
            "10.244.0.2:1 10.96.0.10:9153 10.244.0.12:9153",
            "stale/port-gone",
            "unknown/not-kube-proxy",
        ),
        (
            "10.244.0.2:1 10.96.0.99:53 10.244.0.12:53",
            "stale/service-gone",
            "unknown/not-kube-proxy",
        ),
        (
            "10.244.0.2:1 10.96.0.10:53 10.244.0.14:53",
            "draining/endpoint-terminating",
            "unknown/not-kube-proxy",
        ),
        (
            "10.244.0.2:1 10.96.0.10:80 10.96.0.10:80",
            "unrelated/other-port",
            "unrelated/other-port",
        ),
        // Facts stay facts, and the rules of others hold as before.
        (C_VIP_E1, "ok/endpoint", "ok/endpoint"),
        (
            "10.244.0.2:1 198.51.100.1:53 198.51.100.1:53",
            "unrelated/no-frontend",
            "unrelated/no-frontend",
        ),
        (
            "198.51.100.9:1 192.168.7.1:52897 192.168.7.1:52897 unreplied",
            "stale/no-dnat",
            "stale/no-dnat",
        ),
    ] {
        for datapath in [None, Some(Datapath::Cilium), Some(Datapath::CalicoEbpf)] {
            let flow = flow(entry);
            let matched = FrontendMatch::of(&flow, &index, &node);
            let judge = Judge {
                index: Some(&index),
                // Without kube-proxy's rules an untranslated entry would be pending.
                rules: (matched.is_nothing()).then_some(&docker),
                node: &node,
                kube_proxy_replacement: datapath,
                zones: &[],
                source_time: None,
            };
            let judgement = judge.judge(&flow, matched).unwrap();
            let words = format!("{}/{}", judgement.verdict().name(), judgement.reason.name());
            let expected = if datapath.is_none() { without } else { with };
            assert_eq!(words, expected, "{entry} {datapath:?}");
            if let Some(datapath) = datapath.filter(|_| with.ends_with("not-kube-proxy")) {
                let evidence = judgement.evidence.to_string();
                assert!(evidence.contains(datapath.name()), "{evidence}");
            }
        }
    }
}
