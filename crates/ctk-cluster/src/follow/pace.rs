//! Wait of a reader before its next attempt.
//!
//! The readers of one follower mostly fail together: the server is away, or access was revoked. Those of [`DECIDING`] lists
//! retry often, and when any reader recovers, the others retry at once (`ReflectorState::recoveries`).

use std::time::{Duration, SystemTime};

use super::{DECIDING, Feed};

/// First wait between two attempts. It doubles each time.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const MAX_WAIT: Duration = Duration::from_secs(10);
/// Longest wait for lists on which verdicts depend, and before revoked access is tried again.
const RECOVERY_WAIT: Duration = Duration::from_secs(3);
/// Wait before access that was never granted, or an unreadable item, is tried again.
pub const REFUSED_WAIT: Duration = Duration::from_secs(30);

/// Attempts of one reader.
#[derive(Debug)]
pub struct Pace {
    failures: u32,
    longest: Duration,
    /// Wait before revoked access is tried again.
    refused: Duration,
}

impl Pace {
    pub fn of(feed: &Feed) -> Self {
        let decides = DECIDING.contains(feed);
        Pace {
            failures: 0,
            longest: match decides {
                true => RECOVERY_WAIT,
                false => MAX_WAIT,
            },
            // Many of these may exist, and another list of Pods is refused and granted with them.
            refused: match feed {
                Feed::PodsAt(_) => REFUSED_WAIT,
                _ => RECOVERY_WAIT,
            },
        }
    }

    /// Resets the waits after a recovery.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    pub fn after_failure(&mut self) -> Duration {
        self.failures += 1;
        self.backoff(self.failures)
    }

    /// Wait after an attempt that ended as expected: none the first time.
    pub fn after_end(&mut self) -> Duration {
        self.failures += 1;
        match self.failures {
            1 => Duration::ZERO,
            failures => self.backoff(failures - 1),
        }
    }

    /// `was_granted`: the same access was allowed before.
    pub fn after_refusal(&self, was_granted: bool) -> Duration {
        match was_granted {
            true => self.refused,
            false => REFUSED_WAIT,
        }
    }

    /// Adds a random part, so that many clients do not return at once.
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

    /// Delay that users accept.
    const SOON: Duration = Duration::from_secs(4);

    #[test]
    fn deciding_lists_are_retried_soon_after_any_number_of_failures() {
        for feed in DECIDING {
            let mut pace = Pace::of(&feed);
            for _ in 0..50 {
                assert!(pace.after_failure() < SOON, "{feed:?}");
            }
        }
        let mut pace = Pace::of(&Feed::Nodes);
        let longest = (0..50).map(|_| pace.after_failure()).max();
        assert!(longest.is_some_and(|longest| (SOON..=MAX_WAIT).contains(&longest)));
    }

    #[test]
    fn revoked_access_is_retried_soon_and_access_never_granted_seldom() {
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
    fn an_expected_end_is_followed_by_an_attempt_at_once() {
        let mut pace = Pace::of(&Feed::Slices);
        assert_eq!(pace.after_end(), Duration::ZERO);
        assert!(pace.after_end() > Duration::ZERO);
        pace.reset();
        assert_eq!(pace.after_end(), Duration::ZERO);
    }
}
