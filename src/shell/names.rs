//! Names for the shell: what the last reading of a cluster found, in a small file that completion reads.
//!
//! TAB must not wait for an API server, so it never asks one. A command that read a cluster leaves its names behind, in
//! `$XDG_CACHE_HOME/ctk` or `~/.cache/ctk`, for the same user alone. Whatever goes wrong with that is nobody's concern: the
//! command does not fail for it. Nothing is written where the folder is somebody else's (a root shell that kept the HOME of
//! another user), and nothing is read that somebody else could have written.

mod file;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use crate::select::name::is_name;

use crate::select::Directory;

/// What a name is the name of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Namespace,
    Node,
    /// `NS/NAME`.
    Service,
    /// `NS/NAME:PORT`.
    Port,
    /// `NS/NAME`.
    Pod,
}

impl Kind {
    const ALL: [Kind; 5] = [
        Kind::Namespace,
        Kind::Node,
        Kind::Service,
        Kind::Port,
        Kind::Pod,
    ];

    /// The word before such a name in the file.
    const fn word(self) -> &'static str {
        match self {
            Kind::Namespace => "namespace",
            Kind::Node => "node",
            Kind::Service => "service",
            Kind::Port => "port",
            Kind::Pod => "pod",
        }
    }

    fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }

    /// Only such names get to a shell.
    fn allows(self, name: &str) -> bool {
        match self {
            Kind::Namespace | Kind::Node => is_name(name),
            Kind::Service | Kind::Pod => is_object(name),
            Kind::Port => name
                .split_once(':')
                .is_some_and(|(service, port)| is_object(service) && is_name(port)),
        }
    }
}

fn is_object(name: &str) -> bool {
    let parts = name.split_once('/');
    parts.is_some_and(|(namespace, name)| is_name(namespace) && is_name(name))
}

/// When names are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// In place of those before.
    Always,
    /// Where there are none yet: those of the demo.
    IfFirst,
}

/// Keeps the names of a cluster that was just read.
pub fn keep(directory: Option<Directory<'_>>, keep: Keep) {
    let (Some(directory), Some(folder)) = (directory, folder()) else {
        return;
    };
    if let Err(error) = file::write(&folder, keep, &mut |to| each(directory, to)) {
        tracing::debug!(folder = %folder.display(), %error, "names for the shell are not kept");
    }
}

/// The names of one kind that were kept, in the order of the file; none where there is no such file.
pub fn kept(kind: Kind) -> Vec<String> {
    folder()
        .and_then(|folder| file::read(&folder, kind).ok())
        .unwrap_or_default()
}

/// `$XDG_CACHE_HOME`, else `~/.cache`; relative ones do not count.
fn folder() -> Option<PathBuf> {
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let home = || Some(absolute(std::env::var_os("HOME")?)?.join(".cache"));
    let given = std::env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty());
    given.map_or_else(home, absolute)
}

type Each<'a> = &'a mut dyn FnMut(Kind, &str) -> io::Result<()>;

/// Every name once, the few and important ones first.
fn each(directory: Directory<'_>, to: Each<'_>) -> io::Result<()> {
    let mut line = String::new();
    let mut named = |kind, parts: &[&str]| {
        line.clear();
        line.extend(parts.iter().copied());
        to(kind, &line)
    };
    match directory {
        Directory::Index(index) => {
            for namespace in index.namespaces() {
                named(Kind::Namespace, &[namespace])?;
            }
            for (_, service) in index.services() {
                named(Kind::Service, &[&service.namespace, "/", &service.name])?;
            }
            for node in index.nodes() {
                named(Kind::Node, &[&node.name])?;
            }
            for (id, service) in index.services() {
                let ports = index.ports_of(id);
                for port in ports.filter_map(|(_, port)| port.name.as_ref()) {
                    let parts = [&service.namespace, "/", &service.name, ":", port];
                    named(Kind::Port, &parts)?;
                }
            }
            for pod in index.pods().filter(|pod| pod.live) {
                named(Kind::Pod, &[&pod.namespace, "/", &pod.name])?;
            }
        }
        Directory::Rules(rules) => {
            let all = rules.frontends.values().chain(rules.node_ports.values());
            let services: std::collections::BTreeSet<_> = all
                .filter_map(|frontend| frontend.service.as_ref())
                .map(|service| (&service.namespace, &service.name))
                .collect();
            for (namespace, name) in services {
                named(Kind::Service, &[namespace, "/", name])?;
            }
        }
    }
    Ok(())
}
