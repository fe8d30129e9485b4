//! Finding of a check: severity, one sentence, numbers, and help.

use serde_json::{Map, Value};

/// Severity of a finding. `ctk doctor` ends with status 5 for a finding above `Info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Information; nothing is broken.
    Info,
    /// Some packets are lost, or will be soon.
    Warning,
    /// Packets are lost now, and that does not end by itself.
    Critical,
}

impl Severity {
    pub const ALL: [Severity; 3] = [Severity::Critical, Severity::Warning, Severity::Info];

    /// Name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Critical => "critical",
        }
    }
}

/// One finding. Its text may hold names from outside, which the printer must make safe.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Name of the check.
    pub check: &'static str,
    pub severity: Severity,
    /// One sentence with the decisive number.
    pub message: String,
    /// Numbers by name, lists of objects, and `examples`: entries as lines of text. Unknown values are null.
    pub evidence: Map<String, Value>,
    /// Command or setting that helps.
    pub help: Option<String>,
}

impl Finding {
    pub fn new(check: &'static str, severity: Severity, message: impl Into<String>) -> Self {
        Finding {
            check,
            severity,
            message: message.into(),
            evidence: Map::new(),
            help: None,
        }
    }

    pub fn info(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(check, Severity::Info, message)
    }

    pub fn warning(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(check, Severity::Warning, message)
    }

    pub fn critical(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(check, Severity::Critical, message)
    }

    /// Adds a number, a list or a text under a name.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.evidence.insert(name.to_owned(), value.into());
        self
    }

    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// The item of the JSON output.
    pub fn to_json(&self) -> Value {
        serde_json::json!({
            "check": self.check,
            "severity": self.severity.name(),
            "message": self.message,
            "evidence": self.evidence,
            "help": self.help,
        })
    }
}

/// Sorts by descending severity, then by check. Findings of one check keep their order.
pub fn sort(findings: &mut [Finding]) {
    findings.sort_by_key(|finding| (std::cmp::Reverse(finding.severity), finding.check));
}

/// Addition to the sentence about a counter that is above zero and did not change between the two readings; empty without a
/// second reading.
pub fn unchanged_note(changes: Option<u64>) -> &'static str {
    match changes {
        Some(0) => "; none while it was looked",
        _ => "",
    }
}

/// `part` of `whole` in percent, rounded down; `None` if `whole` is 0.
pub fn percent(part: u64, whole: u64) -> Option<u64> {
    let percent = u128::from(part) * 100 / u128::from(whole).max(1);
    (whole > 0).then_some(percent as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_finding_comes_first_and_has_its_contract_shape() {
        let mut all = vec![
            Finding::info("b", "x"),
            Finding::warning("a", "x"),
            Finding::critical("z", "1 entry").with("n", 1).help("do it"),
        ];
        sort(&mut all);
        let names: Vec<_> = all.iter().map(|finding| finding.check).collect();
        assert_eq!(names, ["z", "a", "b"]);
        assert_eq!(
            all[0].to_json(),
            serde_json::json!({
                "check": "z", "severity": "critical", "message": "1 entry", "evidence": {"n": 1}, "help": "do it",
            })
        );
        assert_eq!(all[1].to_json()["help"], Value::Null);
    }

    #[test]
    fn a_share_of_nothing_is_not_zero() {
        assert_eq!(percent(0, 0), None);
        assert_eq!(percent(63_900, 64_512), Some(99));
        assert_eq!(percent(u64::MAX, u64::MAX), Some(100));
    }
}
