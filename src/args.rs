//! The command line as it is typed: one file a command, and the flags that several share.

pub mod demo;
pub mod doctor;
pub mod generate;
pub mod ls;
pub mod program;
pub mod purge;
pub mod restore;
pub mod select;
pub mod stat;
pub mod svc;
pub mod top;
pub mod watch;

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use ipnet::IpNet;

use crate::output::{ColorChoice, Columns, Format, SortOrder};
use crate::verdict::MIN_SAMPLE;
use ctk_cluster::source::ClusterSource;

/// Conntrack inspection and surgery: which flows are tracked, which pod, Service and endpoint is behind each, and which
/// are stale.
#[derive(Parser)]
#[command(name = "ctk", version, propagate_version = true, max_term_width = 100)]
#[command(after_help = "Examples:
  ctk ls --svc kube-dns          flows to one Service, with the endpoint that each goes to
  ctk doctor                     what is wrong on this node
  ctk demo                       see it work without a cluster")]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
    /// Say what is done, on stderr; twice for more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

#[derive(Subcommand)]
pub enum Command {
    /// List entries of the conntrack table, by name, with a verdict
    Ls(Box<ls::LsArgs>),
    /// Follow entries: as they come, move, end, and are kept alive
    Watch(Box<watch::WatchArgs>),
    /// Count entries in groups: who fills the table
    Top(Box<top::TopArgs>),
    /// Show one Service: its endpoints, the flows on each, why one is busy, and where new ones go
    Svc(Box<svc::SvcArgs>),
    /// Delete exactly the entries that match, and say what happened to each
    Purge(Box<purge::PurgeArgs>),
    /// Put entries back that a purge deleted
    Restore(Box<restore::RestoreArgs>),
    /// How full the table is, limits, settings, counters, timeouts
    Stat(stat::StatArgs),
    /// Say what is wrong on this node, with evidence and what helps
    Doctor(Box<doctor::DoctorArgs>),
    /// Try everything in a private namespace, without a cluster and without root
    Demo(demo::DemoArgs),
    /// Write the manuals or the completion scripts of this version into a folder
    #[command(hide = true)]
    Generate(generate::GenerateArgs),
}

/// Where the table, the Services and the Pods come from.
#[derive(Args)]
#[command(next_help_heading = "Where things come from")]
pub struct SourceArgs {
    /// Services and Pods: auto (the API, else this node's rules, else none), none, api, rules (this node's), api,rules
    /// (both, cross-checked), rules:FILE (saved by iptables-save or nft -j), a FILE with what
    /// `kubectl get nodes,svc,endpointslices,pods,servicecidrs -A -o json` prints (before Kubernetes 1.33 without
    /// servicecidrs, and with --service-cidr), or - for standard input
    #[arg(long, value_name = "SOURCE", default_value = "auto", value_parser = cluster_source())]
    pub cluster: ClusterSource,
    /// Instead of KUBECONFIG and ~/.kube/config
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig, instead of its current one
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Longest time for reading the cluster's API [default: 15s; 5s with --cluster auto]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub request_timeout: Option<Duration>,
    /// Longest time for one try to reach the cluster's API
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "2s")]
    pub connect_timeout: Duration,
    /// Read every Pod of the cluster, not only those that this node's entries concern
    #[arg(long)]
    pub all_pods: bool,
    /// This node's name in the cluster [default: found by local addresses and hostname]
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// Range of Service addresses, where the cluster source does not tell; repeat it for dual stack
    #[arg(long, value_name = "CIDR")]
    pub service_cidr: Vec<IpNet>,
    /// Another network namespace: a NAME, a PATH or a PID (name:1234 for a name of digits)
    #[arg(long, value_name = "NAME|PATH|PID")]
    pub netns: Option<String>,
}

impl SourceArgs {
    /// Standard input holds the cluster, so nobody can answer there.
    pub fn cluster_is_stdin(&self) -> bool {
        self.cluster == ClusterSource::Stdin
    }
}

/// How entries are printed.
#[derive(Args)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
    pub output: Format,
    /// Columns by their JSON names, comma separated (for table, wide and csv)
    #[arg(long, value_name = "LIST")]
    pub columns: Option<Columns>,
    /// Sort by these JSON names; a leading - sorts downwards
    #[arg(long, value_name = "KEY[,-KEY]", allow_hyphen_values = true)]
    pub sort: Option<SortOrder>,
    /// Show at most this many entries
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Leave the header line out
    #[arg(long)]
    pub no_header: bool,
    /// Colour
    #[arg(long, value_enum, default_value_t = ColorChoice::Auto, value_name = "WHEN")]
    pub color: ColorChoice,
}

/// File names need not be text.
fn cluster_source() -> impl TypedValueParser<Value = ClusterSource> {
    OsStringValueParser::new().try_map(|value| ClusterSource::parse(&value))
}

/// A duration in which three looks tell something.
pub fn sample(text: &str) -> Result<Duration, String> {
    let sample = duration(text)?;
    if sample < MIN_SAMPLE {
        return Err("it takes at least 6s: timers count whole seconds".to_owned());
    }
    Ok(sample)
}

/// Longer ones than a year are slips, and times that far ahead cannot be reckoned with.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// A duration like `6s`, `2m`, `1h30m`, of at most a year; a bare number is seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let duration = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => humantime::parse_duration(text)
            .map_err(|error| format!("{error}; write it like 6s, 2m or 1h30m"))?,
    };
    if duration > LONGEST {
        return Err("it is longer than a year".to_owned());
    }
    Ok(duration)
}
