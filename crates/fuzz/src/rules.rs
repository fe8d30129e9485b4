//! Targets `rules_iptables`, `rules_nft`, `rules_ipvs`: saved rules, alone and among others.

use std::fmt::Write as _;
use std::time::SystemTime;

use ctk::attribution::{self, FrontendMatch};
use ctk::entry::Entry;
use ctk::output::Format;
use ctk::verdict::Judge;
use ctk::watch::endpoint_event::RuleTargets;
use ctk_cluster::rules::NodeRules;
use ctk_cluster::rules::changes::{changes, targets};
use ctk_cluster::rules::lb_chain::ServiceFilter;
use ctk_cluster::rules::{
    iptables as iptables_reader, ipvs as ipvs_reader, nft as nft_reader, text,
};

use crate::{print, samples};

pub fn iptables(data: &[u8]) -> usize {
    let text = String::from_utf8_lossy(data);
    let read = check(&iptables_reader::read(&text), &iptables_reader::read(&text));
    let shares = iptables_reader::lb_chains(&text, &filter());
    whole(&text);
    read + shares.len()
}

pub fn nft(data: &[u8]) -> usize {
    let text = String::from_utf8_lossy(data);
    let mut read = 0;
    for others in [&[][..], &["ip", "ip6"]] {
        let (first, second) = (
            nft_reader::read(&text, others),
            nft_reader::read(&text, others),
        );
        if let (Ok(first), Ok(second)) = (first, second) {
            read += check(&first, &second);
        }
    }
    let shares = nft_reader::lb_chains(&text, &filter());
    whole(&text);
    read + shares.map_or(0, |shares| shares.len())
}

pub fn ipvs(data: &[u8]) -> usize {
    let text = String::from_utf8_lossy(data);
    let read = check(&ipvs_reader::read(&text), &ipvs_reader::read(&text));
    whole(&text);
    read
}

fn filter() -> ServiceFilter {
    ServiceFilter {
        namespace: None,
        name: "kube-dns".into(),
    }
}

/// Reads a text of any sort, as `--cluster rules:FILE` does.
fn whole(text: &str) {
    match text::read(text, Some(&filter())) {
        Ok((rules, shares)) => {
            for chain in shares {
                for share in chain.shares.iter().flatten() {
                    assert!((0.0..=1.0).contains(&share.share), "{share:?}");
                }
            }
            drop(rules);
        }
        Err(error) => drop(error.to_string()),
    }
}

/// Returns the number of destinations that the rules translate.
fn check(rules: &NodeRules, again: &NodeRules) -> usize {
    assert_eq!(rules, again, "a second reading differs");
    if let (Some(targets), Some(same)) = (targets(rules), targets(again)) {
        assert_eq!(changes(&targets, &same), [], "no rule changed");
        let mut known = RuleTargets::default();
        known.update(rules, SystemTime::UNIX_EPOCH);
        let told = known.update(again, SystemTime::UNIX_EPOCH);
        assert!(told.is_empty(), "no rule changed: {told:?}");
    }
    for flow in samples::flows() {
        let matched = FrontendMatch::by_rules(flow, rules, &samples::NODE);
        let mut entry = Entry::bare(flow.clone());
        entry.names = attribution::names_by_rules(flow, matched);
        for index in [None, Some(samples::index())] {
            let judge = Judge {
                index,
                rules: Some(rules),
                node: &samples::NODE,
                kube_proxy_replacement: None,
                zones: &[5],
                source_time: None,
            };
            let matched = match index {
                None => matched,
                Some(index) => FrontendMatch::of(flow, index, &samples::NODE),
            };
            entry.judgement = judge.judge(flow, matched);
            print::entry(Format::Wide, &entry, None);
            print::json(&print::entry(Format::Jsonl, &entry, None));
        }
    }
    rules.frontends.len() + rules.node_ports.len() + rules.forwards.len()
}

/// See [`Target::grown`](crate::Target).
pub const GROWN_IPTABLES: &[fn(usize) -> Vec<u8>] = &[
    iptables_services,
    iptables_endpoints,
    iptables_forwards,
    iptables_branches,
    iptables_guards,
];

/// Forwarded ports behind rules that end the chain for some packets.
fn iptables_guards(pieces: usize) -> Vec<u8> {
    let mut text = "*nat\n".to_owned();
    for guard in 0..256 {
        let _ = writeln!(
            text,
            "-A PREROUTING -s 10.0.0.0/8 -m mark --mark {guard} -j RETURN"
        );
    }
    for piece in 0..pieces {
        let _ = writeln!(
            text,
            "-A PREROUTING -p tcp -m tcp --dport {} -j DNAT --to-destination 10.0.0.2:80",
            piece % 60_000
        );
    }
    text.push_str("COMMIT\n");
    text.into()
}

