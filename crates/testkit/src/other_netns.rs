//! Network namespaces beside that of the test.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use ctnetlink::netns::Netns;

use crate::mixed::{insert, udp};

/// A process in a network namespace of its own.
pub struct OtherNetns(Child);

impl OtherNetns {
    /// Starts the process, and returns when its namespace is there.
    pub fn start() -> Self {
        let mut child = Command::new("unshare")
            .args(["-n", "sh", "-c", "echo here; exec sleep 60"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = child.stdout.as_mut().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        assert_eq!(line, "here\n");
        OtherNetns(child)
    }

    /// Value of `--netns`.
    pub fn pid(&self) -> String {
        self.0.id().to_string()
    }

    /// Inserts so many entries.
    pub fn fill(&self, entries: u16) {
        let netns = Netns::named(&self.pid()).unwrap();
        let flows: Vec<_> = (0..entries).map(|n| udp("10.0.0.1", 4000 + n)).collect();
        netns.run(|| insert(&flows)).unwrap();
    }
}

impl Drop for OtherNetns {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}
