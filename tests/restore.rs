//! `ctk restore` against the real kernel, each test in a network namespace of its own.

mod private_netns;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::ops::ControlFlow;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use ctnetlink::flow::{Direction, Flow, L4, ProtocolState, Status, TcpDirection, Tuple, Zone};
use ctnetlink::netns::Netns;
use ctnetlink::{DeleteTarget, DumpFilter, Table, TableKind};
use private_netns::private_netns;
use serde_json::{Value, json};

const CTK: &str = env!("CARGO_BIN_EXE_ctk");
const REPLIED: Status = Status::CONFIRMED.with(Status::SEEN_REPLY);
const ASSURED: Status = REPLIED.with(Status::ASSURED);
const BOTH: Status = Status::SRC_NAT.with(Status::DST_NAT);

fn tuple(protocol: u8, src: &str, dst: &str, l4: L4) -> Tuple {
    Tuple {
        src: src.parse().unwrap(),
        dst: dst.parse().unwrap(),
        protocol,
        l4,
    }
}

fn ports(src: u16, dst: u16) -> L4 {
    L4::Ports { src, dst }
}

fn ping(kind: u8, id: u16) -> L4 {
    L4::Icmp { kind, code: 0, id }
}

/// A flow that nobody translates.
fn plain(original: Tuple, status: Status) -> Flow {
    let reply = Tuple {
        src: original.dst,
        dst: original.src,
        protocol: original.protocol,
        l4: original.l4.inverted(original.protocol).unwrap(),
    };
    let mut flow = Flow::new(original, reply);
    flow.status = status;
    flow.timeout = Some(3600);
    flow.mark = Some(0);
    flow
}

fn translated(original: Tuple, reply: Tuple, nat: Status) -> Flow {
    let mut flow = plain(original, ASSURED.with(nat));
    flow.reply = reply;
    flow
}

fn tcp(port: u16, state: u8, flags: (u8, u8)) -> Flow {
    let side = |flags| TcpDirection {
        flags: Some(flags),
        window_scale: Some(7),
    };
    let mut flow = plain(tuple(6, "10.0.0.1", "10.0.0.2", ports(port, 443)), ASSURED);
    flow.state = Some(ProtocolState::Tcp {
        state,
        original: side(flags.0),
        reply: side(flags.1),
    });
    flow
}

fn udp(port: u16) -> Flow {
    plain(tuple(17, "10.0.0.1", "10.0.0.2", ports(port, 53)), REPLIED)
}

/// All protocols, translation each way, zones, marks, labels, helper.
fn every_kind() -> Vec<Flow> {
    let v4 = |protocol, l4| plain(tuple(protocol, "10.0.0.1", "10.0.0.2", l4), REPLIED);
    let v6 = |protocol, l4| plain(tuple(protocol, "fd00::1", "fd00::2", l4), ASSURED);
    let mut all = vec![
        plain(udp(4000).original, Status::CONFIRMED),
        plain(udp(4001).original, ASSURED),
        plain(udp(4002).original, ASSURED.with(Status::FIXED_TIMEOUT)),
        v6(17, ports(4000, 53)),
        v4(136, ports(1, 2)),
        // A tracker for DCCP exists in kernels before 6.16 only.
        v4(33, L4::None),
        v4(1, ping(8, 77)),
        v6(58, ping(128, 9)),
        v4(47, L4::Gre { src: 7, dst: 9 }),
        v4(89, L4::None),
        v6(200, L4::None),
    ];
    all.extend((1..=9).map(|state| tcp(4000 + u16::from(state), state, (0x0b, 0x0a))));
    let mut sctp = v4(132, ports(4000, 3868));
    sctp.state = Some(ProtocolState::Sctp {
        state: 4,
        vtag_original: Some(0x1111),
        vtag_reply: Some(u32::MAX),
    });
    all.push(sctp);
    all.extend(translations());
    all.extend(zones());
    let mut marked = udp(4100);
    marked.mark = Some(u32::MAX);
    let mut labelled = udp(4101);
    labelled.rare_mut().labels = Some([0, 0xfe, 0, 0, 2, 10, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0x80]);
    let mut helped = tcp(4102, 3, (0x0a, 0x0a));
    helped.original.l4 = ports(4102, 21);
    helped.reply.l4 = ports(21, 4102);
    helped.rare_mut().helper = Some("ftp".into());
    all.extend([marked, labelled, helped]);
    all
}

