//! Services, endpoints, Pods and Nodes. Knows neither flows nor netlink.

pub mod index;
