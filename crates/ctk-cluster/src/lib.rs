//! Services, endpoints, Pods and Nodes of a cluster. This crate knows neither flows nor netlink conntrack.
//!
//! A [`source`] names where the objects come from: a file, or a [`live`] cluster. The [`lister`] requests the lists of a live
//! cluster one by one from a [`server`], over HTTPS (`api`) or by [`kubectl`]. The [`list_decoder`] reads them item by item into
//! the slim shapes of [`object`]. [`build`] joins these into the [`index`], which answers by address. [`read_scope`] limits how
//! much is read. [`follow`] keeps a live cluster current. [`own`] knows the connections that these requests use.
//!
//! [`rules`] holds the translation rules of this node, and [`compare`] finds the differences between rules and objects.
//! [`datapath`] recognizes programs that translate in place of kube-proxy.

#![forbid(unsafe_code)]

mod addresses;
#[cfg(feature = "kube")]
pub mod api;
mod bounded_read;
pub mod build;
pub mod compare;
pub mod connection;
pub mod datapath;
pub mod follow;
pub mod index;
mod items;
mod join;
pub mod kubectl;
pub mod list_decoder;
pub mod list_status;
pub mod lister;
pub mod live;
pub mod object;
pub mod own;
pub mod read_scope;
pub mod rules;
pub mod server;
pub mod service_scope;
pub mod source;
pub mod tool;
mod warnings;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
