//! Authentication and trust: tokens, certificates, plugins, CAs, and the errors of each.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ctk_cluster::connection::{LiveError, Obstacle};
use ctk_cluster::read_scope::ReadScope;
use serde_json::{Value, json};

use super::{objects, read};
use testkit::api_server::{ApiServer, TOKEN};

fn server() -> ApiServer {
    let objects = objects();
    ApiServer::start(move |asked| objects.answer(asked))
}

/// Plugin that runs this shell script.
pub fn plugin(server: &ApiServer, script: &str) -> Value {
    let path = server.path("plugin");
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": path, "interactiveMode": "Never",
    }})
}

/// Shell command that prints a plugin's output.
pub fn credential(token: &str) -> String {
    let answer = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": token},
    });
    format!("echo '{answer}'")
}

fn assert_whole(kubeconfig: PathBuf) {
    let loaded = read(kubeconfig).unwrap();
    assert!(loaded.summary.complete, "{:?}", loaded.warnings);
}

/// Error of a read, which must come soon, have a hint, and hold no token.
fn refused(kubeconfig: PathBuf, obstacle: Obstacle, says: &[&str]) -> LiveError {
    let began = Instant::now();
    let error = read(kubeconfig).unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(10), "{error}");
    assert_eq!(error.obstacle, obstacle, "{error}");
    let outcome = format!("{error}\n{}", error.hint.as_deref().expect("a hint"));
    for word in says {
        assert!(outcome.contains(word), "{word}: {outcome}");
    }
    assert!(!outcome.contains(TOKEN), "{outcome}");
    error
}

#[test]
fn a_token_is_shown_to_the_server() {
    let server = server();
    assert_whole(server.kubeconfig());
    for asked in server.requests() {
        assert_eq!(asked.authorization, Some(format!("Bearer {TOKEN}")));
    }
}

#[test]
fn a_token_file_is_read() {
    let server = server();
    fs::write(server.path("token"), TOKEN).unwrap();
    let user = json!({"tokenFile": server.path("token")});
    assert_whole(server.kubeconfig_of(&user, "ca.pem"));
}

/// client-go removes white space around the token of a file.
#[test]
fn a_line_end_after_the_token_of_a_file_does_not_break_the_login() {
    let server = server();
    fs::write(server.path("token"), format!("\n {TOKEN}\r\n")).unwrap();
    let user = json!({"tokenFile": server.path("token")});
    assert_whole(server.kubeconfig_of(&user, "ca.pem"));
    for asked in server.requests() {
        assert_eq!(asked.authorization, Some(format!("Bearer {TOKEN}")));
    }
}

#[test]
fn a_token_that_no_header_can_hold_is_an_error_and_no_panic() {
    let server = server();
    for character in ["\n", "\r", "\u{1b}", "\0", "\u{7f}"] {
        let token = format!("{TOKEN}{character}{TOKEN}");
        let says = &["control character"];
        let inline = server.kubeconfig_of(&json!({"token": token}), "ca.pem");
        refused(inline, Obstacle::Config, says);
        fs::write(server.path("token"), &token).unwrap();
        let file = json!({"tokenFile": server.path("token")});
        refused(
            server.kubeconfig_of(&file, "ca.pem"),
            Obstacle::Config,
            says,
        );
        let printed = json!({"kind": "ExecCredential", "status": {"token": token}});
        fs::write(server.path("printed"), printed.to_string()).unwrap();
        let script = format!("cat {}", server.path("printed").display());
        let user = plugin(&server, &script);
        refused(
            server.kubeconfig_of(&user, "ca.pem"),
            Obstacle::Config,
            says,
        );
    }
    let provider = json!({"auth-provider": {"name": "oidc", "config": {"id-token": "a\nb"}}});
    let provider = server.kubeconfig_of(&provider, "ca.pem");
    refused(provider, Obstacle::Config, &["control character"]);
    fs::write(server.path("token"), " \n").unwrap();
    let file = json!({"tokenFile": server.path("token")});
    refused(
        server.kubeconfig_of(&file, "ca.pem"),
        Obstacle::Config,
        &["is empty"],
    );
    fs::write(server.path("token"), "a".repeat(2 << 20)).unwrap();
    refused(
        server.kubeconfig_of(&file, "ca.pem"),
        Obstacle::Config,
        &["larger than 1 MiB"],
    );
    let requests = server.requests();
    assert!(requests.is_empty(), "{requests:?}");
}

