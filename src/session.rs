//! The cluster chosen and read, the node it is, and the one pipeline that takes an entry from the table to selected.

pub(crate) mod caveats;
pub(crate) mod cluster;
pub(crate) mod namespace;
pub(crate) mod node_probe;
pub(crate) mod node_rules;
pub(crate) mod pipeline;
pub(crate) mod pods;
pub(crate) mod remote;
pub(crate) mod sample;
pub(crate) mod scan;
pub(crate) mod this_node;
pub(crate) mod wanted;
