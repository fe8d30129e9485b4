//! Ports: a number, a range or a service name, in one of the four places or in any.

use std::str::FromStr;

use super::suggest::did_you_mean;
use super::{BadValue, Field, Outcome, Picks};
use ctnetlink::flow::Flow;

/// Ports from `low` to `high`, both included; `low <= high`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    low: u16,
    high: u16,
}

impl PortRange {
    pub fn contains(self, port: u16) -> bool {
        self.low <= port && port <= self.high
    }

    /// The port, when the range holds just one.
    pub fn single(self) -> Option<u16> {
        (self.low == self.high).then_some(self.low)
    }
}

impl FromStr for PortRange {
    type Err = BadValue;

    /// `53`, `8000-8100` or `domain`.
    ///
    /// # Errors
    ///
    /// A number above 65535, a reversed or open range, or an unknown name.
    fn from_str(text: &str) -> Result<Self, BadValue> {
        if let Some((low, high)) = text.split_once('-')
            && is_number_or_empty(low)
            && is_number_or_empty(high)
        {
            return range(text, low, high);
        }
        let port = if is_number_or_empty(text) {
            number(text)?
        } else if let Some((low, high)) = text.split_once(':')
            && is_number_or_empty(low)
            && is_number_or_empty(high)
        {
            return Err(BadValue(format!("ranges are written {low}-{high}")));
        } else {
            named(text)?
        };
        Ok(PortRange {
            low: port,
            high: port,
        })
    }
}

fn is_number_or_empty(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit())
}

fn range(text: &str, low: &str, high: &str) -> Result<PortRange, BadValue> {
    if low.is_empty() || high.is_empty() {
        return Err(BadValue(format!(
            "range {text} needs both ends, as in 8000-8100"
        )));
    }
    let (low, high) = (number(low)?, number(high)?);
    if low > high {
        return Err(BadValue(format!(
            "range {text} is reversed; write {high}-{low}"
        )));
    }
    Ok(PortRange { low, high })
}

fn number(text: &str) -> Result<u16, BadValue> {
    text.parse()
        .map_err(|_| BadValue(format!("port {text} is not between 0 and 65535")))
}

/// Names that are known without `/etc/services`, which many container images lack.
const WELL_KNOWN: [(&str, u16); 28] = [
    ("ftp", 21),
    ("ssh", 22),
    ("telnet", 23),
    ("smtp", 25),
    ("domain", 53),
    ("tftp", 69),
    ("http", 80),
    ("kerberos", 88),
    ("sunrpc", 111),
    ("ntp", 123),
    ("imap2", 143),
    ("snmp", 161),
    ("snmp-trap", 162),
    ("bgp", 179),
    ("ldap", 389),
    ("https", 443),
    ("syslog", 514),
    ("ldaps", 636),
    ("domain-s", 853),
    ("imaps", 993),
    ("ms-sql-s", 1433),
    ("nfs", 2049),
    ("mysql", 3306),
    ("postgresql", 5432),
    ("sip", 5060),
    ("sip-tls", 5061),
    ("sflow", 6343),
    ("redis", 6379),
];

/// Looks a name up, first in `/etc/services`, so that local names win.
fn named(name: &str) -> Result<u16, BadValue> {
    let services = std::fs::read_to_string("/etc/services").unwrap_or_default();
    in_services(&services, name)
        .or_else(|| {
            WELL_KNOWN
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, port)| *port)
        })
        .ok_or_else(|| {
            let near = did_you_mean(name, WELL_KNOWN.iter().map(|(known, _)| *known));
            BadValue(format!(
                "unknown port {name}{near}; ports are numbers, ranges (8000-8100) or names of /etc/services"
            ))
        })
}

/// Returns the port of a name in the text of a services file: `name port/protocol alias...`, `#` starts a comment
/// (services(5)).
fn in_services(services: &str, name: &str) -> Option<u16> {
    services.lines().find_map(|line| {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let official = words.next()?;
        let port = words.next()?.split('/').next()?;
        (official == name || words.any(|alias| alias == name))
            .then(|| port.parse().ok())
            .flatten()
    })
}

