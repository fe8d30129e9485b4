//! etcd, the API server and the controllers that make EndpointSlices, in the namespace of the test itself.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Method;
use serde_json::json;

use crate::api::Api;
use crate::network::MASTER;
use crate::pki::Pki;
use crate::process::{Process, wait};

/// Version of the API server and of the controllers.
const VERSION: &str = "v1.36.3";
const ETCD: &str = "v3.6.5";
const SERVICE_RANGE: &str = "10.96.0.0/16";
const ETCD_URL: &str = "http://127.0.0.1:2379";

pub struct Plane {
    pub pki: Pki,
    pub logs: PathBuf,
    binaries: PathBuf,
    state: PathBuf,
    /// Processes in the order of their stopping.
    controllers: Option<Process>,
    server: Option<Process>,
    etcd: Option<Process>,
    admin: Api,
    /// True while the API server runs with additional options.
    changed: bool,
}

impl Plane {
    /// Starts all processes and waits until the API server is ready.
    pub fn start(binaries: &Path, state: &Path, logs: &Path) -> Self {
        let pki = Pki::make(&state.join("pki"));
        let admin = Api::new(&pki.path("admin.kubeconfig"));
        let mut plane = Plane {
            pki,
            logs: logs.to_owned(),
            binaries: binaries.to_owned(),
            state: state.to_owned(),
            controllers: None,
            server: None,
            etcd: None,
            admin,
            changed: false,
        };
        plane.etcd = Some(plane.run_etcd());
        plane.start_server(&[]);
        plane
    }

    /// The administrator's client.
    pub fn api(&self) -> &Api {
        &self.admin
    }

    pub fn admin(&self) -> String {
        self.pki.path("admin.kubeconfig")
    }

    /// Ends the API server at once, and the controllers, whose back-off would be long.
    pub fn stop_server(&mut self) {
        self.controllers = None;
        self.server = None;
    }

    /// Starts the API server with more options, waits until it is ready, and starts the controllers.
    pub fn start_server(&mut self, more: &[&str]) {
        let mut args = self.server_args();
        args.extend(more.iter().map(|&arg| arg.to_owned()));
        let mut server = self.run("kube-apiserver", VERSION, &args);
        wait(Duration::from_secs(90), "a ready API server", || {
            assert!(
                server.is_running(),
                "the API server ended: {}",
                self.logs.display()
            );
            let ready = self
                .admin
                .try_send(&Method::GET, "/readyz", "text/plain", None);
            ready.is_ok()
        });
        self.server = Some(server);
        self.changed = !more.is_empty();
        self.controllers = Some(self.run_controllers());
    }

    /// Restores the API server of the start: running, with the usual options.
    pub fn restore_server(&mut self) {
        if self.changed || !self.server.as_mut().is_some_and(Process::is_running) {
            self.stop_server();
            self.start_server(&[]);
        }
        self.server().thaw();
    }

    /// Running API server.
    pub fn server(&mut self) -> &mut Process {
        self.server.as_mut().expect("the API server was started")
    }

    /// Writes to etcd and discards every revision but the last: a watch from an older one is answered 410 Gone.
    pub fn forget_versions(&self) {
        let etcd = Api::plain(ETCD_URL);
        // "x" in Base64.
        let put = || etcd.create("/v3/kv/put", &json!({"key": "eA==", "value": "eA=="}));
        put();
        let last = put();
        let revision = &last["header"]["revision"];
        etcd.create(
            "/v3/kv/compaction",
            &json!({"revision": revision, "physical": true}),
        );
    }

    fn run(&self, name: &str, version: &str, args: &[String]) -> Process {
        let program = self.binaries.join(format!("{name}-{version}"));
        Process::start(&self.logs, &program, args)
    }

    fn state(&self, name: &str) -> String {
        let path = self.state.join(name);
        path.to_str().expect("ASCII").to_owned()
    }

    fn run_etcd(&self) -> Process {
        let args = [
            format!("--data-dir={}", self.state("etcd")),
            format!("--listen-client-urls={ETCD_URL}"),
            format!("--advertise-client-urls={ETCD_URL}"),
            "--listen-peer-urls=http://127.0.0.1:2380".to_owned(),
            "--unsafe-no-fsync".to_owned(),
            "--log-level=warn".to_owned(),
        ];
        self.run("etcd", ETCD, &args)
    }

    fn server_args(&self) -> Vec<String> {
        let file = |name: &str| self.pki.path(name);
        vec![
            format!("--etcd-servers={ETCD_URL}"),
            format!("--bind-address={MASTER}"),
            format!("--advertise-address={MASTER}"),
            format!("--tls-cert-file={}", file("apiserver.crt")),
            format!("--tls-private-key-file={}", file("apiserver.key")),
            format!("--client-ca-file={}", file("ca.crt")),
            format!("--service-account-key-file={}", file("sa.pub")),
            format!("--service-account-signing-key-file={}", file("sa.key")),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-cluster-ip-range={SERVICE_RANGE}"),
            format!("--cert-dir={}", self.state("server")),
            "--authorization-mode=RBAC".to_owned(),
            "--allow-privileged".to_owned(),
            "--profiling=false".to_owned(),
            // Pods without service accounts are enough here.
            "--disable-admission-plugins=ServiceAccount".to_owned(),
        ]
    }

    fn run_controllers(&self) -> Process {
        let controllers = [
            "endpointslice-controller",
            "endpointslice-mirroring-controller",
            "namespace-controller",
            "service-cidr-controller",
            "serviceaccount-controller",
        ];
        let args = [
            format!("--kubeconfig={}", self.admin()),
            format!("--controllers={}", controllers.join(",")),
            format!("--service-cluster-ip-range={SERVICE_RANGE}"),
            format!("--cert-dir={}", self.state("controllers")),
            "--leader-elect=false".to_owned(),
            "--cluster-cidr=10.244.0.0/16".to_owned(),
            "--allocate-node-cidrs=false".to_owned(),
            "--kube-api-qps=200".to_owned(),
            "--kube-api-burst=400".to_owned(),
            "--concurrent-service-endpoint-syncs=10".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
        ];
        self.run("kube-controller-manager", VERSION, &args)
    }
}
