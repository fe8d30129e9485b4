//! Services and endpoints of one family, made from a seed, and kube-proxy's targets for their packets.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

/// Detection of the node's own pods (`--detect-local-mode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detector {
    None,
    ClusterCidr,
    BridgeInterface,
    InterfaceNamePrefix,
}

#[derive(Debug)]
pub struct World {
    pub ipv6: bool,
    pub detector: Detector,
    pub masquerade_all: bool,
    /// `--nodeport-addresses`; none: every address of the node.
    pub node_port_addresses: Vec<IpAddr>,
    pub ports: Vec<ServicePort>,
}

#[derive(Debug)]
pub struct ServicePort {
    pub namespace: &'static str,
    pub name: String,
    /// Empty for an unnamed port.
    pub port_name: String,
    pub protocol: &'static str,
    pub cluster_ip: IpAddr,
    pub port: u16,
    pub node_port: Option<u16>,
    pub external_ips: Vec<IpAddr>,
    pub ingress_ips: Vec<IpAddr>,
    pub source_ranges: Vec<&'static str>,
    pub affinity: bool,
    pub internal_local: bool,
    pub external_local: bool,
    pub endpoints: Vec<Endpoint>,
}

#[derive(Clone, Copy, Debug)]
pub struct Endpoint {
    pub place: SocketAddr,
    /// The endpoint runs on this node.
    pub local: bool,
}

/// Address (none for a node port), IANA number of the protocol, port.
pub type Frontend = (Option<IpAddr>, u8, u16);

/// Endpoints that packets to a frontend can reach, and whether some packets are refused for want of endpoints.
pub type Reached = (BTreeSet<SocketAddr>, bool);

impl ServicePort {
    /// `ServicePortName.String`.
    pub fn full_name(&self) -> String {
        match self.port_name.as_str() {
            "" => format!("{}/{}", self.namespace, self.name),
            port => format!("{}/{}:{port}", self.namespace, self.name),
        }
    }

    pub fn is_external(&self) -> bool {
        let addresses = self.external_ips.len() + self.ingress_ips.len();
        self.node_port.is_some() || addresses > 0
    }

    pub fn has_local(&self) -> bool {
        self.endpoints.iter().any(|endpoint| endpoint.local)
    }

    /// Packets to the clusterIP find an endpoint.
    pub fn serves_inside(&self) -> bool {
        !self.endpoints.is_empty() && (!self.internal_local || self.has_local())
    }

    /// Packets from outside find an endpoint.
    pub fn serves_outside(&self) -> bool {
        !self.endpoints.is_empty() && (!self.external_local || self.has_local())
    }

    /// Endpoints of the chain for policy Local, or of the one for policy Cluster.
    pub fn chosen(&self, local: bool) -> Vec<Endpoint> {
        let all = self.endpoints.iter().copied();
        all.filter(|endpoint| endpoint.local || !local).collect()
    }

    /// `UsesClusterEndpoints` in `pkg/proxy/serviceport.go`.
    pub fn uses_cluster_chain(&self) -> bool {
        !self.endpoints.is_empty() && (!self.internal_local || self.is_external())
    }

    /// `UsesLocalEndpoints` in `pkg/proxy/serviceport.go`.
    pub fn uses_local_chain(&self) -> bool {
        self.has_local() && (self.internal_local || (self.external_local && self.is_external()))
    }
}

impl World {
    pub fn expected(&self) -> BTreeMap<Frontend, Reached> {
        let mut all = BTreeMap::new();
        for port in &self.ports {
            let number = match port.protocol {
                "tcp" => 6,
                "udp" => 17,
                _ => 132,
            };
            let places = |local: bool| -> BTreeSet<SocketAddr> {
                port.chosen(local).iter().map(|e| e.place).collect()
            };
            let inside = (places(port.internal_local), !port.serves_inside());
            all.insert((Some(port.cluster_ip), number, port.port), inside);
            // With policy Local packets of the node itself, and of its pods, go to every endpoint.
            let outside = (places(false), !port.serves_outside());
            for address in port.external_ips.iter().chain(&port.ingress_ips) {
                all.insert((Some(*address), number, port.port), outside.clone());
            }
            if let Some(node_port) = port.node_port {
                all.insert((None, number, node_port), outside);
            }
        }
        all
    }
}