fn translations() -> Vec<Flow> {
    let mut snat = tcp(4200, 3, (0x0a, 0x0a));
    snat.status = ASSURED.with(Status::SRC_NAT);
    snat.reply = tuple(6, "10.0.0.2", "192.0.2.1", ports(443, 61_001));
    vec![
        snat,
        translated(
            tuple(17, "10.0.0.1", "10.96.0.10", ports(4201, 53)),
            tuple(17, "10.244.1.7", "10.0.0.1", ports(5353, 4201)),
            Status::DST_NAT,
        ),
        translated(
            tuple(17, "198.51.100.7", "192.0.2.1", ports(4201, 30_053)),
            tuple(17, "10.244.1.7", "192.0.2.1", ports(53, 1024)),
            BOTH,
        ),
        translated(
            tuple(17, "10.244.1.9", "10.96.0.10", ports(4201, 53)),
            tuple(17, "10.244.1.9", "192.0.2.1", ports(53, 2000)),
            BOTH,
        ),
        translated(
            tuple(17, "fd00::1", "fd00:96::a", ports(4201, 53)),
            tuple(17, "fd00:10::7", "fd00::1", ports(53, 4201)),
            Status::DST_NAT,
        ),
        translated(
            tuple(1, "10.0.0.1", "203.0.113.9", ping(8, 5)),
            tuple(1, "203.0.113.9", "192.0.2.1", ping(0, 6)),
            Status::SRC_NAT,
        ),
        // As IPVS leaves it: the reply differs, and the kernel translates nothing.
        translated(
            tuple(17, "10.0.0.1", "10.96.0.11", ports(4201, 53)),
            tuple(17, "10.244.1.7", "10.0.0.1", ports(53, 4201)),
            Status::default(),
        ),
    ]
}

/// One tuple in three zones, and zones that hold in one direction: the other direction is in zone 0 then.
fn zones() -> impl Iterator<Item = Flow> {
    let zoned = |port, id, direction| {
        let mut flow = udp(port);
        flow.zone = Zone { id, direction };
        flow
    };
    let twins = [0, 12, 13].map(|id| zoned(4300, id, None));
    let original = zoned(4301, 14, Some(Direction::Original));
    let reply = zoned(4302, 15, Some(Direction::Reply));
    twins.into_iter().chain([original, reply])
}

fn open() -> Table {
    Table::open(&Netns::current()).unwrap()
}

