//! Errors of kube as messages with a hint, free of credentials.

use std::fmt::Write as _;

use kube::client::AuthError;
use kube::config::{InClusterError, KubeconfigError};

use crate::connection::{LiveError, Obstacle};

/// Formats an error with its causes, each one once. Libraries differ in whether a message repeats its cause.
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

/// Formats the reason why a request got no answer.
pub fn reason(error: &kube::Error) -> String {
    match error {
        kube::Error::Auth(error) => login(error).message,
        // The message of this variant is only "service error".
        kube::Error::Service(error) => match error.source() {
            Some(_) => chain(&**error),
            None => match error.downcast_ref::<AuthError>() {
                Some(error) => login(error).message,
                None => error.to_string(),
            },
        },
        error => chain(error),
    }
}

/// Error for a client that cannot be made.
pub fn not_built(error: &kube::Error) -> LiveError {
    match error {
        kube::Error::Auth(error) => login(error),
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

/// Error for an exec plugin that failed. `said` follows the command in the message.
pub fn plugin(command: &str, said: &str) -> LiveError {
    LiveError::new(
        Obstacle::Plugin,
        format!("the exec plugin {command} {said}"),
        "kubectl get nodes shows whether logging in works; the plugin must be in the PATH of this user (sudo changes it)",
    )
}

/// Error for an exec plugin that cannot be run. `hint` is the installation hint of the kubeconfig.
pub fn plugin_not_run(command: &str, error: &std::io::Error, hint: Option<&str>) -> LiveError {
    let mut failed = plugin(command, &format!("cannot be run: {error}"));
    if let (Some(text), Some(more)) = (&mut failed.hint, hint.map(str::trim)) {
        let _ = write!(text, "; {more}");
    }
    failed
}

pub fn plugin_too_slow(command: &str) -> LiveError {
    LiveError::new(
        Obstacle::Plugin,
        format!("the exec plugin {command} did not end in time"),
        "it may wait for a login at the terminal: run kubectl get nodes first, or give it more time with --request-timeout",
    )
}

/// A server without a scheme that is no host and port either.
pub fn bad_server(url: &http::Uri) -> LiveError {
    LiveError::new(
        Obstacle::Config,
        format!(
            "the server {:?} of the kubeconfig is no URL",
            url.host().unwrap_or_default()
        ),
        "write it like https://192.0.2.10:6443",
    )
}

/// A token with a character that a request cannot carry. `name` tells where the token is, and the message holds none of it.
pub fn bad_token(name: &str) -> LiveError {
    LiveError::new(
        Obstacle::Config,
        format!("{name} holds a line end or another control character, which no request can carry"),
        "log in again, or correct the user of this context in the kubeconfig",
    )
}

pub fn bad_token_file(name: &str, problem: &str) -> LiveError {
    LiveError::new(
        Obstacle::Config,
        format!("{name} {problem}"),
        "see tokenFile of the user in the kubeconfig",
    )
}

pub fn token_file(name: &str, error: &std::io::Error) -> LiveError {
    bad_token_file(name, &format!("cannot be read: {error}"))
}

/// Error for a login that kube cannot do. Its message for a failed program holds the output of that program, which may be a token.
fn login(error: &AuthError) -> LiveError {
    match error {
        AuthError::AuthExec(_) => LiveError::new(
            Obstacle::NotBuilt,
            "this program cannot log in as this kubeconfig says (auth-provider)",
            "it knows tokens, client certificates and exec plugins; kubectl is asked instead where it is installed",
        ),
        AuthError::ReadTokenFile(error, path) => {
            token_file(&format!("the token file {}", path.display()), error)
        }
        AuthError::AuthExecRun { status, .. } => LiveError::new(
            Obstacle::Plugin,
            format!("the login program (auth-provider) failed ({status})"),
            "kubectl get nodes shows whether logging in works",
        ),
        error => LiveError::new(
            Obstacle::NotBuilt,
            format!("login failed: {error}"),
            "see the user of this context in the kubeconfig",
        ),
    }
}

pub fn kubeconfig(error: &KubeconfigError) -> LiveError {
    let hint = match error {
        KubeconfigError::LoadContext(_) | KubeconfigError::CurrentContextNotSet => {
            "kubectl config get-contexts lists what --context can name"
        }
        KubeconfigError::ReadConfig(..) => "--kubeconfig names a file that can be read",
        _ => "kubectl config view shows its content",
    };
    // The message for broken YAML quotes the text, which may hold a token.
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
