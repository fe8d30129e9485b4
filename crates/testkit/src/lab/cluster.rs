//! Cluster files in the form of `kubectl get nodes,svc,endpointslices,pods,servicecidrs -A -o json`.

use std::ffi::OsStr;
use std::io::Write;
use std::net::Ipv4Addr;

use serde_json::{Value, json};
use tempfile::NamedTempFile;

/// File for `--cluster`. Removed when dropped.
pub struct ClusterFile(NamedTempFile);

impl ClusterFile {
    pub fn of(objects: &[Value]) -> Self {
        Self::of_text(&list(objects))
    }

    pub fn of_text(text: &str) -> Self {
        // The time of a file lags behind the clock by up to a tick of the kernel, so that entries created just before would be
        // younger.
        std::thread::sleep(std::time::Duration::from_millis(20));
        let mut file = NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        ClusterFile(file)
    }

    /// Sets the time of the file to now. The content stays.
    pub fn touch(&self) {
        std::thread::sleep(std::time::Duration::from_millis(20));
        let now = std::time::SystemTime::now();
        self.0.as_file().set_modified(now).unwrap();
    }

    pub fn path(&self) -> &str {
        self.0.path().to_str().expect("the path is text")
    }
}

impl AsRef<OsStr> for ClusterFile {
    fn as_ref(&self) -> &OsStr {
        self.0.path().as_os_str()
    }
}

pub fn list(objects: &[Value]) -> String {
    json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string()
}

/// Node `node1` with this address, and the Service `default/kubernetes` with its slice. A source without them is incomplete.
pub fn minimal(address: Ipv4Addr) -> Vec<Value> {
    vec![
        node("node1", &address.to_string()),
        service(
            "default",
            "kubernetes",
            "10.96.0.1",
            &[("https", 443, "TCP")],
        ),
        slice(
            "default",
            "kubernetes",
            &[("https", 6443, "TCP")],
            &[("192.0.2.10", "")],
        ),
    ]
}

pub fn node(name: &str, address: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"addresses": [
            {"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name},
        ]},
    })
}

/// Service of type ClusterIP. Ports are name, number and protocol.
pub fn service(namespace: &str, name: &str, address: &str, ports: &[(&str, u16, &str)]) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": namespace, "name": name},
        "spec": {
            "type": "ClusterIP", "clusterIP": address, "clusterIPs": [address], "ports": ports_of(ports),
        },
    })
}

/// Slice of a Service. Endpoints are address and pod, which may be empty.
pub fn slice(
    namespace: &str,
    service: &str,
    ports: &[(&str, u16, &str)],
    endpoints: &[(&str, &str)],
) -> Value {
    let endpoints = endpoints.iter().map(|(address, pod)| {
        let mut endpoint = json!({
            "addresses": [address], "conditions": {"ready": true, "serving": true, "terminating": false},
        });
        if !pod.is_empty() {
            endpoint["nodeName"] = json!("node2");
            endpoint["targetRef"] = json!({"kind": "Pod", "namespace": namespace, "name": pod});
        }
        endpoint
    });
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {
            "namespace": namespace, "name": format!("{service}-x7k2p"),
            "labels": {"kubernetes.io/service-name": service},
        },
        "ports": ports_of(ports), "endpoints": endpoints.collect::<Vec<_>>(),
    })
}

fn ports_of(ports: &[(&str, u16, &str)]) -> Vec<Value> {
    let port = |(name, port, protocol): &(&str, u16, &str)| json!({"name": name, "port": port, "protocol": protocol});
    ports.iter().map(port).collect()
}

pub fn pod(namespace: &str, name: &str, address: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": namespace, "name": name},
        "spec": {"nodeName": node, "containers": [{"name": "main"}]},
        "status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]},
    })
}
