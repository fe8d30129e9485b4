//! `ctk restore`: what a purge deleted, put back.

mod input;

use crate::args::restore::RestoreArgs;
use std::io;
use std::ops::ControlFlow;

use crate::entry::Entry;
use crate::error::{CommandError, Status};
use crate::output::{Format, ItemResult, Options, Palette, Printer, Summary, is_closed};
use crate::purge::undo::{self, Outcome, Wanted};
use ctnetlink::{MAX_BATCH, Table};

use crate::query::{output, source};
use crate::session::table_access;
use crate::terminal::confirm::{self, Consent};
use crate::terminal::messages::note;
use crate::terminal::printing;
use input::{CHANGED, Input, Lines};

pub fn run(args: &RestoreArgs) -> Result<Status, CommandError> {
    check(args)?;
    let from_stdin = args.file.as_os_str() == "-";
    let leave = if args.dry_run {
        Consent::Given
    } else {
        confirm::consent(args.yes, from_stdin)?
    };
    let netns = source::netns(args.netns.as_deref())?;
    let (mut input, lines) = Input::open(&args.file, from_stdin)?;
    // Before the question: an answer that cannot be acted upon need not be given.
    let mut table = match args.dry_run {
        true => None,
        false => Some(Table::open(&netns).map_err(table_access::netlink_error)?),
    };
    if leave == Consent::ToAsk && lines.wanted > 0 {
        show(args, &mut input)?;
        let entries = entries(lines.wanted);
        confirm::ask(&format!("Put {entries} back into {}?", netns.name()))?;
    }
    let mut counts = Counts::default();
    let ended = put_back(args, &mut input, &lines, table.as_mut(), &mut counts);
    note(counts.line(&lines, args.dry_run));
    ended.or_else(|ended| ended.excused(&lines, &counts))?;
    conclude(&lines, &counts)
}

/// Flags that make no sense here.
fn check(args: &RestoreArgs) -> Result<(), CommandError> {
    output::check_columns(&args.output)?;
    for (flag, given) in [
        ("--sort", args.output.sort.is_some()),
        ("--limit", args.output.limit.is_some()),
    ] {
        if given {
            return Err(CommandError::usage(format!(
                "{flag} does not go with restore: every line is answered in its order"
            )));
        }
    }
    Ok(())
}

/// The set, on the terminal that the question is asked on.
fn show(args: &RestoreArgs, input: &mut Input) -> Result<(), CommandError> {
    let stderr = io::stderr();
    let options = Options {
        format: Format::Table,
        palette: Palette::of_environment(args.output.color, true),
        header: true,
        terminal: printing::terminal_width(&stderr),
        ..Options::default()
    };
    let mut printer = Printer::new(options, Box::new(stderr));
    let mut shown = Ok(());
    input.each(&mut |wanted| {
        shown = printer.entry(&Entry::bare(wanted.flow), None);
        go_on_while(shown.is_ok())
    })?;
    shown
        .and_then(|()| printer.flush())
        .map_err(|error| CommandError::failed(format!("showing the entries: {error}")))
}

fn go_on_while(good: bool) -> ControlFlow<()> {
    if good {
        ControlFlow::Continue(())
    } else {
        ControlFlow::Break(())
    }
}

/// How it went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Lines that were printed.
    answered: u64,
    would: u64,
    restored: u64,
    exists: u64,
    failed: u64,
    /// Of the failed ones: EPERM.
    refused: u64,
    /// The kernel was asked about so many.
    tried: u64,
}

impl Counts {
    fn add(&mut self, outcome: Option<&Outcome>) {
        match outcome {
            None => self.would += 1,
            Some(Outcome::Restored) => self.restored += 1,
            Some(Outcome::Exists) => self.exists += 1,
            Some(Outcome::Failed { .. }) => self.failed += 1,
        }
        if let Some(outcome) = outcome {
            self.tried += u64::from(outcome.was_tried());
            self.refused += u64::from(outcome.is_refused());
        }
    }

    fn line(&self, lines: &Lines, dry_run: bool) -> String {
        let skipped = lines.all - lines.wanted;
        let Counts {
            would,
            restored,
            exists,
            failed,
            ..
        } = self;
        if dry_run {
            return format!("{would} would be restored, {failed} would fail, {skipped} skipped");
        }
        format!("{restored} restored, {exists} exist already, {failed} failed, {skipped} skipped")
    }

