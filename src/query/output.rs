//! How entries are printed.

use crate::args::OutputArgs;
use crate::error::CommandError;
use crate::output::{Options, Palette};
use crate::terminal::printing;

/// Options of a printer of entries to stdout. `results`: each entry is printed with the result of its delete or insert.
pub fn options(args: &OutputArgs, results: bool) -> Options {
    Options {
        format: args.report.format,
        columns: args.columns.clone(),
        palette: Palette::of_environment(args.report.color, printing::stdout_is_terminal()),
        header: !args.no_header,
        terminal: printing::stdout_width(),
        results,
        netns: false,
    }
}

/// # Errors
/// `--columns` with a format that has no columns.
pub fn check_columns(args: &OutputArgs) -> Result<(), CommandError> {
    if args.columns.is_some() && !args.report.format.has_columns() {
        return Err(
            CommandError::usage("--columns goes with -o table, wide and csv")
                .hint("json, jsonl and conntrack always print every field"),
        );
    }
    Ok(())
}
