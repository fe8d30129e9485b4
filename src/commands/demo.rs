//! `ctk demo`: runs commands in a private network namespace with a real conntrack table and a sample cluster.

mod world;

use crate::args::demo::DemoArgs;
use std::ffi::OsString;
use std::io::Write;

use crate::commands::run_in;
use crate::error::{CommandError, ExitStatus};
use crate::query::BuiltinCluster;

/// The sample cluster, as `kubectl get nodes,svc,endpointslices,pods,servicecidrs -A -o json` would print it.
const CLUSTER: &str = include_str!("demo/cluster.json");

/// Commands of the demo without arguments, with their titles.
const TOUR: [(&str, &[&str]); 3] = [
    ("Every entry of this node, by name:", &["ls"]),
    (
        "Who talks to which DNS pod, and which entries are stale:",
        &["ls", "--svc", "kube-dns"],
    ),
    (
        "The stale ones, for scripts:",
        &["ls", "--stale", "-o", "json"],
    ),
];

pub fn run(args: &DemoArgs) -> Result<ExitStatus, CommandError> {
    world::enter()?;
    let builtin = BuiltinCluster(Some(CLUSTER));
    let ctk = || std::iter::once(OsString::from("ctk"));
    if !args.command.is_empty() {
        return Ok(run_in(builtin, ctk().chain(args.command.iter().cloned())));
    }
    for (index, (title, command)) in TOUR.into_iter().enumerate() {
        let gap = if index == 0 { "" } else { "\n" };
        let line = format!("{gap}# {title}\n$ ctk {}\n", command.join(" "));
        if std::io::stdout().write_all(line.as_bytes()).is_err() {
            // A closed pipe ends the command without an error.
            return Ok(ExitStatus::Done);
        }
        let status = run_in(builtin, ctk().chain(command.iter().map(OsString::from)));
        if status != ExitStatus::Done {
            return Ok(status);
        }
    }
    Ok(ExitStatus::Done)
}
