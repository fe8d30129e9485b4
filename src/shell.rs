//! Shell completion: words that a flag takes, and names of the cluster as they were last read.
//!
//! The scripts in `completions/` ask the binary itself, through [`VARIABLE`], so that they do not change with the flags.
//! Completers belong to flags by name, so that a new command with the same flags has them, too.

pub mod names;

use std::ffi::OsStr;

use clap::{Arg, Command};
use clap_complete::CompleteEnv;
use clap_complete::engine::{
    ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};

use crate::error::{CommandError, ExitStatus};
use crate::output;
use crate::purge::policy::IncludeWord;
use crate::verdict::{Reason, Verdict};
use ctnetlink::flow::{self, ProtocolState};
use ctnetlink::netns;

use names::{NameKind, kept};

/// Environment variable by which a shell asks for candidates. Its value is the name of the shell.
pub const VARIABLE: &str = "CTK_COMPLETE";

/// Answers a shell that asks for candidates. `None`: no shell asks.
pub fn answer(program: &'static str) -> Option<Result<ExitStatus, CommandError>> {
    let ask = CompleteEnv::with_factory(|| command(program)).var(VARIABLE);
    match ask.try_complete(std::env::args_os(), std::env::current_dir().ok().as_deref()) {
        Ok(false) => None,
        Ok(true) => Some(Ok(ExitStatus::Done)),
        Err(error) => Some(Err(CommandError::usage(format!("{VARIABLE}: {error}")))),
    }
}

/// The command line with completers.
fn command(program: &'static str) -> Command {
    crate::args::program::command(program).mut_subcommands(|command| {
        // Groups have other sort keys than entries.
        let groups = command.get_name() == "top";
        command.mut_args(|arg| match completer(&arg) {
            Some(_) if groups && arg.get_long() == Some("sort") => arg,
            Some(completer) => arg.add(completer),
            None => arg,
        })
    })
}

/// Candidates for the last item of a list.
type WordSource = fn(&str) -> Vec<String>;

/// Candidates of the flags, by long name.
const LISTS: &[(&str, WordSource)] = &[
    ("svc", services),
    ("pod", pods),
    ("client", pods),
    ("endpoint", pods),
    ("namespace", |_| kept(NameKind::Namespace)),
    ("node", |_| kept(NameKind::Node)),
    ("netns", |_| namespaces()),
    ("columns", |_| columns("")),
    ("sort", sort_keys),
    ("verdict", |_| owned(Verdict::ALL.map(Verdict::name))),
    ("reason", |_| owned(Reason::ALL.iter().map(|r| r.name()))),
    ("include", |_| includes()),
    ("status", |_| statuses()),
    ("state", |_| states()),
];

fn completer(arg: &Arg) -> Option<ArgValueCompleter> {
    let Some(long) = arg.get_long() else {
        let names_a_service = arg.is_positional()
            && arg
                .get_value_names()
                .is_some_and(|names| names.iter().any(|name| name.starts_with("[NS/]NAME")));
        return names_a_service.then(|| ArgValueCompleter::new(WordList(services)));
    };
    if long == "cluster" {
        return Some(ArgValueCompleter::new(sources));
    }
    let (_, words) = LISTS.iter().find(|(name, _)| *name == long)?;
    Some(ArgValueCompleter::new(WordList(*words)))
}

/// Completer of a comma list whose items may begin with `!`. Only the last item is completed.
struct WordList(WordSource);

impl ValueCompleter for WordList {
    fn complete(&self, current: &OsStr) -> Vec<CompletionCandidate> {
        let Some(typed) = current.to_str() else {
            return Vec::new();
        };
        let start = typed.rfind([',', '!']).map_or(0, |at| at + 1);
        let (before, item) = typed.split_at(start);
        let words = (self.0)(item).into_iter();
        words
            .filter(|word| word.starts_with(item))
            .map(|word| CompletionCandidate::new(format!("{before}{word}")))
            .collect()
    }
}

fn owned(words: impl IntoIterator<Item = &'static str>) -> Vec<String> {
    words.into_iter().map(str::to_owned).collect()
}

