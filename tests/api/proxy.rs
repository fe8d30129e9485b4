//! Connections to the API server through a proxy, by kubeconfig or environment, and, in a pod, by service account.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use super::objects;
use testkit::api_server::{ApiServer, TOKEN};
use testkit::ctk_binary::{ctk_command, ctk_path};
use testkit::private_netns::private_netns;
use testkit::tools::{Outcome, assert_error, clean, run};

/// Proxy for HTTP CONNECT and SOCKS5 that leads every connection to `target`, whatever the request names. Ends with the
/// test's process.
struct Proxy {
    address: SocketAddr,
    /// Number of forwarded connections.
    used: Arc<AtomicUsize>,
}

impl Proxy {
    fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let used = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&used);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let count = Arc::clone(&count);
                std::thread::spawn(move || lead(client?, target, &count));
            }
        });
        Proxy { address, used }
    }

    fn used(&self) -> usize {
        self.used.load(Ordering::SeqCst)
    }
}

fn lead(mut client: TcpStream, target: SocketAddr, used: &AtomicUsize) -> io::Result<()> {
    let mut first = [0];
    client.read_exact(&mut first)?;
    match first[0] {
        5 => socks5(&mut client)?,
        _ => connect(&mut client)?,
    }
    used.fetch_add(1, Ordering::SeqCst);
    let server = TcpStream::connect(target)?;
    let (mut from, mut to) = (client.try_clone()?, server.try_clone()?);
    std::thread::spawn(move || {
        let copied = io::copy(&mut from, &mut to);
        to.shutdown(std::net::Shutdown::Write).and(copied.map(drop))
    });
    io::copy(&mut &server, &mut client)?;
    client.shutdown(std::net::Shutdown::Write)
}

/// Reads the rest of `CONNECT HOST:PORT HTTP/1.1` and its headers.
fn connect(client: &mut TcpStream) -> io::Result<()> {
    let mut head = vec![b'C'];
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte)?;
        head.extend(byte);
    }
    assert!(head.starts_with(b"CONNECT 127.0.0.1:"), "{head:?}");
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n")
}

/// RFC 1928, without authentication, for an IPv4 address or a name.
fn socks5(client: &mut TcpStream) -> io::Result<()> {
    let mut count = [0];
    client.read_exact(&mut count)?;
    client.read_exact(&mut vec![0; count[0].into()])?;
    client.write_all(&[5, 0])?;
    let mut head = [0; 4];
    client.read_exact(&mut head)?;
    assert_eq!(head[..3], [5, 1, 0], "CONNECT");
    let length = match head[3] {
        1 => 4,
        3 => {
            client.read_exact(&mut count)?;
            count[0].into()
        }
        other => panic!("address type {other}"),
    };
    client.read_exact(&mut vec![0; length + 2])?;
    client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0])
}

/// Runs `ctk ls --cluster api` with these variables. It reads the whole cluster or fails.
fn ls(kubeconfig: &Path, variables: &[(&str, &str)]) -> Outcome {
    let kubeconfig = kubeconfig.to_str().unwrap();
    let args = [
        "ls",
        "--cluster",
        "api",
        "--all-pods",
        "-o",
        "json",
        "--kubeconfig",
        kubeconfig,
    ];
    let mut command = ctk_command(args);
    for name in ["NO_PROXY", "no_proxy"] {
        command.env_remove(name);
    }
    Outcome::of(command.envs(variables.iter().copied()).output().unwrap())
}

fn assert_whole(outcome: Outcome) {
    let lists = &outcome.json()["summary"]["cluster"]["lists"];
    for kind in ["services", "endpointslices", "nodes", "pods"] {
        assert_eq!(lists[kind], "complete", "{kind}: {outcome:#?}");
    }
}

fn server() -> ApiServer {
    let objects = objects();
    ApiServer::start(move |asked| objects.answer(asked))
}

#[test]
fn a_proxy_of_the_kubeconfig_is_used_whatever_the_environment_says() {
    private_netns(|| {
        run("ip", &["link", "set", "lo", "up"]);
        let server = server();
        for scheme in ["http", "socks5"] {
            let proxy = Proxy::to(server.address);
            // No server listens there: an answer proves the use of the proxy.
            let cluster = json!({
                "server": "https://127.0.0.1:1", "certificate-authority": "ca.pem",
                "proxy-url": format!("{scheme}://{}", proxy.address),
            });
            let kubeconfig = server.kubeconfig_with(&json!({"token": TOKEN}), &cluster);
            assert_whole(ls(
                &kubeconfig,
                &[("HTTPS_PROXY", "http://127.0.0.1:2"), ("NO_PROXY", "*")],
            ));
            assert!(proxy.used() > 0, "{scheme}");
        }
    });
}