#[test]
fn a_server_without_a_scheme_is_completed_and_a_password_in_its_url_is_not_shown() {
    let server = server();
    let user = json!({"token": TOKEN});
    let cluster = |url: String| json!({"server": url, "certificate-authority": "ca.pem"});
    let bare = server.kubeconfig_with(&user, &cluster(server.address.to_string()));
    assert_whole(bare);
    // Port 1 of loopback refuses.
    let url = format!("https://user:{TOKEN}@127.0.0.1:1");
    let refused_connection = server.kubeconfig_with(&user, &cluster(url));
    refused(refused_connection, Obstacle::Unreachable, &["127.0.0.1:1"]);
}

#[test]
fn a_client_certificate_is_shown_to_the_server() {
    let server = server();
    let user = json!({"client-certificate": "client.pem", "client-key": "client-key.pem"});
    assert_whole(server.kubeconfig_of(&user, "ca.pem"));
    assert!(server.requests().iter().all(|asked| asked.certificate));
}

#[test]
fn a_plugin_gives_the_token_and_runs_once() {
    let server = server();
    let runs = server.path("runs");
    let script = format!("echo run >> {}; {}", runs.display(), credential(TOKEN));
    let user = plugin(&server, &script);
    assert_whole(server.kubeconfig_of(&user, "ca.pem"));
    assert_eq!(fs::read_to_string(&runs).unwrap(), "run\n");
    assert!(server.requests().len() > 4, "and for every list");
}

#[test]
fn a_plugin_gives_a_client_certificate_and_runs_once() {
    let server = server();
    let runs = server.path("runs");
    let pem = |name: &str| fs::read_to_string(server.path(name)).unwrap();
    let answer = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
        "status": {"clientCertificateData": pem("client.pem"), "clientKeyData": pem("client-key.pem")},
    });
    fs::write(server.path("answer"), answer.to_string()).unwrap();
    let script = format!(
        "echo run >> {}; cat {}",
        runs.display(),
        server.path("answer").display()
    );
    let user = plugin(&server, &script);
    assert_whole(server.kubeconfig_of(&user, "ca.pem"));
    assert_eq!(fs::read_to_string(&runs).unwrap(), "run\n");
    assert!(server.requests().iter().all(|asked| asked.certificate));
}

#[test]
fn a_plugin_gets_the_kubeconfigs_settings_and_may_answer_in_yaml() {
    let server = server();
    let script = format!(
        "[ \"$1 $NAME\" = \"one two\" ] || exit 1
case \"$KUBERNETES_EXEC_INFO\" in *'\"interactive\":false'*'\"server\":\"https://'*) ;; *'\"server\":\"https://'*'\"interactive\":false'*) ;; *) exit 2;; esac
echo 'kind: ExecCredential'
echo 'status:'
echo '  token: {TOKEN}'"
    );
    let mut user = plugin(&server, &script);
    user["exec"]["args"] = json!(["one"]);
    user["exec"]["env"] = json!([{"name": "NAME", "value": "two"}]);
    user["exec"]["provideClusterInfo"] = json!(true);
    assert_whole(server.kubeconfig_of(&user, "ca.pem"));
}

#[test]
fn a_plugin_that_hangs_is_ended_and_named() {
    let server = server();
    let user = plugin(
        &server,
        &format!("echo $$ > {}; exec sleep 600", server.path("pid").display()),
    );
    let kubeconfig = server.kubeconfig_of(&user, "ca.pem");
    let options = ctk_cluster::connection::ConnectionOptions {
        limit: Duration::from_secs(1),
        ..super::options(kubeconfig)
    };
    let error = ctk_cluster::live::load(&options, ReadScope::default(), &[]).unwrap_err();
    assert_eq!(error.obstacle, Obstacle::Plugin);
    let outcome = format!("{error} {:?}", error.hint);
    for word in ["plugin", "did not end in time", "--request-timeout"] {
        assert!(outcome.contains(word), "{outcome}");
    }
    let pid = fs::read_to_string(server.path("pid")).unwrap();
    assert!(!std::path::Path::new("/proc").join(pid.trim()).exists());
}

