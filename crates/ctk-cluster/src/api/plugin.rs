//! Runner of the exec plugin of a kubeconfig, which prints a token or a client certificate.
//!
//! kube would run it three times for one client (for the certificate, for the token, and for their expiry) and wait for it
//! without a limit. This module runs it once for a client and kills it at the deadline. Its output is put into the configuration
//! like credentials of the kubeconfig. A client that is needed for longer than the credential is valid must connect again.

use std::io::{self, IsTerminal, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use k8s_openapi::ByteString;
use kube::config::{AuthInfo, ExecConfig, ExecInteractiveMode};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use serde_json::{Value, json};

use super::error;
use crate::connection::LiveError;

/// Upper bound of the output in bytes. A credential has some KiB.
const MAX_OUTPUT: u64 = 1024 * 1024;

/// Interval between two checks whether the plugin has exited.
const EXIT_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Wait for the output after the exit. A process left behind by the plugin may hold the pipe open.
const OUTPUT_GRACE: Duration = Duration::from_millis(200);

#[derive(Deserialize)]
struct Credential {
    status: Option<CredentialStatus>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CredentialStatus {
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

/// Runs the exec plugin of this user, if it decides the user's identity, and stores its output in `user`. Blocks until `until` at
/// the latest. With `may_ask` the plugin gets the terminal, where one exists.
///
/// # Errors
/// The plugin cannot be run, fails, takes too long, or prints no credential.
pub fn log_in(user: &mut AuthInfo, may_ask: bool, until: Instant) -> Result<(), LiveError> {
    let basic = user.username.is_some() && user.password.is_some();
    // Order of client-go: credentials of the kubeconfig itself take precedence.
    let known = basic || user.token.is_some() || user.token_file.is_some();
    if known || user.auth_provider.is_some() {
        return Ok(());
    }
    let Some(exec) = user.exec.take() else {
        return Ok(());
    };
    let name = exec.command.clone().unwrap_or_default();
    let printed = run(&exec, &name, may_ask, until)?;
    let credential: Result<Credential, _> = serde_saphyr::from_slice(&printed);
    let status = credential.ok().and_then(|credential| credential.status);
    let status = status.unwrap_or_default();
    let certificate = status.client_certificate_data.zip(status.client_key_data);
    if status.token.is_none() && certificate.is_none() {
        return Err(error::plugin(&name, "printed no credential"));
    }
    user.token = status.token.map(Into::into);
    if let Some((certificate, key)) = certificate {
        user.client_certificate_data = Some(base64(certificate));
        user.client_key_data = Some(base64(key).into());
    }
    Ok(())
}

/// Encodes PEM text the way kubeconfigs hold it.
fn base64(text: String) -> String {
    let value = serde_json::to_value(ByteString(text.into_bytes()));
    let text = value.as_ref().ok().and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

/// Returns the standard output of the plugin.
fn run(exec: &ExecConfig, name: &str, may_ask: bool, until: Instant) -> Result<Vec<u8>, LiveError> {
    let terminal = may_ask && io::stdin().is_terminal();
    let interactive = terminal && exec.interactive_mode != Some(ExecInteractiveMode::Never);
    if exec.interactive_mode == Some(ExecInteractiveMode::Always) && !terminal {
        let said = "asks questions (interactiveMode: Always), and there is no terminal";
        return Err(error::plugin(name, said));
    }
    let mut child = command(exec, name, interactive).spawn().map_err(|failed| {
        let hint = match failed.kind() {
            io::ErrorKind::NotFound => exec.install_hint.as_deref(),
            _ => None,
        };
        error::plugin_not_run(name, &failed, hint)
    })?;
    let group = (!interactive).then(|| Pid::from_child(&child));
    let streams =
        listen(child.stdout.take()).and_then(|printed| Ok((printed, listen(child.stderr.take())?)));
    let (printed, complaint) = match streams {
        Ok(streams) => streams,
        Err(failed) => {
            end(&mut child, group);
            let said = format!("cannot be listened to, no thread can be started: {failed}");
            return Err(error::plugin(name, &said));
        }
    };
    let Some(status) = wait(&mut child, until) else {
        end(&mut child, group);
        return Err(error::plugin_too_slow(name));
    };
    let printed = printed.so_far(OUTPUT_GRACE);
    let complaint = complaint.so_far(OUTPUT_GRACE);
    if let Some(group) = group {
        end_group(group);
    }
    if status.success() {
        return Ok(printed);
    }
    // The output may hold a token, so that only the standard error is shown.
    let complaint = String::from_utf8_lossy(&complaint);
    let first = complaint
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty());
    Err(error::plugin(
        name,
        &match first {
            Some(line) => format!("failed ({status}): {line}"),
            None => format!("failed ({status})"),
        },
    ))
}

fn command(exec: &ExecConfig, name: &str, interactive: bool) -> Command {
    let mut command = Command::new(name);
    command.args(exec.args.iter().flatten());
    for variable in exec.env.iter().flatten() {
        if let (Some(name), Some(value)) = (variable.get("name"), variable.get("value")) {
            command.env(name, value);
        }
    }
    let mut spec = json!({"interactive": interactive});
    if exec.provide_cluster_info {
        spec["cluster"] = serde_json::to_value(&exec.cluster).unwrap_or_default();
    }
    let info = json!({"kind": "ExecCredential", "apiVersion": exec.api_version, "spec": spec});
    command.env("KUBERNETES_EXEC_INFO", info.to_string());
    let (stdin, stderr) = match interactive {
        true => (Stdio::inherit(), Stdio::inherit()),
        false => (Stdio::null(), Stdio::piped()),
    };
    command.stdin(stdin).stdout(Stdio::piped()).stderr(stderr);
    if !interactive {
        // Processes that the plugin leaves behind are found by their group. A process in another group than the terminal's could
        // not ask.
        command.process_group(0);
    }
    command
}

/// Output of a stream that a thread reads.
struct Output {
    bytes: Arc<Mutex<Vec<u8>>>,
    /// Closed at the end of the stream.
    ended: mpsc::Receiver<()>,
}

impl Output {
    /// Output until the end of the stream, or after `grace`: a process left behind may hold the stream open.
    fn so_far(&self, grace: Duration) -> Vec<u8> {
        let _ = self.ended.recv_timeout(grace);
        let bytes = self.bytes.lock();
        bytes.map_or_else(|_| Vec::new(), |mut bytes| std::mem::take(&mut *bytes))
    }
}

/// Reads a stream to its end, on a thread that ends with it.
fn listen(stream: Option<impl Read + Send + 'static>) -> io::Result<Output> {
    let (sender, ended) = mpsc::channel();
    let bytes = Arc::<Mutex<Vec<u8>>>::default();
    if let Some(stream) = stream {
        let read = Arc::clone(&bytes);
        thread::Builder::new().spawn(move || {
            let _at_end = sender;
            let mut stream = stream.take(MAX_OUTPUT);
            let mut part = [0; 4096];
            while let Ok(length @ 1..) = stream.read(&mut part) {
                let Ok(mut read) = read.lock() else { return };
                read.extend_from_slice(part.get(..length).unwrap_or_default());
            }
        })?;
    }
    Ok(Output { bytes, ended })
}

fn end(child: &mut Child, group: Option<Pid>) {
    // A plugin that exited by itself meanwhile is no error.
    let _ = child.kill();
    if let Some(group) = group {
        end_group(group);
    }
    let _ = child.wait();
}

/// Ends the processes that the plugin left behind. One that became a daemon has a group of its own and lives on.
fn end_group(group: Pid) {
    let _ = kill_process_group(group, Signal::KILL);
}

/// Waits for the exit status; `None` after the deadline.
fn wait(child: &mut Child, until: Instant) -> Option<ExitStatus> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < until => thread::sleep(EXIT_POLL_INTERVAL),
            _ => return None,
        }
    }
}
