//! Findings as text for people and as JSON for scripts.

use std::io::{self, Write};
use std::time::SystemTime;

use serde_json::{Map, Value, json};

use crate::output::{Palette, Style, Summary, safe_json, safe_text};
use crate::plural::count;

use crate::doctor::{Finding, Severity};

/// Findings of one examination, ready to be printed.
pub struct Report<'a> {
    pub findings: &'a [Finding],
    pub summary: &'a Summary,
    /// Time of the examination, printed where examinations are repeated.
    pub time: Option<SystemTime>,
}

/// Number of findings of each severity, for the summary of the JSON document.
pub fn summary_counts(findings: &[Finding]) -> Map<String, Value> {
    let of = |severity| findings.iter().filter(|f| f.severity == severity).count();
    let all = Severity::ALL.map(|severity| (severity.name().to_owned(), of(severity).into()));
    let counts: Map<String, Value> = all.into_iter().collect();
    Map::from_iter([("findings".to_owned(), Value::Object(counts))])
}

impl Report<'_> {
    /// Sentences with their evidence. Where examinations are repeated, a line with the time precedes them and, with
    /// `clear_screen`, the sequence that clears the terminal.
    pub fn to_table(&self, palette: Palette, clear_screen: bool) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(time) = self.time {
            if clear_screen {
                // Cursor home, then clear the previous report.
                out.extend_from_slice(b"\x1b[H\x1b[2J");
            }
            let line = format!(
                "{}: {} in {}\n\n",
                rfc3339(time),
                tally(self.findings),
                count(self.summary.scanned, "entry", "entries")
            );
            out.extend_from_slice(line.as_bytes());
        }
        for (position, finding) in self.findings.iter().enumerate() {
            if position > 0 {
                out.push(b'\n');
            }
            sentence(finding, palette, &mut out);
        }
        if self.time.is_some() && !self.findings.is_empty() {
            out.push(b'\n');
        }
        out
    }

    /// One JSON document.
    ///
    /// # Errors
    /// The summary cannot be serialized.
    pub fn to_json(&self) -> io::Result<Vec<u8>> {
        let mut out = b"{\"schema\":\"ctk/v1\",\"items\":[\n".to_vec();
        let items: Vec<String> = self
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
        for finding in self.findings {
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

fn rfc3339(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}

/// `1 critical, 2 info`, or `nothing found`.
fn tally(findings: &[Finding]) -> String {
    let counts = Severity::ALL.map(|severity| {
        let count = findings.iter().filter(|f| f.severity == severity).count();
        (count > 0).then(|| format!("{count} {}", severity.name()))
    });
    let counts: Vec<String> = counts.into_iter().flatten().collect();
    match counts.is_empty() {
        true => "nothing found".to_owned(),
        false => counts.join(", "),
    }
}

/// Indent of evidence and help, to the column of the check's name.
const INDENT: &str = "          ";

fn sentence(finding: &Finding, palette: Palette, out: &mut Vec<u8>) {
    let style = match finding.severity {
        Severity::Critical => Style::Bad,
        Severity::Warning => Style::Warning,
        Severity::Info => Style::Faint,
    };
    let word = finding.severity.name();
    palette.begin(out, style);
    out.extend_from_slice(word.as_bytes());
    palette.end(out, style);
    let gap = INDENT.get(word.len()..).unwrap_or(" ");
    let message = safe_text(&finding.message);
    out.extend_from_slice(format!("{gap}{}: {message}\n", finding.check).as_bytes());
    for line in evidence(&finding.evidence) {
        let line = format!("{INDENT}{}\n", safe_text(&line));
        palette.begin(out, Style::Faint);
        out.extend_from_slice(line.as_bytes());
        palette.end(out, Style::Faint);
    }
    if let Some(help) = &finding.help {
        out.extend_from_slice(format!("{INDENT}help: {}\n", safe_text(help)).as_bytes());
    }
}

/// Formats numbers as one line, then each member of a list as a line, examples last.
fn evidence(evidence: &Map<String, Value>) -> Vec<String> {
    let mut lines = Vec::new();
    let scalars: Vec<String> = evidence
        .iter()
        .filter(|(_, value)| !value.is_array() && !value.is_null())
        .map(|(name, value)| pair(name, value))
        .collect();
    if !scalars.is_empty() {
        lines.push(scalars.join(", "));
    }
    let (examples, lists): (Vec<_>, Vec<_>) = evidence
        .iter()
        .filter_map(|(name, value)| Some((name, value.as_array()?)))
        .filter(|(_, members)| !members.is_empty())
        .partition(|(name, _)| *name == "examples");
    for (name, members) in lists {
        let all_plain = members.iter().all(|member| !member.is_object());
        if all_plain {
            let members: Vec<String> = members.iter().map(plain).collect();
            lines.push(format!("{} {}", words(name), members.join(", ")));
        } else {
            lines.extend(members.iter().map(plain));
        }
    }
    for (_, members) in examples {
        lines.extend(
            members
                .iter()
                .map(|member| format!("e.g. {}", plain(member))),
        );
    }
    lines
}

fn words(name: &str) -> String {
    name.replace('_', " ")
}

fn pair(name: &str, value: &Value) -> String {
    format!("{} {}", words(name), plain(value))
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        Value::Object(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(name, value)| pair(name, value))
                .collect();
            fields.join(", ")
        }
        Value::Array(members) => members.iter().map(plain).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(finding: &Finding) -> String {
        let mut out = Vec::new();
        sentence(finding, Palette::PLAIN, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_finding_reads_as_a_sentence_with_its_evidence() {
        let finding = Finding::warning("skew", "30 of 30")
            .with("entries", 30)
            .with("unknown", Value::Null)
            .with(
                "endpoints",
                json!([{"endpoint": "a", "flows": 30}, {"endpoint": "b", "flows": 0}]),
            )
            .with("addresses", json!(["192.0.2.1", "192.0.2.2"]))
            .with("examples", json!(["udp a > b"]))
            .help("do it");
        assert_eq!(
            printed(&finding),
            "warning   skew: 30 of 30\n\
             \x20         entries 30\n\
             \x20         addresses 192.0.2.1, 192.0.2.2\n\
             \x20         endpoint a, flows 30\n\
             \x20         endpoint b, flows 0\n\
             \x20         e.g. udp a > b\n\
             \x20         help: do it\n"
        );
    }

    #[test]
    fn foreign_names_cannot_control_the_terminal() {
        let finding = Finding::info("x", "a\u{1b}[2Jb")
            .with("name", "\u{202e}")
            .help("\u{9b}");
        let text = printed(&finding);
        assert!(!text.contains(['\u{1b}', '\u{202e}', '\u{9b}']), "{text:?}");
        let summary = Summary::default();
        let report = Report {
            findings: &[finding],
            summary: &summary,
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
