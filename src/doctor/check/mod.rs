//! The checks, one a file.

mod deleted_service;
mod destination;
mod endpoint_silent;
mod hairpin;
mod half_closed;
mod kube_proxy_sync;
mod lost_pod;
mod never_translated;
mod old_kube_proxy;
mod port_exhaustion;
mod rules_behind;
mod skew;
mod stale_udp;
mod wrong_namespace;

pub use deleted_service::UnnamedDestination;
pub use endpoint_silent::EndpointSilent;
pub use hairpin::Hairpin;
pub use half_closed::HalfClosed;
pub use kube_proxy_sync::KubeProxySync;
pub use lost_pod::LostPod;
pub use never_translated::NeverTranslated;
pub use old_kube_proxy::OldKubeProxy;
pub use port_exhaustion::PortExhaustion;
pub use rules_behind::RulesBehind;
pub use skew::Skew;
pub use stale_udp::StaleUdp;
pub use wrong_namespace::WrongNamespace;