fn dump() -> Vec<Flow> {
    let mut flows = Vec::new();
    let report = open()
        .dump(TableKind::Conntrack, &DumpFilter::default(), &mut |flow| {
            flows.push(flow);
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!((report.unreadable, report.is_consistent()), (0, true));
    flows.sort_by_key(|flow| (flow.original, flow.zone));
    flows
}

fn fill(flows: &[Flow]) {
    for (flow, result) in flows.iter().zip(open().insert_all(flows)) {
        assert_eq!(result, Ok(()), "{flow:?}");
    }
}

fn delete_all() {
    let targets: Vec<_> = dump()
        .iter()
        .map(|flow| DeleteTarget::of(flow).unwrap())
        .collect();
    assert!(open().delete(&targets).iter().all(Result::is_ok));
    assert_eq!(dump(), []);
}

/// The entries are those of before, as far as they can be. A timer may only have run, and no longer than time passed.
#[track_caller]
fn assert_same(before: &Purged, after: &[Flow]) {
    assert_eq!(before.flows.len(), after.len());
    let passed = u32::try_from(before.since.elapsed().as_secs()).unwrap();
    for (old, new) in before.flows.iter().zip(after) {
        let (saved, left) = (old.timeout.unwrap(), new.timeout.unwrap());
        let least = saved.saturating_sub(passed + 2);
        assert!((least..=saved).contains(&left), "{saved} {left}: {new:?}");
        assert_eq!(lasting(old), lasting(new));
    }
}

fn lasting(flow: &Flow) -> Flow {
    let mut flow = flow.clone();
    flow.timeout = None;
    flow.id = None;
    flow.use_count = None;
    flow.start = None;
    flow.counters_original = None;
    flow.counters_reply = None;
    if let Some(ProtocolState::Tcp {
        original, reply, ..
    }) = &mut flow.state
    {
        original.window_scale = None;
        reply.window_scale = None;
    }
    flow
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

fn nft(rules: &str) {
    run(Command::new("nft").arg(rules));
}

fn ip(arguments: &str) {
    run(Command::new("ip").args(arguments.split(' ')));
}

fn ctk(arguments: &[&str]) -> Command {
    let mut command = Command::new(CTK);
    command.args(arguments).stdin(Stdio::null());
    command
}

/// What a command printed, and its exit status.
struct Ran {
    code: i32,
    out: String,
    err: String,
}

impl Ran {
    fn of(output: &Output) -> Self {
        Ran {
            code: output.status.code().unwrap(),
            out: String::from_utf8(output.stdout.clone()).unwrap(),
            err: String::from_utf8(output.stderr.clone()).unwrap(),
        }
    }

    #[track_caller]
    fn refused(&self, code: i32, words: &[&str]) {
        assert_eq!((self.code, self.out.as_str()), (code, ""), "{}", self.err);
        for word in words {
            assert!(self.err.contains(word), "{word:?} is not in {}", self.err);
        }
    }

    fn results(&self) -> Vec<String> {
        let lines = self.out.lines();
        let items = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
        items
            .map(|item| item["result"].as_str().unwrap().to_owned())
            .collect()
    }
}

fn restore(arguments: &[&str], file: &Path) -> Ran {
    let mut command = ctk(&["restore"]);
    Ran::of(&command.args(arguments).arg(file).output().unwrap())
}

fn restore_stdin(arguments: &[&str], text: &str) -> Ran {
    let mut command = ctk(&["restore"]);
    command.args(arguments).stdin(Stdio::piped());
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Who refuses at once may not read at all.
    let _ = child.stdin.take().unwrap().write_all(text.as_bytes());
    Ran::of(&child.wait_with_output().unwrap())
}

/// The table as `purge -o jsonl` would have printed it.
fn saved() -> String {
    let output = run(&mut ctk(&["ls", "--cluster", "none", "-o", "jsonl"]));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| {
            let item = line.strip_suffix('}').unwrap();
            format!("{item},\"result\":\"deleted\",\"error\":null}}\n")
        })
        .collect()
}

/// Entries that were in the table, and their lines.
struct Purged {
    flows: Vec<Flow>,
    lines: String,
    since: Instant,
}

impl Purged {
    /// Whatever is in the table now.
    fn all() -> Self {
        let since = Instant::now();
        let (flows, lines) = (dump(), saved());
        assert_eq!(lines.lines().count(), flows.len());
        delete_all();
        Purged {
            flows,
            lines,
            since,
        }
    }

    fn filled_with(flows: &[Flow]) -> Self {
        fill(flows);
        Self::all()
    }
}

fn purged(flows: &[Flow]) -> String {
    Purged::filled_with(flows).lines
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Folder(tempfile::tempdir().unwrap())
    }

    fn file(&self, text: &str) -> PathBuf {
        let path = self.0.path().join("gone.jsonl");
        std::fs::write(&path, text).unwrap();
        path
    }
}

/// The lines with one field of one of them changed.
fn changed(lines: &str, index: usize, change: impl FnOnce(&mut Value)) -> String {
    let mut lines: Vec<String> = lines.lines().map(str::to_owned).collect();
    let mut item: Value = serde_json::from_str(&lines[index]).unwrap();
    change(&mut item);
    lines[index] = item.to_string();
    lines.join("\n") + "\n"
}

#[test]
fn every_kind_of_entry_comes_back_as_it_was() {
    private_netns(|| {
        for name in ["acct", "timestamp"] {
            let path = format!("/proc/sys/net/netfilter/nf_conntrack_{name}");
            std::fs::write(path, "1").unwrap();
        }
        // Labels are kept only where a rule uses them.
        nft("table inet t { chain c { type filter hook input priority 0; ct label set 1; }; }");
        let flows = every_kind();
        let before = Purged::filled_with(&flows);
        let lines = &before.lines;
        assert_eq!(before.flows.len(), flows.len());
        let folder = Folder::new();
        let file = folder.file(lines);

        let ran = restore(&["--yes", "-o", "jsonl"], &file);
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert_eq!(ran.results(), vec!["restored"; flows.len()]);
        let after = dump();
        assert_same(&before, &after);

        // Again: nothing new, and nothing lost.
        let ran = restore(&["--yes", "-o", "jsonl"], &file);
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert_eq!(ran.results(), vec!["exists"; flows.len()]);
        assert!(ran.err.contains("0 restored"), "{}", ran.err);
        let identities = |flows: &[Flow]| flows.iter().map(|f| (f.id, f.start)).collect::<Vec<_>>();
        assert_eq!(identities(&dump()), identities(&after));

        // And round once more, by what was restored, as one document on standard input.
        let again = Purged::all();
        let lines = again.lines.lines();
        let items: Vec<Value> = lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let document = json!({"schema": "ctk/v1", "items": items, "summary": {}});
        let ran = restore_stdin(&["--yes", "-o", "jsonl", "-"], &document.to_string());
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert_eq!(ran.results(), vec!["restored"; flows.len()]);
        assert_same(&again, &dump());
    });
}

/// Addresses on `lo` of one namespace, and a rule so that packets are tracked and translated at all.
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
        assert_eq!(ran.code, 0, "{}", ran.err);

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
fn a_flow_of_real_packets_is_what_it_was_but_for_the_bits_that_say_nothing() {
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
        assert_eq!(restore_stdin(&["--yes", "-"], &before.lines).code, 0);
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
fn a_restored_connection_with_scaled_windows_goes_on_without_an_invalid_packet() {
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
        assert_eq!(restore_stdin(&["--yes", "-"], &lines).code, 0);
        transfer(&mut client, &mut server);
        transfer(&mut server, &mut client);
        let counter = run(Command::new("nft").args(["list", "counter", "ip", "f", "bad"]));
        let counter = String::from_utf8(counter.stdout).unwrap();
        assert!(counter.contains("packets 0 bytes 0"), "{counter}");
        let flows = dump();
        assert_eq!(flows.len(), 1);
        assert_eq!(
            flows[0].state.and_then(ProtocolState::name),
            Some("ESTABLISHED")
        );
    });
}

