//! Times of the looks at the table: when the next one is due, and whether nothing happened between two of them.

use std::time::{Duration, Instant};

use crate::verdict::MIN_OBSERVATION_GAP;

/// Pause before the look that replaces an incomplete one, and between two looks that a changed cluster asks for.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// A look that saw the whole table.
#[derive(Clone, Copy, Debug)]
struct CompleteLook {
    began: Instant,
    /// End of the first complete look after the last activity.
    quiet_since: Instant,
}

/// Schedule of the looks of one watch.
#[derive(Debug)]
pub struct LookSchedule {
    /// Zero: no look is made without need.
    interval: Duration,
    last: Option<CompleteLook>,
    next: Option<Instant>,
}

impl LookSchedule {
    /// `interval`: time between two looks; zero for none.
    pub fn new(interval: Duration) -> Self {
        LookSchedule {
            interval,
            last: None,
            next: None,
        }
    }

    /// Records a look that saw the whole table. `last_activity`: time of the last change of an entry.
    pub fn record_complete(&mut self, began: Instant, ended: Instant, last_activity: Instant) {
        let quiet_since = self.last.map(|last| last.quiet_since);
        let quiet_since = quiet_since.filter(|since| last_activity <= *since);
        self.last = Some(CompleteLook {
            began,
            quiet_since: quiet_since.unwrap_or(ended),
        });
    }

    /// Plans the look after the one that has just ended. `is_incomplete`: the view may differ from the table.
    pub fn plan_next(&mut self, now: Instant, is_incomplete: bool) {
        let pause = match self.interval {
            Duration::ZERO if is_incomplete => Some(RETRY_INTERVAL),
            Duration::ZERO => None,
            interval => Some(interval),
        };
        self.next = pause.map(|pause| now + pause);
    }

    /// Returns whether a look may be made at once for a changed cluster, and plans one for later when it may not: a cluster
    /// that changes all the time must not cause looks all the time.
    pub fn request(&mut self, now: Instant) -> bool {
        let earliest = self.last.map(|last| last.began + RETRY_INTERVAL);
        match earliest.filter(|earliest| *earliest > now) {
            None => true,
            Some(earliest) => {
                let next = self.next.map_or(earliest, |next| next.min(earliest));
                self.next = Some(next);
                false
            }
        }
    }

    pub fn is_due(&self, now: Instant) -> bool {
        self.next.is_some_and(|next| next <= now)
    }

    /// Time until the next look; `None` when none is planned.
    pub fn time_left(&self, now: Instant) -> Option<Duration> {
        self.next.map(|next| next.saturating_duration_since(now))
    }

    /// Returns whether two complete looks, an interval apart, saw no activity since the first. They are at least [`MIN_OBSERVATION_GAP`]
    /// from each other, because closer ones do not show a refill.
    pub fn is_quiet(&self, last_activity: Instant) -> bool {
        self.last.is_some_and(|last| {
            let quiet = last.began.saturating_duration_since(last.quiet_since);
            last_activity <= last.quiet_since && quiet >= self.interval.max(MIN_OBSERVATION_GAP)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds after a common start.
    fn times() -> impl Fn(u64) -> Instant {
        let start = Instant::now();
        move |second| start + Duration::from_secs(second)
    }

    #[test]
    fn a_watch_is_quiet_only_after_an_interval_without_activity_between_two_looks() {
        let at = times();
        // (interval, looks as (began, ended), last activity, quiet)
        for (interval, looks, activity, expected) in [
            (5, &[][..], 0, false),
            (5, &[(0, 1)], 0, false),
            (5, &[(0, 1), (5, 6)], 0, false),
            (5, &[(0, 1), (6, 7)], 0, true),
            (5, &[(0, 1), (6, 7)], 8, false),
            (5, &[(0, 1), (6, 7), (12, 13)], 3, true),
            // Looks that are close to each other do not show a refill.
            (1, &[(0, 0), (1, 1), (2, 2)], 0, false),
            (1, &[(0, 0), (1, 1), (2, 2), (3, 3)], 0, true),
        ] {
            let mut schedule = LookSchedule::new(Duration::from_secs(interval));
            for (began, ended) in looks {
                // The activity is known to the looks that end after it.
                let known = activity.min(*ended);
                schedule.record_complete(at(*began), at(*ended), at(known));
            }
            let case = format!("interval {interval}, {looks:?}, activity {activity}");
            assert_eq!(schedule.is_quiet(at(activity)), expected, "{case}");
        }
    }

    #[test]
    fn without_an_interval_only_an_incomplete_look_is_repeated() {
        let at = times();
        for (interval, incomplete, expected) in [
            (0, false, None),
            (0, true, Some(1)),
            (5, false, Some(5)),
            (5, true, Some(5)),
        ] {
            let mut schedule = LookSchedule::new(Duration::from_secs(interval));
            schedule.plan_next(at(0), incomplete);
            let expected = expected.map(Duration::from_secs);
            assert_eq!(
                schedule.time_left(at(0)),
                expected,
                "{interval} {incomplete}"
            );
            assert!(!schedule.is_due(at(0)));
        }
    }

    #[test]
    fn a_cluster_that_changes_all_the_time_causes_one_look_a_second() {
        let at = times();
        let mut schedule = LookSchedule::new(Duration::from_secs(60));
        assert!(schedule.request(at(0)), "no look was made yet");
        schedule.record_complete(at(10), at(10), at(0));
        schedule.plan_next(at(10), false);
        assert!(!schedule.request(at(10)));
        assert_eq!(schedule.time_left(at(10)), Some(Duration::from_secs(1)));
        assert!(schedule.is_due(at(11)) && schedule.request(at(11)));
    }
}
