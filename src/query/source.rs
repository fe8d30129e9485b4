//! The table and the cluster source that are meant.

use std::path::PathBuf;
use std::time::Duration;

use ctk_cluster::source::ClusterSource;
use ctnetlink::netns::Netns;
use ipnet::IpNet;

use crate::args::{NetnsArgs, SourceArgs};
use crate::error::{CommandError, ExitStatus};

/// Cluster objects that are part of the program: `--cluster auto` means them in the demo.
#[derive(Clone, Copy, Debug, Default)]
pub struct BuiltinCluster(pub Option<&'static str>);

/// The network namespace whose table is meant, and the source of names and verdicts for it.
#[derive(Clone, Debug)]
pub struct SourceQuery {
    pub netns: Netns,
    pub cluster: ClusterSource,
    pub builtin: BuiltinCluster,
    /// `--kubeconfig`, instead of KUBECONFIG and `~/.kube/config`.
    pub kubeconfig: Option<PathBuf>,
    pub context: Option<String>,
    /// Longest time for reading the cluster's API. `None`: the default of the source.
    pub request_timeout: Option<Duration>,
    /// Longest time for one try to reach the cluster's API.
    pub connect_timeout: Duration,
    /// Every Pod is read, not only those that entries of the table concern.
    pub all_pods: bool,
    /// Name of this node. `None`: found by local addresses and hostname.
    pub node: Option<String>,
    pub service_cidr: Vec<IpNet>,
}

impl SourceQuery {
    /// # Errors
    /// The network namespace cannot be opened.
    pub fn new(args: &SourceArgs, builtin: BuiltinCluster) -> Result<Self, CommandError> {
        Ok(Self::in_netns(
            args,
            builtin,
            netns(args.netns.name.as_deref())?,
        ))
    }

    /// The source for a namespace that is already open.
    pub fn in_netns(args: &SourceArgs, builtin: BuiltinCluster, netns: Netns) -> Self {
        SourceQuery {
            netns,
            cluster: args.cluster.clone(),
            builtin,
            kubeconfig: args.kubeconfig.clone(),
            context: args.context.clone(),
            request_timeout: args.request_timeout,
            connect_timeout: args.connect_timeout,
            all_pods: args.all_pods,
            node: args.node.clone(),
            service_cidr: args.service_cidr.clone(),
        }
    }
}

/// Word of `--netns` for every namespace.
pub const ALL_NAMESPACES: &str = "all";

/// Value of `--netns`, where it means several namespaces: `all`, or a comma list.
pub fn several(args: &NetnsArgs) -> Option<&str> {
    args.name.as_deref().filter(|text| means_several(text))
}

fn means_several(text: &str) -> bool {
    text == ALL_NAMESPACES || (text.contains(',') && !text.contains('/'))
}

/// The namespace that `--netns` names, else that of this process.
///
/// # Errors
/// It cannot be opened.
pub fn netns(name: Option<&str>) -> Result<Netns, CommandError> {
    match name {
        None => Ok(Netns::current()),
        Some(several) if means_several(several) => Err(CommandError::usage(format!(
            "--netns {several}: one namespace is read here"
        ))
        .hint("ls, top, stat and doctor read several: ctk top --netns all")),
        Some(name) => Netns::named(name).map_err(|error| {
            let status = if error.is_permission() {
                ExitStatus::NotPermitted
            } else {
                ExitStatus::Failed
            };
            CommandError::new(status, "--netns").with_source(error)
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_a_comma_is_one_namespace() {
        for (text, several) in [
            ("all", true),
            ("a,b", true),
            ("name:all", false),
            ("/run/a,b", false),
            ("a", false),
        ] {
            assert_eq!(means_several(text), several, "{text}");
        }
    }
}
