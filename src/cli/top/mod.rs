//! `ctk top`: who fills the table.

mod repeat;
mod say;

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::error::{CommandError, Status};
use crate::label;
use crate::netlink::{Table, TableKind};
use crate::netns::Netns;
use crate::output::{
    ColorChoice, Glyphs, GroupStyle, Palette, group_csv, group_document, group_lines, group_table,
};
use crate::top::{Groups, Key, Order, Ranked, SortWord};

use super::World;
use super::args::{SourceArgs, duration};
use super::cluster::{self, Cluster};
use super::context;
use super::ls::{Ended, own_line};
use super::pick::{Picker, Prints};
use super::remote::Purpose;
use super::sample::{self, Sample};
use super::scan::{self, Looks, Report};
use super::select::SelectArgs;
use super::wanted;

/// Groups of a table on a terminal, where no limit is given.
const SHOWN: usize = 20;

/// What `-o` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TopFormat {
    /// A bar for each share
    #[default]
    Table,
    /// One document with items and a summary
    Json,
    /// One item a line
    Jsonl,
    /// RFC 4180 with a header
    Csv,
}

#[derive(Args)]
#[command(after_help = "Examples:
  ctk top                       who has most: pods where a cluster tells, else addresses
  ctk top --by svc,verdict      which Services, and how many of their entries are stale
  ctk top --by state --tcp      is it TIME_WAIT that fills the table?

--interval 2s repaints, like top(1).")]
pub struct TopArgs {
    /// What to group by, comma separated; several count each combination [default: client where a cluster names pods,
    /// else src]
    #[arg(
        long,
        value_enum,
        value_name = "KEYS",
        value_delimiter = ',',
        help_heading = "Grouping"
    )]
    pub by: Vec<Key>,
    /// count, packets or bytes, the largest first; or a key of --by, a leading - sorts it downwards [default: count]
    #[arg(
        long,
        value_name = "KEY[,-KEY]",
        value_delimiter = ',',
        allow_hyphen_values = true,
        help_heading = "Grouping"
    )]
    pub sort: Vec<SortWord>,
    /// Show at most this many groups [default: 20 in a table on a terminal, else all]
    #[arg(long, value_name = "N", help_heading = "Grouping")]
    pub limit: Option<usize>,
    /// Look again and again, at least 1s apart. A terminal is repainted (q ends it); else frames follow each other: tables
    /// under a line with the time, jsonl and csv with the time in each line, json as a document each
    #[arg(long, value_name = "DURATION", value_parser = interval, help_heading = "Grouping")]
    pub interval: Option<Duration>,
    #[command(flatten)]
    pub select: SelectArgs,
    #[command(flatten)]
    pub source: SourceArgs,
    /// Output format
    #[arg(
        short,
        long,
        value_enum,
        default_value_t,
        value_name = "FORMAT",
        help_heading = "Output"
    )]
    pub output: TopFormat,
    /// Leave the header line out
    #[arg(long, help_heading = "Output")]
    pub no_header: bool,
    /// Bars of # instead of block characters
    #[arg(long, help_heading = "Output")]
    pub ascii: bool,
    /// Colour
    #[arg(long, value_enum, default_value_t = ColorChoice::Auto, value_name = "WHEN", help_heading = "Output")]
    pub color: ColorChoice,
}

fn interval(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        short if short < Duration::from_secs(1) => Err("it takes at least 1s".to_owned()),
        interval => Ok(interval),
    }
}

pub fn run(world: World, args: &TopArgs) -> Result<Status, CommandError> {
    check(args)?;
    // An impossible selector is said before anything is opened.
    args.select.to_filter()?;
    let top = Top {
        world,
        args,
        netns: context::netns(&args.source)?,
        zones: args.select.named_zones(),
        order: Order(args.sort.clone()),
    };
    let ended = match args.interval {
        None => top.once(),
        Some(interval) => repeat::run(&top, interval),
    };
    match ended {
        Ok(status) => Ok(status),
        Err(Ended::Closed) => Ok(Status::Done),
        Err(Ended::Failed(error)) => Err(error),
    }
}

