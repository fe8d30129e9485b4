//! `-o conntrack` against the tool itself, on a real table in a network namespace of its own.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::ops::ControlFlow;
use std::process::Command;

use ctk::entry::Entry;
use ctk::output::{ExpectationPrinter, Format, Options, Printer, Summary};
use ctnetlink::netns::Netns;
use ctnetlink::{DumpFilter, Table, TableKind};
use testkit::private_netns::private_netns;

fn run(command: &str) -> String {
    let words: Vec<_> = command.split_whitespace().collect();
    let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
    assert!(output.status.success(), "{command}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Table of entries that the tool can create, and real packets.
fn fill() -> (TcpStream, TcpStream) {
    for setting in ["acct", "timestamp"] {
        std::fs::write(
            format!("/proc/sys/net/netfilter/nf_conntrack_{setting}"),
            "1",
        )
        .unwrap();
    }
    run("ip link set lo up");
    let rules = "table ip t { ct helper f { type \"ftp\" protocol tcp; }; \
        chain o { type filter hook output priority 0; tcp dport 21 ct helper set \"f\"; }; \
        chain i { type filter hook input priority 0; ct state new ct label set 1 ct mark set 7; }; }";
    let nft = Command::new("nft").arg(rules).status().unwrap();
    assert!(nft.success());
    let base = "conntrack -I -s 192.0.2.1 -d 198.51.100.1 -t 500";
    for rest in [
        "-p udp --sport 1 --dport 2 --orig-zone 5",
        "-p udp --sport 1 --dport 3 --reply-zone 6",
        "-p udp --sport 1 --dport 4 -w 7 -m 4294967295",
        "-p udp --sport 1 --dport 5 -r 10.244.1.7 -q 192.0.2.1 --reply-port-src 53 --reply-port-dst 1 -u SEEN_REPLY,ASSURED",
        "-p gre --srckey 16 --dstkey 32",
        "-p udplite --sport 5 --dport 6",
        "-p icmp --icmp-type 8 --icmp-code 0 --icmp-id 77",
        "-p tcp --sport 5 --dport 21 --state TIME_WAIT -u SEEN_REPLY",
        "-p tcp --sport 5 --dport 22 --state SYN_SENT2",
        "-p sctp --sport 5 --dport 6 --state COOKIE_WAIT --orig-vtag 1 --reply-vtag 2",
        "-p 89",
        "-p dccp --sport 5 --dport 6 --state OPEN --role client",
    ] {
        run(&format!("{base} {rest}"));
    }
    let base = "conntrack -I -t 500 -s ::ffff:192.0.2.1 -d ::192.0.2.1";
    run(&format!(
        "{base} -p tcp --sport 5 --dport 6 --state LAST_ACK"
    ));
    run(&format!(
        "{base} -p icmpv6 --icmpv6-type 128 --icmpv6-code 0 --icmpv6-id 9"
    ));

    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.send_to(b"hello", "127.0.0.1:5353").unwrap();
    let server = TcpListener::bind("127.0.0.1:21").unwrap();
    let mut client = TcpStream::connect("127.0.0.1:21").unwrap();
    let (mut served, _) = server.accept().unwrap();
    // The helper parses a command only after a complete line.
    for line in [&b"USER x\r\n"[..], b"PORT 127,0,0,1,160,40\r\n"] {
        client.write_all(line).unwrap();
        served.read_exact(&mut vec![0; line.len()]).unwrap();
    }
    (client, served)
}

fn table() -> Table {
    Table::open(&Netns::current()).unwrap()
}

fn options() -> Options {
    Options {
        format: Format::Conntrack,
        ..Options::default()
    }
}

fn printed() -> String {
    let mut out = Vec::new();
    let mut printer = Printer::new(options(), Box::new(&mut out));
    let print = &mut |flow| {
        printer.entry(&Entry::bare(flow), None).unwrap();
        ControlFlow::Continue(())
    };
    table()
        .dump(TableKind::Conntrack, &DumpFilter::default(), print)
        .unwrap();
    printer.finish(&Summary::default()).unwrap();
    drop(printer);
    String::from_utf8(out).unwrap()
}

/// Fields of every line; lines are sorted by their last field, the id.
fn sorted(text: &str) -> Vec<Vec<&str>> {
    let mut lines: Vec<Vec<_>> = text.lines().map(|line| line.split(' ').collect()).collect();
    lines.sort_by_key(|fields| fields.last().copied());
    lines
}

/// Reports whether two fields are equal, or clocks read up to a second apart.
fn close(ours: &str, tools: &str) -> bool {
    let clock = |field: &str| -> Option<i64> {
        field
            .strip_prefix("delta-time=")
            .unwrap_or(field)
            .parse()
            .ok()
    };
    ours == tools || matches!((clock(ours), clock(tools)), (Some(a), Some(b)) if (a - b).abs() <= 1)
}

#[test]
fn lines_equal_the_tools_on_a_real_table() {
    private_netns(|| {
        let _open = fill();
        let theirs = run("conntrack -L -o extended,id");
        let ours = printed();
        let (ours, theirs) = (sorted(&ours), sorted(&theirs));
        assert!(theirs.len() >= 16, "{theirs:?}");
        assert_eq!(ours.len(), theirs.len(), "{ours:?}\n{theirs:?}");
        for (a, b) in ours.iter().zip(&theirs) {
            let equal = a.len() == b.len() && a.iter().zip(b).all(|(a, b)| close(a, b));
            assert!(equal, "\n{}\n{}", a.join(" "), b.join(" "));
        }

        let mut out = Vec::new();
        let mut printer = ExpectationPrinter::new(&options(), Box::new(&mut out));
        let print = &mut |expectation| {
            printer.expectation(&expectation).unwrap();
            ControlFlow::Continue(())
        };
        table().dump_expectations(None, print).unwrap();
        printer.finish(&Summary::default()).unwrap();
        drop(printer);
        let ours = String::from_utf8(out).unwrap();
        let theirs = run("conntrack -L expect");
        assert_eq!(theirs.lines().count(), 1);
        let fields = ours.trim_end().split(' ').zip(theirs.trim_end().split(' '));
        assert_eq!(
            ours.split(' ').count(),
            theirs.split(' ').count(),
            "{ours}{theirs}"
        );
        for (a, b) in fields {
            assert!(close(a, b), "\n{ours}{theirs}");
        }
    });
}
