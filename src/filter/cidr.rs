//! Addresses and networks, in one of the four places or in any.
//!
//! Parsed addresses are compared, never text: `2001:DB8:96:0:0::A` is `2001:db8:96::a`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

use super::{BadValue, Field, Outcome, Picks};
use ctnetlink::flow::{Family, Flow};

/// A network; a bare address is the network that holds only itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr(IpNet);

impl Cidr {
    pub fn contains(self, address: IpAddr) -> bool {
        self.0.contains(&address)
    }

    /// The address, for a /32 or /128.
    pub fn single(self) -> Option<IpAddr> {
        (self.0.prefix_len() == self.0.max_prefix_len()).then(|| self.0.addr())
    }

    pub fn family(self) -> Family {
        Family::of(self.0.addr())
    }
}

impl From<IpAddr> for Cidr {
    fn from(address: IpAddr) -> Self {
        Cidr(IpNet::from(address))
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.single() {
            Some(address) => address.fmt(f),
            None => self.0.fmt(f),
        }
    }
}

impl FromStr for Cidr {
    type Err = BadValue;

    /// # Errors
    ///
    /// A text that is no address, a prefix that is too long, bits after the prefix, or an IPv4 address in IPv6 form.
    fn from_str(text: &str) -> Result<Self, BadValue> {
        let Some((address, prefix)) = text.split_once('/') else {
            return parse_address(text).map(Cidr::from);
        };
        let address = parse_address(address)?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let bad_prefix = || {
            BadValue(format!(
                "bad prefix length in {text}; it is a number from 0 to {longest}"
            ))
        };
        if prefix.is_empty() || !prefix.bytes().all(|b| b.is_ascii_digit()) {
            return Err(bad_prefix());
        }
        let net = prefix
            .parse()
            .ok()
            .and_then(|prefix| IpNet::new(address, prefix).ok())
            .ok_or_else(bad_prefix)?;
        // The text may mean the network or this one address, so that masking the bits would be a guess.
        if net.trunc() != net {
            return Err(BadValue(format!(
                "{text} has bits set behind its prefix; write {} for the network or {address} for the address",
                net.trunc()
            )));
        }
        Ok(Cidr(net))
    }
}

fn parse_address(text: &str) -> Result<IpAddr, BadValue> {
    let address: IpAddr = text.parse().map_err(|_| {
        BadValue(format!(
            "{text} is not an address; accepted are IPv4 and IPv6 addresses and networks (10.0.0.0/8, 2001:db8::/32)"
        ))
    })?;
    // Sockets show IPv4 peers in this form. The table never does, so that the selector would match nothing.
    match address {
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) if !v4.is_unspecified() => Err(BadValue(format!(
                "{text} is an IPv4 address in IPv6 form; write {v4}"
            ))),
            _ => Ok(address),
        },
        IpAddr::V4(_) => Ok(address),
    }
}

pub(super) fn test(field: Field, picks: &Picks<Cidr>, flow: &Flow) -> Outcome {
    let (original, reply) = (&flow.original, &flow.reply);
    let address = match field {
        Field::Src => original.src,
        Field::Dst => original.dst,
        Field::ReplySrc => reply.src,
        Field::ReplyDst => reply.dst,
        Field::Any => {
            let all = [original.src, original.dst, reply.src, reply.dst];
            return Outcome::of(picks.pass(|net| all.iter().any(|address| net.contains(*address))));
        }
    };
    Outcome::of(picks.pass(|net| net.contains(address)))
}

/// Returns the family that every passing entry has: that of the plain values, when they have only one.
pub fn implied_family(picks: &Picks<Cidr>) -> Option<Family> {
    let (first, rest) = picks.plain().split_first()?;
    rest.iter()
        .all(|net| net.family() == first.family())
        .then(|| first.family())
}

#[cfg(test)]
mod tests {
    use super::super::list::tests::picks;
    use super::super::tests::udp;
    use super::*;

    #[test]
    fn spellings_of_one_address_are_equal() {
        let canonical: Cidr = "2001:db8:96::a".parse().unwrap();
        for text in [
            "2001:DB8:96:0:0::A",
            "2001:0db8:0096:0000:0000:0000:0000:000a",
            "2001:db8:96::a/128",
            "2001:db8:96::0.0.0.10",
        ] {
            assert_eq!(text.parse(), Ok(canonical), "{text}");
        }
        assert_eq!("10.0.0.1/32".parse::<Cidr>(), "10.0.0.1".parse());
    }

    #[test]
    fn the_error_of_a_bad_network_says_what_is_accepted() {
        for (text, says) in [
            ("10.0.0.0/33", "0 to 32"),
            ("fd00::/129", "0 to 128"),
            ("10.0.0.0/", "0 to 32"),
            ("10.0.0.0/-1", "0 to 32"),
            ("10.0.0.0/+8", "0 to 32"),
            ("10.0.0.0/8/8", "0 to 32"),
            ("10.0.0.0/255.0.0.0", "0 to 32"),
            ("10.0.0.1/8", "10.0.0.0/8"),
            ("fd00::1/64", "fd00::/64"),
            ("10.0.0", "not an address"),
            ("010.0.0.1", "not an address"),
            ("300.0.0.1", "not an address"),
            ("10.0.0.1:53", "not an address"),
            ("fe80::1%eth0", "not an address"),
            ("web-1", "not an address"),
            ("/8", "not an address"),
            ("::ffff:10.0.0.1", "write 10.0.0.1"),
        ] {
            let error = text.parse::<Cidr>().expect_err(text);
            assert!(error.0.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn a_directional_selector_looks_at_its_own_place_only() {
        let flow = udp(
            ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"],
            [1, 2, 3, 4],
        );
        let places = [
            (Field::Src, "10.0.0.1"),
            (Field::Dst, "10.0.0.2"),
            (Field::ReplySrc, "10.0.0.3"),
            (Field::ReplyDst, "10.0.0.4"),
        ];
        for (field, own) in places {
            for (_, address) in places {
                let expected = Outcome::of(address == own);
                assert_eq!(test(field, &picks(&[address]), &flow), expected);
                assert_eq!(test(Field::Any, &picks(&[address]), &flow), Outcome::Pass);
                let negated = format!("!{address}");
                assert_eq!(test(Field::Any, &picks(&[&negated]), &flow), Outcome::Fail);
            }
        }
    }

    #[test]
    fn an_address_is_not_compared_as_text() {
        let flow = udp(
            ["10.13.1.20", "10.0.0.2", "10.0.0.2", "10.13.1.20"],
            [1, 2, 2, 1],
        );
        assert_eq!(
            test(Field::Any, &picks(&["10.13.1.2"]), &flow),
            Outcome::Fail
        );
        assert_eq!(
            test(Field::Any, &picks(&["10.13.1.0/24"]), &flow),
            Outcome::Pass
        );
        assert_eq!(test(Field::Any, &picks(&["::/0"]), &flow), Outcome::Fail);
    }

    #[test]
    fn mixed_families_imply_none() {
        for (texts, family) in [
            (&["10.0.0.0/8"][..], Some(Family::Ipv4)),
            (&["fd00::1,fd00::/16"], Some(Family::Ipv6)),
            (&["10.0.0.1", "fd00::1"], None),
            (&["!10.0.0.1"], None),
            (&["10.0.0.0/8", "!fd00::1"], Some(Family::Ipv4)),
        ] {
            assert_eq!(implied_family(&picks(texts)), family, "{texts:?}");
        }
    }
}
