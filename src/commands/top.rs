//! `ctk top`: who fills the table.

mod namespaces;
mod repeat;
mod report;

use crate::args::top::{TopArgs, TopFormat};
use std::io::{self, IsTerminal, Write};

use crate::attribution;
use crate::error::{CommandError, ExitStatus};
use crate::output::{
    Glyphs, GroupStyle, Palette, group_csv, group_document, group_lines, group_table,
};
use crate::top::{GroupKey, Groups, Order, Ranked, SortTerm};
use ctnetlink::{Table, TableKind};

use crate::commands::ls::own_line;
use crate::query::{BuiltinCluster, EntryQuery, SourceQuery, source};
use crate::session::cluster::{self, Cluster};
use crate::session::cluster_source::Purpose;
use crate::session::own_addresses;
use crate::session::pipeline::{EntryPipeline, Prints};
use crate::session::read_scope;
use crate::session::sample::Sample;
use crate::session::table_access;
use crate::session::table_scan::{self, Looks, ScanReport};
use crate::terminal::messages;
use crate::terminal::printing::ListingEnd;
use ctnetlink::netns::Netns;

/// Groups of a table on a terminal without `--limit`.
const DEFAULT_GROUPS: usize = 20;

pub fn run(builtin: BuiltinCluster, args: &TopArgs) -> Result<ExitStatus, CommandError> {
    check(args)?;
    let several = source::several(&args.source.netns);
    let source = match several {
        Some(_) => SourceQuery::in_netns(&args.source, builtin, Netns::current()),
        None => SourceQuery::new(&args.source, builtin)?,
    };
    let mut entries = EntryQuery::new(&args.select)?;
    if args.lost_source && several.is_none() {
        own_addresses::select_lost_sources(&mut entries, &source.netns)?;
    }
    let top = Top {
        args,
        entries,
        source,
        order: Order(args.sort.clone()),
    };
    let ended = match (several, args.interval) {
        (Some(text), _) => {
            namespaces::check(&top)?;
            namespaces::run(&top, text)
        }
        (None, None) => top.once(),
        (None, Some(interval)) => repeat::run(&top, interval),
    };
    match ended {
        Ok(status) => Ok(status),
        Err(end) => end.status(),
    }
}

/// Refuses flags that do not go together.
fn check(args: &TopArgs) -> Result<(), CommandError> {
    for word in &args.sort {
        if let SortTerm::Key { key, .. } = word
            && !args.by.contains(key)
        {
            return Err(CommandError::usage(format!(
                "--sort {}: nothing is grouped by it",
                key.name()
            ))
            .hint(format!("add it to --by: --by {}", with(&args.by, *key))));
        }
    }
    if args.interval.is_some() && args.select.refreshing {
        return Err(CommandError::usage(
            "--refreshing takes 6 s for each look; it does not go with --interval",
        )
        .hint("ctk watch --refreshing follows entries that are kept alive"));
    }
    Ok(())
}

fn with(by: &[GroupKey], key: GroupKey) -> String {
    let all = by.iter().chain([&key]).map(|key| key.name());
    all.collect::<Vec<_>>().join(",")
}

/// The command, with its query.
struct Top<'a> {
    args: &'a TopArgs,
    entries: EntryQuery,
    source: SourceQuery,
    order: Order,
}

