//! [`Stat`] as one JSON record per reading.

use std::time::SystemTime;

use serde_json::{Map, Value, json};

use crate::ethtool::{ALLOWANCE_AVAILABLE, ALLOWANCE_EXCEEDED};
use crate::stat::counters::Counters;
use crate::stat::explain;
use crate::stat::{ConntrackAllowance, CpuCounters, Delta, Stat};

/// Record of one reading. Names are the kernel's where it has any (`nf_conntrack_count` is `count`). Timeouts are seconds,
/// `used_percent` is count in percent of max, `mean_chain_length` is twice count divided by buckets, because each entry is
/// hashed once for each direction. Entries of other namespaces are in the same buckets and are not counted in it.
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
    fields["explanation"] = explanation(total.as_ref(), stat);
    fields
}

/// Record of an interval of `seconds`. `count`, `max` and the available allowances are values at its end; `count_change`,
/// counters and exceeded allowances are differences.
pub fn delta_json(stat: &Stat, delta: &Delta, seconds: f64, per_cpu: bool) -> Value {
    let total = delta.counters.as_ref().map(CpuCounters::total);
    let interfaces = stat.interfaces.as_ref().map(|all| {
        let exceeded = |name: &str| {
            let found = delta.exceeded.iter().find(|(other, _)| other == name);
            found.and_then(|(_, more)| *more)
        };
        let one = |now: &ConntrackAllowance| {
            allowance_json(&ConntrackAllowance {
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
    fields["explanation"] = explanation(total.as_ref(), stat);
    fields
}

fn explanation(total: Option<&Counters>, stat: &Stat) -> Value {
    let sentences = total.map(|total| explain::losses(total, stat.used_percent()));
    sentences.unwrap_or_default().into()
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

fn allowance_json(one: &ConntrackAllowance) -> Value {
    json!({
        "interface": one.interface,
        ALLOWANCE_EXCEEDED: one.exceeded,
        ALLOWANCE_AVAILABLE: one.available,
    })
}

fn now() -> String {
    humantime::format_rfc3339_millis(SystemTime::now()).to_string()
}
