//! Findings as text for people: heading, sentence, a few rows, and what to do. Everything else is in JSON.

use crate::doctor::{About, Finding, Results, Rows, Severity};
use crate::output::{Alignment, Palette, Style, TextCell, bounded_table, safe_text};
use crate::plural::count;

use super::report::{Report, rfc3339};

/// Indent of everything below a heading.
const INDENT: &str = "  ";

impl Report<'_> {
    /// Findings, then one line with their numbers. Where examinations are repeated, a line with the time precedes them and,
    /// with `clear_screen`, the sequence that clears the terminal.
    pub fn to_text(&self, palette: Palette, clear_screen: bool) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(time) = self.time {
            if clear_screen {
                // Cursor home, then clear the previous report.
                out.extend_from_slice(b"\x1b[H\x1b[2J");
            }
            out.extend_from_slice(format!("{}\n\n", rfc3339(time)).as_bytes());
        }
        let groups = by_cause(&self.results.findings);
        for group in &groups {
            told(group, palette, &mut out);
            out.push(b'\n');
        }
        self.last_line(&groups, palette, &mut out);
        if self.time.is_some() {
            out.push(b'\n');
        }
        out
    }

    /// `2 critical, 1 warning, 14 checks fine, 3 without data (allowance: no driver with this counter), looked 6s at 412 entries`
    fn last_line(&self, groups: &[Vec<&Finding>], palette: Palette, out: &mut Vec<u8>) {
        for severity in Severity::ALL {
            let heads = groups.iter().filter_map(|group| group.first());
            let number = heads.filter(|head| head.severity == severity).count();
            if number > 0 {
                let text = format!("{number} {}", plural(severity, number));
                painted(&text, style(severity), palette, out);
                out.extend_from_slice(b", ");
            }
        }
        let Results {
            fine, undecided, ..
        } = self.results;
        let mut parts = vec![count(*fine as u64, "check fine", "checks fine")];
        if !undecided.is_empty() {
            parts.push(format!("{} without data", undecided.len()));
        }
        let entries = count(self.summary.scanned, "entry", "entries");
        parts.push(match self.looked {
            Some(time) => format!("looked {} at {entries}", humantime::format_duration(time)),
            None => format!("looked once at {entries}"),
        });
        out.extend_from_slice(format!("{}\n", parts.join(", ")).as_bytes());
    }
}

fn plural(severity: Severity, number: usize) -> &'static str {
    match (severity, number) {
        (Severity::Warning, 2..) => "warnings",
        _ => severity.name(),
    }
}

/// Names of all checks, with what each looks for.
pub fn list(checks: &[About], palette: Palette) -> String {
    let columns = [("CHECK", Alignment::Left), ("LOOKS FOR", Alignment::Left)];
    let rows = checks.iter().map(|check| {
        vec![
            TextCell::plain(check.name),
            TextCell::plain(check.looks_for),
        ]
    });
    bounded_table(&columns, rows, true, palette)
}

/// Findings with the same cause together, at the place of the most severe one.
fn by_cause(findings: &[Finding]) -> Vec<Vec<&Finding>> {
    let mut groups: Vec<Vec<&Finding>> = Vec::new();
    for finding in findings {
        let same = |group: &&mut Vec<&Finding>| {
            group
                .first()
                .is_some_and(|head| head.netns == finding.netns && head.shares_cause(finding))
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(finding),
            None => groups.push(vec![finding]),
        }
    }
    groups
}

fn told(group: &[&Finding], palette: Palette, out: &mut Vec<u8>) {
    let Some((head, others)) = group.split_first() else {
        return;
    };
    heading(head, palette, out);
    line(&head.message, out);
    rows(&head.rows, palette, out);
    for other in others {
        let from = match other.check == head.check {
            true => String::new(),
            false => format!(" ({}, {})", other.check, other.severity.name()),
        };
        line(&format!("also{from}: {}", other.message), out);
    }
    let mut told: Vec<&str> = Vec::new();
    for help in group.iter().filter_map(|finding| finding.help.as_deref()) {
        if !told.contains(&help) {
            told.push(help);
            line(&format!("help: {help}"), out);
        }
    }
}

/// `critical: stale UDP entries (stale-udp)`
fn heading(finding: &Finding, palette: Palette, out: &mut Vec<u8>) {
    painted(
        finding.severity.name(),
        style(finding.severity),
        palette,
        out,
    );
    out.extend_from_slice(b": ");
    painted(finding.title, Style::Heading, palette, out);
    out.extend_from_slice(format!(" ({})", finding.check).as_bytes());
    if !finding.netns.is_empty() {
        let names = safe_text(&finding.netns.join(", "));
        out.extend_from_slice(format!(" in netns {names}").as_bytes());
    }
    out.push(b'\n');
}

