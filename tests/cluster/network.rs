//! Network namespaces of the cluster, and the links between them.
//!
//! The namespace of the test itself is the control plane's machine, with a bridge to the two nodes and an external machine.
//! Pods are addresses in one namespace for each node, behind a link of their own as a network plug-in makes it: clients and
//! backends of the first node, backends of the second.

use std::fs;

use ctnetlink::netns::Netns;

use testkit::tools::run;

pub const MASTER: &str = "192.0.2.10";
/// Addresses of node1 and node2.
pub const NODES: [&str; 2] = ["192.0.2.1", "192.0.2.2"];
pub const OUTSIDE: &str = "192.0.2.100";
/// Ports that every backend pod answers on.
pub const POD_PORTS: [u16; 4] = [53, 5353, 8053, 9153];

/// Pod address of node 1 or 2. Backends are 10 to 39, clients of node 1 are 100 to 119.
pub fn pod_address(node: usize, last: u64) -> String {
    format!("10.244.{node}.{last}")
}

/// Namespaces of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    Node(usize),
    /// Client pods of node1.
    Clients,
    /// Backend pods of node 1 or 2.
    Backends(usize),
    Outside,
}

impl Place {
    fn name(self) -> String {
        match self {
            Place::Node(n) => format!("node{n}"),
            Place::Clients => "clients".to_owned(),
            Place::Backends(n) => format!("backends{n}"),
            Place::Outside => "outside".to_owned(),
        }
    }

    /// Runs `body` in this namespace, on a thread of its own. Its processes and sockets stay there.
    pub fn run<T: Send>(self, body: impl FnOnce() -> T + Send) -> T {
        let netns = Netns::named(&self.name()).expect("the namespaces were made");
        netns.run(body).expect("root may enter it")
    }
}

/// Creates all namespaces, links, addresses and routes.
pub fn build() {
    ip("link add bridge type bridge");
    ip(&format!("addr add {MASTER}/24 dev bridge"));
    ip("link set bridge up");
    for (place, address) in [
        (Place::Node(1), NODES[0]),
        (Place::Node(2), NODES[1]),
        (Place::Outside, OUTSIDE),
    ] {
        machine(place, address);
    }
    for (n, own) in [(1, NODES[0]), (2, NODES[1])] {
        node(n);
        let other = 3 - n;
        ip(&format!("route add 10.244.{n}.0/24 via {own}"));
        let through = NODES[other - 1];
        ip(&format!(
            "-n node{n} route add 10.244.{other}.0/24 via {through}"
        ));
        ip(&format!("-n node{n} route add default via {MASTER}"));
    }
    ip(&format!("-n outside route add default via {}", NODES[0]));
    pods(Place::Clients, 1, "10.244.1.1", 100..=119);
    pods(Place::Backends(1), 1, "10.244.1.254", 10..=39);
    pods(Place::Backends(2), 2, "10.244.2.254", 10..=39);
}

#[track_caller]
fn ip(line: &str) {
    run("ip", &line.split_whitespace().collect::<Vec<_>>());
}

fn named(place: Place) -> String {
    let name = place.name();
    ip(&format!("netns add {name}"));
    ip(&format!("-n {name} link set lo up"));
    name
}

/// Creates a namespace that is plugged into the bridge.
fn machine(place: Place, address: &str) {
    let name = named(place);
    ip(&format!(
        "link add to-{name} type veth peer name eth0 netns {name}"
    ));
    ip(&format!("link set to-{name} master bridge up"));
    ip(&format!("-n {name} addr add {address}/24 dev eth0"));
    ip(&format!("-n {name} link set eth0 up"));
}

/// Sets up a node: forwarding, asymmetric routes, and long timers.
fn node(n: usize) {
    Place::Node(n).run(|| {
        sysctl("ipv4/ip_forward", "1");
        for device in ["all", "default"] {
            sysctl(&format!("ipv4/conf/{device}/send_redirects"), "0");
            sysctl(&format!("ipv4/conf/{device}/rp_filter"), "0");
        }
        // No entry may expire while a slow machine works on a case.
        sysctl("netfilter/nf_conntrack_udp_timeout", "600");
        sysctl("netfilter/nf_conntrack_udp_timeout_stream", "600");
    });
}

/// Creates pods behind one link of a node: addresses, the node's route to each, and a gateway.
fn pods(place: Place, node: usize, gateway: &str, last: std::ops::RangeInclusive<u64>) {
    let name = named(place);
    let device = format!("cali-{name}");
    ip(&format!(
        "-n node{node} link add {device} type veth peer name eth0 netns {name}"
    ));
    ip(&format!("-n node{node} link set {device} up"));
    ip(&format!("-n {name} link set eth0 up"));
    ip(&format!("-n node{node} addr add {gateway}/32 dev {device}"));
    ip(&format!("-n {name} route add {gateway} dev eth0"));
    ip(&format!(
        "-n {name} route add default via {gateway} onlink dev eth0"
    ));
    for last in last {
        let address = pod_address(node, last);
        ip(&format!("-n {name} addr add {address}/32 dev eth0"));
        ip(&format!(
            "-n node{node} route add {address}/32 dev {device}"
        ));
    }
    place.run(|| {
        for device in ["all", "eth0"] {
            sysctl(&format!("ipv4/conf/{device}/rp_filter"), "0");
        }
    });
}

#[track_caller]
fn sysctl(name: &str, value: &str) {
    let path = format!("/proc/sys/net/{name}");
    fs::write(&path, value).unwrap_or_else(|error| panic!("{path}: {error}"));
}
