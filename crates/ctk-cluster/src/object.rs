//! Fields of Kubernetes objects that this crate uses.
//!
//! A Pod in the API's JSON has some 6 kB, of which about 100 bytes are used. One shape holds the fields of all five kinds:
//! they do not contradict each other, so that the order of `kind` and `spec` in the text is irrelevant.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Kinds that are read; every other one is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Service,
    EndpointSlice,
    Pod,
    Node,
    ServiceCidr,
}

impl Kind {
    /// All kinds, in the order in which `missing` names them.
    pub const ALL: [Kind; 5] = [
        Kind::Service,
        Kind::EndpointSlice,
        Kind::Pod,
        Kind::Node,
        Kind::ServiceCidr,
    ];

    /// Kind by name and API group. The group matters because other groups have a kind of the same name (Knative's Service);
    /// without an `apiVersion` the name alone decides.
    pub fn of(kind: &str, api_version: Option<&str>) -> Option<Kind> {
        let (kind, group) = match kind {
            "Service" => (Kind::Service, ""),
            "EndpointSlice" => (Kind::EndpointSlice, "discovery.k8s.io"),
            "Pod" => (Kind::Pod, ""),
            "Node" => (Kind::Node, ""),
            "ServiceCIDR" => (Kind::ServiceCidr, "networking.k8s.io"),
            _ => return None,
        };
        let given = api_version.map(|v| v.split_once('/').map_or("", |(group, _)| group));
        given.is_none_or(|given| given == group).then_some(kind)
    }

    /// Spelling of the API.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Service => "Service",
            Kind::EndpointSlice => "EndpointSlice",
            Kind::Pod => "Pod",
            Kind::Node => "Node",
            Kind::ServiceCidr => "ServiceCIDR",
        }
    }

    /// Name for `kubectl get`.
    pub const fn resource(self) -> &'static str {
        match self {
            Kind::Service => "services",
            Kind::EndpointSlice => "endpointslices",
            Kind::Pod => "pods",
            Kind::Node => "nodes",
            Kind::ServiceCidr => "servicecidrs",
        }
    }
}

/// A string that borrows from the text of the item unless it contains escapes. (Inside an `Option` serde would copy a bare
/// `Cow`.)
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(transparent)]
pub struct Str<'a>(#[serde(borrow)] Cow<'a, str>);

impl std::ops::Deref for Str<'_> {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

/// The string of an optional field, where an empty one counts as absent: the API uses both for "not set".
pub fn text<'i>(field: &'i Option<Str<'_>>) -> Option<&'i str> {
    field.as_deref().filter(|text| !text.is_empty())
}

/// Elements of a list that may be null or absent.
pub fn each<T>(list: &Option<Vec<T>>) -> &[T] {
    list.as_deref().unwrap_or_default()
}

/// Service, EndpointSlice, Pod, Node or ServiceCIDR.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Item<'a> {
    #[serde(borrow)]
    pub kind: Option<Str<'a>>,
    #[serde(borrow)]
    pub api_version: Option<Str<'a>>,
    #[serde(borrow)]
    pub metadata: Option<Metadata<'a>>,
    #[serde(borrow)]
    pub spec: Option<Spec<'a>>,
    #[serde(borrow)]
    pub status: Option<ApiStatus<'a>>,
    /// EndpointSlice.
    #[serde(borrow)]
    pub address_type: Option<Str<'a>>,
    /// EndpointSlice.
    #[serde(borrow)]
    pub endpoints: Option<Vec<SliceEndpoint<'a>>>,
    /// EndpointSlice.
    #[serde(borrow)]
    pub ports: Option<Vec<PortSpec<'a>>>,
}

/// Fields that name an item whose rest cannot be read.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header<'a> {
    #[serde(borrow)]
    pub kind: Option<Str<'a>>,
    #[serde(borrow)]
    pub api_version: Option<Str<'a>>,
    /// Left as text, because it may be the broken part.
    #[serde(borrow)]
    pub metadata: Option<&'a RawValue>,
}

/// Part of `metadata` that names an item.
#[derive(Debug, Deserialize)]
pub struct Named<'a> {
    #[serde(borrow)]
    pub name: Option<Str<'a>>,
    #[serde(borrow)]
    pub namespace: Option<Str<'a>>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
