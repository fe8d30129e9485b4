//! Every selector of `ctk ls` on a table with entries of every kind, against a predicate of this file on the whole list,
//! and against the count of the `conntrack` tool where it has the option. The whole list is read without a selector, so
//! that filters of the kernel are compared with those of user space.

use std::net::IpAddr;
use testkit::mixed;

use serde_json::{Value, json};
use testkit::ctk_binary::{ctk, ctk_line};
use testkit::private_netns::private_netns;
use testkit::tools::{key, run};

/// Selector, its predicate, and the equivalent options of `conntrack -L`.
struct Case {
    typed: &'static [&'static str],
    passes: fn(&Value) -> bool,
    conntrack: Option<&'static str>,
}

const fn case(typed: &'static [&'static str], passes: fn(&Value) -> bool) -> Case {
    Case {
        typed,
        passes,
        conntrack: None,
    }
}

const fn with_tool(
    typed: &'static [&'static str],
    passes: fn(&Value) -> bool,
    conntrack: &'static str,
) -> Case {
    Case {
        conntrack: Some(conntrack),
        ..case(typed, passes)
    }
}

fn protocol(item: &Value, number: u64) -> bool {
    item["protocol_number"] == number
}

fn status(item: &Value, word: &str) -> bool {
    item["status"].as_array().unwrap().contains(&json!(word))
}

fn address(item: &Value, direction: &str, end: &str) -> IpAddr {
    item[direction][end].as_str().unwrap().parse().unwrap()
}

/// The first `bits` of two IPv4 addresses are the same.
fn within(address: IpAddr, net: [u8; 4], bits: u32) -> bool {
    let mask = u32::MAX << (32 - bits);
    match address {
        IpAddr::V4(address) => u32::from(address) & mask == u32::from_be_bytes(net) & mask,
        IpAddr::V6(_) => false,
    }
}

fn four_addresses(item: &Value) -> [IpAddr; 4] {
    [
        address(item, "original", "src"),
        address(item, "original", "dst"),
        address(item, "reply", "src"),
        address(item, "reply", "dst"),
    ]
}

fn four_ports(item: &Value) -> Option<[u64; 4]> {
    let port = |direction: &str, end: &str| item[direction][end].as_u64();
    Some([
        port("original", "sport")?,
        port("original", "dport")?,
        port("reply", "sport")?,
        port("reply", "dport")?,
    ])
}

fn dnat(item: &Value) -> bool {
    item["reply"]["src"] != item["original"]["dst"]
        || item["reply"]["sport"] != item["original"]["dport"]
}

fn snat(item: &Value) -> bool {
    item["reply"]["dst"] != item["original"]["src"]
        || item["reply"]["dport"] != item["original"]["sport"]
}

/// Sum of both directions; `None` without counters.
fn sum(item: &Value, counter: &str) -> Option<u64> {
    Some(item["original"][counter].as_u64()? + item["reply"][counter].as_u64()?)
}

fn state(item: &Value, words: &[&str]) -> bool {
    item["state"]
        .as_str()
        .is_some_and(|state| words.contains(&state))
}

fn label(item: &Value) -> Option<u128> {
    let text = item["labels"].as_str()?.strip_prefix("0x")?;
    u128::from_str_radix(text, 16).ok()
}

