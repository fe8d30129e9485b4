//! [`Stat`] as tables, or as one JSON record per reading.

mod document;

use std::time::Duration;

use super::bounded::{Alignment, TextCell, bounded_table};
use super::{Palette, Style};
use crate::ethtool::{ALLOWANCE_AVAILABLE, ALLOWANCE_EXCEEDED};
use crate::percent::rounded;
use crate::stat::counters::Counters;
use crate::stat::explain::{self, LOSSES};
use crate::stat::{ConntrackAllowance, CpuCounters, Delta, Stat};

pub use document::{delta_json, stat_json};

/// Percent of the limit from which on the number of entries is coloured as a warning.
const WARNING_PERCENT: f64 = 75.0;

/// Options for printing statistics.
#[derive(Clone, Copy, Debug)]
pub struct StatOptions {
    pub header: bool,
    pub palette: Palette,
    /// Print the counters of each CPU, too.
    pub per_cpu: bool,
}

/// All tables, with an empty line between two.
pub fn stat_table(stat: &Stat, options: StatOptions) -> String {
    let mut parts = vec![sizes(stat, options)];
    let total = stat.counters.as_ref().map(CpuCounters::total);
    parts.push(counters(stat, total.as_ref(), options));
    if let Some(counters) = stat.counters.as_ref().filter(|_| options.per_cpu) {
        parts.push(cpus(counters, options));
    }
    parts.push(timeouts(stat, options));
    let known = stat.interfaces.iter().flatten();
    let known: Vec<_> = known.filter(|one| one.is_known()).collect();
    if !known.is_empty() {
        parts.push(allowances(&known, options));
    }
    parts.join("\n")
}

impl ConntrackAllowance {
    fn is_known(&self) -> bool {
        self.exceeded.is_some() || self.available.is_some()
    }
}

fn number(value: Option<u64>) -> TextCell {
    TextCell::or_dash(value.map(|value| value.to_string()))
}

/// One row a namespace: entries, percent of the limit, and losses. With `per_cpu`, rows of each CPU follow.
pub fn namespaces_table(all: &[(String, Stat)], options: StatOptions) -> String {
    let mut columns = vec![
        ("NETNS", Alignment::Left),
        ("COUNT", Alignment::Right),
        ("OF MAX", Alignment::Right),
    ];
    let counted = LOSSES.iter().copied().chain(["invalid"]);
    columns.extend(counted.clone().map(|name| (name, Alignment::Right)));
    let rows = all.iter().map(|(name, stat)| {
        let used = stat.used_percent();
        let total = stat.counters.as_ref().map(CpuCounters::total);
        let mut row = vec![
            TextCell::plain(name),
            number(stat.count),
            TextCell::styled(
                used.map_or_else(|| "-".to_owned(), |used| format!("{} %", rounded(used))),
                usage_style(used),
            ),
        ];
        row.extend(counted.clone().map(|name| {
            let count = total.as_ref().and_then(|total| total.get(name));
            let text = count.map_or_else(|| "-".to_owned(), |count| count.to_string());
            TextCell::styled(text, loss_style(name, count))
        }));
        row
    });
    let mut text = bounded_table(&columns, rows, options.header, options.palette);
    for (name, stat) in all.iter().filter(|_| options.per_cpu) {
        if let Some(counters) = &stat.counters {
            text += &format!("\n{}\n{}", super::safe_text(name), cpus(counters, options));
        }
    }
    text
}

/// Style of the share of the limit.
fn usage_style(used_percent: Option<f64>) -> Style {
    match used_percent {
        Some(used) if used >= explain::NEARLY_FULL_PERCENT => Style::Bad,
        Some(used) if used >= WARNING_PERCENT => Style::Warning,
        _ => Style::Plain,
    }
}

fn sizes(stat: &Stat, options: StatOptions) -> String {
    let settings = &stat.settings;
    let used = stat.used_percent();
    let used_text = used.map(|used| format!("{} % of max", rounded(used)));
    let chain = stat
        .mean_chain_length()
        .map(|mean| format!("{mean:.2} hashed tuples a bucket, two an entry"));
    let switch = |value: Option<u64>, words: &[&str]| {
        let word = value.and_then(|value| words.get(usize::try_from(value).ok()?));
        word.map(|word| (*word).to_owned())
    };
    let mut rows = vec![vec![
        TextCell::plain("count"),
        number(stat.count),
        TextCell::styled(used_text.unwrap_or_default(), usage_style(used)),
    ]];
    for (name, value, about) in [
        ("max", settings.max, None),
        ("buckets", settings.buckets, chain),
        ("expect_count", stat.expect_count, None),
        ("expect_max", settings.expect_max, None),
        (
            "acct",
            settings.acct,
            switch(settings.acct, &["entries count no packets and bytes"]),
        ),
        (
            "timestamp",
            settings.timestamp,
            switch(settings.timestamp, &["entries have no start time"]),
        ),
        (
            "events",
            settings.events,
            switch(
                settings.events,
                &[
                    "none are sent",
                    "",
                    "only of entries made while somebody listens",
                ],
            ),
        ),
        (
            "tcp_be_liberal",
            settings.tcp_be_liberal,
            switch(
                settings.tcp_be_liberal,
                &["", "segments out of the window are tracked"],
            ),
        ),
        (
            "tcp_loose",
            settings.tcp_loose,
            switch(settings.tcp_loose, &["open flows are not picked up"]),
        ),
    ] {
        rows.push(vec![
            TextCell::plain(name),
            number(value),
            TextCell::plain(about.unwrap_or_default()),
        ]);
    }
    let columns = [
        ("TABLE", Alignment::Left),
        ("VALUE", Alignment::Right),
        ("", Alignment::Left),
    ];
    bounded_table(&columns, rows, options.header, options.palette)
}

