//! `ctk doctor`: say what is wrong; as it is typed.

use super::{SourceArgs, duration};
use crate::doctor::Thresholds;
use crate::output::ColorChoice;
use crate::verdict::MIN_SAMPLE;
use clap::{Args, ValueEnum};
use std::time::Duration;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DoctorFormat {
    /// Sentences for people
    #[default]
    Table,
    /// One document with items and a summary
    Json,
    /// One finding a line
    Jsonl,
}

#[derive(Args)]
#[command(after_help = "Examples:
  ctk doctor                               what is wrong on this node; takes 6 s
  ctk doctor --sample 0 --half-closed 20   at once, with another threshold
  ctk doctor --sample 0 -o jsonl           a finding a line, for scripts

--watch 30s looks again and again, until Ctrl-C.

Exit status: 0 nothing above info, 5 a warning or worse, 3 something is missing from the answer (stderr says what)")]
pub struct DoctorArgs {
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
    pub output: DoctorFormat,
    /// Colour
    #[arg(long, value_enum, default_value_t = ColorChoice::Auto, value_name = "WHEN", help_heading = "Output")]
    pub color: ColorChoice,
    /// Look three times during this time (at least 6s), to tell which entries are kept alive; 0 = look once
    #[arg(long, value_name = "DURATION", value_parser = sample, default_value = "6s")]
    pub sample: Duration,
    /// Repeat, with this time between the rounds [10s when none is given]
    #[arg(long, value_name = "DURATION", value_parser = duration, num_args = 0..=1, default_missing_value = "10s")]
    pub watch: Option<Duration>,
    #[command(flatten)]
    pub thresholds: Thresholds,
}

/// A duration in which three looks tell something, or none.
fn sample(text: &str) -> Result<Duration, String> {
    let sample = duration(text)?;
    if !sample.is_zero() && sample < MIN_SAMPLE {
        return Err("it takes at least 6s: timers count whole seconds; 0 looks once".to_owned());
    }
    Ok(sample)
}
