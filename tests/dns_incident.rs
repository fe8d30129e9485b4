//! Main incident, with real packets: a DNS client keeps its source port, so its entry still leads to a deleted pod, and
//! every packet refreshes the entry.

use std::net::Ipv4Addr;
use testkit::tools;

use serde_json::{Value, json};
use testkit::ctk_binary::ctk;
use testkit::lab::{BACKENDS, CLIENTS, Client, Lab, Proxy, cluster, pod_name};
use testkit::private_netns::private_netns;
use testkit::tools::{Outcome, run};

#[test]
fn a_client_of_a_gone_backend_is_stale_behind_iptables_rules() {
    private_netns(|| incident(Proxy::Iptables));
}

#[test]
fn a_client_of_a_gone_backend_is_stale_behind_nftables_rules() {
    private_netns(|| incident(Proxy::Nftables));
}

fn incident(proxy: Proxy) {
    let mut lab = Lab::new(proxy);
    lab.set_endpoints(&BACKENDS);
    let [pinned, neighbour] = lab.client_of_each();
    let (dying, living) = (BACKENDS[0], BACKENDS[1]);

    let items = kube_dns(&BACKENDS);
    for (client, backend) in [(&pinned, dying), (&neighbour, living)] {
        let item = of(&items, client);
        assert_eq!(judged(item), "ok endpoint", "{item}");
        let endpoint = json!({
            "kind": "pod", "namespace": "kube-system", "name": pod_name(backend), "node": "node2",
            "ready": true, "serving": true, "terminating": false,
        });
        assert_eq!(item["endpoint"], endpoint);
        assert_eq!(item["reply"]["src"], backend.to_string());
        assert_eq!(
            item["service"],
            json!({"namespace": "kube-system", "name": "kube-dns", "port": "dns", "frontend": "cluster-ip"})
        );
        assert_eq!(
            item["client"],
            json!({"kind": "pod", "namespace": "shop", "name": "web-1", "node": "node1"})
        );
    }

    lab.kill(dying);
    lab.set_endpoints(&[living]);
    assert_eq!(pinned.ask(), None, "the entry still leads to the dead pod");
    assert_eq!(neighbour.ask(), Some(living), "the neighbour is fine");

    let items = kube_dns(&[living]);
    let item = of(&items, &pinned);
    assert_eq!(judged(item), "stale endpoint-gone", "{item}");
    assert_eq!(item["endpoint"], Value::Null, "no pod has the address");
    assert_eq!(
        item["evidence"],
        format!("{dying}:53 is no endpoint of kube-system/kube-dns, which has 1")
    );
    assert_eq!(judged(of(&items, &neighbour)), "ok endpoint");

    let file = cluster(&[living]);
    let table = ctk(["ls", "--cluster", file.path(), "--svc", "kube-dns"]).exits(0);
    let row = row_of(&table, &pinned);
    assert!(row.contains(&format!("{dying}:53 (gone)")), "{row}");
    assert!(row.contains("stale  endpoint-gone"), "{row}");
    assert!(row.contains("kube-system/kube-dns:dns"), "{row}");
    assert!(!row_of(&table, &neighbour).contains("gone"), "{table:?}");
    let stale = ctk(["ls", "--cluster", file.path(), "--stale", "-o", "jsonl"]).exits(0);
    let ports: Vec<Value> = stale
        .jsonl()
        .iter()
        .map(|i| i["original"]["sport"].clone())
        .collect();
    assert!(ports.contains(&json!(pinned.port())), "{ports:?}");
    assert!(!ports.contains(&json!(neighbour.port())), "{ports:?}");

    // The entry alone was the cause: without it the same socket is served.
    let port = pinned.port().to_string();
    run("conntrack", &["-D", "-p", "udp", "--orig-port-src", &port]);
    assert_eq!(pinned.ask(), Some(living));
}

#[test]
fn an_entry_older_than_the_rules_is_stale_although_it_was_never_translated() {
    private_netns(|| {
        for proxy in [Proxy::Iptables, Proxy::Nftables] {
            // Each proxy has a node of its own.
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            let lab = Lab::new(proxy);
            let early = Client::bind(CLIENTS[1], 5353);
            assert_eq!(early.ask(), None, "no rule leads anywhere yet");
            lab.set_endpoints(&BACKENDS);
            assert_eq!(
                early.ask(),
                None,
                "{proxy:?}: the entry is older than the rules"
            );
            let late = Client::bind(CLIENTS[1], 5354);
            assert!(late.ask().is_some());
            let items = kube_dns(&BACKENDS);
            let item = of(&items, &early);
            assert_eq!(judged(item), "stale no-dnat", "{proxy:?} {item}");
            assert_eq!(item["replies"], "one-way");
            assert_eq!(judged(of(&items, &late)), "ok endpoint");
        }
    });
}

#[test]
fn nothing_is_judged_in_a_namespace_that_is_not_the_nodes() {
    private_netns(|| {
        let lab = Lab::without_node_address(Proxy::Nftables);
        lab.set_endpoints(&BACKENDS);
        let client = Client::bind(CLIENTS[0], 40_000);
        assert!(client.ask().is_some());
        // kube-proxy's rules would identify the namespace as the node's.
        tools::nft("flush ruleset");
        let file = cluster(&[]);
        let args = [
            "ls",
            "--cluster",
            file.path(),
            "--svc",
            "kube-dns",
            "-o",
            "json",
        ];
        let outcome = ctk(args).exits(0);
        let items = outcome.items();
        let item = of(&items, &client);
        assert_eq!(judged(item), "unknown foreign-netns", "{item}");
        assert_eq!(
            item["service"]["name"], "kube-dns",
            "the name is known all the same"
        );
        assert!(
            outcome.stderr.contains("1 entry is not judged"),
            "{outcome:?}"
        );
        let stale = ctk(["ls", "--cluster", file.path(), "--stale", "-o", "jsonl"]);
        assert_eq!(stale.exits(3).stdout, "");
    });
}

/// Items of `ls --svc kube-dns` when kube-dns has these endpoints.
fn kube_dns(endpoints: &[Ipv4Addr]) -> Vec<Value> {
    let file = cluster(endpoints);
    let outcome = ctk([
        "ls",
        "--cluster",
        file.path(),
        "--svc",
        "kube-dns",
        "-o",
        "json",
    ])
    .exits(0);
    let document = outcome.json();
    assert_eq!(
        document["summary"]["cluster"]["complete"], true,
        "{document}"
    );
    outcome.items()
}

#[track_caller]
fn of<'i>(items: &'i [Value], client: &Client) -> &'i Value {
    let mut of_port = items
        .iter()
        .filter(|item| item["original"]["sport"] == client.port());
    let found = of_port.next();
    assert!(
        of_port.next().is_none(),
        "two entries of one port: {items:?}"
    );
    found.unwrap_or_else(|| panic!("no entry of port {}: {items:?}", client.port()))
}

fn judged(item: &Value) -> String {
    let word = |field: &str| item[field].as_str().unwrap_or("null").to_owned();
    word("verdict") + " " + &word("reason")
}

fn row_of<'t>(table: &'t Outcome, client: &Client) -> &'t str {
    let client = format!("shop/web-1:{} ", client.port());
    let mut rows = table.stdout.lines();
    rows.find(|row| row.contains(&client))
        .unwrap_or_else(|| panic!("no row of {client}: {table:#?}"))
}