/// More than any unscaled window, all of which arrives.
fn transfer(from: &mut TcpStream, to: &mut TcpStream) {
    const LENGTH: usize = 16 << 20;
    std::thread::scope(|scope| {
        scope.spawn(|| from.write_all(&vec![7; LENGTH]).unwrap());
        to.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut got = vec![0; LENGTH];
        to.read_exact(&mut got).unwrap();
    });
}

#[test]
fn without_leave_nothing_is_touched() {
    private_netns(|| {
        let lines = purged(&[udp(1), udp(2)]);
        let folder = Folder::new();
        let file = folder.file(&lines);
        restore(&[], &file).refused(2, &["no terminal", "hint:", "--yes"]);
        restore_stdin(&["-"], &lines).refused(2, &["standard input", "--yes"]);
        assert_eq!(dump(), []);
    });
}

#[test]
fn an_input_with_anything_wrong_in_it_is_refused_as_a_whole() {
    private_netns(|| {
        let flows: Vec<Flow> = (1..=300).map(udp).collect();
        let lines = purged(&flows);
        let without = changed(&lines, 280, |item| {
            item.as_object_mut().unwrap().remove("result");
        });
        let null = changed(&lines, 1, |item| item["result"] = Value::Null);
        let port = changed(&lines, 280, |item| {
            item["original"]["sport"] = json!(99_999)
        });
        // What is skipped must be readable, too.
        let skipped = changed(&lines, 1, |item| {
            item["result"] = json!("failed");
            item["reply"]["src"] = json!("nowhere");
        });
        let cut = &lines[..lines.len() - 100];
        let listing = run(&mut ctk(&["ls", "--cluster", "none", "-o", "json"])).stdout;
        let listing = String::from_utf8(listing).unwrap();
        let foreign = listing.replace("ctk/v1", "ctk/v9");
        let listed = format!(
            "{{\"schema\":\"ctk/v1\",\"items\":[{}]}}",
            without.lines().nth(280).unwrap()
        );
        let folder = Folder::new();
        for (text, code, words) in [
            (without.as_str(), 2, &["line 281", "no result", "hint:"][..]),
            (&null, 2, &["line 2:", "no result"]),
            (&port, 1, &["line 281: original.sport", "99999"]),
            (&skipped, 1, &["line 2: reply.src"]),
            (cut, 1, &["line 300", "cut short", "hint:"]),
            (&format!("{lines}oops\n"), 1, &["line 301"]),
            (&listed, 2, &["no result"]),
            (&foreign, 2, &["ctk/v9", "ctk/v1", "hint:"]),
            ("udp 17 29 src=10.0.0.1\n", 2, &["line 1", "ctk purge"]),
        ] {
            let file = folder.file(text);
            restore(&["--yes"], &file).refused(code, words);
            restore(&["--dry-run"], &file).refused(code, words);
            restore_stdin(&["--yes", "-"], text).refused(code, words);
            assert_eq!(dump(), []);
        }
        let missing = folder.0.path().join("missing");
        restore(&["--yes"], &missing).refused(1, &["missing", "No such file"]);
        restore(&["--yes"], folder.0.path()).refused(1, &["directory"]);
        let file = folder.file(&lines);
        restore(&["--yes", "--sort", "id"], &file).refused(2, &["--sort"]);
        restore(&["--yes", "--limit", "1"], &file).refused(2, &["--limit"]);
        restore(&["--yes", "-o", "json", "--columns", "id"], &file).refused(2, &["--columns"]);
        assert_eq!(dump(), []);
    });
}

