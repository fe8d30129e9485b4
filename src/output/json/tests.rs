use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::fixture::{self, SampleEntry};
use super::*;

fn written(sample: &SampleEntry) -> String {
    let mut out = Vec::new();
    item(&sample.row(), &mut out);
    String::from_utf8(out).unwrap()
}

/// The same item made with serde.
fn expected(sample: &SampleEntry) -> Value {
    let flow = &sample.flow;
    let state = flow.state.map(|state| match state.name() {
        Some(name) => name.to_lowercase().replace('_', "-"),
        None => format!("STATE({})", state.number()),
    });
    let tags = match flow.state {
        Some(ProtocolState::Sctp {
            vtag_original,
            vtag_reply,
            ..
        }) => [vtag_original, vtag_reply],
        _ => [None, None],
    };
    let flags = match flow.state {
        Some(ProtocolState::Tcp {
            original, reply, ..
        }) => {
            json!({"original": original.flags, "reply": reply.flags})
        }
        _ if flow.protocol() == 6 => json!({"original": null, "reply": null}),
        _ => Value::Null,
    };
    let start = flow.start.map(|start| {
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(start);
        humantime::format_rfc3339_nanos(time).to_string()
    });
    let mut nat = Vec::new();
    nat.extend(flow.is_snat().then_some("snat"));
    nat.extend(flow.is_dnat().then_some("dnat"));
    let mut item = json!({
        "family": flow.family().name(),
        "protocol": ctnetlink::flow::protocol_name(flow.protocol())
            .map_or(format!("proto-{}", flow.protocol()), str::to_owned),
        "protocol_number": flow.protocol(),
        "zone": flow.zone.id,
        "zone_direction": flow.zone.direction.map(|direction| direction.name()),
        "id": flow.id,
        "original": expected_tuple(&flow.original, tags[0], flow.counters_original),
        "reply": expected_tuple(&flow.reply, tags[1], flow.counters_reply),
        "status": flow.status.names().collect::<Vec<_>>(),
        "state": state,
        "tcp_flags": flags,
        "timeout": flow.timeout,
        "mark": flow.mark,
        "labels": flow.labels().map(|l| format!("0x{:032x}", u128::from_le_bytes(*l))),
        "helper": flow.helper(),
        "master": flow.master().map(|master| json!({
            "protocol": ctnetlink::flow::protocol_name(master.protocol).map_or_else(
                || format!("proto-{}", master.protocol),
                str::to_owned,
            ),
            "src": master.src.to_string(),
            "dst": master.dst.to_string(),
            "sport": master.sport(),
            "dport": master.dport(),
        })),
        "secctx": flow.secctx(),
        "use": flow.use_count,
        "start": start,
        "nat": nat,
        "hairpin": flow.is_hairpin(),
        "client": sample.names.client.map(|p| expected_party(&p)),
        "service": sample.names.service.map(|s| json!({
            "namespace": s.namespace, "name": s.name, "port": s.port, "frontend": s.frontend.name(),
        })),
        "endpoint": sample.names.endpoint.map(|e| {
            let mut party = expected_party(&e.party);
            party["ready"] = json!(e.ready);
            party["serving"] = json!(e.serving);
            party["terminating"] = json!(e.terminating);
            party
        }),
        "verdict": sample.reason.map(|reason| reason.verdict().name()),
        "reason": sample.reason.map(|reason| reason.name()),
        "evidence": sample.reason.map(|_| &sample.evidence),
        "refreshing": sample.refreshing.name(),
        "replies": if flow.status.is_unreplied() { "one-way" } else { "unknown" },
    });
    if let Some(result) = &sample.result {
        item["result"] = json!(result.result);
        item["error"] = json!(result.error);
    }
    item
}

fn expected_tuple(tuple: &Tuple, vtag: Option<u32>, counters: Option<Counters>) -> Value {
    let (icmp, gre) = match tuple.l4 {
        L4::Icmp { kind, code, id } => (Some((kind, code, id)), None),
        L4::Gre { src, dst } => (None, Some((src, dst))),
        _ => (None, None),
    };
    json!({
        "src": tuple.src.to_string(), "dst": tuple.dst.to_string(),
        "sport": tuple.sport(), "dport": tuple.dport(),
        "type": icmp.map(|i| i.0), "code": icmp.map(|i| i.1), "icmp_id": icmp.map(|i| i.2),
        "srckey": gre.map(|g| g.0), "dstkey": gre.map(|g| g.1), "vtag": vtag,
        "packets": counters.map(|c| c.packets), "bytes": counters.map(|c| c.bytes),
    })
}

fn expected_party(party: &Party<'_>) -> Value {
    json!({
        "kind": party.kind.name(), "namespace": party.namespace, "name": party.name, "node": party.node,
    })
}

proptest! {
    #[test]
    fn every_field_of_any_item_reads_back(sample in fixture::any_sample()) {
        let text = written(&sample);
        prop_assert!(!text.contains('\n'));
        let read: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(read, expected(&sample));
    }
}

#[test]
fn the_master_of_an_expected_entry_reads_back() {
    let mut sample = fixture::dns();
    sample.flow.rare_mut().master = Some(sample.flow.reply);
    let item: Value = serde_json::from_str(&written(&sample)).unwrap();
    assert_eq!(item, expected(&sample));
    assert_eq!(item["master"]["src"], "10.244.1.7");
}

#[test]
fn the_documented_item_keeps_its_order_of_keys() {
    assert_eq!(
        written(&fixture::dns()),
        concat!(
            r#"{"family":"ipv4","protocol":"udp","protocol_number":17,"zone":0,"zone_direction":null,"id":3912345678,"#,
            r#""original":{"src":"10.244.2.9","dst":"10.96.0.10","sport":40123,"dport":53,"type":null,"code":null,"#,
            r#""icmp_id":null,"srckey":null,"dstkey":null,"vtag":null,"packets":15,"bytes":900},"#,
            r#""reply":{"src":"10.244.1.7","dst":"10.244.2.9","sport":53,"dport":40123,"type":null,"code":null,"#,
            r#""icmp_id":null,"srckey":null,"dstkey":null,"vtag":null,"packets":5,"bytes":700},"#,
            r#""status":["seen-reply","assured","confirmed"],"state":null,"tcp_flags":null,"timeout":118,"mark":0,"#,
            r#""labels":null,"helper":null,"master":null,"secctx":null,"use":1,"start":null,"nat":["dnat"],"hairpin":false,"#,
            r#""client":{"kind":"pod","namespace":"shop","name":"web-7d","node":"node1"},"#,
            r#""service":{"namespace":"kube-system","name":"kube-dns","port":"dns","frontend":"cluster-ip"},"#,
            r#""endpoint":{"kind":"pod","namespace":"kube-system","name":"coredns-b","node":"node1","#,
            r#""ready":true,"serving":true,"terminating":false},"#,
            r#""verdict":"ok","reason":"endpoint","evidence":"10.244.1.7:53 is an endpoint","#,
            r#""refreshing":"unknown","replies":"unknown"}"#,
        )
    );
}