/// A forwarded port, and chains that each lead to the next one twice: the number of paths doubles with each.
fn iptables_branches(pieces: usize) -> Vec<u8> {
    let mut text =
        "*nat\n-A PREROUTING -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.0.0.2:80\n\
        -A PREROUTING -j C0\n"
            .to_owned();
    for piece in 0..pieces {
        let next = piece + 1;
        let _ = write!(
            text,
            "-A C{piece} -p udp -m udp --dport {} -j C{next}\n-A C{piece} -j C{next}\n",
            1 + piece % 60_000
        );
    }
    let _ = write!(
        text,
        "-A C{pieces} -p tcp -m tcp --dport 81 -j DNAT --to-destination 10.0.0.2:80\nCOMMIT\n"
    );
    text.into()
}

/// Endpoints of one Service.
fn iptables_endpoints(pieces: usize) -> Vec<u8> {
    let mut text = "*nat\n-A PREROUTING -j KUBE-SERVICES\n\
        -A KUBE-SERVICES -d 10.96.0.10/32 -p udp -m comment --comment \"kube-system/kube-dns:dns cluster IP\" -m udp --dport 53 -j KUBE-SVC-A\n"
        .to_owned();
    for piece in 0..pieces {
        let address = std::net::Ipv4Addr::from(0x0af4_0000 | piece as u32);
        let _ = write!(
            text,
            "-A KUBE-SVC-A -m comment --comment \"kube-system/kube-dns:dns -> {address}:53\" -m statistic --mode random --probability 0.50000000000 -j KUBE-SEP-{piece}\n\
             -A KUBE-SEP-{piece} -p udp -m udp -j DNAT --to-destination {address}:53\n"
        );
    }
    text.push_str("COMMIT\n");
    text.into()
}

/// Ports that are forwarded.
fn iptables_forwards(pieces: usize) -> Vec<u8> {
    let mut text = "*nat\n-A PREROUTING -j PORTS\n".to_owned();
    for piece in 0..pieces {
        let _ = writeln!(
            text,
            "-A PORTS -p tcp -m tcp --dport {} -j DNAT --to-destination 10.0.0.2:80",
            piece % 60_000
        );
    }
    text.push_str("COMMIT\n");
    text.into()
}

/// Services with one endpoint each.
fn iptables_services(pieces: usize) -> Vec<u8> {
    let mut text = "*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -j KUBE-SERVICES\n".to_owned();
    for piece in 0..pieces {
        let address = std::net::Ipv4Addr::from(0x0a60_0000 | piece as u32);
        let _ = write!(
            text,
            "-A KUBE-SERVICES -d {address}/32 -p udp -m comment --comment \"a/s{piece}:dns cluster IP\" -m udp --dport 53 -j KUBE-SVC-{piece}\n\
             -A KUBE-SVC-{piece} -m comment --comment \"a/s{piece}:dns -> 10.244.0.1:53\" -j KUBE-SEP-{piece}\n\
             -A KUBE-SEP-{piece} -p udp -m udp -j DNAT --to-destination 10.244.0.1:53\n"
        );
    }
    text.push_str("COMMIT\n");
    text.into()
}

/// See [`Target::grown`](crate::Target).
pub const GROWN_NFT: &[fn(usize) -> Vec<u8>] = &[
    nft_services,
    nft_forwards,
    nft_branches,
    nft_rules_of_one_map,
    nft_clients,
];

const NFT_CHAIN: &str = r#"{"nftables":[{"table":{"family":"ip","name":"t","handle":1}},{"chain":{"family":"ip","table":"t","name":"c0","type":"nat","hook":"prerouting","prio":-100,"policy":"accept"}}"#;

