//! Entries whose source is translated, and lookups of a packet, in `ctk ls`.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use serde_json::json;
use testkit::ctk_binary::{ctk, ctk_line};
use testkit::lab;
use testkit::lab::cluster::{ClusterFile, minimal, service, slice};
use testkit::mixed::{self, ASSURED, insert, plain, ports, translated, tuple, udp};
use testkit::private_netns::private_netns;
use testkit::tools::{Outcome, nft, run, skipped};

use ctnetlink::Table;
use ctnetlink::flow::{Flow, Zone};
use ctnetlink::netns::Netns;

/// A flow of the node that lost its port: another one to the same endpoint has it.
fn rewritten() -> [Flow; 3] {
    let holder = plain(
        tuple(6, "192.0.2.55", "192.0.2.50", ports(64_922, 6443)),
        ASSURED,
    );
    let rewritten = translated(
        tuple(6, "192.0.2.55", "10.96.0.1", ports(64_922, 443)),
        tuple(6, "192.0.2.50", "192.0.2.55", ports(6443, 16_796)),
        ASSURED,
    );
    let masqueraded = translated(
        tuple(17, "10.244.1.9", "203.0.113.7", ports(5353, 53)),
        tuple(17, "203.0.113.7", "192.0.2.55", ports(53, 5353)),
        ASSURED,
    );
    let mut flows = [holder, rewritten, masqueraded];
    for flow in flows.iter_mut().take(2) {
        flow.state = Some(mixed::tcp(3));
    }
    flows
}

#[test]
fn the_table_shows_the_source_that_translation_changed() {
    private_netns(|| {
        insert(&rewritten());
        let table = ctk_line("ls --cluster none --sort protocol,-original.dst").exits(0);
        let clients: Vec<_> = table.stdout.lines().skip(1).map(client).collect();
        assert_eq!(
            clients,
            [
                "192.0.2.55:64922",
                "192.0.2.55:64922 as :16796",
                "10.244.1.9:5353 as 192.0.2.55:5353"
            ],
            "{table:#?}"
        );
        let changed = ctk_line("ls --cluster none --sport-changed -o json").exits(0);
        let items = changed.items();
        assert_eq!(items.len(), 1, "{changed:#?}");
        assert_eq!(items[0]["reply"]["dport"], 16_796);
    });
}

#[test]
fn the_evidence_names_the_entry_that_holds_the_source_port() {
    private_netns(|| {
        insert(&rewritten());
        let mut objects = minimal(lab::NODE);
        let https = |port| [("https", port, "TCP")];
        objects.push(service("default", "kubernetes", "10.96.0.1", &https(443)));
        objects.push(slice(
            "default",
            "kubernetes",
            &https(6443),
            &[("192.0.2.50", "api")],
        ));
        let file = ClusterFile::of(&objects);
        let evidence = |more: &[&str]| {
            let args = [
                "ls",
                "--cluster",
                file.path(),
                "--dst",
                "10.96.0.1",
                "-o",
                "json",
            ];
            let outcome = ctk(args.iter().chain(more)).exits(0);
            outcome.items()[0]["evidence"].as_str().unwrap().to_owned()
        };
        let held = "; source port 64922 became 16796; 64922 is held by tcp 192.0.2.55:64922 > 192.0.2.50:6443";
        for more in [
            &[][..],
            &["--limit", "9"],
            &["--packet", "tcp 192.0.2.50:6443 > 192.0.2.55:16796"],
        ] {
            let text = evidence(more);
            assert!(text.ends_with(held), "{text}");
        }
        let column = "--sport-changed --columns evidence --no-header";
        let args = ["ls", "--cluster", file.path()].into_iter();
        let table = ctk(args.chain(column.split(' '))).exits(0).stdout;
        assert!(table.trim_end().ends_with(held), "{table}");
        ctk_line("purge --cluster none --tcp 6443 --yes").exits(0);
        let text = evidence(&[]);
        assert!(text.ends_with("; no entry holds 64922 now"), "{text}");
    });
}

/// The cell of CLIENT.
fn client(row: &str) -> String {
    let cells: Vec<_> = row.split("  ").filter(|cell| !cell.is_empty()).collect();
    cells[2].trim().to_owned()
}

/// `ls --packet` with these further arguments.
fn packet(text: &str, more: &str) -> Outcome {
    let args = ["ls", "--cluster", "none", "-o", "json", "--packet", text];
    ctk(args.into_iter().chain(more.split_whitespace()))
}

