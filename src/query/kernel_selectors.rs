//! Selectors on what the kernel says of an entry, as a filter.

use crate::filter::cidr::{Cidr, implied_family};
use crate::filter::nat::Nat;
use crate::filter::port::PortRange;
use crate::filter::protocol::{ICMP, ICMPV6, OptionalPorts, Protocols, SCTP, TCP, UDP};
use crate::filter::status::StatusWord;
use crate::filter::{EntryTest, Field, Filter, List, Picks};
use ctnetlink::flow::Family;

use super::usage_error::UsageError;
use crate::args::select::SelectArgs;

/// The selectors on what the kernel says of an entry.
///
/// # Errors
///
/// Families that exclude each other (`-4 --dst fd00::1`): no entry could pass.
pub(super) fn filter(args: &SelectArgs) -> Result<Filter, UsageError> {
    check_families(args)?;
    let mut filter = Filter::default();
    if let Some((flag, family)) = family(args) {
        filter.push(flag, EntryTest::Family(family));
    }
    add_protocols(args, &mut filter);
    for (flag, field, lists) in addresses(args) {
        filter.add(flag, lists, |picks| EntryTest::Address(field, picks));
    }
    for (flag, field, lists) in ports(args) {
        filter.add(flag, lists, |picks| EntryTest::Port(field, picks));
    }
    add_status(args, &mut filter);
    add_nat(args, &mut filter);
    filter.add("--ttl", &args.ttl, EntryTest::Ttl);
    filter.add("--age", &args.age, EntryTest::Age);
    filter.add("--packets", &args.packets, EntryTest::Packets);
    filter.add("--bytes", &args.bytes, EntryTest::Bytes);
    filter.add("--mark", &args.mark, EntryTest::Mark);
    filter.add("--zone", &args.zone, EntryTest::Zone);
    filter.add("--label", &args.label, EntryTest::Label);
    filter.add("--helper", &args.helper, EntryTest::Helper);
    filter.add("--id", &args.id, EntryTest::Id);
    filter.match_text("--match", &args.matching);
    Ok(filter)
}

fn family(args: &SelectArgs) -> Option<(&'static str, Family)> {
    match (args.ipv4, args.ipv6) {
        (true, _) => Some(("-4", Family::Ipv4)),
        (_, true) => Some(("-6", Family::Ipv6)),
        _ => None,
    }
}

fn addresses(args: &SelectArgs) -> [(&'static str, Field, &[List<Cidr>]); 5] {
    [
        ("--src", Field::Src, &args.src),
        ("--dst", Field::Dst, &args.dst),
        ("--reply-src", Field::ReplySrc, &args.reply_src),
        ("--reply-dst", Field::ReplyDst, &args.reply_dst),
        ("--ip", Field::Any, &args.ip),
    ]
}

fn ports(args: &SelectArgs) -> [(&'static str, Field, &[List<PortRange>]); 5] {
    [
        ("--sport", Field::Src, &args.sport),
        ("--dport", Field::Dst, &args.dport),
        ("--reply-sport", Field::ReplySrc, &args.reply_sport),
        ("--reply-dport", Field::ReplyDst, &args.reply_dport),
        ("--port", Field::Any, &args.port),
    ]
}

/// An entry has one family throughout, so selectors of two families select nothing.
fn check_families(args: &SelectArgs) -> Result<(), UsageError> {
    let mut first = family(args);
    for (flag, _, lists) in addresses(args) {
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

fn add_protocols(args: &SelectArgs, filter: &mut Filter) {
    let mut protocols = Protocols::default();
    let mut typed = Vec::new();
    for (flag, number, occurrences) in [
        ("--tcp", TCP, &args.tcp),
        ("--udp", UDP, &args.udp),
        ("--sctp", SCTP, &args.sctp),
    ] {
        for ports in occurrences {
            protocols.add_ports(number, ports);
            typed.push(match ports {
                OptionalPorts::Any => flag.to_owned(),
                OptionalPorts::Ports(list) => format!("{flag} {}", list.text()),
            });
        }
    }
    if args.icmp {
        protocols.add(ICMP);
        protocols.add(ICMPV6);
        typed.push("--icmp".to_owned());
    }
    for list in &args.proto {
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
        filter.push(typed.join(" "), EntryTest::Protocols(protocols));
    }
}

fn add_status(args: &SelectArgs, filter: &mut Filter) {
    filter.add("--status", &args.status, EntryTest::Status);
    for (flag, given, word) in [
        ("--assured", args.assured, StatusWord::ASSURED),
        ("--unreplied", args.unreplied, StatusWord::UNREPLIED),
    ] {
        if given {
            let mut picks = Picks::default();
            picks.push(false, word);
            filter.push(flag, EntryTest::Status(picks));
        }
    }
    filter.add("--state", &args.state, EntryTest::State);
}

fn add_nat(args: &SelectArgs, filter: &mut Filter) {
    for (flag, given, nat) in [
        ("--nat", args.nat, Nat::Any),
        ("--snat", args.snat, Nat::Source),
        ("--sport-changed", args.sport_changed, Nat::SourcePort),
        ("--dnat", args.dnat, Nat::Destination),
        ("--hairpin", args.hairpin, Nat::Hairpin),
    ] {
        if given {
            filter.push(flag, EntryTest::Nat(nat));
        }
    }
}