/// Pseudo-random numbers of a seed (xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn one_in(&mut self, parts: u64) -> bool {
        self.below(parts) == 0
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

pub fn world(seed: u64, ipv6: bool, services: u64) -> World {
    let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let address = |network: u8, host: u64| -> IpAddr {
        let [high, low] = [(host >> 8) as u8, host as u8];
        let text = match (network, ipv6) {
            (0, false) => format!("10.96.{high}.{low}"),
            (1, false) => format!("10.244.{high}.{low}"),
            (2, false) => format!("203.0.113.{low}"),
            (_, false) => format!("192.0.2.{low}"),
            (network, true) => format!("2001:db8:{network}::{host:x}"),
        };
        text.parse().unwrap()
    };
    let detectors = [
        Detector::ClusterCidr,
        Detector::None,
        Detector::BridgeInterface,
        Detector::InterfaceNamePrefix,
    ];
    let node_port_addresses = match numbers.below(3) {
        0 => vec![],
        count => (1..=count).map(|host| address(3, host)).collect(),
    };
    let mut ports = Vec::new();
    for service in 1..=services {
        let shape = (service, &mut numbers);
        ports.extend(service_ports(shape, ipv6, &address));
    }
    World {
        ipv6,
        detector: numbers.pick(&detectors),
        masquerade_all: numbers.one_in(4),
        node_port_addresses,
        ports,
    }
}

/// Service of one to three ports, which share addresses, policies and affinity.
fn service_ports(
    (service, numbers): (u64, &mut Numbers),
    ipv6: bool,
    address: &dyn Fn(u8, u64) -> IpAddr,
) -> Vec<ServicePort> {
    let name = match numbers.below(8) {
        0 => format!("s{service}-{}", "x".repeat(57)),
        _ => format!("s{service}"),
    };
    let external = numbers.one_in(2);
    let some = |numbers: &mut Numbers, block: u64| -> Vec<IpAddr> {
        let count = if external { numbers.below(3) } else { 0 };
        (0..count)
            .map(|n| address(2, block + service * 2 + n))
            .collect()
    };
    let (external_ips, ingress_ips) = (some(numbers, 0), some(numbers, 128));
    let ranges: [&[&str]; 3] = match ipv6 {
        false => [
            &[],
            &["198.51.100.0/24"],
            &["198.51.100.0/24", "192.0.2.0/24"],
        ],
        true => [
            &[],
            &["2001:db8:9::/48"],
            &["2001:db8:9::/48", "2001:db8:3::/48"],
        ],
    };
    let source_ranges = match ingress_ips.is_empty() {
        true => vec![],
        false => numbers.pick(&ranges).to_vec(),
    };
    let node_ports = external && numbers.one_in(2);
    let affinity = numbers.one_in(4);
    let (internal_local, external_local) = (numbers.one_in(4), external && numbers.one_in(2));
    let count = numbers.pick(&[0, 1, 2, 2, 3, 9]);
    let hosts: Vec<(u64, bool)> = (0..count)
        .map(|n| (service * 16 + n, numbers.one_in(3)))
        .collect();
    let several = 1 + numbers.below(3);
    let names = ["", "a", "b-2"];
    (0..several)
        .map(|n| ServicePort {
            namespace: ["default", "kube-system", "shop-1"][(service % 3) as usize],
            name: name.clone(),
            port_name: names[if several == 1 { 0 } else { n as usize }].to_owned(),
            protocol: numbers.pick(&["tcp", "udp", "udp", "sctp"]),
            cluster_ip: address(0, service),
            port: 80 + n as u16,
            node_port: node_ports.then_some(30_000 + (service * 4 + n) as u16),
            external_ips: external_ips.clone(),
            ingress_ips: ingress_ips.clone(),
            source_ranges: source_ranges.clone(),
            affinity,
            internal_local,
            external_local,
            endpoints: hosts
                .iter()
                .map(|(host, local)| Endpoint {
                    place: SocketAddr::new(address(1, *host), 8080 + n as u16),
                    local: *local,
                })
                .collect(),
        })
        .collect()
}
