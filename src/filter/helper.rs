//! Helper that is assigned to a flow, by name.

use std::str::FromStr;

use super::{BadValue, Outcome, Picks};
use ctnetlink::flow::{Flow, Status};

/// Longest name: `NF_CT_HELPER_NAME_LEN` is 16, with the closing NUL (include/net/netfilter/nf_conntrack_helper.h).
const MAX_LEN: usize = 15;

/// Name of a helper, or [`HelperName::NONE`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelperName(Option<Box<str>>);

impl HelperName {
    /// Word for entries without a helper.
    pub const NONE: &'static str = "none";
}

impl FromStr for HelperName {
    type Err = BadValue;

    /// # Errors
    ///
    /// A name that the kernel cannot hold: empty, longer than 15 bytes, or with blanks. The loaded modules decide which names
    /// exist, so that unknown ones are accepted.
    fn from_str(text: &str) -> Result<Self, BadValue> {
        if text.is_empty() || text.len() > MAX_LEN || text.contains(char::is_whitespace) {
            return Err(BadValue(format!(
                "{text:?} is no helper name; it has 1 to {MAX_LEN} characters and no blanks (ftp, sip, tftp), or is none"
            )));
        }
        Ok(HelperName((text != HelperName::NONE).then(|| text.into())))
    }
}

/// An entry without a helper is known to have none: the kernel tells the helper of every confirmed entry, in dumps and in
/// events. It does not tell that of an unconfirmed one.
pub(super) fn test(picks: &Picks<HelperName>, flow: &Flow) -> Outcome {
    let helper = flow.helper();
    if helper.is_none() && !flow.status.contains(Status::CONFIRMED) {
        return Outcome::Undecidable;
    }
    Outcome::of(picks.pass(|wanted| wanted.0.as_deref() == helper))
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
    fn a_confirmed_flow_has_a_helper_or_none() {
        let mut flow = udp(
            ["10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.1"],
            [1, 2, 2, 1],
        );
        for (text, expected) in [
            ("none", true),
            ("!ftp", true),
            ("ftp,none", true),
            ("ftp", false),
            ("!none", false),
        ] {
            assert_eq!(
                test(&picks(&[text]), &flow),
                Outcome::of(expected),
                "{text}"
            );
        }
        let mut unconfirmed = flow.clone();
        unconfirmed.status = Status::default();
        assert_eq!(test(&picks(&["none"]), &unconfirmed), Outcome::Undecidable);
        flow.rare_mut().helper = Some("sip".into());
        for (text, expected) in [
            ("sip", true),
            ("SIP", false),
            ("ftp", false),
            ("!ftp", true),
            ("ftp,sip", true),
            ("none", false),
            ("!none", true),
        ] {
            assert_eq!(
                test(&picks(&[text]), &flow),
                Outcome::of(expected),
                "{text}"
            );
        }
    }
}
