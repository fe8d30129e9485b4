//! Errors when no cluster can be read: each has a hint, comes soon, and holds no credential.

use std::ffi::OsString;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::objects;
use testkit::api_server::{Answer, ApiServer, TOKEN};
use testkit::ctk_binary::ctk_command;
use testkit::private_netns::private_netns;
use testkit::tools::{Outcome, assert_error, nft, run};

/// Bound for hangs; the real duration is printed.
const PATIENCE: Duration = Duration::from_secs(15);

fn server() -> ApiServer {
    let objects = objects();
    ApiServer::start(move |asked| objects.answer(asked))
}

/// Asserts that `ctk ls --cluster api` ends with this error.
fn refused(name: &str, kubeconfig: Option<&Path>, more: &[&str], says: &[&str]) {
    refused_in(name, kubeconfig, more, &[], says);
}

fn refused_in(
    name: &str,
    kubeconfig: Option<&Path>,
    more: &[&str],
    variables: &[(&str, &str)],
    says: &[&str],
) {
    let mut args: Vec<OsString> = vec!["ls".into(), "--cluster".into(), "api".into()];
    if let Some(path) = kubeconfig {
        args.extend(["--kubeconfig".into(), path.into()]);
    }
    args.extend(more.iter().map(OsString::from));
    let began = Instant::now();
    let mut command = ctk_command(&args);
    // No kubectl as another way in.
    command
        .env("PATH", "/nowhere")
        .envs(variables.iter().copied());
    let outcome = Outcome::of(command.output().unwrap());
    let took = began.elapsed();
    println!("{name}: {took:.1?}");
    assert_error(&outcome, 1, says);
    assert!(!outcome.stderr.contains(TOKEN), "{name}: {outcome:#?}");
    assert!(took < PATIENCE, "{name}: {took:?}");
}

fn plugin(server: &ApiServer, script: &str) -> PathBuf {
    let path = server.path("plugin");
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    kubeconfig_of_plugin(server, path.to_str().unwrap())
}

fn kubeconfig_of_plugin(server: &ApiServer, command: &str) -> PathBuf {
    let user = json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": command, "interactiveMode": "Never",
        "installHint": "install it from example.org",
    }});
    server.kubeconfig_of(&user, "ca.pem")
}

#[test]
fn a_login_plugin_that_does_not_work_is_named_with_a_hint() {
    private_netns(|| {
        run("ip", &["link", "set", "lo", "up"]);
        let server = server();
        let kubeconfig = plugin(
            &server,
            &format!("echo {TOKEN}; echo 'session is over' >&2; exit 3"),
        );
        let says = ["plugin", "failed", "session is over", "kubectl get nodes"];
        refused("plugin fails", Some(&kubeconfig), &[], &says);
        let kubeconfig = kubeconfig_of_plugin(&server, "no-such-plugin");
        let says = [
            "no-such-plugin cannot be run",
            "PATH",
            "install it from example.org",
        ];
        refused("plugin is missing", Some(&kubeconfig), &[], &says);
        let kubeconfig = plugin(&server, &format!("echo 'no credential {TOKEN}'"));
        refused(
            "plugin prints nonsense",
            Some(&kubeconfig),
            &[],
            &["printed no credential"],
        );
        let kubeconfig = plugin(&server, "exec /bin/sleep 600");
        let says = ["did not end in time", "--request-timeout"];
        refused(
            "plugin hangs",
            Some(&kubeconfig),
            &["--request-timeout", "1s"],
            &says,
        );
        assert_eq!(server.requests().len(), 0);
    });
}

#[test]
fn a_refused_login_and_an_untrusted_server_are_different_errors() {
    private_netns(|| {
        run("ip", &["link", "set", "lo", "up"]);
        let server = server();
        let expired: Value = json!({"token": "expired"});
        let kubeconfig = server.kubeconfig_of(&expired, "ca.pem");
        refused(
            "token has expired",
            Some(&kubeconfig),
            &[],
            &["401", "log in again"],
        );
        let kubeconfig = server.kubeconfig_of(&json!({"token": TOKEN}), "other-ca.pem");
        refused(
            "wrong CA",
            Some(&kubeconfig),
            &[],
            &["certificate", "CA in the kubeconfig"],
        );
        let url = format!("https://{}", server.address);
        let kubeconfig = server.kubeconfig_with(&json!({"token": TOKEN}), &json!({"server": url}));
        let none = tempfile::tempdir().unwrap();
        let (folder, file) = (none.path(), none.path().join("none.pem"));
        fs::write(&file, "").unwrap();
        // Paths where the libraries look for the machine's CAs.
        let nowhere = [
            ("SSL_CERT_DIR", folder.to_str().unwrap()),
            ("SSL_CERT_FILE", file.to_str().unwrap()),
        ];
        let says = ["no CA", "certificate-authority-data"];
        refused_in("no CA anywhere", Some(&kubeconfig), &[], &nowhere, &says);
    });
}