fn services(typed: &str) -> Vec<String> {
    let kind = match typed.contains(':') {
        true => NameKind::Port,
        false => NameKind::Service,
    };
    by_short_name(typed, kept(kind))
}

fn pods(typed: &str) -> Vec<String> {
    by_short_name(typed, kept(NameKind::Pod))
}

/// Names without their namespace where they are unique and match the typed text, else whole.
fn by_short_name(typed: &str, names: Vec<String>) -> Vec<String> {
    let short = |name: &str| name.split_once('/').map_or("", |(_, name)| name).to_owned();
    let mut times = std::collections::HashMap::new();
    for name in &names {
        *times.entry(short(name)).or_insert(0) += 1;
    }
    let choose = |name: String| {
        let short = short(&name);
        let enough = short.starts_with(typed) && times.get(&short) == Some(&1);
        if enough { short } else { name }
    };
    names.into_iter().map(choose).collect()
}

fn columns(before: &str) -> Vec<String> {
    let keys = output::COLUMNS.iter();
    keys.map(|column| format!("{before}{}", column.key))
        .collect()
}

fn sort_keys(typed: &str) -> Vec<String> {
    columns(if typed.starts_with('-') { "-" } else { "" })
}

fn statuses() -> Vec<String> {
    let names = flow::Status::NAMES.into_iter().map(|(name, _)| name);
    owned(names.chain(["unreplied"]))
}

/// Names of network namespaces that need no quotes in a shell.
fn namespaces() -> Vec<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let mut names = netns::names();
    names.retain(|name| name.chars().all(plain));
    names
}

fn includes() -> Vec<String> {
    owned(IncludeWord::ALL.map(|word| word.verdict().name()))
}

/// States of all protocols in lower case, each once.
fn states() -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for name in ProtocolState::all_names() {
        let name = name.to_ascii_lowercase();
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
}

fn sources(current: &OsStr) -> Vec<CompletionCandidate> {
    let words = ["auto", "none", "api", "rules", "rules:", "-"].into_iter();
    let typed = current.to_str().unwrap_or_default();
    let words = words.filter(|word| word.starts_with(typed));
    let mut all: Vec<_> = words.map(CompletionCandidate::new).collect();
    all.extend(PathCompleter::file().complete(current));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(words: WordSource, typed: &str) -> Vec<String> {
        let candidates = WordList(words).complete(OsStr::new(typed)).into_iter();
        candidates
            .map(|one| one.get_value().to_string_lossy().into_owned())
            .collect()
    }

    #[test]
    fn completing_the_last_item_of_a_list_keeps_the_items_before_it() {
        let verdicts = LISTS.iter().find(|(name, _)| *name == "verdict").unwrap().1;
        assert_eq!(offered(verdicts, "sta"), ["stale"]);
        assert_eq!(offered(verdicts, "!sta"), ["!stale"]);
        assert_eq!(
            offered(verdicts, "ok,!un"),
            ["ok,!unknown", "ok,!unrelated"]
        );
        let keys = offered(sort_keys, "timeout,-original.s");
        assert_eq!(
            keys[..2],
            ["timeout,-original.src", "timeout,-original.sport"]
        );
        assert_eq!(offered(sort_keys, "-timeo"), ["-timeout"]);
        assert_eq!(offered(|_| states(), "est"), ["established"]);
        assert_eq!(offered(|_| statuses(), "unr"), ["unreplied"]);
    }

    #[test]
    fn an_ambiguous_name_is_offered_with_its_namespace() {
        let names = || owned(["kube-system/kube-dns", "shop/api", "test/api"]);
        assert_eq!(by_short_name("kube", names())[0], "kube-dns");
        assert_eq!(by_short_name("kube-s", names())[0], "kube-system/kube-dns");
        assert_eq!(
            by_short_name("", names()),
            ["kube-dns", "shop/api", "test/api"]
        );
    }

    #[test]
    fn a_completer_of_a_flag_that_does_not_exist_is_found() {
        let command = crate::args::program::command("ctk");
        let mut arguments = command.get_subcommands().flat_map(Command::get_arguments);
        let longs: Vec<_> = arguments.by_ref().filter_map(Arg::get_long).collect();
        for (name, _) in LISTS {
            assert!(longs.contains(name), "--{name}");
        }
    }
}
