//! Reads the statistics of a table from the kernel and from drivers.

use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::error::chain;
use crate::ethtool::{self, EthtoolError};
use crate::plural::count;
use crate::sysctl;
use ctnetlink::netns::Netns;
use ctnetlink::rtnetlink;
use ctnetlink::{NetlinkError, Table};

use super::counters::Counters;
use super::{ConntrackAllowance, CountersFrom, CpuCounters, Stat, proc_file};

/// Time for all interfaces of one reading together: a machine may have hundreds, and each driver asks its hardware.
const ETHTOOL_TIMEOUT: Duration = Duration::from_secs(5);

const PROC_STAT: &str = "/proc/net/stat/nf_conntrack";

/// One reading, and a note for each value that could not be read from its usual source.
///
/// # Errors
/// [`NetlinkError`] if the kernel has no connection tracking, the namespace cannot be entered, or the number of entries
/// cannot be read. Values that need other missing permissions are absent.
pub fn stat(netns: &Netns) -> Result<(Stat, Vec<String>), NetlinkError> {
    let settings = sysctl::conntrack(netns)?;
    let mut notes = Vec::new();
    let mut stat = Stat {
        count: settings.count,
        settings,
        timeouts: sysctl::timeouts(netns)?,
        initial_netns: netns.is_initial(),
        ..Stat::default()
    };
    if let Err(error) = read_netlink(netns, &mut stat) {
        if settings.count.is_none() {
            return Err(error);
        }
        stat.counters = netns.run(read_proc)?;
        notes.push(match &stat.counters {
            Some(_) => format!("counters are those of {PROC_STAT}: {}", chain(&error)),
            None => format!(
                "counters are not available (no {PROC_STAT}): {}",
                chain(&error)
            ),
        });
    }
    stat.interfaces = read_interfaces(netns, &mut notes)?;
    Ok((stat, notes))
}

fn read_netlink(netns: &Netns, stat: &mut Stat) -> Result<(), NetlinkError> {
    let mut table = Table::open(netns)?;
    stat.count = Some(table.count()?.into());
    let cpus = table.cpu_stats()?.into_iter().map(|cpu| {
        let counters = cpu.counters.into_iter();
        let counters = counters.map(|(name, count)| (name, count.into()));
        (cpu.cpu.into(), counters.collect())
    });
    stat.counters = Some(CpuCounters {
        from: CountersFrom::Netlink,
        cpus: cpus.collect(),
    });
    let mut expected = 0;
    let dump = table.dump_expectations(None, &mut |_| {
        expected += 1;
        ControlFlow::Continue(())
    });
    match dump {
        Ok(report) => stat.expect_count = Some(expected + report.unreadable),
        Err(error) => tracing::info!(error = chain(&error), "expectations"),
    }
    Ok(())
}

/// Counters of /proc in the namespace of the calling thread. The file has a line for each possible CPU in order; the lines
/// are numbered from 0, which is right unless the firmware leaves gaps in the numbers of CPUs.
fn read_proc() -> Option<CpuCounters> {
    let path = PROC_STAT.replace("/proc/net", "/proc/thread-self/net");
    let lines = proc_file::parse(&fs::read_to_string(path).ok()?)?;
    Some(CpuCounters {
        from: CountersFrom::Proc,
        cpus: (0..).zip(lines).collect::<Vec<(u32, Counters)>>(),
    })
}

/// Allowances of all interfaces, without values where a driver has none. `None` if they are not known.
fn read_interfaces(
    netns: &Netns,
    notes: &mut Vec<String>,
) -> Result<Option<Vec<ConntrackAllowance>>, NetlinkError> {
    let devices = match rtnetlink::devices(netns) {
        Ok(devices) => devices,
        Err(error) => {
            notes.push(format!("interfaces are not known: {}", chain(&error)));
            return Ok(None);
        }
    };
    let until = Instant::now() + ETHTOOL_TIMEOUT;
    let answers = netns.run(|| ask_each(&devices, until, |name| allowance(name, until)))?;
    match answers {
        Some((all, failures)) => {
            notes.extend(failures);
            Ok(Some(all))
        }
        None => {
            // Only this driver is known to have these statistics.
            if devices.iter().any(|name| has_driver(name, "ena")) {
                notes.push(
                    "the cloud's allowance is not known: it takes the program ethtool, which was not found".to_owned(),
                );
            }
            Ok(None)
        }
    }
}

/// Asks each device until `until`. Returns a note for each one without an answer; `None` without the program ethtool.
fn ask_each(
    devices: &[String],
    until: Instant,
    ask: impl Fn(&str) -> Result<ConntrackAllowance, EthtoolError>,
) -> Option<(Vec<ConntrackAllowance>, Vec<String>)> {
    let (mut all, mut notes) = (Vec::new(), Vec::new());
    for (asked, name) in devices.iter().enumerate() {
        if Instant::now() >= until {
            let left = devices.len() - asked;
            notes.push(format!(
                "ethtool -S takes long: the statistics of {left} of {}, {name} first, were not read",
                count(devices.len() as u64, "interface", "interfaces")
            ));
            break;
        }
        match ask(name) {
            Ok(allowance) => all.push(allowance),
            Err(EthtoolError::NoTool) => return None,
            Err(error @ EthtoolError::Failed { .. }) => notes.push(error.to_string()),
        }
    }
    Some((all, notes))
}

fn allowance(interface: &str, until: Instant) -> Result<ConntrackAllowance, EthtoolError> {
    let statistics = ethtool::statistics(interface, until)?;
    let value = |key: &str| {
        let found = statistics.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| *value)
    };
    Ok(ConntrackAllowance {
        interface: interface.to_owned(),
        exceeded: value(ethtool::ALLOWANCE_EXCEEDED),
        available: value(ethtool::ALLOWANCE_AVAILABLE),
    })
}

/// Whether an interface has this driver. sysfs shows the interfaces of the namespace in which it was mounted, usually the
/// node's.
fn has_driver(interface: &str, driver: &str) -> bool {
    let link: io::Result<_> = fs::read_link(format!("/sys/class/net/{interface}/device/driver"));
    link.is_ok_and(|path| path.file_name().is_some_and(|name| name == driver))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_interfaces_share_one_time_limit() {
        let devices: Vec<String> = (0..128).map(|n| format!("vf{n}")).collect();
        let until = Instant::now() + Duration::from_millis(50);
        let asked = std::cell::Cell::new(0);
        let slow = |name: &str| {
            asked.set(asked.get() + 1);
            while Instant::now() < until {
                std::thread::yield_now();
            }
            Err(EthtoolError::Failed {
                interface: name.to_owned(),
                error: "it took too long".to_owned(),
            })
        };
        let (all, notes) = ask_each(&devices, until, slow).unwrap();
        assert_eq!((all.len(), asked.get(), notes.len()), (0, 1, 2));
        assert!(notes[1].contains("127 of 128"), "{notes:?}");
        let absent = |_: &str| Err(EthtoolError::NoTool);
        let later = Instant::now() + Duration::from_secs(3600);
        assert_eq!(ask_each(&devices, later, absent), None);
    }
}
