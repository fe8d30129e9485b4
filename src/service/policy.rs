//! Traffic policies of a Service.

/// Which endpoints a traffic policy lets packets go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    Cluster,
    /// Those on the node only.
    Local,
}

impl Policy {
    pub fn of(local: bool) -> Self {
        if local {
            Policy::Local
        } else {
            Policy::Cluster
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Policy::Cluster => "cluster",
            Policy::Local => "local",
        }
    }
}
