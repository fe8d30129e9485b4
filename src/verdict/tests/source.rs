//! Incomplete sources give no verdict.

use std::time::Duration;

use super::*;
use ctk_cluster::build::Builder;
use ctk_cluster::list_decoder;
use ctk_cluster::service_scope::ServiceScope;
use ctk_cluster::testing::{self, bare_world};

#[test]
fn a_source_that_is_not_whole_never_makes_an_entry_stale() {
    let node = this_node();
    let e2 = "slice a/dns dns:53/UDP 10.244.0.12";
    let np = "10.244.0.2:4000 192.168.7.1:32053 10.244.0.11:53";
    let tcp = "tcp 10.244.0.2:4000 10.96.0.10:80 10.244.0.11:80";
    let hop = "10.244.0.2:4000 10.96.0.10:53 192.168.7.2:32053";
    let no_pods = world(&[
        NODES[0],
        NODES[1],
        VIP,
        e2,
        "slice a/dns http:80/TCP 10.244.0.12",
    ]);
    let no_nodes = world(&["pod a/p 10.244.0.50", VIP, e2]);
    for (name, index, entry, expected) in [
        (
            "nothing of default/kubernetes",
            bare_world(&[VIP, e2]),
            C_VIP_E1,
            "unknown/source-incomplete",
        ),
        (
            "its slice is missing",
            bare_world(&["svc default/kubernetes 10.96.0.1 443/TCP", VIP, e2]),
            C_VIP_E1,
            "unknown/source-incomplete",
        ),
        (
            "no slices, unrelated entry",
            bare_world(&[VIP]),
            "1.2.3.4:1 5.6.7.8:9 5.6.7.8:9",
            "unknown/source-incomplete",
        ),
    ] {
        let setting = Setting {
            index: Some(&index),
            rules: None,
            node: &node,
            zones: &[],
            time: None,
        };
        assert_eq!(setting.judge(entry).unwrap().0, expected, "{name}");
    }
    for (name, index, entry, expected) in [
        (
            "no Nodes: node port",
            &no_nodes,
            np,
            "unknown/source-incomplete",
        ),
        (
            "no Nodes: a node port elsewhere",
            &no_nodes,
            "10.244.0.2:1 198.51.100.9:32053 198.51.100.9:32053",
            "unknown/source-incomplete",
        ),
        (
            "no Nodes: reply from a node port",
            &no_nodes,
            hop,
            "unknown/source-incomplete",
        ),
        (
            "no Nodes: clusterIP",
            &no_nodes,
            C_VIP_E1,
            "stale/endpoint-gone",
        ),
        ("no Pods: UDP", &no_pods, C_VIP_E1, "stale/endpoint-gone"),
        ("no Pods: TCP", &no_pods, tcp, "unknown/source-incomplete"),
        (
            "no range: nobody owns it",
            &no_pods,
            "10.244.0.2:1 10.96.0.77:53 10.244.0.11:53",
            "unknown/service-range-unknown",
        ),
        (
            "no range: not translated",
            &no_pods,
            "10.244.0.2:1 10.96.0.77:53 10.96.0.77:53",
            "unrelated/no-frontend",
        ),
        (
            "no range: a Node's address",
            &no_pods,
            "10.244.0.2:1 192.168.7.2:8080 10.244.0.11:53",
            "unrelated/no-frontend",
        ),
    ] {
        let setting = Setting {
            index: Some(index),
            rules: None,
            node: &node,
            zones: &[],
            time: None,
        };
        assert_eq!(setting.judge(entry).unwrap().0, expected, "{name}");
    }
}

#[test]
fn an_entry_younger_than_the_source_is_not_stale_by_it() {
    let (index, node) = (
        cluster(&[VIP, "slice a/dns dns:53/UDP 10.244.0.12"]),
        this_node(),
    );
    let time = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1000));
    let setting = Setting {
        index: Some(&index),
        rules: None,
        node: &node,
        zones: &[],
        time,
    };
    for (start, expected) in [
        ("start=1001", "unknown/source-incomplete"),
        ("start=999", "stale/endpoint-gone"),
    ] {
        let entry = format!("{C_VIP_E1} {start}");
        assert_eq!(setting.judge(&entry).unwrap().0, expected, "{start}");
    }
    let healthy = "10.244.0.2:4000 10.96.0.10:53 10.244.0.12:53 start=1001";
    assert_eq!(setting.judge(healthy).unwrap().0, "ok/endpoint");
}

#[test]
fn a_namespace_that_is_not_the_nodes_gets_no_verdict_from_the_cluster() {
    let index = cluster(&[VIP, "slice a/dns dns:53/UDP 10.244.0.11"]);
    let node = ThisNode {
        namespace: NetnsOwner::Foreign,
        ..this_node()
    };
    let setting = Setting {
        index: Some(&index),
        rules: None,
        node: &node,
        zones: &[],
        time: None,
    };
    assert_eq!(setting.judge(C_VIP_VIP).unwrap().0, "unknown/foreign-netns");
}

