//! Asks the kernel for what is known of a whole table.

use std::fs;
use std::io;
use std::ops::ControlFlow;

use crate::ethtool::{self, EthtoolError};
use crate::netlink::{ErrorKind, NetlinkError, Table};
use crate::netns::Netns;
use crate::sysctl;

use super::counters::Counters;
use super::{Allowance, CountersFrom, CpuCounters, Stat, proc_file};

const PROC: &str = "/proc/net/stat/nf_conntrack";

/// One look, and a line about everything that could not be read as it should.
///
/// # Errors
/// [`NetlinkError`], where this kernel tracks nothing or the namespace cannot be entered. A missing permission is none: what
/// needs it is absent.
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
    if let Err(error) = ask_netlink(netns, &mut stat) {
        if error.kind() != ErrorKind::NotPermitted && settings.count.is_none() {
            return Err(error);
        }
        stat.counters = netns.run(read_proc)?;
        notes.push(match &stat.counters {
            Some(_) => format!("counters are those of {PROC}: {error}"),
            None => format!("counters are not available (no {PROC}): {error}"),
        });
    }
    stat.interfaces = read_interfaces(netns, &mut notes)?;
    Ok((stat, notes))
}

fn ask_netlink(netns: &Netns, stat: &mut Stat) -> Result<(), NetlinkError> {
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
        Err(error) => tracing::info!(%error, "expectations"),
    }
    Ok(())
}

/// In the namespace of the calling thread. A line for each CPU that the machine may have, in order: their numbers have no
/// gaps but on machines with strange firmware.
fn read_proc() -> Option<CpuCounters> {
    let path = PROC.replace("/proc/net", "/proc/thread-self/net");
    let lines = proc_file::parse(&fs::read_to_string(path).ok()?)?;
    Some(CpuCounters {
        from: CountersFrom::Proc,
        cpus: (0..).zip(lines).collect::<Vec<(u32, Counters)>>(),
    })
}

/// `None`: not known. Interfaces without such statistics are in the answer, without values.
fn read_interfaces(
    netns: &Netns,
    notes: &mut Vec<String>,
) -> Result<Option<Vec<Allowance>>, NetlinkError> {
    let devices = match netns.devices() {
        Ok(devices) => devices,
        Err(error) => {
            notes.push(format!("interfaces are not known: {error}"));
            return Ok(None);
        }
    };
    let read = netns.run(|| {
        devices
            .iter()
            .map(|name| allowance(name))
            .collect::<Vec<_>>()
    })?;
    let mut all = Vec::new();
    for read in read {
        match read {
            Ok(allowance) => all.push(allowance),
            Err(EthtoolError::NoTool) => {
                // Other drivers than this have no such statistics, as far as is known.
                if devices.iter().any(|name| has_driver(name, "ena")) {
                    notes.push(
                        "the cloud's allowance is not known: it takes the program ethtool, which was not found".to_owned(),
                    );
                }
                return Ok(None);
            }
            Err(error @ EthtoolError::Failed { .. }) => notes.push(error.to_string()),
        }
    }
    Ok(Some(all))
}

fn allowance(interface: &str) -> Result<Allowance, EthtoolError> {
    let statistics = ethtool::statistics(interface)?;
    let value = |wanted: &str| {
        let found = statistics.iter().find(|(name, _)| name == wanted);
        found.map(|(_, value)| *value)
    };
    Ok(Allowance {
        interface: interface.to_owned(),
        exceeded: value(ethtool::ALLOWANCE_EXCEEDED),
        available: value(ethtool::ALLOWANCE_AVAILABLE),
    })
}

/// sysfs shows the interfaces of the namespace in which it was mounted: the node's, mostly.
fn has_driver(interface: &str, driver: &str) -> bool {
    let link: io::Result<_> = fs::read_link(format!("/sys/class/net/{interface}/device/driver"));
    link.is_ok_and(|path| path.file_name().is_some_and(|name| name == driver))
}
