//! The global limit of conntrack entries, raised for a bench and put back.

use std::process::Command;

const LIMIT: &str = "/proc/sys/net/netfilter/nf_conntrack_max";

/// Dropping it puts the limit back, if it was raised.
pub struct Limit(Option<String>);

impl Limit {
    /// Raises the limit to `entries`, where it is lower. Before this process moves into a namespace of its own.
    pub fn raise(entries: u32) -> Self {
        let before = std::fs::read_to_string(LIMIT).unwrap_or_default();
        let before = before.trim();
        if before.parse::<u32>().is_ok_and(|limit| limit >= entries) {
            return Limit(None);
        }
        std::fs::write(LIMIT, entries.to_string()).expect("nf_conntrack_max can be raised");
        Limit(Some(before.to_owned()))
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        let Some(before) = &self.0 else {
            return;
        };
        // The file shows the namespace of who opens it. This process has moved; its parent has not.
        let parent = std::os::unix::process::parent_id().to_string();
        let restored = Command::new("nsenter")
            .args(["-t", &parent, "-n", "sh", "-c"])
            .arg(format!("echo {before} > {LIMIT}"))
            .status();
        assert!(
            restored.is_ok_and(|status| status.success()),
            "nf_conntrack_max is put back"
        );
    }
}
