//! The network namespaces of the machine, for looks at several tables.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ctk_cluster::source::ClusterSource;
use ctnetlink::Table;
use ctnetlink::netns::{self, Netns};

use crate::error::CommandError;
use crate::query::{ALL_NAMESPACES, SourceQuery};
use crate::session::pipeline::Counts;
use crate::session::table_access;
use crate::session::table_scan::ScanReport;
use crate::terminal::printing::ListingEnd;

/// Namespaces that were asked for.
#[derive(Debug, Default)]
pub struct Namespaces {
    /// Each namespace once, with the text that `--netns` takes for it.
    pub open: Vec<(String, Netns)>,
    /// Why others are missing, one sentence each.
    pub missing: Vec<String>,
    seen: BTreeSet<(u64, u64)>,
}

/// Result of the looks at the tables of several namespaces.
#[derive(Debug, Default)]
pub struct Visited<'n> {
    /// Namespaces whose table was read.
    pub read: Vec<&'n str>,
    /// Why others are missing.
    pub missing: Vec<String>,
    /// Sums over the tables.
    pub counts: Counts,
    pub report: ScanReport,
}

/// Counts and report of one table, or why it could not be read.
pub type Scanned = Result<(Counts, ScanReport), CommandError>;

/// Hint of the refusals of several namespaces.
pub const GIVE_ONE: &str = "give --netns one namespace";

/// Refuses names and verdicts, which belong to the namespace of a node. `asked`: selectors or keys need them.
///
/// # Errors
/// A cluster source or names are asked for.
pub fn refuse_names(source: &SourceQuery, asked: bool) -> Result<(), CommandError> {
    let named = !matches!(source.cluster, ClusterSource::Auto | ClusterSource::None);
    match named || asked {
        true => Err(CommandError::usage(
            "names and verdicts belong to the namespace of a node: no --cluster, and no selectors or keys on them, with several namespaces",
        )
        .hint(GIVE_ONE)),
        false => Ok(()),
    }
}

impl Namespaces {
    /// Lends the table of each namespace to `scan`, one after the other. The inner error of `scan` is that of the table.
    ///
    /// # Errors
    /// The output cannot be written, or no table can be read.
    pub fn visit<'n>(
        &'n self,
        mut scan: impl FnMut(&'n str, Table) -> Result<Scanned, ListingEnd>,
    ) -> Result<Visited<'n>, ListingEnd> {
        let mut visited = Visited {
            missing: self.missing.clone(),
            ..Visited::default()
        };
        let mut refused = None;
        for (name, netns) in &self.open {
            let scanned = match Table::open(netns) {
                Ok(table) => scan(name, table)?,
                Err(error) => Err(table_access::netlink_error(error)),
            };
            match scanned {
                Ok((counts, report)) => {
                    visited.counts += counts;
                    visited.report.unreadable += report.unreadable;
                    visited.report.inconsistent |= report.inconsistent;
                    visited.read.push(name);
                }
                Err(error) => {
                    visited
                        .missing
                        .push(format!("--netns {name}: {}", error.text()));
                    refused = Some(error);
                }
            }
        }
        if visited.read.is_empty() {
            let none = || CommandError::failed(visited.missing.join("; "));
            return Err(refused.unwrap_or_else(none).into());
        }
        Ok(visited)
    }

    /// Opens the namespaces that `--netns` names: `all` or a comma list.
    pub fn open(text: &str) -> Self {
        let mut found = Namespaces::default();
        if text == ALL_NAMESPACES {
            for name in netns::names() {
                found.add(&format!("name:{name}"), name);
            }
            found.add_processes();
        } else {
            for name in text.split(',') {
                found.add(name, name.to_owned());
            }
        }
        found
    }

    fn add(&mut self, text: &str, name: String) {
        match Netns::named(text) {
            Ok(netns) => {
                if let Ok(identity) = netns.run(identity_of_this)
                    && identity.is_none_or(|identity| self.seen.insert(identity))
                {
                    self.open.push((name, netns));
                }
            }
            Err(error) => self.missing.push(format!("--netns {name}: {error}")),
        }
    }

    /// Adds the namespaces of processes, each by its lowest PID.
    fn add_processes(&mut self) {
        let mut pids: Vec<u32> = fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect();
        pids.sort_unstable();
        let mut refused = 0;
        for pid in pids {
            match identity(&Path::new("/proc").join(pid.to_string()).join("ns/net")) {
                Ok(identity) if self.seen.contains(&identity) => {}
                Ok(_) => self.add(&pid.to_string(), pid.to_string()),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => refused += 1,
                // The process has ended.
                Err(_) => {}
            }
        }
        if refused > 0 {
            self.missing.push(format!(
                "the network namespaces of {} may not be read",
                crate::plural::count(refused, "process", "processes")
            ));
        }
    }
}

/// Device and inode, which are the identity of a namespace.
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let file = fs::metadata(path)?;
    Ok((file.dev(), file.ino()))
}

fn identity_of_this() -> Option<(u64, u64)> {
    identity(Path::new("/proc/thread-self/ns/net")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_opened_once_and_a_missing_one_is_named() {
        let own = std::process::id().to_string();
        let found = Namespaces::open(&format!("{own},{own},nowhere-1"));
        assert_eq!(found.open.len(), 1, "{found:?}");
        assert_eq!(found.open[0].0, own);
        assert_eq!(found.missing.len(), 1, "{found:?}");
        assert!(found.missing[0].contains("nowhere-1"), "{found:?}");
    }
}
