//! The global limit of conntrack entries, raised for a bench and put back.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::process::{Command, exit};
use std::thread;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

const LIMIT: &str = "/proc/sys/net/netfilter/nf_conntrack_max";

/// Dropping it puts the limit back, if it was raised; so does a signal that ends the bench.
pub struct Limit(Option<String>);

impl Limit {
    /// Raises the limit to `entries`, where it is lower. Before this process moves into a namespace of its own.
    pub fn raise(entries: u32) -> Self {
        let before = std::fs::read_to_string(LIMIT).unwrap_or_default();
        let before = before.trim();
        if before.parse::<u32>().is_ok_and(|limit| limit >= entries) {
            return Limit(None);
        }
        put_back_when_ended(before.to_owned());
        std::fs::write(LIMIT, entries.to_string()).expect("nf_conntrack_max can be raised");
        Limit(Some(before.to_owned()))
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            assert!(put_back(before), "nf_conntrack_max is put back");
        }
    }
}

/// Whoever is tired of a long bench ends it by Ctrl-C or `timeout`.
fn put_back_when_ended(before: String) {
    let (mut signals, wake) = UnixStream::pair().expect("a pair of sockets");
    for signal in [SIGINT, SIGTERM] {
        let wake = wake.try_clone().expect("one more descriptor");
        pipe::register(signal, wake).expect("signals can be caught");
    }
    thread::spawn(move || {
        if signals.read_exact(&mut [0]).is_ok() {
            put_back(&before);
            exit(130);
        }
    });
}

/// The file shows the namespace of who opens it. This process may have moved; its parent has not.
fn put_back(before: &str) -> bool {
    let parent = std::os::unix::process::parent_id().to_string();
    Command::new("nsenter")
        .args(["-t", &parent, "-n", "sh", "-c"])
        .arg(format!("echo {before} > {LIMIT}"))
        .status()
        .is_ok_and(|status| status.success())
}
