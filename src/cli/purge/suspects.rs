//! Suspects of a purge by the node's rules: how many are held back, and what can be done about them.
//!
//! Rules list what new packets get. They leave out endpoints that terminate or are elsewhere, so an entry that leads
//! somewhere else is deleted only with evidence that its answers stopped, which takes counters.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::flow::Flow;
use crate::purge::plan::IncludeWord;

/// Selectors that are printed.
const SHOWN: usize = 10;

#[derive(Debug, Default)]
pub struct Suspects {
    count: u64,
    /// Those whose packets are counted.
    counted: u64,
    /// Destination and reply source of the others.
    silent: BTreeSet<(IpAddr, IpAddr)>,
    /// `--sample` and `--include suspect` were given already.
    sampled: bool,
}

impl Suspects {
    pub fn new(include: &[IncludeWord], sampled: bool) -> Self {
        Suspects {
            sampled: sampled && include.contains(&IncludeWord::Suspect),
            ..Suspects::default()
        }
    }

    /// One that is held back.
    pub fn add(&mut self, flow: &Flow) {
        self.count += 1;
        if flow.counters_original.is_some() && flow.counters_reply.is_some() {
            self.counted += 1;
        } else {
            self.silent.insert((flow.original.dst, flow.reply.src));
        }
    }

    /// Lines for stderr.
    pub fn advice(&self) -> Vec<String> {
        let mut lines = vec![format!(
            "{} suspect entries held back: this node's rules do not list where they lead, but leave out endpoints that terminate or are elsewhere",
            self.count
        )];
        if self.counted > 0 {
            lines.push(match self.sampled {
                true => format!(
                    "{} of them: the counters do not show that the answers stopped",
                    self.counted
                ),
                false => format!(
                    "to delete those whose answers stopped: {}",
                    command(std::env::args())
                ),
            });
        }
        if !self.silent.is_empty() {
            lines.push(format!(
                "{} of them carry no counters (net.netfilter.nf_conntrack_acct), so nothing can show whether their answers stopped; selectors that name them:",
                self.count - self.counted
            ));
            let named = self.silent.iter().take(SHOWN);
            lines.extend(named.map(|(dst, source)| format!("  --dst {dst} --reply-src {source}")));
            if self.silent.len() > SHOWN {
                lines.push(format!("  and {} more", self.silent.len() - SHOWN));
            }
        }
        lines
    }
}

/// The command line that was typed, with what it takes to get at suspects.
fn command(typed: impl Iterator<Item = String>) -> String {
    let mut words = vec!["ctk".to_owned()];
    words.extend(typed.skip(1).map(|word| quoted(&word)));
    for (flag, value) in [("--sample", "6s"), ("--include", "suspect")] {
        if !words.iter().any(|word| word.starts_with(flag)) {
            words.extend([flag.to_owned(), value.to_owned()]);
        }
    }
    words.join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{Counters, L4, Tuple};

    fn flow(counted: bool) -> Flow {
        let tuple = |src: [u8; 4], dst: [u8; 4]| Tuple {
            src: src.into(),
            dst: dst.into(),
            protocol: 17,
            l4: L4::Ports { src: 1, dst: 53 },
        };
        let mut flow = Flow::new(
            tuple([10, 0, 0, 1], [10, 96, 0, 10]),
            tuple([10, 0, 0, 9], [10, 0, 0, 1]),
        );
        if counted {
            let counters = Some(Counters {
                packets: 1,
                bytes: 1,
            });
            flow.counters_original = counters;
            flow.counters_reply = counters;
        }
        flow
    }

    #[test]
    fn evidence_is_offered_only_where_it_can_be_had() {
        let advice = |counted: bool, sampled: bool| {
            let mut suspects = Suspects::new(&[IncludeWord::Suspect], sampled);
            suspects.add(&flow(counted));
            suspects.advice().join("\n")
        };
        assert!(advice(true, false).contains("--sample 6s --include suspect"));
        assert!(advice(true, true).contains("do not show that the answers stopped"));
        let silent = advice(false, false);
        assert!(
            silent.contains("--dst 10.96.0.10 --reply-src 10.0.0.9"),
            "{silent}"
        );
        assert!(!silent.contains("--sample"), "{silent}");
    }

    #[test]
    fn the_next_command_is_the_one_that_was_typed_and_more() {
        let typed = |words: &str| command(words.split(' ').map(str::to_owned));
        assert_eq!(
            typed("/bin/ctk purge --cluster rules --stale --dst !10.0.0.1"),
            "ctk purge --cluster rules --stale --dst '!10.0.0.1' --sample 6s --include suspect"
        );
        assert_eq!(
            typed("ctk purge --stale --sample=9s"),
            "ctk purge --stale --sample=9s --include suspect"
        );
    }
}
