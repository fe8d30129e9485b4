//! Counts, summary and caveats of groups.

use serde_json::{Map, Value};

use crate::output::Summary;
use crate::plural::count;
use crate::sysctl;
use crate::top::{GroupKey, KeyValue, Ranked};

use super::{Frame, Top};
use crate::session::caveats::{self, Caveats};
use crate::session::cluster::{self, Cluster};

/// `20 of 312 groups shown, 5000 of 6000 entries match`
pub fn count_line(ranked: &Ranked<'_>, scanned: u64) -> String {
    let groups = match (ranked.groups.len(), ranked.found) {
        (shown, found) if !ranked.is_exact() => {
            format!("{shown} of more than {found} groups shown")
        }
        (shown, found) if shown < found => format!("{shown} of {found} groups shown"),
        (shown, _) => count(shown as u64, "group", "groups"),
    };
    match ranked.matched {
        matched if matched == scanned => {
            format!("{groups}, {}", count(matched, "entry", "entries"))
        }
        matched => format!(
            "{groups}, {matched} of {} match",
            count(scanned, "entry", "entries")
        ),
    }
}

pub fn summary(frame: &Frame<'_, '_>, cluster: Option<&Cluster>) -> Summary {
    let ranked = frame.ranked;
    let mut extra = Map::new();
    let by: Vec<_> = ranked.by.iter().map(|key| key.name()).collect();
    extra.insert("by".to_owned(), by.into());
    extra.insert("matched".to_owned(), ranked.matched.into());
    // The number of groups is not known where some were dropped.
    let groups = ranked.is_exact().then_some(ranked.found);
    extra.insert("groups".to_owned(), groups.into());
    for (key, number) in [
        ("error_at_most", ranked.missed.count),
        ("packets_error_at_most", ranked.missed.packets),
        ("bytes_error_at_most", ranked.missed.bytes),
        ("uncounted", ranked.uncounted),
        ("own_connections", frame.counts.own),
    ] {
        extra.insert(key.to_owned(), number.into());
    }
    if let Some(namespaces) = frame.namespaces {
        extra.insert("netns".to_owned(), namespaces.into());
    }
    if let Some(time) = frame.time {
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(time);
        let time = humantime::format_rfc3339_nanos(time).to_string();
        extra.insert("time".to_owned(), Value::from(time));
    }
    Summary {
        shown: ranked.groups.len() as u64,
        scanned: frame.counts.scanned,
        consistent: !frame.report.inconsistent,
        unreadable: frame.report.unreadable,
        cluster: cluster::summary(cluster),
        extra,
    }
}

/// Name of the sysctl without its prefix `nf_conntrack_`.
const CLOSE_WAIT_TIMEOUT: &str = "tcp_timeout_close_wait";

fn shows_close_wait(ranked: &Ranked<'_>) -> bool {
    let mut parts = ranked.groups.iter().flat_map(|group| &group.values);
    parts.any(|part| {
        matches!(
            part,
            KeyValue::State {
                tracked: Some((Some("CLOSE_WAIT"), _)),
                ..
            }
        )
    })
}

/// Note on entries in CLOSE_WAIT. It holds no number, so that it is the same for each frame and printed once.
fn close_wait(timeout: Option<u64>) -> String {
    let timer = timeout.map_or_else(
        || format!("net.netfilter.nf_conntrack_{CLOSE_WAIT_TIMEOUT}"),
        |seconds| format!("{seconds} s (net.netfilter.nf_conntrack_{CLOSE_WAIT_TIMEOUT})"),
    );
    format!(
        "CLOSE_WAIT is conntrack's state, not a socket's: one side has closed and the other has not; without another packet \
         the entry stays for {timer}, sockets or not"
    )
}

impl Top<'_> {
    /// Caveats of the groups.
    pub(super) fn caveats(&self, frame: &Frame<'_, '_>, cluster: Option<&Cluster>) -> Caveats {
        let (ranked, report) = (frame.ranked, &frame.report);
        let mut caveats = caveats::of_table(report.unreadable, report.inconsistent);
        let asked = self.asks_for_names();
        let mut counts = frame.counts;
        let mut keys = ranked.by.iter();
        let by_verdict = keys.any(|key| matches!(key, GroupKey::Verdict | GroupKey::Reason));
        if by_verdict {
            // The verdict of a group is missing.
            caveats.partial |= counts.foreign_netns > 0 || counts.range_unknown > 0;
        } else if !self.entries.selects_by_verdict() {
            // No verdict is shown.
            (counts.foreign_netns, counts.range_unknown, counts.stale) = (0, 0, 0);
        }
        caveats.add_selection(&self.entries, asked, cluster, &counts);
        if !ranked.is_exact() {
            caveats.note(format!(
                "more groups than can be counted at a time: numbers marked + may be larger by at most {}, and groups of at \
                 most so many may be missing",
                count(ranked.missed.count, "entry", "entries")
            ));
            caveats.partial |= !ranked.is_certain(&self.order);
        }
        if shows_close_wait(ranked) {
            let timeouts = match frame.namespaces {
                Some(_) => Default::default(),
                None => sysctl::timeouts(&self.source.netns).unwrap_or_default(),
            };
            caveats.note(close_wait(timeouts.get(CLOSE_WAIT_TIMEOUT).copied()));
        }
        if ranked.uncounted > 0 {
            caveats.note(self.uncounted(frame));
        }
        caveats
    }

    /// Note on entries without counters: those that were made while accounting was off.
    fn uncounted(&self, frame: &Frame<'_, '_>) -> String {
        let ranked = frame.ranked;
        let is_off = frame.namespaces.is_none()
            && sysctl::conntrack(&self.source.netns).is_ok_and(|sysctl| sysctl.acct == Some(0));
        let why = match is_off {
            true => "net.netfilter.nf_conntrack_acct is 0",
            false => "they were made before net.netfilter.nf_conntrack_acct was 1",
        };
        match ranked.uncounted == ranked.matched {
            true => format!("packets and bytes are not known: {why}"),
            false => format!(
                "{} of {} entries have no packet and byte counters ({why}); the sums are those of the others",
                ranked.uncounted, ranked.matched
            ),
        }
    }
}
