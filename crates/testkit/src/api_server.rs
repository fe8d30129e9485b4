//! HTTPS server on 127.0.0.1 with the list protocol of the Kubernetes API, on a thread of its own.
//!
//! A test defines the answers; [`Objects::answer`] gives those of a healthy server.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio_rustls::TlsAcceptor;

/// Token that the server accepts.
pub const TOKEN: &str = "secret-token-of-the-test";

/// Request as the server receives it.
#[derive(Clone, Debug)]
pub struct ApiRequest {
    pub path: String,
    /// Decoded names and values.
    pub query: Vec<(String, String)>,
    pub authorization: Option<String>,
    /// True when the client showed a certificate of the test's CA.
    pub certificate: bool,
}

impl ApiRequest {
    pub fn value(&self, name: &str) -> Option<&str> {
        let mut found = self.query.iter().filter(|(n, _)| n == name);
        found.next().map(|(_, value)| value.as_str())
    }

    /// Last part of the path: `services`.
    pub fn resource(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

/// Part of a body.
#[derive(Clone)]
pub enum BodyPart {
    Text(String),
    Pause(Duration),
    /// Ends the connection in the middle of the body.
    Cut,
    /// Number of parts, generated while they are sent, and their generator.
    Many(Arc<dyn Fn(usize) -> String + Send + Sync>, usize),
    /// Parts sent as they arrive, until every sender is dropped.
    Stream(Arc<Mutex<Option<mpsc::UnboundedReceiver<BodyPart>>>>),
}

#[derive(Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<BodyPart>,
}

impl Answer {
    pub fn ok(text: impl Into<String>) -> Self {
        Answer {
            status: 200,
            headers: Vec::new(),
            body: vec![BodyPart::Text(text.into())],
        }
    }

    pub fn status(status: u16) -> Self {
        let text =
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status});
        Answer {
            status,
            ..Answer::ok(text.to_string())
        }
    }
}

/// Objects of a cluster.
#[derive(Clone, Default)]
pub struct Objects(pub Vec<Value>);

impl Objects {
    /// Answer of a healthy server: pages where a limit is given, unless the cache is read.
    pub fn answer(&self, request: &ApiRequest) -> Answer {
        // List of one namespace: that of the cluster without the other namespaces.
        let (path, namespace) = match request.path.strip_prefix("/api/v1/namespaces/") {
            Some(rest) => {
                let (namespace, kind) = rest.split_once('/').unwrap();
                (format!("/api/v1/{kind}"), Some(namespace))
            }
            None => (request.path.clone(), None),
        };
        let (kind, group) = match path.as_str() {
            "/api/v1/services" => ("Service", "v1"),
            "/apis/discovery.k8s.io/v1/endpointslices" => ("EndpointSlice", "discovery.k8s.io/v1"),
            "/api/v1/pods" => ("Pod", "v1"),
            "/api/v1/nodes" => ("Node", "v1"),
            "/apis/networking.k8s.io/v1/servicecidrs" => ("ServiceCIDR", "networking.k8s.io/v1"),
            _ => return Answer::status(404),
        };
        let selected = |object: &&Value| match request.value("fieldSelector") {
            None => true,
            Some(selector) => match selector.split_once('=').unwrap() {
                ("spec.nodeName", node) => object["spec"]["nodeName"] == node,
                ("status.podIP", address) => object["status"]["podIP"] == address,
                ("metadata.name", name) => object["metadata"]["name"] == name,
                other => panic!("the API server has no such field: {other:?}"),
            },
        };
        let of_kind = self.0.iter().filter(|object| object["kind"] == kind);
        let labelled = |object: &&Value| match request.value("labelSelector") {
            None => true,
            Some(selector) => {
                let (label, values) = selector.split_once(" in (").unwrap();
                let mut values = values.strip_suffix(')').unwrap().split(',');
                values.any(|value| object["metadata"]["labels"][label] == value)
            }
        };
        let here = |object: &&Value| {
            namespace.is_none_or(|namespace| object["metadata"]["namespace"] == namespace)
        };
        let all: Vec<Value> = of_kind
            .filter(|object| selected(object) && labelled(object) && here(object))
            .cloned()
            .collect();
        let limit = match request.value("resourceVersion") {
            Some("0") => None,
            _ => request.value("limit").map(|l| l.parse::<usize>().unwrap()),
        };
        let from: usize = request.value("continue").map_or(0, |token| {
            token
                .strip_prefix("from/")
                .and_then(|t| t.strip_suffix("=="))
                .unwrap()
                .parse()
                .unwrap()
        });
        let to = limit.map_or(all.len(), |limit| all.len().min(from + limit));
        let mut metadata = json!({"resourceVersion": "7"});
        if to < all.len() {
            metadata["continue"] = json!(format!("from/{to}=="));
        }
        let items: Vec<Value> = all[from..to]
            .iter()
            .map(|item| {
                // In a list of one kind the API server omits these fields.
                let mut item = item.clone();
                let fields = item.as_object_mut().unwrap();
                fields.remove("kind");
                fields.remove("apiVersion");
                item
            })
            .collect();
        let items = serde_json::to_string(&items).unwrap();
        Answer::ok(format!(
            r#"{{"kind":"{kind}List","apiVersion":"{group}","metadata":{metadata},"items":{items}}}"#
        ))
    }
}

