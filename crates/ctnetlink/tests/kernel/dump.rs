//! Dumps that are stopped, single entries, expectations, the other lists.

use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::process::Command;

use ctnetlink::flow::{Direction, Family, Zone};
use ctnetlink::{DeleteTarget, DumpFilter, DumpReport, InsertError, Table, TableKind};
use rustix::io::Errno;

use crate::flows::{REPLIED, plain, ports, tuple};
use crate::{dump, nft, open, run};
use testkit::private_netns::private_netns;

#[test]
fn stopped_dump_does_not_disturb_later_requests() {
    private_netns(|| {
        let mut table = open();
        table.read_ahead();
        let flows: Vec<_> = (1..3000)
            .map(|port| plain(tuple(17, "10.0.0.1", "10.0.0.2", ports(port, 53)), REPLIED))
            .collect();
        assert!(table.insert_all(&flows).iter().all(Result::is_ok));
        // A long dump is received ahead on a second thread, and may be stopped there, too.
        let stop = |table: &mut Table, after: u64| {
            let mut seen = 0;
            let report = table
                .dump(TableKind::Conntrack, &DumpFilter::default(), &mut |_| {
                    seen += 1;
                    if seen == after {
                        ControlFlow::Break(())
                    } else {
                        ControlFlow::Continue(())
                    }
                })
                .unwrap();
            assert_eq!(
                (seen, report.received, report.stopped),
                (after, after, true)
            );
        };
        for after in [5, 2500] {
            stop(&mut table, after);
            assert_eq!(dump(&mut table).len(), flows.len());
            stop(&mut table, after);
            assert!(
                table
                    .get(&flows[0].reply, Direction::Reply, Zone::default())
                    .unwrap()
                    .is_some()
            );
            stop(&mut table, after);
            assert_eq!(
                table.insert(&flows[0]),
                Err(InsertError::Kernel(Errno::EXIST))
            );
            stop(&mut table, after);
            assert_eq!(table.count().unwrap() as usize, flows.len());
        }
    });
}

#[test]
fn absent_entry_is_none_and_the_other_direction_does_not_match() {
    private_netns(|| {
        let mut table = open();
        let flow = plain(tuple(17, "10.0.0.1", "10.0.0.2", ports(4000, 53)), REPLIED);
        let mut get = |tuple, direction| table.get(tuple, direction, Zone::default()).unwrap();
        assert_eq!(get(&flow.original, Direction::Original), None);
        open().insert(&flow).unwrap();
        assert!(get(&flow.original, Direction::Original).is_some());
        assert_eq!(get(&flow.reply, Direction::Original), None);
    });
}

#[test]
fn expectation_is_decoded_with_its_master() {
    private_netns(|| {
        run(Command::new("ip").args(["link", "set", "lo", "up"]));
        nft(
            "table ip t { ct helper ftp { type \"ftp\" protocol tcp; }; \
            chain c { type filter hook output priority 0; tcp dport 21 ct helper set \"ftp\"; }; }",
        );
        let server = std::net::TcpListener::bind("127.0.0.1:21").unwrap();
        let mut client = std::net::TcpStream::connect("127.0.0.1:21").unwrap();
        let (mut served, _) = server.accept().unwrap();
        // The helper reads a command only after the end of the line before it.
        for line in [&b"USER x\r\n"[..], b"PORT 127,0,0,1,160,40\r\n"] {
            client.write_all(line).unwrap();
            // The helper has read a line when the server receives it.
            served.read_exact(&mut vec![0; line.len()]).unwrap();
        }

        let mut found = Vec::new();
        let report = open()
            .dump_expectations(None, &mut |expectation| {
                found.push(expectation);
                ControlFlow::Continue(())
            })
            .unwrap();
        let [expectation] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!((report.received, report.unreadable), (1, 0));
        let port = client.local_addr().unwrap().port();
        let master = tuple(6, "127.0.0.1", "127.0.0.1", ports(port, 21));
        assert_eq!(expectation.master, master);
        let destination = expectation.tuple.destination().to_string();
        assert_eq!(
            (expectation.tuple.protocol, destination.as_str()),
            (6, "127.0.0.1:41000")
        );
        assert_eq!(expectation.mask.map(|mask| mask.l4), Some(ports(0, 65535)));
        assert_eq!(expectation.helper.as_deref(), Some("ftp"));
        assert!(expectation.timeout.is_some() && expectation.id.is_some());
        assert_eq!(
            open()
                .dump_expectations(Some(Family::Ipv6), &mut |_| ControlFlow::Break(()))
                .unwrap()
                .received,
            0
        );
    });
}

