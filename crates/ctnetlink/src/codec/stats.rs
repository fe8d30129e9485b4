//! Decoder of the counters that ctnetlink keeps for each CPU.

use super::abi;
use super::attr::Attributes;
use super::decode::{DecodeError, NFGENMSG};

/// Counters of one CPU since the namespace was created (`struct ip_conntrack_stat`). 32-bit numbers that wrap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CpuStats {
    /// Number of the CPU, from 0.
    pub cpu: u16,
    /// Name that the kernel uses (`insert_failed`) and count, in the order of the message. Counters that a kernel does not
    /// send are absent.
    pub counters: Vec<(&'static str, u32)>,
}

/// Decodes the payload of an `IPCTNL_MSG_CT_GET_STATS_CPU` message: counters about entries.
///
/// # Errors
/// [`DecodeError`].
pub(crate) fn cpu_stats(message: &[u8]) -> Result<CpuStats, DecodeError> {
    counters(message, &abi::STATS_CPU)
}

/// Decodes the payload of an `IPCTNL_MSG_EXP_GET_STATS_CPU` message: counters about expectations.
pub(crate) fn expect_cpu_stats(message: &[u8]) -> Result<CpuStats, DecodeError> {
    counters(message, &abi::EXPECT_STATS_CPU)
}

fn counters(message: &[u8], names: &[(u16, &'static str)]) -> Result<CpuStats, DecodeError> {
    // Family and version, then the number of the CPU, where other messages have a resource id.
    let Some([_, _, high, low]) = message.first_chunk::<NFGENMSG>() else {
        return Err(DecodeError::Short);
    };
    let mut stats = CpuStats {
        cpu: u16::from_be_bytes([*high, *low]),
        counters: Vec::new(),
    };
    let mut attributes = Attributes::new(message.get(NFGENMSG..).unwrap_or_default());
    for attribute in &mut attributes {
        let name = names.iter().find(|(kind, _)| *kind == attribute.kind);
        if let (Some((_, name)), Some(count)) = (name, attribute.be32()) {
            stats.counters.push((name, count));
        }
    }
    attributes.finish()?;
    Ok(stats)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::attr::Writer;

    #[test]
    fn cpu_number_and_named_counters_are_decoded() {
        let mut message = vec![0, 0, 1, 2];
        let mut writer = Writer::new(&mut message);
        writer.be32(9, 1041);
        writer.be32(200, 7);
        writer.be32(4, u32::MAX);
        writer.u8(10, 1);
        assert_eq!(
            cpu_stats(&message),
            Ok(CpuStats {
                cpu: 258,
                counters: vec![("insert_failed", 1041), ("invalid", u32::MAX)],
            })
        );
        assert_eq!(cpu_stats(&message[..3]), Err(DecodeError::Short));
        assert!(cpu_stats(&message[..message.len() - 6]).is_err());
    }

    #[test]
    fn counters_of_expectations_have_their_own_names() {
        let mut message = vec![0; 4];
        Writer::new(&mut message).be32(2, 5);
        let stats = expect_cpu_stats(&message).unwrap();
        assert_eq!(stats.counters, [("expect_create", 5)]);
    }
}
