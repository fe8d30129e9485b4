//! States that look wrong for a moment and are not.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::{cluster, lab};
use testkit::ctk_binary::ctk_command;
use testkit::private_netns::private_netns;
use testkit::rows::{flow, table};
use testkit::tools::sysctl;

const DNS: [&str; 3] = [
    "svc kube-system/kube-dns 10.96.0.10 dns:53/UDP",
    "slice kube-system/kube-dns dns:53/UDP 10.244.2.33(ready)@node2->coredns-b",
    "pod kube-system/coredns-b 10.244.2.33 @node2",
];

/// UDP row to the DNS Service.
fn row(client: &str, endpoint: &str) -> String {
    format!(
        "udp src={client} dst=10.96.0.10 sport=40123 dport=53 src={endpoint} dst={client} sport=53 dport=40123 [ASSURED]"
    )
}

fn insert(client: &str, endpoint: &str) {
    let flow = flow(&row(client, endpoint));
    table().insert(&flow).expect("it is not there yet");
}

/// Starts doctor with `-v` and returns after its first look at the table.
fn start_and_wait_for_a_look(args: &[&str], file: &lab::cluster::ClusterFile) -> Child {
    let mut all = args.to_vec();
    all.extend(["-v", "--cluster", file.path()]);
    let mut child = ctk_command(all)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("ctk starts");
    let stderr = child.stderr.take().expect("it is piped");
    let mut lines = BufReader::new(stderr).lines();
    let mut outcome = Vec::new();
    let looked = lines.by_ref().any(|line| {
        outcome.push(line.unwrap());
        outcome
            .last()
            .is_some_and(|line| line.contains("round=First"))
    });
    assert!(looked, "{outcome:#?}");
    // The rest is read and dropped, so that a full pipe does not stop the program.
    std::thread::spawn(move || lines.for_each(drop));
    child
}

#[test]
fn an_endpoint_created_between_two_looks_is_not_called_stale() {
    private_netns(|| {
        crate::new_node();
        sysctl("timestamp", "0");
        let file = cluster(&DNS);
        insert("10.244.1.5", "10.244.1.7");
        let children = [
            &["doctor", "-o", "jsonl"][..],
            &["ls", "--stale", "--sample", "6s", "-o", "jsonl"],
        ]
        .map(|args| start_and_wait_for_a_look(args, &file));
        // The file lacks this pod, which did not exist yet.
        insert("10.244.1.6", "10.244.1.8");
        let [doctor, ls] = children.map(|child| {
            let output = child.wait_with_output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let items = text.lines().map(|line| serde_json::from_str(line).unwrap());
            items.collect::<Vec<Value>>()
        });
        let found: Vec<_> = doctor
            .iter()
            .filter(|item| item["check"] == "stale-udp")
            .collect();
        assert_eq!(found.len(), 1, "{doctor:#?}");
        assert_eq!(found[0]["evidence"]["stale"], 1, "{found:#?}");
        assert_eq!(ls.len(), 1, "{ls:#?}");
        assert_eq!(ls[0]["original"]["src"], "10.244.1.5");
    });
}

#[test]
fn a_watch_reports_data_that_a_later_round_lacks() {
    private_netns(|| {
        crate::new_node();
        insert("10.244.1.5", "10.244.1.7");
        let file = cluster(&DNS);
        let args = ["doctor", "--watch", "1s", "--sample", "0", "-o", "jsonl"];
        let mut child = ctk_command(args.into_iter().chain(["--cluster", file.path()]))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("ctk starts");
        let mut found = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        assert!(found.any(|line| line.unwrap().contains("stale-udp")));
        std::thread::spawn(move || found.for_each(drop));
        let half = ["svc default/kubernetes 10.96.0.1 https:443/TCP"];
        let next = format!("{}.next", file.path());
        std::fs::write(&next, crate::shorthand::list(&half)).unwrap();
        std::fs::rename(next, file.path()).unwrap();
        let mut outcome = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        assert!(outcome.any(|line| line.unwrap().contains("incomplete")));
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(3));
    });
}
