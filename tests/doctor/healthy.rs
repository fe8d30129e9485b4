//! Nodes in ordinary use, generated from a seed: no finding is above level info.

use std::hash::{BuildHasher, RandomState};

use testkit::rows;

use crate::{cluster, doctor};
use testkit::dice::Dice;
use testkit::private_netns::private_netns;
use testkit::tools::{run, succeeds, sysctl};

const WORLDS: u64 = 20;
/// Variable with a seed, to repeat one generated node.
const SEED: &str = "CTK_TEST_SEED";

/// Node under construction.
struct World {
    dice: Dice,
    objects: Vec<String>,
    flows: Vec<String>,
    clients: Vec<String>,
    /// Every row has its own source port, because tuples must differ.
    port: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Traffic {
    Tcp,
    Questions,
    /// Syslog and similar protocols: no receiver answers.
    OneWay,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = World {
            dice: Dice(seed),
            objects: vec!["cidr 10.96.0.0/16".into()],
            flows: Vec::new(),
            clients: Vec::new(),
            port: 10_000,
        };
        for n in 0..3 + world.dice.below(10) {
            let address = format!("10.244.1.{}", 100 + n);
            world
                .objects
                .push(format!("pod shop/client-{n} {address} @node1"));
            world.clients.push(address);
        }
        for n in 0..2 + world.dice.below(9) {
            world.service(n);
        }
        for _ in 0..world.dice.below(400) {
            world.elsewhere();
        }
        world.sinks();
        world.local_service();
        world.hinted_service();
        world
    }

    fn service(&mut self, n: u64) {
        let traffic = *self.dice.of(&[
            Traffic::Tcp,
            Traffic::Tcp,
            Traffic::Questions,
            Traffic::OneWay,
        ]);
        let (protocol, port) = match traffic {
            Traffic::Tcp => ("TCP", 80),
            Traffic::Questions => ("UDP", 53),
            Traffic::OneWay => ("UDP", 514),
        };
        let vip = format!("10.96.{n}.10");
        let node_port = 30_000 + n;
        self.objects.push(format!(
            "svc ns/s{n} {vip} p:{port}/{protocol}@{node_port} type=NodePort"
        ));
        let mut slice = format!("slice ns/s{n} p:{port}/{protocol}");
        let endpoints: Vec<String> = (0..1 + self.dice.below(5))
            .map(|e| format!("10.244.2.{}", 10 * n + e + 1))
            .collect();
        for (e, address) in endpoints.iter().enumerate() {
            self.objects
                .push(format!("pod ns/s{n}-{e} {address} @node2"));
            // The last of several endpoints may terminate and still serve.
            let leaves = e > 0 && e + 1 == endpoints.len() && self.dice.one_in(3);
            let conditions = if leaves {
                "!ready,serving,terminating"
            } else {
                "ready,serving"
            };
            slice.push_str(&format!(" {address}({conditions})@node2->s{n}-{e}"));
        }
        self.objects.push(slice);
        for _ in 0..self.dice.below(300) {
            self.flow_to(traffic, &vip, port, node_port, &endpoints);
        }
        if self.dice.one_in(2) {
            let flag = match traffic {
                Traffic::OneWay => "[UNREPLIED]",
                _ => "[ASSURED]",
            };
            // Pod that reaches itself through a Service.
            for _ in 0..1 + self.dice.below(12) {
                let (port_of_client, itself) = (self.next_port(), &endpoints[0]);
                self.flows.push(format!(
                    "{} src={itself} dst={vip} sport={port_of_client} dport={port} src={itself} dst=192.0.2.11 sport={port} dport={port_of_client} {flag}",
                    head(traffic, "ESTABLISHED")
                ));
            }
        }
    }