#[test]
fn a_proxy_of_the_environment_is_used_unless_no_proxy_excludes_the_server() {
    private_netns(|| {
        run("ip", &["link", "set", "lo", "up"]);
        let server = server();
        for scheme in ["http", "socks5"] {
            for name in ["HTTPS_PROXY", "https_proxy"] {
                let proxy = Proxy::to(server.address);
                let url = format!("{scheme}://{}", proxy.address);
                let kubeconfig = server.kubeconfig();
                assert_whole(ls(&kubeconfig, &[(name, &url)]));
                assert!(proxy.used() > 0, "{scheme} {name}");
                let before = proxy.used();
                for no in ["127.0.0.0/8", "example.org, 127.0.0.1", "*"] {
                    assert_whole(ls(&kubeconfig, &[(name, &url), ("NO_PROXY", no)]));
                    assert_eq!(proxy.used(), before, "{scheme} {name} {no}");
                }
                assert_whole(ls(&kubeconfig, &[(name, &url), ("NO_PROXY", "10.0.0.0/8")]));
                assert!(proxy.used() > before, "{scheme} {name}");
            }
        }
    });
}

#[test]
fn an_absent_proxy_is_an_error() {
    private_netns(|| {
        run("ip", &["link", "set", "lo", "up"]);
        let server = server();
        let outcome = ls(
            &server.kubeconfig(),
            &[("HTTPS_PROXY", "http://127.0.0.1:1")],
        );
        assert_error(&outcome, 1, &["127.0.0.1", "refused"]);
        assert_eq!(server.requests().len(), 0);
    });
}

/// Service account of a pod, mounted over the machine's folder in a private mount namespace.
#[test]
fn a_pod_reads_with_its_service_account() {
    private_netns(|| {
        run("ip", &["link", "set", "lo", "up"]);
        let server = server();
        fs::write(server.path("token"), TOKEN).unwrap();
        fs::write(server.path("namespace"), "default").unwrap();
        fs::copy(server.path("ca.pem"), server.path("ca.crt")).unwrap();
        let folder = server.folder.path().display();
        // The folder need not exist: this mount namespace hides everything below /run.
        let script = format!(
        "set -e
        mount --make-rprivate /
        mount -t tmpfs none \"$(readlink -f /var/run)\"
        mkdir -p /var/run/secrets/kubernetes.io/serviceaccount
        cp {folder}/token {folder}/ca.crt {folder}/namespace /var/run/secrets/kubernetes.io/serviceaccount/
        exec {} ls --cluster api --all-pods -o json",
        ctk_path()
    );
        for flags in ["-m", "-Urm"] {
            let unshare = || std::process::Command::new("unshare");
            let possible = unshare().args([flags, "true"]).output();
            if !possible.is_ok_and(|output| output.status.success()) {
                assert!(
                    !std::env::var("CI").is_ok_and(|value| value == "true") || flags == "-m",
                    "a mount namespace is needed where CI=true"
                );
                eprintln!("skipped: a_pod_reads_with_its_service_account: unshare {flags}");
                continue;
            }
            let before = server.requests().len();
            let mut command = clean(unshare(), [flags, "sh", "-c", &script]);
            command
                .env("KUBERNETES_SERVICE_HOST", "127.0.0.1")
                .env("KUBERNETES_SERVICE_PORT", server.address.port().to_string());
            let outcome = Outcome::of(command.output().unwrap());
            let asked = server.requests();
            assert!(asked.len() > before, "{flags}: {outcome:#?}");
            let shown = format!("Bearer {TOKEN}");
            assert!(
                asked
                    .iter()
                    .all(|one| one.authorization.as_ref() == Some(&shown))
            );
            // In a user namespace the table may be unreadable; the cluster is readable.
            if outcome.status == Some(0) {
                assert_whole(outcome);
            } else {
                assert_eq!(flags, "-Urm", "{outcome:#?}");
                assert!(outcome.stderr.contains("permitted"), "{outcome:#?}");
            }
        }
    });
}

#[test]
fn a_pod_without_a_service_account_gets_an_error_that_says_so() {
    let mut command = ctk_command(["ls", "--cluster", "api"]);
    command
        .env("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        .env("KUBERNETES_SERVICE_PORT", "1");
    let outcome = Outcome::of(command.output().unwrap());
    assert_error(
        &outcome,
        1,
        &["service account", "automountServiceAccountToken"],
    );
}
