//! DNAT rules of tables of other programs than kube-proxy: container engines, administrators.

use std::ops::RangeInclusive;

use ipnet::IpNet;
use serde_json::Value;

use super::super::guards::{MAX_DEPTH, Walked};
use super::super::matches::{Matches, Ports, address_range};
use super::super::{
    Condition, ForwardTarget, NodeRules, SCTP, TCP, TargetAddresses, TargetPorts, UDP,
};
use super::{NftTable, element, jump, net, pairs, port, protocol, show};

/// Walks from the hooks that are `wanted`.
pub(super) fn table(table: &NftTable<'_>, rules: &mut NodeRules, filter: impl Fn(&str) -> bool) {
    let mut walk = ForwardWalk {
        table,
        walked: Walked::default(),
    };
    for (output, chain) in table.hooks.iter().filter(|(_, chain)| filter(chain)) {
        let mut above = walk.walked.at_hook(*output);
        limit_family(Some(&table.family), &mut above);
        walk.chain(chain, &above, MAX_DEPTH);
    }
    walk.walked.give(rules);
}

struct ForwardWalk<'a, 't> {
    table: &'a NftTable<'t>,
    walked: Walked,
}

impl ForwardWalk<'_, '_> {
    fn chain(&mut self, chain: &str, above: &Matches, depth: usize) {
        let mark = self.walked.mark();
        for rule in self.table.rules(chain) {
            if !self.walked.step(depth) {
                break;
            }
            let text = show::rule(&self.table.family, &self.table.name, chain, &rule);
            self.rule(&rule, above.clone(), &text, depth);
        }
        self.walked.leave(mark);
    }

    /// Reads expressions from left to right: each match narrows the packets that reach the next expression.
    fn rule(&mut self, rule: &[Value], mut here: Matches, text: &str, depth: usize) {
        for expression in rule {
            let Some((word, body)) = expression.as_object().and_then(|o| o.iter().next()) else {
                return;
            };
            match word.as_str() {
                "match" => self.apply_match(body, &mut here),
                "counter" | "log" | "mangle" | "ct timeout" | "set" => {}
                "return" => self.walked.guard(&here, text, false),
                "accept" | "drop" | "reject" => self.walked.guard(&here, text, true),
                "jump" | "goto" => {
                    let Some((chain, goto)) = jump(expression) else {
                        continue;
                    };
                    if !here.is_never() {
                        self.chain(chain, &here, depth - 1);
                    }
                    if goto {
                        self.walked.guard(&here, text, false);
                    }
                }
                "vmap" => self.vmap(body, &here, text, depth),
                "dnat" => self.dnat(body, here.clone(), text),
                "redirect" => self.redirect(body, &here, text),
                "snat" | "masquerade" => {}
                // An unknown expression may match or translate.
                _ => {
                    here.other(show::expression(expression));
                    if matches!(word.as_str(), "xt" | "tproxy") {
                        self.emit(here.clone(), text, Vec::new());
                    }
                }
            }
            if here.is_never() {
                return;
            }
        }
    }

    fn emit(&mut self, here: Matches, text: &str, targets: Vec<ForwardTarget>) {
        self.walked.emit(here, text, |_| targets.clone());
    }

    fn apply_match(&mut self, body: &Value, here: &mut Matches) {
        let (Some(left), Some(right)) = (body.get("left"), body.get("right")) else {
            return here.other(show::expression(body));
        };
        let equal = match body.get("op").and_then(Value::as_str) {
            Some("==" | "in") => true,
            Some("!=") => false,
            _ => return here.other(show::matching(body)),
        };
        if self.apply(left, right, equal, here).is_none() {
            here.other(show::matching(body));
        }
    }

    /// `None` where the match is not understood.
    fn apply(
        &mut self,
        left: &Value,
        right: &Value,
        equal: bool,
        here: &mut Matches,
    ) -> Option<()> {
        let values = self.values(right)?;
        if let Some(payload) = left.get("payload") {
            let layer = payload.get("protocol")?.as_str()?;
            return match (layer, payload.get("field")?.as_str()?) {
                ("ip" | "ip6", "daddr") => destinations(&values, equal, here),
                ("ip" | "ip6", "saddr") => sources(&values, equal, here),
                ("ip", "protocol") | ("ip6", "nexthdr") => protocols(&values, equal, here),
                ("tcp" | "udp" | "sctp" | "th", "dport") => {
                    let ranges: Vec<Ports> = values.iter().map(ports).collect::<Option<_>>()?;
                    if layer != "th" {
                        here.protocols(&[super::super::protocol(layer)?]);
                    }
                    match equal {
                        true => here.ports(&ranges),
                        false => here.not_ports(&ranges),
                    }
                    Some(())
                }
                _ => None,
            };
        }
        if let Some(meta) = left.get("meta") {
            return match meta.get("key")?.as_str()? {
                "l4proto" => protocols(&values, equal, here),
                "iifname" | "iif" => interfaces(&values, equal, here),
                "nfproto" | "protocol" if equal => family(&values, here),
                _ => None,
            };
        }
        if let Some(fib) = left.get("fib") {
            let flags = fib.get("flags")?;
            let has = |flag: &str| match flags {
                Value::Array(all) => all.iter().any(|f| f == flag),
                one => one == flag,
            };
            let local = values.len() == 1 && values.first().is_some_and(|v| v == "local");
            let of_destination = fib.get("result")? == "type" && has("daddr") && !has("saddr");
            return (local && equal && of_destination).then(|| here.local_only());
        }
        // Only the first packet of a flow reaches a nat chain.
        let state = left
            .get("ct")
            .is_some_and(|ct| ct.get("key") == Some(&"state".into()));
        (state && equal && values.iter().any(|v| v == "new")).then_some(())
    }

