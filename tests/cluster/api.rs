//! Sequential requests to the API server, and the objects of a cluster.

use std::time::Duration;

use http::{Method, Request};
use http_body_util::BodyExt;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// Time for one request with its answer.
const LIMIT: Duration = Duration::from_secs(20);

pub const SERVICES: &str = "/api/v1/services";
pub const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";
pub const PODS: &str = "/api/v1/pods";

pub struct Api {
    client: Client,
    runtime: Runtime,
}

/// Unexpected HTTP status, or 0 without an answer, and the text.
#[derive(Debug, thiserror::Error)]
#[error("status {status}: {text}")]
pub struct Refused {
    pub status: u16,
    pub text: String,
}

impl Api {
    /// Client of one thread.
    pub fn new(kubeconfig: &str) -> Self {
        Self::with(async {
            let file = Kubeconfig::read_from(kubeconfig).unwrap();
            let options = KubeConfigOptions::default();
            Config::from_custom_kubeconfig(file, &options)
                .await
                .unwrap()
        })
    }

    /// Client of a server without TLS and authentication.
    pub fn plain(url: &str) -> Self {
        Self::with(async { Config::new(url.parse().unwrap()) })
    }

    fn with(config: impl Future<Output = Config>) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let client = runtime.block_on(async { Client::try_from(config.await).unwrap() });
        Api { client, runtime }
    }

    /// Sends one request, without a retry.
    ///
    /// # Errors
    /// [`Refused`]
    pub fn try_send(
        &self,
        method: &Method,
        path: &str,
        kind: &str,
        body: Option<&Value>,
    ) -> Result<Value, Refused> {
        let bytes = body.map(|body| serde_json::to_vec(body).unwrap());
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("Content-Type", kind)
            .header("Accept", "application/json")
            .body(Body::from(bytes.unwrap_or_default()))
            .unwrap();
        let lost = |text: String| Refused { status: 0, text };
        let answer = async {
            let response = self
                .client
                .send(request)
                .await
                .map_err(|e| lost(e.to_string()))?;
            let status = response.status();
            let body = response.into_body().collect().await;
            let body = body.map_err(|e| lost(e.to_string()))?.to_bytes();
            let text = || String::from_utf8_lossy(&body).into_owned();
            match status.is_success() {
                true => Ok(serde_json::from_slice(&body).unwrap_or_else(|_| json!(text()))),
                false => Err(Refused {
                    status: status.as_u16(),
                    text: text(),
                }),
            }
        };
        self.runtime.block_on(async {
            let timed = tokio::time::timeout(LIMIT, answer).await;
            timed.unwrap_or_else(|_| Err(lost(format!("no answer within {LIMIT:?}"))))
        })
    }

    /// Sends a request that must succeed. Retries when the connection is lost, because the server may be a new one.
    #[track_caller]
    fn send(&self, method: Method, path: &str, kind: &str, body: Option<&Value>) -> Value {
        for left in (0..3).rev() {
            match self.try_send(&method, path, kind, body) {
                Ok(answer) => return answer,
                Err(refused) if refused.status == 0 && left > 0 => {
                    std::thread::sleep(Duration::from_millis(300));
                }
                Err(refused) => panic!("{method} {path}: {refused}"),
            }
        }
        unreachable!("the last try returns")
    }

    #[track_caller]
    pub fn get(&self, path: &str) -> Value {
        self.send(Method::GET, path, JSON, None)
    }

    /// Items of a list.
    #[track_caller]
    pub fn list(&self, path: &str) -> Vec<Value> {
        match self.get(path)["items"].take() {
            Value::Array(items) => items,
            other => panic!("{path}: {other}"),
        }
    }

    #[track_caller]
    pub fn create(&self, path: &str, object: &Value) -> Value {
        self.send(Method::POST, path, JSON, Some(object))
    }

    /// Creates an object that may exist already.
    #[track_caller]
    pub fn ensure(&self, path: &str, object: &Value) {
        match self.try_send(&Method::POST, path, JSON, Some(object)) {
            Ok(_) | Err(Refused { status: 409, .. }) => {}
            Err(refused) => panic!("{path}: {refused}"),
        }
    }

    #[track_caller]
    pub fn merge(&self, path: &str, patch: &Value) -> Value {
        let kind = "application/merge-patch+json";
        self.send(Method::PATCH, path, kind, Some(patch))
    }

    /// JSON patch: `[{"op": ..., "path": ..., "value": ...}]`.
    #[track_caller]
    pub fn patch(&self, path: &str, operations: &Value) {
        let kind = "application/json-patch+json";
        self.send(Method::PATCH, path, kind, Some(operations));
    }

    /// Deletes an object that may not exist.
    #[track_caller]
    pub fn delete(&self, path: &str) {
        match self.try_send(&Method::DELETE, path, JSON, None) {
            Ok(_) | Err(Refused { status: 404, .. }) => {}
            Err(refused) => panic!("{path}: {refused}"),
        }
    }
}

const JSON: &str = "application/json";

