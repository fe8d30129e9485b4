//! Checks, one file each: the struct stores counts, `observe` counts an entry, `findings` reports.

mod allowance;

mod endpoint_silent;
mod expectations;
mod hairpin;
mod half_closed;
pub mod insert_failed;
mod kube_proxy_sync;
mod kube_proxy_version;
mod long_chains;
mod lost_pod;
mod never_translated;
mod port_exhaustion;
mod reverse_path;
mod rules_behind;
mod rules_not_understood;
mod settings;
mod skew;
mod stale_udp;
mod table_full;
mod unlisted;
mod unnamed_destination;
mod wrong_namespace;

pub use allowance::Allowance;
pub use endpoint_silent::EndpointSilent;
pub use expectations::Expectations;
pub use hairpin::Hairpin;
pub use half_closed::HalfClosed;
pub use insert_failed::InsertFailed;
pub use kube_proxy_sync::KubeProxySync;
pub use kube_proxy_version::KubeProxyVersion;
pub use long_chains::LongChains;
pub use lost_pod::LostPod;
pub use never_translated::NeverTranslated;
pub use port_exhaustion::PortExhaustion;
pub use reverse_path::ReversePath;
pub use rules_behind::RulesBehind;
pub use rules_not_understood::RulesNotUnderstood;
pub use settings::Settings;
pub use skew::Skew;
pub use stale_udp::StaleUdp;
pub use table_full::TableFull;
pub use unlisted::Unlisted;
pub use unnamed_destination::UnnamedDestination;
pub use wrong_namespace::WrongNamespace;
