//! Selectors on the properties that the kernel reports of an entry: one predicate a file, with its parser and its tests.
//!
//! Different flags mean "and", values of one flag "or", negated values all exclude (see [`list`]). Every entry is tested
//! here, also when [`Filter::dumps`] made the kernel filter: old kernels ignore filters that they do not know. Selectors by cluster names and verdicts are in [`crate::select`].

pub mod cidr;
pub mod helper;
pub mod id;
mod kernel;
pub mod label;
pub mod list;
pub mod mark;
pub mod nat;
pub mod number;
pub mod packet;
pub mod port;
pub mod protocol;
pub mod state;
pub mod status;
pub mod suggest;
pub mod text;
pub mod zone;

use ctnetlink::DumpFilter;
use ctnetlink::flow::{Family, Flow};

pub use list::{BadValue, List, Picks};

use regex::Regex;

/// Answer of a filter for one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Pass,
    Fail,
    /// The entry lacks a value that some selector needs (ports of ICMP, counters without accounting), and no other selector
    /// excludes it. It is not selected; callers count these.
    Undecidable,
}

impl Outcome {
    #[inline]
    fn of(pass: bool) -> Self {
        if pass { Outcome::Pass } else { Outcome::Fail }
    }

    #[inline]
    fn of_known<V>(value: Option<V>, pass: impl FnOnce(V) -> bool) -> Self {
        value.map_or(Outcome::Undecidable, |value| Outcome::of(pass(value)))
    }
}

/// Place of an address or port in the two tuples of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// Original source.
    Src,
    /// Original destination.
    Dst,
    ReplySrc,
    ReplyDst,
    /// Any of the four.
    Any,
}

/// One selector.
#[derive(Clone, Debug)]
pub enum EntryTest {
    Family(Family),
    Protocols(protocol::Protocols),
    Address(Field, Picks<cidr::Cidr>),
    Port(Field, Picks<port::PortRange>),
    Status(Picks<status::StatusWord>),
    State(Picks<state::StateWord>),
    Nat(nat::Nat),
    /// Translated to a source that is none of these addresses.
    LostSource(nat::OwnAddresses),
    /// Time left until the entry ends.
    Ttl(Picks<number::Span>),
    /// Time since the entry was made.
    Age(Picks<number::Span>),
    /// Sum of both directions.
    Packets(Picks<number::Count>),
    /// Sum of both directions.
    Bytes(Picks<number::Count>),
    Mark(Picks<mark::Mark>),
    Zone(Picks<zone::ZoneId>),
    Label(Picks<label::Label>),
    Helper(Picks<helper::HelperName>),
    Id(Picks<id::EntryId>),
}

impl EntryTest {
    fn test(&self, flow: &Flow, now_ns: u64) -> Outcome {
        match self {
            EntryTest::Family(family) => Outcome::of(flow.family() == *family),
            EntryTest::Protocols(protocols) => protocols.test(flow),
            EntryTest::Address(field, picks) => cidr::test(*field, picks, flow),
            EntryTest::Port(field, picks) => port::test(*field, picks, flow),
            EntryTest::Status(picks) => status::test(picks, flow),
            EntryTest::State(picks) => state::test(picks, flow),
            EntryTest::Nat(nat) => nat::test(*nat, flow),
            EntryTest::LostSource(own) => Outcome::of(nat::has_lost_source(flow, own)),
            EntryTest::Ttl(picks) => Outcome::of_known(flow.timeout, |left| {
                picks.pass(|span| span.holds_seconds(left))
            }),
            EntryTest::Age(picks) => Outcome::of_known(flow.start, |start| {
                // Clocks can step back: an entry from the future is new.
                let age = now_ns.saturating_sub(start);
                picks.pass(|span| span.holds(age))
            }),
            EntryTest::Packets(picks) => {
                Outcome::of_known(flow.packets(), |n| picks.pass(|count| count.holds(n)))
            }
            EntryTest::Bytes(picks) => {
                Outcome::of_known(flow.bytes(), |n| picks.pass(|count| count.holds(n)))
            }
            EntryTest::Mark(picks) => mark::test(picks, flow),
            EntryTest::Zone(picks) => zone::test(picks, flow),
            EntryTest::Label(picks) => label::test(picks, flow),
            EntryTest::Helper(picks) => helper::test(picks, flow),
            EntryTest::Id(picks) => id::test(picks, flow),
        }
    }
}

impl EntryTest {
    /// Returns whether the tested property never changes while an entry lives.
    const fn is_lasting(&self) -> bool {
        match self {
            EntryTest::Family(_)
            | EntryTest::Protocols(_)
            | EntryTest::Address(..)
            | EntryTest::Port(..)
            | EntryTest::Nat(_)
            | EntryTest::LostSource(_)
            | EntryTest::Zone(_)
            | EntryTest::Id(_) => true,
            EntryTest::Status(_)
            | EntryTest::State(_)
            | EntryTest::Ttl(_)
            | EntryTest::Age(_)
            | EntryTest::Packets(_)
            | EntryTest::Bytes(_)
            | EntryTest::Mark(_)
            | EntryTest::Label(_)
            | EntryTest::Helper(_) => false,
        }
    }
}

