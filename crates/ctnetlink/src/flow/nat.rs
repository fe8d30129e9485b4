//! Address translation, recognised by comparing tuples.
//!
//! The status bits are not used: entries of IPVS and entries inserted over netlink do not have them set.

use super::{Flow, L4, Tuple};

impl Flow {
    /// Reports whether the destination is translated: the source of the reply differs from the original destination. Ports are
    /// compared where the protocol has them.
    pub fn is_dnat(&self) -> bool {
        self.reply.src != self.original.dst
            || ports_differ(self.reply.sport(), self.original.dport())
    }

    /// Reports whether the source is translated: the destination of the reply differs from the original source. Ports are
    /// compared where the protocol has them.
    pub fn is_snat(&self) -> bool {
        self.reply.dst != self.original.src || self.has_new_source_port()
    }

    /// Reports whether the source port is translated: the destination port of the reply differs from the original source
    /// port. False for protocols without ports.
    pub fn has_new_source_port(&self) -> bool {
        ports_differ(self.reply.dport(), self.original.sport())
    }

    /// Reports whether the flow returns to its sender: the destination is translated to the original source address.
    pub fn is_hairpin(&self) -> bool {
        self.is_dnat() && self.original.src == self.reply.src
    }
}

impl Tuple {
    /// Tuple of the reply of an untranslated flow: addresses and ports swapped (`nf_ct_invert_tuple` in
    /// `nf_conntrack_core.c`). `None` for ICMP types without a reply.
    pub fn inverted(&self) -> Option<Tuple> {
        Some(Tuple {
            src: self.dst,
            dst: self.src,
            protocol: self.protocol,
            l4: self.l4.inverted(self.protocol)?,
        })
    }
}

fn ports_differ(a: Option<u16>, b: Option<u16>) -> bool {
    matches!((a, b), (Some(a), Some(b)) if a != b)
}

impl L4 {
    /// Layer 4 part of the reply of an untranslated flow (`nf_ct_invert_tuple` in `nf_conntrack_core.c`). `protocol`
    /// distinguishes ICMP from ICMPv6. `None` for ICMP types without a reply.
    pub fn inverted(self, protocol: u8) -> Option<L4> {
        Some(match self {
            L4::Ports { src, dst } => L4::Ports { src: dst, dst: src },
            L4::Gre { src, dst } => L4::Gre { src: dst, dst: src },
            L4::Icmp { kind, code, id } => L4::Icmp {
                kind: inverted_icmp(protocol, kind)?,
                code,
                id,
            },
            L4::None => L4::None,
        })
    }
}

/// Request and reply types (`invmap` in `nf_conntrack_proto_icmp.c` and `nf_conntrack_proto_icmpv6.c`).
fn inverted_icmp(protocol: u8, kind: u8) -> Option<u8> {
    const ICMPV6: u8 = 58;
    Some(match (protocol, kind) {
        (ICMPV6, 128) => 129,
        (ICMPV6, 129) => 128,
        (ICMPV6, 139) => 140,
        (ICMPV6, 140) => 139,
        (ICMPV6, _) => return None,
        (_, 8) => 0,
        (_, 0) => 8,
        (_, 13) => 14,
        (_, 14) => 13,
        (_, 15) => 16,
        (_, 16) => 15,
        (_, 17) => 18,
        (_, 18) => 17,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Flow, L4, Tuple};

    fn udp(src: &str, sport: u16, dst: &str, dport: u16) -> Tuple {
        Tuple {
            src: src.parse().unwrap(),
            dst: dst.parse().unwrap(),
            protocol: 17,
            l4: L4::Ports {
                src: sport,
                dst: dport,
            },
        }
    }

    #[test]
    fn translation_is_recognised_by_the_tuples() {
        let original = udp("10.244.1.2", 4000, "10.96.0.10", 53);
        for (reply, dnat, snat, hairpin) in [
            (
                udp("10.96.0.10", 53, "10.244.1.2", 4000),
                false,
                false,
                false,
            ),
            (
                udp("10.244.2.7", 53, "10.244.1.2", 4000),
                true,
                false,
                false,
            ),
            (
                udp("10.96.0.10", 5353, "10.244.1.2", 4000),
                true,
                false,
                false,
            ),
            (udp("10.96.0.10", 53, "192.0.2.1", 4000), false, true, false),
            (
                udp("10.96.0.10", 53, "10.244.1.2", 4001),
                false,
                true,
                false,
            ),
            (udp("10.244.1.2", 53, "192.0.2.1", 1024), true, true, true),
        ] {
            let flow = Flow::new(original, reply);
            assert_eq!(
                (flow.is_dnat(), flow.is_snat(), flow.is_hairpin()),
                (dnat, snat, hairpin),
                "{reply:?}"
            );
        }
    }

    #[test]
    fn ping_and_its_reply_are_not_translated() {
        let icmp = |src: &str, dst: &str, kind| Tuple {
            src: src.parse().unwrap(),
            dst: dst.parse().unwrap(),
            protocol: 1,
            l4: L4::Icmp {
                kind,
                code: 0,
                id: 7,
            },
        };
        let flow = Flow::new(
            icmp("10.0.0.1", "10.0.0.2", 8),
            icmp("10.0.0.2", "10.0.0.1", 0),
        );
        assert!(!flow.is_dnat() && !flow.is_snat());
        assert_eq!(flow.original.inverted(), Some(flow.reply));
    }
}