    fn summary(&self, lines: &Lines) -> Summary {
        let counts = [
            ("matched", lines.wanted),
            ("restored", self.restored),
            ("exists", self.exists),
            ("failed", self.failed),
            ("skipped", lines.all - lines.wanted),
        ];
        Summary {
            shown: self.answered,
            scanned: lines.all,
            consistent: true,
            extra: counts
                .into_iter()
                .map(|(name, count)| (name.to_owned(), count.into()))
                .collect(),
            ..Summary::default()
        }
    }
}

/// Why it ended early.
enum Ended {
    Output(io::Error),
    Input(CommandError),
}

impl Ended {
    /// A reader who went away when everything was done is no error.
    fn excused(self, lines: &Lines, counts: &Counts) -> Result<(), CommandError> {
        let left = lines.wanted.saturating_sub(counts.answered);
        match self {
            Ended::Input(error) => Err(error),
            Ended::Output(error) if is_closed(&error) && left == 0 => Ok(()),
            Ended::Output(error) => Err(CommandError::new(
                Status::Partial,
                format!(
                    "writing the output: {error}; {} were not tried",
                    entries(left)
                ),
            )),
        }
    }
}

/// Puts all of the input back, batch by batch, and prints each batch before the next one is sent.
fn put_back(
    args: &RestoreArgs,
    input: &mut Input,
    lines: &Lines,
    mut table: Option<&mut Table>,
    counts: &mut Counts,
) -> Result<(), Ended> {
    let mut printer = printing::printer(output::options(&args.output, true));
    let mut batch = Vec::with_capacity(MAX_BATCH);
    let mut written = Ok(());
    // What was appended to the file since it was checked is not read.
    let mut left = lines.wanted;
    input
        .each(&mut |wanted| {
            batch.push(wanted);
            left = left.saturating_sub(1);
            if batch.len() == MAX_BATCH || left == 0 {
                written = answer(table.as_deref_mut(), &batch, &mut printer, counts);
                batch.clear();
            }
            go_on_while(written.is_ok() && left > 0)
        })
        .map_err(Ended::Input)?;
    written
        .and_then(|()| printer.finish(&counts.summary(lines)))
        .map_err(Ended::Output)
}

/// One batch: asks the kernel, where there is a table, and prints what became of each entry.
fn answer(
    table: Option<&mut Table>,
    batch: &[Wanted],
    printer: &mut Printer<'_>,
    counts: &mut Counts,
) -> io::Result<()> {
    let outcomes: Vec<Option<Outcome>> = match table {
        Some(table) => undo::put_back(table, batch).into_iter().map(Some).collect(),
        None => batch.iter().map(foreseen).collect(),
    };
    // All of them are counted before the first is printed: they are done, whoever reads on.
    for outcome in &outcomes {
        counts.add(outcome.as_ref());
    }
    counts.answered += outcomes.len() as u64;
    for (wanted, outcome) in batch.iter().zip(&outcomes) {
        let result = item_result(outcome.as_ref());
        printer.entry(&Entry::bare(wanted.flow.clone()), Some(&result))?;
    }
    printer.flush()
}

/// What a dry run knows without asking the kernel: only what cannot work.
fn foreseen(wanted: &Wanted) -> Option<Outcome> {
    wanted.obstacle.map(|obstacle| Outcome::Failed {
        error: obstacle.to_string(),
        errno: None,
    })
}

fn item_result(outcome: Option<&Outcome>) -> ItemResult {
    let (result, error) = match outcome {
        None => ("would-restore", None),
        Some(Outcome::Restored) => ("restored", None),
        Some(Outcome::Exists) => ("exists", None),
        Some(Outcome::Failed { error, .. }) => ("failed", Some(error.clone())),
    };
    ItemResult { result, error }
}

fn conclude(lines: &Lines, counts: &Counts) -> Result<Status, CommandError> {
    if counts.answered < lines.wanted {
        let missing = entries(lines.wanted - counts.answered);
        return Err(CommandError::new(
            Status::Partial,
            format!("{CHANGED}: {missing} are not there any more"),
        ));
    }
    if counts.tried > 0 && counts.refused == counts.tried {
        return Err(CommandError::new(
            Status::NotPermitted,
            "putting entries back is not permitted: it needs CAP_NET_ADMIN in the network namespace",
        )
        .hint(table_access::RUN_AS_ROOT));
    }
    Ok(if counts.failed > 0 {
        Status::Partial
    } else {
        Status::Done
    })
}

fn entries(count: u64) -> String {
    match count {
        1 => "1 entry".to_owned(),
        n => format!("{n} entries"),
    }
}
