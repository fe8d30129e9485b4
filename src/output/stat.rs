//! How [`Stat`] is printed: tables for people, one JSON record a look.

use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};

use super::bounded::{Lean, TextCell, bounded_table};
use super::{Palette, Style};
use crate::ethtool::{ALLOWANCE_AVAILABLE, ALLOWANCE_EXCEEDED};
use crate::stat::counters::Counters;
use crate::stat::explain::{self, LOSSES};
use crate::stat::{Allowance, CpuCounters, Delta, Stat};

/// From here on, in percent, a table is coloured.
const WARM: f64 = 75.0;

/// How to print.
#[derive(Clone, Copy, Debug)]
pub struct StatOptions {
    pub header: bool,
    pub palette: Palette,
    /// Each CPU's counters, too.
    pub per_cpu: bool,
}

/// Everything, in tables with an empty line between two.
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

impl Allowance {
    fn is_known(&self) -> bool {
        self.exceeded.is_some() || self.available.is_some()
    }
}

fn number(value: Option<u64>) -> TextCell {
    TextCell::or_dash(value.map(|value| value.to_string()))
}

fn sizes(stat: &Stat, options: StatOptions) -> String {
    let settings = &stat.settings;
    let used = stat.used_percent();
    let used_text = used.map(|used| format!("{used:.1} % of max"));
    let style = match used {
        Some(used) if used >= explain::NEARLY_FULL => Style::Bad,
        Some(used) if used >= WARM => Style::Warning,
        _ => Style::Plain,
    };
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
        TextCell::styled(used_text.unwrap_or_default(), style),
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
        ("TABLE", Lean::Left),
        ("VALUE", Lean::Right),
        ("", Lean::Left),
    ];
    bounded_table(&columns, rows, options.header, options.palette)
}

/// A counter of losses that is not 0 stands out.
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
        ]
    });
    let columns = [("COUNTER", Lean::Left), ("TOTAL", Lean::Right)];
    let mut text = bounded_table(&columns, rows, options.header, options.palette);
    for line in explain::losses(counters, stat.used_percent()) {
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// A line a CPU. Counters of expectations are left out while they are all 0, so that it fits.
fn cpus(counters: &CpuCounters, options: StatOptions) -> String {
    let total = counters.total();
    let shown = |name: &&str| {
        let count = total.get(name);
        count.is_some_and(|count| count > 0 || !name.starts_with("expect_"))
    };
    let names: Vec<&str> = total.names().filter(shown).collect();
    let mut columns = vec![("CPU", Lean::Right)];
    columns.extend(names.iter().map(|name| (*name, Lean::Right)));
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
        ("TIMEOUT", Lean::Left),
        ("SECONDS", Lean::Right),
        ("", Lean::Left),
    ];
    bounded_table(&columns, rows, options.header, options.palette)
}

fn allowances(all: &[&Allowance], options: StatOptions) -> String {
    let rows = all.iter().map(|one| {
        vec![
            TextCell::plain(&one.interface),
            number(one.exceeded),
            number(one.available),
        ]
    });
    let columns = [
        ("INTERFACE", Lean::Left),
        (ALLOWANCE_EXCEEDED, Lean::Right),
        (ALLOWANCE_AVAILABLE, Lean::Right),
    ];
    bounded_table(&columns, rows, options.header, options.palette)
}

/// What happened in an interval, in one line.
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
            Some(more) => line += &format!("  {name} +{more}"),
        }
    }
    for (interface, more) in &delta.exceeded {
        if let Some(more) = more.filter(|more| *more > 0) {
            line += &format!("  {interface} {ALLOWANCE_EXCEEDED} +{more}");
        }
    }
    let said = explain::losses(&total, stat.used_percent());
    if !said.is_empty() {
        line += &format!("  {}", said.join("; "));
    }
    super::safe_text(&line) + "\n"
}

