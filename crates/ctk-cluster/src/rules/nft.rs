//! Reader of nftables rules as `nft -j list ruleset` or `nft -j list table FAMILY NAME` prints them (libnftables-json(5)).
//!
//! Expressions stay text until the walk reaches them. Tables of `iptables-nft` hide their targets from nft in `xt` expressions:
//! [`super::iptables`] reads these, and this reader only marks them where no other one did.

mod draw;
mod entrance;
mod forward;
mod kube;
mod lb_chain;
mod show;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use ipnet::IpNet;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::NodeRules;
use super::affinity::{self, ClientList};
use super::lb_chain::{LbChain, ServiceFilter};

#[derive(Deserialize)]
struct NftDocument<'t> {
    #[serde(borrow)]
    nftables: Vec<NftObject<'t>>,
}

/// One object of the list, with exactly one member set. Other objects are ignored.
#[derive(Deserialize)]
struct NftObject<'t> {
    #[serde(borrow, default)]
    chain: Option<Chain<'t>>,
    #[serde(borrow, default)]
    rule: Option<RuleItem<'t>>,
    #[serde(borrow, default)]
    map: Option<Elements<'t>>,
    #[serde(borrow, default)]
    set: Option<Elements<'t>>,
}

#[derive(Deserialize)]
struct Chain<'t> {
    #[serde(borrow)]
    family: Cow<'t, str>,
    #[serde(borrow)]
    table: Cow<'t, str>,
    #[serde(borrow)]
    name: Cow<'t, str>,
    #[serde(borrow, default, rename = "type")]
    kind: Option<Cow<'t, str>>,
    #[serde(borrow, default)]
    hook: Option<Cow<'t, str>>,
}

#[derive(Deserialize)]
struct RuleItem<'t> {
    #[serde(borrow)]
    family: Cow<'t, str>,
    #[serde(borrow)]
    table: Cow<'t, str>,
    #[serde(borrow)]
    chain: Cow<'t, str>,
    #[serde(borrow, default)]
    expr: Option<&'t RawValue>,
}

#[derive(Deserialize)]
struct Elements<'t> {
    #[serde(borrow)]
    family: Cow<'t, str>,
    #[serde(borrow)]
    table: Cow<'t, str>,
    #[serde(borrow)]
    name: Cow<'t, str>,
    #[serde(borrow, default)]
    elem: Option<&'t RawValue>,
    /// Seconds that elements live.
    #[serde(default)]
    timeout: Option<u64>,
}

/// One table.
#[derive(Default)]
struct NftTable<'t> {
    family: String,
    name: String,
    /// Rules of each chain, in order.
    chains: HashMap<Cow<'t, str>, Vec<&'t RawValue>>,
    /// Chains of type nat: whether they hook locally generated packets, and their names.
    hooks: Vec<(bool, Cow<'t, str>)>,
    /// Maps and sets.
    elements: HashMap<Cow<'t, str>, Option<&'t RawValue>>,
    /// Seconds that elements of a map or set live, if they end.
    timeouts: HashMap<Cow<'t, str>, u64>,
}

impl<'t> NftTable<'t> {
    /// Expressions of the rules of a chain.
    fn rules(&self, chain: &str) -> impl Iterator<Item = Vec<Value>> + use<'_, 't> {
        let rules = self.chains.get(chain).into_iter().flatten();
        rules.map(|raw| serde_json::from_str(raw.get()).unwrap_or_default())
    }

    fn has(&self, chain: &str) -> bool {
        self.chains.contains_key(chain)
    }

    /// Elements of a named set or map; `None` for an unknown name.
    fn named(&self, name: &str) -> Option<Vec<Value>> {
        let raw = self.elements.get(name)?;
        Some(raw.map_or_else(Vec::new, |raw| {
            serde_json::from_str(raw.get()).unwrap_or_default()
        }))
    }

    /// Clients in a set of affinity.
    fn client_list(&self, set: &str) -> ClientList {
        match self.named(set) {
            Some(elements) => affinity::set(&elements, self.timeouts.get(set).copied()),
            None => ClientList::NotUnderstood,
        }
    }

    /// Written by `iptables-nft`.
    fn is_xtables(&self) -> bool {
        let mut rules = self.chains.values().flatten();
        rules.any(|raw| raw.get().contains("\"xt\""))
    }
}

/// Reads one document. `others_read`: families whose iptables rules another tool has read.
///
/// # Errors
/// The text is no such document.
pub fn read(json: &str, others_read: &[&str]) -> Result<NodeRules, serde_json::Error> {
    Ok(walk(serde_json::from_str(json)?, others_read))
}

/// Reads the document at the start of `json`. Also returns its length in bytes.
///
/// # Errors
/// Those of [`read`].
pub fn read_first(
    json: &str,
    others_read: &[&str],
) -> Result<(NodeRules, usize), serde_json::Error> {
    let mut documents = serde_json::Deserializer::from_str(json).into_iter::<NftDocument<'_>>();
    let Some(first) = documents.next() else {
        return Ok((NodeRules::default(), json.len()));
    };
    let rules = walk(first?, others_read);
    Ok((rules, documents.byte_offset()))
}

