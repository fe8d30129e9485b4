//! What the kernel counts: entries, and events per CPU.

use std::ops::ControlFlow;

use super::Table;
use super::walk::{End, Pace};
use crate::codec::decode::DecodeError;
use crate::codec::encode;
use crate::codec::stats::{self, CpuStats};
use crate::error::NetlinkError;

impl Table {
    /// What each CPU counted, in the kernel's order: about entries, then, where the kernel tells it, about expectations.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn cpu_stats(&mut self) -> Result<Vec<CpuStats>, NetlinkError> {
        const DOING: &str = "reading the counters";
        let mut cpus = self.walk_stats(DOING, encode::cpu_stats, stats::cpu_stats)?;
        match self.walk_stats(DOING, encode::expect_cpu_stats, stats::expect_cpu_stats) {
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
        doing: &'static str,
        request: fn(&mut Vec<u8>, u32),
        read: fn(&[u8]) -> Result<CpuStats, DecodeError>,
    ) -> Result<Vec<CpuStats>, NetlinkError> {
        let mut cpus = Vec::new();
        let mut unreadable = false;
        let ended = self.walk(doing, Pace::InStep, request, |_, payload, _| {
            match read(payload) {
                Ok(stats) => cpus.push(stats),
                Err(_) => unreadable = true,
            }
            ControlFlow::Continue(())
        })?;
        match ended {
            End::Refused(errno) => Err(NetlinkError::answered_plain(doing, errno)),
            // Totals without one of the CPUs would be wrong.
            _ if unreadable => Err(NetlinkError::Malformed),
            _ => Ok(cpus),
        }
    }
}