/// Fields of one look. Names are the kernel's where it has any (`nf_conntrack_count` is `count`); timeouts are seconds,
/// `used_percent` is count in percent of max, `mean_chain_length` is twice count by buckets: each
/// entry is hashed by either direction. Entries of other namespaces lie in the same buckets and are not in it.
pub fn stat_json(stat: &Stat, per_cpu: bool) -> Value {
    let settings = &stat.settings;
    let total = stat.counters.as_ref().map(CpuCounters::total);
    let mut fields = json!({
        "schema": "ctk/v1",
        "type": "absolute",
        "time": now(),
        "initial_netns": stat.initial_netns,
        "count": stat.count,
        "max": settings.max,
        "used_percent": stat.used_percent(),
        "buckets": settings.buckets,
        "mean_chain_length": stat.mean_chain_length(),
        "expect_count": stat.expect_count,
        "expect_max": settings.expect_max,
        "settings": {
            "acct": settings.acct,
            "timestamp": settings.timestamp,
            "events": settings.events,
            "tcp_be_liberal": settings.tcp_be_liberal,
            "tcp_loose": settings.tcp_loose,
        },
        "timeouts": stat.timeouts,
        "interfaces": stat.interfaces.as_ref().map(|all| {
            all.iter().map(allowance_json).collect::<Vec<_>>()
        }),
    });
    put_counters(&mut fields, stat.counters.as_ref(), per_cpu);
    fields["explanation"] = explained(total.as_ref(), stat);
    fields
}

/// Fields of an interval of `seconds`. `count`, `max` and what interfaces have available are as they are at its end;
/// `count_change`, counters and what was exceeded are differences.
pub fn delta_json(stat: &Stat, delta: &Delta, seconds: f64, per_cpu: bool) -> Value {
    let total = delta.counters.as_ref().map(CpuCounters::total);
    let interfaces = stat.interfaces.as_ref().map(|all| {
        let exceeded = |name: &str| {
            let found = delta.exceeded.iter().find(|(other, _)| other == name);
            found.and_then(|(_, more)| *more)
        };
        let one = |now: &Allowance| {
            allowance_json(&Allowance {
                exceeded: exceeded(&now.interface),
                ..now.clone()
            })
        };
        all.iter().map(one).collect::<Vec<_>>()
    });
    let mut fields = json!({
        "schema": "ctk/v1",
        "type": "delta",
        "time": now(),
        "seconds": seconds,
        "count": stat.count,
        "count_change": delta.count,
        "max": stat.settings.max,
        "interfaces": interfaces,
    });
    put_counters(&mut fields, delta.counters.as_ref(), per_cpu);
    fields["explanation"] = explained(total.as_ref(), stat);
    fields
}

fn explained(total: Option<&Counters>, stat: &Stat) -> Value {
    let said = total.map(|total| explain::losses(total, stat.used_percent()));
    said.unwrap_or_default().into()
}

fn put_counters(fields: &mut Value, counters: Option<&CpuCounters>, per_cpu: bool) {
    fields["counters_from"] = counters.map(|counters| counters.from.name()).into();
    fields["counters"] = counters
        .map(|counters| counters_json(&counters.total()))
        .into();
    if per_cpu {
        let cpus = counters.map(|counters| {
            let cpus = counters.cpus.iter();
            cpus.map(|(cpu, counters)| json!({"cpu": cpu, "counters": counters_json(counters)}))
                .collect::<Vec<_>>()
        });
        fields["cpus"] = cpus.into();
    }
}

fn counters_json(counters: &Counters) -> Value {
    let names = counters.names();
    let fields: Map<String, Value> = names
        .map(|name| (name.to_owned(), counters.get(name).into()))
        .collect();
    fields.into()
}

fn allowance_json(one: &Allowance) -> Value {
    json!({
        "interface": one.interface,
        ALLOWANCE_EXCEEDED: one.exceeded,
        ALLOWANCE_AVAILABLE: one.available,
    })
}

