//! Node with real packets in one network namespace: clients, a ClusterIP with rules like kube-proxy's, backends that answer.
//!
//! All addresses are on `lo`. The namespace tracks real packets, because a rule uses connection tracking. Everything ends
//! with the namespace and with [`Lab`].

pub mod cluster;
mod rules;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;

use ctnetlink::Netns;

use crate::tools::run;
use cluster::{ClusterFile, node, pod, service, slice};
pub use rules::Proxy;

/// The Node object's address, on `lo` of the lab.
pub const NODE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 11);
/// kube-system/kube-dns.
pub const VIP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 96, 0, 10), 53);
/// coredns-a and coredns-b.
pub const BACKENDS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 244, 1, 7), Ipv4Addr::new(10, 244, 2, 33)];
/// shop/web-1 and shop/web-2.
pub const CLIENTS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 244, 1, 5), Ipv4Addr::new(10, 244, 1, 6)];

/// Time to wait for an answer.
const PATIENCE: Duration = Duration::from_millis(800);

/// Node. The Service has no rules until [`Lab::set_endpoints`].
pub struct Lab {
    proxy: Proxy,
    backends: Vec<Backend>,
}

impl Lab {
    /// Builds the node in the network namespace of the calling thread.
    pub fn new(proxy: Proxy) -> Self {
        let lab = Self::without_node_address(proxy);
        run("ip", &["addr", "add", &format!("{NODE}/32"), "dev", "lo"]);
        lab
    }

    /// Builds the same without the address of the Node, as in a namespace that is not the node's.
    pub fn without_node_address(proxy: Proxy) -> Self {
        run("ip", &["link", "set", "lo", "up"]);
        for address in CLIENTS.iter().chain(&BACKENDS) {
            run(
                "ip",
                &["addr", "add", &format!("{address}/32"), "dev", "lo"],
            );
        }
        // Services have no interface of their own. Packets to a removed pod end here, too, without an answer.
        for network in ["10.96.0.0/16", "10.244.0.0/16"] {
            run("ip", &["route", "add", network, "dev", "lo"]);
        }
        proxy.load_base();
        Lab {
            proxy,
            backends: BACKENDS.map(Backend::start).into(),
        }
    }

    /// Replaces the endpoints in the Service's rules, like kube-proxy. Existing entries stay.
    pub fn set_endpoints(&self, endpoints: &[Ipv4Addr]) {
        self.proxy.load_service(endpoints);
    }

    /// Stops a backend and removes its address.
    pub fn kill(&mut self, address: Ipv4Addr) {
        self.backends.retain(|backend| backend.address != address);
        run(
            "ip",
            &["addr", "del", &format!("{address}/32"), "dev", "lo"],
        );
    }

    /// Clients whose flows go to the first and the second backend: tries source ports until both are chosen. Each client has
    /// one answer.
    pub fn client_of_each(&self) -> [Client; 2] {
        let mut found = [None, None];
        for port in 40_000..40_064 {
            let client = Client::bind(CLIENTS[0], port);
            let answered = client.ask().expect("an endpoint answers");
            let place = BACKENDS.iter().position(|backend| *backend == answered);
            found[place.expect("a backend of the lab")].get_or_insert(client);
            if let [Some(_), Some(_)] = found {
                return found.map(Option::unwrap);
            }
        }
        panic!("64 clients were all sent to the same endpoint")
    }
}

/// Gives this namespace the address of the node in the lab's cluster files.
pub fn add_node_address() {
    let netns = Netns::current();
    ctnetlink::rtnetlink::add_loopback_address(&netns, NODE.into()).unwrap();
}

/// Cluster file for the lab, in which kube-dns has these endpoints, each with a pod.
pub fn cluster(endpoints: &[Ipv4Addr]) -> ClusterFile {
    ClusterFile::of(&cluster_objects(endpoints))
}

/// Objects of [`cluster()`].
pub fn cluster_objects(endpoints: &[Ipv4Addr]) -> Vec<Value> {
    let named: Vec<(Ipv4Addr, String)> = endpoints.iter().map(|a| (*a, pod_name(*a))).collect();
    let texts: Vec<String> = named.iter().map(|(a, _)| a.to_string()).collect();
    let backing: Vec<(&str, &str)> = texts
        .iter()
        .zip(&named)
        .map(|(address, (_, name))| (address.as_str(), name.as_str()))
        .collect();
    let mut objects = cluster::minimal(NODE);
    objects.push(service(
        "kube-system",
        "kube-dns",
        &VIP.ip().to_string(),
        &[("dns", 53, "UDP"), ("dns-tcp", 53, "TCP")],
    ));
    objects.push(slice(
        "kube-system",
        "kube-dns",
        &[("dns", 53, "UDP"), ("dns-tcp", 53, "TCP")],
        &backing,
    ));
    objects.push(node("node2", "192.0.2.12"));
    for (address, name) in &named {
        objects.push(pod("kube-system", name, &address.to_string(), "node2"));
    }
    for (address, name) in CLIENTS.iter().zip(["web-1", "web-2"]) {
        objects.push(pod("shop", name, &address.to_string(), "node1"));
    }
    objects
}

/// `coredns-a` for the first backend, `coredns-b` for the second.
pub fn pod_name(backend: Ipv4Addr) -> String {
    let place = BACKENDS.iter().position(|address| *address == backend);
    ["coredns-a", "coredns-b"][place.expect("a backend of the lab")].to_owned()
}

/// Server that answers every datagram with its own address, until it is dropped.
struct Backend {
    address: Ipv4Addr,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Backend {
    fn start(address: Ipv4Addr) -> Self {
        let socket = UdpSocket::bind((address, 53)).expect("the address is on lo");
        socket
            .set_read_timeout(Some(Duration::from_millis(20)))
            .unwrap();
        let ended = Arc::new(AtomicBool::new(false));
        let stop = ended.clone();
        let thread = std::thread::spawn(move || {
            let mut question = [0; 512];
            while !stop.load(Ordering::Relaxed) {
                if let Ok((_, client)) = socket.recv_from(&mut question) {
                    // The client may have ended.
                    let _ = socket.send_to(&address.octets(), client);
                }
            }
        });
        Backend {
            address,
            ended,
            thread: Some(thread),
        }
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Client that keeps its source port, like resolvers, log shippers and SIP phones.
pub struct Client {
    socket: UdpSocket,
}

impl Client {
    pub fn bind(address: Ipv4Addr, port: u16) -> Self {
        let socket = UdpSocket::bind((address, port)).expect("the address is on lo");
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Client { socket }
    }

    pub fn port(&self) -> u16 {
        self.socket.local_addr().unwrap().port()
    }

    /// Sends one datagram to the Service and does not wait.
    pub fn send(&self) {
        // A packet that the node drops on output is an error here. The client sees no answer.
        let _ = self.socket.send_to(b"question", SocketAddr::V4(VIP));
    }

    /// Sends one datagram to the Service. Returns the backend that answered, `None` without an answer.
    pub fn ask(&self) -> Option<Ipv4Addr> {
        self.send();
        let mut answer = [0; 4];
        match self.socket.recv_from(&mut answer) {
            Ok((4, from)) => {
                assert_eq!(from, SocketAddr::V4(VIP), "the answer is translated back");
                Some(Ipv4Addr::from(answer))
            }
            Ok(other) => panic!("{other:?}"),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) => panic!("{error}"),
        }
    }
}
