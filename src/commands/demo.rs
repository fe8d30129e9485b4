//! `ctk demo`: a private network namespace with a real conntrack table in it, and a sample cluster that goes with it.

mod world;

use crate::args::demo::DemoArgs;
use std::ffi::OsString;
use std::io::Write;

use crate::commands::run_in;
use crate::error::{CommandError, Status};
use crate::query::BuiltinCluster;

/// The sample cluster, as `kubectl get nodes,svc,endpointslices,pods,servicecidrs -A -o json` would print it.
const CLUSTER: &str = include_str!("demo/cluster.json");

/// What is shown without arguments: the table, one Service, and what is wrong, for people and for scripts.
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

pub fn run(args: &DemoArgs) -> Result<Status, CommandError> {
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
            // A closed pipe ends quietly.
            return Ok(Status::Done);
        }
        let status = run_in(builtin, ctk().chain(command.iter().map(OsString::from)));
        if status != Status::Done {
            return Ok(status);
        }
    }
    Ok(Status::Done)
}
