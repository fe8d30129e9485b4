//! Network namespaces: opening one, and running code inside it.
//!
//! The thread of the caller never changes its namespace. Code for another namespace runs on a short-lived thread; a socket
//! opened there stays in that namespace.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Folders of the names that `ip netns add` gives.
const NAME_FOLDERS: [&str; 2] = ["/run/netns", "/var/run/netns"];
const THREAD_NETNS: &str = "/proc/thread-self/ns/net";

/// Error of a network namespace. The text does not repeat [`source`](std::error::Error::source).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetnsError {
    /// `ip netns` has no such name.
    #[error("no network namespace is named {name:?}; {}", list_of(.known))]
    NotFound {
        /// Name that was looked up.
        name: String,
        /// Names that exist, sorted.
        known: Vec<String>,
    },
    /// No process has this PID. The field is the text given, all digits.
    #[error("no process {0}")]
    NoProcess(String),
    /// The path is not a network namespace.
    #[error("{0} is not a network namespace")]
    NotANamespace(NetnsName),
    /// Entering the namespace needs CAP_SYS_ADMIN, in the caller's user namespace and in the one that owns it (`setns(2)`).
    #[error("entering {0} is not permitted: it needs CAP_SYS_ADMIN")]
    NotPermitted(NetnsName),
    /// Every other error of opening or entering the namespace.
    #[error("{netns}")]
    Failed {
        /// Namespace that was opened or entered.
        netns: NetnsName,
        /// Error of the system.
        source: io::Error,
    },
}

impl NetnsError {
    /// Reports whether a capability is missing.
    pub fn is_permission(&self) -> bool {
        matches!(self, NetnsError::NotPermitted(_))
    }

    fn of(netns: &NetnsName, error: io::Error) -> Self {
        let netns = netns.clone();
        match error.kind() {
            io::ErrorKind::PermissionDenied => NetnsError::NotPermitted(netns),
            // setns answers EINVAL for a file that is no namespace of the requested type.
            io::ErrorKind::InvalidInput => NetnsError::NotANamespace(netns),
            _ => NetnsError::Failed {
                netns,
                source: error,
            },
        }
    }
}

/// Number of names that an error lists.
const MAX_LISTED_NAMES: usize = 10;

fn list_of(known: &[String]) -> String {
    if known.is_empty() {
        return "none has a name (ip netns list)".to_owned();
    }
    let listed = known.get(..MAX_LISTED_NAMES).unwrap_or(known).join(", ");
    match known.len().saturating_sub(MAX_LISTED_NAMES) {
        0 => format!("known: {listed}"),
        more => format!("known: {listed} and {more} more (ip netns list)"),
    }
}

/// Opens the file of a namespace. A pipe in its place does not block.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

/// Name of a network namespace, as it was opened. Displayed as a phrase: "network namespace blue".
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NetnsName {
    /// Namespace of the calling thread.
    Current,
    /// Name of `ip netns`.
    Named(String),
    /// Namespace of a process, by its PID.
    Process(String),
    /// Path of a namespace file.
    Path(PathBuf),
}

impl fmt::Display for NetnsName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NetnsName::Current => f.write_str("this network namespace"),
            NetnsName::Named(name) => write!(f, "network namespace {name}"),
            NetnsName::Process(pid) => write!(f, "the network namespace of process {pid}"),
            NetnsName::Path(path) => path.display().fmt(f),
        }
    }
}

impl NetnsName {
    /// File of the namespace.
    fn path(&self) -> Result<PathBuf, NetnsError> {
        match self {
            NetnsName::Current => Ok(THREAD_NETNS.into()),
            NetnsName::Named(name) => named_path(name),
            NetnsName::Process(pid) => {
                let process = Path::new("/proc").join(pid);
                match process.exists() {
                    true => Ok(process.join("ns/net")),
                    false => Err(NetnsError::NoProcess(pid.clone())),
                }
            }
            NetnsName::Path(path) => Ok(path.clone()),
        }
    }
}

/// Network namespace. Holds the namespace open, so that no other can take its name or PID.
#[derive(Clone, Debug)]
pub struct Netns {
    /// `None` without /proc: the namespace of the calling thread.
    file: Option<Arc<File>>,
    name: NetnsName,
}

impl Netns {
    /// Namespace of the calling thread.
    pub fn current() -> Self {
        Netns {
            file: File::open(THREAD_NETNS).ok().map(Arc::new),
            name: NetnsName::Current,
        }
    }

