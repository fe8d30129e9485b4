//! Advice on suspect entries that a purge by this node's rules holds back: the next command, or selectors that name them.
//!
//! Rules list the endpoints of new packets. They leave out endpoints that terminate or are elsewhere, so an entry that leads
//! to another endpoint is deleted only with evidence that its answers stopped, which takes counters.

use std::ffi::OsString;

use crate::plural::count;
use crate::purge::plan::HeldSuspects;

/// Selectors that are printed.
const MAX_SELECTORS: usize = 10;

/// Flags of the command line that was typed.
#[derive(Clone, Copy, Debug)]
pub struct SuspectFlags {
    /// `--include suspect` was given.
    pub included: bool,
    /// `--sample` or `--refreshing` was given.
    pub sampled: bool,
}

/// Lines for stderr. `typed`: the command line.
pub fn lines(
    suspects: &HeldSuspects,
    flags: SuspectFlags,
    typed: impl Iterator<Item = OsString>,
) -> Vec<String> {
    let mut lines = vec![format!(
        "{} held back: this node's rules do not list where {}, but leave out endpoints that terminate or are elsewhere",
        count(suspects.count, "suspect entry", "suspect entries"),
        if suspects.count == 1 {
            "it leads"
        } else {
            "they lead"
        }
    )];
    if suspects.with_counters > 0 {
        lines.push(match flags.sampled && flags.included {
            true => format!(
                "{} of them: the counters do not show that the answers stopped",
                suspects.with_counters
            ),
            false => format!(
                "to delete those whose answers stopped: {}",
                next_command(flags, typed)
            ),
        });
    }
    let silent = &suspects.without_counters;
    if !silent.is_empty() {
        lines.push(format!(
            "{} of them without counters (net.netfilter.nf_conntrack_acct), so that nothing shows whether the answers \
             stopped; selectors that name them:",
            suspects.count - suspects.with_counters
        ));
        let named = silent.iter().take(MAX_SELECTORS);
        lines.extend(named.map(|(dst, source)| format!("  --dst {dst} --reply-src {source}")));
        if silent.len() > MAX_SELECTORS {
            lines.push(format!("  and {} more", silent.len() - MAX_SELECTORS));
        }
    }
    lines
}

/// The command line that was typed, with the flags that are missing for a delete of suspects. A second `--include` adds to
/// the first.
fn next_command(flags: SuspectFlags, typed: impl Iterator<Item = OsString>) -> String {
    let mut words = vec!["ctk".to_owned()];
    words.extend(typed.skip(1).map(|word| quoted(&word.to_string_lossy())));
    for (is_given, flag) in [
        (flags.sampled, "--sample 6s"),
        (flags.included, "--include suspect"),
    ] {
        if !is_given {
            words.push(flag.to_owned());
        }
    }
    words.join(" ")
}

/// The word as a shell reads it.
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
    use ctnetlink::flow::{Counters, Flow, L4, Tuple};

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

    fn flags(included: bool, sampled: bool) -> SuspectFlags {
        SuspectFlags { included, sampled }
    }

    #[test]
    fn evidence_is_offered_only_for_entries_with_counters() {
        let advice = |counted: bool, given: bool| {
            let mut suspects = HeldSuspects::default();
            suspects.add(&flow(counted));
            lines(&suspects, flags(given, given), std::iter::empty()).join("\n")
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
    fn the_next_command_is_the_typed_one_with_the_missing_flags() {
        let typed = |words: &[u8], included, sampled| {
            let words = words.split(|byte| *byte == b' ');
            let words = words.map(|word| OsString::from_vec(word.to_vec()));
            next_command(flags(included, sampled), words)
        };
        assert_eq!(
            typed(
                b"/bin/ctk purge --cluster rules --stale --dst !10.0.0.1",
                false,
                false
            ),
            "ctk purge --cluster rules --stale --dst '!10.0.0.1' --sample 6s --include suspect"
        );
        assert_eq!(
            typed(b"ctk purge --stale --sample=9s", false, true),
            "ctk purge --stale --sample=9s --include suspect"
        );
        assert_eq!(
            typed(b"ctk purge --stale --include draining", false, false),
            "ctk purge --stale --include draining --sample 6s --include suspect"
        );
        assert_eq!(
            typed(
                b"ctk purge --include=draining,suspect --cluster rules:\xff",
                true,
                false
            ),
            "ctk purge --include=draining,suspect --cluster 'rules:\u{fffd}' --sample 6s"
        );
    }
}
