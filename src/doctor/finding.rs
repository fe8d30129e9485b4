//! Finding of a check: severity, one sentence, numbers, example rows, and help.

use serde_json::{Map, Value};

use super::example::Examples;

use super::rows::Rows;

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
    /// [`Check::title`](super::Check::title) of the check, for text.
    pub title: &'static str,
    pub severity: Severity,
    /// One sentence with the decisive number.
    pub message: String,
    /// Numbers by name, lists of objects, and `examples`: entries as lines of text. Unknown values are null.
    pub evidence: Map<String, Value>,
    /// Rows for text, from the evidence.
    pub rows: Rows,
    /// Command or setting that helps. A command begins with `ctk` and ends with the text, before `;` or before `)`.
    pub help: Option<String>,
    cause: Option<String>,
    /// Network namespaces of the finding, where several are examined.
    pub netns: Vec<String>,
}

impl Finding {
    pub fn new(check: &'static str, severity: Severity, message: impl Into<String>) -> Self {
        Finding {
            check,
            title: check,
            severity,
            message: message.into(),
            evidence: Map::new(),
            rows: Rows::default(),
            help: None,
            cause: None,
            netns: Vec::new(),
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
    pub fn titled(mut self, title: &'static str) -> Self {
        self.title = title;
        self
    }

    /// Adds entries as evidence, and as rows unless a list gives them.
    #[must_use]
    pub fn examples(mut self, examples: &Examples) -> Self {
        if self.rows.is_empty() {
            self.rows = examples.rows();
        }
        self.with("examples", examples.to_json())
    }

    /// Adds a list of objects or sentences as evidence and as rows.
    #[must_use]
    pub fn list(mut self, name: &str, members: Vec<Value>) -> Self {
        self.rows = Rows::of_list(name, &members);
        self.with(name, members)
    }

    /// Names the cause. Text tells findings with the same cause together.
    #[must_use]
    pub fn because(mut self, cause: impl Into<String>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// Whether both say the same, with the same numbers.
    pub fn says_as(&self, other: &Finding) -> bool {
        (self.check, self.severity, &self.message, &self.help)
            == (other.check, other.severity, &other.message, &other.help)
            && self.evidence == other.evidence
    }

    /// Whether the other finding has the same cause: the one that both name, else the same help of the same check.
    pub fn shares_cause(&self, other: &Finding) -> bool {
        match (&self.cause, &other.cause) {
            (Some(one), Some(other)) => one == other,
            (None, None) => {
                self.check == other.check && self.help.is_some() && self.help == other.help
            }
            _ => false,
        }
    }

    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// The item of the JSON output.
    pub fn to_json(&self) -> Value {
        let mut item = serde_json::json!({
            "check": self.check,
            "severity": self.severity.name(),
            "message": self.message,
            "evidence": self.evidence,
            "help": self.help,
        });
        if !self.netns.is_empty() {
            item["netns"] = self.netns.as_slice().into();
        }
        item
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
    fn a_named_cause_joins_checks_and_the_same_help_joins_findings_of_one() {
        let finding = |check| Finding::info(check, "x");
        assert!(!finding("a").shares_cause(&finding("a")));
        assert!(finding("a").help("h").shares_cause(&finding("a").help("h")));
        assert!(!finding("a").help("h").shares_cause(&finding("b").help("h")));
        let named = |check| finding(check).because("pod 10.1.0.7");
        assert!(named("a").shares_cause(&named("b").help("h")));
        assert!(!named("a").shares_cause(&finding("a")));
    }
}
