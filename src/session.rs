//! The cluster chosen and read, the node it is, and the one pipeline that takes an entry from the table to selected.

pub(crate) mod caveats;
pub(crate) mod cluster;
pub(crate) mod cluster_source;
pub(crate) mod namespaces;
pub(crate) mod node_identity;
pub(crate) mod node_probe;
pub(crate) mod node_rules;
pub(crate) mod own_addresses;
pub(crate) mod pipeline;
pub(crate) mod pod_choice;
pub(crate) mod read_scope;
pub(crate) mod sample;
pub(crate) mod table_access;
pub(crate) mod table_scan;
