//! Cluster that changes while it is followed: lists, streams of events, and failures of a stream.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;

use testkit::api_server::{Answer, ApiRequest, ApiServer, BodyPart, Objects};

struct Stream {
    resource: &'static str,
    selector: Option<String>,
    sender: mpsc::UnboundedSender<BodyPart>,
}

#[derive(Default)]
struct Inner {
    objects: Vec<Value>,
    version: u64,
    /// Version, type and object of every event.
    log: Vec<(u64, &'static str, Value)>,
    /// Oldest version from which a watch can start.
    oldest: u64,
    streams: Vec<Stream>,
    /// Status of every list, and of every watch, of these resources.
    lists: HashMap<&'static str, u16>,
    watches: HashMap<&'static str, u16>,
    /// Delay of every list of these resources.
    delays: HashMap<&'static str, Duration>,
    /// Resources whose streams never end, as after a dead connection.
    endless: Option<&'static str>,
}

#[derive(Clone)]
pub struct Living(Arc<Mutex<Inner>>);

fn resource(object: &Value) -> &'static str {
    match object["kind"].as_str().unwrap() {
        "Service" => "services",
        "EndpointSlice" => "endpointslices",
        "Pod" => "pods",
        "Node" => "nodes",
        "ServiceCIDR" => "servicecidrs",
        other => panic!("{other}"),
    }
}

fn is_same(a: &Value, b: &Value) -> bool {
    let name = |o: &Value| {
        (
            o["metadata"]["namespace"].clone(),
            o["metadata"]["name"].clone(),
        )
    };
    a["kind"] == b["kind"] && name(a) == name(b)
}

fn is_selected(object: &Value, selector: Option<&str>) -> bool {
    match selector.map(|selector| selector.split_once('=').unwrap()) {
        None => true,
        Some(("spec.nodeName", node)) => object["spec"]["nodeName"] == node,
        Some(("status.podIP", address)) => object["status"]["podIP"] == address,
        Some(other) => panic!("the API server has no such field: {other:?}"),
    }
}

fn line(kind: &str, object: &Value) -> BodyPart {
    BodyPart::Text(format!("{}\n", json!({"type": kind, "object": object})))
}

impl Living {
    pub fn new(objects: Vec<Value>) -> Self {
        Living(Arc::new(Mutex::new(Inner {
            objects,
            version: 1000,
            ..Inner::default()
        })))
    }

    pub fn serve(&self) -> ApiServer {
        let living = self.clone();
        ApiServer::start(move |asked| living.answer(asked))
    }

