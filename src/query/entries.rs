//! The entries that the selectors of a command line mean.

use std::time::Duration;

use crate::args::select::SelectArgs;
use crate::filter::cidr::Cidr;
use crate::filter::protocol::{SCTP, TCP};
use crate::filter::{Filter, List, Picks};
use crate::select::Selectors;
use crate::verdict::MIN_SAMPLE;

use super::kernel_selectors;
use super::usage_error::UsageError;

/// The entries that are meant. The default means every entry.
#[derive(Clone, Debug, Default)]
pub struct EntryQuery {
    /// Selectors on what the kernel says of an entry.
    pub filter: Filter,
    /// Selectors on names and verdicts, to be resolved against a cluster.
    pub selectors: Selectors,
    /// Zones that are selected by number, so that their entries are judged.
    pub zones: Vec<u16>,
    /// Original destinations that are selected.
    pub destinations: Vec<Cidr>,
    /// A selector uses a value that can change while an entry lives: status, state, timer, age, counters, mark, labels.
    pub uses_changing_values: bool,
}

impl EntryQuery {
    /// # Errors
    /// Selectors that exclude each other.
    pub fn new(args: &SelectArgs) -> Result<Self, UsageError> {
        Ok(EntryQuery {
            filter: kernel_selectors::filter(args)?,
            selectors: selectors(args),
            zones: plain(&args.zone).map(|zone| zone.0).collect(),
            destinations: plain(&args.dst).cloned().collect(),
            uses_changing_values: uses_changing_values(args),
        })
    }

    /// A selector is by name or verdict, so that a cluster must be read to answer.
    pub fn needs_cluster(&self) -> bool {
        self.selectors.wants_cluster()
    }

    /// Duration of the looks at the table: `--sample` as given, else what `--refreshing` needs. `None`: one look is enough.
    pub fn sample(&self, given: Option<Duration>) -> Option<Duration> {
        given.or(self.selectors.refreshing.then_some(MIN_SAMPLE))
    }

    /// A selector is by verdict or reason.
    pub fn selects_by_verdict(&self) -> bool {
        let Selectors {
            stale,
            verdicts,
            reasons,
            ..
        } = &self.selectors;
        *stale || !verdicts.is_empty() || !reasons.is_empty()
    }
}

/// The values that were not negated.
fn plain<T>(lists: &[List<T>]) -> impl Iterator<Item = &T> {
    let items = lists.iter().flat_map(List::items);
    items.filter(|item| !item.negated).map(|item| &item.value)
}

fn selectors(args: &SelectArgs) -> Selectors {
    Selectors {
        services: Picks::from(args.svc.as_slice()),
        pods: Picks::from(args.pod.as_slice()),
        clients: Picks::from(args.client.as_slice()),
        endpoints: Picks::from(args.endpoint.as_slice()),
        namespaces: Picks::from(args.namespace.as_slice()),
        verdicts: Picks::from(args.verdict.as_slice()),
        reasons: Picks::from(args.reason.as_slice()),
        stale: args.stale,
        refreshing: args.refreshing,
        names_a_protocol: names_a_protocol(args),
    }
}

/// A protocol besides UDP is named that a Service can have, so that stale entries of it are not held back: `--tcp`, `--sctp`,
/// `-p tcp`, `-p 132`.
fn names_a_protocol(args: &SelectArgs) -> bool {
    let named = |number| plain(&args.proto).any(|protocol| protocol.0 == number);
    !args.tcp.is_empty() || !args.sctp.is_empty() || named(TCP) || named(SCTP)
}

fn uses_changing_values(args: &SelectArgs) -> bool {
    args.assured
        || args.unreplied
        || args.refreshing
        || !args.status.is_empty()
        || !args.state.is_empty()
        || !args.ttl.is_empty()
        || !args.age.is_empty()
        || !args.packets.is_empty()
        || !args.bytes.is_empty()
        || !args.mark.is_empty()
        || !args.label.is_empty()
        || !args.helper.is_empty()
        || !args.matching.is_empty()
}
