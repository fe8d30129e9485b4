//! Protocol states by the kernel's names. `established` is a state of TCP and of SCTP.

use std::str::FromStr;

use super::suggest::did_you_mean;
use super::{BadValue, Outcome, Picks};
use ctnetlink::flow::{Flow, ProtocolState};

/// A state word in the kernel's spelling (`TIME_WAIT`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateWord(&'static str);

impl FromStr for StateWord {
    type Err = BadValue;

    /// Any case, with `-` or `_`.
    ///
    /// # Errors
    ///
    /// A word that is no state of TCP, SCTP or DCCP.
    fn from_str(text: &str) -> Result<Self, BadValue> {
        let word = text.to_ascii_uppercase().replace('-', "_");
        ProtocolState::all_names()
            .find(|name| *name == word)
            .map(StateWord)
            .ok_or_else(|| {
                let near = did_you_mean(&word, ProtocolState::all_names()).to_ascii_lowercase();
                let mut all: Vec<String> = Vec::new();
                for name in ProtocolState::all_names() {
                    let name = name.to_ascii_lowercase();
                    if !all.contains(&name) {
                        all.push(name);
                    }
                }
                BadValue(format!(
                    "unknown state {text}{near}; accepted are {}",
                    all.join(", ")
                ))
            })
    }
}

/// Tests the state. UDP and other protocols have none, which is undecidable.
pub(super) fn test(picks: &Picks<StateWord>, flow: &Flow) -> Outcome {
    Outcome::of_known(flow.state, |state| {
        let name = state.name();
        picks.pass(|word| name == Some(word.0))
    })
}

#[cfg(test)]
mod tests {
    use super::super::list::tests::picks;
    use super::super::tests::{tcp_state, udp};
    use super::*;

    #[test]
    fn state_words_are_parsed_in_any_spelling() {
        for text in ["time_wait", "TIME-WAIT", "Time_Wait"] {
            assert_eq!(text.parse(), Ok(StateWord("TIME_WAIT")), "{text}");
        }
        assert_eq!("cookie-echoed".parse(), Ok(StateWord("COOKIE_ECHOED")));
        for (text, says) in [
            ("estblished", "did you mean established?"),
            ("listen", "accepted are none, syn_sent"),
            ("3", "unknown state"),
        ] {
            let error = text.parse::<StateWord>().expect_err(text);
            assert!(error.0.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn a_flow_without_a_state_is_undecidable() {
        let places = ["10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.1"];
        let established = tcp_state(places, [1, 2, 2, 1], 3);
        let unknown_state = tcp_state(places, [1, 2, 2, 1], 99);
        let dns = udp(places, [1, 53, 53, 1]);
        for (texts, expected) in [
            (
                &["established"][..],
                [Outcome::Pass, Outcome::Fail, Outcome::Undecidable],
            ),
            (
                &["!established"],
                [Outcome::Fail, Outcome::Pass, Outcome::Undecidable],
            ),
            (
                &["time_wait,close"],
                [Outcome::Fail, Outcome::Fail, Outcome::Undecidable],
            ),
        ] {
            let got = [&established, &unknown_state, &dns].map(|flow| test(&picks(texts), flow));
            assert_eq!(got, expected, "{texts:?}");
        }
    }
}
