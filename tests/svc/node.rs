//! Node with a Service, backends that answer over TCP, and kube-proxy's rules.

use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use testkit::lab::{Proxy, add_node_address};
use testkit::tools::{nft, run, run_with};

const VIP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 96, 8, 8), 80);

pub const CLIENTS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 244, 2, 5), Ipv4Addr::new(10, 244, 2, 6)];

pub const BACKENDS: [Ipv4Addr; 3] = [
    Ipv4Addr::new(10, 244, 1, 1),
    Ipv4Addr::new(10, 244, 1, 2),
    Ipv4Addr::new(10, 244, 1, 3),
];

pub const PODS: [&str; 3] = ["web-a", "web-b", "web-c"];

/// Server that answers every byte with the same byte. Stops when dropped.
pub struct Backend {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Backend {
    fn start(address: Ipv4Addr) -> Self {
        let listener = TcpListener::bind((address, 8080)).expect("the address is on lo");
        listener.set_nonblocking(true).unwrap();
        let ended = Arc::new(AtomicBool::new(false));
        let stop = ended.clone();
        let thread = std::thread::spawn(move || {
            let mut connections: Vec<TcpStream> = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                if let Ok((connection, _)) = listener.accept() {
                    connection.set_nonblocking(true).unwrap();
                    connections.push(connection);
                }
                connections.retain_mut(answer);
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        Backend {
            ended,
            thread: Some(thread),
        }
    }
}

/// Returns false when the client has closed the connection.
fn answer(connection: &mut TcpStream) -> bool {
    let mut byte = [0];
    match connection.read(&mut byte) {
        Ok(0) => false,
        Ok(_) => connection.write_all(&byte).is_ok(),
        Err(error) => error.kind() == ErrorKind::WouldBlock,
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

/// Creates a node with three backends, in a new network namespace of the calling thread.
pub fn node() -> Vec<Backend> {
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
    run("ip", &["link", "set", "lo", "up"]);
    for address in CLIENTS.iter().chain(&BACKENDS) {
        run(
            "ip",
            &["addr", "add", &format!("{address}/32"), "dev", "lo"],
        );
    }
    run("ip", &["route", "add", "10.96.0.0/16", "dev", "lo"]);
    add_node_address();
    BACKENDS.map(Backend::start).into()
}

/// Replaces the Service's rules and thereby their counters.
pub fn load(proxy: Proxy, endpoints: &[Ipv4Addr]) {
    match proxy {
        Proxy::Iptables => run_with("iptables-restore", &[], &iptables(endpoints)),
        Proxy::Nftables => nft(&nftables(endpoints)),
    }
}

fn iptables(endpoints: &[Ipv4Addr]) -> String {
    let mut text = String::from(
        "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-SVC-WEB - [0:0]\n:KUBE-SEP-1 - [0:0]\n:KUBE-SEP-2 - [0:0]\n:KUBE-SEP-3 - [0:0]\n\
         -A OUTPUT -j KUBE-SERVICES\n-A PREROUTING -j KUBE-SERVICES\n\
         -A KUBE-SERVICES -d 10.96.8.8/32 -p tcp -m comment --comment \"shop/web:http cluster IP\" -m tcp --dport 80 -j KUBE-SVC-WEB\n",
    );
    for (place, endpoint) in endpoints.iter().enumerate() {
        let left = endpoints.len() - place;
        let chance = match left {
            1 => String::new(),
            _ => format!(
                "-m statistic --mode random --probability {:.11} ",
                1.0 / left as f64
            ),
        };
        let chain = format!("KUBE-SEP-{}", endpoint.octets()[3]);
        writeln!(
            text,
            "-A KUBE-SVC-WEB {chance}-j {chain}\n-A {chain} -p tcp -m tcp -j DNAT --to-destination {endpoint}:8080"
        )
        .unwrap();
    }
    text + "COMMIT\n"
}

fn nftables(endpoints: &[Ipv4Addr]) -> String {
    let mut text = String::from(
        "table ip kube-proxy { }\ndelete table ip kube-proxy\ntable ip kube-proxy {\n",
    );
    for endpoint in endpoints {
        writeln!(
            text,
            "chain endpoint-{} {{ meta l4proto tcp counter dnat to {endpoint}:8080; }}",
            endpoint.octets()[3]
        )
        .unwrap();
    }
    let targets = endpoints.iter().enumerate();
    let targets: Vec<String> = targets
        .map(|(place, endpoint)| format!("{place} : goto endpoint-{}", endpoint.octets()[3]))
        .collect();
    writeln!(
        text,
        "set cluster-ips {{ type ipv4_addr; elements = {{ 10.96.8.8 }}; }}
         chain web {{ numgen random mod {} vmap {{ {} }}; }}
         map service-ips {{
             type ipv4_addr . inet_proto . inet_service : verdict;
             elements = {{ 10.96.8.8 . tcp . 80 comment \"shop/web:http\" : goto web }};
         }}
         chain services {{ ip daddr . meta l4proto . th dport vmap @service-ips; }}
         chain nat-output {{ type nat hook output priority -100; policy accept; jump services; }}
         }}",
        endpoints.len(),
        targets.join(", ")
    )
    .unwrap();
    text
}

/// Connection to the Service, over which `requests` requests were answered.
pub fn connection(client: Ipv4Addr, requests: usize) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddrV4::new(client, 0)).unwrap();
    connect(&socket, &VIP).expect("an endpoint takes the connection");
    let mut connection = TcpStream::from(socket);
    for _ in 0..requests {
        let mut byte = [7];
        connection.write_all(&byte).unwrap();
        connection.read_exact(&mut byte).unwrap();
    }
    connection
}
