//! What is known of a whole table: how full it is, its settings, and what the kernel counted. `read` asks for it; the rest
//! is pure.

pub mod counters;
pub mod explain;
pub mod proc_file;
pub mod read;

use std::collections::BTreeMap;

use crate::sysctl;

use counters::Counters;

/// One look. What could not be read is `None`, never 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Entries of this namespace.
    pub count: Option<u64>,
    /// Expectations of this namespace.
    pub expect_count: Option<u64>,
    /// Limits and settings.
    pub settings: sysctl::Conntrack,
    /// Seconds, by what follows `nf_conntrack_` in the sysctl's name.
    pub timeouts: BTreeMap<String, u64>,
    pub counters: Option<CpuCounters>,
    /// Interfaces that are a device, by name.
    pub interfaces: Option<Vec<ConntrackAllowance>>,
    /// The namespace that the machine started with.
    pub initial_netns: Option<bool>,
}

/// Where counters were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountersFrom {
    /// ctnetlink
    Netlink,
    /// `/proc/net/stat/nf_conntrack`
    Proc,
}

impl CountersFrom {
    pub const fn name(self) -> &'static str {
        match self {
            CountersFrom::Netlink => "netlink",
            CountersFrom::Proc => "proc",
        }
    }
}

/// What each CPU counted since the namespace was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuCounters {
    pub from: CountersFrom,
    /// Number of the CPU, and its counters.
    pub cpus: Vec<(u32, Counters)>,
}

impl CpuCounters {
    /// All CPUs together.
    pub fn total(&self) -> Counters {
        self.cpus.iter().map(|(_, counters)| counters).collect()
    }
}

/// What the driver of an interface knows of the cloud's limit for tracked connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConntrackAllowance {
    pub interface: String,
    /// Packets dropped since the driver was loaded, because the limit was reached.
    pub exceeded: Option<u64>,
    /// Connections that may still be tracked.
    pub available: Option<u64>,
}

/// What happened between two looks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// More entries (or fewer).
    pub count: Option<i64>,
    pub counters: Option<CpuCounters>,
    /// Packets that interfaces dropped, by name.
    pub exceeded: Vec<(String, Option<u64>)>,
}

impl Stat {
    /// How full the table is, in percent of its limit. No limit (0) is never reached.
    pub fn used_percent(&self) -> Option<f64> {
        let max = self.settings.max.filter(|max| *max > 0)?;
        Some(self.count? as f64 * 100.0 / max as f64)
    }

    /// Nodes of the hash a bucket, at least: each entry is in it twice, once by either direction. The hash is the whole
    /// machine's, and entries of other namespaces, which this does not count, lie in the same buckets.
    pub fn mean_chain_length(&self) -> Option<f64> {
        let buckets = self.settings.buckets.filter(|buckets| *buckets > 0)?;
        Some(self.count? as f64 * 2.0 / buckets as f64)
    }

    pub fn since(&self, before: &Stat) -> Delta {
        let count = || {
            i64::try_from(self.count?)
                .ok()?
                .checked_sub_unsigned(before.count?)
        };
        let counters = || {
            let (now, then) = (self.counters.as_ref()?, before.counters.as_ref()?);
            // What /proc counts under one name, netlink may not.
            (now.from == then.from).then(|| now.since(then))
        };
        let then = before.interfaces.as_deref().unwrap_or_default();
        let exceeded = self.interfaces.iter().flatten().map(|now| {
            let then = then.iter().find(|then| then.interface == now.interface);
            // A driver that was loaded again counts from 0.
            let more = || now.exceeded?.checked_sub(then?.exceeded?);
            (now.interface.clone(), more())
        });
        Delta {
            count: count(),
            counters: counters(),
            exceeded: exceeded.collect(),
        }
    }
}

impl CpuCounters {
    fn since(&self, before: &CpuCounters) -> CpuCounters {
        let cpus = self.cpus.iter().filter_map(|(cpu, now)| {
            let (_, then) = before.cpus.iter().find(|(other, _)| other == cpu)?;
            Some((*cpu, now.since(then)))
        });
        CpuCounters {
            from: self.from,
            cpus: cpus.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(count: u64, insert_failed: [u64; 2], exceeded: Option<u64>) -> Stat {
        let cpus = insert_failed.iter().zip(0..);
        Stat {
            count: Some(count),
            counters: Some(CpuCounters {
                from: CountersFrom::Netlink,
                cpus: cpus
                    .map(|(n, cpu)| (cpu, Counters::from_iter([("insert_failed", *n)])))
                    .collect(),
            }),
            interfaces: Some(vec![ConntrackAllowance {
                interface: "eth0".to_owned(),
                exceeded,
                available: None,
            }]),
            ..Stat::default()
        }
    }

    #[test]
    fn differences_are_those_of_all_cpus_and_absent_where_a_side_is() {
        let before = look(400, [0xffff_ffff, 40], Some(10));
        let delta = look(412, [0x14, 46], Some(15)).since(&before);
        assert_eq!(delta.count, Some(12));
        let total = delta.counters.as_ref().map(CpuCounters::total).unwrap();
        assert_eq!(total.get("insert_failed"), Some(27));
        assert_eq!(delta.exceeded, [("eth0".to_owned(), Some(5))]);

        let fewer = look(1, [0xffff_ffff, 40], Some(3)).since(&before);
        assert_eq!(fewer.count, Some(-399));
        assert_eq!(fewer.exceeded, [("eth0".to_owned(), None)]);

        let mut other = look(400, [50, 50], None);
        other.counters = other.counters.map(|counters| CpuCounters {
            from: CountersFrom::Proc,
            ..counters
        });
        other.count = None;
        let none = other.since(&before);
        assert_eq!((none.count, none.counters), (None, None));
    }

    #[test]
    fn shares_of_an_unknown_or_missing_limit_are_not_known() {
        let mut stat = Stat {
            count: Some(412),
            ..Stat::default()
        };
        assert_eq!(
            (stat.used_percent(), stat.mean_chain_length()),
            (None, None)
        );
        stat.settings.max = Some(0);
        stat.settings.buckets = Some(0);
        assert_eq!(
            (stat.used_percent(), stat.mean_chain_length()),
            (None, None)
        );
        stat.settings.max = Some(824);
        stat.settings.buckets = Some(206);
        assert_eq!(stat.used_percent(), Some(50.0));
        assert_eq!(stat.mean_chain_length(), Some(4.0));
    }
}