#[test]
fn a_server_that_cannot_be_reached_ends_within_the_time_for_connecting() {
    private_netns(|| {
        run("ip", &["link", "set", "lo", "up"]);
        // Packets to this address are dropped.
        run("ip", &["addr", "add", "198.51.100.9/32", "dev", "lo"]);
        nft(
            "table inet t { chain c { type filter hook input priority 0; ip daddr 198.51.100.9 drop; }; }",
        );
        let server = server();
        let (hole, no_route) = ("https://198.51.100.9:6443", "https://203.0.113.9:6443");
        // Accepts connections and reads nothing.
        let mute = TcpListener::bind("127.0.0.1:0").unwrap();
        let mute = mute.local_addr().map(|address| (mute, address)).unwrap();
        let hangs = format!("https://{}", mute.1);
        // With 2 s for a connection the total time would be over first.
        let soon = ["--connect-timeout", "100ms", "--request-timeout", "1500ms"];
        let late = ["--connect-timeout", "2s", "--request-timeout", "1s"];
        for (name, url, says, more) in [
            (
                "refused",
                "https://127.0.0.1:1",
                "no connection to 127.0.0.1:1: Connection refused",
                &[][..],
            ),
            (
                "black hole",
                hole,
                "198.51.100.9:6443 does not answer to the connection within 2s (--connect-timeout)",
                &[],
            ),
            (
                "black hole, given up soon",
                hole,
                "within 100ms (--connect-timeout)",
                &soon,
            ),
            (
                "black hole, all time over",
                hole,
                "within 1s (--request-timeout)",
                &late,
            ),
            (
                "no route",
                no_route,
                "no connection to 203.0.113.9:6443: ",
                &[],
            ),
            (
                "hangs",
                &hangs,
                "takes the connection and does not answer to TLS within 100ms (--connect-timeout)",
                &soon,
            ),
            (
                "no name",
                "https://no-such.invalid:6443",
                "the name no-such.invalid ",
                &soon,
            ),
        ] {
            let user = json!({"token": TOKEN});
            let cluster = json!({"server": url, "certificate-authority": "ca.pem"});
            let kubeconfig = server.kubeconfig_with(&user, &cluster);
            refused(name, Some(&kubeconfig), more, &[says, url]);
        }
    });
}

#[test]
fn a_server_that_hangs_and_an_unreachable_one_are_different_errors() {
    private_netns(|| {
        run("ip", &["link", "set", "lo", "up"]);
        let server = ApiServer::start(|_| {
            std::thread::sleep(Duration::from_secs(3));
            Answer::status(500)
        });
        let place = server.address;
        let says = format!("{place} is connected, and gives no answer within ");
        let kubeconfig = server.kubeconfig();
        let limits = ["--connect-timeout", "500ms", "--request-timeout", "1s"];
        let more_time = "5s with --cluster auto";
        refused(
            "hangs",
            Some(&kubeconfig),
            &limits,
            &[&says, "(--request-timeout)", more_time],
        );
    });
}

#[test]
fn a_kubeconfig_without_a_cluster_is_a_separate_error() {
    let server = server();
    refused(
        "no kubeconfig",
        None,
        &[],
        &["no cluster is configured", "--kubeconfig"],
    );
    let missing = server.path("nothing-here");
    refused(
        "missing",
        Some(&missing),
        &[],
        &["nothing-here", "can be read"],
    );
    let broken = server.path("broken");
    fs::write(&broken, format!("users: [{{token: {TOKEN}\n  x: ]")).unwrap();
    refused(
        "no YAML",
        Some(&broken),
        &[],
        &["YAML", "kubectl config view"],
    );
    let kubeconfig = server.kubeconfig();
    let typo = ["--context", "typo"];
    refused(
        "no such context",
        Some(&kubeconfig),
        &typo,
        &["typo", "get-contexts"],
    );
}
