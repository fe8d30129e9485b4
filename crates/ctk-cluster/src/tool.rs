//! Runs programs of this machine and collects their output. They inherit the network namespace of the calling thread.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// Folders searched in addition to `PATH`, which often lacks them for users without privilege.
const FOLDERS: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];

/// Interval between two checks whether a program has exited.
const EXIT_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Reason why a program gave no output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub text: String,
    /// The program lacked a capability.
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

/// Finds the path of a program.
pub fn find(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(FOLDERS.iter().map(PathBuf::from));
    folders
        .map(|folder| folder.join(tool))
        .find(|file| file.is_file())
}

/// Returns the standard output of a program that succeeds before `until` and prints at most `limit` bytes.
///
/// # Errors
/// [`Fault`], with the first line of the program's standard error.
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
    let Some(status) = wait(&mut child, until)? else {
        end(&mut child);
        return Err(Fault {
            text: "it took too long".to_owned(),
            refused: false,
        });
    };
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

/// Reads both streams to their ends. Returns `None` when that takes too long or exceeds the limit.
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

/// Reads a stream on a thread. The thread ends with the program, which closes its end of the pipe.
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
    // The receiver is gone after a time-out.
    thread::Builder::new().spawn(move || sender.send(read()))?;
    Ok(receiver)
}

/// Waits for the exit of a program; `None` when it keeps running. A program that closed its streams nearly always exits at once.
fn wait(child: &mut Child, until: Instant) -> io::Result<Option<ExitStatus>> {
    loop {
        match child.try_wait()? {
            None if Instant::now() < until => thread::sleep(EXIT_POLL_INTERVAL),
            ended => return Ok(ended),
        }
    }
}

fn end(child: &mut Child) {
    // A program that exited by itself meanwhile is no error.
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_closes_its_streams_and_keeps_running_is_killed() {
        let shell = find("sh").unwrap();
        let until = Instant::now() + Duration::from_millis(500);
        let lives_on = output(&shell, &["-c", "exec >&- 2>&-; exec sleep 5"], until, 100);
        let fault = lives_on.unwrap_err();
        assert!(fault.text.contains("too long"), "{fault:?}");
        let later = Instant::now() + Duration::from_secs(3600);
        assert_eq!(
            output(&shell, &["-c", "echo a"], later, 100),
            Ok("a\n".to_owned())
        );
        let failed = output(&shell, &["-c", "echo no >&2; exit 3"], later, 100);
        assert_eq!(failed.unwrap_err().text, "no");
    }
}
