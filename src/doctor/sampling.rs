//! Entries that are observed three times before the checks run.

use crate::entry::Entry;
use crate::verdict::{Activity, Verdict};
use ctnetlink::flow::Flow;

const UDP: u8 = 17;

/// Upper bound of the UDP entries whose observations are stored, at 240 bytes each.
pub const MAX_SAMPLED: usize = 100_000;

/// Whether the checks ask if this entry is kept alive or answered: a UDP entry that may be stale, or one of a Service with
/// packet counters. `stored` is the number of entries that are observed already; entries beyond [`MAX_SAMPLED`] count as
/// unknown. `entry` attributes and judges the flow, and is called only where it matters.
pub fn needs_sample<'c>(flow: &Flow, stored: usize, entry: impl FnOnce() -> Entry<'c>) -> bool {
    if flow.protocol() != UDP || stored >= MAX_SAMPLED {
        return false;
    }
    let counted = flow.counters_reply.is_some();
    let entry = entry();
    let sound = entry.judgement.is_none_or(|judgement| {
        matches!(
            judgement.verdict(),
            Verdict::Ok | Verdict::Unknown | Verdict::Unrelated
        )
    });
    !sound || (counted && entry.names.service.is_some())
}

/// Restricts the result of the observations to what they prove: only UDP entries were observed, and with `is_full` an entry
/// without observations may have been left out and is not new.
pub fn limit_activity(flow: &Flow, mut activity: Activity, is_full: bool) -> Option<Activity> {
    activity.is_new &= !is_full;
    (flow.protocol() == UDP).then_some(activity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::testing::{flow, judged, service, udp};
    use crate::verdict::Reason;
    use ctnetlink::flow::Counters;

    #[test]
    fn only_udp_entries_that_a_check_asks_about_are_observed() {
        let client = ("10.0.0.1:4000", "10.96.0.10:53", "10.1.0.7:53");
        let counted = |mut flow: Flow| {
            flow.counters_reply = Some(Counters {
                packets: 1,
                bytes: 1,
            });
            flow
        };
        let plain = udp(client.0, client.1, client.2);
        let tcp = flow(6, client.0, client.1, client.2);
        for (flow, reason, of_service, stored, expected) in [
            (&plain, Reason::EndpointGone, true, 0, true),
            (&plain, Reason::EndpointGone, true, MAX_SAMPLED, false),
            (&tcp, Reason::EndpointGone, true, 0, false),
            (&plain, Reason::Endpoint, true, 0, false),
            (&counted(plain.clone()), Reason::Endpoint, true, 0, true),
            (&counted(plain.clone()), Reason::Endpoint, false, 0, false),
        ] {
            let entry = || {
                let mut entry = judged(flow.clone(), reason);
                entry.names.service = of_service.then(|| service("dns"));
                entry
            };
            let observed = needs_sample(flow, stored, entry);
            assert_eq!(observed, expected, "{reason:?} {of_service} {stored}");
        }
    }

    #[test]
    fn an_entry_left_out_of_a_full_sample_is_not_new() {
        let mut new = Activity::default();
        new.is_new = true;
        let entry = udp("10.0.0.1:4000", "10.96.0.10:53", "10.1.0.7:53");
        let is_new = |is_full| limit_activity(&entry, new, is_full).map(|one| one.is_new);
        assert_eq!([is_new(false), is_new(true)], [Some(true), Some(false)]);
        let tcp = flow(6, "10.0.0.1:4000", "10.96.0.10:80", "10.1.0.7:80");
        assert_eq!(limit_activity(&tcp, new, false), None);
    }
}