    fn flow_to(
        &mut self,
        traffic: Traffic,
        vip: &str,
        port: u64,
        node_port: u64,
        endpoints: &[String],
    ) {
        let state = *self.dice.of(&[
            "ESTABLISHED",
            "ESTABLISHED",
            "ESTABLISHED",
            "TIME_WAIT",
            "TIME_WAIT",
            "CLOSE",
            "FIN_WAIT",
        ]);
        let (endpoint, sport) = (self.dice.of(endpoints).clone(), self.next_port());
        // A query under way has no answer yet.
        let waits =
            traffic == Traffic::OneWay || (traffic == Traffic::Questions && self.dice.one_in(40));
        let flag = if waits { "[UNREPLIED]" } else { "[ASSURED]" };
        let head = head(traffic, state);
        if self.dice.one_in(6) {
            let outside = format!("198.51.100.{}", 1 + self.dice.below(200));
            self.flows.push(format!(
                "{head} src={outside} dst=192.0.2.11 sport={sport} dport={node_port} src={endpoint} dst=192.0.2.11 sport={port} dport={sport} {flag}"
            ));
        } else {
            let client = self.dice.of(&self.clients).clone();
            self.flows.push(format!(
                "{head} src={client} dst={vip} sport={sport} dport={port} src={endpoint} dst={client} sport={port} dport={sport} {flag}"
            ));
        }
    }

    /// Flows outside Services: to pods, to external hosts and masqueraded, of the node itself, pings.
    fn elsewhere(&mut self) {
        let (sport, client) = (self.next_port(), self.dice.of(&self.clients).clone());
        let outside = format!("203.0.113.{}", 1 + self.dice.below(200));
        let line = match self.dice.below(6) {
            0 => format!(
                "tcp ESTABLISHED src={client} dst={outside} sport={sport} dport=443 src={outside} dst=192.0.2.11 sport=443 dport={sport} [ASSURED]"
            ),
            // Filtered, or down.
            1 => format!(
                "tcp SYN_SENT src={client} dst={outside} sport={sport} dport=25 [UNREPLIED] src={outside} dst=192.0.2.11 sport=25 dport={sport}"
            ),
            2 => format!(
                "udp src=192.0.2.11 dst={outside} sport={sport} dport=123 src={outside} dst=192.0.2.11 sport=123 dport={sport}"
            ),
            3 => format!(
                "tcp ESTABLISHED src={client} dst=192.0.2.11 sport={sport} dport=10250 src=192.0.2.11 dst={client} sport=10250 dport={sport} [ASSURED]"
            ),
            4 => {
                let other = self.dice.of(&self.clients).clone();
                format!(
                    "udp src={client} dst={other} sport={sport} dport=9999 src={other} dst={client} sport=9999 dport={sport} [UNREPLIED]"
                )
            }
            _ => format!(
                "icmp src={client} dst={outside} type=8 code=0 id={sport} src={outside} dst={client} type=0 code=0 id={sport}"
            ),
        };
        self.flows.push(line);
    }

    /// Receivers that never answer: on a network shared with other machines, and broadcast or multicast.
    fn sinks(&mut self) {
        self.objects
            .push("pod shop/shares-the-network 172.31.5.7 @node1".into());
        for sink in ["172.31.5.200", "172.31.5.255", "10.244.1.255", "239.1.1.1"] {
            for _ in 0..self.dice.below(60) {
                let (sport, client) = (self.next_port(), self.dice.of(&self.clients).clone());
                self.flows.push(format!(
                    "udp src={client} dst={sink} sport={sport} dport=514 [UNREPLIED] src={sink} dst={client} sport=514 dport={sport}"
                ));
            }
        }
    }

    /// Policy Local: external clients reach this node's endpoint only.
    fn local_service(&mut self) {
        self.objects.push(
            "svc edge/local 10.96.200.10 p:80/TCP@31000 type=LoadBalancer externalTrafficPolicy=Local ingress=203.0.113.250"
                .into(),
        );
        self.objects.push(
            "slice edge/local p:80/TCP 10.244.1.240(ready)@node1->l-0 10.244.2.240(ready)@node2->l-1 10.244.2.241(ready)@node2->l-2"
                .into(),
        );
        for (n, address) in ["10.244.1.240", "10.244.2.240", "10.244.2.241"]
            .iter()
            .enumerate()
        {
            let node = if n == 0 { "node1" } else { "node2" };
            self.objects
                .push(format!("pod edge/l-{n} {address} @{node}"));
        }
        for _ in 0..self.dice.below(120) {
            let (sport, outside) = (self.next_port(), 1 + self.dice.below(200));
            let (to, port) = *self
                .dice
                .of(&[("203.0.113.250", 80), ("192.0.2.11", 31_000)]);
            self.flows.push(format!(
                "tcp ESTABLISHED src=198.51.100.{outside} dst={to} sport={sport} dport={port} src=10.244.1.240 dst=198.51.100.{outside} sport=80 dport={sport} [ASSURED]"
            ));
        }
    }