/// Running server, which ends when dropped. Its folder has the files that a client needs.
pub struct ApiServer {
    pub address: SocketAddr,
    pub folder: TempDir,
    requests: Arc<Mutex<Vec<ApiRequest>>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

type AnswerFn = dyn Fn(&ApiRequest) -> Answer + Send + Sync;

impl ApiServer {
    /// Starts a server that answers every request with the token or a certificate, and all others with 401.
    pub fn start(answer_fn: impl Fn(&ApiRequest) -> Answer + Send + Sync + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tls = make_certificates(folder.path());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&requests);
        let answer_fn: Arc<AnswerFn> = Arc::new(move |request: &ApiRequest| {
            log.lock().unwrap().push(request.clone());
            let bearer = format!("Bearer {TOKEN}");
            if request.certificate || request.authorization.as_deref() == Some(&bearer) {
                answer_fn(request)
            } else {
                Answer::status(401)
            }
        });
        let (stop, stopped) = oneshot::channel();
        // Bound by the caller's thread, which may have a network namespace of its own.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async move {
                let listener = TcpListener::from_std(listener).unwrap();
                tokio::spawn(serve(listener, tls, answer_fn));
                let _ = stopped.await;
            });
            runtime.shutdown_background();
        });
        ApiServer {
            address,
            folder,
            requests,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// Requests until now.
    pub fn requests(&self) -> Vec<ApiRequest> {
        self.requests.lock().unwrap().clone()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a kubeconfig with the user `user`, as JSON (which is YAML), and the CA file `ca`. Returns the path.
    pub fn kubeconfig_of(&self, user: &Value, ca: &str) -> PathBuf {
        let url = format!("https://{}", self.address);
        self.kubeconfig_with(user, &json!({"server": url, "certificate-authority": ca}))
    }

    /// Writes a kubeconfig with this user and this cluster. Returns the path.
    pub fn kubeconfig_with(&self, user: &Value, cluster: &Value) -> PathBuf {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "c", "user": "u"}}],
        });
        let path = self.path("kubeconfig");
        fs::write(&path, config.to_string()).unwrap();
        path
    }

    /// Copies a kubeconfig and its CA to a folder that outlives the server.
    pub fn copy_login(&self, kubeconfig: &Path, folder: &Path) -> PathBuf {
        let copy = folder.join("kubeconfig");
        fs::copy(kubeconfig, &copy).unwrap();
        fs::copy(self.path("ca.pem"), folder.join("ca.pem")).unwrap();
        copy
    }

    /// Writes a kubeconfig with a valid login. Returns the path.
    pub fn kubeconfig(&self) -> PathBuf {
        self.kubeconfig_of(&json!({"token": TOKEN}), "ca.pem")
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        let _ = self.stop.take().map(|stop| stop.send(()));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Writes `ca.pem`, `other-ca.pem`, `client.pem`, `client-key.pem`. Returns the server's configuration.
fn make_certificates(folder: &Path) -> Arc<ServerConfig> {
    let new_ca = |name: &str| {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        (certificate, Issuer::new(params, key))
    };
    let (ca, issuer) = new_ca("the test's CA");
    let (other, _) = new_ca("another CA");
    let signed = |name: &str| {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &issuer).unwrap(), key)
    };
    let (server, server_key) = signed("127.0.0.1");
    let (client, client_key) = signed("client");
    for (file, text) in [
        ("ca.pem", ca.pem()),
        ("other-ca.pem", other.pem()),
        ("client.pem", client.pem()),
        ("client-key.pem", client_key.serialize_pem()),
    ] {
        fs::write(folder.join(file), text).unwrap();
    }
    let mut roots = RootCertStore::empty();
    roots.add(ca.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone())
        .allow_unauthenticated()
        .build()
        .unwrap();
    let chain = vec![CertificateDer::from_pem_slice(server.pem().as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(server_key.serialize_pem().as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .unwrap();
    Arc::new(config)
}

async fn serve(listener: TcpListener, tls: Arc<ServerConfig>, answer_fn: Arc<AnswerFn>) {
    let acceptor = TlsAcceptor::from(tls);
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (acceptor, answer_fn) = (acceptor.clone(), Arc::clone(&answer_fn));
        tokio::spawn(async move {
            // A client that rejects the certificate closes the connection.
            let Ok(stream) = acceptor.accept(stream).await else {
                return;
            };
            let certificate = stream.get_ref().1.peer_certificates().is_some();
            let service = service_fn(move |request| {
                let answer = answer_fn(&parse_request(&request, certificate));
                async move { Ok::<_, Infallible>(response(answer)) }
            });
            // An answer that is cut on purpose is an error here.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

fn parse_request(request: &Request<Incoming>, certificate: bool) -> ApiRequest {
    let query = request.uri().query().unwrap_or_default();
    let query = query.split('&').filter(|pair| !pair.is_empty());
    let authorization = request.headers().get("authorization");
    ApiRequest {
        path: request.uri().path().to_owned(),
        query: query
            .map(|pair| {
                let (name, value) = pair.split_once('=').unwrap();
                (name.to_owned(), decoded(value))
            })
            .collect(),
        authorization: authorization.map(|value| value.to_str().unwrap().to_owned()),
        certificate,
    }
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next().unwrap(), rest.next().unwrap()];
                u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
            }
            b'+' => b' ',
            byte => byte,
        });
    }
    String::from_utf8(bytes).unwrap()
}