#[test]
fn only_deleted_entries_are_put_back_and_the_rest_is_counted() {
    private_netns(|| {
        let mut lines = purged(&[1, 2, 3, 4, 5, 6].map(udp));
        for (index, result) in ["already-gone", "replaced", "changed", "failed"]
            .into_iter()
            .enumerate()
        {
            lines = changed(&lines, index, |item| item["result"] = json!(result));
        }
        let ran = restore_stdin(&["--yes", "-o", "json", "-"], &lines);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let document: Value = serde_json::from_str(&ran.out).unwrap();
        assert_eq!(document["schema"], "ctk/v1");
        assert_eq!(document["items"].as_array().unwrap().len(), 2);
        assert_eq!(document["items"][0]["result"], "restored");
        assert_eq!(document["items"][0]["error"], Value::Null);
        for (name, count) in [
            ("matched", 2),
            ("restored", 2),
            ("exists", 0),
            ("failed", 0),
            ("skipped", 4),
            ("shown", 2),
            ("scanned", 6),
        ] {
            assert_eq!(document["summary"][name], count, "{name}");
        }
        assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
        for part in ["2 restored", "0 failed", "4 skipped"] {
            assert!(ran.err.contains(part), "{}", ran.err);
        }
        assert_eq!(dump().len(), 2);
        // Nothing to do is done.
        let nothing = restore_stdin(&["--yes", "-o", "json", "-"], "");
        assert_eq!(nothing.code, 0, "{}", nothing.err);
        let document: Value = serde_json::from_str(&nothing.out).unwrap();
        assert_eq!(document["summary"]["matched"], 0);
    });
}

