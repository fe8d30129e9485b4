//! Real packets through real rules.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType};

use crate::{cluster, doctor, findings_of, only_finding};
use testkit::ctk_binary::ctk;
use testkit::lab::cluster::ClusterFile;
use testkit::lab::{self, BACKENDS, CLIENTS, Client, Lab, Proxy};
use testkit::private_netns::private_netns;
use testkit::tools::{nft, run, sysctl};

const WEB: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 96, 8, 8), 80);
const PODS: [Ipv4Addr; 3] = [
    Ipv4Addr::new(10, 244, 1, 21),
    Ipv4Addr::new(10, 244, 1, 22),
    Ipv4Addr::new(10, 244, 1, 23),
];

/// shop/web with three pods that answer each byte with one byte.
struct Web;

impl Web {
    fn new() -> Self {
        lab::add_node_address();
        run("ip", &["link", "set", "lo", "up"]);
        for address in PODS.iter().chain(&CLIENTS) {
            run(
                "ip",
                &["addr", "add", &format!("{address}/32"), "dev", "lo"],
            );
        }
        run("ip", &["route", "add", "10.96.0.0/16", "dev", "lo"]);
        nft("table ip t { chain c { type nat hook output priority -100; }; }");
        sysctl("acct", "1");
        for address in PODS {
            let listener = TcpListener::bind((address, 8080)).expect("the address is on lo");
            std::thread::spawn(move || {
                for stream in listener.incoming() {
                    let mut stream = stream.expect("a connection");
                    std::thread::spawn(move || {
                        let mut byte = [0];
                        while stream.read_exact(&mut byte).is_ok()
                            && stream.write_all(&byte).is_ok()
                        {}
                    });
                }
            });
        }
        Web
    }

    /// Leads new connections to these endpoints, chosen at random.
    fn lead_to(&self, pods: &[Ipv4Addr]) {
        let targets: Vec<String> = pods
            .iter()
            .enumerate()
            .map(|(n, pod)| format!("{n} : {pod}"))
            .collect();
        nft(&format!(
            "flush chain ip t c\nadd rule ip t c ip daddr {} tcp dport 80 dnat to numgen random mod {} map {{ {} }} : 8080",
            WEB.ip(),
            pods.len(),
            targets.join(", ")
        ));
    }

    fn file(&self) -> ClusterFile {
        cluster(&[
            "svc shop/web 10.96.8.8 h:80/TCP",
            "slice shop/web h:8080/TCP 10.244.1.21(ready)@node1->web-a 10.244.1.22(ready)@node1->web-b 10.244.1.23(ready)@node1->web-c",
            "pod shop/web-a 10.244.1.21 @node1",
            "pod shop/web-b 10.244.1.22 @node1",
            "pod shop/web-c 10.244.1.23 @node1",
            "pod shop/client 10.244.1.5 @node1",
        ])
    }
}

/// Connection of the first client.
fn connect() -> TcpStream {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddrV4::new(CLIENTS[0], 0)).unwrap();
    rustix::net::connect(&socket, &WEB).expect("a pod answers");
    TcpStream::from(socket)
}

fn ask(stream: &mut TcpStream) {
    stream.write_all(b"q").unwrap();
    stream.read_exact(&mut [0]).expect("an answer");
}

#[test]
fn thirty_requests_over_one_connection_reach_one_pod_and_thirty_connections_do_not() {
    private_netns(|| {
        let web = Web::new();
        let file = web.file();
        web.lead_to(&PODS);
        // One open connection: one pod serves all requests, which only packet counters show.
        let mut kept = connect();
        (0..30).for_each(|_| ask(&mut kept));
        let outcome = doctor(&file, "--sample 0 --skew-packets 60").exits(0);
        let found = only_finding(&outcome, "keep-alive-skew");
        assert_eq!(found["severity"], "info");
        let busiest = &found["evidence"]["busiest"][0];
        assert_eq!(
            (&busiest["service"], &busiest["percent"]),
            (&"shop/web:h".into(), &100.0.into())
        );
        // Request and answer each acknowledge the other.
        assert!(
            busiest["packets"]
                .as_u64()
                .is_some_and(|packets| packets >= 60),
            "{found}"
        );
        let mut flows: Vec<u64> = busiest["flows"]
            .as_array()
            .unwrap()
            .iter()
            .map(|n| n.as_u64().unwrap())
            .collect();
        flows.sort_unstable();
        assert_eq!(flows, [0, 0, 1]);
        drop(kept);
        // Thirty connections reach all pods.
        let mut many: Vec<TcpStream> = (0..30).map(|_| connect()).collect();
        many.iter_mut().for_each(ask);
        let outcome = doctor(&file, "--sample 0").exits(0);
        assert!(
            findings_of(&outcome, "keep-alive-skew").is_empty(),
            "{outcome:#?}"
        );
    });
}

