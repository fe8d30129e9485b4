//! kube-proxy on node1, and a wait until it has applied all changes.

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::api::Api;
use crate::network::Place;
use crate::plane::Plane;
use crate::process::{Process, wait};
use testkit::tools::run;

/// Mode of kube-proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Iptables,
    Nftables,
}

impl Mode {
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Iptables => "iptables",
            Mode::Nftables => "nftables",
        }
    }
}

/// Protocol, name and cluster address of the Services that [`KubeProxy::sync`] changes.
const SENTINELS: [(&str, &str, &str); 2] = [
    ("TCP", "sentinel", "10.96.255.1"),
    ("UDP", "sentinel-udp", "10.96.255.2"),
];
const LIMIT: Duration = Duration::from_secs(40);
/// Time between two syncs of the rules: shorter than the default of a second, to save time.
const MIN_SYNC: &str = "200ms";
/// After a sync kube-proxy cleans the table, and another sync may follow.
const AFTER_RULES: Duration = Duration::from_millis(800);

pub struct KubeProxy {
    pub version: String,
    pub mode: Mode,
    process: Process,
    syncs: u32,
}

impl KubeProxy {
    /// Starts kube-proxy and waits until its rules match the API.
    pub fn start(plane: &Plane, binaries: &Path, version: &str, mode: Mode) -> Self {
        let program = binaries.join(format!("kube-proxy-{version}"));
        let kubeconfig = plane.pki.path("system:kube-proxy.kubeconfig");
        let args = [
            format!("--proxy-mode={}", mode.name()),
            format!("--kubeconfig={kubeconfig}"),
            format!("--iptables-min-sync-period={MIN_SYNC}"),
            "--hostname-override=node1".to_owned(),
            "--cluster-cidr=10.244.0.0/16".to_owned(),
            // The machine's own limits stay unchanged.
            "--conntrack-max-per-core=0".to_owned(),
            "--conntrack-min=0".to_owned(),
            "--healthz-bind-address=127.0.0.1:10256".to_owned(),
            "--metrics-bind-address=127.0.0.1:10249".to_owned(),
            "-v=4".to_owned(),
        ];
        let process = Place::Node(1).run(|| Process::start(&plane.logs, &program, &args));
        let mut proxy = KubeProxy {
            version: version.to_owned(),
            mode,
            process,
            syncs: 0,
        };
        proxy.sync(plane.api());
        proxy
    }

    /// Minor version: 36 for v1.36.3.
    pub fn minor(&self) -> u32 {
        let minor = self.version.split('.').nth(1);
        minor.and_then(|minor| minor.parse().ok()).expect("v1.N.N")
    }

    pub fn freeze(&mut self) {
        self.process.freeze();
    }

    pub fn thaw(&mut self) {
        self.process.thaw();
    }

    /// Waits until everything that the API has is in the rules, and kube-proxy has cleaned the table for it: a UDP Service
    /// has changed, too.
    pub fn sync(&mut self, api: &Api) {
        self.syncs += 1;
        let n = self.syncs;
        let address = format!("198.18.{}.{}", n / 250 % 250, n % 250 + 1);
        let port = 10_000 + n % 50_000;
        for (protocol, name, _) in SENTINELS {
            let ports = json!([{"op": "replace", "path": "/spec/ports", "value":
                [{"port": port, "protocol": protocol}]}]);
            api.patch(
                &format!("/api/v1/namespaces/default/services/{name}"),
                &ports,
            );
            let endpoints = json!([{"op": "replace", "path": "/endpoints", "value":
                [{"addresses": [address]}]}]);
            api.patch(&slice(name), &endpoints);
        }
        let wanted = format!("kube-proxy's rules for {address}, port {port}");
        wait(LIMIT, &wanted, || {
            assert!(self.process.is_running(), "kube-proxy ended: see its log");
            let rules = self.rules();
            let ports = [format!("--dport {port} "), format!(". {port} ")];
            let leads = |name: &str| {
                let comment = format!("default/{name}");
                let mut lines = rules.lines().filter(|line| line.contains(&comment));
                lines.any(|line| ports.iter().any(|port| line.contains(port)))
            };
            rules.matches(&address).count() > 1 && SENTINELS.iter().all(|(_, name, _)| leads(name))
        });
        std::thread::sleep(AFTER_RULES);
    }

    /// kube-proxy's rules, as its mode's tool prints them.
    pub fn rules(&self) -> String {
        let outcome = Place::Node(1).run(|| match self.mode {
            Mode::Iptables => run("iptables-save", &[]),
            // Before the first sync the table is missing.
            Mode::Nftables => run("sh", &["-c", "nft list table ip kube-proxy 2>&1 || true"]),
        });
        outcome.stdout
    }

    /// Ends kube-proxy and removes its rules.
    pub fn stop(self, binaries: &Path) {
        let program = binaries.join(format!("kube-proxy-{}", self.version));
        self.process.stop();
        let program = program.to_str().expect("ASCII");
        Place::Node(1).run(|| run(program, &["--cleanup"]));
    }
}

fn slice(name: &str) -> String {
    format!("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/{name}")
}

/// Creates the Services that show the progress of kube-proxy.
pub fn make_sentinels(api: &Api) {
    for (protocol, name, address) in SENTINELS {
        let ports = json!([{"port": 9, "protocol": protocol}]);
        let spec = json!({"clusterIP": address, "ports": ports});
        api.service("default", name, &spec);
        let labels = json!({"kubernetes.io/service-name": name});
        let slice = json!({
            "metadata": {"name": name, "labels": labels}, "addressType": "IPv4",
            "endpoints": [{"addresses": ["198.18.0.1"]}],
            "ports": [{"name": "", "port": 9, "protocol": protocol}]
        });
        let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
        api.create(slices, &slice);
    }
}
