//! Selectors on what the kernel says of an entry, as a filter.

use crate::filter::cidr::{Cidr, implied_family};
use crate::filter::nat::Nat;
use crate::filter::port::PortRange;
use crate::filter::protocol::{ICMP, ICMPV6, OptionalPorts, Protocols, SCTP, TCP, UDP};
use crate::filter::status::StatusWord;
use crate::filter::{Check, Field, Filter, List, Picks};
use ctnetlink::flow::Family;

use super::{SelectArgs, UsageError};

impl SelectArgs {
    /// The selectors on what the kernel says of an entry.
    ///
    /// # Errors
    ///
    /// Families that exclude each other (`-4 --dst fd00::1`): no entry could pass.
    pub fn to_filter(&self) -> Result<Filter, UsageError> {
        self.check_families()?;
        let mut filter = Filter::default();
        if let Some((flag, family)) = self.family() {
            filter.push(flag, Check::Family(family));
        }
        self.add_protocols(&mut filter);
        for (flag, field, lists) in self.addresses() {
            filter.add(flag, lists, |picks| Check::Address(field, picks));
        }
        for (flag, field, lists) in self.ports() {
            filter.add(flag, lists, |picks| Check::Port(field, picks));
        }
        self.add_status(&mut filter);
        self.add_nat(&mut filter);
        filter.add("--ttl", &self.ttl, Check::Ttl);
        filter.add("--age", &self.age, Check::Age);
        filter.add("--packets", &self.packets, Check::Packets);
        filter.add("--bytes", &self.bytes, Check::Bytes);
        filter.add("--mark", &self.mark, Check::Mark);
        filter.add("--zone", &self.zone, Check::Zone);
        filter.add("--label", &self.label, Check::Label);
        filter.add("--helper", &self.helper, Check::Helper);
        filter.add("--id", &self.id, Check::Id);
        filter.match_text("--match", &self.matching);
        Ok(filter)
    }

    fn family(&self) -> Option<(&'static str, Family)> {
        match (self.ipv4, self.ipv6) {
            (true, _) => Some(("-4", Family::Ipv4)),
            (_, true) => Some(("-6", Family::Ipv6)),
            _ => None,
        }
    }

    fn addresses(&self) -> [(&'static str, Field, &[List<Cidr>]); 5] {
        [
            ("--src", Field::Src, &self.src),
            ("--dst", Field::Dst, &self.dst),
            ("--reply-src", Field::ReplySrc, &self.reply_src),
            ("--reply-dst", Field::ReplyDst, &self.reply_dst),
            ("--ip", Field::Any, &self.ip),
        ]
    }

    fn ports(&self) -> [(&'static str, Field, &[List<PortRange>]); 5] {
        [
            ("--sport", Field::Src, &self.sport),
            ("--dport", Field::Dst, &self.dport),
            ("--reply-sport", Field::ReplySrc, &self.reply_sport),
            ("--reply-dport", Field::ReplyDst, &self.reply_dport),
            ("--port", Field::Any, &self.port),
        ]
    }

    /// An entry has one family throughout, so selectors of two families select nothing.
    fn check_families(&self) -> Result<(), UsageError> {
        let mut first = self.family();
        for (flag, _, lists) in self.addresses() {
            let Some(family) = implied_family(&Picks::from(lists)) else {
                continue;
            };
            let (other, wanted) = *first.get_or_insert((flag, family));
            if family != wanted {
                return Err(UsageError {
                    message: format!(
                        "{flag} asks for {} and {other} for {}: no entry has both",
                        family.name(),
                        wanted.name()
                    ),
                    hint: Some(format!("drop {other} or {flag}")),
                });
            }
        }
        Ok(())
    }

    fn add_protocols(&self, filter: &mut Filter) {
        let mut protocols = Protocols::default();
        let mut typed = Vec::new();
        for (flag, number, occurrences) in [
            ("--tcp", TCP, &self.tcp),
            ("--udp", UDP, &self.udp),
            ("--sctp", SCTP, &self.sctp),
        ] {
            for ports in occurrences {
                protocols.add_ports(number, ports);
                typed.push(match ports {
                    OptionalPorts::Any => flag.to_owned(),
                    OptionalPorts::Ports(list) => format!("{flag} {}", list.text()),
                });
            }
        }
        if self.icmp {
            protocols.add(ICMP);
            protocols.add(ICMPV6);
            typed.push("--icmp".to_owned());
        }
        for list in &self.proto {
            for item in list.items() {
                if item.negated {
                    protocols.exclude(item.value.0);
                } else {
                    protocols.add(item.value.0);
                }
            }
            typed.push(format!("-p {}", list.text()));
        }
        if !protocols.is_empty() {
            filter.push(typed.join(" "), Check::Protocols(protocols));
        }
    }

    fn add_status(&self, filter: &mut Filter) {
        filter.add("--status", &self.status, Check::Status);
        for (flag, given, word) in [
            ("--assured", self.assured, StatusWord::ASSURED),
            ("--unreplied", self.unreplied, StatusWord::UNREPLIED),
        ] {
            if given {
                let mut picks = Picks::default();
                picks.push(false, word);
                filter.push(flag, Check::Status(picks));
            }
        }
        filter.add("--state", &self.state, Check::State);
    }

    fn add_nat(&self, filter: &mut Filter) {
        for (flag, given, nat) in [
            ("--nat", self.nat, Nat::Any),
            ("--snat", self.snat, Nat::Source),
            ("--dnat", self.dnat, Nat::Destination),
            ("--hairpin", self.hairpin, Nat::Hairpin),
        ] {
            if given {
                filter.push(flag, Check::Nat(nat));
            }
        }
    }
}
