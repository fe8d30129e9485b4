//! Real packets of restored entries.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use ctnetlink::flow::{ProtocolState, Status};
use serde_json::Value;
use testkit::mixed::{ports, tuple};
use testkit::private_netns::private_netns;
use testkit::tools::{nft, run};

use crate::{
    BOTH, Purged, assert_same, delete_all, dump, ip, purged, restore_stdin, saved, translated,
};

/// Adds addresses to `lo`, and a rule so that packets are tracked and translated at all.
fn local_world() {
    ip("link set lo up");
    for address in ["10.244.0.2/32", "10.244.1.7/32"] {
        ip(&format!("address add {address} dev lo"));
    }
    ip("route add 10.96.0.0/16 dev lo");
    nft(
        "table ip t { chain c { type nat hook output priority -100; \
         ip daddr 10.96.99.99 udp dport 9 dnat to 10.244.1.7:9; }; }",
    );
}

fn socket(address: &str) -> UdpSocket {
    let socket = UdpSocket::bind(address).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    socket
}

#[test]
fn a_restored_translation_translates_packets_both_ways() {
    private_netns(|| {
        local_world();
        let lines = purged(&[translated(
            tuple(17, "10.244.0.2", "10.96.0.10", ports(40_123, 53)),
            tuple(17, "10.244.1.7", "10.244.0.2", ports(5353, 40_123)),
            Status::DST_NAT,
        )]);
        let ran = restore_stdin(&["--yes", "-"], &lines);
        assert_eq!(ran.status, Some(0), "{}", ran.stderr);

        let server = socket("10.244.1.7:5353");
        let client = socket("10.244.0.2:40123");
        client.send_to(b"question", "10.96.0.10:53").unwrap();
        let mut buffer = [0; 64];
        let (length, from) = server.recv_from(&mut buffer).unwrap();
        assert_eq!(
            (&buffer[..length], from.to_string().as_str()),
            (&b"question"[..], "10.244.0.2:40123")
        );
        server.send_to(b"answer", from).unwrap();
        let (length, from) = client.recv_from(&mut buffer).unwrap();
        assert_eq!(
            (&buffer[..length], from.to_string().as_str()),
            (&b"answer"[..], "10.96.0.10:53")
        );
        assert_eq!(dump().len(), 1);
    });
}

#[test]
fn a_flow_of_real_packets_is_restored_except_for_informative_status_bits() {
    private_netns(|| {
        local_world();
        nft("add rule ip t c ip daddr 10.96.0.10 udp dport 53 dnat to 10.244.1.7:5353");
        let server = socket("10.244.1.7:5353");
        let mut buffer = [0; 64];
        for (source, destination) in [
            ("10.244.0.2:40123", "10.96.0.10:53"),
            ("10.244.0.2:40124", "10.244.1.7:5353"),
        ] {
            let client = socket(source);
            client.send_to(b"question", destination).unwrap();
            let (_, from) = server.recv_from(&mut buffer).unwrap();
            server.send_to(b"answer", from).unwrap();
            client.recv_from(&mut buffer).unwrap();
        }
        let mut before = Purged::all();
        assert_eq!(before.flows.len(), 2);
        assert_eq!(
            restore_stdin(&["--yes", "-"], &before.lines).status,
            Some(0)
        );
        let done = Status::SRC_NAT_DONE.with(Status::DST_NAT_DONE);
        let flows = before.flows.iter_mut();
        for flow in flows.filter(|flow| !flow.status.intersects(BOTH)) {
            assert!(flow.status.contains(done), "{flow:?}");
            flow.status = flow.status.without(done);
        }
        assert_same(&before, &dump());
    });
}

#[test]
fn a_restored_connection_with_scaled_windows_has_no_invalid_packets() {
    private_netns(|| {
        local_world();
        nft(
            "table ip f { counter bad { }; chain c { type filter hook input priority 0; \
                 ct state invalid counter name bad drop; }; }",
        );
        let listener = TcpListener::bind("10.244.1.7:80").unwrap();
        let mut client = TcpStream::connect("10.244.1.7:80").unwrap();
        let (mut server, _) = listener.accept().unwrap();
        transfer(&mut client, &mut server);
        let lines = saved();
        let item: Value = serde_json::from_str(lines.trim()).unwrap();
        let flags = item["tcp_flags"]["original"].as_u64().unwrap();
        assert_eq!(flags & 0x09, 1, "scaled and strict: {item}");
        delete_all();
        assert_eq!(restore_stdin(&["--yes", "-"], &lines).status, Some(0));
        transfer(&mut client, &mut server);
        transfer(&mut server, &mut client);
        let counter = run("nft", &["list", "counter", "ip", "f", "bad"]).stdout;
        assert!(counter.contains("packets 0 bytes 0"), "{counter}");
        let flows = dump();
        assert_eq!(flows.len(), 1);
        assert_eq!(
            flows[0].state.and_then(ProtocolState::name),
            Some("ESTABLISHED")
        );
    });
}

/// Transfers more than any unscaled window, and waits for all of it.
fn transfer(from: &mut TcpStream, to: &mut TcpStream) {
    const LENGTH: usize = 16 << 20;
    std::thread::scope(|scope| {
        scope.spawn(|| from.write_all(&vec![7; LENGTH]).unwrap());
        to.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut got = vec![0; LENGTH];
        to.read_exact(&mut got).unwrap();
    });
}