/// Tests the ports. ICMP, GRE and protocols that are tracked by address alone have none, which is undecidable.
pub(super) fn test(field: Field, picks: &Picks<PortRange>, flow: &Flow) -> Outcome {
    let (original, reply) = (&flow.original, &flow.reply);
    let port = match field {
        Field::Src => original.sport(),
        Field::Dst => original.dport(),
        Field::ReplySrc => reply.sport(),
        Field::ReplyDst => reply.dport(),
        Field::Any => {
            return match (
                original.sport(),
                original.dport(),
                reply.sport(),
                reply.dport(),
            ) {
                (Some(a), Some(b), Some(c), Some(d)) => {
                    Outcome::of(picks.pass(|range| [a, b, c, d].iter().any(|p| range.contains(*p))))
                }
                _ => Outcome::Undecidable,
            };
        }
    };
    Outcome::of_known(port, |port| picks.pass(|range| range.contains(port)))
}

#[cfg(test)]
mod tests {
    use super::super::list::tests::picks;
    use super::super::tests::{icmp, udp};
    use super::*;

    #[test]
    fn ports_ranges_and_names_are_parsed() {
        for (text, low, high) in [
            ("0", 0, 0),
            ("53", 53, 53),
            ("65535", 65535, 65535),
            ("8000-8100", 8000, 8100),
            ("7-7", 7, 7),
            ("domain", 53, 53),
            ("https", 443, 443),
            ("ms-sql-s", 1433, 1433),
        ] {
            assert_eq!(text.parse(), Ok(PortRange { low, high }), "{text}");
        }
    }

    #[test]
    fn the_error_of_an_impossible_port_says_what_is_accepted() {
        for (text, says) in [
            ("99999", "65535"),
            ("65536", "65535"),
            ("60-50", "50-60"),
            ("53-", "both ends"),
            ("-53", "both ends"),
            ("1-70000", "65535"),
            ("8000:8100", "8000-8100"),
            ("domian", "domain"),
            ("+53", "unknown port"),
            (" 53", "unknown port"),
            ("0x35", "unknown port"),
            ("1-2-3", "unknown port"),
        ] {
            let error = text.parse::<PortRange>().expect_err(text);
            assert!(error.0.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn aliases_and_comments_of_the_services_file_are_understood() {
        let services = "# domain 99/udp\nhttp 80/tcp www # WorldWideWeb\nbroken\nbad x/tcp\n";
        assert_eq!(in_services(services, "www"), Some(80));
        assert_eq!(in_services(services, "http"), Some(80));
        for name in ["domain", "WorldWideWeb", "broken", "bad", "#"] {
            assert_eq!(in_services(services, name), None, "{name}");
        }
    }

    #[test]
    fn each_place_is_compared_alone_and_any_means_all_four() {
        let flow = udp(
            ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"],
            [1, 2, 3, 4],
        );
        let places = [
            (Field::Src, "1"),
            (Field::Dst, "2"),
            (Field::ReplySrc, "3"),
            (Field::ReplyDst, "4"),
        ];
        for (field, own) in places {
            for (_, port) in places {
                let expected = Outcome::of(port == own);
                assert_eq!(
                    test(field, &picks(&[port]), &flow),
                    expected,
                    "{field:?} {port}"
                );
                assert_eq!(test(Field::Any, &picks(&[port]), &flow), Outcome::Pass);
                let negated = format!("!{port}");
                assert_eq!(test(Field::Any, &picks(&[&negated]), &flow), Outcome::Fail);
            }
        }
        assert_eq!(test(Field::Any, &picks(&["!5"]), &flow), Outcome::Pass);
    }

    #[test]
    fn an_entry_without_ports_is_undecidable() {
        for field in [
            Field::Src,
            Field::Dst,
            Field::ReplySrc,
            Field::ReplyDst,
            Field::Any,
        ] {
            for value in ["53", "!53", "0-65535"] {
                assert_eq!(
                    test(field, &picks(&[value]), &icmp("10.0.0.1", "10.0.0.2")),
                    Outcome::Undecidable
                );
            }
        }
    }
}
