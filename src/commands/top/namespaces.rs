//! `top --netns all` and `--netns A,B`: the tables of several namespaces in one look.

use std::io::{self, IsTerminal, Write};

use ctk_cluster::source::ClusterSource;
use ctnetlink::{Table, TableKind};

use super::{Frame, Top, report};
use crate::error::{CommandError, Status};
use crate::session::namespaces::Namespaces;
use crate::session::pipeline::{Counts, EntryPipeline};
use crate::session::table_access;
use crate::session::table_scan::{self, Looks, ScanReport};
use crate::terminal::messages;
use crate::terminal::printing::ListingEnd;
use crate::top::{GroupKey, Groups, Ranked};

/// Result of the scans of all namespaces.
struct Scanned<'c> {
    ranked: Ranked<'c>,
    counts: Counts,
    report: ScanReport,
    /// Namespaces that were read.
    read: Vec<String>,
    /// Why others are missing.
    missing: Vec<String>,
}

/// Refuses what belongs to one namespace: names, verdicts and repetition.
pub fn check(top: &Top<'_>) -> Result<(), CommandError> {
    let one = "give --netns one namespace";
    if top.args.interval.is_some() || top.args.select.refreshing {
        return Err(CommandError::usage(
            "several namespaces are read once: --interval and --refreshing do not go with them",
        )
        .hint(one));
    }
    let by_names = top.args.by.iter().any(|key| key.needs_cluster());
    let of_cluster = !matches!(
        top.source.cluster,
        ClusterSource::Auto | ClusterSource::None
    );
    if by_names || of_cluster || top.entries.needs_cluster() {
        return Err(CommandError::usage(
            "names and verdicts belong to the namespace of a node: no --cluster, and no selectors or keys on them, with several namespaces",
        )
        .hint(one));
    }
    Ok(())
}

pub fn run(top: &Top<'_>, text: &str) -> Result<Status, ListingEnd> {
    let by = match top.args.by.is_empty() {
        true => vec![GroupKey::Netns],
        false => top.keys(None),
    };
    let scanned = scan(top, &by, Namespaces::open(text))?;
    let frame = Frame {
        ranked: &scanned.ranked,
        counts: scanned.counts,
        report: scanned.report,
        time: None,
        namespaces: Some(&scanned.read),
    };
    let mut out = io::stdout().lock();
    top.print(&frame, None, !top.args.no_header, &mut out)?;
    out.flush()?;
    if io::stderr().is_terminal() {
        let all = scanned.counts.scanned - scanned.counts.own;
        messages::note(report::count_line(&scanned.ranked, all));
    }
    scanned.missing.iter().for_each(messages::note);
    let partial = top.caveats(&frame, None).report();
    Ok(match partial || !scanned.missing.is_empty() {
        true => Status::Partial,
        false => Status::Done,
    })
}

/// Scans one table after the other into the same groups.
///
/// # Errors
/// No table can be read.
fn scan<'c>(
    top: &'c Top<'_>,
    by: &[GroupKey],
    namespaces: Namespaces,
) -> Result<Scanned<'c>, CommandError> {
    let mut pipeline = EntryPipeline::new(&top.entries, None)?.hide_own();
    let mut groups = Groups::new(by, top.order.measure());
    let (mut counts, mut report) = (Counts::default(), ScanReport::default());
    let (mut read, mut missing) = (Vec::new(), namespaces.missing);
    let looks = Looks {
        kind: TableKind::Conntrack,
        sample: None,
    };
    let mut refused = None;
    for (name, netns) in namespaces.open {
        groups.enter(&name);
        let result = Table::open(&netns)
            .map_err(table_access::netlink_error)
            .and_then(|mut table| {
                let start = || groups.clone();
                table_scan::gather(
                    &mut table,
                    &mut pipeline,
                    looks,
                    start,
                    |pipeline, groups, flow, seen| {
                        pipeline.show(flow, seen, |entry| groups.add(entry));
                    },
                )
            });
        match result {
            Ok((gathered, one)) => {
                groups = gathered;
                counts.scanned += pipeline.counts.scanned;
                counts.own += pipeline.counts.own;
                counts.undecided += pipeline.counts.undecided;
                report.unreadable += one.unreadable;
                report.inconsistent |= one.inconsistent;
                read.push(name);
            }
            Err(error) => {
                missing.push(format!("--netns {name}: {}", error.text()));
                refused = Some(error);
            }
        }
    }
    if read.is_empty() {
        let none = || CommandError::failed(missing.join("; "));
        return Err(refused.unwrap_or_else(none));
    }
    Ok(Scanned {
        ranked: groups.rank(&top.order, top.limit()),
        counts,
        report,
        read,
        missing,
    })
}
