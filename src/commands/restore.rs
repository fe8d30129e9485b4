//! `ctk restore`: puts back the entries that a purge deleted.

mod input;

use crate::args::restore::RestoreArgs;
use std::io;
use std::ops::ControlFlow;

use crate::entry::Entry;
use crate::error::{CommandError, ExitStatus};
use crate::output::{Format, ItemResult, Options, Palette, Printer, Summary, is_closed};
use crate::plural::count;
use crate::purge::restore::{RestoreError, RestoreOutcome, RestoreRequest, restore};
use ctnetlink::{MAX_BATCH, Table};

use crate::query::{output, source};
use crate::session::table_access;
use crate::terminal::confirm::{self, Consent};
use crate::terminal::messages::note;
use crate::terminal::printing;
use input::{CHANGED, LineCounts, RestoreInput};

pub fn run(args: &RestoreArgs) -> Result<ExitStatus, CommandError> {
    check(args)?;
    let from_stdin = args.file.as_os_str() == "-";
    let consent = match args.dry_run {
        true => Consent::Given,
        false => confirm::consent(args.yes, from_stdin)?,
    };
    let netns = source::netns(args.netns.name.as_deref())?;
    let (mut input, lines) = RestoreInput::open(&args.file, from_stdin)?;
    // Before the question, so that nothing is asked in vain.
    let mut table = match args.dry_run {
        true => None,
        false => Some(Table::open(&netns).map_err(table_access::netlink_error)?),
    };
    if consent == Consent::ToAsk && lines.requests > 0 {
        show(args, &mut input)?;
        let entries = entries(lines.requests);
        confirm::ask(&format!("Put {entries} back into {}?", netns.name()))?;
    }
    let mut counts = RestoreCounts::default();
    let result = put_back(args, &mut input, &lines, table.as_mut(), &mut counts);
    note(counts.line(&lines, args.dry_run));
    result.or_else(|error| error.into_result(&lines, &counts))?;
    status(&lines, &counts)
}

/// Refuses flags that do not apply.
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

/// Prints the entries to the terminal on which the question is asked.
fn show(args: &RestoreArgs, input: &mut RestoreInput) -> Result<(), CommandError> {
    let stderr = io::stderr();
    let options = Options {
        format: Format::Table,
        palette: Palette::of_environment(args.output.report.color, true),
        header: true,
        terminal: printing::terminal_width(&stderr),
        ..Options::default()
    };
    let mut printer = Printer::new(options, Box::new(stderr));
    let mut shown = Ok(());
    input.each(&mut |request| {
        shown = printer.entry(&Entry::bare(request.flow), None);
        continue_if(shown.is_ok())
    })?;
    shown
        .and_then(|()| printer.flush())
        .map_err(|error| CommandError::failed("showing the entries").with_source(error))
}

fn continue_if(condition: bool) -> ControlFlow<()> {
    match condition {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    }
}

/// Numbers of entries, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RestoreCounts {
    /// Entries that have an outcome.
    answered: u64,
    would_restore: u64,
    restored: u64,
    exists: u64,
    failed: u64,
    /// Those of `tried` that the kernel refused with EPERM.
    refused: u64,
    /// Inserts that were sent to the kernel.
    tried: u64,
}

impl RestoreCounts {
    /// `outcome`: `None` for an entry of a dry run that would be sent to the kernel.
    fn add(&mut self, outcome: Option<&RestoreOutcome>) {
        self.answered += 1;
        match outcome {
            None => self.would_restore += 1,
            Some(RestoreOutcome::Restored) => self.restored += 1,
            Some(RestoreOutcome::Exists) => self.exists += 1,
            Some(RestoreOutcome::Failed(_)) => self.failed += 1,
        }
        if let Some(outcome) = outcome {
            self.tried += u64::from(outcome.was_tried());
            self.refused += u64::from(outcome.is_refused());
        }
    }

    fn line(&self, lines: &LineCounts, dry_run: bool) -> String {
        let skipped = lines.all - lines.requests;
        let RestoreCounts {
            would_restore,
            restored,
            exists,
            failed,
            ..
        } = self;
        if dry_run {
            return format!(
                "{would_restore} would be restored, {failed} would fail, {skipped} skipped"
            );
        }
        let exists = count(*exists, "exists", "exist");
        format!("{restored} restored, {exists} already, {failed} failed, {skipped} skipped")
    }