/// Reads how kube-proxy's rules of one Service spread new flows over endpoints, from the document at the start of `json`.
///
/// # Errors
/// Those of [`read`].
pub fn lb_chains(json: &str, filter: &ServiceFilter) -> Result<Vec<LbChain>, serde_json::Error> {
    let mut documents = serde_json::Deserializer::from_str(json).into_iter::<NftDocument<'_>>();
    let Some(first) = documents.next() else {
        return Ok(Vec::new());
    };
    let tables = gather(first?);
    let own = tables.values().filter(|table| table.name == kube::TABLE);
    Ok(own
        .flat_map(|table| lb_chain::lb_chains(table, filter))
        .collect())
}

/// Name of kube-proxy's table, in each family.
pub fn is_kube_proxy(table: &str) -> bool {
    table == kube::TABLE
}

fn walk(document: NftDocument<'_>, others_read: &[&str]) -> NodeRules {
    let mut rules = NodeRules::default();
    for table in gather(document).values() {
        if !matches!(table.family.as_str(), "ip" | "ip6" | "inet") {
            continue;
        }
        if table.is_xtables() {
            // The tool of iptables shows the chains that it knows; nft may have added others to the same table.
            let read = others_read.contains(&table.family.as_str());
            let foreign = |chain: &str| !matches!(chain, "PREROUTING" | "OUTPUT");
            rules.cut |= !read && !table.hooks.is_empty();
            forward::table(table, &mut rules, foreign);
        } else if table.name == kube::TABLE {
            kube::table(table, &mut rules);
        } else {
            forward::table(table, &mut rules, |_| true);
        }
    }
    rules
}

fn gather(document: NftDocument<'_>) -> BTreeMap<(String, String), NftTable<'_>> {
    let mut all: BTreeMap<(String, String), NftTable<'_>> = BTreeMap::new();
    for item in document.nftables {
        let (family, name) = match (
            &item.chain,
            &item.rule,
            item.map.as_ref().or(item.set.as_ref()),
        ) {
            (Some(chain), ..) => (&chain.family, &chain.table),
            (_, Some(rule), _) => (&rule.family, &rule.table),
            (.., Some(elements)) => (&elements.family, &elements.table),
            _ => continue,
        };
        let table = all
            .entry((family.to_string(), name.to_string()))
            .or_insert_with(|| NftTable {
                family: family.to_string(),
                name: name.to_string(),
                ..NftTable::default()
            });
        if let Some(chain) = item.chain {
            let output = match chain.hook.as_deref() {
                Some("prerouting") => Some(false),
                Some("output") => Some(true),
                _ => None,
            };
            if let (Some("nat"), Some(output)) = (chain.kind.as_deref(), output) {
                table.hooks.push((output, chain.name.clone()));
            }
            table.chains.entry(chain.name).or_default();
        } else if let Some(rule) = item.rule {
            table
                .chains
                .entry(rule.chain)
                .or_default()
                .extend(rule.expr);
        } else if let Some(elements) = item.map.or(item.set) {
            if let Some(timeout) = elements.timeout {
                table.timeouts.insert(elements.name.clone(), timeout);
            }
            table.elements.insert(elements.name, elements.elem);
        }
    }
    all
}

/// Target of `{"jump": {"target": ...}}` or `goto`, and which of the two it is.
fn jump(expression: &Value) -> Option<(&str, bool)> {
    let goto = expression.get("goto");
    let target = goto.or_else(|| expression.get("jump"))?.get("target")?;
    Some((target.as_str()?, goto.is_some()))
}

/// An element without its comment, timeout and counters, and the comment.
fn element(value: &Value) -> (&Value, Option<&str>) {
    match value.get("elem") {
        Some(inner) => (
            inner.get("val").unwrap_or(value),
            inner.get("comment").and_then(Value::as_str),
        ),
        None => (value, None),
    }
}

/// Pairs of a map, anonymous (`{"set": [[key, value], ...]}`) or named (`"@name"`).
fn pairs(table: &NftTable<'_>, data: &Value) -> Option<Vec<(Value, Value)>> {
    let list = match data {
        Value::String(name) => table.named(name.strip_prefix('@')?)?,
        _ => data.get("set")?.as_array()?.clone(),
    };
    let pair = |item: Value| match item {
        Value::Array(mut two) if two.len() == 2 => Some((two.remove(0), two.pop()?)),
        _ => None,
    };
    list.into_iter().map(pair).collect()
}

/// Parses an address or a prefix.
fn net(value: &Value) -> Option<IpNet> {
    if let Some(text) = value.as_str() {
        return Some(text.parse::<IpAddr>().ok()?.into());
    }
    let prefix = value.get("prefix")?;
    let address: IpAddr = prefix.get("addr")?.as_str()?.parse().ok()?;
    let length = u8::try_from(prefix.get("len")?.as_u64()?).ok()?;
    Some(IpNet::new(address, length).ok()?.trunc())
}

fn port(value: &Value) -> Option<u16> {
    u16::try_from(value.as_u64()?).ok()
}

fn protocol(value: &Value) -> Option<u8> {
    match value {
        Value::String(word) => super::protocol(word),
        _ => u8::try_from(value.as_u64()?).ok(),
    }
}

#[cfg(test)]
mod tests;
