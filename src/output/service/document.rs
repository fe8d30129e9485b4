//! `-o json`: one document.

use std::net::SocketAddr;

use serde_json::{Map, Value, json};

use crate::entry::FrontendKind;
use crate::service::{Affinity, Gone, Known, Listed, Load, Report};
use crate::spread::Distinct;

use super::super::safe::is_harmful;
use super::super::summary::Summary;
use super::{age, protocol_name};

/// The document, with a line end. Absent is null.
///
/// # Errors
/// The summary cannot be written as JSON.
pub fn service_document(report: &Report, summary: &Summary) -> Result<Vec<u8>, serde_json::Error> {
    let tally = &report.tally;
    let endpoints = report.known.endpoints.iter().zip(&tally.loads);
    let endpoints: Vec<Value> = endpoints
        .map(|(listed, load)| endpoint(listed, load, report.now))
        .collect();
    let gone: Vec<Value> = tally
        .gone
        .iter()
        .map(|((protocol, place), gone)| gone_place(*protocol, *place, gone, report.now))
        .collect();
    let document = json!({
        "schema": "ctk/v1",
        "service": service(&report.known),
        "endpoints": endpoints,
        "gone": gone,
        "skew": skew(report),
        "new_packets": new_packets(report),
        "summary": serde_json::to_value(summary)?,
    });
    let text = document.to_string();
    let mut out = String::with_capacity(text.len() + 1);
    for c in text.chars() {
        match is_harmful(c) {
            // serde_json has escaped all below U+0020; the others lie in the basic plane.
            true => out += &format!("\\u{:04x}", u32::from(c)),
            false => out.push(c),
        }
    }
    out.push('\n');
    Ok(out.into_bytes())
}

fn service(known: &Known) -> Value {
    let frontends = known.frontends.iter().map(|frontend| {
        json!({
            "kind": frontend.kind.name(),
            "address": frontend.address,
            "protocol": protocol_name(frontend.protocol),
            "port": frontend.port,
            "name": frontend.name.as_deref(),
        })
    });
    let (affinity, timeout) = match known.affinity {
        None => (None, None),
        Some(Affinity::None) => (Some("none"), None),
        Some(Affinity::ClientIp(seconds)) => (Some("client-ip"), seconds),
    };
    json!({
        "namespace": &*known.namespace,
        "name": &*known.name,
        "kube_proxy": known.kube_proxy,
        "frontends": frontends.collect::<Vec<_>>(),
        "internal_traffic_policy": known.internal_policy.map(|policy| policy.name()),
        "external_traffic_policy": known.external_policy.map(|policy| policy.name()),
        "session_affinity": affinity,
        "session_affinity_timeout": timeout,
    })
}

/// What endpoints and gone places share.
fn place(protocol: u8, place: SocketAddr, load: &Load, now: u64) -> Map<String, Value> {
    let state = |word: &str| word.to_ascii_lowercase().replace('_', "-");
    let states: Map<String, Value> = load
        .states
        .iter()
        .map(|(word, count)| (state(word), Value::from(*count)))
        .collect();
    let age = load.oldest.map(|start| age(start, now));
    let fields = json!({
        "address": place.ip(),
        "port": place.port(),
        "protocol": protocol_name(protocol),
        "open": load.open,
        "other": load.other,
        "states": states,
        "packets": load.packets,
        "bytes": load.bytes,
        // Flows without a timestamp are older than those with one.
        "oldest": age.filter(|_| load.undated == 0),
        "oldest_at_least": age,
        "stale": load.stale(),
    });
    match fields {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn endpoint(listed: &Listed, load: &Load, now: u64) -> Value {
    let mut fields = place(listed.protocol, listed.place, load, now);
    let ports: Vec<Value> = listed
        .ports
        .iter()
        .map(|name| name.as_deref().into())
        .collect();
    let pod = listed
        .pod
        .as_ref()
        .map(|(namespace, name)| pod(namespace, name));
    for (key, value) in [
        ("service_ports", ports.into()),
        ("ready", listed.ready.into()),
        ("serving", listed.serving.into()),
        ("terminating", listed.terminating.into()),
        ("pod", pod.into()),
        ("node", listed.node.as_deref().into()),
    ] {
        fields.insert(key.to_owned(), value);
    }
    fields.into()
}

fn gone_place(protocol: u8, at: SocketAddr, gone: &Gone, now: u64) -> Value {
    let mut fields = place(protocol, at, &gone.load, now);
    let pod = gone
        .pod
        .as_ref()
        .map(|(namespace, name)| pod(namespace, name));
    fields.insert("pod".to_owned(), pod.into());
    fields.insert("node".to_owned(), gone.node.as_deref().into());
    fields.insert("reasons".to_owned(), json!(gone.reasons));
    fields.into()
}

fn pod(namespace: &str, name: &str) -> Value {
    json!({"namespace": namespace, "name": name})
}

fn skew(report: &Report) -> Value {
    let spread = &report.spread;
    let count = |distinct: Distinct| distinct.count;
    json!({
        "open": spread.flows,
        "endpoints": spread.endpoints,
        "idle_endpoints": spread.idle,
        "max": spread.max,
        "mean": spread.mean,
        "max_over_mean": spread.ratio,
        "share": spread.share,
        "clients": count(spread.clients),
        "clients_at_least": spread.clients.at_least,
        "source_ports": count(spread.source_ports),
        "chance": spread.chance,
        "beyond_chance": spread.is_beyond_chance(),
        "reason": spread.reason.name(),
        "text": spread.sentence(),
    })
}

fn new_packets(report: &Report) -> Value {
    let Some(ahead) = &report.ahead else {
        return Value::Null;
    };
    let ways = ahead.ways.iter().map(|way| {
        json!({
            "address": way.place.ip(),
            "port": way.place.port(),
            "protocol": protocol_name(way.protocol),
            "chain": way.chain,
            "frontends": way.frontends.iter().copied().map(FrontendKind::name).collect::<Vec<_>>(),
            "probability": way.probability,
            "share": way.share,
            "packets": way.packets,
            "affinity_packets": way.pinned,
        })
    });
    ways.collect()
}
