//! Findings as JSON for scripts. `text` prints them for people.

use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};

use crate::doctor::{Finding, Results, Severity};
use crate::output::{Summary, safe_json};

/// Results of one examination, ready to be printed.
pub struct Report<'a> {
    pub results: &'a Results,
    pub summary: &'a Summary,
    /// Length of the sample; `None` where it was looked once.
    pub looked: Option<Duration>,
    /// Time of the examination, printed where examinations are repeated.
    pub time: Option<SystemTime>,
}

/// Numbers of findings and of checks, for the summary of the JSON document.
pub fn summary_counts(results: &Results) -> Map<String, Value> {
    let findings = Severity::ALL.map(|severity| {
        let count = number_of(&results.findings, severity);
        (severity.name().to_owned(), count.into())
    });
    let undecided = results.undecided.iter();
    let undecided: Vec<Value> = undecided
        .map(|one| json!({"check": one.check, "lacks": one.lacks}))
        .collect();
    let checks = json!({"found": results.found, "fine": results.fine, "undecided": undecided});
    Map::from_iter([
        (
            "findings".to_owned(),
            Value::Object(findings.into_iter().collect()),
        ),
        ("checks".to_owned(), checks),
    ])
}

fn number_of(findings: &[Finding], severity: Severity) -> usize {
    let findings = findings.iter();
    findings
        .filter(|finding| finding.severity == severity)
        .count()
}

impl Report<'_> {
    /// One JSON document.
    ///
    /// # Errors
    /// The summary cannot be serialized.
    pub fn to_json(&self) -> io::Result<Vec<u8>> {
        let mut out = b"{\"schema\":\"ctk/v1\",\"items\":[\n".to_vec();
        let items: Vec<String> = self
            .results
            .findings
            .iter()
            .map(|finding| safe_json(&finding.to_json()))
            .collect();
        out.extend_from_slice(items.join(",\n").as_bytes());
        let summary = serde_json::to_value(self.summary)?;
        writeln!(out, "\n],\"summary\":{}}}", safe_json(&summary))?;
        Ok(out)
    }

    /// One line of JSON a finding, with the time where examinations are repeated.
    pub fn to_jsonl(&self) -> Vec<u8> {
        let time = self.time.map(rfc3339);
        let mut out = Vec::new();
        for finding in &self.results.findings {
            let mut item = finding.to_json();
            if let Some(time) = &time {
                item["time"] = json!(time);
            }
            out.extend_from_slice(safe_json(&item).as_bytes());
            out.push(b'\n');
        }
        out
    }
}

pub fn rfc3339(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_names_cannot_control_the_terminal() {
        let finding = Finding::info("x", "a\u{1b}[2Jb")
            .with("name", "\u{202e}")
            .help("\u{9b}");
        let (results, summary) = (
            Results {
                findings: vec![finding],
                ..Results::default()
            },
            Summary::default(),
        );
        let report = Report {
            results: &results,
            summary: &summary,
            looked: None,
            time: None,
        };
        let lines = String::from_utf8(report.to_jsonl()).unwrap();
        assert!(
            !lines.contains(['\u{1b}', '\u{202e}', '\u{9b}']),
            "{lines:?}"
        );
        let item: Value = serde_json::from_str(&lines).unwrap();
        assert_eq!(item["evidence"]["name"], "\u{202e}");
        assert!(item.get("time").is_none());
        let document = report.to_json().unwrap();
        let document: Value = serde_json::from_slice(&document).unwrap();
        assert_eq!(document["items"][0], item);
        assert_eq!(document["summary"]["shown"], 0);
    }
}
