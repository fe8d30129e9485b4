//! A router that answers its LAN's queries itself: real packets from a client in a namespace of its own.

use std::net::UdpSocket;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use serde_json::Value;
use testkit::ctk_binary::ctk_line;
use testkit::private_netns::{enter_new_netns, private_netns};
use testkit::tools::{nft, run, run_with};

use crate::packets::serve;
use crate::{expected, fresh, verdicts};

/// Rule that turns connection tracking on.
const TRACK: &str =
    "table inet t { chain c { type filter hook forward priority 0; ct state new accept; }; }";

const FW4: &str = "table inet fw4 {
 chain dstnat { type nat hook prerouting priority dstnat; policy accept;
  iifname \"br-lan\" jump dstnat_lan comment \"!fw4: Handle lan IPv4/IPv6 dstnat traffic\"
  iifname { \"wan\", \"wan6\" } jump dstnat_wan
 }
 chain dstnat_lan { meta nfproto ipv4 udp dport 53 counter redirect to :5353 comment \"!fw4: DNS\"; }
 chain dstnat_wan { meta nfproto ipv4 udp dport 53 counter dnat ip to 198.18.50.30:53; }
}";

const IPTABLES: &str = "*nat
:zone_lan - [0:0]
-A PREROUTING -i br-lan -m comment --comment \"!fw3\" -j zone_lan
-A zone_lan -p udp -m udp --dport 53 -j REDIRECT --to-ports 5353
COMMIT
";

/// Client on the LAN, 198.18.50.9, that sends a query to 198.51.100.53:53 from each port it is given, and reports whether an
/// answer came.
struct LanClient {
    ports: Sender<u16>,
    answered: Receiver<bool>,
}

impl LanClient {
    fn start() -> Self {
        let (ports, asked) = channel::<u16>();
        let (answers, answered) = channel();
        let (ready, namespace) = channel();
        std::thread::spawn(move || {
            enter_new_netns();
            let thread = nix::unistd::gettid();
            ready
                .send(format!("/proc/self/task/{thread}/ns/net"))
                .unwrap();
            let mut configured = false;
            for port in asked {
                if !configured {
                    for line in [
                        "link set lanp up",
                        "addr add 198.18.50.9/24 dev lanp",
                        "route add default via 198.18.50.1",
                    ] {
                        ip(line);
                    }
                    configured = true;
                }
                let socket = UdpSocket::bind(("198.18.50.9", port)).unwrap();
                socket
                    .set_read_timeout(Some(Duration::from_millis(500)))
                    .unwrap();
                let sent = socket.send_to(b"question", "198.51.100.53:53");
                let answer = sent.and_then(|_| socket.recv_from(&mut [0; 64]));
                answers.send(answer.is_ok()).unwrap();
            }
        });
        let path = namespace.recv().unwrap();
        let path = path.replace("/self/", &format!("/{}/", std::process::id()));
        ip(&format!("link set lanp netns {path}"));
        LanClient { ports, answered }
    }

    fn is_answered(&self, port: u16) -> bool {
        self.ports.send(port).unwrap();
        self.answered.recv().unwrap()
    }
}

fn ip(line: &str) {
    run("ip", &line.split_whitespace().collect::<Vec<_>>());
}

/// Router with br-lan and wan, and its client.
fn router() -> LanClient {
    fresh();
    for line in [
        "link add wan type veth peer name wanp",
        "link add br-lan type veth peer name lanp",
        "link set wan up",
        "link set wanp up",
        "link set br-lan up",
        "addr add 203.0.113.7/24 dev wan",
        "addr add 198.18.50.1/24 dev br-lan",
        "route add default via 203.0.113.1",
        "neigh add 203.0.113.1 lladdr 02:00:00:00:00:01 dev wan nud permanent",
    ] {
        ip(line);
    }
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
    LanClient::start()
}

#[test]
fn a_query_that_slipped_past_the_routers_resolver_is_stale_and_repaired() {
    private_netns(|| {
        for (tool, rules) in [("nft", FW4), ("iptables-nft-restore", IPTABLES)] {
            let lan = router();
            nft(TRACK);
            assert!(!lan.is_answered(40001), "{tool}: nobody answers");
            match tool {
                "nft" => nft(rules),
                tool => {
                    run_with(tool, &["--noflush"], rules);
                }
            }
            serve("198.18.50.1:5353");
            assert!(lan.is_answered(40002), "{tool}");
            assert!(!lan.is_answered(40001), "{tool}: the entry keeps its way");
            let own = UdpSocket::bind("203.0.113.7:40003").unwrap();
            own.send_to(b"question", "198.51.100.53:53").unwrap();
            let all = expected(&[
                (40001, "stale no-dnat"),
                (40002, "ok endpoint"),
                (40003, "unrelated no-frontend"),
            ]);
            assert_eq!(verdicts("--cluster rules"), all, "{tool}");
            // Two ways to the client: the incoming interface is not certain.
            ip("route add 198.18.50.0/24 dev wan metric 50");
            let purge = "purge --cluster rules --stale --yes --settle 0 --verify 0 -o json";
            assert!(deleted(purge).is_empty(), "{tool}");
            ip("route del 198.18.50.0/24 dev wan metric 50");
            ip("rule add from 198.18.50.0/24 lookup 100");
            assert!(deleted(purge).is_empty(), "{tool}");
            ip("rule del from 198.18.50.0/24 lookup 100");
            assert_eq!(deleted(purge), [40001], "{tool}");
            assert!(lan.is_answered(40001), "{tool}: repaired");
        }
    });
}

fn deleted(purge: &str) -> Vec<u64> {
    let outcome = ctk_line(purge);
    let items = outcome.items();
    let items = items.iter().filter(|item| item["result"] == "deleted");
    items
        .filter_map(|item| Value::as_u64(&item["original"]["sport"]))
        .collect()
}
