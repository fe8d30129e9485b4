//! IANA protocol names.

const NAMES: [(&str, u8); 23] = [
    ("icmp", 1),
    ("igmp", 2),
    ("ipencap", 4),
    ("tcp", 6),
    ("egp", 8),
    ("udp", 17),
    ("dccp", 33),
    ("ipv6", 41),
    ("rsvp", 46),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmpv6", 58),
    ("eigrp", 88),
    ("ospf", 89),
    ("ipip", 94),
    ("etherip", 97),
    ("encap", 98),
    ("pim", 103),
    ("vrrp", 112),
    ("l2tp", 115),
    ("sctp", 132),
    ("udplite", 136),
];

/// [`NAMES`] by number.
static BY_NUMBER: [Option<&str>; 256] = {
    let mut names = [None; 256];
    let mut i = 0;
    while i < NAMES.len() {
        names[NAMES[i].1 as usize] = Some(NAMES[i].0);
        i += 1;
    }
    names
};

/// IANA name of a protocol number in lower case. `None` for numbers without a common name.
///
/// ```
/// use ctnetlink::flow::{protocol_name, protocol_number};
///
/// assert_eq!(protocol_name(17), Some("udp"));
/// assert_eq!(protocol_number("SCTP"), Some(132));
/// assert_eq!(protocol_number("253"), Some(253));
/// ```
pub fn name(number: u8) -> Option<&'static str> {
    BY_NUMBER[usize::from(number)]
}

/// Number of a protocol given by its name (in any case; `ipv6-icmp`, `icmp6` and `udp-lite` are accepted) or as a decimal
/// number from 0 to 255. `None` for anything else.
pub fn number(text: &str) -> Option<u8> {
    let lower = text.to_ascii_lowercase();
    let lower = match lower.as_str() {
        "ipv6-icmp" | "icmp6" => "icmpv6",
        "udp-lite" => "udplite",
        other => other,
    };
    NAMES
        .iter()
        .find(|(name, _)| *name == lower)
        .map(|(_, n)| *n)
        .or_else(|| {
            let digits = !lower.is_empty() && lower.bytes().all(|b| b.is_ascii_digit());
            digits.then(|| lower.parse().ok()).flatten()
        })
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_and_numbers_agree() {
        for (text, number) in [
            ("udp", 17),
            ("OSPF", 89),
            ("ipv6-icmp", 58),
            ("89", 89),
            ("255", 255),
        ] {
            assert_eq!(super::number(text), Some(number), "{text}");
        }
        for text in ["", "256", "-1", "+6", "nope", " 6"] {
            assert_eq!(super::number(text), None, "{text}");
        }
        assert_eq!(super::name(2), Some("igmp"));
        assert_eq!(super::name(200), None);
    }
}