    fn summary(&self, lines: &LineCounts) -> Summary {
        let counts = [
            ("matched", lines.requests),
            ("restored", self.restored),
            ("exists", self.exists),
            ("failed", self.failed),
            ("skipped", lines.all - lines.requests),
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

/// Error that ended the inserts early.
enum Interruption {
    Output(io::Error),
    Input(CommandError),
}

impl Interruption {
    /// A pipe that was closed after the last insert is no error.
    fn into_result(self, lines: &LineCounts, counts: &RestoreCounts) -> Result<(), CommandError> {
        let left = lines.requests.saturating_sub(counts.answered);
        match self {
            Interruption::Input(error) => Err(error),
            Interruption::Output(error) if is_closed(&error) && left == 0 => Ok(()),
            Interruption::Output(error) => Err(CommandError::new(
                ExitStatus::Partial,
                format!(
                    "writing the output: {error}; {} not tried",
                    count(left, "entry was", "entries were")
                ),
            )),
        }
    }
}

/// Puts the whole input back, batch by batch, and prints each batch before the next one is sent.
fn put_back(
    args: &RestoreArgs,
    input: &mut RestoreInput,
    lines: &LineCounts,
    mut table: Option<&mut Table>,
    counts: &mut RestoreCounts,
) -> Result<(), Interruption> {
    let mut printer = printing::printer(output::options(&args.output, true));
    let mut batch = Vec::with_capacity(MAX_BATCH);
    let mut written = Ok(());
    // Lines that were appended to the file after its check are not read.
    let mut left = lines.requests;
    input
        .each(&mut |request| {
            batch.push(request);
            left = left.saturating_sub(1);
            if batch.len() == MAX_BATCH || left == 0 {
                written = restore_batch(table.as_deref_mut(), &batch, &mut printer, counts);
                batch.clear();
            }
            continue_if(written.is_ok() && left > 0)
        })
        .map_err(Interruption::Input)?;
    written
        .and_then(|()| printer.finish(&counts.summary(lines)))
        .map_err(Interruption::Output)
}

/// Inserts one batch, where there is a table, and prints the outcome of each entry.
fn restore_batch(
    table: Option<&mut Table>,
    batch: &[RestoreRequest],
    printer: &mut Printer<'_>,
    counts: &mut RestoreCounts,
) -> io::Result<()> {
    let outcomes: Vec<Option<RestoreOutcome>> = match table {
        Some(table) => restore(table, batch).into_iter().map(Some).collect(),
        None => batch.iter().map(dry_outcome).collect(),
    };
    // The inserts are done, so all of them count even if printing the first fails.
    for outcome in &outcomes {
        counts.add(outcome.as_ref());
    }
    for (request, outcome) in batch.iter().zip(&outcomes) {
        let result = item_result(outcome.as_ref());
        printer.entry(&Entry::bare(request.flow.clone()), Some(&result))?;
    }
    printer.flush()
}

/// Outcome that is known without the kernel: only an obstacle.
fn dry_outcome(request: &RestoreRequest) -> Option<RestoreOutcome> {
    let obstacle = request.obstacle?;
    Some(RestoreOutcome::Failed(RestoreError::Obstacle(obstacle)))
}

fn item_result(outcome: Option<&RestoreOutcome>) -> ItemResult {
    let (result, error) = match outcome {
        None => ("would-restore", None),
        Some(RestoreOutcome::Restored) => ("restored", None),
        Some(RestoreOutcome::Exists) => ("exists", None),
        Some(RestoreOutcome::Failed(error)) => ("failed", Some(error.to_string())),
    };
    ItemResult { result, error }
}

fn status(lines: &LineCounts, counts: &RestoreCounts) -> Result<ExitStatus, CommandError> {
    if counts.answered < lines.requests {
        let missing = lines.requests - counts.answered;
        let missing = count(missing, "entry is", "entries are");
        return Err(CommandError::new(
            ExitStatus::Partial,
            format!("{CHANGED}: {missing} not there any more"),
        ));
    }
    if counts.tried > 0 && counts.refused == counts.tried {
        return Err(CommandError::new(
            ExitStatus::NotPermitted,
            "putting entries back is not permitted: it needs CAP_NET_ADMIN in the network namespace",
        )
        .hint(table_access::RUN_AS_ROOT));
    }
    Ok(if counts.failed > 0 {
        ExitStatus::Partial
    } else {
        ExitStatus::Done
    })
}

fn entries(number: u64) -> String {
    count(number, "entry", "entries")
}
