//! What is meant: the namespace, the cluster and the node behind the flags that were typed.

use std::fmt::Display;
use std::io::Write;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::cluster::index::Index;
use crate::cluster::lists::ChoosePods;
use crate::cluster::source::{self, ClusterError, ClusterSource, Loaded, Source, SourceKind};
use crate::error::{CommandError, Status};
use crate::netlink::{ErrorKind, NetlinkError};
use crate::netns::Netns;
use crate::output::{ClusterSummary, safe_text};
use crate::verdict::ThisNode;

use super::World;
use super::args::SourceArgs;
use super::remote::{self, Purpose};

/// How a cluster file is made.
pub const FETCH: &str =
    "fetch it with: kubectl get nodes,svc,endpointslices,pods -A -o json > cluster.json";

/// What helps where CAP_NET_ADMIN is missing.
pub const RUN_AS_ROOT: &str =
    "run it as root, or with CAP_NET_ADMIN in the user namespace that owns the network namespace";

/// A warning or a count, on stderr. It may hold names of others.
pub fn note(text: impl Display) {
    let text = safe_text(&text.to_string());
    // Nobody is left to tell when stderr is closed.
    let _ = writeln!(std::io::stderr(), "ctk: {text}");
}

/// The namespace whose table is meant.
pub fn netns(args: &SourceArgs) -> Result<Netns, CommandError> {
    netns_named(args.netns.as_deref())
}

/// The namespace that `--netns` names, else the own one.
pub fn netns_named(name: Option<&str>) -> Result<Netns, CommandError> {
    match name {
        None => Ok(Netns::current()),
        Some(name) => Netns::named(name).map_err(|error| {
            let status = if error.is_permission() {
                Status::NotPermitted
            } else {
                Status::Failed
            };
            CommandError::new(status, format!("--netns: {error}"))
        }),
    }
}

/// An empty table is what a pod's own namespace usually has.
pub fn note_empty(netns: &Netns) {
    if netns.is_initial() == Some(false) {
        note(format!(
            "{} has no entries; the node's own are in the host network namespace (hostNetwork: true, or --netns 1)",
            netns.label()
        ));
    }
}

/// An error of the kernel's table, with what helps.
pub fn netlink_error(error: NetlinkError) -> CommandError {
    match error.kind() {
        ErrorKind::NotPermitted => CommandError::new(Status::NotPermitted, error).hint(RUN_AS_ROOT),
        ErrorKind::NotAvailable => CommandError::failed(error)
            .hint("load the modules: modprobe nf_conntrack nf_conntrack_netlink"),
        ErrorKind::Other => CommandError::failed(error),
    }
}

/// A cluster that was read, and the node that the table belongs to.
pub struct Cluster {
    pub loaded: Loaded,
    pub node: ThisNode,
}

impl Cluster {
    /// Reads what `--cluster` names. `None` where there is no source: with `none`, and where `auto` finds none.
    pub fn read(
        world: World,
        args: &SourceArgs,
        netns: &Netns,
        purpose: Purpose,
        pods: Option<ChoosePods>,
    ) -> Result<Option<Self>, CommandError> {
        let loaded = match (&args.cluster, world.cluster) {
            (ClusterSource::Auto, Some(text)) => {
                let source = Source {
                    kind: SourceKind::File,
                    time: SystemTime::now(),
                    path: None,
                };
                Some(
                    source::load(text.as_bytes(), source, &args.service_cidr)
                        .map_err(cluster_error)?,
                )
            }
            (ClusterSource::Auto, None) => remote::auto(args, purpose, pods)?,
            (ClusterSource::Api, _) => Some(remote::api(args, purpose, pods)?),
            (source, _) => source.load(&args.service_cidr).map_err(cluster_error)?,
        };
        let Some(loaded) = loaded else {
            return Ok(None);
        };
        loaded.warnings.iter().for_each(note);
        let node = this_node(args, netns, &loaded);
        Ok(Some(Cluster { loaded, node }))
    }

    /// Age of what was read. `None` when it comes from the future.
    pub fn age(&self) -> Option<Duration> {
        self.loaded.source.time.elapsed().ok()
    }

    /// It can be read again; standard input cannot.
    pub fn can_be_read_again(&self) -> bool {
        self.loaded.source.kind != SourceKind::Stdin
    }

    /// Services and slices are whole.
    pub fn is_complete(&self) -> bool {
        self.loaded.summary.complete
    }

    /// What would make the source whole.
    pub fn remedy(&self) -> String {
        match self.loaded.source.kind {
            SourceKind::Api => remote::remedy(&self.loaded),
            SourceKind::File | SourceKind::Stdin => FETCH.to_owned(),
        }
    }

    /// What is missing, as kubectl calls it, Service ranges aside: few clusters need them.
    pub fn missing(&self) -> Vec<&'static str> {
        let missing = self.loaded.summary.missing.iter().copied();
        missing.filter(|kind| *kind != "servicecidrs").collect()
    }
}