#[test]
fn what_cannot_come_back_fails_for_itself() {
    private_netns(|| {
        let mut sctp = plain(tuple(132, "10.0.0.1", "10.0.0.2", ports(1, 2)), REPLIED);
        sctp.state = Some(ProtocolState::Sctp {
            state: 4,
            vtag_original: Some(1),
            vtag_reply: Some(2),
        });
        let mut flows: Vec<Flow> = (1..=4).map(udp).collect();
        flows.push(sctp);
        fill(&flows);
        let mut lines = saved();
        let line_of =
            |lines: &str, part: &str| lines.lines().position(|l| l.contains(part)).unwrap();
        delete_all();
        let index = line_of(&lines, "\"sctp\"");
        lines = changed(&lines, index, |item| item["reply"]["vtag"] = Value::Null);
        let offloaded = line_of(&lines, "\"sport\":4,");
        lines = changed(&lines, offloaded, |item| {
            item["timeout"] = Value::Null;
            item["status"] = json!(["seen-reply", "confirmed", "offload"]);
        });
        let helped = line_of(&lines, "\"sport\":3,");
        lines = changed(&lines, helped, |item| item["helper"] = json!("no-such"));

        let dry = restore_stdin(&["--dry-run", "-o", "jsonl", "-"], &lines);
        assert_eq!(dry.code, 3, "{}", dry.err);
        assert!(
            dry.err.contains("3 would be restored, 2 would fail"),
            "{}",
            dry.err
        );
        assert_eq!(dump(), []);

        let ran = restore_stdin(&["--yes", "-o", "jsonl", "-"], &lines);
        assert_eq!(ran.code, 3, "{}", ran.err);
        let error = |index: usize| {
            let item: Value = serde_json::from_str(ran.out.lines().nth(index).unwrap()).unwrap();
            assert_eq!(item["result"], "failed");
            item["error"].as_str().unwrap().to_owned()
        };
        assert!(error(index).contains("tags"), "{}", error(index));
        assert!(
            error(offloaded).contains("offloaded"),
            "{}",
            error(offloaded)
        );
        assert!(error(helped).contains("no-such"), "{}", error(helped));
        assert!(
            ran.err.contains("2 restored, 0 exist already, 3 failed"),
            "{}",
            ran.err
        );
        assert_eq!(dump().len(), 2);
    });
}

#[test]
fn a_dry_run_changes_nothing_and_needs_no_leave() {
    private_netns(|| {
        let lines = purged(&every_kind());
        let folder = Folder::new();
        let ran = restore(&["--dry-run", "-o", "jsonl"], &folder.file(&lines));
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert_eq!(ran.results(), vec!["would-restore"; lines.lines().count()]);
        let on_stdin = restore_stdin(&["--dry-run", "-o", "jsonl", "-"], &lines);
        assert_eq!(on_stdin.out, ran.out);
        assert_eq!(dump(), []);
    });
}

#[test]
fn without_the_capability_it_says_which() {
    private_netns(|| {
        let flows: Vec<Flow> = (1..=200).map(udp).collect();
        let lines = purged(&flows);
        let folder = Folder::new();
        let output = Command::new("setpriv")
            .args([
                "--inh-caps=-all",
                "--bounding-set=-all",
                CTK,
                "restore",
                "--yes",
                "-o",
                "jsonl",
            ])
            .arg(folder.file(&lines))
            .output()
            .unwrap();
        let ran = Ran::of(&output);
        assert_eq!(ran.code, 4, "{}", ran.err);
        assert!(
            ran.err.contains("CAP_NET_ADMIN") && ran.err.contains("hint:"),
            "{}",
            ran.err
        );
        assert_eq!(ran.results(), vec!["failed"; 200]);
        assert_eq!(dump(), []);
    });
}

