//! Services, endpoints, Pods and Nodes. Knows neither flows nor netlink.
//!
//! A [`source`] names where the objects come from: a file, or a [`live`] cluster whose [`lists`] are asked for one after the
//! other of a [`server`], over HTTPS (`api`) or by [`kubectl`]. [`list`] reads them item by item into the slim shapes of [`object`];
//! [`build`] joins them into the [`index`], which answers by address; how much is read at all says [`wanted`]. [`follow`] keeps
//! a living cluster current. [`own`] knows the connections that all of this makes. [`rules`] is what a walk of the node's own rules found, and [`compare`] says where the two differ.
//! [`datapath`] knows who may translate in kube-proxy's place.

#[cfg(feature = "kube")]
pub mod api;
pub mod build;
pub mod compare;
pub mod datapath;
pub mod follow;
pub mod index;
mod items;
mod join;
pub mod kubectl;
pub mod list;
pub mod listed;
pub mod lists;
pub mod live;
pub mod object;
pub mod own;
pub mod rules;
pub mod server;
pub mod source;
pub mod wanted;
mod warnings;

#[cfg(test)]
mod endpoint_tests;
#[cfg(test)]
mod index_tests;
#[cfg(test)]
mod source_tests;
#[cfg(test)]
pub(crate) mod testing;
