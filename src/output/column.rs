//! Columns of `--columns` and `--sort`: one for each JSON name, dotted where nested.
//!
//! To add one, add a line to [`COLUMNS`].

use std::str::FromStr;

use crate::attribution::{EndpointName, Party, ServiceName};
use ctnetlink::flow::{Counters, L4, ProtocolState, Tuple};

use super::row::Row;
use super::value::ColumnValue;

/// A column that can be chosen or sorted by.
pub struct Column {
    /// The JSON name, dotted where nested: `original.src`.
    pub key: &'static str,
    pub(super) value: for<'a> fn(&Row<'a>) -> ColumnValue<'a>,
}

impl Column {
    /// Heading in a table: the key in capitals.
    pub fn heading(&self) -> String {
        self.key.to_uppercase()
    }
}

/// An unknown column name, with the names that are close to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no column `{key}`{}; the columns are {}", did_you_mean(.nearest), all_keys())]
pub struct UnknownColumn {
    pub key: String,
    pub nearest: Vec<&'static str>,
}

fn did_you_mean(nearest: &[&str]) -> String {
    if nearest.is_empty() {
        return String::new();
    }
    format!("; did you mean {}?", nearest.join(", "))
}

fn all_keys() -> String {
    let keys: Vec<_> = COLUMNS.iter().map(|column| column.key).collect();
    keys.join(", ")
}

/// Column with that key.
///
/// # Errors
/// [`UnknownColumn`].
pub fn find(key: &str) -> Result<&'static Column, UnknownColumn> {
    let found = COLUMNS.iter().find(|column| column.key == key);
    found.ok_or_else(|| UnknownColumn {
        key: key.escape_debug().to_string(),
        nearest: nearest(key),
    })
}

/// Columns whose last component is the typed word (`sport`), else those at an edit distance of 1 or 2.
fn nearest(key: &str) -> Vec<&'static str> {
    let key = key.to_lowercase().replace('-', "_");
    let keys = || COLUMNS.iter().map(|column| column.key);
    let parts: Vec<_> = keys()
        .filter(|known| known.split('.').next_back() == Some(key.as_str()) || *known == key)
        .collect();
    if !parts.is_empty() {
        return parts;
    }
    keys()
        .filter(|known| strsim::levenshtein(known, &key) <= 2)
        .collect()
}

/// Columns in the order of the argument: `protocol,original.src,timeout`.
#[derive(Clone)]
pub struct Columns(pub Vec<&'static Column>);

impl std::fmt::Debug for Columns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|column| column.key))
            .finish()
    }
}

impl FromStr for Columns {
    type Err = UnknownColumn;

    fn from_str(list: &str) -> Result<Self, Self::Err> {
        list.split(',')
            .map(find)
            .collect::<Result<_, _>>()
            .map(Columns)
    }
}

macro_rules! columns {
    ($($key:literal => $value:expr),* $(,)?) => {
        &[$(Column { key: $key, value: $value }),*]
    };
}

