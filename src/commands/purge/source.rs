//! The cluster of a purge: what is good enough to delete by.

use std::time::Duration;

use crate::error::{CommandError, Status};
use crate::output::Format;
use crate::session::cluster::{self, Cluster};
use crate::session::cluster_source::Purpose;
use crate::session::read_scope;
use ctk_cluster::read_scope::ReadScope;
use ctk_cluster::source::ClusterSource;

use super::Purge;

impl Purge<'_> {
    /// The cluster, where names or verdicts are asked for, or names can be shown. `again`: the source of an earlier reading,
    /// of which everything worth saying was said; `scope`: less of it than the selectors ask for.
    pub(super) fn read_cluster(
        &self,
        again: Option<&ClusterSource>,
        scope: Option<ReadScope>,
    ) -> Result<Option<Cluster>, CommandError> {
        // Nothing of it would be shown.
        if !self.entries.needs_cluster() && self.args.output.report.format == Format::Conntrack {
            return Ok(None);
        }
        let purpose = match self.entries.needs_cluster() {
            true => Purpose::Delete,
            false => Purpose::Show,
        };
        let scope = scope.unwrap_or_else(|| read_scope::first(&self.source, &self.entries));
        let cluster = match again {
            None => Cluster::read(&self.source, purpose, scope),
            Some(again) => Cluster::read_from(again, &self.source, purpose, scope),
        }?;
        cluster::require(&self.source, cluster.as_ref(), self.entries.needs_cluster())?;
        Ok(cluster)
    }

    /// A cluster that is to decide must be whole and young enough.
    ///
    /// # Errors
    /// Partial: the source is incomplete or, where a verdict decides, older than `--max-age`.
    pub(super) fn accept(&self, cluster: &Cluster) -> Result<(), CommandError> {
        if !cluster.is_complete() {
            return Err(CommandError::new(
                Status::Partial,
                format!(
                    "the cluster source is incomplete ({}), so nothing is deleted by name or verdict",
                    cluster.missing().join(", ")
                ),
            )
            .hint(cluster.remedy()));
        }
        let Some(age) = cluster.age() else {
            return Err(CommandError::new(
                Status::Partial,
                "the cluster source is from the future, so its age is not known: nothing was deleted",
            )
            .hint("set the clock right, or fetch the file again"));
        };
        if self.policy.selects_by_verdict() && age > self.args.max_age {
            return Err(CommandError::new(
                Status::Partial,
                format!(
                    "the cluster source is {} old, --max-age is {}: nothing was deleted",
                    humantime::format_duration(Duration::from_secs(age.as_secs())),
                    humantime::format_duration(self.args.max_age)
                ),
            )
            .hint(match cluster.is_rules_only() {
                true => "save the rules again, or use those of this node: --cluster rules",
                false => cluster::FETCH,
            }));
        }
        Ok(())
    }
}
