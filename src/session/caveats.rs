//! Caveats of an answer: notes on stderr, and whether they make the answer partial.

use crate::plural::count;

use crate::query::EntryQuery;
use crate::session::cluster::Cluster;
use crate::session::pipeline::Counts;
use crate::terminal::messages::note;

/// Note where IPVS balances Services: an entry is not the whole binding of a flow there.
pub const IPVS: &str = "IPVS mode: the IPVS connection entry may re-create these; see net.ipv4.vs.expire_nodest_conn and ipvsadm -Lnc";

/// Notes on an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caveats {
    pub notes: Vec<String>,
    /// Something is missing from the answer.
    pub partial: bool,
}

/// Caveats of a table that was not read whole.
pub fn of_table(unreadable: u64, inconsistent: bool) -> Caveats {
    let mut caveats = Caveats {
        partial: unreadable > 0 || inconsistent,
        ..Caveats::default()
    };
    if unreadable > 0 {
        caveats.note(format!(
            "{} missing",
            count(
                unreadable,
                "entry could not be read and is",
                "entries could not be read and are"
            )
        ));
    }
    if inconsistent {
        caveats.note(
            "the table was resized or interrupted while it was read: entries may be missing or doubled; run it again",
        );
    }
    caveats
}

impl Caveats {
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Adds the entries that selectors could not decide on and those that could not be judged. `asked`: names or verdicts are
    /// selected.
    pub fn add_selection(
        &mut self,
        entries: &EntryQuery,
        asked: bool,
        cluster: Option<&Cluster>,
        counts: &Counts,
    ) {
        if counts.undecided > 0 {
            self.note(undecided(counts.undecided));
        }
        if counts.not_compared > 0 {
            self.note(not_compared(counts.not_compared));
        }
        if counts.held_back > 0 {
            self.note(format!(
                "{} left out; name the protocol with --tcp or --sctp",
                count(
                    counts.held_back,
                    "stale entry of another protocol than UDP is",
                    "stale entries of other protocols than UDP are"
                )
            ));
        }
        if counts.foreign_netns > 0 {
            self.note(foreign_netns(counts.foreign_netns));
        }
        let by_range = match entries.selects_by_verdict() {
            true => counts.range_sought,
            false => counts.range_unknown,
        };
        if let Some(cluster) = cluster.filter(|_| by_range > 0) {
            self.note(range_unknown(by_range, cluster));
        }
        if counts.stale > 0 && cluster.is_some_and(Cluster::has_ipvs) {
            self.note(IPVS);
        }
        if counts.passed == 0 {
            self.notes.extend(untracked(entries, cluster));
        }
        if let Some(cluster) = cluster {
            self.add_names(cluster, counts);
        }
        let missing = cluster.and_then(|cluster| incompleteness(cluster, counts.source_incomplete));
        self.partial |= missing.is_some() || (asked && cluster.is_none());
        self.notes.extend(missing);
        self.partial |= counts.foreign_netns > 0 && entries.selects_by_verdict();
        self.partial |= counts.range_sought > 0;
    }

    /// Adds the names that could not be looked up.
    fn add_names(&mut self, cluster: &Cluster, counts: &Counts) {
        // The content of a file is the choice of the user.
        if counts.nameless > 0 && cluster.is_complete() && !cluster.is_file() {
            self.partial = true;
            self.note(format!(
                "{} a name, because the cluster source lacks {}; {}",
                count(counts.nameless, "entry lacks", "entries lack"),
                cluster.missing().join(" and "),
                cluster.remedy()
            ));
        }
        if counts.not_asked > 0 {
            self.note(format!(
                "{} to an address whose pod was not read, so that it has no name; --all-pods reads every Pod",
                count(counts.not_asked, "entry leads", "entries lead")
            ));
        }
    }

    /// Prints the notes to stderr. Returns whether something is missing from the answer.
    pub fn report(&self) -> bool {
        self.notes.iter().for_each(note);
        self.partial
    }
}

/// Message on what the answer lacks because the source lacks it.
pub fn incompleteness(cluster: &Cluster, undecided: u64) -> Option<String> {
    let missing = cluster.missing();
    if !cluster.is_complete() {
        return Some(format!(
            "the cluster source is incomplete ({}), so nothing is judged; {}",
            missing.join(", "),
            cluster.remedy()
        ));
    }
    if undecided == 0 || missing.is_empty() {
        return None;
    }
    let entries = count(undecided, "entry is", "entries are");
    Some(match missing.as_slice() {
        ["rules"] => format!(
            "{entries} not judged, because some rules of this node are not understood; see above"
        ),
        _ => format!(
            "{entries} not judged, because the cluster source lacks {}; {}",
            missing.join(", "),
            cluster.remedy()
        ),
    })
}

/// Notes on selected destinations that the raw table excludes from tracking.
fn untracked(entries: &EntryQuery, cluster: Option<&Cluster>) -> Vec<String> {
    let Some(rules) = cluster.and_then(Cluster::node_rules) else {
        return Vec::new();
    };
    let found = entries.destinations.iter().filter_map(|asked| {
        let mut untracked = rules.untracked.iter();
        let rule = untracked.find(|rule| asked.contains(rule.destination.addr()))?;
        Some(format!(
            "a NOTRACK rule of the raw table covers {}: such packets never appear here",
            rule.destination.addr()
        ))
    });
    found.collect()
}

/// Note on entries that a selector cannot decide on.
pub fn undecided(entries: u64) -> String {
    format!(
        "{} left out",
        count(
            entries,
            "entry lacks a value that a selector needs (ports, counters, timestamps, labels, names) and is",
            "entries lack a value that a selector needs (ports, counters, timestamps, labels, names) and are"
        )
    )
}

/// Note on entries that are not judged because the namespace is not known to be the node's.
pub fn foreign_netns(entries: u64) -> String {
    format!(
        "{} not judged: this network namespace is not known to be the node's (see --node, --netns)",
        count(entries, "entry is", "entries are")
    )
}

/// Note on entries to an address that may be a deleted Service's.
pub fn range_unknown(entries: u64, cluster: &Cluster) -> String {
    let entries = count(
        entries,
        "entry is not judged: no Service has its destination",
        "entries are not judged: no Service has their destination",
    );
    format!(
        "{entries}, and whether a deleted one had it (service-gone) is not known without ServiceCIDRs; {}",
        cluster.range_remedy()
    )
}

/// Note on entries that `--refreshing` cannot decide on.
pub fn not_compared(entries: u64) -> String {
    format!(
        "{}, so that it is not known whether they are refreshed; they are left out",
        count(
            entries,
            "entry came up, was made anew or offloaded while looking",
            "entries came up, were made anew or offloaded while looking"
        )
    )
}
