//! Incidents reported in public, with the API as their source, on the node itself, with the narrowest read of a listing.

use super::shorthand;
use nix::sched::{CloneFlags, unshare};
use testkit::api_server::{ApiServer, Objects};
use testkit::ctk_binary::ctk;
use testkit::incidents::{CASES, Case};
use testkit::lab::add_node_address;
use testkit::private_netns::private_netns;
use testkit::rows::Rows;
use testkit::tools::run;

/// Row of `conntrack -L` for an entry; `None` for one that only the kernel can create.
fn row(entry: &str) -> Option<String> {
    let mut words = entry.split_whitespace().peekable();
    let protocol = words.next_if(|word| !word.contains(':')).unwrap_or("udp");
    let mut place = || words.next().unwrap().rsplit_once(':').unwrap();
    let (src, dst, from) = (place(), place(), place());
    let (mut to, mut state, mut status, mut zone) = (src, "", "", String::new());
    for word in words {
        match word {
            "unreplied" => status = "[UNREPLIED]",
            "assured" => status = "[ASSURED]",
            "syn-sent" => state = "SYN_SENT",
            "established" => state = "ESTABLISHED",
            "offload" | "hw-offload" => return None,
            _ if word.starts_with("zone=") => zone = word.to_owned(),
            _ => to = word.strip_prefix('>').unwrap().rsplit_once(':').unwrap(),
        }
    }
    if protocol == "sctp" {
        state = "COOKIE_WAIT";
    }
    let bare = |address: &str| address.trim_matches(['[', ']']).to_owned();
    let tuple = |src: (&str, &str), dst: (&str, &str)| {
        format!(
            "src={} dst={} sport={} dport={}",
            bare(src.0),
            bare(dst.0),
            src.1,
            dst.1
        )
    };
    let number = ctnetlink::flow::protocol_number(protocol).unwrap();
    let (there, back) = (tuple(src, dst), tuple(from, to));
    Some(format!(
        "{protocol} {number} 29 {state} {there} {status} {back} mark=0 {zone} use=1"
    ))
}

/// Verdicts of all entries of this namespace.
fn judge(case: &Case) -> Vec<String> {
    let mut lines = vec![
        "node node1 192.0.2.11",
        "node node2 192.0.2.12",
        "pod x/some 10.244.99.99",
    ];
    lines.extend(shorthand::API);
    lines.extend(case.lines);
    let objects = Objects(lines.into_iter().map(shorthand::object).collect());
    let server = ApiServer::start(move |asked| objects.answer(asked));
    let kubeconfig = server.kubeconfig();
    let kubeconfig = kubeconfig.to_str().unwrap();
    let args = [
        "ls",
        "--cluster",
        "api",
        "-o",
        "json",
        "--kubeconfig",
        kubeconfig,
    ];
    let outcome = ctk(args);
    let word =
        |item: &serde_json::Value, key: &str| item[key].as_str().unwrap_or("null").to_owned();
    let items = outcome.items();
    items
        .iter()
        .map(|item| word(item, "verdict") + "/" + &word(item, "reason"))
        .collect()
}

#[test]
fn reported_incidents_get_the_right_verdict_from_the_api() {
    private_netns(|| {
        for case in CASES {
            for (entry, expected) in case.entries {
                let Some(row) = row(entry) else {
                    continue;
                };
                unshare(CloneFlags::CLONE_NEWNET).unwrap();
                add_node_address();
                run("ip", &["addr", "add", "203.0.113.77/32", "dev", "lo"]);
                Rows::insert_without_start(&[row]);
                assert_eq!(judge(case), [*expected], "{}: {entry}", case.name);
            }
        }
    });
}
