//! Deletes of entries, and their return: plan, second look, execution, verification, restore.
//!
//! # Why nothing else is deleted
//!
//! `purge::execute` is the only module of the program that names `ctnetlink::DeleteTarget` (`tests/module_dependencies` reads
//! the sources for it), and [`Executor::run`](execute::Executor::run) the only function that sends deletes. A target is built
//! in one place, from a [`PlannedEntry`](plan::PlannedEntry), after these checks:
//!
//! 1. *The reading of the cluster.* [`ClusterReading::check`](cluster_reading::ClusterReading::check) refuses a source that is
//!    incomplete, of the future, or older than `--max-age`: before the scan, and again for the second look.
//! 2. *The scan.* [`PlanBuilder`](plan::PlanBuilder) alone puts entries into a [`PurgePlan`](plan::PurgePlan), and none that
//!    [`VerdictPolicy::decide`](policy::VerdictPolicy::decide) does not delete: the entry passed every other selector, is
//!    confirmed and not dying, its verdict is selected and is neither `unknown` nor `unrelated`, and nothing holds it back
//!    ([`HoldReason`](policy::HoldReason)). An entry without an id is left.
//! 3. *The size.* [`PurgePlan::check_size`](plan::PurgePlan::check_size) refuses a plan above `--max`.
//! 4. *The second reading.* [`ClusterReading::check_later`](cluster_reading::ClusterReading::check_later) refuses a source that
//!    is of another kind, another cluster, older, or without something that the first reading had.
//! 5. *The second look.* [`Guard::reconsider`](guard::Guard::reconsider) judges each planned entry by the second reading.
//!    The entry must pass every selector and the policy of step 2 again, and no [`Veto`](guard::Veto) may forbid it. Where
//!    anything that decides may have changed in the entry ([`Guard::needs_lookups`](guard::Guard::needs_lookups)), this is the
//!    entry as the kernel has it now, and an entry with another reply tuple or id is left.
//!
//! The target holds the reply tuple, the id and the zone of the planned entry. The kernel (`ctnetlink_del_conntrack` in
//! `net/netfilter/nf_conntrack_netlink.c`) finds an entry by the tuple in that zone, compares the id, and deletes that entry
//! or answers ENOENT. An entry that was re-created to another endpoint has another reply tuple, so it is not found. An entry
//! that was re-created to the same endpoint leads where the judged one led. A message without a tuple would flush the table;
//! a `DeleteTarget` cannot be built without one.
//!
//! Not checked here: that the selectors are not empty (the command refuses that without `--all`), and that names and verdicts
//! are right ([`crate::select`], [`crate::verdict`]).

pub mod cluster_reading;
pub mod execute;
pub mod guard;
pub mod lagging_rules;
pub mod plan;
pub mod policy;
pub mod restore;
pub mod status;
pub mod verify;
