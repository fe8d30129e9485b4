//! Inserts.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::ControlFlow;
use std::process::Command;

use ctnetlink::flow::{Direction, Flow, L4, ProtocolState, Status};
use ctnetlink::{DeleteTarget, DumpFilter, Incomplete, InsertError, decode};
use rustix::io::Errno;

use crate::flows::{REPLIED, every_kind, plain, ports, tcp_state, tuple};
use crate::{dump, fill, nft, open, run, use_labels};
use testkit::private_netns::private_netns;

/// Flow without the properties that the kernel chooses, and with the timer as inserted.
fn comparable(flow: &Flow) -> Flow {
    let mut flow = flow.clone();
    assert!(
        flow.timeout.is_some_and(|t| (3590..=3600).contains(&t)),
        "{flow:?}"
    );
    flow.timeout = Some(3600);
    flow.id = None;
    flow.use_count = None;
    flow.status = flow
        .status
        .without(Status::SRC_NAT_DONE.with(Status::DST_NAT_DONE))
        .without(Status::SEQ_ADJUST.with(Status::HELPER));
    flow
}

#[test]
fn inserted_entry_is_dumped_equal() {
    private_netns(|| {
        use_labels();
        let mut table = open();
        let flows = every_kind();
        fill(&mut table, &flows);
        assert_eq!(table.count().unwrap() as usize, flows.len());
        let found = dump(&mut table);
        assert_eq!(found.len(), flows.len());
        for (name, flow) in &flows {
            let key = |f: &Flow| (f.original, f.zone);
            let back = found.iter().find(|f| key(f) == key(flow));
            let back = back.unwrap_or_else(|| panic!("{name} is not there: {found:#?}"));
            assert_eq!(comparable(back), *flow, "{name}");
            assert!(back.id.is_some() && back.use_count.is_some(), "{name}");
            let got = table.get(&flow.reply, Direction::Reply, flow.zone).unwrap();
            assert_eq!(
                got.map(|f| f.id),
                Some(back.id),
                "{name} by its reply tuple"
            );
            let got = table
                .get(&flow.original, Direction::Original, flow.zone)
                .unwrap();
            assert_eq!(
                got.map(|f| f.id),
                Some(back.id),
                "{name} by its original tuple"
            );
        }
    });
}

#[test]
fn lookups_of_several_entries_find_each() {
    private_netns(|| {
        use_labels();
        let mut table = open();
        let flows = every_kind();
        fill(&mut table, &flows);
        let mut keys = Vec::new();
        let mut expected = Vec::new();
        let absent = tuple(17, "10.9.9.9", "10.0.0.2", ports(1, 2));
        // The kernel refuses a UDP tuple without ports.
        let impossible = tuple(17, "10.9.9.9", "10.0.0.2", L4::None);
        for flow in dump(&mut table) {
            for direction in [Direction::Original, Direction::Reply] {
                keys.push((*flow.tuple(direction), direction, flow.zone));
                keys.push((absent, direction, flow.zone));
                keys.push((impossible, direction, flow.zone));
                expected.extend([Ok(flow.id), Ok(None), Err(Errno::INVAL)]);
            }
        }
        assert!(keys.len() > 100, "several sends");
        let looks = keys.iter().map(|(tuple, d, zone)| (tuple, *d, *zone));
        let found: Vec<_> = table
            .get_all(looks)
            .into_iter()
            .map(|found| found.map(|flow| flow.and_then(|flow| flow.id)))
            .collect();
        assert_eq!(found, expected);
        assert_eq!(table.get_all([]), []);
    });
}

#[test]
fn conntrack_lists_what_was_inserted_and_agrees_on_ids() {
    private_netns(|| {
        let mut table = open();
        fill(&mut table, &every_kind());
        let output = run(Command::new("conntrack").args(["-L", "-o", "extended,id"]));
        let text = String::from_utf8(output.stdout).unwrap();
        let flows = dump(&mut table);
        assert_eq!(text.lines().count(), flows.len(), "{text}");
        for flow in flows {
            let id = format!(" id={}", flow.id.unwrap());
            assert_eq!(
                text.lines().filter(|line| line.contains(&id)).count(),
                1,
                "{id}\n{text}"
            );
        }
    });
}

