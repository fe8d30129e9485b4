//! `stat --netns all` and `--netns A,B`: one line a namespace, those with the most entries first.

use std::cmp::Reverse;
use std::io::{self, IsTerminal, Write};

use serde_json::{Value, json};

use super::{line, read_stat};
use crate::args::stat::{StatArgs, StatFormat};
use crate::error::{CommandError, ExitStatus};
use crate::output::{Palette, StatOptions, namespaces_table, stat_json};
use crate::session::namespaces::{GIVE_ONE, Namespaces};
use crate::stat::Stat;
use crate::terminal::messages::{self, note};

pub fn run(args: &StatArgs, text: &str) -> Result<ExitStatus, CommandError> {
    if args.interval.is_some() {
        return Err(CommandError::usage(
            "several namespaces are read once: --interval does not go with them",
        )
        .hint(GIVE_ONE));
    }
    let namespaces = Namespaces::open(text);
    let mut missing = namespaces.missing;
    let mut refused = None;
    let mut all = Vec::new();
    for (name, netns) in namespaces.open {
        match read_stat(&netns) {
            Ok((stat, notes)) => {
                for text in notes {
                    note(format!("--netns {name}: {text}"));
                }
                all.push((name, stat));
            }
            Err(error) => {
                missing.push(format!("--netns {name}: {}", error.text()));
                refused = Some(error);
            }
        }
    }
    if all.is_empty() {
        let none = || CommandError::failed(missing.join("; "));
        return Err(refused.unwrap_or_else(none));
    }
    all.sort_by_key(|(_, stat)| Reverse(stat.count));
    let mut out = io::stdout().lock();
    if let Err(error) = out
        .write_all(text_of(args, &all).as_bytes())
        .and_then(|()| out.flush())
    {
        return messages::unwritten(error);
    }
    missing.iter().for_each(note);
    Ok(match missing.is_empty() {
        true => ExitStatus::Done,
        false => ExitStatus::Partial,
    })
}

fn text_of(args: &StatArgs, all: &[(String, Stat)]) -> String {
    let record = |(name, stat): &(String, Stat)| {
        let mut record = stat_json(stat, args.per_cpu);
        record["netns"] = name.as_str().into();
        record
    };
    match args.report.format {
        StatFormat::Table => {
            let palette = Palette::of_environment(args.report.color, io::stdout().is_terminal());
            let options = StatOptions {
                header: !args.no_header,
                palette,
                per_cpu: args.per_cpu,
            };
            namespaces_table(all, options)
        }
        StatFormat::Json => {
            let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
            let items: Vec<Value> = all.iter().map(record).collect();
            line(&json!({
                "schema": "ctk/v1",
                "items": items,
                "summary": {"netns": names, "count": total(all)},
            }))
        }
        StatFormat::Jsonl => all.iter().map(|one| line(&record(one))).collect(),
    }
}

/// Entries of all namespaces; `None` where the number of one is not known.
fn total(all: &[(String, Stat)]) -> Option<u64> {
    all.iter().map(|(_, stat)| stat.count).sum()
}
