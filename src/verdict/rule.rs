//! The decision table.

use super::{Reason, Verdict};

/// The answer for one entry.
#[derive(Clone, Debug)]
pub struct Judgement<'c> {
    pub verdict: Verdict,
    pub reason: Reason,
    pub evidence: Evidence<'c>,
}

/// One plain sentence that an operator can act on, written only when it is printed.
#[derive(Clone, Debug)]
pub struct Evidence<'c>(std::marker::PhantomData<&'c ()>);

impl std::fmt::Display for Evidence<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("")
    }
}
