//! `ctk stat`: limits, settings and counters; as it is typed.

use super::duration;
use crate::output::ColorChoice;
use clap::{Args, ValueEnum};
use std::time::Duration;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum StatFormat {
    /// For people
    #[default]
    Table,
    /// One document
    Json,
    /// One record a look
    Jsonl,
}

#[derive(Args)]
#[command(after_help = "Examples:
  ctk stat                how full, limits, settings, counters, timeouts
  ctk stat --per-cpu      with the counters of each CPU
  ctk stat -o json        for scripts

--interval 10s goes on, and prints every 10 s what was counted since.

Counters are those of the network namespace, since it was made; absent ones are - (null).")]
pub struct StatArgs {
    /// After the whole, what was counted since, this often (at least 200ms); Ctrl-C ends it
    #[arg(long, value_name = "DURATION", value_parser = interval)]
    pub interval: Option<Duration>,
    /// The counters of each CPU, too
    #[arg(long)]
    pub per_cpu: bool,
    /// Another network namespace: a NAME, a PATH or a PID (name:1234 for a name of digits)
    #[arg(long, value_name = "NAME|PATH|PID")]
    pub netns: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: StatFormat,
    /// Leave the header lines out
    #[arg(long)]
    pub no_header: bool,
    /// Colour
    #[arg(long, value_enum, default_value_t = ColorChoice::Auto, value_name = "WHEN")]
    pub color: ColorChoice,
}

/// Each look runs ethtool.
const LEAST: Duration = Duration::from_millis(200);

fn interval(text: &str) -> Result<Duration, String> {
    let interval = duration(text)?;
    if interval < LEAST {
        return Err("it takes at least 200ms".to_owned());
    }
    Ok(interval)
}
