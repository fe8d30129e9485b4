//! Connections of TCP, SCTP and DCCP that lead to an endpoint that is gone, or to a Pod of another Service.
//!
//! Most stale connections end by themselves: the client gets a reset or gives up. The first packet of a new connection that
//! takes an old entry, as from a fixed source port, is lost at every retry, and reaches a wrong Pod where its address was
//! assigned again.

use crate::doctor::destinations::{Destination, Destinations, Key};
use crate::doctor::{Check, Facts, Finding, Severity, Thresholds};
use crate::entry::Entry;
use crate::plural::count;
use crate::verdict::Verdict;

const NAME: &str = "stale-connections";
const TCP: u8 = 6;
const DCCP: u8 = 33;
const SCTP: u8 = 132;

#[derive(Default)]
pub struct StaleConnections {
    stale: Destinations,
    /// Established connections to a living Pod that does not back the Service.
    detached: Destinations,
}

impl Check for StaleConnections {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "connections to an endpoint that is gone"
    }

    fn looks_for(&self) -> &'static str {
        "TCP and SCTP entries that lead to an endpoint that is gone; critical if another Service's pod gets the packets."
    }

    fn lacks(&self, facts: &Facts<'_>) -> Option<&'static str> {
        facts.lacks_verdicts()
    }

    fn observe(&mut self, entry: &Entry<'_>, _: &Facts<'_>) {
        if !matches!(entry.flow.protocol(), TCP | DCCP | SCTP) {
            return;
        }
        let reason = entry.judgement.as_ref().map(|judgement| judgement.reason);
        let of = |verdict| reason.filter(|reason| reason.verdict() == verdict);
        self.stale.observe(entry, of(Verdict::Stale));
        self.detached.observe(entry, of(Verdict::Detached));
    }

    fn findings(&self, facts: &Facts<'_>, thresholds: &Thresholds) -> Vec<Finding> {
        let stale = self.stale.from(thresholds.stale_entries).into_iter();
        let stale = stale.map(|(key, group)| stale_finding(key, group, facts));
        let detached = self.detached.from(thresholds.stale_entries).into_iter();
        let detached = detached.map(|(key, group)| detached_finding(key, group, facts));
        stale.chain(detached).collect()
    }
}

fn stale_finding(key: &Key, group: &Destination, facts: &Facts<'_>) -> Finding {
    let wrong = match group.misdelivered {
        0 => String::new(),
        n => format!(
            "; {} to a pod of another Service or of none",
            count(n, "leads", "lead")
        ),
    };
    let lost = match group.connecting {
        0 => String::new(),
        n => format!("; {} still asking for a connection", count(n, "is", "are")),
    };
    let message = format!(
        "{}: {} stale ({}){wrong}{lost}",
        group.name(key),
        group.share(),
        group.reasons(),
    );
    let severity = if group.misdelivered > 0 {
        Severity::Critical
    } else if group.connecting > 0 {
        Severity::Warning
    } else {
        Severity::Info
    };
    group
        .evidence(Finding::new(NAME, severity, message), "stale", key, facts)
        .with("misdelivered", group.misdelivered)
        .with("connecting", group.connecting)
        .because(group.cause(key))
        .help(group.purge(key))
}

fn detached_finding(key: &Key, group: &Destination, facts: &Facts<'_>) -> Finding {
    let message = format!(
        "{}: {} to a living pod that does not back the Service (detached): it left the Service, or it has the address of one \
         that did",
        group.name(key),
        count(group.bad, "entry leads", "entries lead"),
    );
    group
        .evidence(Finding::info(NAME, message), "detached", key, facts)
        .because(group.cause(key))
        .help(format!(
            "a pod that left may finish its connections; to see them: ctk ls --verdict detached{}",
            group.selector(key)
        ))
}
