//! The next flows of the clients that were asked for.

use serde_json::{Value, json};

use crate::attribution::FrontendKind;
use crate::service::{NextEndpoint, NextFlow, ServiceReport};

use super::super::bounded::{Alignment, TextCell, bounded_table};
use super::super::color::Style;
use super::{ServiceStyle, duration, line, protocol_name, socket_address};

/// The section, if clients were asked for.
pub(super) fn section(report: &ServiceReport, style: ServiceStyle) -> String {
    let heading = || {
        line(
            style,
            Style::Heading,
            "NEXT FLOW OF THE CLIENT (this node only)",
        )
    };
    let next = match &report.next_flows {
        None => return String::new(),
        Some(Err(why)) => {
            return heading() + &line(style, Style::Faint, &format!("not known: {why}"));
        }
        Some(Ok(next)) => next,
    };
    if next.is_empty() {
        return heading()
            + &line(
                style,
                Style::Faint,
                "no frontend of the client's address family",
            );
    }
    let columns = [
        ("CLIENT", Alignment::Left),
        ("TO", Alignment::Left),
        ("PIN AGE", Alignment::Right),
        ("ENDS IN", Alignment::Right),
        ("FRONTENDS", Alignment::Left),
        ("CHAIN", Alignment::Left),
    ];
    let rows = next.iter().map(row);
    let mut text = heading() + &bounded_table(&columns, rows, true, style.palette);
    if next
        .iter()
        .any(|flow| matches!(flow.to, Ok(NextEndpoint::Pinned { .. })))
    {
        let why = "session affinity pins the client; each new flow renews the pin";
        text += &line(style, Style::Faint, why);
    }
    text
}

fn row(flow: &NextFlow) -> Vec<TextCell> {
    let (to, age, left) = match &flow.to {
        Ok(NextEndpoint::Pinned { address, age, left }) => (
            socket_address(*address, flow.protocol),
            Some(duration(*age)),
            left.map(duration),
        ),
        Ok(NextEndpoint::Chosen) => ("not pinned: by the shares above".to_owned(), None, None),
        Err(_) => ("not known".to_owned(), None, None),
    };
    let kinds = flow.frontends.iter().map(|kind| kind.name());
    vec![
        TextCell::plain(flow.client.to_string()),
        TextCell::plain(to),
        TextCell::or_dash(age),
        TextCell::or_dash(left),
        TextCell::plain(kinds.collect::<Vec<_>>().join(",")),
        TextCell::plain(&flow.chain),
    ]
}

/// Value of `next_flows`: null if no client was asked for, or nothing is known.
pub(super) fn value(report: &ServiceReport) -> Value {
    let Some(Ok(next)) = &report.next_flows else {
        return Value::Null;
    };
    next.iter().map(item).collect()
}

fn item(flow: &NextFlow) -> Value {
    let pin = match &flow.to {
        Ok(NextEndpoint::Pinned { address, age, left }) => Some((address, age, left)),
        _ => None,
    };
    json!({
        "client": flow.client,
        "protocol": protocol_name(flow.protocol),
        "chain": flow.chain,
        "frontends": flow.frontends.iter().copied().map(FrontendKind::name).collect::<Vec<_>>(),
        "pinned": flow.to.is_ok().then_some(pin.is_some()),
        "address": pin.map(|(address, ..)| address.ip()),
        "port": pin.map(|(address, ..)| address.port()),
        "age": pin.map(|(_, age, _)| age),
        "left": pin.and_then(|(_, _, left)| *left),
        "unknown": flow.to.as_ref().err(),
    })
}