    /// Opens a namespace by a text: the name of `ip netns`, a path (text with a `/`), or a PID (all digits). The prefix `name:`
    /// makes a name of any text: `name:1234`.
    ///
    /// # Errors
    /// [`NetnsError`] when the namespace does not exist or cannot be entered. It is entered once, on a thread of its own.
    ///
    /// ```
    /// use ctnetlink::Netns;
    ///
    /// let own = Netns::named(&std::process::id().to_string())?;
    /// assert_eq!(own.run(|| 1 + 1)?, 2);
    /// let error = Netns::named("/etc/hostname").unwrap_err();
    /// assert!(error.to_string().contains("/etc/hostname"));
    /// # Ok::<(), ctnetlink::NetnsError>(())
    /// ```
    pub fn named(text: &str) -> Result<Self, NetnsError> {
        let name = if let Some(name) = text.strip_prefix("name:") {
            NetnsName::Named(name.to_owned())
        } else if text.contains('/') {
            NetnsName::Path(text.into())
        } else if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
            NetnsName::Process(text.to_owned())
        } else {
            NetnsName::Named(text.to_owned())
        };
        let file = open(&name.path()?).map_err(|e| NetnsError::of(&name, e))?;
        let netns = Netns {
            file: Some(Arc::new(file)),
            name,
        };
        netns.run(|| ())?;
        Ok(netns)
    }

    /// Name of the namespace, for messages.
    pub fn name(&self) -> &NetnsName {
        &self.name
    }

    /// Runs `body` in the namespace: on the calling thread if that is in the namespace, else on a thread of its own.
    ///
    /// A panic of `body` is passed on.
    ///
    /// # Errors
    /// [`NetnsError`] when the namespace cannot be entered. `body` has not run then.
    pub fn run<T: Send>(&self, body: impl FnOnce() -> T + Send) -> Result<T, NetnsError> {
        let Some(file) = self.file.as_deref().filter(|file| !is_current(file)) else {
            return Ok(body());
        };
        let failed = |e: io::Error| NetnsError::of(&self.name, e);
        thread::scope(|scope| {
            let inside = thread::Builder::new()
                .name("netns".to_owned())
                .spawn_scoped(scope, || {
                    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
                    Ok::<T, Errno>(body())
                })
                .map_err(failed)?;
            match inside.join() {
                Ok(done) => done.map_err(|e| failed(e.into())),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// Reports whether this is the initial network namespace of the machine. Only there the global limits of connection
    /// tracking are writable (`nf_conntrack_standalone_init_sysctl` in `nf_conntrack_standalone.c`), and that is tested. `None`
    /// when the kernel shows no such limit or the namespace cannot be entered.
    pub fn is_initial(&self) -> Option<bool> {
        self.run(|| {
            let limit = fs::metadata("/proc/sys/net/netfilter/nf_conntrack_max").ok()?;
            Some(limit.permissions().mode() & 0o200 != 0)
        })
        .ok()
        .flatten()
    }
}

fn is_current(file: &File) -> bool {
    match (file.metadata(), fs::metadata(THREAD_NETNS)) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    }
}

fn named_path(name: &str) -> Result<PathBuf, NetnsError> {
    if !name.is_empty() && !name.contains('/') {
        for folder in NAME_FOLDERS {
            let path = Path::new(folder).join(name);
            if path.is_file() {
                return Ok(path);
            }
        }
    }
    Err(NetnsError::NotFound {
        name: name.to_owned(),
        known: names(),
    })
}

/// Names that `ip netns add` gave, sorted. Empty when there are none or the folder cannot be read.
pub fn names() -> Vec<String> {
    let mut known: Vec<String> = NAME_FOLDERS
        .iter()
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flatten()
        .flatten()
        // A folder, a link or a pipe is no namespace.
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    known.sort();
    known.dedup();
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_names_the_text_that_is_no_namespace() {
        for (text, expected) in [
            (
                "no-such-name",
                "no network namespace is named \"no-such-name\"",
            ),
            ("name:1", "no network namespace is named \"1\""),
            ("name:", "no network namespace is named \"\""),
            ("", "no network namespace is named \"\""),
            ("4294967295", "no process 4294967295"),
            ("/etc/hostname", "/etc/hostname is not"),
            ("/no/such/file", "/no/such/file"),
            ("/proc/self/ns/uts", "/proc/self/ns/uts is not"),
        ] {
            let error = Netns::named(text).expect_err(text).to_string();
            // Without privilege the kernel may refuse before it looks at the file.
            let refused = error.contains("not permitted") && text.starts_with('/');
            assert!(error.starts_with(expected) || refused, "{text}: {error}");
        }
    }

    #[test]
    fn pipe_in_place_of_a_namespace_does_not_block() {
        let pipe = std::env::temp_dir().join(format!("ctnetlink-pipe-{}", std::process::id()));
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let error = Netns::named(pipe.to_str().unwrap()).map(|_| ());
        fs::remove_file(&pipe).unwrap();
        let error = error.unwrap_err().to_string();
        assert!(error.contains("ctnetlink-pipe"), "{error}");
    }

    #[test]
    fn error_lists_a_few_of_many_names() {
        let names: Vec<String> = (0..10_000).map(|n| format!("ns{n}")).collect();
        let listed = list_of(&names);
        assert!(listed.len() < 200, "{listed}");
        assert!(
            listed.ends_with("ns9 and 9990 more (ip netns list)"),
            "{listed}"
        );
        assert_eq!(list_of(&names[..2]), "known: ns0, ns1");
    }

    #[test]
    fn own_namespace_needs_no_privilege_and_no_thread() {
        let here = thread::current().id();
        for netns in [
            Netns::current(),
            Netns::named(&std::process::id().to_string()).unwrap(),
            Netns::named("/proc/self/ns/net").unwrap(),
        ] {
            assert_eq!(netns.run(|| thread::current().id()).unwrap(), here);
        }
    }
}
