//! Status bits by the names that JSON uses, and `unreplied` for the absence of `seen-reply`.

use std::str::FromStr;

use super::suggest::did_you_mean;
use super::{BadValue, Outcome, Picks};
use ctnetlink::flow::{Flow, Status};

/// A status bit that must be set, or (only `unreplied`) clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusWord {
    pub(super) bit: Status,
    pub(super) set: bool,
}

impl StatusWord {
    pub const ASSURED: StatusWord = StatusWord {
        bit: Status::ASSURED,
        set: true,
    };
    pub const UNREPLIED: StatusWord = StatusWord {
        bit: Status::SEEN_REPLY,
        set: false,
    };

    pub fn matches(self, status: Status) -> bool {
        status.contains(self.bit) == self.set
    }
}

impl FromStr for StatusWord {
    type Err = BadValue;

    /// A name of [`Status::NAMES`] or `unreplied`, in any case, with `-` or `_`.
    ///
    /// # Errors
    ///
    /// An unknown name.
    fn from_str(text: &str) -> Result<Self, BadValue> {
        let word = text.to_ascii_lowercase().replace('_', "-");
        if word == "unreplied" {
            return Ok(Self::UNREPLIED);
        }
        Status::NAMES
            .into_iter()
            .find(|(name, _)| *name == word)
            .map(|(_, bit)| StatusWord { bit, set: true })
            .ok_or_else(|| {
                let names = || {
                    Status::NAMES
                        .into_iter()
                        .map(|(name, _)| name)
                        .chain(["unreplied"])
                };
                let all: Vec<&str> = names().collect();
                BadValue(format!(
                    "unknown status {text}{}; accepted are {}",
                    did_you_mean(&word, names()),
                    all.join(", ")
                ))
            })
    }
}

pub(super) fn test(picks: &Picks<StatusWord>, flow: &Flow) -> Outcome {
    Outcome::of(picks.pass(|word| word.matches(flow.status)))
}

#[cfg(test)]
mod tests {
    use super::super::list::tests::picks;
    use super::super::tests::udp;
    use super::*;

    #[test]
    fn names_are_those_of_the_json_output() {
        for (name, bit) in Status::NAMES {
            for text in [name.to_owned(), name.replace('-', "_"), name.to_uppercase()] {
                assert_eq!(text.parse(), Ok(StatusWord { bit, set: true }), "{text}");
            }
        }
        for (text, says) in [
            ("asured", "did you mean assured?"),
            ("unreplyed", "did you mean unreplied?"),
            ("5", "accepted are expected, seen-reply"),
        ] {
            let error = text.parse::<StatusWord>().expect_err(text);
            assert!(error.0.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn unreplied_is_the_absence_of_a_reply() {
        let mut flow = udp(
            ["10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.1"],
            [1, 2, 2, 1],
        );
        for (status, texts, expected) in [
            (Status::CONFIRMED, &["unreplied"][..], true),
            (Status::CONFIRMED, &["seen-reply"], false),
            (Status::CONFIRMED, &["!unreplied"], false),
            (Status::CONFIRMED, &["assured,unreplied"], true),
            (Status::SEEN_REPLY, &["assured,unreplied"], false),
            (Status::SEEN_REPLY, &["!assured,unreplied"], true),
            (
                Status::SEEN_REPLY.with(Status::ASSURED),
                &["seen-reply", "!assured"],
                false,
            ),
        ] {
            flow.status = status;
            assert_eq!(
                test(&picks(texts), &flow),
                Outcome::of(expected),
                "{status:?} {texts:?}"
            );
        }
    }
}
