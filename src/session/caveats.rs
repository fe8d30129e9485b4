//! Caveats of an answer: notes on stderr, and whether they make the answer partial.

use crate::plural::count;

use crate::query::EntryQuery;
use crate::session::cluster::Cluster;
use crate::session::pipeline::Counts;
use crate::terminal::messages::note;

/// An entry is not the whole binding of a flow there.
pub const IPVS: &str = "IPVS mode: the IPVS connection entry may re-create these; see net.ipv4.vs.expire_nodest_conn and ipvsadm -Lnc";

/// What is to be said of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caveats {
    pub notes: Vec<String>,
    /// Something is missing from the answer.
    pub partial: bool,
}

/// What of the table is missing.
pub fn of_table(unreadable: u64, inconsistent: bool) -> Caveats {
    let mut open = Caveats {
        partial: unreadable > 0 || inconsistent,
        ..Caveats::default()
    };
    if unreadable > 0 {
        open.note(format!(
            "{unreadable} entries could not be read and are missing"
        ));
    }
    if inconsistent {
        open.note(
            "the table was resized or interrupted while it was read: entries may be missing or doubled; run it again",
        );
    }
    open
}

impl Caveats {
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// What the selectors left out, and what could not be judged. `asked`: names or verdicts were asked for.
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
                "{} stale entries of other protocols than UDP are left out; name them with --tcp or --sctp",
                counts.held_back
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

    /// Names that could not be looked up.
    fn add_names(&mut self, cluster: &Cluster, counts: &Counts) {
        // Of a file everybody knows what was written into it.
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
                "{} to an address whose pod was not asked for, so that it has no name; --all-pods reads every Pod",
                count(counts.not_asked, "entry leads", "entries lead")
            ));
        }
    }

    /// Says it; whether something is missing from the answer.
    pub fn say(&self) -> bool {
        self.notes.iter().for_each(note);
        self.partial
    }
}

/// What of the answer is missing because the source is.
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

/// Nothing there may mean that nothing is tracked there.
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

/// What is said of entries that a selector cannot decide on.
pub fn undecided(entries: u64) -> String {
    format!(
        "{entries} entries lack a value that a selector needs (ports, counters, timestamps, labels, names) and are left out"
    )
}

/// What is said of entries that are not judged for want of the node's namespace.
pub fn foreign_netns(entries: u64) -> String {
    format!(
        "{entries} entries are not judged: this network namespace is not known to be the node's (see --node, --netns)"
    )
}

/// What is said of entries to an address that may be a deleted Service's.
pub fn range_unknown(entries: u64, cluster: &Cluster) -> String {
    let entries = match entries {
        1 => "1 entry is not judged: no Service has its destination".to_owned(),
        entries => format!("{entries} entries are not judged: no Service has their destination"),
    };
    format!(
        "{entries}, and whether a deleted one had it (service-gone) is not known without ServiceCIDRs; {}",
        cluster.range_remedy()
    )
}

/// Entries of which `--refreshing` cannot be told.
pub fn not_compared(count: u64) -> String {
    format!(
        "{count} entries came up, were made anew or offloaded while looking, so that nothing tells whether they are \
         refreshed; they are left out"
    )
}
