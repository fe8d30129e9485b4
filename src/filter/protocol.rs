//! Protocols, and the destination port given with one: `--udp 53 --tcp 80` is (UDP to 53) or (TCP to 80).

use std::str::FromStr;

use super::port::PortRange;
use super::suggest::did_you_mean;
use super::{BadValue, List, Outcome, Picks};
use ctnetlink::flow::{Flow, protocol_name, protocol_number};

pub const ICMP: u8 = 1;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const ICMPV6: u8 = 58;
pub const SCTP: u8 = 132;

/// An IANA protocol number, given by number or name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol(pub u8);

impl FromStr for Protocol {
    type Err = BadValue;

    /// # Errors
    ///
    /// An unknown name, or a number above 255.
    fn from_str(text: &str) -> Result<Self, BadValue> {
        protocol_number(text).map(Protocol).ok_or_else(|| {
            let lower = text.to_ascii_lowercase();
            let near = did_you_mean(&lower, (0..=u8::MAX).filter_map(protocol_name));
            BadValue(format!(
                "unknown protocol {text}{near}; accepted are names (gre, icmpv6, ospf) and numbers from 0 to 255"
            ))
        })
    }
}

/// Value of `--tcp`, `--udp` and `--sctp`.
#[derive(Clone, Debug)]
pub enum OptionalPorts {
    Any,
    Ports(List<PortRange>),
}

impl OptionalPorts {
    /// Default for a flag without a value. A command line cannot hold a NUL, so that it differs from every typed value.
    pub const NOT_GIVEN: &'static str = "\0";
}

impl FromStr for OptionalPorts {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        match text {
            Self::NOT_GIVEN => Ok(OptionalPorts::Any),
            "" => Err(BadValue::new(
                "the port is empty; leave out the `=` for every port",
            )),
            _ => text.parse().map(OptionalPorts::Ports),
        }
    }
}

/// One protocol that passes; `ports` limits its original destination port.
#[derive(Clone, Debug)]
struct Alternative {
    protocol: u8,
    any_port: bool,
    ports: Picks<PortRange>,
}

/// The "or" of all protocol selectors.
#[derive(Clone, Debug, Default)]
pub struct Protocols {
    alternatives: Vec<Alternative>,
    negated: Vec<u8>,
}

impl Protocols {
    /// Adds a protocol with any port.
    pub fn add(&mut self, protocol: u8) {
        let alternative = self.alternative(protocol);
        alternative.any_port = true;
        alternative.ports.clear_plain();
    }

    /// Returns whether some port is selected.
    pub fn names_ports(&self) -> bool {
        let mut alternatives = self.alternatives.iter();
        alternatives.any(|alternative| !alternative.ports.plain().is_empty())
    }

    /// Excludes a protocol.
    pub fn exclude(&mut self, protocol: u8) {
        self.negated.push(protocol);
    }

    pub fn add_ports(&mut self, protocol: u8, ports: &OptionalPorts) {
        let OptionalPorts::Ports(list) = ports else {
            return self.add(protocol);
        };
        let alternative = self.alternative(protocol);
        for item in list.items() {
            // The alternative "any port" includes every other plain value.
            if item.negated || !alternative.any_port {
                alternative.ports.push(item.negated, item.value);
            }
        }
    }

    fn alternative(&mut self, protocol: u8) -> &mut Alternative {
        let position = self
            .alternatives
            .iter()
            .position(|a| a.protocol == protocol)
            .unwrap_or_else(|| {
                self.alternatives.push(Alternative {
                    protocol,
                    any_port: false,
                    ports: Picks::default(),
                });
                self.alternatives.len() - 1
            });
        &mut self.alternatives[position]
    }

    pub fn is_empty(&self) -> bool {
        self.alternatives.is_empty() && self.negated.is_empty()
    }

    /// Returns the protocol and destination ports that every passing entry has.
    pub(super) fn only(&self) -> Option<(u8, &Picks<PortRange>)> {
        match self.alternatives.as_slice() {
            [one] => Some((one.protocol, &one.ports)),
            _ => None,
        }
    }

