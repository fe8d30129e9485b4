//! Comparison of two observations of one original tuple: the same entry, changed, or created again.

use ctnetlink::flow::{Counters, Flow, ProtocolState, Status};

/// Returns whether both are one entry, and not two entries of one original tuple. The start time decides where both have it.
pub(super) fn is_same_entry(a: &Flow, b: &Flow) -> bool {
    let start = a.start.zip(b.start).is_none_or(|(a, b)| a == b);
    a.reply == b.reply && a.id == b.id && start
}

/// Returns whether `now` cannot be the entry `known`. Tuples and id may be equal all the same: the id is a hash that
/// survives re-creation.
pub(super) fn is_recreated(known: &Flow, now: &Flow) -> bool {
    let fell = |known: Option<Counters>, now: Option<Counters>| {
        let both = known.zip(now);
        both.is_some_and(|(known, now)| now.packets < known.packets)
    };
    !is_same_entry(known, now)
        || has_lost_status(known, now)
        || fell(known.counters_original, now.counters_original)
        || fell(known.counters_reply, now.counters_reply)
}

/// Returns whether a status bit is missing that an entry keeps for its whole life.
pub(super) fn has_lost_status(known: &Flow, now: &Flow) -> bool {
    let lasting = Status::SEEN_REPLY.with(Status::ASSURED);
    known.status.without(now.status).intersects(lasting)
}

/// Returns whether a field other than timer and counters changed. An event leaves out a mark or labels of 0.
pub(super) fn is_updated(known: &Flow, now: &Flow) -> bool {
    let state = |flow: &Flow| flow.state.map(ProtocolState::number);
    let labels = |flow: &Flow| flow.labels().copied().unwrap_or_default();
    known.status != now.status
        || known.mark.unwrap_or(0) != now.mark.unwrap_or(0)
        || state(known) != state(now)
        || labels(known) != labels(now)
        || (now.helper().is_some() && known.helper() != now.helper())
}

/// Copies the fields that only the event of the end has: the last counters and the times.
pub(super) fn merge_end(known: &mut Flow, event: &Flow) {
    known.counters_original = event.counters_original.or(known.counters_original);
    known.counters_reply = event.counters_reply.or(known.counters_reply);
    known.start = event.start.or(known.start);
    if let Some(stop) = event.rare.as_ref().and_then(|rare| rare.stop) {
        known.rare_mut().stop = Some(stop);
    }
}

/// Copies the fields that an event has into a known flow. Most events lack counters, timestamps and rare attributes.
pub(super) fn merge_event(known: &mut Flow, event: Flow) {
    known.status = event.status;
    known.timeout = event.timeout.or(known.timeout);
    known.mark = event.mark.or(known.mark);
    known.state = event.state.or(known.state);
    known.start = known.start.or(event.start);
    if let Some(event) = event.rare {
        let rare = known.rare_mut();
        rare.labels = event.labels.or(rare.labels);
        rare.helper = event.helper.or_else(|| rare.helper.take());
        rare.secctx = event.secctx.or_else(|| rare.secctx.take());
        rare.master = event.master.or(rare.master);
    }
}