#[test]
fn connections_from_the_time_of_a_single_pod_stay_on_it() {
    private_netns(|| {
        let web = Web::new();
        web.lead_to(&PODS[..1]);
        let mut many: Vec<TcpStream> = (0..30).map(|_| connect()).collect();
        web.lead_to(&PODS);
        many.iter_mut().for_each(ask);
        let found = only_finding(
            &doctor(&web.file(), "--sample 0").exits(5),
            "keep-alive-skew",
        );
        assert_eq!(found["severity"], "warning");
        let evidence = &found["evidence"];
        assert_eq!(
            (&evidence["max"], &evidence["flows"], &evidence["idle"]),
            (&30.into(), &30.into(), &2.into())
        );
        assert_eq!(
            (&evidence["clients"], &evidence["reason"]),
            (&1.into(), &"one-client".into())
        );
    });
}

#[test]
fn a_black_holed_endpoint_is_found_with_the_number_of_its_silent_entries() {
    private_netns(|| {
        let mut lab = Lab::new(Proxy::Nftables);
        let [dying, _] = BACKENDS;
        lab.set_endpoints(&BACKENDS);
        lab.kill(dying);
        // The API still has the endpoint.
        let clients: Vec<Client> = (41_000..41_040)
            .map(|port| Client::bind(CLIENTS[0], port))
            .collect();
        clients.iter().for_each(Client::send);
        let living = lab::cluster(&BACKENDS);
        // Answers take a moment.
        std::thread::sleep(Duration::from_millis(300));
        let outcome = doctor(&living, "--sample 0").exits(5);
        let found = only_finding(&outcome, "endpoint-silent");
        assert_eq!(found["severity"], "warning");
        let silent = ctk([
            "ls",
            "--unreplied",
            "-o",
            "jsonl",
            "--cluster",
            living.path(),
            "--reply-src",
            &dying.to_string(),
        ]);
        let silent = silent.exits(0).jsonl().len();
        let evidence = &found["evidence"];
        assert_eq!(
            (&evidence["unreplied"], &evidence["entries"]),
            (&silent.into(), &silent.into())
        );
        assert_eq!(
            (&evidence["endpoint"], &evidence["pod"]),
            (
                &format!("{dying}:53").into(),
                &"kube-system/coredns-a".into()
            )
        );
        assert_eq!(evidence["others"][0]["unanswered"], 0);
        assert_eq!(evidence["others"][0]["entries"], 40 - silent);
    });
}

#[test]
fn a_refreshed_stale_entry_is_the_first_finding() {
    private_netns(|| {
        let mut lab = Lab::new(Proxy::Iptables);
        let [dying, living] = BACKENDS;
        lab.set_endpoints(&BACKENDS);
        let [pinned, healthy] = lab.client_of_each();
        lab.kill(dying);
        lab.set_endpoints(&[living]);
        let file = lab::cluster(&[living]);
        let done = AtomicBool::new(false);
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    pinned.send();
                    healthy.send();
                    std::thread::sleep(Duration::from_millis(400));
                }
            });
            let outcome = doctor(&file, "");
            done.store(true, Ordering::Relaxed);
            outcome
        });
        let outcome = outcome.exits(5);
        let found = &outcome.items()[0];
        assert_eq!(
            (&found["check"], &found["severity"]),
            (&"stale-udp".into(), &"critical".into())
        );
        let evidence = &found["evidence"];
        assert_eq!(evidence["refreshing"], 1);
        assert_eq!(evidence["service"], "kube-system/kube-dns:dns");
        assert_eq!(
            found["help"],
            "ctk purge --stale --svc kube-system/kube-dns:dns"
        );
        let first = evidence["examples"][0].as_str().unwrap();
        assert!(
            first.contains(&format!("{}:{} >", CLIENTS[0], pinned.port()))
                && first.ends_with("refreshing"),
            "{first}"
        );
        let stale = ctk(["ls", "--stale", "-o", "jsonl", "--cluster", file.path()])
            .exits(0)
            .jsonl()
            .len();
        assert_eq!(evidence["stale"], stale);
        // The advice of the finding works.
        let mut purge: Vec<&str> = found["help"].as_str().unwrap().split(' ').skip(1).collect();
        purge.extend([
            "--yes",
            "--cluster",
            file.path(),
            "--settle",
            "0",
            "--verify",
            "0",
        ]);
        ctk(purge).exits(0);
        assert!(findings_of(&doctor(&file, "--sample 0").exits(0), "stale-udp").is_empty());
    });
}

#[test]
fn a_pod_that_reaches_itself_through_its_service_is_healthy() {
    private_netns(|| {
        let lab = Lab::new(Proxy::Iptables);
        let [itself, _] = BACKENDS;
        lab.set_endpoints(&[itself]);
        let client = Client::bind(itself, 40_500);
        client.send();
        std::thread::sleep(Duration::from_millis(200));
        let found = only_finding(
            &doctor(&lab::cluster(&[itself]), "--sample 0").exits(0),
            "hairpin",
        );
        assert_eq!(
            (&found["severity"], &found["evidence"]["flows"]),
            (&"info".into(), &1.into())
        );
        assert_eq!(found["evidence"]["unreplied"], 0, "{found}");
        // On a node of one namespace, masquerading finds the pod's own address.
        assert_eq!(
            found["evidence"]["senders"][0]["sender"],
            itself.to_string()
        );
    });
}
