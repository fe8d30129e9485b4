//! A packet by protocol, source and destination, as in a capture: `udp 10.0.0.1:53 > 10.0.0.2:4000`.

use std::net::SocketAddr;
use std::str::FromStr;

use super::BadValue;
use super::protocol::Protocol;
use ctnetlink::flow::{L4, Tuple};

/// Protocols whose tuples have ports: TCP, UDP, DCCP, SCTP, UDP-Lite.
const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];

/// Tuple of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet(pub Tuple);

impl FromStr for Packet {
    type Err = BadValue;

    /// # Errors
    ///
    /// Another form, a protocol without ports, or addresses of two families.
    fn from_str(text: &str) -> Result<Self, BadValue> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [protocol, src, ">" | "->", dst] = words.as_slice() else {
            return Err(BadValue(format!(
                "{text:?} is no packet; write PROTO SRC:PORT > DST:PORT, as in 'udp 10.0.0.1:53 > 10.0.0.2:4000'"
            )));
        };
        let protocol = protocol.parse::<Protocol>()?.0;
        if !WITH_PORTS.contains(&protocol) {
            return Err(BadValue::new(
                "the protocol has no ports; tcp, udp, sctp, dccp and udplite are accepted",
            ));
        }
        let (src, dst) = (end(src)?, end(dst)?);
        if src.is_ipv4() != dst.is_ipv4() {
            return Err(BadValue::new(
                "source and destination are of different address families",
            ));
        }
        Ok(Packet(Tuple {
            src: src.ip(),
            dst: dst.ip(),
            protocol,
            l4: L4::Ports {
                src: src.port(),
                dst: dst.port(),
            },
        }))
    }
}

fn end(text: &str) -> Result<SocketAddr, BadValue> {
    text.parse().map_err(|_| {
        BadValue(format!(
            "{text:?} is no address with a port (10.0.0.1:53, [fd00::1]:53)"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_has_a_protocol_and_two_ends() {
        let Packet(tuple) = "udp 10.0.0.1:53 > 10.0.0.2:4000".parse().unwrap();
        assert_eq!(tuple.source().to_string(), "10.0.0.1:53");
        assert_eq!(tuple.destination().to_string(), "10.0.0.2:4000");
        assert_eq!(tuple.protocol, 17);
        assert!("6 [fd00::1]:1 -> [fd00::2]:2".parse::<Packet>().is_ok());
        for (text, says) in [
            ("", "is no packet"),
            ("udp 10.0.0.1:53 10.0.0.2:4000", "is no packet"),
            ("udp 10.0.0.1 > 10.0.0.2:4000", "address with a port"),
            ("icmp 10.0.0.1:1 > 10.0.0.2:2", "no ports"),
            ("udp 10.0.0.1:53 > [fd00::2]:4000", "families"),
        ] {
            let error = text.parse::<Packet>().expect_err(text);
            assert!(error.0.contains(says), "{text}: {error}");
        }
    }
}
