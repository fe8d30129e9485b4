//! How long a reader waits before it asks again.
//!
//! The readers of one follower mostly fail together: the server is away, or access was revoked. Those of [`DECIDING`] lists
//! ask often, and when any reader recovers, the others ask at once (`Board::recoveries`).

use std::time::{Duration, SystemTime};

use super::{DECIDING, Feed};

/// Between two attempts, twice as long each time.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// The longest for lists that verdicts hang on, and before access that was there once is tried again.
const RECOVERY_WAIT: Duration = Duration::from_secs(3);
/// Until it is looked again whether access is granted that was never there, and whether what could not be read can be.
pub const REFUSED_WAIT: Duration = Duration::from_secs(30);

/// The attempts of one reader.
#[derive(Debug)]
pub struct Pace {
    failures: u32,
    longest: Duration,
    /// Before access that was there once is tried again.
    refused: Duration,
}

impl Pace {
    pub fn of(feed: &Feed) -> Self {
        let decides = DECIDING.contains(feed);
        Pace {
            failures: 0,
            longest: match decides {
                true => RECOVERY_WAIT,
                false => LONGEST_WAIT,
            },
            // Of these there may be many, and another list of Pods is refused and granted with them.
            refused: match feed {
                Feed::PodsAt(_) => REFUSED_WAIT,
                _ => RECOVERY_WAIT,
            },
        }
    }

    /// The trouble before is over.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    pub fn after_failure(&mut self) -> Duration {
        self.failures += 1;
        self.backoff(self.failures)
    }

    /// After an attempt that ended as it should: the first time none.
    pub fn after_end(&mut self) -> Duration {
        self.failures += 1;
        match self.failures {
            1 => Duration::ZERO,
            failures => self.backoff(failures - 1),
        }
    }

    /// `was_granted`: the same was allowed before.
    pub fn after_refusal(&self, was_granted: bool) -> Duration {
        match was_granted {
            true => self.refused,
            false => REFUSED_WAIT,
        }
    }

    /// With some chance in it, so that many of us do not come back at once.
    fn backoff(&self, failures: u32) -> Duration {
        let doubled = FIRST_WAIT.saturating_mul(1 << failures.saturating_sub(1).min(10));
        let wait = doubled.min(self.longest);
        let nanos = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let chance = nanos.map_or(0, |time| time.subsec_nanos() % 100);
        wait / 2 + wait / 200 * chance
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What people wait for.
    const SOON: Duration = Duration::from_secs(4);

    #[test]
    fn what_verdicts_hang_on_is_asked_again_soon_however_long_it_failed() {
        for feed in DECIDING {
            let mut pace = Pace::of(&feed);
            for _ in 0..50 {
                assert!(pace.after_failure() < SOON, "{feed:?}");
            }
        }
        let mut pace = Pace::of(&Feed::Nodes);
        let longest = (0..50).map(|_| pace.after_failure()).max();
        assert!(longest.is_some_and(|longest| (SOON..=LONGEST_WAIT).contains(&longest)));
    }

    #[test]
    fn access_that_was_there_once_is_tried_again_soon_and_any_other_seldom() {
        let at = Feed::PodsAt("10.244.0.1".parse().unwrap());
        for (feed, was_granted, soon) in [
            (Feed::Services, true, true),
            (Feed::Nodes, true, true),
            (Feed::PodsOf("node1".to_owned()), true, true),
            (Feed::Nodes, false, false),
            (at, true, false),
        ] {
            let wait = Pace::of(&feed).after_refusal(was_granted);
            assert_eq!(wait < SOON, soon, "{feed:?} {was_granted}");
        }
    }

    #[test]
    fn after_an_end_that_was_expected_the_first_attempt_comes_at_once() {
        let mut pace = Pace::of(&Feed::Slices);
        assert_eq!(pace.after_end(), Duration::ZERO);
        assert!(pace.after_end() > Duration::ZERO);
        pace.reset();
        assert_eq!(pace.after_end(), Duration::ZERO);
    }
}
