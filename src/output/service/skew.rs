//! The section `SKEW`: how evenly flows are spread over the endpoints, and the reason.

use crate::service::{Reach, ServiceReport};
use crate::spread::Spread;

use super::super::color::Style;
use super::super::groups::percent;
use super::{ServiceStyle, line};

/// Bytes of a line at which sentences are wrapped.
const MAX_LINE_WIDTH: usize = 110;

/// The section: one spread for each reach, most flows first.
pub(super) fn skews(report: &ServiceReport, style: ServiceStyle) -> String {
    let mut text = line(style, Style::Heading, "SKEW (flows on this node)");
    let several = report.spreads.len() > 1;
    for (reach, spread) in &report.spreads {
        let title = match reach {
            _ if !several => None,
            Reach::Cluster => Some("flows that may go to every endpoint:"),
            Reach::Local => {
                Some("flows that may go to endpoints on this node only, by traffic policy:")
            }
            Reach::NotKnown => Some(
                "flows of which it is not known whether a traffic policy keeps them on this node:",
            ),
        };
        if let Some(title) = title {
            text += &line(style, Style::Plain, title);
        }
        text += &skew(spread, style);
    }
    text
}

/// `busiest has 40 of 43 open flows (93.0%), max/mean 40/14.3 = 2.8, ...`, then the sentence of the reason.
fn skew(spread: &Spread, style: ServiceStyle) -> String {
    let Spread {
        flows,
        max,
        share,
        ratio,
        mean,
        clients,
        source_ports,
        ..
    } = spread;
    let mut facts = Vec::new();
    if let (Some(share), Some(ratio), Some(mean)) = (share, ratio, mean) {
        facts.push(format!(
            "busiest has {max} of {flows} open flows ({}), max/mean {max}/{mean:.1} = {ratio:.1}",
            percent(*share)
        ));
        facts.push(format!("clients: {}", clients));
        facts.push(format!("source ports: {}", source_ports));
    }
    let mut text = String::new();
    if !facts.is_empty() {
        text += &line(style, Style::Plain, &facts.join(", "));
    }
    let reason_style = match spread.is_beyond_chance() {
        true => Style::Warning,
        false => Style::Plain,
    };
    for part in wrapped(&spread.sentence()) {
        text += &line(style, reason_style, &part);
    }
    text
}

/// Wraps a text into lines of at most [`MAX_LINE_WIDTH`] bytes; a longer word gets a line of its own.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= MAX_LINE_WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_wrapped_between_words() {
        let text = "word ".repeat(60);
        let lines = wrapped(&text);
        assert_eq!(lines.len(), 3);
        assert!(
            lines.iter().all(|line| line.len() <= MAX_LINE_WIDTH),
            "{lines:?}"
        );
        assert_eq!(lines.join(" "), text.trim());
    }
}
