//! Command line as typed: one file for each command, and the flags that several commands share. `query` gives the
//! arguments their meaning.

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
use clap::{Args, Parser, Subcommand, ValueEnum};
use ipnet::IpNet;

use crate::output::{ColorChoice, Columns, Format, SortOrder};
use crate::verdict::MIN_SAMPLE;
use ctk_cluster::source::ClusterSource;

/// Conntrack inspection and surgery: lists the tracked flows with their pods, Services and endpoints, finds stale entries
/// and deletes them.
#[derive(Parser)]
#[command(name = "ctk", version, propagate_version = true, max_term_width = 100)]
#[command(after_help = "Examples:
  ctk ls --svc kube-dns          list the flows to one Service, with the endpoint of each
  ctk doctor                     check this node for known problems
  ctk demo                       take a tour that needs no cluster and no root")]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
    /// Print each step to stderr; -vv prints more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

#[derive(Subcommand)]
pub enum Command {
    /// List entries of the conntrack table, with Kubernetes names and verdicts
    Ls(Box<ls::LsArgs>),
    /// Follow entries: new, moved, refreshed and ended flows
    Watch(Box<watch::WatchArgs>),
    /// Count entries in groups: by client, Service, state and more
    Top(Box<top::TopArgs>),
    /// Show one Service: endpoints, flows on each, skew, and endpoints of new flows
    Svc(Box<svc::SvcArgs>),
    /// Delete the entries that match, and report the result of each
    Purge(Box<purge::PurgeArgs>),
    /// Put back entries that a purge deleted
    Restore(Box<restore::RestoreArgs>),
    /// Show table size, limits, settings, counters and timeouts
    Stat(stat::StatArgs),
    /// Check this node for known problems: evidence and remedy of each
    Doctor(Box<doctor::DoctorArgs>),
    /// Try every command in a private network namespace, without cluster and root
    Demo(demo::DemoArgs),
    /// Write the manuals or the completion scripts of this version to a folder
    #[command(hide = true)]
    Generate(generate::GenerateArgs),
}

/// Heading of [`SourceArgs`] in help texts.
const SOURCES: &str = "Sources";

/// Long help of `--cluster`.
const CLUSTER_HELP: &str = "\
Source of Services and Pods, for names and verdicts.
auto: the API, else the node's rules, else none; stderr names the source.
none: no names and no verdicts.
api: the cluster's API.
rules: the rules of this node: Services have names, Pods have none.
api,rules: both, compared with each other; the API decides.
rules:FILE: rules saved by iptables-save or nft -j.
FILE: the output of `kubectl get nodes,svc,endpointslices,pods,servicecidrs -A -o json`. Before Kubernetes 1.33 omit \
servicecidrs, and give --service-cidr.
-: the same as FILE, from standard input.";

/// Heading of [`OutputArgs`] and [`ReportArgs`] in help texts.
const OUTPUT: &str = "Output";

// The structs that commands flatten have no doc comment: clap would print it as the help text of the command.

#[derive(Args)]
pub struct NetnsArgs {
    /// Network namespace, by name, path or PID; name:1234 for a name of digits [default: that of ctk]. ls, top, stat and
    /// doctor read several: all, or a list A,B
    #[arg(id = "netns", long = "netns", value_name = "NAME|PATH|PID")]
    pub name: Option<String>,
}

#[derive(Args)]
#[command(next_help_heading = SOURCES)]
pub struct SourceArgs {
    /// Source of Services and Pods: auto, none, api, rules, api,rules, rules:FILE, FILE or -
    #[arg(long, value_name = "SOURCE", default_value = "auto", value_parser = cluster_source(), long_help = CLUSTER_HELP)]
    pub cluster: ClusterSource,
    /// Kubeconfig file [default: $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current context]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Time limit for all reads from the API [default: 15s; 5s with --cluster auto]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub request_timeout: Option<Duration>,
    /// Time limit for one attempt to connect to the API
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "2s")]
    pub connect_timeout: Duration,
    /// Read all Pods of the cluster, not only those that the entries of this node need
    #[arg(long)]
    pub all_pods: bool,
    /// Name of this node in the cluster [default: found by local addresses and hostname]
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// Range of Service addresses, for a cluster source without ServiceCIDR objects; repeat it for dual stack
    #[arg(long, value_name = "CIDR")]
    pub service_cidr: Vec<IpNet>,
    #[command(flatten)]
    pub netns: NetnsArgs,
}

impl SourceArgs {
    /// Whether standard input holds the cluster, and so cannot answer a question.
    pub fn cluster_is_stdin(&self) -> bool {
        self.cluster == ClusterSource::Stdin
    }
}

#[derive(Args)]
#[command(next_help_heading = OUTPUT)]
pub struct OutputArgs {
    #[command(flatten)]
    pub report: ReportArgs<Format>,
    /// Columns by their JSON names, comma separated; for table, wide and csv
    #[arg(long, value_name = "LIST")]
    pub columns: Option<Columns>,
    /// Sort by JSON names, comma separated; a leading - sorts in descending order [default: the kernel's order]
    #[arg(long, value_name = "KEY[,-KEY]", allow_hyphen_values = true)]
    pub sort: Option<SortOrder>,
    /// Print at most N entries [default: all]
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Omit the header line
    #[arg(long)]
    pub no_header: bool,
}

#[derive(Args)]
#[command(next_help_heading = OUTPUT)]
pub struct ReportArgs<F: ValueEnum + Send + Sync + 'static> {
    /// Output format
    // No default_value_t: clap keeps its text in a static that all types F share.
    #[arg(
        short = 'o',
        long = "output",
        value_enum,
        default_value = "table",
        value_name = "FORMAT"
    )]
    pub format: F,
    /// Colour of tables; auto: on a terminal, unless NO_COLOR is set
    #[arg(long, value_enum, default_value_t = ColorChoice::Auto, value_name = "WHEN")]
    pub color: ColorChoice,
}

/// Parses `--cluster`. Takes an `OsString`, because a file name may not be UTF-8.
fn cluster_source() -> impl TypedValueParser<Value = ClusterSource> {
    OsStringValueParser::new().try_map(|value| ClusterSource::parse(&value))
}

/// Parses a time for three looks at the table, of at least [`MIN_SAMPLE`].
pub fn sample(text: &str) -> Result<Duration, String> {
    duration_of_at_least(MIN_SAMPLE, text)
        .map_err(|error| format!("{error}, because timers count whole seconds"))
}

/// Largest duration: a longer one is a slip, and would overflow in arithmetic with times.
const MAX_DURATION: Duration = Duration::from_secs(366 * 24 * 3600);

/// Parses a duration like `6s`, `2m` or `1h30m`, of at most a year; a bare number is seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let duration = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => humantime::parse_duration(text)
            .map_err(|error| format!("{error}; write it like 6s, 2m or 1h30m"))?,
    };
    if duration > MAX_DURATION {
        return Err("it is longer than a year".to_owned());
    }
    Ok(duration)
}

/// Parses a duration of at least `min`.
fn duration_of_at_least(min: Duration, text: &str) -> Result<Duration, String> {
    match duration(text)? {
        short if short < min => {
            let min = humantime::format_duration(min);
            Err(format!("it takes at least {min}"))
        }
        enough => Ok(enough),
    }
}
