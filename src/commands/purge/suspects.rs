//! Suspects of a purge by the node's rules: how many are held back, and what can be done about them.
//!
//! Rules list what new packets get. They leave out endpoints that terminate or are elsewhere, so an entry that leads
//! somewhere else is deleted only with evidence that its answers stopped, which takes counters.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::net::IpAddr;

use crate::purge::plan::IncludeWord;
use ctnetlink::flow::Flow;

/// Selectors that are printed.
const SHOWN: usize = 10;

#[derive(Debug, Default)]
pub struct Suspects {
    count: u64,
    /// Those whose packets are counted.
    counted: u64,
    /// Destination and reply source of the others.
    silent: BTreeSet<(IpAddr, IpAddr)>,
    /// `--include suspect` was given already.
    included: bool,
    /// `--sample` was.
    sampled: bool,
}

impl Suspects {
    pub fn new(include: &[IncludeWord], sampled: bool) -> Self {
        Suspects {
            included: include.contains(&IncludeWord::Suspect),
            sampled,
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
            lines.push(match self.sampled && self.included {
                true => format!(
                    "{} of them: the counters do not show that the answers stopped",
                    self.counted
                ),
                false => format!(
                    "to delete those whose answers stopped: {}",
                    self.command(std::env::args_os())
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

    /// The command line that was typed, with what it takes to get at suspects. A second `--include` adds to the first.
    fn command(&self, typed: impl Iterator<Item = OsString>) -> String {
        let mut words = vec!["ctk".to_owned()];
        words.extend(typed.skip(1).map(|word| quoted(&word.to_string_lossy())));
        for (is_there, more) in [
            (self.sampled, "--sample 6s"),
            (self.included, "--include suspect"),
        ] {
            if !is_there {
                words.push(more.to_owned());
            }
        }
        words.join(" ")
    }
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
    use std::os::unix::ffi::OsStringExt;

    use super::*;
    use ctnetlink::flow::{Counters, L4, Tuple};

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
            let include = [IncludeWord::Suspect];
            let include = if sampled { &include[..] } else { &[] };
            let mut suspects = Suspects::new(include, sampled);
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
        let typed = |words: &[u8], include: &[IncludeWord], sampled| {
            let words = words.split(|byte| *byte == b' ');
            let words = words.map(|word| OsString::from_vec(word.to_vec()));
            Suspects::new(include, sampled).command(words)
        };
        assert_eq!(
            typed(
                b"/bin/ctk purge --cluster rules --stale --dst !10.0.0.1",
                &[],
                false
            ),
            "ctk purge --cluster rules --stale --dst '!10.0.0.1' --sample 6s --include suspect"
        );
        assert_eq!(
            typed(b"ctk purge --stale --sample=9s", &[], true),
            "ctk purge --stale --sample=9s --include suspect"
        );
        let draining = [IncludeWord::Draining];
        assert_eq!(
            typed(b"ctk purge --stale --include draining", &draining, false),
            "ctk purge --stale --include draining --sample 6s --include suspect"
        );
        let both = [IncludeWord::Draining, IncludeWord::Suspect];
        assert_eq!(
            typed(
                b"ctk purge --include=draining,suspect --cluster rules:\xff",
                &both,
                false
            ),
            "ctk purge --include=draining,suspect --cluster 'rules:\u{fffd}' --sample 6s"
        );
    }
}
