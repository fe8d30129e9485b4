//! Missing capabilities, and other namespaces.

use std::net::{IpAddr, Ipv6Addr};
use std::ops::ControlFlow;
use std::process::Command;

use ctnetlink::Netns;
use ctnetlink::flow::Direction;
use ctnetlink::{DeleteTarget, DumpFilter, ErrorKind, InsertError, NetlinkError, Table, TableKind};
use rustix::io::Errno;

use crate::flows::{REPLIED, plain, ports, tuple};
use crate::{open, run};
use testkit::private_netns::{drop_capabilities, enter_new_netns, private_netns};

#[test]
fn missing_capability_is_reported_by_every_request() {
    private_netns(|| {
        let flow = plain(tuple(17, "10.0.0.1", "10.0.0.2", ports(4000, 53)), REPLIED);
        let mut inserted = open();
        inserted.insert(&flow).unwrap();
        // An open socket keeps the capabilities of its opener; a new one has none.
        drop_capabilities();
        let mut table = open();
        let error = table
            .dump(TableKind::Conntrack, &DumpFilter::default(), &mut |_| {
                ControlFlow::Continue(())
            })
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotPermitted);
        assert!(error.to_string().contains("CAP_NET_ADMIN"), "{error}");
        assert!(matches!(table.count(), Err(NetlinkError::NotPermitted(_))));
        let got = table.get(&flow.reply, Direction::Reply, flow.zone);
        assert!(matches!(got, Err(NetlinkError::NotPermitted(_))));
        let looks = vec![(&flow.reply, Direction::Reply, flow.zone); 40];
        assert_eq!(table.get_all(looks), vec![Err(Errno::PERM); 40]);
        let target = DeleteTarget::new(flow.reply, 1, flow.zone);
        assert_eq!(table.delete(&[target; 200]), vec![Err(Errno::PERM); 200]);
        assert_eq!(table.insert(&flow), Err(InsertError::Kernel(Errno::PERM)));
    });
}

#[test]
fn reading_another_namespace_does_not_move_the_caller() {
    private_netns(|| {
        run(Command::new("ip").args(["link", "set", "lo", "up"]));
        run(Command::new("ip").args(["address", "add", "192.0.2.1/32", "dev", "lo"]));
        run(Command::new("ip").args(["address", "add", "2001:db8::1/128", "dev", "lo"]));
        let flow = plain(tuple(17, "10.0.0.1", "10.0.0.2", ports(4000, 53)), REPLIED);
        open().insert(&flow).unwrap();
        let there = Netns::current();
        let thread = std::path::PathBuf::from("/proc/thread-self/ns/net");
        let path = std::fs::canonicalize("/proc/thread-self")
            .unwrap()
            .join("ns/net");
        enter_new_netns();
        let before = std::fs::read_link(&thread).unwrap();
        // The path is that of this thread, which has moved: it is the new namespace now.
        let here = Netns::named(path.to_str().unwrap()).unwrap();
        for (netns, count, addresses) in [(&there, 1, 4), (&here, 0, 0)] {
            assert_eq!(
                Table::open(netns).unwrap().count().unwrap(),
                count,
                "{netns:?}"
            );
            let found = ctnetlink::rtnetlink::local_addresses(netns).unwrap();
            assert_eq!(found.len(), addresses, "{found:?}");
            assert!(found.iter().all(|a| a.interface == "lo"));
            assert_eq!(netns.is_initial(), Some(false));
        }
        let addresses = ctnetlink::rtnetlink::local_addresses(&there).unwrap();
        for expected in [
            IpAddr::from([192, 0, 2, 1]),
            IpAddr::V6(Ipv6Addr::LOCALHOST),
        ] {
            assert!(
                addresses.iter().any(|a| a.address() == expected),
                "{addresses:?}"
            );
        }
        assert_eq!(std::fs::read_link(&thread).unwrap(), before);
    });
}