    pub fn answer(&self, asked: &ApiRequest) -> Answer {
        let mut inner = self.0.lock().unwrap();
        let all = [
            "services",
            "endpointslices",
            "pods",
            "nodes",
            "servicecidrs",
        ];
        let Some(resource) = all.into_iter().find(|one| *one == asked.resource()) else {
            return Answer::status(404);
        };
        if asked.value("watch") != Some("true") {
            return match inner.lists.get(resource) {
                Some(status) => Answer::status(*status),
                None => {
                    let mut answer = Objects(inner.objects.clone()).answer(asked);
                    if let [BodyPart::Text(text)] = &mut answer.body[..] {
                        let version = format!(r#""resourceVersion":"{}""#, inner.version);
                        *text = text.replace(r#""resourceVersion":"7""#, &version);
                    }
                    if let Some(delay) = inner.delays.get(resource) {
                        answer.body.insert(0, BodyPart::Pause(*delay));
                    }
                    answer
                }
            };
        }
        if let Some(status) = inner.watches.get(resource) {
            return Answer::status(*status);
        }
        assert_eq!(asked.value("allowWatchBookmarks"), Some("true"));
        let seconds: u64 = asked.value("timeoutSeconds").unwrap().parse().unwrap();
        let from: u64 = asked.value("resourceVersion").unwrap().parse().unwrap();
        if from < inner.oldest {
            return Answer::status(410);
        }
        let selector = asked.value("fieldSelector").map(str::to_owned);
        let (sender, receiver) = mpsc::unbounded_channel();
        for (version, kind, object) in &inner.log {
            let selected = is_selected(object, selector.as_deref());
            if *version > from && super::living::resource(object) == resource && selected {
                sender.send(line(kind, object)).unwrap();
            }
        }
        let weak = sender.downgrade();
        inner.streams.push(Stream {
            resource,
            selector,
            sender,
        });
        if inner.endless != Some(resource) {
            let living = self.clone();
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_secs(seconds));
                let mut inner = living.0.lock().unwrap();
                // A stream that ended before has no sender any more.
                if let Some(sender) = weak.upgrade() {
                    inner.streams.retain(|s| !s.sender.same_channel(&sender));
                }
            });
        }
        Answer {
            body: vec![BodyPart::Stream(Arc::new(Mutex::new(Some(receiver))))],
            ..Answer::ok("")
        }
    }

    fn happen(&self, kind: Option<&'static str>, object: &Value) {
        let mut inner = self.0.lock().unwrap();
        inner.version += 1;
        let version = inner.version;
        let mut object = object.clone();
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        let known = inner.objects.iter().any(|o| is_same(o, &object));
        inner.objects.retain(|o| !is_same(o, &object));
        let kind = kind.unwrap_or(if known { "MODIFIED" } else { "ADDED" });
        if kind != "DELETED" {
            inner.objects.push(object.clone());
        }
        for stream in &inner.streams {
            let selected = is_selected(&object, stream.selector.as_deref());
            if stream.resource == resource(&object) && selected {
                let _ = stream.sender.send(line(kind, &object));
            }
        }
        inner.log.push((version, kind, object));
    }

    pub fn put(&self, object: &Value) {
        self.happen(None, object);
    }

    pub fn delete(&self, object: &Value) {
        self.happen(Some("DELETED"), object);
    }

    /// Sends these pieces to every stream of a resource.
    pub fn send(&self, resource: &str, pieces: &[BodyPart]) {
        let inner = self.0.lock().unwrap();
        for stream in inner.streams.iter().filter(|s| s.resource == resource) {
            for piece in pieces {
                let _ = stream.sender.send(piece.clone());
            }
        }
    }

    /// Ends every stream of a resource, as the server does at its timeout.
    pub fn end(&self, resource: &str) {
        let mut inner = self.0.lock().unwrap();
        inner.streams.retain(|stream| stream.resource != resource);
    }

    /// Keeps the streams of a resource open beyond their timeout.
    pub fn never_end(&self, resource: &'static str) {
        self.0.lock().unwrap().endless = Some(resource);
    }

    /// Forgets every version before now.
    pub fn expire(&self) {
        let mut inner = self.0.lock().unwrap();
        // The next version is later than every known one.
        inner.version += 1;
        inner.oldest = inner.version;
        inner.log.clear();
    }

    /// Answers every list of this resource with this status, or normally again.
    pub fn refuse_lists(&self, resource: &'static str, status: Option<u16>) {
        let mut inner = self.0.lock().unwrap();
        inner.lists.remove(resource);
        inner.lists.extend(status.map(|status| (resource, status)));
    }

    /// Delays every list of this resource from now on.
    pub fn delay_lists(&self, resource: &'static str, time: Duration) {
        self.0.lock().unwrap().delays.insert(resource, time);
    }

    pub fn refuse_watches(&self, resource: &'static str, status: Option<u16>) {
        let mut inner = self.0.lock().unwrap();
        inner.watches.remove(resource);
        inner
            .watches
            .extend(status.map(|status| (resource, status)));
    }

    /// Streams of a resource that are open.
    pub fn streams(&self, resource: &str) -> usize {
        let inner = self.0.lock().unwrap();
        let of = inner.streams.iter().filter(|s| s.resource == resource);
        of.filter(|stream| !stream.sender.is_closed()).count()
    }
}
