//! Address translation, decided by a comparison of the tuples (see [`Flow::is_dnat`]).

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use super::Outcome;
use ctnetlink::flow::Flow;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nat {
    /// Source or destination.
    Any,
    Source,
    /// The source port.
    SourcePort,
    Destination,
    /// A client that reaches itself through a Service.
    Hairpin,
}

pub(super) fn test(nat: Nat, flow: &Flow) -> Outcome {
    Outcome::of(match nat {
        Nat::Any => flow.is_dnat() || flow.is_snat(),
        Nat::Source => flow.is_snat(),
        Nat::SourcePort => flow.has_new_source_port(),
        Nat::Destination => flow.is_dnat(),
        Nat::Hairpin => flow.is_hairpin(),
    })
}

/// Addresses of the interfaces of this host.
pub type OwnAddresses = Arc<BTreeSet<IpAddr>>;

/// Returns whether the packets leave with another source than the sender's, which this host has on no interface.
pub(super) fn has_lost_source(flow: &Flow, own: &OwnAddresses) -> bool {
    let source = flow.reply.dst;
    source != flow.original.src && !source.is_loopback() && !own.contains(&source)
}

#[cfg(test)]
mod tests {
    use super::super::tests::udp;
    use super::*;

    #[test]
    fn a_source_is_lost_if_translation_chose_it_and_no_interface_has_it() {
        let own: OwnAddresses = Arc::new(["192.0.2.1".parse().unwrap()].into());
        for (sender, source, lost) in [
            ("10.0.0.1", "10.0.0.1", false),
            ("10.0.0.1", "192.0.2.1", false),
            ("10.0.0.1", "192.0.2.9", true),
            ("10.0.0.1", "127.0.0.1", false),
        ] {
            let flow = udp([sender, "10.0.0.2", "10.0.0.2", source], [1, 2, 2, 1]);
            assert_eq!(has_lost_source(&flow, &own), lost, "{source}");
        }
    }

    #[test]
    fn each_kind_selects_its_own_translation() {
        let plain = udp(
            ["10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.1"],
            [1, 2, 2, 1],
        );
        let dnat = udp(
            ["10.0.0.1", "10.96.0.10", "10.0.0.2", "10.0.0.1"],
            [1, 53, 53, 1],
        );
        let snat = udp(
            ["10.0.0.1", "10.0.0.2", "10.0.0.2", "192.0.2.1"],
            [1, 2, 2, 1],
        );
        let hairpin = udp(
            ["10.0.0.1", "10.96.0.10", "10.0.0.1", "192.0.2.1"],
            [1, 53, 53, 9],
        );
        for (nat, expected) in [
            (Nat::Any, [false, true, true, true]),
            (Nat::Destination, [false, true, false, true]),
            (Nat::Source, [false, false, true, true]),
            (Nat::SourcePort, [false, false, false, true]),
            (Nat::Hairpin, [false, false, false, true]),
        ] {
            let got = [&plain, &dnat, &snat, &hairpin].map(|flow| test(nat, flow) == Outcome::Pass);
            assert_eq!(got, expected, "{nat:?}");
        }
    }
}
