//! Names of the cluster for completion, kept in a small file.
//!
//! Completion never waits for an API server. A command that read a cluster writes its names to `$XDG_CACHE_HOME/ctk` or
//! `~/.cache/ctk`, readable by the same user only. Errors do not fail the command. Nothing is written to a folder of another
//! user (a root shell that kept the HOME of another user), and nothing is read that another user could have written.

mod file;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use crate::select::name::is_name;

use crate::select::Directory;

/// Kind of object that a name belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    Namespace,
    Node,
    /// `NS/NAME`.
    Service,
    /// `NS/NAME:PORT`.
    Port,
    /// `NS/NAME`.
    Pod,
}

impl NameKind {
    const ALL: [NameKind; 5] = [
        NameKind::Namespace,
        NameKind::Node,
        NameKind::Service,
        NameKind::Port,
        NameKind::Pod,
    ];

    /// Word before such a name in the file.
    const fn word(self) -> &'static str {
        match self {
            NameKind::Namespace => "namespace",
            NameKind::Node => "node",
            NameKind::Service => "service",
            NameKind::Port => "port",
            NameKind::Pod => "pod",
        }
    }

    fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }

    /// The name has a form that is safe in a shell.
    fn allows(self, name: &str) -> bool {
        match self {
            NameKind::Namespace | NameKind::Node => is_name(name),
            NameKind::Service | NameKind::Pod => is_object(name),
            NameKind::Port => name
                .split_once(':')
                .is_some_and(|(service, port)| is_object(service) && is_name(port)),
        }
    }
}

fn is_object(name: &str) -> bool {
    let parts = name.split_once('/');
    parts.is_some_and(|(namespace, name)| is_name(namespace) && is_name(name))
}

/// Condition for keeping names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Always, in place of the names before.
    Always,
    /// Only where no names are kept yet: those of the demo.
    IfFirst,
}

/// Keeps the names of a cluster. Errors are logged only.
pub fn keep(directory: Option<Directory<'_>>, keep: Keep) {
    let (Some(directory), Some(folder)) = (directory, folder()) else {
        return;
    };
    if let Err(error) = file::write(&folder, keep, &mut |to| each(directory, to)) {
        tracing::debug!(folder = %folder.display(), %error, "names for the shell are not kept");
    }
}

/// Kept names of one kind, in the order of the file. Empty without a file.
pub fn kept(kind: NameKind) -> Vec<String> {
    folder()
        .and_then(|folder| file::read(&folder, kind).ok())
        .unwrap_or_default()
}

/// `$XDG_CACHE_HOME`, else `~/.cache`. A relative path does not count.
fn folder() -> Option<PathBuf> {
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let home = || Some(absolute(std::env::var_os("HOME")?)?.join(".cache"));
    let given = std::env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty());
    given.map_or_else(home, absolute)
}

type Each<'a> = &'a mut dyn FnMut(NameKind, &str) -> io::Result<()>;

/// Hands every name to `to`, once. Pods come last, because they are the most numerous and may not fit.
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
                named(NameKind::Namespace, &[namespace])?;
            }
            for (_, service) in index.services() {
                named(NameKind::Service, &[&service.namespace, "/", &service.name])?;
            }
            for node in index.nodes() {
                named(NameKind::Node, &[&node.name])?;
            }
            for (id, service) in index.services() {
                let ports = index.ports_of(id);
                for port in ports.filter_map(|(_, port)| port.name.as_ref()) {
                    let parts = [&service.namespace, "/", &service.name, ":", port];
                    named(NameKind::Port, &parts)?;
                }
            }
            for pod in index.pods().filter(|pod| pod.live) {
                named(NameKind::Pod, &[&pod.namespace, "/", &pod.name])?;
            }
        }
        Directory::Rules(rules) => {
            let all = rules.frontends.values().chain(rules.node_ports.values());
            let services: std::collections::BTreeSet<_> = all
                .filter_map(|frontend| frontend.service.as_ref())
                .map(|service| (&service.namespace, &service.name))
                .collect();
            for (namespace, name) in services {
                named(NameKind::Service, &[namespace, "/", name])?;
            }
        }
    }
    Ok(())
}
