//! Time and memory that programs take.

use std::io;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use wait4::Wait4;

/// Bytes of a MiB.
pub const MIB: u64 = 1 << 20;

/// Result of a program that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    pub status: ExitStatus,
    /// CPU time in user mode.
    pub user: Duration,
    /// CPU time in the kernel.
    pub system: Duration,
    /// Time from start to end.
    pub wall: Duration,
    /// Largest resident size in bytes. At least that of the process that started the program: the kernel counts from the
    /// start of the child, which is before it executes the program.
    pub peak: u64,
}

impl Usage {
    /// CPU time in user mode and in the kernel.
    pub fn cpu(&self) -> Duration {
        self.user + self.system
    }
}

/// Runs a command to its end.
///
/// # Errors
/// The program cannot be started.
pub fn measure(command: &mut Command) -> io::Result<Usage> {
    let began = Instant::now();
    wait(command.spawn()?, began)
}

fn wait(mut child: Child, began: Instant) -> io::Result<Usage> {
    let ended = child.wait4()?;
    Ok(Usage {
        status: ended.status,
        user: ended.rusage.utime,
        system: ended.rusage.stime,
        wall: began.elapsed(),
        peak: ended.rusage.maxrss,
    })
}

/// Largest resident size so far, in bytes, of a running process: its number, or `self`.
pub fn peak_of(process: impl std::fmt::Display) -> u64 {
    let path = format!("/proc/{process}/status");
    let status = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let value = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
    let kib: u64 = value.expect("a size").parse().expect("a number");
    kib * 1024
}
