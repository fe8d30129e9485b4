//! Arguments of `ctk doctor`.

use super::{ReportArgs, SourceArgs, duration};
use crate::doctor::Thresholds;
use clap::{Args, ValueEnum};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DoctorFormat {
    /// Text: sentence, a few rows and remedy of each finding; the numbers are in JSON
    Table,
    /// One document with items and a summary
    Json,
    /// One finding a line
    Jsonl,
}

#[derive(Args)]
#[command(after_help = "Examples:
  ctk doctor                               check this node; takes 6 s
  ctk doctor --sample 0 --half-closed 20   look once, with another threshold
  ctk doctor --list                        all checks, and what each looks for

--watch 30s repeats the checks every 30 s until Ctrl-C.

Exit status: 0 no finding above info, 5 a finding of severity warning or critical, 3 something is missing from the answer \
(stderr lists it)")]
pub struct DoctorArgs {
    #[command(flatten)]
    pub source: SourceArgs,
    #[command(flatten)]
    pub report: ReportArgs<DoctorFormat>,
    /// Look three times within this time (at least 6s), to find refreshed entries and new losses; 0: look once
    #[arg(long, value_name = "DURATION", value_parser = sample, default_value = "6s")]
    pub sample: Duration,
    /// Print every check with what it looks for, and end
    #[arg(long, conflicts_with = "watch")]
    pub list: bool,
    /// Repeat, with this time between the rounds [default without a value: 10s]
    #[arg(long, value_name = "DURATION", value_parser = duration, num_args = 0..=1, default_missing_value = "10s")]
    pub watch: Option<Duration>,
    #[command(flatten)]
    pub thresholds: Thresholds,
}

/// Parses a time for three looks, or 0 for one look.
fn sample(text: &str) -> Result<Duration, String> {
    if duration(text)?.is_zero() {
        return Ok(Duration::ZERO);
    }
    super::sample(text).map_err(|error| format!("{error}; 0 looks once"))
}