#[test]
fn policy_local_is_not_decided_on_a_node_that_is_not_known() {
    let local = "svc a/s 10.96.1.1 x:99/UDP internalTrafficPolicy=Local";
    let remote = "slice a/s x:99/UDP 10.244.1.9(ready)@m";
    let index = cluster(&[local, remote]);
    let nowhere = ThisNode {
        name: None,
        ..this_node()
    };
    let setting = Setting {
        index: Some(&index),
        rules: None,
        node: &nowhere,
        zones: &[],
        time: None,
    };
    let (verdict, _) = setting
        .judge("10.244.0.2:1 10.96.1.1:99 10.96.1.1:99")
        .unwrap();
    assert_eq!(
        verdict, "unknown/source-incomplete",
        "policy Local on a node that is not known"
    );
}

#[test]
fn a_narrow_read_scope_gives_no_verdict_on_the_rest() {
    use ctk_cluster::build::Builder;
    use ctk_cluster::service_scope::{Destinations, ServiceScope};
    let lines = [
        ctk_cluster::testing::API[0],
        ctk_cluster::testing::API[1],
        "cidr 10.96.0.0/16",
        "pod a/client 10.244.0.2 @n",
        "node n 192.168.7.1",
        VIP,
        "slice a/dns dns:53/UDP 10.244.0.12",
    ];
    let node = this_node();
    let judge = |narrow: fn(&mut Builder), entry: &str| {
        let mut builder = Builder::new(&[]);
        let text = ctk_cluster::testing::list(&lines);
        ctk_cluster::list_decoder::read(text.as_bytes(), &mut builder).unwrap();
        narrow(&mut builder);
        let index = builder.finish().unwrap().index;
        let setting = Setting {
            index: Some(&index),
            rules: None,
            node: &node,
            zones: &[],
            time: None,
        };
        setting.judge(entry).unwrap().0
    };
    let all = |_: &mut Builder| {};
    let no_slices = |builder: &mut Builder| {
        builder.slices_of(&ServiceScope::Named(Vec::new()));
    };
    let no_services = |builder: &mut Builder| {
        builder.knows_services_of(&Destinations::default());
    };
    let port_gone = "10.244.0.2:4000 10.96.0.10:99 10.244.0.11:53";
    let service_gone = "10.244.0.2:4000 10.96.0.77:53 10.244.0.11:53";
    let node_port = "10.244.0.2:4000 192.168.7.1:32053 10.244.0.11:53";
    for (entry, verdict) in [
        (C_VIP_E1, "stale/endpoint-gone"),
        (node_port, "stale/endpoint-gone"),
        (port_gone, "stale/port-gone"),
        (service_gone, "stale/service-gone"),
    ] {
        assert_eq!(judge(all, entry), verdict, "{entry}");
        let open = "unknown/source-incomplete";
        assert_eq!(judge(no_services, entry), open, "{entry}");
        if entry != service_gone {
            assert_eq!(judge(no_slices, entry), open, "{entry}");
        }
    }
}

#[test]
fn an_unread_service_at_the_same_address_keeps_no_entry_from_a_verdict() {
    let lines = [
        "svc default/kubernetes 10.96.0.1 https:443/TCP",
        "slice default/kubernetes https:443/TCP 192.168.7.1",
        NODES[0],
        "svc a/one 10.96.1.2 external=203.0.113.5 p:53/UDP",
        "slice a/one p:53/UDP 10.244.0.12",
        "svc b/other-port 10.96.1.4 external=203.0.113.5 p:54/UDP",
        "slice b/other-port p:54/UDP 10.244.0.13",
    ];
    let mut builder = Builder::new(&[]);
    list_decoder::read(testing::list(&lines).as_bytes(), &mut builder).unwrap();
    builder.slices_of(&ServiceScope::Named(vec![(None, "one".into())]));
    let (index, node) = (builder.finish().unwrap().index, this_node());
    let setting = Setting {
        index: Some(&index),
        rules: None,
        node: &node,
        zones: &[],
        time: None,
    };
    for (port, endpoint, expected) in [
        (53, "10.244.0.12:53", "ok/endpoint"),
        (53, "10.244.0.99:53", "stale/endpoint-gone"),
        // The slices of this Service were not read, so the verdict on a port of no Service is open, too.
        (54, "10.244.0.99:54", "unknown/source-incomplete"),
        (55, "10.244.0.99:55", "unknown/source-incomplete"),
    ] {
        let entry = format!("10.244.0.2:4000 203.0.113.5:{port} {endpoint}");
        assert_eq!(setting.judge(&entry).unwrap().0, expected, "{entry}");
    }
}