fn response(answer: Answer) -> Response<StreamedBody> {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        let mut body = VecDeque::from(answer.body);
        while let Some(piece) = body.pop_front() {
            let text = |text: String| Ok(Frame::data(Bytes::from(text)));
            let sent = match piece {
                BodyPart::Text(whole) => sender.send(text(whole)).await,
                BodyPart::Pause(time) => {
                    tokio::time::sleep(time).await;
                    Ok(())
                }
                BodyPart::Cut => sender.send(Err(std::io::Error::other("cut"))).await,
                BodyPart::Many(make, count) => {
                    let mut sent = Ok(());
                    for n in 0..count {
                        sent = sender.send(text(make(n))).await;
                        if sent.is_err() {
                            break;
                        }
                    }
                    sent
                }
                BodyPart::Stream(stream) => {
                    let mut receiver = stream.lock().unwrap().take().unwrap();
                    let tick = Duration::from_millis(20);
                    let next = loop {
                        match tokio::time::timeout(tick, receiver.recv()).await {
                            Ok(next) => break next,
                            Err(_) if sender.is_closed() => return,
                            Err(_) => {}
                        }
                    };
                    if let Some(next) = next {
                        let again = Arc::new(Mutex::new(Some(receiver)));
                        body.extend([next, BodyPart::Stream(again)]);
                    }
                    Ok(())
                }
            };
            if sent.is_err() {
                return; // the client has closed the connection
            }
        }
    });
    let mut response = Response::builder()
        .status(answer.status)
        .header("content-type", "application/json");
    for (name, value) in answer.headers {
        response = response.header(name, value);
    }
    response.body(StreamedBody(receiver)).unwrap()
}

/// Body that is sent as its parts arrive.
struct StreamedBody(mpsc::Receiver<Result<Frame<Bytes>, std::io::Error>>);

impl Body for StreamedBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        self.0.poll_recv(context)
    }
}