    /// Returns whether exactly one protocol is selected, with no negated value.
    pub(super) fn is_exact(&self) -> bool {
        self.negated.is_empty()
            && self
                .only()
                .is_some_and(|(_, ports)| ports.is_empty() || ports.negated().is_empty())
    }

    pub(super) fn test(&self, flow: &Flow) -> Outcome {
        let protocol = flow.protocol();
        if self.negated.contains(&protocol) {
            return Outcome::Fail;
        }
        if self.alternatives.is_empty() {
            return Outcome::Pass;
        }
        match self.alternatives.iter().find(|a| a.protocol == protocol) {
            None => Outcome::Fail,
            Some(found) if found.ports.is_empty() => Outcome::Pass,
            Some(found) => Outcome::of_known(flow.original.dport(), |port| {
                found.ports.pass(|range| range.contains(port))
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{icmp, tcp_state, udp};
    use super::*;

    fn ports(text: &str) -> OptionalPorts {
        text.parse().unwrap()
    }

    #[test]
    fn protocols_are_names_or_numbers() {
        for (text, number) in [
            ("udp", 17),
            ("SCTP", 132),
            ("0", 0),
            ("255", 255),
            ("ipv6-icmp", 58),
        ] {
            assert_eq!(text.parse(), Ok(Protocol(number)), "{text}");
        }
        for (text, says) in [
            ("256", "0 to 255"),
            ("udpp", "did you mean udp?"),
            ("-1", "unknown protocol"),
            ("1.5", "unknown protocol"),
        ] {
            let error = text.parse::<Protocol>().expect_err(text);
            assert!(error.0.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn an_empty_port_is_not_every_port() {
        assert!("".parse::<OptionalPorts>().is_err());
        assert!(matches!(ports("\0"), OptionalPorts::Any));
    }

    #[test]
    fn each_port_belongs_to_its_protocol() {
        let dns = udp(
            ["10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.1"],
            [4000, 53, 53, 4000],
        );
        let web = tcp_state(
            ["10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.1"],
            [4000, 80, 80, 4000],
            3,
        );
        let ping = icmp("10.0.0.1", "10.0.0.2");
        type Build = fn(&mut Protocols);
        let cases: [(&str, Build, [bool; 3]); 9] = [
            ("--udp", |p| p.add(UDP), [true, false, false]),
            (
                "--udp 53",
                |p| p.add_ports(UDP, &ports("53")),
                [true, false, false],
            ),
            (
                "--udp 80",
                |p| p.add_ports(UDP, &ports("80")),
                [false, false, false],
            ),
            (
                "--udp '!53'",
                |p| p.add_ports(UDP, &ports("!53")),
                [false, false, false],
            ),
            (
                "--udp 53 --tcp 80",
                |p| {
                    p.add_ports(UDP, &ports("53"));
                    p.add_ports(TCP, &ports("80"));
                },
                [true, true, false],
            ),
            (
                "--udp 80 --tcp 53",
                |p| {
                    p.add_ports(UDP, &ports("80"));
                    p.add_ports(TCP, &ports("53"));
                },
                [false, false, false],
            ),
            (
                "--udp 80 --udp -p icmp",
                |p| {
                    p.add_ports(UDP, &ports("80"));
                    p.add(UDP);
                    p.add(ICMP);
                },
                [true, false, true],
            ),
            (
                "--udp --udp 80",
                |p| {
                    p.add(UDP);
                    p.add_ports(UDP, &ports("80"));
                },
                [true, false, false],
            ),
            ("-p '!udp'", |p| p.exclude(UDP), [false, true, true]),
        ];
        for (typed, build, expected) in cases {
            let mut protocols = Protocols::default();
            build(&mut protocols);
            let passed = [&dns, &web, &ping].map(|flow| protocols.test(flow) == Outcome::Pass);
            assert_eq!(passed, expected, "{typed}");
        }
    }
}
