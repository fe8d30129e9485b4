//! `ctk watch` against the real kernel, with real packets, each test in a network namespace of its own.

mod churn;
mod ending;
mod incident;
mod live;
mod memory;
mod node_rules;
mod records;
mod selecting;
mod silent;

use std::ops::ControlFlow;

use ctnetlink::flow::Flow;
use ctnetlink::netns::Netns;
use ctnetlink::{DeleteTarget, DumpFilter, Table, TableKind};

fn open() -> Table {
    Table::open(&Netns::current()).unwrap()
}

/// Deletes the entries that `pick` selects. Returns their number.
fn delete(pick: impl Fn(&Flow) -> bool) -> usize {
    let mut targets = Vec::new();
    let mut table = open();
    let on_flow = &mut |flow: Flow| {
        if pick(&flow) {
            targets.push(DeleteTarget::of(&flow).expect("an entry of the kernel has an id"));
        }
        ControlFlow::Continue(())
    };
    table
        .dump(TableKind::Conntrack, &DumpFilter::default(), on_flow)
        .unwrap();
    let results = table.delete(&targets);
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    targets.len()
}