/// Objects in the form of this cluster.
impl Api {
    pub fn namespace(&self, name: &str) {
        self.ensure("/api/v1/namespaces", &json!({"metadata": {"name": name}}));
    }

    pub fn node(&self, name: &str, address: &str, pods: &str) {
        let labels = json!({"kubernetes.io/hostname": name});
        let node = json!({"metadata": {"name": name, "labels": labels}, "spec": {"podCIDR": pods}});
        self.ensure("/api/v1/nodes", &node);
        let addresses = json!([
            {"type": "InternalIP", "address": address},
            {"type": "Hostname", "address": name}
        ]);
        let ready = json!([{"type": "Ready", "status": "True"}]);
        let status = json!({"status": {"addresses": addresses, "conditions": ready}});
        self.merge(&format!("/api/v1/nodes/{name}/status"), &status);
    }

    /// Running pod at this address of [`crate::network::pod_address`], with the label `app`.
    pub fn pod(&self, namespace: &str, name: &str, app: &str, address: &str, ready: bool) {
        let node = match address.starts_with("10.244.1.") {
            true => "node1",
            false => "node2",
        };
        let spec = json!({
            "nodeName": node, "terminationGracePeriodSeconds": 600,
            "containers": [{"name": "c", "image": "x"}], "tolerations": [{"operator": "Exists"}]
        });
        let metadata = json!({"name": name, "labels": {"app": app}});
        let pods = format!("/api/v1/namespaces/{namespace}/pods");
        self.create(&pods, &json!({"metadata": metadata, "spec": spec}));
        let status = json!({"status": {
            "phase": "Running", "conditions": [condition(ready)], "hostIP": "192.0.2.1",
            "podIP": address, "podIPs": [{"ip": address}]
        }});
        self.merge(&format!("{pods}/{name}/status"), &status);
    }

    pub fn not_ready(&self, namespace: &str, pod: &str) {
        let status = json!({"status": {"conditions": [condition(false)]}});
        let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}/status");
        self.merge(&path, &status);
    }

    /// Deletes a pod at once.
    pub fn remove_pod(&self, namespace: &str, name: &str) {
        self.end_pod(namespace, name, 0);
    }

    /// Makes a pod terminating: no kubelet removes it after its grace period.
    pub fn terminate_pod(&self, namespace: &str, name: &str) {
        self.end_pod(namespace, name, 600);
    }

    fn end_pod(&self, namespace: &str, name: &str, grace: u32) {
        let pods = format!("/api/v1/namespaces/{namespace}/pods");
        self.delete(&format!("{pods}/{name}?gracePeriodSeconds={grace}"));
    }

    /// Creates a Service. Returns the object as the server made it.
    pub fn service(&self, namespace: &str, name: &str, spec: &Value) -> Value {
        let services = format!("/api/v1/namespaces/{namespace}/services");
        let object = json!({"metadata": {"name": name}, "spec": spec});
        self.create(&services, &object)
    }

    /// Sets the load-balancer address of a Service: `{"ip": ...}`.
    pub fn load_balancer(&self, namespace: &str, name: &str, ingress: &Value) {
        let status = json!({"status": {"loadBalancer": {"ingress": [ingress]}}});
        let path = format!("/api/v1/namespaces/{namespace}/services/{name}/status");
        self.merge(&path, &status);
    }

    /// Deletes every Service, Pod and EndpointSlice of a namespace, and the namespace.
    pub fn clear(&self, namespace: &str) {
        for kind in ["services", "pods"] {
            let path = format!("/api/v1/namespaces/{namespace}/{kind}");
            for object in self.list(&path) {
                let name = object["metadata"]["name"].as_str().unwrap();
                self.delete(&format!("{path}/{name}?gracePeriodSeconds=0"));
            }
        }
        let path = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
        for slice in self.list(&path) {
            let name = slice["metadata"]["name"].as_str().unwrap();
            self.delete(&format!("{path}/{name}"));
        }
        self.delete(&format!("/api/v1/namespaces/{namespace}"));
    }

    /// Document of `kubectl get nodes,svc,endpointslices,pods,servicecidrs -A -o json`.
    pub fn document(&self) -> Value {
        let core = "v1";
        let kinds = [
            ("Node", core, "/api/v1/nodes"),
            ("Service", core, SERVICES),
            ("EndpointSlice", "discovery.k8s.io/v1", SLICES),
            ("Pod", core, PODS),
            (
                "ServiceCIDR",
                "networking.k8s.io/v1",
                "/apis/networking.k8s.io/v1/servicecidrs",
            ),
        ];
        let mut items = Vec::new();
        for (kind, version, path) in kinds {
            for mut item in self.list(path) {
                // The server omits these fields in items of a list.
                item["kind"] = json!(kind);
                item["apiVersion"] = json!(version);
                items.push(item);
            }
        }
        json!({"kind": "List", "apiVersion": "v1", "items": items})
    }
}

fn condition(ready: bool) -> Value {
    let status = if ready { "True" } else { "False" };
    json!({"type": "Ready", "status": status})
}
