//! Consent to a change of the table: `--yes`, or an answer on a terminal.

use std::io::{self, BufRead, IsTerminal, Write};

use rustix::termios::{QueueSelector, tcflush};

use crate::error::{CommandError, ExitStatus};

/// Consent of the user to a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consent {
    /// `--yes`.
    Given,
    /// A terminal is there: show the entries, then [`ask`].
    ToAsk,
}

/// Consent that is given, or can be asked for: both stdin and stderr are a terminal then. `data_on_stdin`: stdin is read for
/// something else.
///
/// # Errors
/// Usage: neither `--yes` nor a terminal. Nothing may be changed then.
pub fn consent(yes: bool, data_on_stdin: bool) -> Result<Consent, CommandError> {
    if yes {
        return Ok(Consent::Given);
    }
    if data_on_stdin {
        return Err(refused("standard input holds the data"));
    }
    if io::stdin().is_terminal() && io::stderr().is_terminal() {
        Ok(Consent::ToAsk)
    } else {
        Err(refused("standard input and standard error are no terminal"))
    }
}

fn refused(why: &str) -> CommandError {
    CommandError::usage(format!("no confirmation is possible: {why}"))
        .hint("--yes goes ahead without asking, --dry-run shows what would be done")
}

/// Asks on the terminal that [`consent`] found.
///
/// # Errors
/// Failed: any answer but `y` or `yes`, and no answer. Nothing may be changed then.
pub fn ask(question: &str) -> Result<(), CommandError> {
    let mut stderr = io::stderr();
    // An answer from before the question is none. Where this fails, no terminal would answer either.
    let _ = tcflush(io::stdin(), QueueSelector::IFlush);
    // Without a visible question no answer counts.
    let asked = write!(stderr, "{question} [y/N] ").and_then(|()| stderr.flush());
    let mut answer = Vec::new();
    let answered = asked.and_then(|()| io::stdin().lock().read_until(b'\n', &mut answer));
    if answered.is_ok() && is_yes(&answer) {
        return Ok(());
    }
    if !answer.ends_with(b"\n") {
        // The cursor is still behind the question.
        let _ = writeln!(stderr);
    }
    Err(CommandError::new(
        ExitStatus::Failed,
        "not confirmed, nothing was changed",
    ))
}

fn is_yes(answer: &[u8]) -> bool {
    let answer = answer.trim_ascii();
    [&b"y"[..], b"yes"]
        .iter()
        .any(|yes| answer.eq_ignore_ascii_case(yes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_other_than_yes_confirms_nothing() {
        for yes in ["y\n", "Y", "yes\r\n", " YES \n"] {
            assert!(is_yes(yes.as_bytes()), "{yes:?}");
        }
        for no in [
            "",
            "\n",
            "n\n",
            "no\n",
            "ye\n",
            "yy\n",
            "yes please\n",
            "\u{ff}y\n",
        ] {
            assert!(!is_yes(no.as_bytes()), "{no:?}");
        }
    }

    #[test]
    fn data_on_stdin_is_not_taken_for_an_answer() {
        let refused = consent(false, true).unwrap_err();
        assert_eq!(refused.status, ExitStatus::Usage);
        assert_eq!(consent(true, true).unwrap(), Consent::Given);
    }
}
