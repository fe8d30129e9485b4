//! `top --netns all` and `--netns A,B`: the tables of several namespaces in one look.

use std::io::{self, IsTerminal, Write};

use ctnetlink::TableKind;

use super::{Frame, Top, report};
use crate::error::{CommandError, ExitStatus};
use crate::session::namespaces::{GIVE_ONE, Namespaces, Visited, refuse_names};
use crate::session::pipeline::EntryPipeline;
use crate::session::table_scan::{self, Looks};
use crate::terminal::messages;
use crate::terminal::printing::ListingEnd;
use crate::top::{GroupKey, Groups, Ranked};

/// Refuses what belongs to one namespace: names, verdicts and repetition.
pub fn check(top: &Top<'_>) -> Result<(), CommandError> {
    if top.args.interval.is_some() || top.args.select.refreshing {
        return Err(CommandError::usage(
            "several namespaces are read once: --interval and --refreshing do not go with them",
        )
        .hint(GIVE_ONE));
    }
    if top.args.lost_source {
        return Err(CommandError::usage(
            "--lost-source compares with the addresses of one of several namespaces",
        )
        .hint(GIVE_ONE));
    }
    let by_names = top.args.by.iter().any(|key| key.needs_cluster());
    refuse_names(&top.source, by_names || top.entries.needs_cluster())
}

pub fn run(top: &Top<'_>, text: &str) -> Result<ExitStatus, ListingEnd> {
    let by = match top.args.by.is_empty() {
        true => vec![GroupKey::Netns],
        false => top.keys(None),
    };
    let namespaces = Namespaces::open(text);
    let (ranked, visited) = scan(top, &by, &namespaces)?;
    let frame = Frame {
        ranked: &ranked,
        counts: visited.counts,
        report: visited.report,
        time: None,
        namespaces: Some(&visited.read),
    };
    let mut out = io::stdout().lock();
    top.print(&frame, None, !top.args.no_header, &mut out)?;
    out.flush()?;
    if io::stderr().is_terminal() {
        let all = visited.counts.scanned - visited.counts.own;
        messages::note(report::count_line(&ranked, all));
    }
    visited.missing.iter().for_each(messages::note);
    let partial = top.caveats(&frame, None).report();
    Ok(match partial || !visited.missing.is_empty() {
        true => ExitStatus::Partial,
        false => ExitStatus::Done,
    })
}

/// Scans one table after the other into the same groups.
///
/// # Errors
/// No table can be read.
fn scan<'c>(
    top: &'c Top<'_>,
    by: &[GroupKey],
    namespaces: &'c Namespaces,
) -> Result<(Ranked<'c>, Visited<'c>), ListingEnd> {
    let mut pipeline = EntryPipeline::new(&top.entries, None)?.hide_own();
    let mut groups = Groups::new(by, top.order.measure());
    let looks = Looks {
        kind: TableKind::Conntrack,
        sample: None,
    };
    let visited = namespaces.visit(|name, mut table| {
        groups.enter(name);
        let start = || groups.clone();
        let scanned = table_scan::gather(
            &mut table,
            &mut pipeline,
            looks,
            start,
            |pipeline, groups, flow, seen| {
                pipeline.show(flow, seen, |entry| groups.add(entry));
            },
        );
        Ok(scanned.map(|(gathered, report)| {
            groups = gathered;
            (pipeline.counts, report)
        }))
    })?;
    Ok((groups.rank(&top.order, top.limit()), visited))
}
