//! The node's rules as a cluster source: read in the namespace whose table is meant, described, and searched for
//! kube-proxy's.

use std::path::Path;

use serde_json::{Value, json};

use crate::error::{CommandError, Status, chain};
use crate::plural::count;
use ctk_cluster::rules::lb_chain::ServiceFilter;
use ctk_cluster::rules::present::{self, Revision};
use ctk_cluster::rules::read::{self, Read, ReadError};
use ctk_cluster::rules::{NodeRules, Proxy};
use ctnetlink::netns::Netns;

use crate::session::namespace::RUN_AS_ROOT;

/// A saved rule set, or the rules of the namespace.
///
/// # Errors
/// They cannot be read at all.
pub fn read(path: Option<&Path>, netns: &Netns) -> Result<Read, CommandError> {
    read_dealing(path, netns, None)
}

/// The same, and how the rules of one Service spread new flows over endpoints.
///
/// # Errors
/// They cannot be read at all.
pub fn read_dealing(
    path: Option<&Path>,
    netns: &Netns,
    wanted: Option<&ServiceFilter>,
) -> Result<Read, CommandError> {
    let read = match path {
        Some(path) => read::file(path, wanted),
        None => netns
            .run(|| read::here(wanted))
            .map_err(|error| CommandError::failed(format!("--cluster rules: {}", chain(&error))))?,
    };
    read.map_err(|error| {
        let text = format!("--cluster rules: {error}");
        match error {
            ReadError::Refused(_) => {
                CommandError::new(Status::NotPermitted, text).hint(RUN_AS_ROOT)
            }
            ReadError::NoTool => CommandError::failed(text).hint(
                "install iptables and nftables, or name a saved rule set: --cluster rules:FILE",
            ),
            ReadError::Failed(_) => CommandError::failed(text)
                .hint("-v shows what was run; --cluster rules:FILE reads a saved rule set"),
            ReadError::File { .. } | ReadError::Text { .. } => CommandError::failed(text).hint(
                "save one with: (iptables-save; ip6tables-save; nft -j list ruleset) > rules.txt",
            ),
        }
    })
}

/// The rules of the namespace, if they translate anything. Quiet: nobody asked for them.
pub fn automatic(netns: &Netns) -> Option<Read> {
    let here = || present::can_be().then(|| read::here(None));
    match netns.run(here) {
        Ok(None) => None,
        Ok(Some(Ok(read))) => Some(read).filter(|read| !read.rules.is_empty()),
        Ok(Some(Err(error))) => {
            tracing::info!(%error, "rules");
            None
        }
        Err(error) => {
            tracing::info!(error = chain(&error), "rules");
            None
        }
    }
}

/// State of the namespace's rules, to be compared with a later one. `None` where changes cannot be told.
pub fn revision(netns: &Netns) -> Option<Revision> {
    netns.run(Revision::now).ok().flatten()
}

/// kube-proxy's rules of the namespace, to be asked beside a file. `None` where there are none, or where they cannot be
/// read.
pub fn of_kube_proxy(netns: &Netns) -> Option<Read> {
    automatic(netns).filter(|read| read.rules.has_kube_proxy())
}

/// kube-proxy's rules are in the namespace. Saved ones do not tell.
pub fn hold_kube_proxy(read: Option<&Read>, netns: &Netns) -> bool {
    match read.filter(|read| read.path.is_none()) {
        Some(read) => read.rules.has_kube_proxy(),
        None => of_kube_proxy(netns).is_some(),
    }
}

/// Says what the source is, and what of it is missing or not understood.
pub fn describe(read: &Read, tell: &dyn Fn(&str)) {
    let rules = &read.rules;
    for note in &read.notes {
        tell(note);
    }
    let mut parts = Vec::new();
    if !rules.proxies.is_empty() {
        parts.push(format!(
            "kube-proxy's ({}) with {} frontends",
            modes(rules).join(", "),
            rules.frontends.len() + rules.node_ports.len()
        ));
    }
    if !rules.forwards.is_empty() {
        parts.push(format!(
            "{} DNAT rules that are not kube-proxy's",
            rules.forwards.len()
        ));
    }
    let what = match parts.is_empty() {
        true => "none that translates a destination".to_owned(),
        false => parts.join(", "),
    };
    match &read.path {
        None => tell(&format!("cluster: this node's rules: {what}")),
        Some(path) => tell(&format!("cluster: the rules in {}: {what}", path.display())),
    }
    not_understood(rules).iter().for_each(|text| tell(text));
}

/// Rules whose form is not known, for people.
pub fn not_understood(rules: &NodeRules) -> Option<String> {
    let odd = rules.not_understood();
    (odd > 0).then(|| {
        format!(
            "{} of kube-proxy on this node {} a form that is not understood, so where {} is not known",
            count(odd as u64, "rule", "rules"),
            if odd == 1 { "has" } else { "have" },
            if odd == 1 { "it leads" } else { "they lead" },
        )
    })
}

/// kube-proxy in IPVS mode needs some rules of iptables, too.
fn modes(rules: &NodeRules) -> Vec<&'static str> {
    let ipvs = rules.proxies.contains(&Proxy::Ipvs);
    let modes = rules.proxies.iter();
    modes
        .filter(|proxy| !ipvs || **proxy != Proxy::Iptables)
        .map(|proxy| proxy.name())
        .collect()
}

/// For `summary.cluster` in JSON.
pub fn summary(rules: &NodeRules) -> Value {
    json!({
        "kube_proxy": modes(rules),
        "frontends": rules.frontends.len() + rules.node_ports.len(),
        "forwards": rules.forwards.len(),
        "not_understood": rules.not_understood(),
    })
}