/// Names and verdicts that were asked for need a source.
///
/// # Errors
/// Usage with `--cluster none`; partial where `auto` found nothing.
pub fn require_cluster(
    args: &SourceArgs,
    cluster: Option<&Cluster>,
    asked: bool,
) -> Result<(), CommandError> {
    if let Some(cluster) = cluster {
        let refused = remote::refused_all(&cluster.loaded).filter(|_| asked);
        return refused.map_or(Ok(()), Err);
    }
    let error = match (&args.cluster, asked) {
        (ClusterSource::None, true) => {
            CommandError::usage("names and verdicts cannot be selected with --cluster none")
        }
        (_, true) => CommandError::new(
            Status::Partial,
            "no cluster source, so names and verdicts are not known",
        ),
        (ClusterSource::None, false) => return Ok(()),
        (_, false) => {
            note("cluster: none; name one with --cluster FILE to see names and verdicts");
            return Ok(());
        }
    };
    Err(error.hint(format!("--cluster FILE, where {FETCH}")))
}

/// Says what of the answer is missing because the source is; whether anything is.
pub fn incomplete(cluster: Option<&Cluster>, asked: bool, undecided: u64) -> bool {
    let Some(cluster) = cluster else {
        return asked;
    };
    let missing = cluster.missing();
    if !cluster.is_complete() {
        note(format!(
            "the cluster source is incomplete ({}), so nothing is judged; {}",
            missing.join(", "),
            cluster.remedy()
        ));
        return true;
    }
    if undecided > 0 && !missing.is_empty() {
        note(format!(
            "{undecided} entries are not judged, because the cluster source lacks {}; {}",
            missing.join(", "),
            cluster.remedy()
        ));
        return true;
    }
    false
}

/// The node that `netns` belongs to, with what is odd about it on stderr.
fn this_node(args: &SourceArgs, netns: &Netns, loaded: &Loaded) -> ThisNode {
    let node = find_node(args.node.clone(), netns, &loaded.index);
    if node.local.is_none() {
        note("local addresses are not known");
    }
    let named = named_node(args.node.clone());
    if let Some(name) = named.filter(|_| node.object(&loaded.index).is_none()) {
        note(format!("the cluster source knows no Node named {name:?}"));
    }
    tracing::info!(node = ?node.name, namespace = ?node.namespace, "this node");
    node
}

/// The name that the flag gives, else the downward API's usual variable, set where ctk runs in a pod.
fn named_node(flag: Option<String>) -> Option<String> {
    let variable = || std::env::var("NODE_NAME").ok();
    flag.or_else(|| variable().filter(|name| !name.is_empty()))
}

/// The node that `netns` belongs to. `flag` is the value of `--node`.
pub fn find_node(flag: Option<String>, netns: &Netns, index: &Index) -> ThisNode {
    let local = netns.local_addresses();
    if let Err(error) = &local {
        tracing::info!(%error, "local addresses");
    }
    let hostname = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    ThisNode::find(
        Some(index),
        named_node(flag).as_deref(),
        Some(&hostname),
        local.ok(),
        netns.is_initial(),
    )
}

fn cluster_error(error: ClusterError) -> CommandError {
    match &error {
        ClusterError::NotAvailable(_) => {
            CommandError::failed(&error).hint(format!("name a file; {FETCH}"))
        }
        ClusterError::NoName | ClusterError::ServiceRange(_) => CommandError::usage(error),
        ClusterError::Open { .. } => {
            CommandError::failed(format!("--cluster: {error}")).hint(FETCH)
        }
        // A file that cannot be read to its end is an incomplete source.
        ClusterError::List { .. } => {
            CommandError::new(Status::Partial, format!("--cluster: {error}")).hint(FETCH)
        }
    }
}

/// What the summary says of the source.
pub fn cluster_summary(cluster: Option<&Cluster>) -> ClusterSummary {
    let Some(cluster) = cluster else {
        return ClusterSummary::default();
    };
    let summary = &cluster.loaded.summary;
    let mut extra = serde_json::Map::new();
    extra.insert("missing".to_owned(), summary.missing.clone().into());
    if let Ok(counts) = serde_json::to_value(summary.counts) {
        extra.insert("counts".to_owned(), counts);
    }
    let listed = &cluster.loaded.listed;
    if !listed.is_empty() {
        let states = listed.iter().map(|one| {
            let state = serde_json::to_value(one.state).unwrap_or_default();
            (one.kind.resource().to_owned(), state)
        });
        extra.insert("lists".to_owned(), Value::Object(states.collect()));
    }
    let time = humantime::format_rfc3339_seconds(cluster.loaded.source.time).to_string();
    extra.insert("time".to_owned(), Value::from(time));
    extra.insert("node".to_owned(), cluster.node.name.clone().into());
    ClusterSummary {
        source: summary.source,
        complete: summary.complete,
        extra,
    }
}