fn line(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("{INDENT}{}\n", safe_text(text)).as_bytes());
}

fn rows(rows: &Rows, palette: Palette, out: &mut Vec<u8>) {
    if rows.is_empty() {
        return;
    }
    let columns = rows
        .columns
        .iter()
        .map(|name| (name.as_str(), Alignment::Left));
    let columns: Vec<_> = columns.collect();
    let cells = rows.cells.iter().map(|row| {
        let cells = row.iter().map(|cell| TextCell::or_dash(cell.as_deref()));
        cells.collect()
    });
    for row in bounded_table(&columns, cells, true, palette).lines() {
        out.extend_from_slice(format!("{INDENT}{INDENT}{row}\n").as_bytes());
    }
}

fn style(severity: Severity) -> Style {
    match severity {
        Severity::Critical => Style::Bad,
        Severity::Warning => Style::Warning,
        Severity::Info => Style::Faint,
    }
}

fn painted(text: &str, style: Style, palette: Palette, out: &mut Vec<u8>) {
    palette.begin(out, style);
    out.extend_from_slice(text.as_bytes());
    palette.end(out, style);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::doctor::Undecided;
    use crate::output::{ColorChoice, Summary};

    fn printed(results: &Results, palette: Palette) -> String {
        let summary = Summary {
            scanned: 412,
            ..Summary::default()
        };
        let report = Report {
            results,
            summary: &summary,
            looked: Some(Duration::from_secs(6)),
            time: None,
        };
        String::from_utf8(report.to_text(palette, false)).unwrap()
    }

    fn results(findings: Vec<Finding>) -> Results {
        Results {
            findings,
            found: 2,
            fine: 14,
            undecided: Vec::new(),
        }
    }

    #[test]
    fn a_finding_has_a_heading_a_sentence_three_rows_and_what_to_do() {
        let endpoints: Vec<_> = (0..5)
            .map(|n| json!({"endpoint": format!("pod-{n}"), "flows": 30 - n}))
            .collect();
        let mut finding = Finding::warning("skew", "30 of 30")
            .with("entries", 30)
            .list("endpoints", endpoints)
            .help("do it");
        finding.title = "flows on one endpoint";
        assert_eq!(
            printed(&results(vec![finding]), Palette::PLAIN),
            "warning: flows on one endpoint (skew)\n\
             \x20 30 of 30\n\
             \x20   ENDPOINT  FLOWS\n\
             \x20   pod-0     30\n\
             \x20   pod-1     29\n\
             \x20   pod-2     28\n\
             \x20 help: do it\n\
             \n\
             1 warning, 14 checks fine, looked 6s at 412 entries\n"
        );
    }

    #[test]
    fn findings_of_one_cause_are_told_once_and_counted_once() {
        let all = vec![
            Finding::critical("a", "one").because("pod").help("do it"),
            Finding::warning("c", "else"),
            Finding::warning("c", "more"),
            Finding::info("b", "two").because("pod").help("do it"),
        ];
        let mut results = results(all);
        results.undecided = vec![Undecided {
            check: "d",
            lacks: "metrics",
        }];
        let text = printed(&results, Palette::PLAIN);
        assert!(
            text.starts_with("critical: a (a)\n  one\n  also (b, info): two\n  help: do it\n\n"),
            "{text}"
        );
        assert_eq!(text.matches("do it").count(), 1, "{text}");
        assert!(
            text.ends_with(
                "\n1 critical, 2 warnings, 14 checks fine, 1 without data, looked 6s at 412 entries\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn severity_has_a_colour_and_foreign_names_cannot_control_the_terminal() {
        let finding = Finding::critical("x", "a\u{1b}[2Jb")
            .list("names", vec![json!("\u{202e}")])
            .help("\u{9b}");
        let results = results(vec![finding]);
        let text = printed(&results, Palette::PLAIN);
        assert!(!text.contains(['\u{1b}', '\u{202e}', '\u{9b}']), "{text:?}");
        let palette = Palette::decide(ColorChoice::Always, |_| None, false);
        let text = printed(&results, palette);
        assert!(
            text.contains("\u{1b}[31;1mcritical\u{1b}")
                || text.contains("\u{1b}[1;31mcritical\u{1b}"),
            "{text:?}"
        );
    }
}