#[test]
fn counters_and_start_are_decoded() {
    private_netns(|| {
        for name in ["acct", "timestamp"] {
            std::fs::write(format!("/proc/sys/net/netfilter/nf_conntrack_{name}"), "1").unwrap();
        }
        run(Command::new("ip").args(["link", "set", "lo", "up"]));
        nft(
            "table ip t { chain c { type filter hook output priority 0; ct state new counter; }; }",
        );
        let (a, b) = (udp_socket("127.0.0.1"), udp_socket("127.0.0.1"));
        for _ in 0..3 {
            a.send_to(&[0; 72], b.local_addr().unwrap()).unwrap();
        }
        b.send_to(&[0; 22], a.local_addr().unwrap()).unwrap();
        let flows = dump(&mut open());
        let [flow] = &flows[..] else {
            panic!("{flows:?}")
        };
        let counted = [Direction::Original, Direction::Reply]
            .map(|d| flow.counters(d).map(|c| (c.packets, c.bytes)));
        assert_eq!(counted, [Some((3, 300)), Some((1, 50))]);
        let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos();
        let age = now - u128::from(flow.start.unwrap());
        assert!(age < 60_000_000_000, "{age} ns");
    });
}

fn udp_socket(address: &str) -> std::net::UdpSocket {
    std::net::UdpSocket::bind((address, 0)).unwrap()
}

#[test]
fn refused_inserts_are_reported_one_by_one() {
    private_netns(|| {
        let mut table = open();
        let ok = |port| plain(tuple(17, "10.0.0.1", "10.0.0.2", ports(port, 53)), REPLIED);
        let mut timeless = ok(2);
        timeless.timeout = None;
        let mut helped = ok(3);
        helped.rare_mut().helper = Some("no-such-helper".into());
        let mut long = ok(4);
        long.rare_mut().helper = Some("x".repeat(70_000).into());
        let mut tagless = plain(tuple(132, "10.0.0.1", "10.0.0.2", ports(1, 2)), REPLIED);
        tagless.state = Some(ProtocolState::Sctp {
            state: 4,
            vtag_original: Some(1),
            vtag_reply: None,
        });
        let mut impossible = plain(tuple(6, "10.0.0.1", "10.0.0.2", ports(1, 2)), REPLIED);
        impossible.state = Some(tcp_state(42));
        let flows = [
            timeless,
            ok(1),
            ok(1),
            helped,
            tagless,
            long,
            impossible,
            ok(5),
        ];
        let results = table.insert_all(&flows);
        let kernel = |errno| Err(InsertError::Kernel(errno));
        let incomplete = |part| Err(InsertError::Incomplete(part));
        assert_eq!(results[0], incomplete(Incomplete::NoTimeout));
        assert_eq!(
            results[1..4],
            [Ok(()), kernel(Errno::EXIST), kernel(Errno::OPNOTSUPP)]
        );
        assert_eq!(results[4], incomplete(Incomplete::NoVerificationTags));
        assert_eq!(results[5], incomplete(Incomplete::HelperNameTooLong));
        assert_eq!(results[6..], [kernel(Errno::RANGE), Ok(())]);
        assert_eq!(table.count().unwrap(), 2);
    });
}

#[test]
fn ten_thousand_entries_are_inserted_dumped_once_and_deleted() {
    private_netns(|| {
        let mut table = open();
        let flows = (0..10_000u32).map(|n| {
            let [_, _, a, b] = n.to_be_bytes();
            let mut flow = plain(tuple(17, "10.0.0.1", "10.0.0.2", ports(4000, 53)), REPLIED);
            flow.original.src = IpAddr::V4(Ipv4Addr::new(10, 1, a, b));
            flow.reply.dst = flow.original.src;
            flow
        });
        assert!(table.insert_all(flows).iter().all(Result::is_ok));
        let found = dump(&mut table);
        let mut targets: Vec<_> = found.iter().filter_map(DeleteTarget::of).collect();
        let mut decoded = 0;
        let report = table.dump_raw(&DumpFilter::default(), &mut |message| {
            decoded += usize::from(decode(message).is_ok());
            ControlFlow::Continue(())
        });
        assert_eq!(report.unwrap().received, 10_000);
        assert_eq!((found.len(), decoded), (10_000, 10_000));
        // Every third is deleted before: each ENOENT must be reported for the right one.
        let gone: Vec<_> = targets.iter().copied().step_by(3).collect();
        assert!(table.delete(&gone).iter().all(Result::is_ok));
        for (at, result) in table.delete(&targets).into_iter().enumerate() {
            let wanted = if at % 3 == 0 {
                Err(Errno::NOENT)
            } else {
                Ok(())
            };
            assert_eq!(result, wanted, "{at}");
        }
        targets.clear();
        assert_eq!(table.delete(&targets), []);
        assert_eq!(table.count().unwrap(), 0);
    });
}
