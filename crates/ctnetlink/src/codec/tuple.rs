//! Decoder of tuples.

use std::net::{IpAddr, Ipv6Addr};

use netlink_packet_core::NLA_F_NESTED;

use super::abi;
use super::attr::{self, Attribute, Broken};
use crate::flow::{L4, Tuple};

/// Tuple, and the zone that applies to its direction only. The tuple is `None` without a protocol and two addresses.
pub(crate) fn tuple(attribute: Attribute<'_>) -> Result<(Option<Tuple>, Option<u16>), Broken> {
    match typical_tuple(attribute.value) {
        Some(tuple) => Ok((Some(tuple), None)),
        None => any_tuple(attribute),
    }
}

/// Tuple with ports in the exact layout of kernels since 5.2. Tuples are half of an ordinary message, so this comparison
/// with constants halves the cost of decoding an entry. Every other layout returns `None` and is left to [`any_tuple`].
#[inline(always)] // so that the tuple is written directly to its destination
pub(crate) fn typical_tuple(value: &[u8]) -> Option<Tuple> {
    const V4: usize = 4;
    const V6: usize = 16;
    let (src, dst, protocol, ports) = if value.len() == 40 + 2 * V4 {
        let (src, dst, protocol, ports) = layout::<V4>(value, abi::tuple::V4_SRC)?;
        (src.into(), dst.into(), protocol, ports)
    } else if value.len() == 40 + 2 * V6 {
        let (src, dst, protocol, ports) = layout::<V6>(value, abi::tuple::V6_SRC)?;
        (src.into(), dst.into(), protocol, ports)
    } else {
        return None;
    };
    Some(Tuple {
        src,
        dst,
        protocol,
        l4: l4(protocol, Some(ports), None),
    })
}

type FamilyLayout<const A: usize> = ([u8; A], [u8; A], u8, (u16, u16));

/// Addresses of `A` bytes, protocol, ports: five attributes in two nested ones.
#[inline]
fn layout<const A: usize>(mut rest: &[u8], src_kind: u16) -> Option<FamilyLayout<A>> {
    let address = 4 + A as u16;
    header(&mut rest, abi::tuple::IP | NLA_F_NESTED, 4 + 2 * address)?;
    header(&mut rest, src_kind, address)?;
    let src = *take::<A>(&mut rest)?;
    header(&mut rest, src_kind + 1, address)?;
    let dst = *take::<A>(&mut rest)?;
    header(&mut rest, abi::tuple::PROTO | NLA_F_NESTED, 28)?;
    header(&mut rest, abi::tuple::PROTO_NUM, 5)?;
    let [protocol, ..] = *take::<4>(&mut rest)?;
    header(&mut rest, abi::tuple::SRC_PORT, 6)?;
    let [s0, s1, ..] = *take::<4>(&mut rest)?;
    header(&mut rest, abi::tuple::DST_PORT, 6)?;
    let [d0, d1, ..] = *take::<4>(&mut rest)?;
    let ports = (u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1]));
    rest.is_empty().then_some((src, dst, protocol, ports))
}

#[inline]
fn header(rest: &mut &[u8], kind: u16, length: u16) -> Option<()> {
    (*take::<4>(rest)? == attr::header_bytes(length, kind)).then_some(())
}

#[inline]
fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (head, tail) = rest.split_first_chunk()?;
    *rest = tail;
    Some(head)
}

/// Tuple in any layout, and the zone of its direction.
pub(crate) fn any_tuple(attribute: Attribute<'_>) -> Result<(Option<Tuple>, Option<u16>), Broken> {
    let (mut addresses, mut protocol, mut zone) = (None, None, None);
    let mut parts = attribute.nested();
    for part in &mut parts {
        match part.kind {
            abi::tuple::IP => addresses = self::addresses(part)?,
            abi::tuple::PROTO => protocol = self::protocol(part)?,
            abi::tuple::ZONE => zone = part.be16(),
            _ => {}
        }
    }
    parts.finish()?;
    let tuple = match (addresses, protocol) {
        (Some((src, dst)), Some((protocol, l4))) => Some(Tuple {
            src,
            dst,
            protocol,
            l4,
        }),
        _ => None,
    };
    Ok((tuple, zone))
}

fn addresses(attribute: Attribute<'_>) -> Result<Option<(IpAddr, IpAddr)>, Broken> {
    let (mut src, mut dst) = (None, None);
    let mut parts = attribute.nested();
    for part in &mut parts {
        let field = match part.kind {
            abi::tuple::V4_SRC | abi::tuple::V6_SRC => &mut src,
            abi::tuple::V4_DST | abi::tuple::V6_DST => &mut dst,
            _ => continue,
        };
        *field = match part.kind {
            abi::tuple::V4_SRC | abi::tuple::V4_DST => part.be32().map(|n| IpAddr::V4(n.into())),
            _ => {
                let octets: Option<&[u8; 16]> = part.value.first_chunk();
                octets.map(|o| IpAddr::V6(Ipv6Addr::from(*o)))
            }
        };
    }
    parts.finish()?;
    Ok(src.zip(dst))
}

fn protocol(attribute: Attribute<'_>) -> Result<Option<(u8, L4)>, Broken> {
    let (mut number, mut src, mut dst) = (None, None, None);
    let (mut kind, mut code, mut id) = (None, None, None);
    let mut parts = attribute.nested();
    for part in &mut parts {
        match part.kind {
            abi::tuple::PROTO_NUM => number = part.u8(),
            abi::tuple::SRC_PORT => src = part.be16(),
            abi::tuple::DST_PORT => dst = part.be16(),
            abi::tuple::ICMP_ID | abi::tuple::ICMPV6_ID => id = part.be16(),
            abi::tuple::ICMP_TYPE | abi::tuple::ICMPV6_TYPE => kind = part.u8(),
            abi::tuple::ICMP_CODE | abi::tuple::ICMPV6_CODE => code = part.u8(),
            _ => {}
        }
    }
    parts.finish()?;
    let icmp = kind.map(|kind| L4::Icmp {
        kind,
        code: code.unwrap_or_default(),
        id: id.unwrap_or_default(),
    });
    Ok(number.map(|number| (number, l4(number, src.zip(dst), icmp))))
}

/// Layer 4 part, by the protocol and by the attributes present: a protocol that the kernel does not track has no ports, even
/// where other kernels send them.
#[inline]
fn l4(protocol: u8, ports: Option<(u16, u16)>, icmp: Option<L4>) -> L4 {
    match (protocol, ports) {
        (abi::ICMP | abi::ICMPV6, _) => icmp.unwrap_or(L4::None),
        (abi::GRE, Some((src, dst))) => L4::Gre { src, dst },
        (_, Some((src, dst))) => L4::Ports { src, dst },
        (_, None) => L4::None,
    }
}