pub struct Metadata<'a> {
    #[serde(borrow)]
    pub name: Option<Str<'a>>,
    #[serde(borrow)]
    pub namespace: Option<Str<'a>>,
    #[serde(borrow)]
    pub labels: Option<Labels<'a>>,
    /// Version of the cluster's state in which the object was last changed.
    #[serde(borrow, rename = "resourceVersion")]
    pub version: Option<Str<'a>>,
    /// Not serialized: a followed cluster keeps its items as text.
    #[serde(borrow, skip_serializing)]
    pub uid: Option<Str<'a>>,
}

/// Labels that matter to kube-proxy or name the host of a Node.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct Labels<'a> {
    #[serde(borrow, rename = "kubernetes.io/service-name")]
    pub service_name: Option<Str<'a>>,
    #[serde(borrow, rename = "service.kubernetes.io/service-proxy-name")]
    pub proxy_name: Option<Str<'a>>,
    #[serde(borrow, rename = "service.kubernetes.io/headless")]
    pub headless: Option<Str<'a>>,
    #[serde(borrow, rename = "kubernetes.io/hostname")]
    pub hostname: Option<Str<'a>>,
}

impl Labels<'_> {
    /// kube-proxy watches with a selector that excludes both labels, whatever their value (cmd/kube-proxy, server.go).
    pub fn not_kube_proxy(&self) -> bool {
        self.proxy_name.is_some() || self.headless.is_some()
    }
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Spec<'a> {
    #[serde(borrow, rename = "type")]
    pub service_type: Option<Str<'a>>,
    #[serde(borrow, rename = "clusterIP")]
    pub cluster_ip: Option<Str<'a>>,
    #[serde(borrow, rename = "clusterIPs")]
    pub cluster_ips: Option<Vec<Str<'a>>>,
    #[serde(borrow, rename = "externalIPs")]
    pub external_ips: Option<Vec<Str<'a>>>,
    #[serde(borrow)]
    pub internal_traffic_policy: Option<Str<'a>>,
    #[serde(borrow)]
    pub external_traffic_policy: Option<Str<'a>>,
    #[serde(borrow)]
    pub session_affinity: Option<Str<'a>>,
    pub session_affinity_config: Option<AffinityConfig>,
    #[serde(borrow)]
    pub ports: Option<Vec<PortSpec<'a>>>,
    #[serde(borrow)]
    pub node_name: Option<Str<'a>>,
    pub host_network: Option<bool>,
    #[serde(borrow)]
    pub containers: Option<Vec<Container<'a>>>,
    #[serde(borrow)]
    pub init_containers: Option<Vec<Container<'a>>>,
    #[serde(borrow, rename = "podCIDR")]
    pub pod_cidr: Option<Str<'a>>,
    #[serde(borrow, rename = "podCIDRs")]
    pub pod_cidrs: Option<Vec<Str<'a>>>,
    #[serde(borrow)]
    pub cidrs: Option<Vec<Str<'a>>>,
}

#[derive(Debug, Deserialize, Serialize)]
pub struct AffinityConfig {
    #[serde(rename = "clientIP")]
    pub client_ip: Option<ClientIpConfig>,
}

#[derive(Debug, Deserialize, Serialize)]
pub struct ClientIpConfig {
    #[serde(rename = "timeoutSeconds")]
    pub timeout_seconds: Option<u32>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiStatus<'a> {
    #[serde(borrow)]
    pub load_balancer: Option<LoadBalancer<'a>>,
    #[serde(borrow)]
    pub phase: Option<Str<'a>>,
    #[serde(borrow, rename = "podIP")]
    pub pod_ip: Option<Str<'a>>,
    #[serde(borrow, rename = "podIPs")]
    pub pod_ips: Option<Vec<Ip<'a>>>,
    #[serde(borrow, rename = "hostIP")]
    pub host_ip: Option<Str<'a>>,
    #[serde(borrow, rename = "hostIPs")]
    pub host_ips: Option<Vec<Ip<'a>>>,
    #[serde(borrow)]
    pub addresses: Option<Vec<NodeAddress<'a>>>,
    #[serde(borrow)]
    pub node_info: Option<NodeInfo<'a>>,
}

/// Versions of the software of a Node.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeInfo<'a> {
    #[serde(borrow)]
    pub kubelet_version: Option<Str<'a>>,
    /// Empty since Kubernetes 1.33.
    #[serde(borrow)]
    pub kube_proxy_version: Option<Str<'a>>,
}

