//! Statistics of a table: number of entries, settings, timeouts and the kernel's counters. `read` reads them; the rest is
//! pure.

pub mod counters;
pub mod explain;
pub mod proc_file;
pub mod read;

use std::collections::BTreeMap;

use crate::percent::percent;
use crate::sysctl;

use counters::Counters;

/// One reading. A value that could not be read is `None`, never 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Entries of this namespace.
    pub count: Option<u64>,
    /// Expectations of this namespace.
    pub expect_count: Option<u64>,
    /// Limits and settings.
    pub settings: sysctl::Conntrack,
    /// Seconds by the part of the sysctl's name after `nf_conntrack_`.
    pub timeouts: BTreeMap<String, u64>,
    pub counters: Option<CpuCounters>,
    /// Interfaces of a device, ordered by name; `None` if they are not known.
    pub interfaces: Option<Vec<ConntrackAllowance>>,
    /// Whether the namespace is the initial one of the machine; `None` if that is not known.
    pub initial_netns: Option<bool>,
}

/// Source of counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountersFrom {
    /// ctnetlink.
    Netlink,
    /// `/proc/net/stat/nf_conntrack`.
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

/// Counters of each CPU since the namespace was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuCounters {
    pub from: CountersFrom,
    /// Number of the CPU, and its counters.
    pub cpus: Vec<(u32, Counters)>,
}

impl CpuCounters {
    /// Sum over all CPUs.
    pub fn total(&self) -> Counters {
        self.cpus.iter().map(|(_, counters)| counters).collect()
    }
}

/// State of the cloud's limit for tracked connections, from the driver of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConntrackAllowance {
    pub interface: String,
    /// Packets dropped because of the limit since the driver was loaded.
    pub exceeded: Option<u64>,
    /// Further connections that the limit allows.
    pub available: Option<u64>,
}

/// Changes between two readings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// Change of the number of entries.
    pub count: Option<i64>,
    pub counters: Option<CpuCounters>,
    /// Packets dropped because of the limit, by interface.
    pub exceeded: Vec<(String, Option<u64>)>,
}

impl Stat {
    /// Entries in percent of the limit; `None` without a limit (0).
    pub fn used_percent(&self) -> Option<f64> {
        percent(self.count?, self.settings.max?)
    }

    /// Hash nodes per bucket. Each entry has two nodes, one for each direction. This is a lower bound: all namespaces share
    /// the hash table, and entries of other namespaces are not counted.
    pub fn mean_chain_length(&self) -> Option<f64> {
        let buckets = self.settings.buckets.filter(|buckets| *buckets > 0)?;
        Some(self.count? as f64 * 2.0 / buckets as f64)
    }

    /// Changes since an earlier reading. A difference is `None` if a side is not known.
    pub fn since(&self, before: &Stat) -> Delta {
        let count = || {
            i64::try_from(self.count?)
                .ok()?
                .checked_sub_unsigned(before.count?)
        };
        let counters = || {
            let (now, then) = (self.counters.as_ref()?, before.counters.as_ref()?);
            // The same name may stand for different counts in /proc and netlink.
            (now.from == then.from).then(|| now.since(then))
        };
        let then = before.interfaces.as_deref().unwrap_or_default();
        let exceeded = self.interfaces.iter().flatten().map(|now| {
            let then = then.iter().find(|then| then.interface == now.interface);
            // A reloaded driver counts from 0 again.
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

    fn reading(count: u64, insert_failed: [u64; 2], exceeded: Option<u64>) -> Stat {
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
    fn differences_sum_all_cpus_and_are_absent_if_a_side_is() {
        let before = reading(400, [0xffff_ffff, 40], Some(10));
        let delta = reading(412, [0x14, 46], Some(15)).since(&before);
        assert_eq!(delta.count, Some(12));
        let total = delta.counters.as_ref().map(CpuCounters::total).unwrap();
        assert_eq!(total.get("insert_failed"), Some(27));
        assert_eq!(delta.exceeded, [("eth0".to_owned(), Some(5))]);

        let fewer = reading(1, [0xffff_ffff, 40], Some(3)).since(&before);
        assert_eq!(fewer.count, Some(-399));
        assert_eq!(fewer.exceeded, [("eth0".to_owned(), None)]);

        let mut other = reading(400, [50, 50], None);
        other.counters = other.counters.map(|counters| CpuCounters {
            from: CountersFrom::Proc,
            ..counters
        });
        other.count = None;
        let none = other.since(&before);
        assert_eq!((none.count, none.counters), (None, None));
    }

    #[test]
    fn ratios_to_an_unknown_or_missing_limit_are_none() {
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