impl Top<'_> {
    /// Names or verdicts are asked for, by selectors or keys.
    fn asks_for_names(&self) -> bool {
        let mut by = self.args.by.iter();
        self.entries.needs_cluster() || by.any(|key| key.needs_cluster())
    }

    /// Names or verdicts of every entry are needed.
    fn names_entries(&self, by: &[GroupKey]) -> bool {
        by.iter().any(|key| key.needs_names())
            || self.entries.needs_cluster()
            || self.entries.filter.wants_text()
    }

    /// Reads the cluster where something of it is shown.
    fn read_cluster(&self, again: bool) -> Result<Option<Cluster>, CommandError> {
        let shows = |key: &GroupKey| key.needs_names() || key.is_address();
        let by = &self.args.by;
        if !by.is_empty() && !by.iter().any(shows) && !self.names_entries(by) {
            return Ok(None);
        }
        let read = match again {
            true => Cluster::read_again,
            false => Cluster::read,
        };
        let scope = read_scope::first(&self.source, &self.entries);
        let cluster = read(&self.source, Purpose::Show, scope)?;
        match (again, &cluster) {
            (true, None) => Err(CommandError::failed("the cluster source is gone")),
            (true, Some(_)) => Ok(cluster),
            (false, _) => {
                cluster::require(&self.source, cluster.as_ref(), self.asks_for_names())?;
                self.require_pods(cluster.as_ref())?;
                Ok(cluster)
            }
        }
    }

    /// Refuses a key on pods where the node's rules are the only source.
    fn require_pods(&self, cluster: Option<&Cluster>) -> Result<(), CommandError> {
        let by_pod = self.args.by.contains(&GroupKey::Pod);
        match by_pod && cluster.is_some_and(|cluster| cluster.index().is_none()) {
            true => Err(
                CommandError::new(ExitStatus::Partial, "--by pod: the pods are not known")
                    .hint("this node's rules name Services, and no pods"),
            ),
            false => Ok(()),
        }
    }

    /// Keys to group by, each once.
    fn keys(&self, cluster: Option<&Cluster>) -> Vec<GroupKey> {
        if self.args.by.is_empty() {
            return match cluster.and_then(Cluster::index) {
                Some(_) => vec![GroupKey::Client],
                None => vec![GroupKey::Src],
            };
        }
        let mut keys = Vec::new();
        for key in &self.args.by {
            if !keys.contains(key) {
                keys.push(*key);
            }
        }
        keys
    }

    /// The pipeline. Names cost time and are looked up only where entries are selected or grouped by them.
    fn pipeline<'c>(
        &'c self,
        by: &[GroupKey],
        cluster: Option<&'c Cluster>,
    ) -> Result<EntryPipeline<'c>, CommandError> {
        let cluster = cluster.filter(|_| self.names_entries(by));
        let pipeline = EntryPipeline::new(&self.entries, cluster)?;
        Ok(pipeline.hide_own().for_names(Prints {
            client: by.iter().any(|key| key.shows_client()),
            endpoint: by.iter().any(|key| key.shows_endpoint()),
        }))
    }

    /// Scans the table.
    fn scan<'c>(
        &self,
        by: &[GroupKey],
        table: &mut Table,
        pipeline: &mut EntryPipeline<'c>,
        limit: Option<usize>,
    ) -> Result<(Ranked<'c>, ScanReport), CommandError> {
        let sample = self
            .entries
            .sample(None)
            .map(|duration| Sample::take(table, pipeline, duration))
            .transpose()?;
        let looks = Looks {
            kind: TableKind::Conntrack,
            sample: sample.as_ref(),
        };
        let start = || {
            let mut groups = Groups::new(by, self.order.measure());
            if let Some(netns) = &self.args.source.netns.name {
                groups.enter(netns);
            }
            groups
        };
        let (groups, report) = table_scan::gather(
            table,
            pipeline,
            looks,
            start,
            |pipeline, groups, flow, seen| {
                pipeline.show(flow, seen, |entry| groups.add(entry));
            },
        )?;
        Ok((groups.rank(&self.order, limit), report))
    }

    fn limit(&self) -> Option<usize> {
        let terminal = self.args.report.format == TopFormat::Table && io::stdout().is_terminal();
        self.args.limit.or(terminal.then_some(DEFAULT_GROUPS))
    }

    fn once(&self) -> Result<ExitStatus, ListingEnd> {
        let cluster = self.read_cluster(false)?;
        let cluster = cluster.as_ref();
        let by = self.keys(cluster);
        let mut pipeline = self.pipeline(&by, cluster)?;
        let mut table = self.table()?;
        let (ranked, report) = self.scan(&by, &mut table, &mut pipeline, self.limit())?;
        let frame = Frame {
            ranked: &ranked,
            counts: pipeline.counts,
            report,
            time: None,
            namespaces: None,
        };
        let mut out = io::stdout().lock();
        self.print(&frame, cluster, !self.args.no_header, &mut out)?;
        out.flush()?;
        if pipeline.counts.scanned == 0 && pipeline.filter().is_empty() {
            table_access::note_empty(&self.source.netns);
        }
        if io::stderr().is_terminal() {
            messages::note(report::count_line(
                &ranked,
                pipeline.counts.scanned - pipeline.counts.own,
            ));
            if pipeline.counts.own > 0 {
                messages::note(own_line(pipeline.counts.own));
            }
        }
        Ok(match self.caveats(&frame, cluster).report() {
            true => ExitStatus::Partial,
            false => ExitStatus::Done,
        })
    }

    fn table(&self) -> Result<Table, CommandError> {
        Table::open(&self.source.netns).map_err(table_access::netlink_error)
    }

    /// Prints the groups in the chosen format.
    fn print(
        &self,
        frame: &Frame<'_, '_>,
        cluster: Option<&Cluster>,
        header: bool,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let stdout = io::stdout();
        let index = cluster.and_then(Cluster::index);
        let address_owner = |address| index.and_then(|index| attribution::party(address, index));
        let style = GroupStyle {
            palette: Palette::of_environment(self.args.report.color, stdout.is_terminal()),
            header,
            glyphs: Glyphs::of(self.args.ascii),
            address_owner: &address_owner,
        };
        let ranked = frame.ranked;
        match self.args.report.format {
            TopFormat::Table => group_table(ranked, &style, out),
            TopFormat::Json => {
                group_document(ranked, &style, &report::summary(frame, cluster), out)
            }
            TopFormat::Jsonl => group_lines(ranked, &style, frame.time, out),
            TopFormat::Csv => group_csv(ranked, &style, frame.time, out),
        }
    }
}

/// Result of one scan.
struct Frame<'r, 'c> {
    ranked: &'r Ranked<'c>,
    counts: crate::session::pipeline::Counts,
    report: ScanReport,
    /// Nanoseconds since the Unix epoch. `None` without `--interval`.
    time: Option<u64>,
    /// Namespaces that were read; `None` for a look at one.
    namespaces: Option<&'r [&'r str]>,
}
