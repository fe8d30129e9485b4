//! Status of each list of a live cluster, and its messages.

use serde::Serialize;

use super::object::Kind;

/// Completeness of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    Complete,
    Forbidden,
    Failed,
    /// Some pages or items are missing.
    Partial,
    /// The API server has no such resource, for example ServiceCIDRs before Kubernetes 1.31.
    NotServed,
}

/// Status of one list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub kind: Kind,
    pub state: State,
    /// Verb of the last request: `list`, or `watch` where the kind is followed.
    pub verb: &'static str,
    /// Reason for messages; `None` when complete.
    pub why: Option<String>,
}

/// Resource and group, as an RBAC rule names them.
fn rule(kind: Kind) -> &'static str {
    match kind {
        Kind::Service => "services",
        Kind::EndpointSlice => "endpointslices.discovery.k8s.io",
        Kind::Pod => "pods",
        Kind::Node => "nodes",
        Kind::ServiceCidr => "servicecidrs.networking.k8s.io",
    }
}

/// RBAC rules that are missing: `list on pods, nodes`. `None` when nothing was refused.
pub fn refused(listed: &[Listed]) -> Option<String> {
    let refused = listed.iter().filter(|one| one.state == State::Forbidden);
    let refused: Vec<&Listed> = refused.collect();
    let of = |verb: &str| {
        let rules = refused.iter().filter(|one| one.verb == verb);
        let rules: Vec<&str> = rules.map(|one| rule(one.kind)).collect();
        (!rules.is_empty()).then(|| format!("{verb} on {}", rules.join(", ")))
    };
    let both: Vec<String> = ["list", "watch"].into_iter().filter_map(of).collect();
    (!both.is_empty()).then(|| both.join("; "))
}

/// One line for all refused lists, and one for each list that failed.
pub(super) fn gaps(listed: &[Listed]) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(rules) = refused(listed) {
        lines.push(format!(
            "the API server forbids {rules}; a ClusterRole with these rules is missing"
        ));
    }
    for one in listed {
        let what = match one.state {
            State::Failed => "could not be listed",
            State::Partial => "were listed in part",
            _ => continue,
        };
        let why = one.why.as_deref().unwrap_or("unknown");
        lines.push(format!("{} {what}: {why}", one.kind.resource()));
    }
    lines
}