#[test]
fn a_packet_of_either_direction_finds_its_entry() {
    private_netns(|| {
        insert(&rewritten());
        let mut other = udp("10.0.0.1", 4000);
        other.zone = Zone {
            id: 7,
            direction: None,
        };
        insert(&[other]);
        for (text, direction) in [
            (
                "tcp 192.0.2.55:64922 > 10.96.0.1:443",
                "the original direction\n",
            ),
            (
                "tcp 192.0.2.50:6443 > 192.0.2.55:16796",
                "the reply direction\n",
            ),
            (
                "tcp 192.0.2.55:16796 > 192.0.2.50:6443",
                "the original direction, captured after translation\n",
            ),
            (
                "tcp 10.96.0.1:443 > 192.0.2.55:64922",
                "the reply direction, captured after translation\n",
            ),
        ] {
            let outcome = packet(text, "").exits(0);
            let items = outcome.items();
            assert_eq!(items.len(), 1, "{text}: {outcome:#?}");
            assert_eq!(items[0]["reply"]["dport"], 16_796, "{text}");
            assert!(outcome.stderr.contains(direction), "{text}: {outcome:#?}");
            // No dump: only the entry itself was read.
            assert_eq!(outcome.json()["summary"]["scanned"], 1);
        }
        // The port of the holder, in both directions.
        let held = packet("tcp 192.0.2.50:6443 > 192.0.2.55:64922", "").exits(0);
        assert_eq!(held.items()[0]["original"]["dport"], 6443, "{held:#?}");
        let zoned = "udp 10.0.0.1:4000 > 10.64.0.1:53";
        let nothing = packet(zoned, "--exit-code").exits(0);
        assert_eq!(nothing.items(), [json!(null); 0]);
        assert!(
            nothing.stderr.contains("no entry of zone 0"),
            "{nothing:#?}"
        );
        let found = packet(zoned, "--zone 7 --exit-code").exits(5);
        assert_eq!(found.items()[0]["zone"], 7, "{found:#?}");
        // Other selectors apply, too.
        assert!(packet(zoned, "--zone 7 --tcp").exits(0).items().is_empty());
        assert!(packet("udp here > there", "").exits(2).stdout.is_empty());
        packet(zoned, "--table dying").exits(2);
    });
}

/// Sends `line` from one end of a connection and reads it at the other.
fn say(from: &mut TcpStream, to: &mut TcpStream, line: &str) {
    from.write_all(line.as_bytes()).unwrap();
    let mut read = vec![0; line.len()];
    to.read_exact(&mut read).unwrap();
}

#[test]
fn an_expected_flow_names_the_connection_that_expected_it() {
    private_netns(|| {
        run("ip", &["link", "set", "lo", "up"]);
        let mut table = Table::open(&Netns::current()).unwrap();
        if table.insert(&mixed::helped()).is_err() {
            skipped("this kernel has no FTP helper, so nothing is expected");
            return;
        }
        nft("table inet t {
            ct helper ftp { type \"ftp\" protocol tcp; }
            chain out {
                type filter hook output priority 0;
                tcp dport 21 ct helper set \"ftp\"
            }
        }");
        let control = TcpListener::bind("127.0.0.1:21").unwrap();
        let _data = TcpListener::bind("127.0.0.1:50000").unwrap();
        let mut client = TcpStream::connect("127.0.0.1:21").unwrap();
        let (mut server, _) = control.accept().unwrap();
        say(&mut server, &mut client, "220 hello\r\n");
        say(&mut client, &mut server, "PASV\r\n");
        let passive = "227 Entering Passive Mode (127,0,0,1,195,80)\r\n";
        say(&mut server, &mut client, passive);
        let _child = TcpStream::connect("127.0.0.1:50000").unwrap();
        let items = ctk_line("ls --cluster none --status expected -o json")
            .exits(0)
            .items();
        assert_eq!(items.len(), 1, "{items:?}");
        let sport = client.local_addr().unwrap().port();
        let master = json!({"protocol": "tcp", "src": "127.0.0.1", "dst": "127.0.0.1", "sport": sport, "dport": 21});
        assert_eq!(items[0]["master"], master, "{items:?}");
        assert_eq!(items[0]["original"]["dport"], 50_000);
        let parent = ctk_line("ls --cluster none --tcp 21 --helper ftp --src 127.0.0.1 -o json");
        assert_eq!(parent.exits(0).items()[0]["master"], json!(null));
        let columns = "ls --cluster none --status expected --no-header --columns master.dport";
        assert_eq!(ctk_line(columns).exits(0).stdout.trim(), "21");
    });
}
