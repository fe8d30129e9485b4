//! The node's rules as a cluster source: reading them in the namespace of the table, describing them, and finding kube-proxy's.

use std::path::Path;

use serde_json::{Value, json};

use crate::error::{CommandError, ExitStatus, chain};
use crate::plural::count;
use ctk_cluster::rules::lb_chain::ServiceFilter;
use ctk_cluster::rules::present::{self, Revision};
use ctk_cluster::rules::read::{self, Read, RulesError};
use ctk_cluster::rules::{NodeRules, Proxy};
use ctnetlink::netns::Netns;

use crate::session::table_access::RUN_AS_ROOT;

/// Reads a saved rule set, or the rules of the namespace.
///
/// # Errors
/// The rules cannot be read.
pub fn read(path: Option<&Path>, netns: &Netns) -> Result<Read, CommandError> {
    read_with_shares(path, netns, None)
}

/// Reads as [`read`] does, with the shares of new flows that the rules of one Service give to its endpoints.
///
/// # Errors
/// The rules cannot be read.
pub fn read_with_shares(
    path: Option<&Path>,
    netns: &Netns,
    wanted: Option<&ServiceFilter>,
) -> Result<Read, CommandError> {
    let read = match path {
        Some(path) => read::file(path, wanted),
        None => netns
            .run(|| read::here(wanted))
            .map_err(|error| CommandError::failed("--cluster rules").with_source(error))?,
    };
    read.map_err(|error| {
        let (status, hint) = match error {
            RulesError::Refused(_) => (ExitStatus::NotPermitted, RUN_AS_ROOT),
            RulesError::NoTool => (
                ExitStatus::Failed,
                "install iptables and nftables, or name a saved rule set: --cluster rules:FILE",
            ),
            RulesError::Failed(_) => (
                ExitStatus::Failed,
                "-v shows what was run; --cluster rules:FILE reads a saved rule set",
            ),
            RulesError::File { .. } | RulesError::Text { .. } => (
                ExitStatus::Failed,
                "save one with: (iptables-save; ip6tables-save; nft -j list ruleset) > rules.txt",
            ),
        };
        CommandError::new(status, "--cluster rules")
            .with_source(error)
            .hint(hint)
    })
}

/// Rules of the namespace, if they translate anything. Errors are logged only, since the user did not name this source.
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

/// State of the namespace's rules, for comparison with a later one. `None` where changes cannot be detected.
pub fn revision(netns: &Netns) -> Option<Revision> {
    netns.run(Revision::now).ok().flatten()
}

/// kube-proxy's rules of the namespace. `None` where they are absent or cannot be read.
pub fn of_kube_proxy(netns: &Netns) -> Option<Read> {
    automatic(netns).filter(|read| read.rules.has_kube_proxy())
}

/// kube-proxy's rules are in the namespace. Saved rules do not show that.
pub fn hold_kube_proxy(read: Option<&Read>, netns: &Netns) -> bool {
    match read.filter(|read| read.path.is_none()) {
        Some(read) => read.rules.has_kube_proxy(),
        None => of_kube_proxy(netns).is_some(),
    }
}

/// Describes the rules to `tell`, with what is missing or not understood.
pub fn describe(read: &Read, tell: &dyn Fn(&str)) {
    let rules = &read.rules;
    for note in &read.notes {
        tell(note);
    }
    let mut parts = Vec::new();
    if !rules.proxies.is_empty() {
        parts.push(format!(
            "kube-proxy's ({}) with {}",
            modes(rules).join(", "),
            count(
                (rules.frontends.len() + rules.node_ports.len()) as u64,
                "frontend",
                "frontends"
            )
        ));
    }
    if !rules.forwards.is_empty() {
        parts.push(format!(
            "{} not kube-proxy's",
            count(
                rules.forward_rules() as u64,
                "DNAT rule that is",
                "DNAT rules that are"
            )
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

/// Message about rules whose form is not known.
pub fn not_understood(rules: &NodeRules) -> Option<String> {
    let number = rules.not_understood();
    (number > 0).then(|| {
        format!(
            "{} of kube-proxy on this node {} a form that is not understood, so where {} is not known",
            count(number as u64, "rule", "rules"),
            if number == 1 { "has" } else { "have" },
            if number == 1 { "it leads" } else { "they lead" },
        )
    })
}

/// Modes of kube-proxy. In IPVS mode some rules of iptables belong to it, too.
fn modes(rules: &NodeRules) -> Vec<&'static str> {
    let ipvs = rules.proxies.contains(&Proxy::Ipvs);
    let modes = rules.proxies.iter();
    modes
        .filter(|proxy| !ipvs || **proxy != Proxy::Iptables)
        .map(|proxy| proxy.name())
        .collect()
}

/// Value of `summary.cluster.rules` in JSON.
pub fn summary(rules: &NodeRules) -> Value {
    json!({
        "kube_proxy": modes(rules),
        "frontends": rules.frontends.len() + rules.node_ports.len(),
        "forwards": rules.forward_rules(),
        "not_understood": rules.not_understood(),
    })
}