const CASES: &[Case] = &[
    with_tool(&["--udp"], |i| protocol(i, 17), "-p udp"),
    with_tool(
        &["--udp", "53"],
        |i| protocol(i, 17) && i["original"]["dport"] == 53,
        "-p udp --orig-port-dst 53",
    ),
    with_tool(
        &["--tcp", "--state", "established"],
        |i| protocol(i, 6) && state(i, &["established"]),
        "-p tcp --state ESTABLISHED",
    ),
    case(&["--tcp", "443", "--sctp"], |i| {
        protocol(i, 132) || protocol(i, 6) && i["original"]["dport"] == 443
    }),
    case(&["--icmp"], |i| protocol(i, 1) || protocol(i, 58)),
    with_tool(&["-p", "gre"], |i| protocol(i, 47), "-p gre"),
    case(&["-p", "253,ospf"], |i| protocol(i, 253) || protocol(i, 89)),
    case(&["-p", "!udp,tcp"], |i| !protocol(i, 17) && !protocol(i, 6)),
    with_tool(
        &["--src", "10.129.0.7"],
        |i| i["original"]["src"] == "10.129.0.7",
        "--orig-src 10.129.0.7",
    ),
    with_tool(
        &["--src", "10.128.0.0/10"],
        |i| within(address(i, "original", "src"), [10, 128, 0, 0], 10),
        "--orig-src 10.128.0.0/10",
    ),
    case(&["--src", "!10.128.0.0/10"], |i| {
        !within(address(i, "original", "src"), [10, 128, 0, 0], 10)
    }),
    with_tool(
        &["--dst", "fd00:96::1:a"],
        |i| i["original"]["dst"] == "fd00:96::1:a",
        "-f ipv6 --orig-dst fd00:96::1:a",
    ),
    with_tool(
        &["--dst", "10.96.0.10", "--udp", "53"],
        |i| protocol(i, 17) && i["original"]["dst"] == "10.96.0.10" && i["original"]["dport"] == 53,
        "-p udp --orig-dst 10.96.0.10 --orig-port-dst 53",
    ),
    with_tool(
        &["--reply-src", "10.244.0.3"],
        |i| i["reply"]["src"] == "10.244.0.3",
        "--reply-src 10.244.0.3",
    ),
    case(&["--reply-src", "10.244.0.0/29,fd00:244::/32"], |i| {
        let source = address(i, "reply", "src");
        within(source, [10, 244, 0, 0], 29)
            || matches!(source, IpAddr::V6(a) if a.segments()[..2] == [0xfd00, 0x244])
    }),
    with_tool(
        &["--reply-dst", "192.0.2.11"],
        |i| i["reply"]["dst"] == "192.0.2.11",
        "--reply-dst 192.0.2.11",
    ),
    case(&["--reply-sport", "53,5300-5400"], |i| {
        let port = i["reply"]["sport"].as_u64();
        port.is_some_and(|port| port == 53 || (5300..=5400).contains(&port))
    }),
    with_tool(
        &["--tcp", "--reply-dport", "30005"],
        |i| protocol(i, 6) && i["reply"]["dport"] == 30_005,
        "-p tcp --reply-port-dst 30005",
    ),
    case(&["--sport", "20000-20009"], |i| {
        let port = i["original"]["sport"].as_u64();
        port.is_some_and(|port| (20_000..=20_009).contains(&port))
    }),
    case(&["--dport", "!53"], |i| {
        i["original"]["dport"].as_u64().is_some_and(|p| p != 53)
    }),
    case(&["--ip", "192.0.2.0/24"], |i| {
        four_addresses(i)
            .iter()
            .any(|a| within(*a, [192, 0, 2, 0], 24))
    }),
    case(&["--ip", "!10.0.0.0/8"], |i| {
        !four_addresses(i)
            .iter()
            .any(|a| within(*a, [10, 0, 0, 0], 8))
    }),
    case(&["--port", "53"], |i| {
        four_ports(i).is_some_and(|ports| ports.contains(&53))
    }),
    case(&["--port", "!53"], |i| {
        four_ports(i).is_some_and(|ports| !ports.contains(&53))
    }),
    with_tool(&["--assured"], |i| status(i, "assured"), "--status ASSURED"),
    case(&["--unreplied"], |i| !status(i, "seen-reply")),
    case(&["--unreplied", "--status", "dst-nat"], |i| {
        !status(i, "seen-reply") && status(i, "dst-nat")
    }),
    case(&["--status", "dst-nat,!assured"], |i| {
        status(i, "dst-nat") && !status(i, "assured")
    }),
    case(&["--state", "time_wait,cookie-echoed"], |i| {
        state(i, &["time-wait", "cookie-echoed"])
    }),
    case(&["--dnat"], dnat),
    case(&["--snat"], snat),
    case(&["--nat"], |i| dnat(i) || snat(i)),
    case(&["--sport-changed"], |i| {
        i["reply"]["dport"] != i["original"]["sport"]
    }),
    case(&["--hairpin"], |i| {
        dnat(i) && i["original"]["src"] == i["reply"]["src"]
    }),
    case(&["--ttl", ">=50000s"], |i| {
        i["timeout"].as_u64().is_some_and(|left| left >= 50_000)
    }),
    case(&["--ttl", "<10h"], |i| {
        i["timeout"].as_u64().is_some_and(|left| left < 36_000)
    }),
    case(&["--age", "<1h"], |i| i["start"].is_string()),
    case(&["--packets", ">=3"], |i| {
        sum(i, "packets").is_some_and(|packets| packets >= 3)
    }),
    case(&["--bytes", "=0"], |i| sum(i, "bytes") == Some(0)),
    with_tool(
        &["--mark", "0x10/0xf0"],
        |i| i["mark"].as_u64().unwrap() & 0xf0 == 0x10,
        "--mark 0x10/0xf0",
    ),
    with_tool(&["--mark", "7"], |i| i["mark"] == 7, "--mark 7"),
    case(&["--mark", "!0"], |i| i["mark"] != 0),
    case(&["--zone", "3"], |i| i["zone"] == 3),
    case(&["--zone", "0"], |i| i["zone"] == 0),
    case(&["--zone", "!0"], |i| i["zone"] != 0),
    case(&["--label", "33"], |i| {
        label(i).is_some_and(|bits| bits & 1 << 33 != 0)
    }),
    case(&["--label", "0x2"], |i| label(i) == Some(2)),
    case(&["--helper", "ftp"], |i| i["helper"] == "ftp"),
    case(&["--helper", "none"], |i| i["helper"].is_null()),
    case(&["--helper", "!ftp"], |i| i["helper"] != "ftp"),
    case(&["--match", "^ospf "], |i| protocol(i, 89)),
    case(
        &[
            "-4",
            "--udp",
            "53",
            "--dst",
            "10.96.0.10",
            "--dnat",
            "--assured",
            "--mark",
            "0",
        ],
        |i| {
            (i["family"] == "ipv4" && protocol(i, 17) && dnat(i))
                && (i["original"]["dst"] == "10.96.0.10" && i["original"]["dport"] == 53)
                && (status(i, "assured") && i["mark"] == 0)
        },
    ),
];

