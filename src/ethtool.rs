//! Statistics of a network driver, as `ethtool -S` prints them. That program is run: they are read by an ioctl only, and an
//! ioctl whose answer has the length that the driver says cannot be made without unsafe code. (Crates that make it leave the
//! field for that length as it comes, which new kernels, 6.18.44 among them, answer with nothing.)

use std::time::Instant;

use ctk_cluster::tool::{self, Fault};

/// What drivers know of the cloud's own limit for tracked connections (ENA).
pub const ALLOWANCE_EXCEEDED: &str = "conntrack_allowance_exceeded";
pub const ALLOWANCE_AVAILABLE: &str = "conntrack_allowance_available";

/// The largest adapters have 20,000 statistics.
const MAX_OUTPUT_BYTES: u64 = 4 << 20;

/// Why there are no statistics.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EthtoolError {
    #[error("ethtool was not found")]
    NoTool,
    #[error("ethtool -S {interface}: {error}")]
    Failed { interface: String, error: String },
}

/// Name and value of every statistic of an interface of the namespace that the calling thread is in. Empty when its driver
/// has none. The program is ended at `until`.
///
/// # Errors
/// [`EthtoolError`].
pub fn statistics(interface: &str, until: Instant) -> Result<Vec<(String, u64)>, EthtoolError> {
    let path = tool::find("ethtool").ok_or(EthtoolError::NoTool)?;
    match tool::output(&path, &["-S", interface], until, MAX_OUTPUT_BYTES) {
        Ok(text) => Ok(parse(&text)),
        Err(Fault { text, .. }) if has_none(&text) => Ok(Vec::new()),
        Err(Fault { text, .. }) => Err(EthtoolError::Failed {
            interface: interface.to_owned(),
            error: text,
        }),
    }
}

/// What ethtool complains of where the driver has no statistics.
fn has_none(complaint: &str) -> bool {
    complaint == "no stats available" || complaint.ends_with("Operation not supported")
}

/// Lines are `     name: value`; what has no value is a heading. Names may hold colons.
pub fn parse(text: &str) -> Vec<(String, u64)> {
    let lines = text.lines().filter_map(|line| line.rsplit_once(": "));
    lines
        .filter_map(|(name, value)| Some((name.trim().to_owned(), value.trim().parse().ok()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the driver of an EC2 instance has them, shortened.
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
    fn names_and_values_are_read_and_headings_are_none() {
        let all = parse(ENA);
        let value = |wanted: &str| {
            let found = all.iter().find(|(name, _)| name == wanted);
            found.map(|(_, value)| *value)
        };
        assert_eq!(all.len(), 8);
        assert_eq!(value(ALLOWANCE_EXCEEDED), Some(5012));
        assert_eq!(value(ALLOWANCE_AVAILABLE), Some(136_812));
        assert_eq!(value("queue_0_tx_bytes"), Some(u64::MAX));
        assert_eq!(value("NIC statistics"), None);
        assert_eq!(parse("  rx: fifo: 3\n"), [("rx: fifo".to_owned(), 3)]);
        for (complaint, none) in [
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
            assert_eq!(has_none(complaint), none, "{complaint}");
        }
        assert_eq!(parse("no stats available\n  a: b\n"), []);
    }
}