/// Flags that make no sense together.
fn check(args: &TopArgs) -> Result<(), CommandError> {
    for word in &args.sort {
        if let SortWord::Key { key, .. } = word
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

fn with(by: &[Key], key: Key) -> String {
    let all = by.iter().chain([&key]).map(|key| key.name());
    all.collect::<Vec<_>>().join(",")
}

/// What is meant by the flags.
struct Top<'a> {
    world: World,
    args: &'a TopArgs,
    netns: Netns,
    zones: Vec<u16>,
    order: Order,
}

impl Top<'_> {
    /// An answer without names or verdicts would be none.
    fn asks_for_names(&self) -> bool {
        let mut by = self.args.by.iter();
        self.args.select.wants_cluster() || by.any(|key| key.is_of_the_cluster())
    }

    /// Names or verdicts of every entry are needed.
    fn names_entries(&self, by: &[Key]) -> Result<bool, CommandError> {
        let select = &self.args.select;
        Ok(by.iter().any(|key| key.wants_names())
            || select.wants_cluster()
            || select.to_filter()?.wants_text())
    }

    /// The cluster, where anything of it would be shown.
    fn read_cluster(&self, again: bool) -> Result<Option<Cluster>, CommandError> {
        let shows = |key: &Key| key.wants_names() || matches!(key, Key::Src | Key::Dst);
        let by = &self.args.by;
        if !by.is_empty() && !by.iter().any(shows) && !self.names_entries(by)? {
            return Ok(None);
        }
        let read = match again {
            true => Cluster::read_again,
            false => Cluster::read,
        };
        let (source, select) = (&self.args.source, &self.args.select);
        let filter = select.to_filter()?;
        let wanted = wanted::first(source, &self.netns, &filter, &select.to_selectors());
        let cluster = read(self.world, source, &self.netns, Purpose::Show, wanted)?;
        match (again, &cluster) {
            (true, None) => Err(CommandError::failed("there is no cluster source any more")),
            (true, Some(_)) => Ok(cluster),
            (false, _) => {
                cluster::require(source, cluster.as_ref(), self.asks_for_names())?;
                Ok(cluster)
            }
        }
    }

    /// The keys that are meant, each once.
    fn keys(&self, cluster: Option<&Cluster>) -> Vec<Key> {
        if self.args.by.is_empty() {
            return match cluster.and_then(Cluster::index) {
                Some(_) => vec![Key::Client],
                None => vec![Key::Src],
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

    /// Names cost time, and are looked for only where something is chosen or grouped by them.
    fn picker<'c>(
        &'c self,
        by: &[Key],
        cluster: Option<&'c Cluster>,
    ) -> Result<Picker<'c>, CommandError> {
        let cluster = cluster.filter(|_| self.names_entries(by).unwrap_or(true));
        let filter = self.args.select.to_filter()?;
        let picker = Picker::new(filter, &self.args.select, &self.zones, cluster)?;
        Ok(picker.hide_own().for_names(Prints {
            client: by.contains(&Key::Client),
            endpoint: by.contains(&Key::Endpoint),
        }))
    }

    /// Looks at the whole table.
    fn look<'c>(
        &self,
        by: &[Key],
        table: &mut Table,
        picker: &mut Picker<'c>,
        limit: Option<usize>,
    ) -> Result<(Ranked<'c>, Report), CommandError> {
        let sample = sample::wanted(None, self.args.select.refreshing)
            .map(|duration| Sample::take(table, picker, duration))
            .transpose()?;
        let looks = Looks {
            kind: TableKind::Conntrack,
            sample: sample.as_ref(),
        };
        let start = || Groups::new(by, self.order.measure());
        let (groups, report) =
            scan::gather(table, picker, looks, start, |picker, groups, flow, seen| {
                picker.show(flow, seen, |entry| groups.add(entry));
            })?;
        Ok((groups.rank(&self.order, limit), report))
    }

    fn limit(&self) -> Option<usize> {
        let terminal = self.args.output == TopFormat::Table && io::stdout().is_terminal();
        self.args.limit.or(terminal.then_some(SHOWN))
    }

    fn once(&self) -> Result<Status, Ended> {
        let cluster = self.read_cluster(false)?;
        let cluster = cluster.as_ref();
        let by = self.keys(cluster);
        let mut picker = self.picker(&by, cluster)?;
        let mut table = self.table()?;
        let (ranked, report) = self.look(&by, &mut table, &mut picker, self.limit())?;
        let frame = Frame {
            ranked: &ranked,
            counts: picker.counts,
            report,
            time: None,
        };
        let mut out = io::stdout().lock();
        self.print(&frame, cluster, !self.args.no_header, &mut out)?;
        out.flush()?;
        if picker.counts.scanned == 0 && picker.filter().is_empty() {
            context::note_empty(&self.netns);
        }
        if io::stderr().is_terminal() {
            context::note(say::count_line(
                &ranked,
                picker.counts.scanned - picker.counts.own,
            ));
            if picker.counts.own > 0 {
                context::note(own_line(picker.counts.own));
            }
        }
        Ok(match self.open(&frame, cluster).say() {
            true => Status::Partial,
            false => Status::Done,
        })
    }

    fn table(&self) -> Result<Table, CommandError> {
        Table::open(&self.netns).map_err(context::netlink_error)
    }

    /// The groups in the format that was asked for.
    fn print(
        &self,
        frame: &Frame<'_, '_>,
        cluster: Option<&Cluster>,
        header: bool,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let stdout = io::stdout();
        let index = cluster.and_then(Cluster::index);
        let who = |address| index.and_then(|index| label::party(address, index));
        let style = GroupStyle {
            palette: Palette::of_environment(self.args.color, stdout.is_terminal()),
            header,
            glyphs: Glyphs::of(self.args.ascii),
            who: &who,
        };
        let ranked = frame.ranked;
        match self.args.output {
            TopFormat::Table => group_table(ranked, &style, out),
            TopFormat::Json => group_document(ranked, &style, &say::summary(frame, cluster), out),
            TopFormat::Jsonl => group_lines(ranked, &style, frame.time, out),
            TopFormat::Csv => group_csv(ranked, &style, frame.time, out),
        }
    }
}

impl From<CommandError> for Ended {
    fn from(error: CommandError) -> Self {
        Ended::Failed(error)
    }
}

/// One look at the table.
struct Frame<'r, 'c> {
    ranked: &'r Ranked<'c>,
    counts: super::pick::Counts,
    report: Report,
    /// Nanoseconds since the Unix epoch; `None` where there is one look only.
    time: Option<u64>,
}