    /// Alternatives on the right side of a match. `None` also beyond the bound of the walk.
    fn values(&mut self, right: &Value) -> Option<Vec<Value>> {
        let list = match right {
            Value::String(name) if name.starts_with('@') => self.table.named(name.get(1..)?)?,
            Value::Array(all) => all.clone(),
            _ => match right.get("set") {
                Some(Value::Array(all)) => all.clone(),
                Some(_) => return None,
                None => vec![right.clone()],
            },
        };
        let may = self.walked.steps(list.len());
        may.then(|| list.iter().map(|item| element(item).0.clone()).collect())
    }

    fn vmap(&mut self, body: &Value, here: &Matches, text: &str, depth: usize) {
        let verdicts = body.get("data").and_then(|data| pairs(self.table, data));
        let (Some(key), Some(verdicts)) = (body.get("key"), verdicts) else {
            let mut here = here.clone();
            here.other("a vmap that is not understood");
            return self.emit(here, text, Vec::new());
        };
        if !self.walked.steps(verdicts.len()) {
            return;
        }
        for (value, verdict) in verdicts {
            let mut here = here.clone();
            self.apply_key(key, element(&value).0, &mut here);
            if here.is_never() {
                continue;
            }
            match jump(&verdict) {
                Some((chain, _)) => {
                    self.chain(chain, &here, depth - 1);
                }
                None => {
                    let ends_all = verdict.get("accept").is_some() || verdict.get("drop").is_some();
                    self.walked.guard(&here, text, ends_all);
                }
            }
        }
    }

    /// Requires that the key of a map has this value, in each of its parts.
    fn apply_key(&mut self, key: &Value, value: &Value, here: &mut Matches) {
        let parts = (
            key.get("concat").and_then(Value::as_array),
            value.get("concat").and_then(Value::as_array),
        );
        match parts {
            (Some(keys), Some(values)) if keys.len() == values.len() => {
                for (key, value) in keys.iter().zip(values) {
                    self.apply_key(key, value, here);
                }
            }
            // Any of the values is possible.
            _ if is_dealt(key) => {}
            _ => {
                if self.apply(key, value, true, here).is_none() {
                    here.other(format!("{} in a map", show::operand(key)));
                }
            }
        }
    }

    fn dnat(&mut self, body: &Value, mut here: Matches, text: &str) {
        limit_family(body.get("family").and_then(Value::as_str), &mut here);
        let here = &here;
        let address = body.get("addr");
        let to = match body.get("port") {
            None => Some(TargetPorts::Unchanged),
            Some(value) => ports(value).map(TargetPorts::Range),
        };
        let map = address.and_then(|address| address.get("map"));
        if let (Some(map), Some(to)) = (map, &to) {
            return self.mapped(map, to, here, text);
        }
        let addresses = match address.map(target) {
            None => Some(TargetAddresses::Unchanged),
            Some(Some((range, None))) => Some(TargetAddresses::Range(range)),
            Some(_) => None,
        };
        match (addresses, to) {
            (Some(addresses), Some(ports)) => {
                self.emit(here.clone(), text, vec![ForwardTarget { addresses, ports }]);
            }
            _ => self.odd(here, text),
        }
    }

    /// `dnat to KEY map { VALUE : ADDRESS, ... }`: one rule for each element.
    fn mapped(&mut self, map: &Value, to: &TargetPorts, here: &Matches, text: &str) {
        let all = map.get("data").and_then(|data| pairs(self.table, data));
        let (Some(key), Some(all)) = (map.get("key"), all) else {
            return self.odd(here, text);
        };
        if !self.walked.steps(all.len()) {
            return;
        }
        for (value, address) in all {
            let mut here = here.clone();
            self.apply_key(key, element(&value).0, &mut here);
            match target(&address) {
                Some((addresses, own)) => {
                    let ports = own.map_or_else(|| to.clone(), TargetPorts::Range);
                    let addresses = TargetAddresses::Range(addresses);
                    self.emit(here, text, vec![ForwardTarget { addresses, ports }]);
                }
                None => self.odd(&here, text),
            }
        }
    }

