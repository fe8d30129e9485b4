//! Part of a filter that the kernel applies while it dumps.
//!
//! The kernel gets only values that every passing entry has, so that a dump never lacks one: a single plain value, in one
//! place. Ranges, lists, networks and negations stay in user space. Entries that the kernel excludes fail a selector here, too,
//! and are not merely undecidable, so that counts are the same with and without push-down.

use std::fmt::Write as _;
use std::net::IpAddr;

use super::cidr::{Cidr, implied_family};
use super::port::PortRange;
use super::protocol::{Protocols, TCP, UDP};
use super::status::StatusWord;
use super::zone::ZoneId;
use super::{EntryTest, Field, Picks, Test};
use ctnetlink::flow::Family;
use ctnetlink::{DumpFilter, Masked, TupleMatch};

/// Part of a selector that the kernel applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    Nothing,
    Part,
    Whole,
}

/// Dumps of a filter.
pub struct DumpPlan {
    /// Never empty.
    pub dumps: Vec<DumpFilter>,
    /// One for each test, in order.
    pub pushed: Vec<Pushed>,
}

pub fn plan(tests: &[Test]) -> DumpPlan {
    let mut dump = DumpFilter {
        family: tests.iter().find_map(|test| family(&test.check)),
        ..DumpFilter::default()
    };
    let protocol = tests.iter().find_map(|test| match &test.check {
        EntryTest::Protocols(protocols) => protocols.only().map(|(number, _)| number),
        _ => None,
    });
    dump.original.protocol = protocol;
    let pushed = tests
        .iter()
        .map(|test| push(&test.check, protocol, &mut dump))
        .collect();
    DumpPlan {
        dumps: by_family(dump),
        pushed,
    }
}

/// Splits a dump by family. The kernel requires one family for a tuple match (EOPNOTSUPP otherwise).
fn by_family(dump: DumpFilter) -> Vec<DumpFilter> {
    let nothing = TupleMatch::default();
    if dump.family.is_some() || (dump.original == nothing && dump.reply == nothing) {
        return vec![dump];
    }
    [Family::Ipv4, Family::Ipv6]
        .map(|family| DumpFilter {
            family: Some(family),
            ..dump
        })
        .to_vec()
}

fn family(check: &EntryTest) -> Option<Family> {
    match check {
        EntryTest::Family(family) => Some(*family),
        EntryTest::Address(_, picks) => implied_family(picks),
        _ => None,
    }
}

fn push(check: &EntryTest, protocol: Option<u8>, dump: &mut DumpFilter) -> Pushed {
    match check {
        EntryTest::Family(family) => whole_if(dump.family == Some(*family)),
        EntryTest::Protocols(protocols) => push_protocol(protocols, dump),
        EntryTest::Address(field, picks) => push_address(*field, picks, dump),
        EntryTest::Port(field, picks) => push_port(*field, picks, protocol, dump),
        EntryTest::Status(picks) => push_status(picks, dump),
        EntryTest::Mark(picks) => {
            let done = picks.only().is_some_and(|mark| put(&mut dump.mark, mark.0));
            extent(done, picks)
        }
        EntryTest::Zone(picks) => push_zone(picks, dump),
        _ => Pushed::Nothing,
    }
}

fn push_protocol(protocols: &Protocols, dump: &mut DumpFilter) -> Pushed {
    let Some((number, ports)) = protocols.only() else {
        return Pushed::Nothing;
    };
    let port_done =
        ports.is_empty() || push_port(Field::Dst, ports, Some(number), dump) == Pushed::Whole;
    if port_done && protocols.is_exact() {
        Pushed::Whole
    } else {
        Pushed::Part
    }
}

/// Pushes an IPv4 address. For IPv6 the kernel's comparison is inverted (`ctnetlink_filter_match_tuple` excludes the entries
/// whose address *equals*; measured on 6.18), so that only the family is pushed.
fn push_address(field: Field, picks: &Picks<Cidr>, dump: &mut DumpFilter) -> Pushed {
    let exact = picks
        .only()
        .and_then(|net| net.single())
        .filter(IpAddr::is_ipv4)
        .filter(|_| dump.family == Some(Family::Ipv4));
    let slot = match field {
        Field::Src => &mut dump.original.src,
        Field::Dst => &mut dump.original.dst,
        Field::ReplySrc => &mut dump.reply.src,
        Field::ReplyDst => &mut dump.reply.dst,
        Field::Any => return family_part(picks, dump),
    };
    match exact {
        Some(address) => extent(put(slot, address), picks),
        None => family_part(picks, dump),
    }
}

