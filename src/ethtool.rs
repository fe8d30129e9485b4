//! Statistics of a network driver, read by running `ethtool -S`.
//!
//! They are available by an ioctl only. Its answer has a length that the driver chooses, so it needs unsafe code. Crates that
//! wrap it do not set the field for the length, and newer kernels (6.18.44, for example) then return no statistics.

use std::time::Instant;

use ctk_cluster::tool::{self, Fault};

/// Packets dropped because of the cloud's limit for tracked connections (driver ena).
pub const ALLOWANCE_EXCEEDED: &str = "conntrack_allowance_exceeded";
/// Further connections that this limit allows (driver ena).
pub const ALLOWANCE_AVAILABLE: &str = "conntrack_allowance_available";

/// Bytes of output, at most. The largest adapters have 20,000 statistics.
const MAX_OUTPUT_BYTES: u64 = 4 << 20;

/// Reason why statistics cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EthtoolError {
    #[error("ethtool was not found")]
    NoTool,
    #[error("ethtool -S {interface}: {error}")]
    Failed { interface: String, error: String },
}

/// Names and values of the statistics of an interface in the namespace of the calling thread. Empty if its driver has none.
/// The program is killed at `until`.
///
/// # Errors
/// [`EthtoolError`].
pub fn statistics(interface: &str, until: Instant) -> Result<Vec<(String, u64)>, EthtoolError> {
    let path = tool::find("ethtool").ok_or(EthtoolError::NoTool)?;
    match tool::output(&path, &["-S", interface], until, MAX_OUTPUT_BYTES) {
        Ok(text) => Ok(parse(&text)),
        Err(Fault { text, .. }) if has_no_statistics(&text) => Ok(Vec::new()),
        Err(Fault { text, .. }) => Err(EthtoolError::Failed {
            interface: interface.to_owned(),
            error: text,
        }),
    }
}

/// Whether the message of ethtool means that the driver has no statistics.
fn has_no_statistics(message: &str) -> bool {
    message == "no stats available" || message.ends_with("Operation not supported")
}

/// Parses lines `     name: value`. Lines without a number are headings. Names may hold colons.
pub fn parse(text: &str) -> Vec<(String, u64)> {
    let lines = text.lines().filter_map(|line| line.rsplit_once(": "));
    lines
        .filter_map(|(name, value)| Some((name.trim().to_owned(), value.trim().parse().ok()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Statistics of an EC2 instance, shortened.
    const ENA: &str = "NIC statistics:
     total_resets: 0
     tx_timeout: 0
     bw_in_allowance_exceeded: 28
     pps_allowance_exceeded: 0
     conntrack_allowance_exceeded: 5012
     linklocal_allowance_exceeded: 0
     conntrack_allowance_available: 136812
     queue_0_tx_bytes: 18446744073709551615
";

    #[test]
    fn headings_and_error_messages_are_no_statistics() {
        let all = parse(ENA);
        let value = |key: &str| {
            let found = all.iter().find(|(name, _)| name == key);
            found.map(|(_, value)| *value)
        };
        assert_eq!(all.len(), 8);
        assert_eq!(value(ALLOWANCE_EXCEEDED), Some(5012));
        assert_eq!(value(ALLOWANCE_AVAILABLE), Some(136_812));
        assert_eq!(value("queue_0_tx_bytes"), Some(u64::MAX));
        assert_eq!(value("NIC statistics"), None);
        assert_eq!(parse("  rx: fifo: 3\n"), [("rx: fifo".to_owned(), 3)]);
        for (message, none) in [
            ("no stats available", true),
            (
                "Cannot get stats strings information: Operation not supported",
                true,
            ),
            (
                "Cannot get stats strings information: No such device",
                false,
            ),
        ] {
            assert_eq!(has_no_statistics(message), none, "{message}");
        }
        assert_eq!(parse("no stats available\n  a: b\n"), []);
    }
}
