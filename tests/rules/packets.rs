//! Real senders before and after a purge by rules.

use std::net::UdpSocket;

use serde_json::Value;
use testkit::ctk_binary::ctk_line;
use testkit::private_netns::private_netns;
use testkit::tools::{nft, run, run_with, sysctl};

use crate::container_engine::{DOCKER_IPTABLES, DOCKER_NFT};
use crate::{address, expected, fresh, verdicts};

/// Rule that turns connection tracking on.
const TRACK: &str =
    "table inet t { chain c { type filter hook output priority 0; ct state new accept; }; }";

/// Starts a server that answers every datagram until the test ends.
pub fn serve(address: &str) {
    let socket = UdpSocket::bind(address).unwrap();
    std::thread::spawn(move || {
        let mut question = [0; 64];
        while let Ok((_, client)) = socket.recv_from(&mut question) {
            let _ = socket.send_to(b"answer", client);
        }
    });
}

/// Client that keeps its source port and sends to one destination.
struct Sender {
    socket: UdpSocket,
    to: &'static str,
}

impl Sender {
    fn new(from: &str, to: &'static str) -> Self {
        let socket = UdpSocket::bind(from).unwrap();
        let patience = std::time::Duration::from_millis(500);
        socket.set_read_timeout(Some(patience)).unwrap();
        Sender { socket, to }
    }

    /// Without a listener, the refusal of a former datagram ends the call.
    fn send(&self) {
        let _ = self.socket.send_to(b"question", self.to);
    }

    fn is_answered(&self) -> bool {
        self.send();
        self.socket.recv_from(&mut [0; 64]).is_ok()
    }
}

#[test]
fn a_peer_that_sent_before_the_port_was_published_is_served_after_a_purge() {
    private_netns(|| {
        for (flavour, load) in [
            ("iptables-nft-restore", DOCKER_IPTABLES),
            ("nft", DOCKER_NFT),
        ] {
            fresh();
            nft(TRACK);
            for local in [
                "192.0.2.5/32",
                "198.51.100.60/32",
                "198.51.100.61/32",
                "198.51.100.62/32",
            ] {
                address("lo", local);
            }
            address("docker0", "172.17.0.1/16");
            // The container, without a namespace of its own.
            run("ip", &["addr", "add", "172.17.0.9/32", "dev", "lo"]);
            serve("172.17.0.9:51820");
            let early = Sender::new("198.51.100.60:40555", "192.0.2.5:52897");
            let other = Sender::new("198.51.100.62:40557", "192.0.2.5:51820");
            early.send();
            other.send();
            match flavour {
                "nft" => nft(load),
                tool => run_with(tool, &["--noflush"], load),
            }
            let late = Sender::new("198.51.100.61:40556", "192.0.2.5:52897");
            assert!(late.is_answered(), "{flavour}");
            assert!(!early.is_answered(), "{flavour}: it is stuck");
            let all = expected(&[
                (40555, "stale no-dnat"),
                (40556, "ok endpoint"),
                (40557, "unrelated no-frontend"),
            ]);
            assert_eq!(verdicts("--cluster rules"), all, "{flavour}");
            let purge = "purge --cluster rules --stale --yes --settle 0 --verify 0 -o json";
            let items = ctk_line(purge).exits(0).items();
            let deleted: Vec<&Value> = items
                .iter()
                .map(|item| &item["original"]["sport"])
                .collect();
            assert_eq!(deleted, [40555], "{flavour}");
            assert!(early.is_answered() && late.is_answered(), "{flavour}");
            let all = expected(&[
                (40555, "ok endpoint"),
                (40556, "ok endpoint"),
                (40557, "unrelated no-frontend"),
            ]);
            assert_eq!(verdicts("--cluster rules"), all, "{flavour}");
        }
    });
}

fn syslog_rules(endpoint: &str) -> String {
    format!(
        "*nat
:KUBE-SERVICES - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-EXT-A - [0:0]
:KUBE-SVC-A - [0:0]
:KUBE-SEP-A - [0:0]
-A KUBE-SERVICES ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
-A KUBE-NODEPORTS -p udp -m comment --comment \"log/syslog\" -m udp --dport 31514 -j KUBE-EXT-A
-A KUBE-EXT-A -j KUBE-SVC-A
-A KUBE-SVC-A -j KUBE-SEP-A
-A KUBE-SEP-A -p udp -m udp -j DNAT --to-destination {endpoint}
COMMIT
"
    )
}

#[test]
fn senders_to_an_address_that_was_absent_are_served_after_a_purge() {
    private_netns(|| {
        fresh();
        sysctl("acct", "1");
        for local in [
            "192.0.2.11/32",
            "203.0.113.77/32",
            "10.244.1.6/32",
            "10.244.1.7/32",
        ] {
            address("lo", local);
        }
        for n in 90..95 {
            address("lo", &format!("198.51.100.{n}/32"));
        }
        let base = "*nat\n:KUBE-SERVICES - [0:0]\n-A PREROUTING -j KUBE-SERVICES\n-A OUTPUT -j KUBE-SERVICES\nCOMMIT\n";
        run_with("iptables-nft-restore", &["--noflush"], base);
        nft(TRACK);
        let sender = |n: u16| Sender::new(&format!("198.51.100.{n}:70{n}"), "203.0.113.77:31514");
        let early = [sender(90), sender(91), sender(92)];
        early.iter().for_each(Sender::send);
        // The endpoint answers for a while and then ends.
        run_with(
            "iptables-nft-restore",
            &["--noflush"],
            &syslog_rules("10.244.1.7:514"),
        );
        let dying = UdpSocket::bind("10.244.1.7:514").unwrap();
        let left_over = sender(93);
        left_over.send();
        let (_, client) = dying.recv_from(&mut [0; 64]).unwrap();
        dying.send_to(b"answer", client).unwrap();
        drop(dying);
        run_with(
            "iptables-nft-restore",
            &["--noflush"],
            &syslog_rules("10.244.1.6:514"),
        );
        serve("10.244.1.6:514");
        let healthy = sender(94);
        assert!(healthy.is_answered());
        let all = expected(&[
            (7090, "stale no-dnat"),
            (7091, "stale no-dnat"),
            (7092, "stale no-dnat"),
            (7093, "suspect not-in-node-rules"),
            (7094, "ok endpoint"),
        ]);
        assert_eq!(verdicts("--cluster rules"), all);
        let ended = std::sync::atomic::AtomicBool::new(false);
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                    early
                        .iter()
                        .chain([&left_over, &healthy])
                        .for_each(Sender::send);
                    std::thread::sleep(std::time::Duration::from_millis(300));
                }
            });
            let outcome = ctk_line(
                "purge --cluster rules --stale --yes --sample 6s --include suspect --settle 0 --verify 0 -o json",
            );
            ended.store(true, std::sync::atomic::Ordering::Relaxed);
            outcome
        });
        let mut deleted: Vec<u64> = outcome
            .exits(0)
            .items()
            .iter()
            .map(|item| item["original"]["sport"].as_u64().unwrap())
            .collect();
        deleted.sort_unstable();
        assert_eq!(deleted, [7090, 7091, 7092, 7093]);
        for sender in early.iter().chain([&left_over, &healthy]) {
            assert!(sender.is_answered());
        }
    });
}