    fn odd(&mut self, here: &Matches, text: &str) {
        let mut here = here.clone();
        here.other("a dnat target that is not understood");
        self.emit(here, text, Vec::new());
    }

    fn redirect(&mut self, body: &Value, here: &Matches, text: &str) {
        let to = match body.get("port") {
            None => Some(TargetPorts::Unchanged),
            Some(value) => ports(value).map(TargetPorts::Range),
        };
        let Some(ports) = to else {
            return self.odd(here, text);
        };
        let addresses = TargetAddresses::OwnHost;
        self.emit(here.clone(), text, vec![ForwardTarget { addresses, ports }]);
    }
}

/// A random or computed key, with which every element of the map is possible.
fn is_dealt(key: &Value) -> bool {
    ["numgen", "jhash", "symhash"]
        .iter()
        .any(|word| key.get(word).is_some())
}

/// Address or range of addresses, in an element of a map with a port.
fn target(value: &Value) -> Option<(RangeInclusive<std::net::IpAddr>, Option<Ports>)> {
    if let Some([address, number]) = value
        .get("concat")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
    {
        return Some((target(address)?.0, Some(ports(number)?)));
    }
    if let Some([first, last]) = range(value) {
        return Some((
            address_range(&format!("{}-{}", first.as_str()?, last.as_str()?))?,
            None,
        ));
    }
    let net = net(value)?;
    let last = match net {
        IpNet::V4(net) => net.broadcast().into(),
        IpNet::V6(net) => net.broadcast().into(),
    };
    Some((net.network()..=last, None))
}

fn range(value: &Value) -> Option<&[Value; 2]> {
    value.get("range")?.as_array()?.as_slice().try_into().ok()
}

fn ports(value: &Value) -> Option<Ports> {
    let ports = match range(value) {
        Some([first, last]) => port(first)?..=port(last)?,
        None => port(value)?..=port(value)?,
    };
    (!ports.is_empty()).then_some(ports)
}

fn destinations(values: &[Value], equal: bool, here: &mut Matches) -> Option<()> {
    let nets: Vec<IpNet> = values.iter().map(net).collect::<Option<_>>()?;
    match equal {
        true => here.destinations(&nets),
        false => nets
            .into_iter()
            .for_each(|net| here.condition(Condition::NotDestination(net))),
    }
    Some(())
}

fn sources(values: &[Value], equal: bool, here: &mut Matches) -> Option<()> {
    let nets: Vec<IpNet> = values.iter().map(net).collect::<Option<_>>()?;
    if equal && nets.len() != 1 {
        return None;
    }
    for net in nets {
        here.condition(Condition::Source { net, equal });
    }
    Some(())
}

fn interfaces(values: &[Value], equal: bool, here: &mut Matches) -> Option<()> {
    // A backslash before a final `*` means the character itself.
    let plain = |name: &&str| !name.contains('\\');
    let name = |value: &Value| value.as_str().filter(plain).map(str::to_owned);
    let names = values.iter().map(name).collect::<Option<Vec<_>>>()?;
    here.condition(Condition::Interface { names, equal });
    Some(())
}

/// `meta nfproto` and `meta protocol`. A set of both families limits nothing.
fn family(values: &[Value], here: &mut Matches) -> Option<()> {
    let words: Vec<&str> = values.iter().map(Value::as_str).collect::<Option<_>>()?;
    match words.as_slice() {
        ["ipv4" | "ip"] => here.family(false),
        ["ipv6" | "ip6"] => here.family(true),
        ["ipv4", "ipv6"] | ["ip", "ip6"] => {}
        _ => return None,
    }
    Some(())
}

/// Family of a table or of a translation; `inet` and none limit nothing.
fn limit_family(family: Option<&str>, here: &mut Matches) {
    match family {
        Some("ip") => here.family(false),
        Some("ip6") => here.family(true),
        _ => {}
    }
}

fn protocols(values: &[Value], equal: bool, here: &mut Matches) -> Option<()> {
    let numbers: Vec<u8> = values.iter().map(protocol).collect::<Option<_>>()?;
    match equal {
        true => here.protocols(&numbers),
        false => {
            let others = [TCP, UDP, SCTP].into_iter();
            let others: Vec<u8> = others.filter(|p| !numbers.contains(p)).collect();
            here.protocols(&others);
        }
    }
    Some(())
}
