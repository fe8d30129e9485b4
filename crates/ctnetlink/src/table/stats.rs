//! Statistics: number of entries, counters of each CPU.

use std::ops::ControlFlow;

use super::Table;
use super::receive::{DumpEnd, ReceiveMode};
use crate::codec::DecodeError;
use crate::codec::attr::Attributes;
use crate::codec::encode;
use crate::codec::stats::{self, CpuStats};
use crate::codec::{abi, decode};
use crate::error::{NetlinkError, Operation};

impl Table {
    /// Number of entries of the namespace, as the kernel counts them (`CTA_STATS_GLOBAL_ENTRIES`): unconfirmed entries are
    /// included.
    ///
    /// # Errors
    /// [`NetlinkError::NotAvailable`] without ctnetlink, and every other [`NetlinkError`] of a request.
    pub fn count(&mut self) -> Result<u32, NetlinkError> {
        const OPERATION: Operation = Operation::CountEntries;
        let payload = self
            .request_one(OPERATION, encode::stats)?
            .map_err(|e| NetlinkError::answered_plain(OPERATION, e))?;
        Attributes::new(payload.get(decode::NFGENMSG..).unwrap_or_default())
            .find(|a| a.kind == abi::STATS_GLOBAL_ENTRIES)
            .and_then(|a| a.be32())
            .ok_or(NetlinkError::Malformed)
    }

    /// Counters of each CPU, in the kernel's order: about entries, and about expectations where the kernel has them.
    ///
    /// # Errors
    /// [`NetlinkError::Malformed`] when the message of a CPU cannot be decoded: sums without it would be wrong. Every other
    /// [`NetlinkError`] of a request.
    pub fn cpu_stats(&mut self) -> Result<Vec<CpuStats>, NetlinkError> {
        const OPERATION: Operation = Operation::ReadCpuStats;
        let mut cpus = self.walk_stats(OPERATION, encode::cpu_stats, stats::cpu_stats)?;
        match self.walk_stats(OPERATION, encode::expect_cpu_stats, stats::expect_cpu_stats) {
            Ok(expect) => {
                for one in expect {
                    if let Some(cpu) = cpus.iter_mut().find(|cpu| cpu.cpu == one.cpu) {
                        cpu.counters.extend(one.counters);
                    }
                }
            }
            Err(error) => tracing::info!(%error, "counters of expectations"),
        }
        Ok(cpus)
    }

    fn walk_stats(
        &mut self,
        operation: Operation,
        request: fn(&mut Vec<u8>, u32),
        read: fn(&[u8]) -> Result<CpuStats, DecodeError>,
    ) -> Result<Vec<CpuStats>, NetlinkError> {
        let mut cpus = Vec::new();
        let mut unreadable = false;
        let ended = self.receive_dump(
            operation,
            ReceiveMode::SameThread,
            request,
            |_, payload, _| {
                match read(payload) {
                    Ok(stats) => cpus.push(stats),
                    Err(_) => unreadable = true,
                }
                ControlFlow::Continue(())
            },
        )?;
        match ended {
            DumpEnd::Refused(errno) => Err(NetlinkError::answered_plain(operation, errno)),
            _ if unreadable => Err(NetlinkError::Malformed),
            _ => Ok(cpus),
        }
    }
}
