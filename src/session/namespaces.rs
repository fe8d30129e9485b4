//! The network namespaces of the machine, for looks at several tables.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::query::ALL_NAMESPACES;
use ctnetlink::netns::{self, Netns};

/// Namespaces that were asked for.
#[derive(Debug, Default)]
pub struct Namespaces {
    /// Each namespace once, with the text that `--netns` takes for it.
    pub open: Vec<(String, Netns)>,
    /// Why others are missing, one sentence each.
    pub missing: Vec<String>,
    seen: BTreeSet<(u64, u64)>,
}

impl Namespaces {
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
