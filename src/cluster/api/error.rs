//! Errors of kube, in words that help and hold no credentials.

use std::fmt::Write as _;

use kube::client::AuthError;
use kube::config::{InClusterError, KubeconfigError};

use crate::cluster::live::{LiveError, Obstacle};

/// An error with everything that caused it, each said once. Libraries differ in whether a message repeats its cause.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        if !text.contains(&message) {
            let _ = write!(text, ": {message}");
        }
        cause = error.source();
    }
    text
}

/// Why a request got no answer.
pub fn reason(error: &kube::Error) -> String {
    match error {
        kube::Error::Auth(error) => plugin(error, None).message,
        // Its own words are only "service error".
        kube::Error::Service(error) => match error.source() {
            Some(_) => chain(&**error),
            None => match error.downcast_ref::<AuthError>() {
                Some(error) => plugin(error, None).message,
                None => error.to_string(),
            },
        },
        error => chain(error),
    }
}

/// Why no client could be made. `command` is the exec plugin of the kubeconfig.
pub fn not_built(error: &kube::Error, command: Option<&str>) -> LiveError {
    match error {
        kube::Error::Auth(error) => plugin(error, command),
        kube::Error::RustlsTls(kube::client::RustlsTlsError::NoValidNativeRootCA(_)) => {
            LiveError::new(
                Obstacle::NotBuilt,
                "the kubeconfig names no CA, and this machine has no CA certificates either",
                "add certificate-authority-data to the cluster in the kubeconfig, or install ca-certificates",
            )
        }
        kube::Error::InferKubeconfig(error) => kubeconfig(error),
        error => LiveError::new(
            Obstacle::NotBuilt,
            format!("no client for this cluster can be made: {}", chain(error)),
            "see the user and the cluster of this context in the kubeconfig; where kubectl is installed, it is asked instead",
        ),
    }
}

/// What an exec plugin printed may be a token: only its name and its exit status are shown.
fn plugin(error: &AuthError, command: Option<&str>) -> LiveError {
    let name = match command {
        Some(command) => format!("the exec plugin {command}"),
        None => "the exec plugin of the kubeconfig".to_owned(),
    };
    let said = match error {
        AuthError::AuthExecStart(error) => format!("{name} cannot be run: {error}"),
        AuthError::AuthExecRun { status, out, .. } => {
            let text = String::from_utf8_lossy(&out.stderr);
            match text.lines().find(|line| !line.trim().is_empty()) {
                Some(line) => format!("{name} failed ({status}): {}", line.trim()),
                None => format!("{name} failed ({status})"),
            }
        }
        AuthError::AuthExecParse(_) | AuthError::ExecPluginFailed => {
            format!("{name} printed no credential")
        }
        AuthError::NoValidNativeRootCA(_) | AuthError::AuthExec(_) if command.is_none() => {
            let message = "this program cannot log in as this kubeconfig says (auth-provider)";
            let hint = "it knows tokens, client certificates and exec plugins; kubectl is asked instead where it is installed";
            return LiveError::new(Obstacle::NotBuilt, message, hint);
        }
        error => format!("{name}: {error}"),
    };
    LiveError::new(
        Obstacle::Plugin,
        said,
        "kubectl get nodes shows whether logging in works; the plugin must be in the PATH of this user (sudo changes it)",
    )
}

pub fn kubeconfig(error: &KubeconfigError) -> LiveError {
    let hint = match error {
        KubeconfigError::LoadContext(_) | KubeconfigError::CurrentContextNotSet => {
            "kubectl config get-contexts lists what --context can name"
        }
        KubeconfigError::ReadConfig(..) => "--kubeconfig names a file that can be read",
        _ => "kubectl config view shows what is in it",
    };
    // A broken YAML text is quoted in the message, and it may hold a token.
    let message = match error {
        KubeconfigError::Parse(error) => match error.location() {
            Some(place) => format!("it is not valid YAML at line {}", place.line()),
            None => "it is not valid YAML".to_owned(),
        },
        error => chain(error),
    };
    LiveError::new(Obstacle::Config, format!("kubeconfig: {message}"), hint)
}

pub fn in_cluster(error: &InClusterError) -> LiveError {
    LiveError::new(
        Obstacle::Config,
        format!("the service account of this pod: {}", chain(error)),
        "is automountServiceAccountToken switched off?",
    )
}