/// Selectors of which the kernel tests a part: `--explain` names them.
const PUSHED: [&str; 9] = [
    "-6 --udp",
    "--udp 53",
    "-p gre",
    "--src 10.129.0.7",
    "--reply-src 10.244.0.3",
    "--mark 0x10/0xf0",
    "--zone 3",
    "--assured",
    "--unreplied",
];

#[test]
fn every_selector_equals_its_predicate_on_the_whole_list() {
    private_netns(|| {
        mixed::fill();
        let all = ctk_line("ls --cluster none -o json").exits(0).items();
        for case in CASES {
            check(case, &all);
        }
        for family in ["ipv4", "ipv6"] {
            let flag = if family == "ipv4" { "-4" } else { "-6" };
            let of_family = all.iter().filter(|item| item["family"] == family);
            let of_family: Vec<Value> = of_family.cloned().collect();
            let count = conntrack_count(&format!("-f {family}"));
            assert_eq!(count, of_family.len(), "{family}");
            for typed in [
                &["--udp", "53"][..],
                &["--unreplied"],
                &["--port", "53"],
                &[],
            ] {
                let passes = CASES.iter().find(|case| case.typed == typed);
                let passes = passes.map_or((|_| true) as fn(&Value) -> bool, |c| c.passes);
                let typed: Vec<&str> = [flag].iter().chain(typed).copied().collect();
                assert_selects(&typed, passes, &of_family);
            }
        }
        for typed in PUSHED {
            let outcome = ctk_line(&format!("ls --cluster none {typed} --explain")).exits(0);
            assert!(outcome.stderr.contains("kernel"), "{typed}: {outcome:#?}");
        }
    });
}

fn check(case: &Case, all: &[Value]) {
    let found = assert_selects(case.typed, case.passes, all);
    let helper = case.typed[0] == "--helper" && all.iter().all(|item| item["helper"].is_null());
    assert!(
        helper || (0 < found && found < all.len()),
        "{:?} selects {found} of {}, which tells nothing",
        case.typed,
        all.len()
    );
    if let Some(options) = case.conntrack {
        assert_eq!(conntrack_count(options), found, "conntrack -L {options}");
    }
}

/// Compares the selection with the predicate's set. Returns its size.
fn assert_selects(typed: &[&str], passes: fn(&Value) -> bool, all: &[Value]) -> usize {
    let args = ["ls", "--cluster", "none", "-o", "jsonl"];
    let outcome = ctk(args.iter().chain(typed)).exits(0);
    let keys = |items: &mut dyn Iterator<Item = &Value>| -> Vec<String> {
        let mut keys: Vec<String> = items.map(key).collect();
        keys.sort();
        keys
    };
    let found = outcome.jsonl();
    let found = keys(&mut found.iter());
    let expected = keys(&mut all.iter().filter(|item| passes(item)));
    let lacking = |of: &[String], from: &[String]| {
        let mut keys = of.iter();
        keys.find(|key| from.binary_search(key).is_err()).cloned()
    };
    assert_eq!(lacking(&expected, &found), None, "{typed:?} lacks it");
    assert_eq!(lacking(&found, &expected), None, "{typed:?} has it");
    assert_eq!(found.len(), expected.len(), "{typed:?} has one twice");
    found.len()
}

fn conntrack_count(options: &str) -> usize {
    let args: Vec<&str> = ["-L"].into_iter().chain(options.split(' ')).collect();
    run("conntrack", &args).stdout.lines().count()
}

#[test]
fn entries_that_cannot_be_decided_are_counted_and_left_out() {
    private_netns(|| {
        mixed::fill();
        let all = ctk_line("ls --cluster none -o json").exits(0).items();
        let lack = |lacks: &dyn Fn(&Value) -> bool| all.iter().filter(|i| lacks(i)).count();
        for (typed, lacking) in [
            (
                "--bytes >0",
                lack(&|i| i["original"]["bytes"].is_null() && i["reply"]["bytes"].is_null()),
            ),
            ("--age >1h", lack(&|i| i["start"].is_null())),
            ("--dport !53", lack(&|i| i["original"]["dport"].is_null())),
            ("--label !1", lack(&|i| i["labels"].is_null())),
            (
                "--icmp --sport 1",
                lack(&|i| protocol(i, 1) || protocol(i, 58)),
            ),
            ("--mark 7", 0),
        ] {
            let outcome = ctk_line(&format!("ls --cluster none -o json {typed}")).exits(0);
            let counted = outcome
                .stderr
                .lines()
                .find(|line| line.contains("lack a value"));
            let expected = format!("ctk: {lacking} entries lack a value");
            let right = match counted {
                Some(line) => line.starts_with(&expected),
                None => lacking == 0,
            };
            assert!(right, "{typed}: {lacking} lack it: {}", outcome.stderr);
        }
    });
}
