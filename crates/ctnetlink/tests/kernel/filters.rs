//! Filters of the kernel, compared with the same filters in user space.

use ctnetlink::flow::{Family, Flow, Tuple};
use ctnetlink::{DumpFilter, Masked, TupleMatch};

use crate::flows::every_kind;
use crate::{dump, dump_with, fill, open, timeless};
use testkit::private_netns::private_netns;

/// Applies the filter in user space.
fn passes(filter: &DumpFilter, flow: &Flow) -> bool {
    let masked =
        |expected: Option<Masked>, have: u32| expected.is_none_or(|w| have & w.mask == w.value);
    let tuple = |expected: &TupleMatch, have: &Tuple| {
        expected.src.is_none_or(|w| w == have.src)
            && expected.dst.is_none_or(|w| w == have.dst)
            && expected.protocol.is_none_or(|w| w == have.protocol)
            && expected.sport.is_none_or(|w| Some(w) == have.sport())
            && expected.dport.is_none_or(|w| Some(w) == have.dport())
    };
    filter.family.is_none_or(|f| f == flow.family())
        && masked(filter.mark, flow.mark.unwrap_or(0))
        && masked(filter.status, flow.status.0)
        && filter.zone.is_none_or(|zone| zone == flow.zone.id)
        && tuple(&filter.original, &flow.original)
        && tuple(&filter.reply, &flow.reply)
}

fn filters() -> Vec<(&'static str, DumpFilter)> {
    let v4 = DumpFilter {
        family: Some(Family::Ipv4),
        ..DumpFilter::default()
    };
    let v6 = DumpFilter {
        family: Some(Family::Ipv6),
        ..DumpFilter::default()
    };
    let masked = |value, mask| Some(Masked { value, mask });
    let any = TupleMatch::default();
    let udp53 = TupleMatch {
        protocol: Some(17),
        dport: Some(53),
        ..any
    };
    let ip = |text: &str| Some(text.parse().unwrap());
    vec![
        ("IPv4", v4),
        ("IPv6", v6),
        (
            "mark",
            DumpFilter {
                mark: masked(0xff00, 0xff00),
                ..v4
            },
        ),
        (
            "mark of both families",
            DumpFilter {
                mark: masked(0, u32::MAX),
                ..DumpFilter::default()
            },
        ),
        (
            "assured",
            DumpFilter {
                status: masked(4, 4),
                ..v4
            },
        ),
        (
            "unreplied",
            DumpFilter {
                status: masked(0, 2),
                ..DumpFilter::default()
            },
        ),
        (
            "status without mask",
            DumpFilter {
                status: masked(0, 0),
                ..v4
            },
        ),
        (
            "zone 0",
            DumpFilter {
                zone: Some(0),
                ..DumpFilter::default()
            },
        ),
        (
            "zone 12",
            DumpFilter {
                zone: Some(12),
                ..DumpFilter::default()
            },
        ),
        (
            "original-only zone",
            DumpFilter {
                zone: Some(14),
                ..DumpFilter::default()
            },
        ),
        (
            "reply-only zone",
            DumpFilter {
                zone: Some(15),
                ..v4
            },
        ),
        (
            "original udp 53",
            DumpFilter {
                original: udp53,
                ..v4
            },
        ),
        (
            "original udp 53, IPv6",
            DumpFilter {
                original: udp53,
                ..v6
            },
        ),
        (
            "udp 53 without family",
            DumpFilter {
                original: udp53,
                ..DumpFilter::default()
            },
        ),
        (
            "source",
            DumpFilter {
                original: TupleMatch {
                    src: ip("10.0.0.1"),
                    ..any
                },
                ..v4
            },
        ),
        (
            "destination",
            DumpFilter {
                original: TupleMatch {
                    dst: ip("10.96.0.10"),
                    ..udp53
                },
                ..v4
            },
        ),
        (
            "IPv6 source",
            DumpFilter {
                original: TupleMatch {
                    src: ip("fd00::1"),
                    ..any
                },
                ..v6
            },
        ),
        (
            "IPv6 destination",
            DumpFilter {
                reply: TupleMatch {
                    dst: ip("fd00::1"),
                    ..any
                },
                ..v6
            },
        ),
        (
            "IPv4 address, IPv6 asked",
            DumpFilter {
                original: TupleMatch {
                    src: ip("10.0.0.1"),
                    ..any
                },
                ..v6
            },
        ),
        (
            "reply source",
            DumpFilter {
                reply: TupleMatch {
                    src: ip("10.244.1.7"),
                    ..any
                },
                ..v4
            },
        ),
        (
            "reply source and port, and original destination",
            DumpFilter {
                original: TupleMatch {
                    dst: ip("10.96.0.10"),
                    ..any
                },
                reply: TupleMatch {
                    src: ip("10.244.1.7"),
                    protocol: Some(17),
                    sport: Some(5353),
                    ..any
                },
                ..v4
            },
        ),
        (
            "port without protocol",
            DumpFilter {
                original: TupleMatch {
                    dport: Some(53),
                    ..any
                },
                ..v4
            },
        ),
        (
            "sctp port",
            DumpFilter {
                original: TupleMatch {
                    protocol: Some(132),
                    dport: Some(1),
                    ..any
                },
                ..v4
            },
        ),
        (
            "icmp with a port",
            DumpFilter {
                original: TupleMatch {
                    protocol: Some(1),
                    sport: Some(1),
                    ..any
                },
                ..v4
            },
        ),
        (
            "gre",
            DumpFilter {
                original: TupleMatch {
                    protocol: Some(47),
                    ..any
                },
                ..v4
            },
        ),
        (
            "ospf",
            DumpFilter {
                original: TupleMatch {
                    protocol: Some(89),
                    sport: Some(9),
                    ..any
                },
                ..v4
            },
        ),
        (
            "all at once",
            DumpFilter {
                mark: masked(0, u32::MAX),
                status: masked(4, 4),
                zone: Some(0),
                original: TupleMatch {
                    src: ip("10.0.0.1"),
                    ..udp53
                },
                ..v4
            },
        ),
    ]
}

#[test]
fn filtered_dump_has_every_entry_that_passes_in_user_space() {
    private_netns(|| {
        let mut table = open();
        fill(&mut table, &every_kind());
        let all = timeless(dump(&mut table));
        for (name, filter) in filters() {
            let (narrowed, report) = dump_with(&mut table, &filter);
            let mut narrowed = timeless(narrowed);
            assert!(!report.filter_refused, "{name}: {report:?}");
            narrowed.retain(|flow| passes(&filter, flow));
            let expected: Vec<_> = all.iter().filter(|flow| passes(&filter, flow)).collect();
            assert_eq!(narrowed.iter().collect::<Vec<_>>(), expected, "{name}");
        }
    });
}

/// Kernels that ignore a filter pass the test above, too. This one needs Linux 6.8.
#[test]
fn kernel_applies_zone_mark_status_and_tuple_filters() {
    private_netns(|| {
        let mut table = open();
        fill(&mut table, &every_kind());
        let all = dump(&mut table);
        let asked = [
            "zone 0",
            "zone 12",
            "original-only zone",
            "reply-only zone",
            "assured",
            "reply source",
        ];
        for (name, filter) in filters()
            .into_iter()
            .filter(|(name, _)| asked.contains(name))
        {
            let (narrowed, report) = dump_with(&mut table, &filter);
            let expected = all.iter().filter(|flow| passes(&filter, flow)).count();
            assert!(expected > 0 && report.kernel_filtered, "{name}");
            assert_eq!(narrowed.len(), expected, "{name}");
        }
    });
}
