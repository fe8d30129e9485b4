//! Manual pages: options as clap knows them, descriptions from the `.roff` files, examples from `--help`.

use std::io;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};

use super::NewFile;
use crate::doctor::{About, catalogue};

/// Date of the last change that matters to a reader.
const DATE: &str = "2026-11-30";

/// Descriptions of the pages, in man(7) macros. `ctk` is the program itself.
const DESCRIPTIONS: [(&str, &str); 10] = [
    ("ctk", include_str!("ctk.roff")),
    ("ls", include_str!("ls.roff")),
    ("watch", include_str!("watch.roff")),
    ("purge", include_str!("purge.roff")),
    ("restore", include_str!("restore.roff")),
    ("top", include_str!("top.roff")),
    ("svc", include_str!("svc.roff")),
    ("stat", include_str!("stat.roff")),
    ("doctor", include_str!("doctor.roff")),
    ("demo", include_str!("demo.roff")),
];

/// Line of a description in whose place the checks of `ctk doctor` stand.
const CHECKS: &str = ".\\\" CHECKS\n";

/// The description of a command. A command without one is described by the text of its `--help`.
fn description(command: &str) -> Option<String> {
    let (_, text) = DESCRIPTIONS.iter().find(|(name, _)| *name == command)?;
    Some(text.replace(CHECKS, &checks()))
}

/// Names of the checks, with what each looks for.
fn checks() -> String {
    let item = |check: About| {
        let [name, text] = [check.name, check.looks_for].map(|text| text.replace('-', "\\-"));
        format!(".TP\n.B {name}\n{text}\n")
    };
    catalogue().into_iter().map(item).collect()
}

/// Pages of section 1: the program and each command.
pub fn pages() -> io::Result<Vec<NewFile>> {
    let mut program = crate::args::program::command("ctk").disable_help_subcommand(true);
    program.build();
    let shown = program.get_subcommands().filter(|one| !one.is_hide_set());
    let commands: Vec<Command> = shown.cloned().collect();
    let names: Vec<String> = std::iter::once(&program)
        .chain(&commands)
        .map(page_name)
        .collect();
    std::iter::once(&program)
        .chain(&commands)
        .map(|command| {
            let name = page_name(command);
            Ok((format!("{name}.1"), page(command, &name, &names)?))
        })
        .collect()
}

/// `ctk` or `ctk-ls`.
fn page_name(command: &Command) -> String {
    let name = command.get_display_name();
    name.unwrap_or_else(|| command.get_name()).to_owned()
}

fn page(command: &Command, name: &str, all: &[String]) -> io::Result<Vec<u8>> {
    let man = Man::new(command.clone())
        .title(name.to_uppercase())
        .date(DATE)
        .source(format!("ctk {}", env!("CARGO_PKG_VERSION")))
        .manual("ctk manual");
    let mut out = Vec::new();
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    synopsis(command, &mut out)?;
    let help = Help::of(command);
    out.extend_from_slice(b".SH DESCRIPTION\n");
    match description(command.get_name()) {
        Some(text) => out.extend_from_slice(text.as_bytes()),
        None => {
            let about = command.get_long_about().or_else(|| command.get_about());
            let about = about.map(ToString::to_string).unwrap_or_default();
            paragraphs(about.split("\n\n"), &mut out)?;
        }
    }
    paragraphs(help.prose.iter().map(String::as_str), &mut out)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut out)?;
    }
    man.render_options_section(&mut out)?;
    examples(&help, &mut out)?;
    exit_status(command, &mut out)?;
    see_also(name, all, &mut out)?;
    Ok(tidy(&out))
}

fn synopsis(command: &Command, out: &mut Vec<u8>) -> io::Result<()> {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage);
    let mut roff = Roff::default();
    roff.control("SH", ["SYNOPSIS"]);
    for (index, line) in usage.lines().enumerate() {
        if index > 0 {
            roff.control("br", []);
        }
        roff.text([bold(line.trim())]);
    }
    roff.to_writer(out)
}

/// Text below the options of `--help`.
#[derive(Default)]
struct Help {
    /// Paragraphs.
    prose: Vec<String>,
    /// Command lines and their purposes.
    examples: Vec<(String, String)>,
}

impl Help {
    fn of(command: &Command) -> Self {
        let text = command.get_after_help().map(ToString::to_string);
        let text = text.unwrap_or_default();
        let (before, rest) = text.split_once("Examples:\n").unwrap_or((&text, ""));
        let (examples, after) = rest.split_once("\n\n").unwrap_or((rest, ""));
        let prose = before.split("\n\n").chain(after.split("\n\n"));
        Help {
            prose: prose
                .map(str::trim)
                .filter(|text| !text.is_empty())
                .map(str::to_owned)
                .collect(),
            examples: examples.lines().filter_map(example).collect(),
        }
    }
}

/// Parses a line like `  ctk ls --stale     its purpose`.
fn example(line: &str) -> Option<(String, String)> {
    let line = line.trim();
    let (command, purpose) = line.split_once("  ").unwrap_or((line, ""));
    let example = (command.to_owned(), purpose.trim().to_owned());
    (!command.is_empty()).then_some(example)
}

fn paragraphs<'t>(texts: impl IntoIterator<Item = &'t str>, out: &mut Vec<u8>) -> io::Result<()> {
    let mut roff = Roff::default();
    for text in texts.into_iter().filter(|text| !text.trim().is_empty()) {
        roff.control("PP", []);
        for line in text.lines() {
            roff.text([roman(line.trim())]);
        }
    }
    roff.to_writer(out)
}

