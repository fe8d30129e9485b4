//! Look-ups by address: (address, protocol, port) -> Service port; address -> pod, node, owner.

use std::net::IpAddr;
use std::time::SystemTime;

/// Position of a [`Service`] in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceId(pub u32);

/// Position of a [`ServicePort`] in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortId(pub u32);

/// How an address belongs to a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressKind {
    ClusterIp,
    ExternalIp,
    /// `status.loadBalancer.ingress[].ip`, ipMode absent or `VIP`.
    Ingress,
    /// The same with ipMode `Proxy`: the load balancer's own address, packets to it are not translated here.
    ProxyIngress,
}

#[derive(Debug)]
pub struct Service {
    pub namespace: Box<str>,
    pub name: Box<str>,
    /// False for headless, ExternalName and labelled Services that kube-proxy leaves alone.
    pub kube_proxy: bool,
    /// `internalTrafficPolicy: Local`.
    pub internal_local: bool,
    /// `externalTrafficPolicy: Local`.
    pub external_local: bool,
    /// Every address with how it belongs to the Service. Headless has none.
    pub addresses: Box<[(IpAddr, AddressKind)]>,
    pub ports: std::ops::Range<u32>,
}

#[derive(Debug)]
pub struct ServicePort {
    pub service: ServiceId,
    /// `None` for an unnamed port.
    pub name: Option<Box<str>>,
    /// IANA protocol number.
    pub protocol: u8,
    pub port: u16,
    pub node_port: Option<u16>,
    /// From every slice of the Service, families mixed (compare addresses). One address and port stands once: listed in
    /// two slices it keeps the more serving conditions.
    pub endpoints: Vec<Endpoint>,
}

#[derive(Debug)]
pub struct Endpoint {
    /// `addresses[0]`, the only one that kube-proxy uses.
    pub address: IpAddr,
    pub port: u16,
    pub ready: bool,
    /// The `serving` condition; see [`Endpoint::serves`].
    pub serving: bool,
    pub terminating: bool,
    pub node: Option<Box<str>>,
    /// Namespace and name of the pod in `targetRef`.
    pub pod: Option<(Box<str>, Box<str>)>,
    /// `addresses[1..]`.
    pub secondary: Box<[IpAddr]>,
}

impl Endpoint {
    /// kube-proxy may send new packets there: `ready` or `serving`.
    pub fn serves(&self) -> bool {
        self.ready || self.serving
    }
}

#[derive(Debug)]
pub struct Pod {
    pub namespace: Box<str>,
    pub name: Box<str>,
    pub node: Option<Box<str>>,
}

#[derive(Debug)]
pub struct Node {
    pub name: Box<str>,
    /// InternalIP addresses.
    pub internal: Box<[IpAddr]>,
    /// ExternalIP addresses, and InternalIPs again are not among them.
    pub external: Box<[IpAddr]>,
    /// `metadata.labels["kubernetes.io/hostname"]` or the Hostname address, where given.
    pub hostname: Option<Box<str>>,
}

/// A matched frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frontend {
    pub port: PortId,
    pub kind: AddressKind,
}

/// Which kinds were read whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completeness {
    pub services: bool,
    pub slices: bool,
    pub pods: bool,
    pub nodes: bool,
    /// ServiceCIDR objects, or a range by flag.
    pub service_cidrs: bool,
}
