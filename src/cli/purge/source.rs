//! The cluster of a purge: what is good enough to delete by.

use std::time::Duration;

use crate::cli::World;
use crate::cli::args::SourceArgs;
use crate::cli::cluster::{self, Cluster};
use crate::cli::remote::Purpose;
use crate::cli::wanted;
use crate::cluster::wanted::Wanted;
use crate::error::{CommandError, Status};
use crate::netns::Netns;
use crate::output::Format;

use super::Purge;

/// How a cluster is read: the first time with a word about it, or once more.
type ReadCluster =
    fn(World, &SourceArgs, &Netns, Purpose, Wanted) -> Result<Option<Cluster>, CommandError>;

impl Purge<'_> {
    /// The cluster, if it is to decide, must be whole and young enough; else it only gives names.
    /// `wanted`: less of it than the selectors ask for.
    pub(super) fn read_cluster(
        &self,
        read: ReadCluster,
        wanted: Option<Wanted>,
    ) -> Result<Option<Cluster>, CommandError> {
        // Nothing of it would be shown.
        if !self.by_cluster && self.args.output.output == Format::Conntrack {
            return Ok(None);
        }
        let source = &self.args.source;
        let purpose = match self.by_cluster {
            true => Purpose::Delete,
            false => Purpose::Show,
        };
        let select = &self.args.select;
        let filter = select.to_filter()?;
        let all = || wanted::first(source, &self.netns, &filter, &select.to_selectors());
        let wanted = wanted.unwrap_or_else(all);
        let cluster = read(self.world, source, &self.netns, purpose, wanted)?;
        cluster::require(source, cluster.as_ref(), self.by_cluster)?;
        if let Some(cluster) = cluster.as_ref().filter(|_| self.by_cluster) {
            self.accept(cluster)?;
        }
        Ok(cluster)
    }

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
