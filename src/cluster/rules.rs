//! The node's own rules as a source: what a walk from the entry chains found. Plain data; readers fill it.