/// Every column, in the order of the JSON item.
pub static COLUMNS: &[Column] = columns![
    "family" => |row| ColumnValue::Word(row.flow.family().name()),
    "protocol" => |row| ColumnValue::Protocol(row.flow.protocol()),
    "protocol_number" => |row| ColumnValue::Number(row.flow.protocol().into()),
    "zone" => |row| ColumnValue::Number(row.flow.zone.id.into()),
    "zone_direction" => |row| word(row.flow.zone.direction.map(|direction| direction.name())),
    "id" => |row| number(row.flow.id),
    "original.src" => |row| ColumnValue::Address(row.flow.original.src),
    "original.dst" => |row| ColumnValue::Address(row.flow.original.dst),
    "original.sport" => |row| number(row.flow.original.sport()),
    "original.dport" => |row| number(row.flow.original.dport()),
    "original.type" => |row| icmp(&row.flow.original, |kind, _, _| kind.into()),
    "original.code" => |row| icmp(&row.flow.original, |_, code, _| code.into()),
    "original.icmp_id" => |row| icmp(&row.flow.original, |_, _, id| id),
    "original.srckey" => |row| gre(&row.flow.original, |src, _| src),
    "original.dstkey" => |row| gre(&row.flow.original, |_, dst| dst),
    "original.vtag" => |row| sctp(row, |original, _| original),
    "original.packets" => |row| counter(row.flow.counters_original, |c| c.packets),
    "original.bytes" => |row| counter(row.flow.counters_original, |c| c.bytes),
    "reply.src" => |row| ColumnValue::Address(row.flow.reply.src),
    "reply.dst" => |row| ColumnValue::Address(row.flow.reply.dst),
    "reply.sport" => |row| number(row.flow.reply.sport()),
    "reply.dport" => |row| number(row.flow.reply.dport()),
    "reply.type" => |row| icmp(&row.flow.reply, |kind, _, _| kind.into()),
    "reply.code" => |row| icmp(&row.flow.reply, |_, code, _| code.into()),
    "reply.icmp_id" => |row| icmp(&row.flow.reply, |_, _, id| id),
    "reply.srckey" => |row| gre(&row.flow.reply, |src, _| src),
    "reply.dstkey" => |row| gre(&row.flow.reply, |_, dst| dst),
    "reply.vtag" => |row| sctp(row, |_, reply| reply),
    "reply.packets" => |row| counter(row.flow.counters_reply, |c| c.packets),
    "reply.bytes" => |row| counter(row.flow.counters_reply, |c| c.bytes),
    "status" => |row| ColumnValue::Status(row.flow.status),
    "state" => |row| row.flow.state.map_or(ColumnValue::None, ColumnValue::State),
    "tcp_flags.original" => |row| tcp(row, |original, _| original),
    "tcp_flags.reply" => |row| tcp(row, |_, reply| reply),
    "timeout" => |row| row.flow.timeout.map_or(ColumnValue::None, ColumnValue::Seconds),
    "mark" => |row| number(row.flow.mark),
    "labels" => |row| row.flow.labels().map_or(ColumnValue::None, ColumnValue::Labels),
    "helper" => |row| text(row.flow.helper()),
    "master.protocol" => |row| master(row, |tuple| ColumnValue::Protocol(tuple.protocol)),
    "master.src" => |row| master(row, |tuple| ColumnValue::Address(tuple.src)),
    "master.dst" => |row| master(row, |tuple| ColumnValue::Address(tuple.dst)),
    "master.sport" => |row| master(row, |tuple| number(tuple.sport())),
    "master.dport" => |row| master(row, |tuple| number(tuple.dport())),
    "secctx" => |row| text(row.flow.secctx()),
    "use" => |row| number(row.flow.use_count),
    "start" => |row| row.flow.start.map_or(ColumnValue::None, ColumnValue::Time),
    "nat" => nat,
    "hairpin" => |row| ColumnValue::Bool(row.flow.is_hairpin()),
    "client" => |row| ColumnValue::Client(*row),
    "client.kind" => |row| client(row, |party| ColumnValue::Word(party.kind.name())),
    "client.namespace" => |row| client(row, |party| text(party.namespace)),
    "client.name" => |row| client(row, |party| text(party.name)),
    "client.node" => |row| client(row, |party| text(party.node)),
    "service" => |row| ColumnValue::Service(*row),
    "service.namespace" => |row| service(row, |service| text(service.namespace)),
    "service.name" => |row| service(row, |service| text(service.name)),
    "service.port" => |row| service(row, |service| text(service.port)),
    "service.frontend" => |row| service(row, |service| ColumnValue::Word(service.frontend.name())),
    "endpoint" => |row| ColumnValue::Endpoint(*row),
    "endpoint.kind" => |row| endpoint(row, |endpoint| ColumnValue::Word(endpoint.party.kind.name())),
    "endpoint.namespace" => |row| endpoint(row, |endpoint| text(endpoint.party.namespace)),
    "endpoint.name" => |row| endpoint(row, |endpoint| text(endpoint.party.name)),
    "endpoint.node" => |row| endpoint(row, |endpoint| text(endpoint.party.node)),
    "endpoint.ready" => |row| endpoint(row, |endpoint| boolean(endpoint.ready)),
    "endpoint.serving" => |row| endpoint(row, |endpoint| boolean(endpoint.serving)),
    "endpoint.terminating" => |row| endpoint(row, |endpoint| boolean(endpoint.terminating)),
    "verdict" => |row| word(row.verdict.map(|(verdict, _)| verdict.name())),
    "reason" => |row| word(row.verdict.map(|(_, reason)| reason.name())),
    "evidence" => |row| row.evidence.map_or(ColumnValue::None, ColumnValue::Evidence),
    "refreshing" => |row| ColumnValue::Word(row.refreshing.name()),
    "replies" => |row| ColumnValue::Word(row.replies.name()),
    "netns" => |row| text(row.netns),
    "result" => |row| word(row.result.map(|result| result.result)),
    "error" => |row| text(row.result.and_then(|result| result.error.as_deref())),
];

fn number<'a>(n: Option<impl Into<u64>>) -> ColumnValue<'a> {
    n.map_or(ColumnValue::None, |n| ColumnValue::Number(n.into()))
}

fn word<'a>(word: Option<&'static str>) -> ColumnValue<'a> {
    word.map_or(ColumnValue::None, ColumnValue::Word)
}

fn text(text: Option<&str>) -> ColumnValue<'_> {
    text.map_or(ColumnValue::None, ColumnValue::Text)
}

fn boolean<'a>(value: Option<bool>) -> ColumnValue<'a> {
    value.map_or(ColumnValue::None, ColumnValue::Bool)
}

fn counter<'a>(counters: Option<Counters>, select: fn(Counters) -> u64) -> ColumnValue<'a> {
    number(counters.map(select))
}

