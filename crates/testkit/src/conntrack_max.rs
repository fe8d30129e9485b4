//! Limit of conntrack entries (`net.netfilter.nf_conntrack_max`), raised for a bench and restored afterwards. It is global:
//! only the initial network namespace can change it.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::process::{Command, exit};
use std::thread;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

const PATH: &str = "/proc/sys/net/netfilter/nf_conntrack_max";

/// Limit before it was raised, if it was. Restored when dropped, and by SIGINT and SIGTERM.
pub struct ConntrackMax(Option<String>);

impl ConntrackMax {
    /// Raises the limit to `entries` where it is lower. Must run before this process moves into a namespace of its own.
    pub fn raise(entries: u32) -> Self {
        let before = std::fs::read_to_string(PATH).unwrap_or_default();
        let before = before.trim();
        if before.parse::<u32>().is_ok_and(|limit| limit >= entries) {
            return ConntrackMax(None);
        }
        restore_on_signal(before.to_owned());
        std::fs::write(PATH, entries.to_string()).expect("nf_conntrack_max can be raised");
        ConntrackMax(Some(before.to_owned()))
    }
}

impl Drop for ConntrackMax {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            assert!(restore(before), "nf_conntrack_max is restored");
        }
    }
}

/// Restores the limit when Ctrl-C or `timeout` ends a long bench.
fn restore_on_signal(before: String) {
    let (mut signals, wake) = UnixStream::pair().expect("a pair of sockets");
    for signal in [SIGINT, SIGTERM] {
        let wake = wake.try_clone().expect("another descriptor");
        pipe::register(signal, wake).expect("signals can be caught");
    }
    thread::spawn(move || {
        if signals.read_exact(&mut [0]).is_ok() {
            restore(&before);
            exit(130);
        }
    });
}

/// Writes the limit from the parent's namespace. The file shows the namespace of the process that opens it, and this process
/// may have moved.
fn restore(before: &str) -> bool {
    let parent = std::os::unix::process::parent_id().to_string();
    Command::new("nsenter")
        .args(["-t", &parent, "-n", "sh", "-c"])
        .arg(format!("echo {before} > {PATH}"))
        .status()
        .is_ok_and(|status| status.success())
}
