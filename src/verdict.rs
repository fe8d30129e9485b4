//! Verdict of an entry (stale or not, and the reason), and whether it is refreshed and answered. Pure: time, cluster and
//! node are passed in.
//!
//! # Decision table
//!
//! The first row that matches decides. RS is the reply source, OD the original destination, each with its port; an entry is
//! *translated* when RS differs from OD (the addresses alone for a protocol without ports). Tuples are compared and never the bit `IPS_DST_NAT`, which IPVS
//! (`ip_vs_update_conntrack`) and entries inserted by hand do not set. The reply destination decides nothing: masquerading,
//! hairpins and port rewriting change it.
//!
//! | row | condition | verdict/reason | function or file |
//! |---|---|---|---|
//! | 1 | not CONFIRMED, or DYING | none | [`Judge::judge`] |
//! | 2 | OFFLOAD or HW_OFFLOAD | unknown/offloaded | `judge.rs` |
//! | 3 | zone not 0 and not named on the command line | unknown/foreign-zone | `judge.rs` |
//! | 4 | a kind of object that this entry needs was not read whole | unknown/source-incomplete | `incomplete`, `needs_nodes` |
//! | 4a | no Service port matches OD, a DNAT rule of the node does | see *DNAT rules* | `dnat_rule.rs` |
//! | 4b | the namespace is not known to be the node's | unknown/foreign-netns | `judge.rs` |
//! | 5 | OD is no frontend, first of: | | `no_frontend`, `owned_address` |
//! | | its address belongs only to Services that are not kube-proxy's, or has `ipMode: Proxy` | unknown/not-kube-proxy | |
//! | | translated, and the address is a clusterIP | stale/port-gone | |
//! | | the address is a Service's | unrelated/other-port | |
//! | | node port on an address, and this node's addresses are not known | unknown/source-incomplete | |
//! | | node port on another Node's address | unrelated/remote-node-port | |
//! | | translated, inside the Service range | stale/service-gone | |
//! | | translated, the Service range is not known, no Node's address | unknown/service-range-unknown | |
//! | | otherwise | unrelated/no-frontend | |
//! | 6 | ingress address with `ipMode: Proxy`, or a Service that is not kube-proxy's | unknown/not-kube-proxy | `foreign_service` |
//! | 6c | translated, RS is link-local and no endpoint | unknown/cni-internal | `frontend` |
//! | 7 | RS is a serving endpoint | ok/endpoint, draining/endpoint-terminating | `listed` |
//! | 8 | RS is listed and does not serve | stale/endpoint-not-serving | `listed` |
//! | 8b | RS is a second or later address of an endpoint | unknown/secondary-address | `frontend` |
//! | 9 | RS = OD, a clusterIP on an interface other than `kube-ipvs0` | unknown/nodelocal-dns | `not_translated` |
//! | 10 | RS is another frontend or node port of the Service | unknown/service-hop | `is_service_hop` |
//! | 11 | RS = OD, first of: | | `not_translated` |
//! | | policy Local, this node is not known, the Service has endpoints | unknown/source-incomplete | |
//! | | no endpoint is usable here, or the rules refuse OD | pending/no-dnat-no-endpoint | |
//! | | the rules do not translate OD | pending/no-dnat-no-rule | |
//! | | some rules are not understood; or, without rules, a node port on an address other than an InternalIP | unknown/source-incomplete | |
//! | | otherwise | stale/no-dnat | |
//! | 11b | a DNAT rule that is not kube-proxy's leads OD to RS | unknown/not-kube-proxy | `translated_elsewhere` |
//! | 11c | the Pods are needed and not known | unknown/source-incomplete | `translated_elsewhere` |
//! | 12 | the address of RS serves on another port | stale/endpoint-port-changed | `translated_elsewhere` |
//! | 13 | the address of RS is a living Pod that does not back the Service | stale/misdelivery; detached/pod-not-endpoint for established TCP and SCTP | `translated_elsewhere` |
//! | 14 | no endpoint of this family and port serves | stale/service-empty | `translated_elsewhere` |
//! | 15 | otherwise | stale/endpoint-gone | `translated_elsewhere` |
//!
//! Three rules change the result afterwards ([`Judge::judge`]): `stale` becomes unknown/source-incomplete where the entry
//! began after the time of the source; a result that holds only where kube-proxy translates becomes unknown/not-kube-proxy
//! where BPF programs replace it; and unrelated/no-frontend is explained by a DNAT rule that displaced the source port.
//!
//! *Node rules alone* (`by_rules.rs`): RS among the targets is ok/endpoint, among IPVS servers of weight 0
//! draining/endpoint-terminating; any other translated entry is suspect/not-in-node-rules; an untranslated entry is
//! stale/no-dnat, or pending/no-dnat-no-endpoint where the rules have no target or refuse.
//!
//! *DNAT rules* that are not kube-proxy's, such as published container ports and hostPorts (`dnat_rule.rs`): RS among the
//! targets of all rules that could match is ok/endpoint; otherwise stale/endpoint-gone or stale/no-dnat where every such rule
//! is understood and holds for the entry, else unknown/not-kube-proxy.
//!
//! # Source of each rule
//!
//! | rows | source |
//! |---|---|
//! | 1 | kernel: `nf_ct_is_confirmed`, `nf_ct_is_dying` in `include/net/netfilter/nf_conntrack.h` |
//! | 2 | kernel: `net/netfilter/nf_flow_table_core.c`; packets of such an entry pass by its timer and counters |
//! | 5 to 8, 12, 14, 15 | kube-proxy 1.32 and newer: `CleanStaleEntries` in `pkg/proxy/conntrack/cleanup.go`, which deletes UDP entries to a known frontend whose reply source is no serving endpoint |
//! | 5 (node ports) | kube-proxy takes a node port on any address for its own; ctk takes only addresses of this node |
//! | 6 | kube-proxy: `newBaseServiceInfo` in `pkg/proxy/serviceport.go` (`ipMode` of an ingress address), `ShouldSkipService` in `pkg/proxy/util/utils.go`, and the label `service.kubernetes.io/service-proxy-name` in `cmd/kube-proxy/app/server.go` |
//! | 7 | kube-proxy: `serving` counts besides `ready`, as `publishNotReadyAddresses` makes endpoints that are only ready |
//! | 8b | kube-proxy: `endpointSliceCache` in `pkg/proxy/endpointslicecache.go` uses the first address of an endpoint only |
//! | 11 | kube-proxy: `CategorizeEndpoints` in `pkg/proxy/topology.go` chooses the endpoints that a new packet could get |
//! | 13 | the API: an address that another Pod has now |