/// A selector with its text on the command line.
#[derive(Clone, Debug)]
struct Test {
    typed: String,
    check: EntryTest,
}

/// All selectors on the properties that the kernel reports. The default filter passes every entry.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    tests: Vec<Test>,
    /// Expressions on the printed line, with their text on the command line.
    text: Option<(String, Picks<Regex>)>,
}

impl Filter {
    /// Adds a selector. `typed`: its text on the command line, for [`Filter::explain`].
    pub fn push(&mut self, typed: impl Into<String>, check: EntryTest) {
        self.tests.push(Test {
            typed: typed.into(),
            check,
        });
    }

    /// Adds a selector for all values of one flag, unless there are none.
    pub fn add<T: Clone>(
        &mut self,
        flag: &str,
        lists: &[List<T>],
        check: impl FnOnce(Picks<T>) -> EntryTest,
    ) {
        if !lists.is_empty() {
            let typed = typed(flag, lists.iter().map(List::text));
            self.push(typed, check(Picks::from(lists)));
        }
    }

    /// Adds expressions on the printed line.
    pub fn match_text(&mut self, flag: &str, patterns: &[text::Pattern]) {
        if !patterns.is_empty() {
            let texts: Vec<String> = patterns.iter().map(text::Pattern::text).collect();
            let typed = typed(flag, texts.iter().map(String::as_str));
            self.text = Some((typed, text::picks(patterns)));
        }
    }

    /// Returns whether every entry passes.
    pub fn is_empty(&self) -> bool {
        self.tests.is_empty() && self.text.is_none()
    }

    /// Returns whether certain addresses, ports, entries or lines are selected.
    pub fn names_places(&self) -> bool {
        let names = |test: &Test| match &test.check {
            EntryTest::Address(_, picks) => !picks.plain().is_empty(),
            EntryTest::Port(_, picks) => !picks.plain().is_empty(),
            EntryTest::Id(picks) => !picks.plain().is_empty(),
            EntryTest::Protocols(protocols) => protocols.names_ports(),
            _ => false,
        };
        self.text.is_some() || self.tests.iter().any(names)
    }

    /// Tests everything but the printed line. `now_ns` is the time of the table in nanoseconds since the Unix epoch, for
    /// ages. A failed selector wins over one that cannot be decided.
    #[inline]
    pub fn test(&self, flow: &Flow, now_ns: u64) -> Outcome {
        let mut outcome = Outcome::Pass;
        for test in &self.tests {
            match test.check.test(flow, now_ns) {
                Outcome::Fail => return Outcome::Fail,
                Outcome::Undecidable => outcome = Outcome::Undecidable,
                Outcome::Pass => {}
            }
        }
        outcome
    }

    /// Returns whether the printed line has to be tested with [`Filter::test_text`], too.
    pub fn wants_text(&self) -> bool {
        self.text.is_some()
    }

    /// Tests the printed line: the wide columns of the entry joined by one blank, unpadded and uncoloured.
    pub fn test_text(&self, line: &str) -> bool {
        self.text
            .as_ref()
            .is_none_or(|(_, picks)| text::test(picks, line))
    }

    /// Returns the dumps that together hold every entry that [`Filter::test`] passes, each once. Their entries must be tested
    /// all the same.
    pub fn dumps(&self) -> Vec<DumpFilter> {
        kernel::plan(&self.tests).dumps
    }

    /// Returns the selectors whose answer never changes while an entry lives.
    #[must_use]
    pub fn lasting(&self) -> Filter {
        let tests = self.tests.iter().filter(|test| test.check.is_lasting());
        Filter {
            tests: tests.cloned().collect(),
            text: None,
        }
    }

    /// Returns one line for each dump and each selector, which tells whether the kernel or this program applies it.
    pub fn explain(&self) -> Vec<String> {
        let plan = kernel::plan(&self.tests);
        let mut lines: Vec<String> = plan.dumps.iter().map(kernel::describe).collect();
        lines.extend(self.tests.iter().zip(plan.pushed).map(|(test, pushed)| {
            let place = match pushed {
                kernel::Pushed::Whole => "kernel, and again in user space",
                kernel::Pushed::Part => "kernel in part, user space decides",
                kernel::Pushed::Nothing => "user space",
            };
            format!("{}: {place}", test.typed)
        }));
        if let Some((typed, _)) = &self.text {
            lines.push(format!("{typed}: user space, on the printed line"));
        }
        lines
    }
}

fn typed<'a>(flag: &str, texts: impl Iterator<Item = &'a str>) -> String {
    texts
        .map(|text| format!("{flag} {text}"))
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests;
