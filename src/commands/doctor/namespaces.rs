//! `doctor --netns all` and `--netns A,B`: the checks on the tables of several namespaces at the same time.

use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use super::report::summary_counts;
use super::{Diagnosis, Summary};
use crate::args::doctor::DoctorArgs;
use crate::doctor::{Finding, Results, WRONG_NAMESPACE, catalogue, sort};
use crate::error::{CommandError, ExitStatus};
use crate::query::{BuiltinCluster, SourceQuery};
use crate::session::caveats::Caveats;
use crate::session::namespaces::{GIVE_ONE, Namespaces, refuse_names};
use crate::terminal::messages::{self, note};
use ctnetlink::netns::Netns;

/// Namespaces that are examined at the same time.
const MAX_PARALLEL: usize = 16;

/// Result of one namespace.
type Examined = (String, Result<(Diagnosis, Caveats), CommandError>);

pub fn run(
    builtin: BuiltinCluster,
    args: &DoctorArgs,
    text: &str,
) -> Result<ExitStatus, CommandError> {
    if args.watch.is_some() {
        return Err(CommandError::usage(
            "several namespaces are examined once: --watch does not go with them",
        )
        .hint(GIVE_ONE));
    }
    refuse_names(
        &SourceQuery::in_netns(&args.source, builtin, Netns::current()),
        false,
    )?;
    let namespaces = Namespaces::open(text);
    let mut missing = namespaces.missing;
    let mut refused = None;
    let mut merged = Merged::default();
    for (name, examined) in examine(args, namespaces.open) {
        match examined {
            Ok((diagnosis, caveats)) => {
                for text in caveats.notes {
                    note(format!("--netns {name}: {text}"));
                }
                merged.add(name, diagnosis);
            }
            Err(error) => {
                missing.push(format!("--netns {name}: {}", error.text()));
                refused = Some(error);
            }
        }
    }
    if merged.read.is_empty() {
        let none = || CommandError::failed(missing.join("; "));
        return Err(refused.unwrap_or_else(none));
    }
    missing.iter().for_each(note);
    let mut diagnosis = merged.diagnosis();
    diagnosis.partial |= !missing.is_empty();
    match diagnosis.print(args) {
        Ok(()) => Ok(diagnosis.status()),
        Err(error) => messages::unwritten(error),
    }
}

/// Examines the namespaces, [`MAX_PARALLEL`] at a time, in the order of their names.
fn examine(args: &DoctorArgs, namespaces: Vec<(String, Netns)>) -> Vec<Examined> {
    let workers = namespaces.len().min(MAX_PARALLEL);
    let left = Mutex::new(namespaces.into_iter());
    let work = || {
        let mut examined = Vec::new();
        loop {
            let next = match left.lock() {
                Ok(mut left) => left.next(),
                Err(_) => None,
            };
            let Some((name, netns)) = next else {
                return examined;
            };
            let result = Diagnosis::of(args, &netns, None);
            examined.push((name, result));
        }
    };
    let mut all: Vec<Examined> = thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let joined = threads
            .into_iter()
            .map(|one| one.join().unwrap_or_else(|panic| resume_unwind(panic)));
        joined.flatten().collect()
    });
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    all
}

/// Results of several namespaces in one.
#[derive(Default)]
struct Merged {
    read: Vec<String>,
    findings: Vec<Finding>,
    results: Results,
    summary: Summary,
    looked: Option<Duration>,
    partial: bool,
}

impl Merged {
    /// Findings that say the same are one, with all their namespaces.
    fn add(&mut self, name: String, diagnosis: Diagnosis) {
        // The namespaces were named, so none is a wrong one.
        let findings = diagnosis.results.findings.into_iter();
        for mut finding in findings.filter(|one| one.check != WRONG_NAMESPACE) {
            match self.findings.iter_mut().find(|one| one.says_as(&finding)) {
                Some(known) => known.netns.push(name.clone()),
                None => {
                    finding.netns.push(name.clone());
                    self.findings.push(finding);
                }
            }
        }
        for undecided in diagnosis.results.undecided {
            if !self.results.undecided.contains(&undecided) {
                self.results.undecided.push(undecided);
            }
        }
        let summary = diagnosis.summary;
        self.summary.scanned += summary.scanned;
        self.summary.unreadable += summary.unreadable;
        self.summary.consistent =
            summary.consistent && (self.read.is_empty() || self.summary.consistent);
        self.looked = diagnosis.looked;
        self.partial |= diagnosis.partial;
        self.read.push(name);
    }

    /// A check is fine if it found nothing in any namespace and had its data in all.
    fn diagnosis(self) -> Diagnosis {
        let Merged {
            mut findings,
            mut results,
            mut summary,
            ..
        } = self;
        let found: BTreeSet<&str> = findings.iter().map(|finding| finding.check).collect();
        results.undecided.retain(|one| !found.contains(one.check));
        let undecided: BTreeSet<&str> = results.undecided.iter().map(|one| one.check).collect();
        results.found = found.len();
        results.fine = catalogue()
            .len()
            .saturating_sub(found.len() + undecided.len());
        sort(&mut findings);
        results.findings = findings;
        summary.shown = results.findings.len() as u64;
        summary.extra = summary_counts(&results);
        summary.extra.insert("netns".to_owned(), self.read.into());
        Diagnosis {
            results,
            summary,
            looked: self.looked,
            partial: self.partial,
        }
    }
}
