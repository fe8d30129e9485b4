//! Stale or not, and why; kept alive or not. Pure: time, cluster and node are passed in.

mod case;
#[cfg(test)]
mod cases;
mod evidence;
mod finding;
mod forward;
mod refresh;
mod rule;
mod sample;
#[cfg(test)]
mod tests;

pub use evidence::Evidence;
pub use refresh::{APART, Look, Looks, Seen, compare, is_recreated};
pub use rule::{Judge, Judgement};
pub use sample::{MIN_SAMPLE, Round, Sampler};

/// What an entry is, compared with the cluster.
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

    /// The word of the command line and of JSON.
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

/// Declares the reasons with their words and the verdict each belongs to. `endpoint-gone` and the other reasons of
/// `stale` never appear with another verdict.
macro_rules! reasons {
    ($($name:ident $word:literal $verdict:ident),* $(,)?) => {
        /// Why the verdict is what it is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Reason { $($name),* }

        impl Reason {
            pub const ALL: &'static [Reason] = &[$(Reason::$name),*];

            /// The word of the command line and of JSON.
            pub const fn name(self) -> &'static str {
                match self { $(Reason::$name => $word),* }
            }

            /// The verdict that this reason explains.
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

/// Whether the entry's timer keeps being refilled. Needs two looks at least 3 s apart.
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

/// What counters and status say of the answers. Evidence only: one-way protocols are healthy without any.
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

    /// What a single look can tell: an entry that never saw a reply is one-way, of any other nothing is known.
    pub const fn of_one_look(unreplied: bool) -> Self {
        if unreplied {
            Replies::OneWay
        } else {
            Replies::Unknown
        }
    }
}