mod by_cluster;
mod by_rules;
#[cfg(test)]
mod cases;
mod decision;
mod dnat_rule;
mod evidence;
mod judge;
mod port_change;
mod refresh;
mod sample;
#[cfg(test)]
mod tests;

pub use evidence::Evidence;
pub use judge::{Judge, Judgement};
pub use port_change::{PortChange, PortHolder, wanted_reply};
pub use refresh::{
    Activity, MIN_OBSERVATION_GAP, Observation, RecentObservations, compare, is_recreated,
};
pub use sample::{MIN_SAMPLE, SampleRound, Sampler};

/// Verdict on an entry, by comparison with the cluster. The order is that of urgency, from `Stale` to `Unrelated`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verdict {
    Stale,
    Suspect,
    Detached,
    Pending,
    Draining,
    Unknown,
    Ok,
    Unrelated,
}

impl Verdict {
    pub const ALL: [Verdict; 8] = [
        Verdict::Stale,
        Verdict::Suspect,
        Verdict::Detached,
        Verdict::Pending,
        Verdict::Draining,
        Verdict::Unknown,
        Verdict::Ok,
        Verdict::Unrelated,
    ];

    /// Name on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Stale => "stale",
            Verdict::Suspect => "suspect",
            Verdict::Detached => "detached",
            Verdict::Pending => "pending",
            Verdict::Draining => "draining",
            Verdict::Unknown => "unknown",
            Verdict::Ok => "ok",
            Verdict::Unrelated => "unrelated",
        }
    }
}

/// Declares the reasons with their names and the verdict of each. A reason belongs to exactly one verdict.
macro_rules! reasons {
    ($($name:ident $word:literal $verdict:ident),* $(,)?) => {
        /// Reason of a verdict. The row of the decision table that leads to it is in the documentation of
        /// [`verdict`](self).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Reason { $($name),* }

        impl Reason {
            pub const ALL: &'static [Reason] = &[$(Reason::$name),*];

            /// Name on the command line and in JSON.
            pub const fn name(self) -> &'static str {
                match self { $(Reason::$name => $word),* }
            }

            /// Verdict that this reason explains.
            pub const fn verdict(self) -> Verdict {
                match self { $(Reason::$name => Verdict::$verdict),* }
            }
        }
    };
}

reasons! {
    Endpoint "endpoint" Ok,
    EndpointTerminating "endpoint-terminating" Draining,
    EndpointGone "endpoint-gone" Stale,
    EndpointNotServing "endpoint-not-serving" Stale,
    PortGone "port-gone" Stale,
    EndpointPortChanged "endpoint-port-changed" Stale,
    ServiceEmpty "service-empty" Stale,
    ServiceGone "service-gone" Stale,
    NoDnat "no-dnat" Stale,
    Misdelivery "misdelivery" Stale,
    NoDnatNoEndpoint "no-dnat-no-endpoint" Pending,
    NoDnatNoRule "no-dnat-no-rule" Pending,
    NotInNodeRules "not-in-node-rules" Suspect,
    PodNotEndpoint "pod-not-endpoint" Detached,
    SourceIncomplete "source-incomplete" Unknown,
    ForeignZone "foreign-zone" Unknown,
    Offloaded "offloaded" Unknown,
    NotKubeProxy "not-kube-proxy" Unknown,
    NodelocalDns "nodelocal-dns" Unknown,
    ServiceRangeUnknown "service-range-unknown" Unknown,
    SecondaryAddress "secondary-address" Unknown,
    ServiceHop "service-hop" Unknown,
    CniInternal "cni-internal" Unknown,
    ForeignNetns "foreign-netns" Unknown,
    NoFrontend "no-frontend" Unrelated,
    OtherPort "other-port" Unrelated,
    RemoteNodePort "remote-node-port" Unrelated,
}

/// Whether packets keep refilling the timer of an entry. Known from two observations at least 3 s apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Refreshing {
    Yes,
    No,
    #[default]
    Unknown,
}

impl Refreshing {
    pub const fn name(self) -> &'static str {
        match self {
            Refreshing::Yes => "yes",
            Refreshing::No => "no",
            Refreshing::Unknown => "unknown",
        }
    }
}

/// Replies as counters and status show them. Never a reason to call an entry stale: one-way protocols such as syslog are
/// healthy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Replies {
    TwoWay,
    OneWay,
    Stopped,
    #[default]
    Unknown,
}

impl Replies {
    pub const fn name(self) -> &'static str {
        match self {
            Replies::TwoWay => "two-way",
            Replies::OneWay => "one-way",
            Replies::Stopped => "stopped",
            Replies::Unknown => "unknown",
        }
    }

    /// Result of a single observation: one-way without a reply so far, else unknown.
    pub const fn of_one_observation(unreplied: bool) -> Self {
        if unreplied {
            Replies::OneWay
        } else {
            Replies::Unknown
        }
    }
}