#[test]
fn a_plugin_whose_child_keeps_its_output_open_gives_its_credential_and_the_child_is_ended() {
    let server = server();
    let script = format!(
        "sleep 600 & echo $! > {}; {}",
        server.path("pid").display(),
        credential(TOKEN)
    );
    assert_whole(server.kubeconfig_of(&plugin(&server, &script), "ca.pem"));
    let pid = fs::read_to_string(server.path("pid")).unwrap();
    let process = std::path::Path::new("/proc").join(pid.trim());
    // Nobody waits for the ended child, where the first process of the machine does not.
    let state = fs::read_to_string(process.join("stat")).unwrap_or_default();
    assert!(state.is_empty() || state.contains(") Z "), "{state}");
}

#[test]
fn a_failed_plugin_is_named_with_its_stderr() {
    let server = server();
    let user = plugin(
        &server,
        &format!("echo {TOKEN}; echo 'session is over' >&2; exit 3"),
    );
    let kubeconfig = server.kubeconfig_of(&user, "ca.pem");
    refused(
        kubeconfig,
        Obstacle::Plugin,
        &["plugin failed", "3", "session is over", "kubectl"],
    );
    let user = plugin(&server, &format!("echo 'no json {TOKEN}'"));
    let kubeconfig = server.kubeconfig_of(&user, "ca.pem");
    refused(kubeconfig, Obstacle::Plugin, &["printed no credential"]);
    let user = json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": "/nowhere/plugin", "interactiveMode": "Never",
    }});
    let kubeconfig = server.kubeconfig_of(&user, "ca.pem");
    refused(
        kubeconfig,
        Obstacle::Plugin,
        &["/nowhere/plugin cannot be run", "PATH"],
    );
}

#[test]
fn an_expired_token_and_a_missing_right_are_different_errors() {
    let server = server();
    let kubeconfig = server.kubeconfig_of(&json!({"token": "expired"}), "ca.pem");
    let error = refused(
        kubeconfig,
        Obstacle::Unauthorized,
        &["401", "expired", "log in"],
    );
    assert!(
        error.message.contains(&server.address.to_string()),
        "{error}"
    );
    assert_eq!(server.requests().len(), 1, "others would be refused, too");
}

#[test]
fn no_request_is_sent_to_a_server_of_another_ca() {
    let server = server();
    let kubeconfig = server.kubeconfig_of(&json!({"token": TOKEN}), "other-ca.pem");
    refused(
        kubeconfig,
        Obstacle::Unreachable,
        &["certificate", "CA in the kubeconfig"],
    );
    assert!(server.requests().is_empty(), "the token stays here");
}

#[test]
fn an_absent_server_is_an_error_at_once() {
    let server = server();
    let kubeconfig = server.kubeconfig();
    let folder = tempfile::tempdir().unwrap();
    for file in ["kubeconfig", "ca.pem"] {
        fs::copy(server.path(file), folder.path().join(file)).unwrap();
    }
    drop(server);
    assert!(!kubeconfig.exists());
    refused(
        folder.path().join("kubeconfig"),
        Obstacle::Unreachable,
        &["refused", "reachable"],
    );
}

#[test]
fn an_unusable_kubeconfig_is_named() {
    let server = server();
    let missing = server.path("nothing-here");
    refused(missing, Obstacle::Config, &["nothing-here", "--kubeconfig"]);
    let endless = PathBuf::from("/dev/zero");
    refused(
        endless,
        Obstacle::Config,
        &["/dev/zero", "larger than 16 MiB"],
    );
    let broken = server.path("broken");
    fs::write(&broken, format!("users: [{{token: {TOKEN}\n  x: ]")).unwrap();
    refused(broken, Obstacle::Config, &["YAML"]);
    let kubeconfig = server.kubeconfig();
    let text = fs::read_to_string(&kubeconfig).unwrap();
    let other = text.replace(
        "\"current-context\":\"test\"",
        "\"current-context\":\"typo\"",
    );
    assert_ne!(other, text);
    fs::write(&kubeconfig, other).unwrap();
    refused(kubeconfig, Obstacle::Config, &["typo", "get-contexts"]);
}
