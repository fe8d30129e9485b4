//! Formats nftables expressions as one line of evidence. Common ones look as nft prints them.

use std::fmt::Write;

use serde_json::Value;

/// `ip nat prerouting: ip daddr 192.0.2.5 udp dport 53 dnat to 10.0.3.10:53`.
pub(super) fn rule(family: &str, table: &str, chain: &str, expressions: &[Value]) -> String {
    let mut text = format!("{family} {table} {chain}:");
    for expression in expressions {
        if expression.get("counter").is_none() {
            text.push(' ');
            text.push_str(&self::expression(expression));
        }
    }
    text
}

pub(super) fn expression(value: &Value) -> String {
    let Some((word, body)) = value.as_object().and_then(|o| o.iter().next()) else {
        return value.to_string();
    };
    match word.as_str() {
        "match" => matching(body),
        "jump" | "goto" => format!("{word} {}", operand(body.get("target").unwrap_or(body))),
        "dnat" | "redirect" => translation(word, body),
        "vmap" => format!(
            "{} vmap {}",
            operand(body.get("key").unwrap_or(body)),
            operand(body.get("data").unwrap_or(&Value::Null))
        ),
        "return" | "accept" | "drop" | "reject" => word.clone(),
        _ => value.to_string(),
    }
}

pub(super) fn matching(body: &Value) -> String {
    let part = |key| body.get(key).unwrap_or(&Value::Null);
    let op = match part("op").as_str() {
        Some("==" | "in") | None => " ".to_owned(),
        Some(op) => format!(" {op} "),
    };
    format!("{}{op}{}", operand(part("left")), operand(part("right")))
}

fn translation(word: &str, body: &Value) -> String {
    let mut text = word.to_owned();
    if let Some(family) = body.get("family").and_then(Value::as_str) {
        let _ = write!(text, " {family}");
    }
    text.push_str(" to ");
    if let Some(address) = body.get("addr") {
        let address = operand(address);
        match address.contains(':') && body.get("port").is_some() {
            true => _ = write!(text, "[{address}]"),
            false => text.push_str(&address),
        }
    }
    if let Some(port) = body.get("port") {
        let _ = write!(text, ":{}", operand(port));
    }
    text
}

pub(super) fn operand(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(all) => all.iter().map(operand).collect::<Vec<_>>().join(", "),
        Value::Object(object) => match object.iter().next() {
            Some((word, body)) => tagged(word, body, value),
            None => String::new(),
        },
        other => other.to_string(),
    }
}

fn tagged(word: &str, body: &Value, whole: &Value) -> String {
    let part = |key| operand(body.get(key).unwrap_or(&Value::Null));
    let list = |between: &str| match body {
        Value::Array(all) => all.iter().map(operand).collect::<Vec<_>>().join(between),
        other => operand(other),
    };
    match word {
        "payload" if body.get("field").is_some() => {
            format!("{} {}", part("protocol"), part("field"))
        }
        "meta" if body.get("key") == Some(&"l4proto".into()) => "meta l4proto".to_owned(),
        "meta" => part("key"),
        "ct" => format!("ct {}", part("key")),
        "fib" => format!("fib {} {}", part("flags"), part("result")),
        "prefix" => format!("{}/{}", part("addr"), part("len")),
        "range" => list("-"),
        "concat" => list(" . "),
        "set" => format!("{{ {} }}", list(", ")),
        "map" => format!("{} map {}", part("key"), part("data")),
        "elem" => part("val"),
        _ => whole.to_string(),
    }
}
