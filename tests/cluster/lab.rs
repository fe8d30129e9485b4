//! Whole cluster: control plane, kube-proxy on node1, traffic. Created once, and reset for each case.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::api::Api;
use crate::network::{self, NODES, pod_address};
use crate::plane::Plane;
use crate::process::wait;
use crate::proxy::{KubeProxy, Mode, make_sentinels};
use crate::table;
use crate::traffic::{Backends, Clients};

/// Folder for the files of this run, on a file system that ends with it.
const STATE: &str = "/run/ctk-cluster";
/// kube-system/kube-dns, and address and name of its pods.
pub const DNS: &str = "10.96.0.10:53";
pub const COREDNS: [(&str, &str); 2] = [("10.244.1.10", "coredns-a"), ("10.244.2.10", "coredns-b")];
/// Client pods of node1: shop/web-N at 10.244.1.N.
pub const WEB: std::ops::Range<u64> = 100..110;

pub struct Lab {
    pub plane: Plane,
    pub clients: Clients,
    pub backends: Backends,
    binaries: PathBuf,
    proxy: Option<KubeProxy>,
}

impl Lab {
    /// Creates the namespaces, the control plane and the objects of every case.
    pub fn start(binaries: &Path, logs: &Path) -> Self {
        network::build();
        std::fs::create_dir_all(STATE).unwrap();
        let plane = Plane::start(binaries, Path::new(STATE), logs);
        make_base(plane.api());
        make_sentinels(plane.api());
        Lab {
            plane,
            clients: Clients::start(),
            backends: Backends::start(),
            binaries: binaries.to_owned(),
            proxy: None,
        }
    }

    pub fn api(&self) -> &Api {
        self.plane.api()
    }

    /// kube-proxy that [`Lab::begin`] started.
    pub fn proxy(&mut self) -> &mut KubeProxy {
        self.proxy.as_mut().expect("a case begins with kube-proxy")
    }

    /// Both at once, for several threads.
    pub fn clients_and_proxy(&mut self) -> (&Clients, &mut KubeProxy) {
        let proxy = self.proxy.as_mut().expect("a case begins with kube-proxy");
        (&self.clients, proxy)
    }

    /// Waits until kube-proxy has applied everything that the API has: see [`KubeProxy::sync`].
    pub fn sync(&mut self) {
        let proxy = self.proxy.as_mut().expect("a case begins with kube-proxy");
        proxy.sync(self.plane.api());
    }

    /// Starts a case: this kube-proxy is in sync, and nothing of earlier cases nor any UDP entry is left.
    pub fn begin(&mut self, version: &str, mode: Mode) {
        self.clients.clear();
        self.backends.all_answer();
        self.plane.restore_server();
        let kept = |proxy: &KubeProxy| proxy.version == version && proxy.mode == mode;
        if let Some(other) = self.proxy.take_if(|proxy| !kept(proxy)) {
            other.stop(&self.binaries);
        }
        restore_base(self.plane.api());
        self.wait_for_endpoints("kube-system", &COREDNS.map(|(address, _)| address));
        match &mut self.proxy {
            Some(proxy) => {
                proxy.thaw();
                proxy.sync(self.plane.api());
            }
            None => {
                let proxy = KubeProxy::start(&self.plane, &self.binaries, version, mode);
                self.proxy = Some(proxy);
            }
        }
        table::clear();
    }

    /// Waits until the EndpointSlices of a namespace have exactly these ready endpoints. After an outage of the API server
    /// the controllers need time.
    pub fn wait_for_endpoints(&self, namespace: &str, addresses: &[&str]) {
        let wanted = format!("{addresses:?} in the EndpointSlices of {namespace}");
        wait(Duration::from_secs(60), &wanted, || {
            let slices = self.api().list(&slices(namespace));
            let endpoints = slices
                .iter()
                .flat_map(|slice| slice["endpoints"].as_array());
            let endpoints: Vec<&Value> = endpoints.flatten().collect();
            let ready = |endpoint: &&Value| endpoint["conditions"]["ready"] == true;
            let has = |address: &&str| {
                let mut all = endpoints.iter().filter(|&endpoint| ready(endpoint));
                all.any(|endpoint| endpoint["addresses"][0] == **address)
            };
            endpoints.len() == addresses.len() && addresses.iter().all(has)
        });
    }

    /// Waits until the EndpointSlices of a namespace are unchanged for half a second.
    pub fn settle(&self, namespace: &str) {
        let path = slices(namespace);
        let mut last = (Vec::new(), 0);
        wait(
            Duration::from_secs(15),
            "EndpointSlices stay the same",
            || {
                let now = self.api().list(&path);
                last.1 = if now == last.0 { last.1 + 1 } else { 0 };
                last.0 = now;
                last.1 > 10
            },
        );
    }

    /// Writes the cluster as a file, as kubectl prints it. Returns the path.
    pub fn write_file(&self) -> String {
        let path = format!("{STATE}/cluster.json");
        std::fs::write(&path, self.api().document().to_string()).unwrap();
        path
    }

    /// Arguments of ctk for the API as the source, with the administrator's login.
    pub fn by_api(&self) -> String {
        format!("--cluster api --kubeconfig {}", self.plane.admin())
    }

    /// The same with the node's rules as a second source.
    pub fn by_both(&self) -> String {
        format!("--cluster api,rules --kubeconfig {}", self.plane.admin())
    }
}

fn slices(namespace: &str) -> String {
    format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices")
}

/// Objects of every case.
fn make_base(api: &Api) {
    for (n, address) in NODES.iter().enumerate() {
        let n = n + 1;
        api.node(&format!("node{n}"), address, &format!("10.244.{n}.0/24"));
    }
    for namespace in ["shop", "kube-system"] {
        api.namespace(namespace);
    }
    for last in WEB {
        let name = format!("web-{last}");
        api.pod("shop", &name, "web", &pod_address(1, last), true);
    }
    for (address, name) in COREDNS {
        api.pod("kube-system", name, "dns", address, true);
    }
    let port = |name: &str, port: u16, protocol: &str| json!({"name": name, "port": port, "protocol": protocol});
    let spec = json!({
        "clusterIP": "10.96.0.10", "selector": {"app": "dns"},
        "ports": [port("dns", 53, "UDP"), port("dns-tcp", 53, "TCP"), port("metrics", 9153, "TCP")]
    });
    api.service("kube-system", "kube-dns", &spec);
}

/// Removes the objects of an earlier case, and restores the pods of kube-dns.
fn restore_base(api: &Api) {
    const KEPT: [&str; 6] = [
        "default",
        "kube-node-lease",
        "kube-public",
        "kube-system",
        "shop",
        "ctk",
    ];
    for namespace in api.list("/api/v1/namespaces") {
        let name = namespace["metadata"]["name"].as_str().unwrap();
        if !KEPT.contains(&name) && namespace["metadata"]["deletionTimestamp"].is_null() {
            api.clear(name);
        }
    }
    let pods = api.list("/api/v1/namespaces/kube-system/pods");
    for (address, name) in COREDNS {
        let pod = pods.iter().find(|pod| pod["metadata"]["name"] == name);
        if !pod.is_some_and(is_healthy) {
            api.remove_pod("kube-system", name);
            api.pod("kube-system", name, "dns", address, true);
        }
    }
}

fn is_healthy(pod: &Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_null()
        && pod["status"]["conditions"][0]["status"] == "True"
}