fn icmp<'a>(tuple: &Tuple, select: fn(u8, u8, u16) -> u16) -> ColumnValue<'a> {
    match tuple.l4 {
        L4::Icmp { kind, code, id } => number(Some(select(kind, code, id))),
        _ => ColumnValue::None,
    }
}

fn gre<'a>(tuple: &Tuple, select: fn(u16, u16) -> u16) -> ColumnValue<'a> {
    match tuple.l4 {
        L4::Gre { src, dst } => number(Some(select(src, dst))),
        _ => ColumnValue::None,
    }
}

fn sctp<'a>(row: &Row<'a>, select: fn(Option<u32>, Option<u32>) -> Option<u32>) -> ColumnValue<'a> {
    match row.flow.state {
        Some(ProtocolState::Sctp {
            vtag_original,
            vtag_reply,
            ..
        }) => number(select(vtag_original, vtag_reply)),
        _ => ColumnValue::None,
    }
}

fn tcp<'a>(row: &Row<'a>, select: fn(Option<u8>, Option<u8>) -> Option<u8>) -> ColumnValue<'a> {
    match row.flow.state {
        Some(ProtocolState::Tcp {
            original, reply, ..
        }) => number(select(original.flags, reply.flags)),
        _ => ColumnValue::None,
    }
}

fn master<'a>(row: &Row<'a>, select: fn(&Tuple) -> ColumnValue<'a>) -> ColumnValue<'a> {
    row.flow.master().map_or(ColumnValue::None, select)
}

fn nat<'a>(row: &Row<'a>) -> ColumnValue<'a> {
    word(match (row.flow.is_snat(), row.flow.is_dnat()) {
        (false, false) => None,
        (true, false) => Some("snat"),
        (false, true) => Some("dnat"),
        (true, true) => Some("snat,dnat"),
    })
}

fn client<'a>(
    row: &Row<'a>,
    select: for<'b> fn(&'b Party<'b>) -> ColumnValue<'b>,
) -> ColumnValue<'a> {
    row.names.client.as_ref().map_or(ColumnValue::None, select)
}

fn service<'a>(
    row: &Row<'a>,
    select: for<'b> fn(&'b ServiceName<'b>) -> ColumnValue<'b>,
) -> ColumnValue<'a> {
    row.names.service.as_ref().map_or(ColumnValue::None, select)
}

fn endpoint<'a>(
    row: &Row<'a>,
    select: for<'b> fn(&'b EndpointName<'b>) -> ColumnValue<'b>,
) -> ColumnValue<'a> {
    row.names
        .endpoint
        .as_ref()
        .map_or(ColumnValue::None, select)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value as Json;

    use super::super::fixture::{self, SampleEntry};
    use super::*;

    /// Dotted keys of the leaves and of the name objects of an item.
    fn keys(prefix: &str, item: &Json, found: &mut BTreeSet<String>) {
        for (key, value) in item.as_object().into_iter().flatten() {
            let key = format!("{prefix}{key}");
            if matches!(key.as_str(), "client" | "service" | "endpoint") || !value.is_object() {
                found.insert(key.clone());
            }
            keys(&format!("{key}."), value, found);
        }
    }

    fn item(sample: &SampleEntry) -> Json {
        let mut out = Vec::new();
        super::super::json::item(&sample.row(), &mut out);
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn columns_and_json_names_are_the_same_set() {
        let [_, _, _, tcp] = fixture::documented_table();
        let mut full = fixture::dns();
        full.flow.original.protocol = 6;
        full.flow.state = tcp.flow.state;
        full.flow.rare_mut().master = Some(full.flow.original);
        full.netns = Some("red");
        full.result = Some(super::super::ItemResult {
            result: "deleted",
            error: None,
        });
        let mut names = BTreeSet::new();
        keys("", &item(&full), &mut names);
        let columns: BTreeSet<_> = COLUMNS.iter().map(|column| column.key.to_owned()).collect();
        assert_eq!(columns.len(), COLUMNS.len(), "a key is defined twice");
        assert_eq!(columns, names);
    }

    #[test]
    fn every_column_equals_its_json_value() {
        let samples = fixture::documented_table();
        for sample in samples.iter().chain([&fixture::dns()]) {
            let item = item(sample);
            for column in COLUMNS {
                let pointer = format!("/{}", column.key.replace('.', "/"));
                let expected = match item.pointer(&pointer) {
                    None | Some(Json::Null) => String::new(),
                    Some(Json::String(text)) => text.clone(),
                    Some(Json::Array(list)) => {
                        let words: Vec<_> = list.iter().filter_map(Json::as_str).collect();
                        words.join(",")
                    }
                    Some(Json::Object(_)) => continue,
                    Some(other) => other.to_string(),
                };
                let mut out = Vec::new();
                (column.value)(&sample.row()).write(&mut out);
                assert_eq!(String::from_utf8(out).unwrap(), expected, "{}", column.key);
            }
        }
    }
}
