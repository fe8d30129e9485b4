//! Programs of the machine that are asked what only they can read. They inherit the network namespace of the calling thread.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Instant;

/// Beside `PATH`, where users without privilege often lack them.
const FOLDERS: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];

/// Why a program gave no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub text: String,
    /// For want of a capability.
    pub refused: bool,
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Fault {
            refused: error.kind() == io::ErrorKind::PermissionDenied,
            text: error.to_string(),
        }
    }
}

/// Where a program is.
pub fn find(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(FOLDERS.iter().map(PathBuf::from));
    folders
        .map(|folder| folder.join(tool))
        .find(|file| file.is_file())
}

/// Standard output of a program that ends well, in time, and within `limit` bytes.
///
/// # Errors
/// [`Fault`], with the first line that it complained in.
pub fn output(
    path: &Path,
    arguments: &[&str],
    until: Instant,
    limit: u64,
) -> Result<String, Fault> {
    let mut child = Command::new(path)
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let (printed, complaint) = match listen(&mut child, until, limit) {
        Ok(Some(said)) => said,
        other => {
            end(&mut child);
            return Err(other.err().map_or_else(too_much, Fault::from));
        }
    };
    let status = child.wait()?;
    if status.success() {
        return Ok(String::from_utf8_lossy(&printed).into_owned());
    }
    let complaint = String::from_utf8_lossy(&complaint);
    let refused = ["ermission denied", "not permitted", "must be root"]
        .iter()
        .any(|words| complaint.contains(words));
    let first = complaint
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty());
    Err(Fault {
        text: first.map_or_else(|| status.to_string(), str::to_owned),
        refused,
    })
}

fn too_much() -> Fault {
    Fault {
        text: "it took too long, or printed too much".to_owned(),
        refused: false,
    }
}

/// Both streams to their ends; `None` when that takes too long or is too much.
///
/// # Errors
/// No thread can be started.
fn listen(child: &mut Child, until: Instant, limit: u64) -> io::Result<Option<(Vec<u8>, Vec<u8>)>> {
    let printed = bounded(child.stdout.take(), limit)?;
    let complaint = bounded(child.stderr.take(), limit)?;
    let said = |stream: Receiver<Option<Vec<u8>>>| {
        let left = until.saturating_duration_since(Instant::now());
        stream.recv_timeout(left).ok().flatten()
    };
    Ok(said(printed).and_then(|printed| Some((printed, said(complaint)?))))
}

/// What a stream holds, read on a thread that ends with the program: its end of the pipe is closed then.
fn bounded(
    stream: Option<impl io::Read + Send + 'static>,
    limit: u64,
) -> io::Result<Receiver<Option<Vec<u8>>>> {
    let (sender, receiver) = mpsc::channel();
    let read = move || {
        let mut bytes = Vec::new();
        let read = stream?.take(limit).read_to_end(&mut bytes).ok()?;
        ((read as u64) < limit).then_some(bytes)
    };
    // Nobody waits any more when it took too long.
    thread::Builder::new().spawn(move || sender.send(read()))?;
    Ok(receiver)
}

fn end(child: &mut Child) {
    // One that has ended by itself meanwhile is no error.
    let _ = child.kill();
    let _ = child.wait();
}