#[test]
fn entries_of_many_batches_come_back_and_are_answered_in_their_order() {
    private_netns(|| {
        let flows: Vec<Flow> = (1..=1000).map(udp).collect();
        let before = Purged::filled_with(&flows);
        let lines = &before.lines;
        let folder = Folder::new();
        let ran = restore(
            &[
                "--yes",
                "-o",
                "csv",
                "--columns",
                "id,result",
                "--no-header",
            ],
            &folder.file(lines),
        );
        assert_eq!(ran.code, 0, "{}", ran.err);
        let expected: String = lines
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .map(|item| format!("{},restored\r\n", item["id"]))
            .collect();
        assert_eq!(
            ran.out.replace("\r\n", "\n"),
            expected.replace("\r\n", "\n")
        );
        assert_same(&before, &dump());
    });
}

#[test]
fn when_nobody_reads_on_no_further_batch_is_sent() {
    private_netns(|| {
        let flows: Vec<Flow> = (1..=300).map(udp).collect();
        let lines = purged(&flows);
        let folder = Folder::new();
        let file = folder.file(&lines);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = ctk(&["restore", "--yes", "-o", "jsonl"])
            .arg(&file)
            .stdout(writer)
            .output()
            .unwrap();
        let ran = Ran::of(&output);
        assert_eq!(ran.code, 3, "{}", ran.err);
        assert!(
            ran.err.contains("172 entries were not tried"),
            "{}",
            ran.err
        );
        assert!(ran.err.contains("128 restored"), "{}", ran.err);
        assert_eq!(dump().len(), 128);
    });
}

#[test]
fn another_namespace_is_filled_and_the_own_one_left() {
    private_netns(|| {
        let before = Purged::filled_with(&[udp(1), udp(2)]);
        let lines = &before.lines;
        let there = std::fs::canonicalize("/proc/thread-self")
            .unwrap()
            .join("ns/net");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
                let ran = restore_stdin(&["--yes", "--netns", there.to_str().unwrap(), "-"], lines);
                assert_eq!(ran.code, 0, "{}", ran.err);
                assert_eq!(dump(), []);
            });
        });
        assert_same(&before, &dump());
    });
}

/// Runs a command on a terminal of its own, with these answers typed. Everything shown there, and the exit status.
fn on_a_terminal(command: &str, typed: &str) -> (i32, String) {
    let mut child = Command::new("script")
        .args(["-qec", command, "/dev/null"])
        .env("TERM", "dumb")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // It may have ended by now, where it has nothing to ask.
    let _ = child.stdin.take().unwrap().write_all(typed.as_bytes());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.signal(), None);
    (
        output.status.code().unwrap(),
        String::from_utf8(output.stdout).unwrap(),
    )
}

#[test]
fn on_a_terminal_the_set_is_shown_and_the_answer_counts() {
    private_netns(|| {
        let before = Purged::filled_with(&[udp(4711), udp(4712)]);
        let lines = &before.lines;
        let folder = Folder::new();
        let file = folder.file(lines);
        let command = format!("{CTK} restore {}", file.display());
        for no in ["n\n", "\n", "x\n"] {
            let (code, shown) = on_a_terminal(&command, no);
            assert_eq!(code, 1, "{shown}");
            for part in [
                "10.0.0.1:4711",
                "10.0.0.1:4712",
                "Put 2 entries back into",
                "[y/N]",
                "nothing was changed",
            ] {
                assert!(shown.contains(part), "{part}: {shown}");
            }
            assert_eq!(dump(), []);
        }
        // Data on standard input leaves nobody to ask.
        let (code, shown) = on_a_terminal(&format!("{CTK} restore -"), "y\n");
        assert_eq!(code, 2, "{shown}");
        // Nothing is asked where nothing is to be done, nor in a dry run.
        let (code, shown) = on_a_terminal(&format!("{command} --dry-run"), "");
        assert_eq!((code, shown.contains("[y/N]")), (0, false), "{shown}");
        assert_eq!(dump(), []);

        let (code, shown) = on_a_terminal(&command, "y\n");
        assert_eq!(code, 0, "{shown}");
        assert!(shown.contains("2 restored"), "{shown}");
        assert_same(&before, &dump());
    });
}