/// Style of a counter: a warning for losses that are not 0.
fn loss_style(name: &str, count: Option<u64>) -> Style {
    match count.is_some_and(|count| count > 0) && LOSSES.contains(&name) {
        true => Style::Warning,
        false => Style::Plain,
    }
}

fn counters(stat: &Stat, total: Option<&Counters>, options: StatOptions) -> String {
    let none = Counters::default();
    let counters = total.unwrap_or(&none);
    let rows = counters.names().map(|name| {
        let count = counters.get(name);
        let text = count.map_or_else(|| "-".to_owned(), |count| count.to_string());
        vec![
            TextCell::plain(name),
            TextCell::styled(text, loss_style(name, count)),
            TextCell::plain(explain::meaning(name).unwrap_or_default()),
        ]
    });
    let columns = [
        ("COUNTER", Alignment::Left),
        ("TOTAL", Alignment::Right),
        ("MEANING", Alignment::Left),
    ];
    let mut text = bounded_table(&columns, rows, options.header, options.palette);
    for line in explain::losses(counters, stat.used_percent()) {
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// One line per CPU. Counters of expectations that are all 0 are left out, so that the table is narrower.
fn cpus(counters: &CpuCounters, options: StatOptions) -> String {
    let total = counters.total();
    let shown = |name: &&str| {
        let count = total.get(name);
        count.is_some_and(|count| count > 0 || !name.starts_with("expect_"))
    };
    let names: Vec<&str> = total.names().filter(shown).collect();
    let mut columns = vec![("CPU", Alignment::Right)];
    columns.extend(names.iter().map(|name| (*name, Alignment::Right)));
    let rows = counters.cpus.iter().map(|(cpu, counters)| {
        let mut row = vec![TextCell::plain(cpu.to_string())];
        row.extend(names.iter().map(|name| number(counters.get(name))));
        row
    });
    bounded_table(&columns, rows, options.header, options.palette)
}

fn timeouts(stat: &Stat, options: StatOptions) -> String {
    let rows = stat.timeouts.iter().map(|(name, seconds)| {
        let time = humantime::format_duration(Duration::from_secs(*seconds));
        vec![
            TextCell::plain(name),
            TextCell::plain(seconds.to_string()),
            TextCell::plain(time.to_string()),
        ]
    });
    let columns = [
        ("TIMEOUT", Alignment::Left),
        ("SECONDS", Alignment::Right),
        ("", Alignment::Left),
    ];
    bounded_table(&columns, rows, options.header, options.palette)
}

fn allowances(all: &[&ConntrackAllowance], options: StatOptions) -> String {
    let rows = all.iter().map(|one| {
        vec![
            TextCell::plain(&one.interface),
            number(one.exceeded),
            number(one.available),
        ]
    });
    let columns = [
        ("INTERFACE", Alignment::Left),
        (ALLOWANCE_EXCEEDED, Alignment::Right),
        (ALLOWANCE_AVAILABLE, Alignment::Right),
    ];
    bounded_table(&columns, rows, options.header, options.palette)
}

/// Changes in an interval of `seconds`, in one line.
pub fn delta_line(stat: &Stat, delta: &Delta, seconds: f64) -> String {
    let mut line = format!("{seconds:.1}s");
    if let Some(count) = stat.count {
        line += &format!("  count {count}");
    }
    if let Some(change) = delta.count {
        line += &format!(" ({change:+})");
    }
    let total = delta.counters.as_ref().map(CpuCounters::total);
    let Some(total) = total else {
        return line + "  counters not available\n";
    };
    for name in total.names() {
        match total.get(name) {
            None | Some(0) => {}
            Some(increase) => line += &format!("  {name} +{increase}"),
        }
    }
    for (interface, more) in &delta.exceeded {
        if let Some(more) = more.filter(|more| *more > 0) {
            line += &format!("  {interface} {ALLOWANCE_EXCEEDED} +{more}");
        }
    }
    let sentences = explain::losses(&total, stat.used_percent());
    if !sentences.is_empty() {
        line += &format!("  {}", sentences.join("; "));
    }
    super::safe_text(&line) + "\n"
}

#[cfg(test)]
mod tests;