#[derive(Debug, Deserialize, Serialize)]
pub struct LoadBalancer<'a> {
    #[serde(borrow)]
    pub ingress: Option<Vec<Ingress<'a>>>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Ingress<'a> {
    #[serde(borrow)]
    pub ip: Option<Str<'a>>,
    #[serde(borrow)]
    pub ip_mode: Option<Str<'a>>,
}

#[derive(Debug, Deserialize, Serialize)]
pub struct Ip<'a> {
    #[serde(borrow)]
    pub ip: Option<Str<'a>>,
}

#[derive(Debug, Deserialize, Serialize)]
pub struct NodeAddress<'a> {
    #[serde(borrow, rename = "type")]
    pub address_type: Option<Str<'a>>,
    #[serde(borrow)]
    pub address: Option<Str<'a>>,
}

/// A port of a Service or of an EndpointSlice.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PortSpec<'a> {
    #[serde(borrow)]
    pub name: Option<Str<'a>>,
    #[serde(borrow)]
    pub protocol: Option<Str<'a>>,
    pub port: Option<u16>,
    pub node_port: Option<u16>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Container<'a> {
    #[serde(borrow)]
    pub restart_policy: Option<Str<'a>>,
    #[serde(borrow)]
    pub ports: Option<Vec<ContainerPort<'a>>>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerPort<'a> {
    pub container_port: Option<u16>,
    pub host_port: Option<u16>,
    #[serde(borrow)]
    pub protocol: Option<Str<'a>>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SliceEndpoint<'a> {
    #[serde(borrow)]
    pub addresses: Option<Vec<Str<'a>>>,
    pub conditions: Option<Conditions>,
    #[serde(borrow)]
    pub node_name: Option<Str<'a>>,
    #[serde(borrow)]
    pub target_ref: Option<TargetRef<'a>>,
    pub hints: Option<Hints>,
}

/// Only the presence of hints is used; kube-proxy interprets the nodes that they name.
#[derive(Debug, Default, Clone, Copy, Deserialize, Serialize)]
pub struct Hints {}

#[derive(Debug, Default, Clone, Copy, Deserialize, Serialize)]
pub struct Conditions {
    pub ready: Option<bool>,
    pub serving: Option<bool>,
    pub terminating: Option<bool>,
}

#[derive(Debug, Deserialize, Serialize)]
pub struct TargetRef<'a> {
    #[serde(borrow)]
    pub kind: Option<Str<'a>>,
    #[serde(borrow)]
    pub namespace: Option<Str<'a>>,
    #[serde(borrow)]
    pub name: Option<Str<'a>>,
}

/// IANA number of a Kubernetes protocol; absent means TCP. `None` for a word that the API does not define.
pub fn protocol(word: Option<&str>) -> Option<u8> {
    match word {
        None | Some("TCP") => Some(6),
        Some("UDP") => Some(17),
        Some("SCTP") => Some(132),
        Some(_) => None,
    }
}

/// Parses an address in any form that the API may hold. Also returns whether the text has the form that current parsers accept.
///
/// Old objects may hold IPv4 with leading zeros ("10.244.0.011"). Kubernetes reads them as decimal (ParseIPSloppy), and so
/// does this function. An IPv4-mapped IPv6 address (`::ffff:10.0.0.1`) stays an IPv6 address: the kernel tracks such
/// packets as IPv6, and a match between families would be a guess.
pub fn address(text: &str) -> Option<(IpAddr, bool)> {
    if let Ok(address) = text.parse() {
        return Some((address, true));
    }
    let mut octets = [0u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        if !part.bytes().all(|b| b.is_ascii_digit()) {
            return None; // `parse` alone would take "+1"
        }
        *octet = part.parse().ok()?;
    }
    parts
        .next()
        .is_none()
        .then(|| (Ipv4Addr::from(octets).into(), false))
}

/// Parses a range such as `10.96.0.0/12`; host bits are dropped. Leading zeros are accepted as in [`address`].
pub fn range(text: &str) -> Option<(IpNet, bool)> {
    let (network, length) = text.split_once('/')?;
    let (network, canonical) = address(network)?;
    let range = IpNet::new(network, length.parse().ok()?).ok()?;
    Some((range.trunc(), canonical))
}
