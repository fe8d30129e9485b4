//! The memory that `ctk top` takes depends on groups, not on the table, and there is a bound for groups.

mod mixed;
mod private_netns;
mod tools;

use std::process::Stdio;

use ctk::top::MAX_GROUPS;
use ctnetlink::Table;
use ctnetlink::flow::Flow;
use ctnetlink::netns::Netns;
use serde_json::Value;

use mixed::{ASSURED, plain, ports, tuple};
use private_netns::private_netns;
use tools::ctk_command;

/// More than are counted at a time.
const ENTRIES: u32 = MAX_GROUPS as u32 + MAX_GROUPS as u32 / 5;
/// Of one client, so that it is the largest in any case.
const HEAVY: u32 = 500;
const MIB: i64 = 1 << 20;

/// 300 destinations; every source another one, but for the heavy one, whose entries come scattered.
fn flow(n: u32) -> Flow {
    let source = if n.is_multiple_of(ENTRIES / HEAVY) {
        "10.9.9.9".to_owned()
    } else {
        format!("10.{}.{}.{}", 128 + (n >> 16), n >> 8 & 255, n & 255)
    };
    let destination = format!("10.64.{}.{}", n % 300 / 100, n % 100);
    let port = 1024 + (n / (ENTRIES / HEAVY)) as u16;
    let mut flow = plain(tuple(17, &source, &destination, ports(port, 53)), ASSURED);
    flow.timeout = Some(100_000);
    flow
}

#[test]
fn memory_is_bounded_by_groups_and_what_is_missing_is_said() {
    private_netns(|| {
        let mut table = Table::open(&Netns::current()).unwrap();
        // In portions: a child's peak begins with that of the process that starts it.
        for first in (0..ENTRIES).step_by(1000) {
            let results = table.insert_all((first..first + 1000).map(flow));
            assert!(results.iter().all(Result::is_ok), "{results:?}");
        }
        let (document, stderr, status, peak) = top(&["--by", "dst"]);
        println!("300 groups: {:.1} MiB", peak as f64 / MIB as f64);
        assert_eq!(status, 0, "{stderr}");
        assert_eq!(document["summary"]["groups"], 300);
        assert_eq!(document["summary"]["error_at_most"], 0);
        assert_eq!(document["items"][0]["count"], ENTRIES / 300);
        assert!(peak < 32 * MIB, "{} MiB", peak / MIB);

        // The largest is certain, whatever is dropped.
        let heavy = ENTRIES.div_ceil(ENTRIES / HEAVY);
        let (document, stderr, status, peak) = top(&["--by", "src", "--limit", "1"]);
        println!("too many groups: {:.1} MiB", peak as f64 / MIB as f64);
        assert_eq!(document["items"][0]["key"]["src"], "10.9.9.9");
        let item = &document["items"][0];
        let number = |value: &Value| value.as_u64().unwrap();
        let (count, missed) = (number(&item["count"]), number(&item["error_at_most"]));
        assert!((count..=count + missed).contains(&heavy.into()), "{item}");
        let error = number(&document["summary"]["error_at_most"]);
        // Every other source has one entry, so each time something is dropped costs one.
        assert!((1..=3).contains(&error), "{document}");
        assert_eq!(document["summary"]["groups"], Value::Null);
        assert_eq!(document["summary"]["matched"], ENTRIES);
        assert!(
            stderr.contains("more groups than can be counted"),
            "{stderr}"
        );
        assert_eq!(status, if missed == 0 { 0 } else { 3 }, "{stderr}");
        assert!(peak < 64 * MIB, "{} MiB", peak / MIB);

        // All of them are not there, and that makes the answer partial.
        let (document, stderr, status, peak) = top(&["--by", "src,dst"]);
        assert_eq!(status, 3, "{stderr}");
        let shown = document["items"].as_array().unwrap().len();
        assert!((MAX_GROUPS / 2..=MAX_GROUPS).contains(&shown), "{shown}");
        println!("all that are left: {:.1} MiB", peak as f64 / MIB as f64);
        assert!(peak < 64 * MIB, "{} MiB", peak / MIB);
    });
}

/// The document of `ctk top -o json`, what it said, its status and its peak in bytes.
#[expect(clippy::zombie_processes, reason = "wait4 waits for it")]
fn top(args: &[&str]) -> (Value, String, i32, i64) {
    let (out, err) = (
        tempfile::NamedTempFile::new().unwrap(),
        tempfile::NamedTempFile::new().unwrap(),
    );
    let file = |file: &tempfile::NamedTempFile| Stdio::from(file.reopen().unwrap());
    let all = ["top", "--cluster", "none", "-o", "json"];
    let child = ctk_command(all.iter().chain(args))
        .stdout(file(&out))
        .stderr(file(&err))
        .spawn()
        .unwrap();
    let pid = libc::pid_t::try_from(child.id()).unwrap();
    let mut status = 0;
    // SAFETY: zeros are a valid rusage, and both places outlive the call.
    let (waited, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        (libc::wait4(pid, &mut status, 0, &mut usage), usage)
    };
    assert_eq!(waited, pid);
    assert!(libc::WIFEXITED(status), "{status:#x}");
    let document = serde_json::from_reader(out.reopen().unwrap()).unwrap();
    let stderr = std::fs::read_to_string(err.path()).unwrap();
    (
        document,
        stderr,
        libc::WEXITSTATUS(status),
        usage.ru_maxrss * 1024,
    )
}
