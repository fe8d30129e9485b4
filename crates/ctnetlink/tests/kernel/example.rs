//! Run of the example program.

/// Source of the example. Cargo gives a test no path of a built example.
mod conntrack {
    #![allow(dead_code)] // its main function

    include!("../../examples/conntrack.rs");
}

use ctnetlink::{EventOptions, Events, Netns};
use testkit::private_netns::private_netns;

use crate::flows::{REPLIED, plain, ports, tcp_state, tuple};
use crate::{dump, open};

#[test]
fn example_lists_deletes_and_follows_the_entries_to_the_port() {
    private_netns(|| {
        let flow = |protocol, src, dport| {
            let to = tuple(protocol, src, "198.51.100.2", ports(4000, dport));
            plain(to, REPLIED)
        };
        let mut tcp = flow(6, "192.0.2.4", 53);
        tcp.state = Some(tcp_state(3));
        let kept = [flow(17, "192.0.2.3", 123), tcp];
        let removed = ["192.0.2.1", "192.0.2.2"].map(|src| flow(17, src, 53));
        // Entries make events when a subscription exists at their creation.
        let subscription = Events::open(&Netns::current(), EventOptions::default());
        let mut table = open();
        let inserted = table.insert_all(kept.iter().chain(&removed));
        assert_eq!(inserted, [Ok(()); 4]);

        let mut out = Vec::new();
        conntrack::run(53, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let mut lines: Vec<_> = text.lines().collect();
        lines.sort_unstable();
        assert_eq!(
            lines,
            [
                "192.0.2.1:4000 -> 198.51.100.2:53: deleted: Ok(())",
                "192.0.2.2:4000 -> 198.51.100.2:53: deleted: Ok(())",
                "Destroy 192.0.2.1:4000",
                "Destroy 192.0.2.2:4000",
            ]
        );
        let mut left: Vec<_> = dump(&mut table).iter().map(|f| f.original).collect();
        let mut expected = kept.map(|flow| flow.original);
        left.sort_unstable();
        expected.sort_unstable();
        assert_eq!(left, expected);
        drop(subscription);
    });
}