fn now() -> String {
    humantime::format_rfc3339_millis(SystemTime::now()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::CountersFrom;

    const PLAIN: StatOptions = StatOptions {
        header: true,
        palette: Palette::PLAIN,
        per_cpu: true,
    };

    fn node() -> Stat {
        let cpu = |failed, invalid| {
            Counters::from_iter([
                ("insert_failed", failed),
                ("drop", failed),
                ("invalid", invalid),
            ])
        };
        let mut stat = Stat {
            count: Some(412),
            timeouts: [("udp_timeout".to_owned(), 30)].into(),
            counters: Some(CpuCounters {
                from: CountersFrom::Netlink,
                cpus: vec![(0, cpu(1041, 0)), (1, cpu(0, 110))],
            }),
            interfaces: Some(vec![
                Allowance {
                    interface: "eth0".to_owned(),
                    exceeded: Some(5012),
                    available: Some(0),
                },
                Allowance {
                    interface: "eth1\u{1b}[2J".to_owned(),
                    ..Allowance::default()
                },
            ]),
            ..Stat::default()
        };
        stat.settings.max = Some(1000);
        stat.settings.events = Some(2);
        stat
    }

    #[test]
    fn a_table_shows_dashes_for_what_is_not_known_and_leaves_interfaces_without_allowance_out() {
        let text = stat_table(&node(), PLAIN);
        for line in [
            "count             412  41.2 % of max",
            "max              1000",
            "buckets             -",
            "events              2  only of entries made while somebody listens",
            "insert_failed    1041",
            "chaintoolong        -",
            "insert_failed 1041: lost insertion races (typical: parallel UDP queries from one socket through DNAT or SNAT)",
            "udp_timeout       30  30s",
        ] {
            assert!(
                text.lines().any(|l| l.trim_start().starts_with(line)),
                "{line}:\n{text}"
            );
        }
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            text.lines().any(|line| words(line) == "eth0 5012 0"),
            "{text}"
        );
        assert!(!text.contains("eth1"), "{text}");
        let cpus: Vec<_> = text
            .lines()
            .skip_while(|line| !line.trim_start().starts_with("CPU"))
            .collect();
        assert!(!cpus[0].contains("expect_"), "{text}");
        assert_eq!(
            cpus[2].split_whitespace().take(3).collect::<Vec<_>>(),
            ["1", "110", "0"]
        );
    }

    #[test]
    fn json_holds_null_for_what_is_not_known() {
        let document = stat_json(&node(), false);
        assert_eq!(document["used_percent"], 41.2);
        assert_eq!(document["buckets"], Value::Null);
        assert_eq!(document["counters"]["invalid"], 110);
        assert_eq!(document["counters"]["early_drop"], Value::Null);
        assert!(document.get("cpus").is_none());
        assert_eq!(document["interfaces"][0][ALLOWANCE_EXCEEDED], 5012);
        assert_eq!(document["interfaces"][0][ALLOWANCE_AVAILABLE], 0);
        assert_eq!(document["interfaces"][1][ALLOWANCE_EXCEEDED], Value::Null);
        let nothing = stat_json(&Stat::default(), true);
        for name in [
            "counters",
            "counters_from",
            "cpus",
            "interfaces",
            "count",
            "used_percent",
        ] {
            assert_eq!(nothing[name], Value::Null, "{name}");
        }
        assert_eq!(nothing["explanation"], json!([]));
    }

    #[test]
    fn an_interval_shows_what_moved_and_says_what_that_means() {
        let (before, mut now) = (node(), node());
        now.count = Some(400);
        for (_, counters) in &mut now.counters.as_mut().unwrap().cpus {
            let failed = counters.get("insert_failed").unwrap() + 27;
            counters.put("insert_failed", failed);
            counters.put("drop", failed);
        }
        now.interfaces.as_mut().unwrap()[0].exceeded = Some(5015);
        let delta = now.since(&before);
        let line = delta_line(&now, &delta, 10.0);
        assert!(
            line.starts_with(
                "10.0s  count 400 (-12)  insert_failed +54  drop +54  eth0 conntrack_allowance_exceeded +3  insert_failed 54: "
            ),
            "{line}"
        );
        let record = delta_json(&now, &delta, 10.0, false);
        assert_eq!(record["count_change"], -12);
        assert_eq!(record["counters"]["insert_failed"], 54);
        assert_eq!(record["counters"]["early_drop"], Value::Null);
        assert_eq!(record["interfaces"][0][ALLOWANCE_EXCEEDED], 3);
        assert_eq!(record["interfaces"][0][ALLOWANCE_AVAILABLE], 0);
        now.counters = None;
        let line = delta_line(&now, &now.since(&before), 1.0);
        assert!(line.ends_with("counters not available\n"), "{line}");
    }
}
