//! What a command costs: CPU time and peak memory.

use std::io;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};

/// CPU time, and peak resident memory in KiB, of a command whose output is thrown away.
pub fn measure(command: &mut Command) -> (Duration, u64) {
    let before = cpu(UsageWho::RUSAGE_CHILDREN);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let child = match child {
        Ok(child) => child,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return (Duration::MAX, 0),
        Err(error) => panic!("{error}"),
    };
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let mut status = 0;
    let pid = child.id() as libc::pid_t;
    let waited = unsafe { libc::wait4(pid, &mut status, 0, &mut usage) };
    assert_eq!(waited, pid);
    assert!(
        libc::WIFEXITED(status) && matches!(libc::WEXITSTATUS(status), 0 | 3),
        "{status:#x}"
    );
    (
        cpu(UsageWho::RUSAGE_CHILDREN) - before,
        usage.ru_maxrss as u64,
    )
}

/// User and system time so far.
pub fn cpu(who: UsageWho) -> Duration {
    let usage = getrusage(who).expect("getrusage");
    let of = |time: nix::sys::time::TimeVal| {
        Duration::new(time.tv_sec() as u64, time.tv_usec() as u32 * 1000)
    };
    of(usage.user_time()) + of(usage.system_time())
}