/// A forwarded port, and chains that each lead to the next one twice.
fn nft_branches(pieces: usize) -> Vec<u8> {
    let mut text = NFT_CHAIN.to_owned();
    let rule = |text: &mut String, chain: usize, expression: &str| {
        let _ = write!(
            text,
            r#",{{"rule":{{"family":"ip","table":"t","chain":"c{chain}","handle":9,"expr":[{expression}]}}}}"#
        );
    };
    let forward = |port: usize| {
        format!(
            r#"{{"match":{{"op":"==","left":{{"payload":{{"protocol":"tcp","field":"dport"}}}},"right":{port}}}}},{{"dnat":{{"addr":"10.0.0.2","port":80}}}}"#
        )
    };
    rule(&mut text, 0, &forward(80));
    for piece in 0..pieces {
        let next = piece + 1;
        let _ = write!(
            text,
            r#",{{"chain":{{"family":"ip","table":"t","name":"c{next}","handle":7}}}}"#
        );
        let jump = format!(r#"{{"jump":{{"target":"c{next}"}}}}"#);
        rule(&mut text, piece, &jump);
        rule(&mut text, piece, &jump);
    }
    rule(&mut text, pieces, &forward(81));
    (text + "]}").into()
}

/// Rules that each use every element of one map: so many that the bound of the walk is reached.
fn nft_rules_of_one_map(pieces: usize) -> Vec<u8> {
    let pieces = 8 * pieces;
    let elements: Vec<String> = (0..pieces)
        .map(|piece| format!(r#"[{},{{"concat":["10.0.0.2",80]}}]"#, piece % 60_000))
        .collect();
    let mut text = NFT_CHAIN.to_owned();
    let _ = write!(
        text,
        r#",{{"map":{{"family":"ip","table":"t","name":"m","handle":3,"type":"inet_service","map":["ipv4_addr","inet_service"],"elem":[{}]}}}}"#,
        elements.join(",")
    );
    for _ in 0..pieces {
        text += r#",{"rule":{"family":"ip","table":"t","chain":"c0","handle":9,"expr":[{"dnat":{"family":"ip","addr":{"map":{"key":{"payload":{"protocol":"tcp","field":"dport"}},"data":"@m"}}}}]}}"#;
    }
    (text + "]}").into()
}

/// Clients of session affinity in the set of an endpoint.
fn nft_clients(pieces: usize) -> Vec<u8> {
    let mut clients = Vec::new();
    for piece in 0..pieces {
        let address = std::net::Ipv4Addr::from(0x0af4_0000 | piece as u32);
        clients.push(format!(r#"{{"elem":{{"val":"{address}","expires":10}}}}"#));
    }
    let services = String::from_utf8(nft_services(1)).unwrap_or_default();
    let services = services.trim_end_matches("]}");
    format!(
        r#"{services},{{"set":{{"family":"ip","table":"kube-proxy","name":"affinity-A","type":"ipv4_addr","timeout":10800,"elem":[{}]}}}}]}}"#,
        clients.join(",")
    )
    .into()
}

/// Ports that are forwarded.
fn nft_forwards(pieces: usize) -> Vec<u8> {
    let rule = |piece: usize| {
        format!(
            r#"{{"rule":{{"family":"ip","table":"t","chain":"c","handle":{piece},"expr":[{{"match":{{"op":"==","left":{{"payload":{{"protocol":"tcp","field":"dport"}}}},"right":{}}}}},{{"dnat":{{"addr":"10.0.0.2","port":80}}}}]}}}}"#,
            piece % 60_000
        )
    };
    let rules: Vec<String> = (0..pieces).map(rule).collect();
    format!(
        r#"{{"nftables":[{{"table":{{"family":"ip","name":"t","handle":1}}}},{{"chain":{{"family":"ip","table":"t","name":"c","type":"nat","hook":"prerouting","prio":-100,"policy":"accept"}}}},{}]}}"#,
        rules.join(",")
    )
    .into()
}

/// Elements of the map of Services, each with a chain.
fn nft_services(pieces: usize) -> Vec<u8> {
    let (mut chains, mut elements) = (String::new(), Vec::new());
    for piece in 0..pieces {
        let address = std::net::Ipv4Addr::from(0x0a60_0000 | piece as u32);
        let _ = write!(
            chains,
            r#"{{"chain":{{"family":"ip","table":"kube-proxy","name":"service-{piece:08}-a/s{piece}/udp/dns"}}}},"#
        );
        elements.push(format!(
            r#"[{{"concat":["{address}","udp",53]}},{{"goto":{{"target":"service-{piece:08}-a/s{piece}/udp/dns"}}}}]"#
        ));
    }
    let elements = elements.join(",");
    format!(
        r#"{{"nftables":[{chains}{{"map":{{"family":"ip","table":"kube-proxy","name":"service-ips","type":["ipv4_addr","inet_proto","inet_service"],"map":"verdict","elem":[{elements}]}}}}]}}"#
    )
    .into()
}

/// See [`Target::grown`](crate::Target).
pub const GROWN_IPVS: &[fn(usize) -> Vec<u8>] = &[ipvs_services, ipvs_servers];

/// Servers of one virtual server.
fn ipvs_servers(pieces: usize) -> Vec<u8> {
    let mut text =
        "IP Virtual Server version 1.2.1 (size=4096)\nUDP  0A60000A:0035 rr\n".to_owned();
    for piece in 0..pieces {
        let server = 0x0af4_0000 | piece;
        let _ = writeln!(
            text,
            "  -> {server:08X}:0035      Masq    1      0          0"
        );
    }
    text.into()
}

/// Virtual servers with one server each.
fn ipvs_services(pieces: usize) -> Vec<u8> {
    let mut text = "IP Virtual Server version 1.2.1 (size=4096)\n".to_owned();
    for piece in 0..pieces {
        let _ = write!(
            text,
            "UDP  {:08X}:0035 rr\n  -> 0AF40001:0035      Masq    1      0          0\n",
            0x0a60_0000 | piece
        );
    }
    text.into()
}
