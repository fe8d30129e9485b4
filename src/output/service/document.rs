//! The document of `ctk svc -o json`.

use std::net::SocketAddr;

use serde_json::{Map, Value, json};

use crate::attribution::FrontendKind;
use crate::service::{
    Affinity, FlowCounts, KnownEndpoint, KnownService, OtherDestination, Reach, ServiceReport,
};
use crate::spread::Spread;

use super::super::safe_json;
use super::super::summary::Summary;
use super::super::write::state_byte;
use super::{age, next_flows, protocol_name};

/// The document with a line end. Absent values are null.
///
/// # Errors
/// The summary cannot be written as JSON.
pub fn service_document(
    report: &ServiceReport,
    summary: &Summary,
) -> Result<Vec<u8>, serde_json::Error> {
    let tally = &report.tally;
    let endpoints = report.known.endpoints.iter().zip(&tally.loads);
    let endpoints: Vec<Value> = endpoints
        .map(|(listed, load)| endpoint(listed, load, report.now))
        .collect();
    let others = |gone: bool| -> Vec<Value> {
        let others = tally
            .others
            .iter()
            .filter(|(_, other)| other.is_gone() == gone);
        others
            .map(|((protocol, address), other)| {
                other_destination(*protocol, *address, other, report.now)
            })
            .collect()
    };
    let document = json!({
        "schema": "ctk/v1",
        "service": service(&report.known),
        "endpoints": endpoints,
        "gone": others(true),
        "elsewhere": others(false),
        "skew": skews(report),
        "new_packets": new_packets(report),
        "next_flows": next_flows::value(report),
        "summary": serde_json::to_value(summary)?,
    });
    Ok((safe_json(&document) + "\n").into_bytes())
}

fn service(known: &KnownService) -> Value {
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

/// Fields of an endpoint or of another destination.
fn destination(
    protocol: u8,
    address: SocketAddr,
    load: &FlowCounts,
    now: u64,
) -> Map<String, Value> {
    let state = |word: &str| -> String { word.bytes().map(state_byte).map(char::from).collect() };
    let states: Map<String, Value> = load
        .states
        .iter()
        .map(|(word, count)| (state(word), Value::from(*count)))
        .collect();
    let age = load.oldest.map(|start| age(start, now));
    let fields = json!({
        "address": address.ip(),
        "port": address.port(),
        "protocol": protocol_name(protocol),
        "open": load.open,
        "other": load.other,
        "states": states,
        "packets": load.packets,
        "bytes": load.bytes,
        // Flows without a timestamp are older than those with one, so the age is only a lower bound.
        "oldest": age.filter(|_| load.undated == 0),
        "oldest_at_least": age,
        "stale": load.stale(),
        "stale_at_least": load.stale_at_least(),
    });
    match fields {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn endpoint(listed: &KnownEndpoint, load: &FlowCounts, now: u64) -> Value {
    let mut fields = destination(listed.protocol, listed.address, load, now);
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

fn other_destination(protocol: u8, at: SocketAddr, other: &OtherDestination, now: u64) -> Value {
    let mut fields = destination(protocol, at, &other.load, now);
    let pod = other
        .pod
        .as_ref()
        .map(|(namespace, name)| pod(namespace, name));
    fields.insert("pod".to_owned(), pod.into());
    fields.insert("node".to_owned(), other.node.as_deref().into());
    fields.insert("reasons".to_owned(), json!(other.reasons));
    fields.into()
}

fn pod(namespace: &str, name: &str) -> Value {
    json!({"namespace": namespace, "name": name})
}

/// The skew of the reach with most flows; `apart` holds the skews of the others.
fn skews(report: &ServiceReport) -> Value {
    let mut skews = report
        .spreads
        .iter()
        .map(|(reach, spread)| skew(*reach, spread));
    let Some(Value::Object(mut first)) = skews.next() else {
        return Value::Null;
    };
    first.insert("apart".to_owned(), skews.collect());
    first.into()
}

fn skew(reach: Reach, spread: &Spread) -> Value {
    json!({
        "reach": reach.name(),
        "open": spread.flows,
        "endpoints": spread.endpoints,
        "idle_endpoints": spread.idle,
        "max": spread.max,
        "mean": spread.mean,
        "max_over_mean": spread.ratio,
        "share": spread.share,
        "clients": spread.clients.count,
        "clients_at_least": spread.clients.at_least,
        "source_ports": spread.source_ports.count,
        "chance": spread.chance,
        "beyond_chance": spread.is_beyond_chance(),
        "reason": spread.reason.name(),
        "text": spread.sentence(),
    })
}

fn new_packets(report: &ServiceReport) -> Value {
    let Ok(known) = &report.new_flow_paths else {
        return Value::Null;
    };
    let paths = known.paths.iter().map(|path| {
        json!({
            "address": path.address.ip(),
            "port": path.address.port(),
            "protocol": protocol_name(path.protocol),
            "chain": path.chain,
            "frontends": path.frontends.iter().copied().map(FrontendKind::name).collect::<Vec<_>>(),
            "probability": path.probability,
            "share": path.share,
            "packets": path.packets,
            "affinity_packets": path.affinity_packets,
        })
    });
    paths.collect()
}