    /// Topology hints: two of six endpoints are in this node's zone.
    fn hinted_service(&mut self) {
        let endpoints: Vec<serde_json::Value> = (0..6)
            .map(|n| {
                let zone = ["a", "b", "c"][n / 2];
                serde_json::json!({
                    "addresses": [format!("10.244.2.{}", 230 + n)],
                    "conditions": {"ready": true, "serving": true, "terminating": false},
                    "nodeName": "node2",
                    "hints": {"forZones": [{"name": zone}]},
                })
            })
            .collect();
        self.objects
            .push("svc edge/hinted 10.96.201.10 p:80/TCP".into());
        self.objects.push(
            serde_json::json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
                "metadata": {"name": "hinted-1", "namespace": "edge",
                    "labels": {"kubernetes.io/service-name": "hinted"}},
                "ports": [{"name": "p", "port": 80, "protocol": "TCP"}],
                "endpoints": endpoints,
            })
            .to_string(),
        );
        for _ in 0..self.dice.below(120) {
            let (sport, client) = (self.next_port(), self.dice.of(&self.clients).clone());
            let endpoint = 230 + self.dice.below(2);
            self.flows.push(format!(
                "tcp ESTABLISHED src={client} dst=10.96.201.10 sport={sport} dport=80 src=10.244.2.{endpoint} dst={client} sport=80 dport={sport} [ASSURED]"
            ));
        }
    }

    fn next_port(&mut self) -> u64 {
        self.port += 1;
        self.port
    }
}

/// Foreign bridge whose ports have no hairpin mode, where a bridge can be created.
fn foreign_bridge() {
    if succeeds("ip", &["link", "add", "docker0", "type", "bridge"]) {
        let pair = [
            "link", "add", "veth-a", "type", "veth", "peer", "name", "veth-b",
        ];
        run("ip", &pair);
        run("ip", &["link", "set", "veth-a", "master", "docker0"]);
    }
}

fn head(traffic: Traffic, state: &str) -> String {
    match traffic {
        Traffic::Tcp => format!("tcp {state}"),
        Traffic::Questions | Traffic::OneWay => "udp".to_owned(),
    }
}

#[test]
fn a_healthy_node_has_nothing_above_info() {
    private_netns(|| {
        let given = std::env::var(SEED)
            .ok()
            .map(|seed| seed.parse::<u64>().expect("a number"));
        let first = given.unwrap_or_else(|| RandomState::new().hash_one(0) >> 1);
        let worlds = if given.is_some() { 1 } else { WORLDS };
        for seed in first..first + worlds {
            println!("{SEED}={seed}");
            crate::new_node();
            foreign_bridge();
            let world = World::new(seed);
            sysctl("acct", if seed % 2 == 0 { "1" } else { "0" });
            let flows: Vec<_> = world.flows.iter().map(|line| rows::flow(line)).collect();
            for (line, result) in world.flows.iter().zip(rows::table().insert_all(&flows)) {
                assert_eq!(result, Ok(()), "{line}");
            }
            let file = cluster(&world.objects);
            // One node is looked at three times; all of them would take minutes.
            let sample = if seed == first { "6s" } else { "0" };
            let outcome = doctor(&file, &format!("--sample {sample}"));
            let bad: Vec<_> = outcome
                .items()
                .into_iter()
                .filter(|item| item["severity"] != "info")
                .collect();
            assert!(bad.is_empty(), "{SEED}={seed}: {bad:#?}");
            assert_eq!(outcome.status, Some(0), "{SEED}={seed}: {outcome:#?}");
            assert_eq!(
                outcome.json()["summary"]["scanned"],
                flows.len(),
                "{SEED}={seed}"
            );
        }
    });
}
