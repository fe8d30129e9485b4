//! `ctk restore`: put deleted entries back; as it is typed.

use super::OutputArgs;
use clap::Args;
use std::path::PathBuf;

#[derive(Args)]
#[command(mut_arg("sort", |arg| arg.hide(true)), mut_arg("limit", |arg| arg.hide(true)))]
#[command(after_help = "\
Only lines with \"result\":\"deleted\" are put back; others are counted as skipped. A line without a result, or one that \
cannot be read, refuses the whole input before anything is changed.

Each line gets a result: restored; exists (one of its tuples is taken, by the entry itself or by a newer one, which is \
left alone); failed, with the error.

What comes back: both tuples with the translation in between, zone, ASSURED and SEEN_REPLY, TCP and SCTP state, the rest \
of the timeout as it was saved, mark, labels (where a rule uses labels), helper (where it is loaded). What cannot come \
back: counters, id, start time, TCP window scaling (such a connection is tracked liberally instead), sequence numbers \
adjusted by a NAT helper, the tie to a helper's control connection. Offloaded entries have no timeout to give back, SCTP \
needs its tags, and DCCP's state cannot be saved: these lines fail.

Examples:
  ctk purge --stale --yes -o jsonl > gone.jsonl
  ctk restore --dry-run gone.jsonl
  ctk restore gone.jsonl                   show the entries, ask, put them back")]
pub struct RestoreArgs {
    /// What `ctk purge -o jsonl` or `-o json` printed; - for standard input
    #[arg(value_name = "FILE|-")]
    pub file: PathBuf,
    /// Do not ask; needed where standard input or standard error is no terminal, and with -
    #[arg(long)]
    pub yes: bool,
    /// Only say what would be put back
    #[arg(long)]
    pub dry_run: bool,
    /// Another network namespace: a NAME, a PATH or a PID (name:1234 for a name of digits)
    #[arg(long, value_name = "NAME|PATH|PID")]
    pub netns: Option<String>,
    #[command(flatten)]
    pub output: OutputArgs,
}
