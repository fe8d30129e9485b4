//! Network namespaces: finding one, and doing something inside it.
//!
//! The thread of the caller never moves. What must happen inside another namespace runs on a thread of its own that ends
//! right after; a socket opened there stays in that namespace.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::thread;

use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Where `ip netns add` leaves its names.
const NAMED: [&str; 2] = ["/run/netns", "/var/run/netns"];
const OWN: &str = "/proc/thread-self/ns/net";

#[derive(Debug, thiserror::Error)]
pub enum NetnsError {
    #[error("no network namespace is named {name:?}; {}", known_names(.known))]
    NotFound { name: String, known: Vec<String> },
    #[error("no process {0}")]
    NoProcess(String),
    #[error("{0} is not a network namespace")]
    NotANamespace(String),
    #[error("entering {0} is not permitted: it needs CAP_SYS_ADMIN")]
    NotPermitted(String),
    #[error("{what}: {error}")]
    Failed { what: String, error: io::Error },
}

impl NetnsError {
    pub fn is_permission(&self) -> bool {
        matches!(self, NetnsError::NotPermitted(_))
    }

    fn of(what: &str, error: io::Error) -> Self {
        let what = what.to_owned();
        match error.kind() {
            io::ErrorKind::PermissionDenied => NetnsError::NotPermitted(what),
            // setns gives EINVAL for a file that is no namespace of the kind asked for.
            io::ErrorKind::InvalidInput => NetnsError::NotANamespace(what),
            _ => NetnsError::Failed { what, error },
        }
    }
}

fn known_names(known: &[String]) -> String {
    if known.is_empty() {
        "none has a name (ip netns list)".to_owned()
    } else {
        format!("known: {}", known.join(", "))
    }
}

/// A network namespace. Holds it open, so that it cannot be replaced by another of the same name or PID.
#[derive(Clone, Debug)]
pub struct Netns {
    /// `None` without /proc: then wherever the calling thread is.
    file: Option<Arc<File>>,
    label: String,
}

impl Netns {
    /// The namespace that the calling thread is in now.
    pub fn current() -> Self {
        Netns {
            file: File::open(OWN).ok().map(Arc::new),
            label: "this network namespace".to_owned(),
        }
    }

    /// `NAME` (of `ip netns`), a path (anything with a `/`), or a PID (all digits). `name:1234` is the name `1234`.
    ///
    /// # Errors
    /// [`NetnsError`], after having entered the namespace once on a thread of its own.
    pub fn named(text: &str) -> Result<Self, NetnsError> {
        let (path, what) = if let Some(name) = text.strip_prefix("name:") {
            (named_path(name)?, format!("network namespace {name}"))
        } else if text.contains('/') {
            (text.to_owned(), text.to_owned())
        } else if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
            let what = format!("the network namespace of process {text}");
            if !Path::new("/proc").join(text).exists() {
                return Err(NetnsError::NoProcess(text.to_owned()));
            }
            (format!("/proc/{text}/ns/net"), what)
        } else {
            (named_path(text)?, format!("network namespace {text}"))
        };
        let file = File::open(path).map_err(|e| NetnsError::of(&what, e))?;
        let netns = Netns {
            file: Some(Arc::new(file)),
            label: what,
        };
        netns.run(|| ())?;
        Ok(netns)
    }

    /// For messages: `network namespace blue`.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Runs `body` inside: on the calling thread where that is in this namespace already, else on a thread of its own.
    ///
    /// # Errors
    /// [`NetnsError`] when it cannot be entered; `body` has not run then.
    pub fn run<T: Send>(&self, body: impl FnOnce() -> T + Send) -> Result<T, NetnsError> {
        let Some(file) = self.file.as_deref().filter(|file| !is_current(file)) else {
            return Ok(body());
        };
        let failed = |e: io::Error| NetnsError::of(&self.label, e);
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

    /// Whether this is the namespace that the machine started with: only there may conntrack's global limits be written
    /// (`nf_conntrack_standalone_init_sysctl`). `None` when the kernel shows no such limit.
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
    match (file.metadata(), fs::metadata(OWN)) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    }
}

fn named_path(name: &str) -> Result<String, NetnsError> {
    if !name.is_empty() && !name.contains('/') {
        for folder in NAMED {
            let path = format!("{folder}/{name}");
            if Path::new(&path).is_file() {
                return Ok(path);
            }
        }
    }
    Err(NetnsError::NotFound {
        name: name.to_owned(),
        known: names(),
    })
}

/// The names that `ip netns add` gave, sorted.
pub fn names() -> Vec<String> {
    let mut known: Vec<String> = NAMED
        .iter()
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    known.sort();
    known.dedup();
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_namespace_is_named_in_the_error() {
        for (text, wanted) in [
            (
                "no-such-name",
                "no network namespace is named \"no-such-name\"",
            ),
            ("name:1", "no network namespace is named \"1\""),
            ("name:", "no network namespace is named \"\""),
            ("", "no network namespace is named \"\""),
            ("4294967295", "no process 4294967295"),
            ("/etc/hostname", "/etc/hostname is not"),
            ("/no/such/file", "/no/such/file: "),
            ("/proc/self/ns/uts", "/proc/self/ns/uts is not"),
        ] {
            let error = Netns::named(text).expect_err(text).to_string();
            // Without privilege the kernel may refuse before it looks at the file.
            let refused = error.contains("not permitted") && text.starts_with('/');
            assert!(error.starts_with(wanted) || refused, "{text}: {error}");
        }
    }

    #[test]
    fn the_own_namespace_needs_no_privilege_and_no_thread() {
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
