//! Target `selectors`: command lines of `ls`, `purge` and `top`, one argument a line.

use clap::Parser;
use ctk::args::select::SelectArgs;
use ctk::args::{Cli, Command};
use ctk::attribution::{self, FrontendMatch};
use ctk::entry::Entry;
use ctk::filter::Outcome;
use ctk::output::wide_line;
use ctk::query::EntryQuery;
use ctk::select::{Directory, Selection};
use ctnetlink::testing::{HEADER, dump_request};

use crate::{print, samples};

/// Most arguments of one command line.
const MAX_ARGUMENTS: usize = 1 << 16;

pub fn target(data: &[u8]) -> usize {
    let text = String::from_utf8_lossy(data);
    let arguments = text.lines().take(MAX_ARGUMENTS);
    match Cli::try_parse_from(["ctk"].into_iter().chain(arguments)) {
        Err(error) => {
            drop(error.render().to_string());
            0
        }
        Ok(cli) => match &cli.command {
            Command::Ls(args) => check(&args.select),
            Command::Purge(args) => check(&args.select),
            Command::Top(args) => check(&args.select),
            _ => 0,
        },
    }
}

/// Returns the number of entries that the filter answers for.
fn check(args: &SelectArgs) -> usize {
    let query = match EntryQuery::new(args) {
        Ok(query) => query,
        Err(error) => {
            print::check_printable(&ctk::output::safe_text(&error.to_string()));
            return 0;
        }
    };
    assert!(
        !args.is_empty() || (query.filter.is_empty() && !query.needs_cluster()),
        "nothing was selected"
    );
    for dump in query.filter.dumps() {
        assert!(dump_request(&dump).len() > HEADER);
    }
    query.filter.explain();
    let index = samples::index();
    let selection = Selection::resolve(&query.selectors, Directory::Index(index));
    if let Err(error) = &selection {
        drop(error.to_string());
    }
    let lasting = query.filter.lasting();
    for flow in samples::flows() {
        let outcome = query.filter.test(flow, 1_790_000_100_000_000_000);
        if outcome == Outcome::Pass {
            let part = lasting.test(flow, 0);
            assert_eq!(part, Outcome::Pass, "a part of the filter excludes more");
        }
        let mut entry = Entry::bare(flow.clone());
        let matched = FrontendMatch::of(flow, index, &samples::NODE);
        entry.names = attribution::names(flow, matched, index);
        let mut line = String::new();
        wide_line(&entry, &mut line);
        query.filter.test_text(&line);
        if let Ok(selection) = &selection {
            assert!(!selection.test(&entry) || selection.by_parties(&entry));
        }
    }
    samples::flows().len()
}

/// See [`Target::grown`](crate::Target).
pub const GROWN: &[fn(usize) -> Vec<u8>] = &[ports, networks, names];

/// Networks of sources, each with its flag.
fn networks(pieces: usize) -> Vec<u8> {
    let mut text = "ls".to_owned();
    for piece in 0..pieces {
        let address = std::net::Ipv4Addr::from(0x0a00_0000 | piece as u32);
        text += &format!("\n--src\n{address}/32");
    }
    text.into()
}

/// One list of Services that no cluster has.
fn names(pieces: usize) -> Vec<u8> {
    let names: Vec<String> = (0..pieces).map(|piece| format!("a/s{piece}")).collect();
    format!("ls\n--svc\n{}", names.join(",")).into()
}

/// One list of ports.
fn ports(pieces: usize) -> Vec<u8> {
    let ports: Vec<String> = (0..pieces)
        .map(|piece| (piece % 60_000).to_string())
        .collect();
    format!("ls\n--sport\n{}", ports.join(",")).into()
}
