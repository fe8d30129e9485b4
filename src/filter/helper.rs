//! The helper that reads a flow, by name.

use std::str::FromStr;

use super::{BadValue, Outcome, Picks};
use ctnetlink::flow::Flow;

/// `NF_CT_HELPER_NAME_LEN` is 16, with the closing NUL.
const LONGEST: usize = 15;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelperName(Box<str>);

impl FromStr for HelperName {
    type Err = BadValue;

    /// # Errors
    ///
    /// A name that the kernel cannot hold: empty, over 15 bytes, with blanks. Which names exist depends on the modules.
    fn from_str(text: &str) -> Result<Self, BadValue> {
        if text.is_empty() || text.len() > LONGEST || text.contains(char::is_whitespace) {
            return Err(BadValue(format!(
                "{text:?} is no helper name; it has 1 to {LONGEST} characters and no blanks (ftp, sip, tftp)"
            )));
        }
        Ok(HelperName(text.into()))
    }
}

pub(super) fn test(picks: &Picks<HelperName>, flow: &Flow) -> Outcome {
    Outcome::of_known(flow.helper(), |name| {
        picks.pass(|wanted| &*wanted.0 == name)
    })
}

#[cfg(test)]
mod tests {
    use super::super::list::tests::picks;
    use super::super::tests::udp;
    use super::*;

    #[test]
    fn a_name_that_the_kernel_cannot_hold_is_refused() {
        for text in ["ftp", "Q.931", "123456789012345"] {
            assert!(text.parse::<HelperName>().is_ok(), "{text}");
        }
        for text in ["", "1234567890123456", "f tp"] {
            assert!(text.parse::<HelperName>().is_err(), "{text}");
        }
    }

    #[test]
    fn flows_without_a_helper_are_not_decided() {
        let mut flow = udp(
            ["10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.1"],
            [1, 2, 2, 1],
        );
        assert_eq!(test(&picks(&["!ftp"]), &flow), Outcome::Undecidable);
        flow.rare_mut().helper = Some("sip".into());
        for (text, expected) in [
            ("sip", true),
            ("SIP", false),
            ("ftp", false),
            ("!ftp", true),
            ("ftp,sip", true),
        ] {
            assert_eq!(
                test(&picks(&[text]), &flow),
                Outcome::of(expected),
                "{text}"
            );
        }
    }
}
