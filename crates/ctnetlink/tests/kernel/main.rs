//! The library against the real kernel, each test in a network namespace of its own.

mod delete;
mod dump;
mod events;
mod example;
mod filters;
mod flows;
mod insert;
mod permission;

use std::ops::ControlFlow;
use std::process::{Command, Output};

use ctnetlink::Netns;
use ctnetlink::flow::Flow;
use ctnetlink::{DumpFilter, DumpReport, Table, TableKind};

fn open() -> Table {
    Table::open(&Netns::current()).unwrap()
}

/// Makes the kernel keep labels: it does where a rule uses them.
fn use_labels() {
    nft("table inet t { chain c { type filter hook input priority 0; ct label set 1; }; }");
}

fn nft(rules: &str) {
    run(Command::new("nft").arg(rules));
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

fn fill(table: &mut Table, flows: &[(&str, Flow)]) {
    let results = table.insert_all(flows.iter().map(|(_, flow)| flow));
    for ((name, _), result) in flows.iter().zip(results) {
        assert_eq!(result, Ok(()), "{name}");
    }
}

/// Flows without their timers, which differ between two dumps.
fn timeless(mut flows: Vec<Flow>) -> Vec<Flow> {
    for flow in &mut flows {
        flow.timeout = None;
    }
    flows
}

fn dump_with(table: &mut Table, filter: &DumpFilter) -> (Vec<Flow>, DumpReport) {
    let mut flows = Vec::new();
    let report = table
        .dump(TableKind::Conntrack, filter, &mut |flow| {
            flows.push(flow);
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!((report.unreadable, report.is_consistent()), (0, true));
    (flows, report)
}

fn dump(table: &mut Table) -> Vec<Flow> {
    dump_with(table, &DumpFilter::default()).0
}
