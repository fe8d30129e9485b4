//! Transport by `kubectl get --raw`, for clusters to which only kubectl can log in. The same decoder reads the answers.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::connection::ConnectionOptions;
use super::server::{GetError, Server};

/// Upper bound in bytes of the standard error that is read.
const MAX_STDERR: u64 = 64 * 1024;

/// kubectl with its flags. Reading it yields the output of its last run.
#[derive(Debug)]
pub struct Kubectl {
    binary: PathBuf,
    flags: Vec<std::ffi::OsString>,
    deadline: Instant,
    running: Option<Child>,
    output: Option<ChildStdout>,
    /// Bytes read ahead, which show whether an answer came at all.
    first: io::Cursor<Vec<u8>>,
}

/// Reports whether kubectl finds a cluster by itself.
#[cfg(not(feature = "kube"))]
pub(super) fn is_configured(options: &ConnectionOptions) -> bool {
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".kube/config"));
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    options.kubeconfig.is_some()
        || set("KUBECONFIG")
        || set("KUBERNETES_SERVICE_HOST")
        || home.is_some_and(|path| path.exists())
}

impl Kubectl {
    /// Returns the kubectl of the `PATH`, if any.
    pub fn find(options: &ConnectionOptions, deadline: Instant) -> Option<Self> {
        let path = std::env::var_os("PATH")?;
        let mut candidates = std::env::split_paths(&path).map(|folder| folder.join("kubectl"));
        let binary = candidates.find(|file| {
            rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok() && file.is_file()
        })?;
        let mut flags = Vec::new();
        if let Some(file) = &options.kubeconfig {
            flags.extend(["--kubeconfig".into(), file.into()]);
        }
        if let Some(context) = &options.context {
            flags.extend(["--context".into(), context.into()]);
        }
        Some(Kubectl {
            binary,
            flags,
            deadline,
            running: None,
            output: None,
            first: io::Cursor::default(),
        })
    }

    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Reads from kubectl as soon as output is available.
    fn take(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.left();
        let Some(output) = &mut self.output else {
            return Ok(0);
        };
        let time = Timespec::try_from(left).map_err(io::Error::other)?;
        let mut waiting = [PollFd::from_borrowed_fd(output.as_fd(), PollFlags::IN)];
        if left.is_zero() || poll(&mut waiting, Some(&time))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        output.read(buffer)
    }

    /// Waits for the end of a run. Returns the standard error of a run that failed.
    fn end(&mut self) -> Result<(), String> {
        self.output = None;
        let Some(mut child) = self.running.take() else {
            return Ok(());
        };
        let mut said = String::new();
        if let Some(stderr) = child.stderr.take() {
            let _ = stderr.take(MAX_STDERR).read_to_string(&mut said);
        }
        match child.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) if said.trim().is_empty() => Err(format!("kubectl failed ({status})")),
            Ok(_) => Err(said),
            Err(error) => Err(error.to_string()),
        }
    }

    fn kill(&mut self) {
        self.output = None;
        if let Some(mut child) = self.running.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Server for Kubectl {
    fn get(&mut self, path: &str) -> Result<(), GetError> {
        self.kill();
        self.first = io::Cursor::default();
        let seconds = self.left().as_secs().max(1);
        let mut child = Command::new(&self.binary)
            .args(&self.flags)
            .arg(format!("--request-timeout={seconds}s"))
            .args(["get", "--raw", path])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| GetError::Connection(format!("kubectl cannot be run: {error}")))?;
        self.output = child.stdout.take();
        self.running = Some(child);
        let mut first = vec![0; 4096];
        match self.take(&mut first) {
            Ok(0) => match self.end() {
                Ok(()) => Ok(()),
                Err(said) => Err(refusal(&said)),
            },
            Ok(length) => {
                first.truncate(length);
                self.first = io::Cursor::new(first);
                Ok(())
            }
            Err(error) => {
                self.kill();
                Err(match error.kind() {
                    io::ErrorKind::TimedOut => GetError::TimedOut,
                    _ => GetError::Connection(format!("kubectl: {error}")),
                })
            }
        }
    }
}

impl Read for Kubectl {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let ahead = self.first.read(buffer)?;
        if ahead > 0 || buffer.is_empty() {
            return Ok(ahead);
        }
        match self.take(buffer) {
            // The text may look complete although kubectl reports a failure.
            Ok(0) => self.end().map(|()| 0).map_err(io::Error::other),
            Err(error) => {
                self.kill();
                Err(error)
            }
            read => read,
        }
    }
}

impl Drop for Kubectl {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Parses an error message of kubectl (`cmdutil.CheckErr`: "Error from server (REASON): MESSAGE").
fn refusal(said: &str) -> GetError {
    let line = said.lines().rev().find(|line| !line.trim().is_empty());
    let line = line.unwrap_or_default().trim();
    let reason = said
        .split_once("Error from server (")
        .and_then(|(_, rest)| rest.split_once(')'))
        .map(|(reason, _)| reason);
    match reason {
        Some("Forbidden") => GetError::Forbidden,
        Some("NotFound") => GetError::NotServed,
        Some("Expired" | "Gone") => GetError::Expired,
        Some("Unauthorized") => GetError::Unauthorized,
        Some("TooManyRequests") => busy(429),
        Some("InternalError") => busy(500),
        Some("ServiceUnavailable") => busy(503),
        Some("Timeout" | "ServerTimeout") => busy(504),
        Some(reason) => GetError::Other(format!("the API server answers {reason}")),
        None if said.contains("You must be logged in to the server") => GetError::Unauthorized,
        None => GetError::Connection(line.to_owned()),
    }
}

fn busy(status: u16) -> GetError {
    GetError::Busy {
        status,
        after: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_messages_of_kubectl_map_to_the_status_of_the_server() {
        let unknown =
            "Unable to connect to the server: dial tcp 127.0.0.1:1: connect: connection refused";
        for (said, meant) in [
            (
                "Error from server (Forbidden): pods is forbidden: User \"u\" cannot list resource",
                GetError::Forbidden,
            ),
            (
                "Error from server (NotFound): the server could not find the requested resource",
                GetError::NotServed,
            ),
            (
                "Error from server (Expired): The provided continue parameter is too old",
                GetError::Expired,
            ),
            (
                "error: You must be logged in to the server (Unauthorized)",
                GetError::Unauthorized,
            ),
            ("Error from server (ServiceUnavailable): x", busy(503)),
            (unknown, GetError::Connection(unknown.to_owned())),
        ] {
            assert_eq!(refusal(said), meant, "{said}");
        }
    }
}
