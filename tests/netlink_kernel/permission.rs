//! Missing capabilities, and other namespaces.

use std::net::{IpAddr, Ipv6Addr};
use std::ops::ControlFlow;
use std::process::Command;

use ctk::flow::Direction;
use ctk::netlink::{
    DeleteTarget, DumpFilter, ErrorKind, InsertError, NetlinkError, Table, TableKind,
};
use ctk::netns::Netns;
use rustix::io::Errno;

use crate::flows::{REPLIED, plain, ports, tuple};
use crate::private_netns::private_netns;
use crate::{open, run};

#[test]
fn without_the_capability_every_request_says_so() {
    private_netns(|| {
        let flow = plain(tuple(17, "10.0.0.1", "10.0.0.2", ports(4000, 53)), REPLIED);
        let mut inserted = open();
        inserted.insert(&flow).unwrap();
        // An old socket keeps what its opener was permitted; a new one has nothing.
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

pub fn drop_capabilities() {
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
    let none = CapabilitySet::empty();
    let sets = CapabilitySets {
        effective: none,
        permitted: none,
        inheritable: none,
    };
    set_capabilities(None, sets).unwrap();
}

#[test]
fn another_namespace_is_read_without_moving_the_caller() {
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
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        let before = std::fs::read_link(&thread).unwrap();
        // The path names this very thread, which has moved: it is the new namespace now.
        let here = Netns::named(path.to_str().unwrap()).unwrap();
        for (netns, count, addresses) in [(&there, 1, 4), (&here, 0, 0)] {
            assert_eq!(
                Table::open(netns).unwrap().count().unwrap(),
                count,
                "{netns:?}"
            );
            let found = ctk::rtnetlink::local_addresses(&netns).unwrap();
            assert_eq!(found.len(), addresses, "{found:?}");
            assert!(found.iter().all(|a| a.interface == "lo"));
            assert_eq!(netns.is_initial(), Some(false));
            let sysctls = ctk::sysctl::conntrack(netns).unwrap();
            assert_eq!(sysctls.count, Some(u64::from(count)));
            assert!(sysctls.max.is_some() && sysctls.events.is_some());
        }
        let addresses = ctk::rtnetlink::local_addresses(&there).unwrap();
        for wanted in [
            IpAddr::from([192, 0, 2, 1]),
            IpAddr::V6(Ipv6Addr::LOCALHOST),
        ] {
            assert!(
                addresses.iter().any(|a| a.address() == wanted),
                "{addresses:?}"
            );
        }
        assert_eq!(std::fs::read_link(&thread).unwrap(), before);
    });
}