fn examples(help: &Help, out: &mut Vec<u8>) -> io::Result<()> {
    if help.examples.is_empty() {
        return Ok(());
    }
    let mut roff = Roff::default();
    roff.control("SH", ["EXAMPLES"]);
    for (command, purpose) in &help.examples {
        roff.control("TP", []);
        roff.text([bold(command.as_str())]);
        roff.text([roman(sentence(purpose))]);
    }
    roff.to_writer(out)
}

/// Makes a sentence of a remark.
fn sentence(remark: &str) -> String {
    let mut letters = remark.chars();
    match letters.next() {
        None => String::new(),
        Some(first) => format!("{}{}.", first.to_uppercase(), letters.as_str()),
    }
}

const STATUSES: [(&str, &str); 6] = [
    ("0", "Done, also when nothing matched."),
    ("1", "Failed, or the question was answered with no."),
    (
        "2",
        "Usage: an impossible flag or value, no selector, no --yes without a terminal, more entries than --max, or an \
         unknown name. Nothing was changed.",
    ),
    (
        "3",
        "Partial: something is missing from the answer, or some entries failed or came back. Standard error says what.",
    ),
    (
        "4",
        "Not permitted. The message names the missing capability or API verb.",
    ),
    (
        "5",
        "Found: an entry matched with --exit-code, or doctor has a finding of severity warning or critical.",
    ),
];

fn exit_status(command: &Command, out: &mut Vec<u8>) -> io::Result<()> {
    let finds = |command: &Command| {
        let mut arguments = command.get_arguments();
        command.get_name() == "doctor" || arguments.any(|argument| argument.get_id() == "exit_code")
    };
    let found = finds(command) || command.get_subcommands().any(finds);
    let mut roff = Roff::default();
    roff.control("SH", ["EXIT STATUS"]);
    for (status, meaning) in STATUSES {
        if status == "5" && !found {
            continue;
        }
        roff.control("TP", []);
        roff.text([bold(status)]);
        roff.text([roman(meaning)]);
    }
    roff.to_writer(out)
}

fn see_also(name: &str, all: &[String], out: &mut Vec<u8>) -> io::Result<()> {
    let others = all.iter().filter(|other| *other != name);
    let mut pages: Vec<(&str, &str)> = others.map(|other| (other.as_str(), "1")).collect();
    pages.extend([("ctk-json", "5"), ("ctk-verdicts", "7"), ("conntrack", "8")]);
    let mut line: Vec<Inline> = Vec::new();
    for (index, (page, section)) in pages.into_iter().enumerate() {
        if index > 0 {
            line.push(roman(", "));
        }
        line.push(bold(page));
        line.push(roman(format!("({section})")));
    }
    let mut roff = Roff::default();
    roff.control("SH", ["SEE ALSO"]);
    roff.text(line);
    roff.to_writer(out)
}

/// Longest line of the source, in bytes.
const WIDTH: usize = 80;

/// Cleans the source of a page: the apostrophe is defined once (each part defines it), no break stands next to a blank line,
/// and long lines are broken.
fn tidy(page: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(page);
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let mut out = String::new();
    let mut preamble: Vec<&str> = Vec::new();
    let mut as_is = false;
    for (index, line) in lines.iter().enumerate() {
        let at = |index: usize| lines.get(index).copied().unwrap_or_default();
        let before = index.checked_sub(1).map_or("", at);
        let beside_blank = before.is_empty() || at(index + 1).is_empty();
        if *line == ".br" && beside_blank {
            continue;
        }
        if line.starts_with(".ie ") || line.starts_with(".el ") {
            if preamble.contains(line) {
                continue;
            }
            preamble.push(line);
        }
        match *line {
            ".nf" => as_is = true,
            ".fi" => as_is = false,
            _ => {}
        }
        if line.is_empty() && !as_is {
            out.push_str(".sp\n");
            continue;
        }
        // The tag after .TP ends with the line.
        if as_is || line.starts_with('.') || before == ".TP" {
            out.push_str(line);
            out.push('\n');
        } else {
            fill(line, &mut out);
        }
    }
    out.into_bytes()
}

/// Breaks a line of text at its blanks.
fn fill(line: &str, out: &mut String) {
    let mut width = 0;
    for word in line.split_whitespace() {
        if width > 0 && width + 1 + word.len() > WIDTH {
            out.push('\n');
            width = 0;
        }
        if width > 0 {
            out.push(' ');
            width += 1;
        } else if word.starts_with(['.', '\'']) {
            // At the beginning of a line it would be taken for a request.
            out.push_str("\\&");
        }
        out.push_str(word);
        width += word.len();
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_or_an_example_is_not_broken_into_lines() {
        let long = "word ".repeat(30);
        let page = format!(".TP\n{long}\n{long}\n.nf\n{long}\n.fi\n.br\n\n.br\nend\n");
        let tidied = String::from_utf8(tidy(page.as_bytes())).unwrap();
        let lines: Vec<_> = tidied.lines().collect();
        let long = long.trim_end();
        assert_eq!(lines[..2], [".TP", long]);
        assert_eq!(lines[2..4].join(" "), long);
        assert!(lines[2..4].iter().all(|line| line.len() <= WIDTH));
        assert_eq!(lines[4..], [".nf", long, ".fi", ".sp", "end"]);
    }

    #[test]
    fn a_line_of_an_example_is_a_command_and_its_purpose() {
        let two = |a: &str, b: &str| Some((a.to_owned(), b.to_owned()));
        assert_eq!(
            example("  ctk ls --stale    those"),
            two("ctk ls --stale", "those")
        );
        assert_eq!(example("  ctk demo"), two("ctk demo", ""));
        assert_eq!(example("   "), None);
    }
}