#[test]
fn lists_of_dying_and_unconfirmed_entries_can_be_dumped() {
    private_netns(|| {
        let mut table = open();
        let filter = DumpFilter {
            zone: Some(3),
            ..DumpFilter::default()
        };
        for kind in [TableKind::Dying, TableKind::Unconfirmed] {
            let report = table
                .dump(kind, &filter, &mut |_| ControlFlow::Continue(()))
                .unwrap();
            assert_eq!(report, DumpReport::default(), "{kind:?}");
        }
    });
}

#[test]
fn dump_of_expired_entries_is_empty_and_not_contradicted_by_their_count() {
    private_netns(|| {
        let mut table = open();
        let mut flow = plain(tuple(17, "10.0.0.1", "10.0.0.2", ports(1, 53)), REPLIED);
        flow.timeout = Some(1);
        assert!(table.insert_all([&flow]).iter().all(Result::is_ok));
        let mut counted = 0;
        for _ in 0..400 {
            counted += table.count().unwrap();
            let report = table
                .dump(TableKind::Conntrack, &DumpFilter::default(), &mut |_| {
                    ControlFlow::Continue(())
                })
                .unwrap();
            assert!(report.is_consistent(), "{report:?}");
            if report.received == 0 {
                assert_eq!(table.count().unwrap(), 0, "the entry is removed");
                assert!(counted > 0);
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("the entry does not expire");
    });
}

/// Entries are deleted just before the kernel would continue at them, so that it begins their hash buckets again. Only a bucket
/// that holds an earlier entry, too, repeats one, so that a round may have none.
#[test]
fn entry_whose_bucket_is_dumped_again_passes_once() {
    private_netns(|| {
        let repeated: u64 = (0..10)
            .map(|_| dump_with_deletes().repeated)
            .find(|repeated| *repeated > 0)
            .unwrap_or(0);
        assert!(repeated > 0, "no bucket was begun again");
    });
}

/// Fills the table, dumps it while entries ahead are deleted, and empties it.
fn dump_with_deletes() -> DumpReport {
    let (mut table, mut deleting) = (open(), open());
    let flows: Vec<_> = (0..40_000_u32)
        .map(|n| {
            let client = format!("10.1.{}.{}", n / 250 % 250, n % 250 + 1);
            let port = u16::try_from(1000 + n / 10).unwrap();
            plain(tuple(17, &client, "10.0.0.2", ports(port, 53)), REPLIED)
        })
        .collect();
    assert!(table.insert_all(&flows).iter().all(Result::is_ok));
    let order = dump(&mut table);
    let places: HashMap<_, _> = (0..).zip(&order).map(|(at, f)| (f.original, at)).collect();
    let (mut seen, mut twice, mut next) = (Vec::new(), 0, 0);
    let report = table
        .dump(TableKind::Conntrack, &DumpFilter::default(), &mut |flow| {
            seen.push((flow.id, flow.original));
            if seen.len() % 20 == 0 {
                // A datagram holds some hundred entries, and the next one is written already.
                let at: usize = places[&flow.original];
                let to = (at + 600).min(order.len());
                let doomed = order[next.max(at + 60).min(to)..to].iter().step_by(2);
                let targets: Vec<_> = doomed.filter_map(DeleteTarget::of).collect();
                deleting.delete(&targets);
                next = to;
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    let mut distinct = HashSet::new();
    for key in &seen {
        twice += u32::from(!distinct.insert(*key));
    }
    assert_eq!(twice, 0, "{report:?}");
    assert_eq!(report.received, seen.len() as u64 + report.repeated);
    let left = dump(&mut table);
    assert!(left.len() < flows.len() * 3 / 4, "{}", left.len());
    let missed = left
        .iter()
        .filter(|flow| !distinct.contains(&(flow.id, flow.original)));
    assert_eq!(
        missed.count(),
        0,
        "entries that were there all the time are missing"
    );
    let targets: Vec<_> = left.iter().filter_map(DeleteTarget::of).collect();
    deleting.delete(&targets);
    report
}