fn family_part(picks: &Picks<Cidr>, dump: &DumpFilter) -> Pushed {
    if implied_family(picks).is_some_and(|family| dump.family == Some(family)) {
        Pushed::Part
    } else {
        Pushed::Nothing
    }
}

/// Pushes a port. The kernel compares ports of TCP and UDP only, and only together with a protocol.
fn push_port(
    field: Field,
    picks: &Picks<PortRange>,
    protocol: Option<u8>,
    dump: &mut DumpFilter,
) -> Pushed {
    let Some(protocol) = protocol.filter(|number| [TCP, UDP].contains(number)) else {
        return Pushed::Nothing;
    };
    let Some(port) = picks.only().and_then(|range| range.single()) else {
        return Pushed::Nothing;
    };
    let (tuple, destination) = match field {
        Field::Src => (&mut dump.original, false),
        Field::Dst => (&mut dump.original, true),
        Field::ReplySrc => (&mut dump.reply, false),
        Field::ReplyDst => (&mut dump.reply, true),
        Field::Any => return Pushed::Nothing,
    };
    tuple.protocol = Some(protocol);
    let slot = if destination {
        &mut tuple.dport
    } else {
        &mut tuple.sport
    };
    extent(put(slot, port), picks)
}

fn push_status(picks: &Picks<StatusWord>, dump: &mut DumpFilter) -> Pushed {
    let Some(word) = picks.only() else {
        return Pushed::Nothing;
    };
    let bit = word.bit.0;
    let value = if word.set { bit } else { 0 };
    let so_far = dump.status.unwrap_or(Masked { value: 0, mask: 0 });
    if so_far.mask & bit != 0 {
        // The bit is selected both set and clear: no entry passes, which user space decides.
        return whole_if(so_far.value & bit == value);
    }
    dump.status = Some(Masked {
        value: so_far.value | value,
        mask: so_far.mask | bit,
    });
    extent(true, picks)
}

/// Pushes a zone. Kernels 6.8+ compare the number of the zone for any direction (`nf_ct_zone_equal_any`; measured: zones of one
/// direction are found). Zone 0 is not pushed, because the first of these kernels take it for "any zone".
fn push_zone(picks: &Picks<ZoneId>, dump: &mut DumpFilter) -> Pushed {
    let done = picks
        .only()
        .filter(|zone| zone.0 != 0)
        .is_some_and(|zone| put(&mut dump.zone, zone.0));
    extent(done, picks)
}

/// Fills an empty slot, and returns whether the slot holds `value`. A slot with another value stays: no entry passes then, which
/// user space decides.
fn put<T: PartialEq + Copy>(slot: &mut Option<T>, value: T) -> bool {
    *slot.get_or_insert(value) == value
}

fn whole_if(done: bool) -> Pushed {
    if done { Pushed::Whole } else { Pushed::Nothing }
}

fn extent<T>(done: bool, picks: &Picks<T>) -> Pushed {
    match (done, picks.negated().is_empty()) {
        (false, _) => Pushed::Nothing,
        (true, false) => Pushed::Part,
        (true, true) => Pushed::Whole,
    }
}

/// `kernel dump: family ipv4, original protocol 17 dport 53`.
pub fn describe(dump: &DumpFilter) -> String {
    let mut parts = Vec::new();
    if let Some(family) = dump.family {
        parts.push(format!("family {}", family.name()));
    }
    for (name, masked) in [("mark", dump.mark), ("status", dump.status)] {
        if let Some(Masked { value, mask }) = masked {
            parts.push(format!("{name} {value:#x}/{mask:#x}"));
        }
    }
    if let Some(zone) = dump.zone {
        parts.push(format!("zone {zone}"));
    }
    for (name, tuple) in [("original", dump.original), ("reply", dump.reply)] {
        if tuple != TupleMatch::default() {
            parts.push(format!("{name}{}", describe_tuple(tuple)));
        }
    }
    if parts.is_empty() {
        return "kernel dump: everything".to_owned();
    }
    format!("kernel dump: {}", parts.join(", "))
}

fn describe_tuple(tuple: TupleMatch) -> String {
    let mut text = String::new();
    let addresses = [("src", tuple.src), ("dst", tuple.dst)];
    let numbers = [
        ("protocol", tuple.protocol.map(u16::from)),
        ("sport", tuple.sport),
        ("dport", tuple.dport),
    ];
    // Writing to a String cannot fail.
    for (name, address) in addresses {
        if let Some(address) = address {
            let _ = write!(text, " {name} {address}");
        }
    }
    for (name, number) in numbers {
        if let Some(number) = number {
            let _ = write!(text, " {name} {number}");
        }
    }
    text
}
