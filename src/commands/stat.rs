//! `ctk stat`: usage of the table, its limits and timeouts, and the kernel's counters.

mod namespaces;

use crate::args::stat::{StatArgs, StatFormat};
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::error::{CommandError, ExitStatus};
use crate::output::{
    Palette, StatOptions, delta_json, delta_line, safe_json, stat_json, stat_table,
};
use crate::stat::{Stat, read};
use ctnetlink::netns::Netns;

use crate::query::source;
use crate::session::table_access;
use crate::terminal::interruptible_stdout::{InterruptibleStdout, check_reader};
use crate::terminal::messages::{self, note};
use crate::terminal::signals;

/// Interval between two checks for a signal or a closed output.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(100);

pub fn run(args: &StatArgs) -> Result<ExitStatus, CommandError> {
    if args.interval.is_some() && args.report.format == StatFormat::Json {
        return Err(CommandError::usage(
            "--interval makes more than one document: it goes with -o table and jsonl",
        )
        .hint("use -o jsonl"));
    }
    if let Some(several) = source::several(&args.netns) {
        return namespaces::run(args, several);
    }
    let netns = source::netns(args.netns.name.as_deref())?;
    let (stat, notes) = read_stat(&netns)?;
    notes.iter().for_each(note);
    if stat.initial_netns == Some(false) {
        note(format!(
            "count, counters and timeouts are those of {} alone, not the node's; max, buckets and expect_max are the machine's",
            netns.name()
        ));
    }
    let stop = Arc::new(AtomicBool::new(false));
    let mut out: Box<dyn Write> = match args.interval {
        None => Box::new(io::stdout().lock()),
        Some(_) => {
            signals::set_on_signals(&stop)?;
            Box::new(InterruptibleStdout::new(Arc::clone(&stop), None))
        }
    };
    let result = match (print(args, &stat, &mut *out), args.interval) {
        (Ok(()), Some(interval)) => follow(args, &netns, stat, interval, &stop, &mut *out),
        (printed, _) => printed.map_err(FollowError::Output),
    };
    match result {
        Ok(()) => Ok(ExitStatus::Done),
        Err(FollowError::Output(error)) if error.kind() == io::ErrorKind::TimedOut => {
            note("the output was not read to its end");
            Ok(ExitStatus::Partial)
        }
        Err(FollowError::Output(error)) => messages::unwritten(error),
        Err(FollowError::Failed(error)) => Err(error),
    }
}

/// Cause of an early end.
enum FollowError {
    Output(io::Error),
    Failed(CommandError),
}

impl From<io::Error> for FollowError {
    fn from(error: io::Error) -> Self {
        FollowError::Output(error)
    }
}

fn read_stat(netns: &Netns) -> Result<(Stat, Vec<String>), CommandError> {
    read::stat(netns).map_err(table_access::netlink_error)
}

fn print(args: &StatArgs, stat: &Stat, out: &mut dyn Write) -> io::Result<()> {
    let text = match args.report.format {
        StatFormat::Table => {
            let terminal = io::stdout().is_terminal();
            let palette = Palette::of_environment(args.report.color, terminal);
            let options = StatOptions {
                header: !args.no_header,
                palette,
                per_cpu: args.per_cpu,
            };
            stat_table(stat, options)
        }
        StatFormat::Json | StatFormat::Jsonl => line(&stat_json(stat, args.per_cpu)),
    };
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Formats a document as one line. Interface names come from outside and are made safe.
fn line(document: &Value) -> String {
    safe_json(document) + "\n"
}

/// Prints the changes every interval until `stop` is set. Intervals are counted from the first reading, so slow readings do
/// not add up.
fn follow(
    args: &StatArgs,
    netns: &Netns,
    mut before: Stat,
    interval: Duration,
    stop: &AtomicBool,
    out: &mut dyn Write,
) -> Result<(), FollowError> {
    let mut read_at = Instant::now();
    let mut next = read_at + interval;
    let mut first = true;
    loop {
        while Instant::now() < next {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            check_reader()?;
            thread::sleep(
                next.saturating_duration_since(Instant::now())
                    .min(STOP_POLL_INTERVAL),
            );
        }
        let (stat, notes) = read_stat(netns).map_err(FollowError::Failed)?;
        let now = Instant::now();
        tracing::info!(?notes, "counters read");
        let seconds = (now - read_at).as_secs_f64();
        let delta = stat.since(&before);
        let text = match args.report.format {
            StatFormat::Table => {
                let gap = if first { "\n" } else { "" };
                gap.to_owned() + &delta_line(&stat, &delta, seconds)
            }
            _ => line(&delta_json(&stat, &delta, seconds, args.per_cpu)),
        };
        out.write_all(text.as_bytes())?;
        out.flush()?;
        (before, read_at, first) = (stat, now, false);
        // Intervals that a slow reading missed are not made up for.
        while next <= now {
            next += interval;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::ConntrackAllowance;

    #[test]
    fn interface_names_cannot_control_a_terminal() {
        let name = "v\u{7f}\u{9b}\u{202e}0";
        let stat = Stat {
            interfaces: Some(vec![ConntrackAllowance {
                interface: name.to_owned(),
                ..ConntrackAllowance::default()
            }]),
            ..Stat::default()
        };
        let delta = stat.since(&stat);
        for document in [
            stat_json(&stat, false),
            delta_json(&stat, &delta, 1.0, false),
        ] {
            let text = line(&document);
            assert!(text.is_ascii() && !text.contains('\u{7f}'), "{text:?}");
            let read: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(read["interfaces"][0]["interface"], name, "{text}");
        }
    }
}
