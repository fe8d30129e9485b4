//! Arguments of `ctk restore`.

use super::{NetnsArgs, OutputArgs};
use clap::Args;
use std::path::PathBuf;

#[derive(Args)]
#[command(mut_arg("sort", |arg| arg.hide(true)), mut_arg("limit", |arg| arg.hide(true)))]
#[command(after_help = "\
Input: only lines with \"result\":\"deleted\" are put back. Lines with another result are counted as skipped. A line without \
a result, or an unreadable line, refuses the whole input before anything is changed.

Results: restored; exists (an entry in the table has one of its tuples already, and is left alone); failed, with the error.

Restored: both tuples with their translation, zone, ASSURED and SEEN_REPLY, TCP and SCTP state, the saved timeout, mark, \
labels (if a rule uses labels), helper (if it is loaded).

Not restored: counters, id, start time, sequence numbers adjusted by a NAT helper, the relation to a helper's control \
connection. TCP window scaling is not restored either: such a connection is tracked liberally.

Lines that fail: offloaded entries (they have no timeout), SCTP entries with a state but no verification tags, DCCP entries.

Examples:
  ctk purge --stale --yes -o jsonl > gone.jsonl
  ctk restore --dry-run gone.jsonl
  ctk restore gone.jsonl                   show the entries, ask, put them back")]
pub struct RestoreArgs {
    /// Output of `ctk purge -o jsonl` or `-o json`; -: standard input
    #[arg(value_name = "FILE|-")]
    pub file: PathBuf,
    /// Restore without asking; required with -, and if stdin or stderr is no terminal
    #[arg(long)]
    pub yes: bool,
    /// Show the entries that would be put back; change nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub netns: NetnsArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}
