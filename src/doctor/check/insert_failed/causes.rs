//! Causes of failed insertions that the entries of the table leave open.

use std::collections::BTreeSet;

use crate::doctor::Finding;
use crate::doctor::example::Examples;
use crate::entry::Entry;
use crate::plural::count;
use ctnetlink::flow::Direction;

const UDP: u8 = 17;
/// Upper bound of the zones that are named.
const MAX_ZONES: usize = 8;

/// Entries that make a cause possible.
#[derive(Default)]
pub struct Causes {
    /// Entries with a zone for the original direction only.
    one_way: u64,
    zones: BTreeSet<u16>,
    /// The same, unanswered ones first: an entry without answers is often the one in the way.
    in_the_way: Examples,
    /// Translated entries of a protocol without handshake.
    translated_udp: u64,
    source_translated: u64,
}

/// One cause.
pub struct Cause {
    /// Part of the sentence.
    pub clause: String,
    pub help: String,
}

impl Causes {
    pub fn observe(&mut self, entry: &Entry<'_>) {
        let flow = &entry.flow;
        let translated = flow.is_dnat() || flow.is_snat();
        self.translated_udp += u64::from(flow.protocol() == UDP && translated);
        self.source_translated += u64::from(flow.is_snat());
        if flow.zone.id == 0 || flow.zone.direction != Some(Direction::Original) {
            return;
        }
        self.one_way += 1;
        if self.zones.len() < MAX_ZONES {
            self.zones.insert(flow.zone.id);
        }
        self.in_the_way.push(entry, flow.status.is_unreplied());
    }

    /// Every cause that is possible, at least one. `resolved`: races that the kernel resolved without a loss meanwhile.
    pub fn possible(&self, resolved: Option<u64>) -> Vec<Cause> {
        let mut causes = Vec::new();
        if let Some(zone) = self.zones.first() {
            let zones: Vec<String> = self.zones.iter().map(u16::to_string).collect();
            let has = count(self.one_way, "entry has", "entries have");
            causes.push(Cause {
                clause: format!(
                    "{has} a zone for the original direction only (zone {}), and in zone 0, where their replies are, no other \
                     entry can have the same reply tuple",
                    zones.join(", ")
                ),
                help: format!(
                    "set the zone for both directions, or translate equal sources of different zones apart (entries in the way: \
                     ctk ls --zone {zone})"
                ),
            });
        }
        if self.translated_udp > 0 || resolved.is_some_and(|resolved| resolved > 0) {
            causes.push(Cause {
                clause: "packets of one socket race (typical: parallel DNS queries over UDP through DNAT or SNAT, which then \
                         take 5 s)"
                    .to_owned(),
                help: "a DNS cache on the node, options single-request-reopen in resolv.conf, or DNS over TCP (use-vc)"
                    .to_owned(),
            });
        }
        if self.source_translated > 0 {
            causes.push(Cause {
                clause: "two connections were translated to one source port at the same time"
                    .to_owned(),
                help: "masquerade with --random-fully (nft: fully-random)".to_owned(),
            });
        }
        if causes.is_empty() {
            causes.push(Cause {
                clause: "another entry had the tuple first; no entry here has a zone for one direction or a translation, so it is \
                         not known which"
                    .to_owned(),
                help: "look at the entries while it happens (ctk ls -o wide)".to_owned(),
            });
        }
        causes
    }

    pub fn evidence(&self, finding: Finding) -> Finding {
        let zones: Vec<u64> = self.zones.iter().map(|zone| u64::from(*zone)).collect();
        finding
            .with("one_way_zone_entries", self.one_way)
            .with("zones", zones)
            .with("translated_udp", self.translated_udp)
            .with("source_translated", self.source_translated)
            .examples(&self.in_the_way)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::testing::udp;
    use ctnetlink::flow::{Flow, Zone};

    fn causes(flows: &[Flow], resolved: Option<u64>) -> Vec<String> {
        let mut causes = Causes::default();
        for flow in flows {
            causes.observe(&Entry::bare(flow.clone()));
        }
        let possible = causes.possible(resolved);
        possible.into_iter().map(|one| one.clause).collect()
    }

    #[test]
    fn entries_decide_which_causes_are_possible() {
        let mut zoned = udp("10.8.0.2:7000", "10.9.0.2:9999", "10.9.0.2:9999");
        zoned.zone = Zone {
            id: 5,
            direction: Some(Direction::Original),
        };
        let found = causes(&[zoned.clone()], None);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("1 entry has a zone for the original direction only (zone 5)")
        );
        let queried = udp("10.0.0.1:4000", "10.96.0.10:53", "10.1.0.7:53");
        let found = causes(&[zoned.clone(), queried], None);
        assert!(found.len() == 2 && found[1].contains("DNS"), "{found:?}");
        // A race that was resolved shows that there are races.
        assert_eq!(causes(&[zoned.clone()], Some(3)).len(), 2);
        // A zone for both directions separates the replies, too.
        zoned.zone.direction = None;
        let found = causes(&[zoned], Some(0));
        assert!(
            found.len() == 1 && found[0].contains("not known"),
            "{found:?}"
        );
    }
}
