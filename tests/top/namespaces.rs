//! `top` over several network namespaces.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use super::*;
use ctnetlink::netns::Netns;

/// A process in a network namespace of its own.
struct Elsewhere(Child);

impl Elsewhere {
    fn start() -> Self {
        let mut child = Command::new("unshare")
            .args(["-n", "sh", "-c", "echo here; exec sleep 60"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = child.stdout.as_mut().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        assert_eq!(line, "here\n");
        Elsewhere(child)
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    /// Inserts so many entries.
    fn fill(&self, entries: u16) {
        let netns = Netns::named(&self.pid()).unwrap();
        let flows: Vec<_> = (0..entries).map(|n| udp("10.0.0.1", 4000 + n)).collect();
        netns.run(|| insert(&flows)).unwrap();
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn the_namespace_that_fills_the_table_is_named() {
    private_netns(|| {
        let (full, small) = (Elsewhere::start(), Elsewhere::start());
        full.fill(30);
        small.fill(4);
        let (one, other) = (full.pid(), small.pid());
        let list = format!("{one},{other}");
        let outcome = ctk(["top", "--netns", &list, "-o", "json"]).exits(0);
        let expected = BTreeMap::from([(one.clone(), 30), (other.clone(), 4)]);
        assert_eq!(counts(&outcome), expected, "{outcome:#?}");
        let summary = &outcome.json()["summary"];
        assert_eq!(summary["netns"], json!([one, other]));
        assert_eq!(
            (&summary["scanned"], &summary["matched"]),
            (&json!(34), &json!(34))
        );
        // Other keys hold for all namespaces together.
        let by_src = ctk(["top", "--netns", &list, "--by", "src", "-o", "json"]).exits(0);
        assert_eq!(
            counts(&by_src),
            BTreeMap::from([("10.0.0.1".to_owned(), 34)])
        );
        let by_both = ctk(["top", "--netns", &list, "--by", "netns,src", "-o", "csv"]).exits(0);
        let rows: Vec<_> = by_both.stdout.lines().skip(1).collect();
        assert!(
            rows[0].starts_with(&format!("{one},10.0.0.1,,30,")),
            "{rows:?}"
        );
        // Every namespace, among them these two.
        let all = counts(&ctk(["top", "--netns", "all", "-o", "json"]));
        assert_eq!((all[&one], all[&other]), (30, 4), "{all:?}");
    });
}

#[test]
fn a_namespace_that_cannot_be_opened_is_named_with_status_3() {
    private_netns(|| {
        let place = Elsewhere::start();
        place.fill(2);
        let list = format!("{},ctk-nowhere", place.pid());
        let outcome = ctk(["top", "--netns", &list, "-o", "json"]).exits(3);
        assert!(outcome.stderr.contains("ctk-nowhere"), "{outcome:#?}");
        assert_eq!(counts(&outcome), BTreeMap::from([(place.pid(), 2)]));
        let nothing = ctk(["top", "--netns", "ctk-nowhere,ctk-nowhere-2"]).exits(1);
        assert!(nothing.stderr.contains("ctk-nowhere-2"), "{nothing:#?}");
        let ls = ctk(["ls", "--netns", "all"]).exits(2);
        assert!(ls.stderr.contains("ctk top --netns all"), "{ls:#?}");
        for refused in [
            "--by verdict",
            "--stale",
            "--interval 2s",
            "--cluster rules",
        ] {
            let args = ["top", "--netns", list.as_str()].into_iter();
            let outcome = ctk(args.chain(refused.split(' '))).exits(2);
            assert!(outcome.stderr.contains("several"), "{outcome:#?}");
        }
    });
}
