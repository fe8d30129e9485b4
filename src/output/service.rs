//! One Service with its endpoints and flows (`ctk svc`): sections of a table, or one JSON document.

mod document;
mod next_flows;
mod skew;

use crate::attribution::FrontendKind;
use crate::service::{
    Affinity, FlowCounts, KnownEndpoint, KnownFrontend, NewFlowPaths, ServiceReport,
};

use super::bar::{Glyphs, bar};
use super::bounded::{Alignment, TextCell, bounded_table};
use super::color::{Palette, Style};
use super::groups::percent;
use super::write;

pub use document::service_document;
use skew::skews;

/// Length of the longest bar in characters.
const MAX_BAR_WIDTH: usize = 12;

/// Options for printing a Service.
#[derive(Clone, Copy)]
pub struct ServiceStyle {
    pub palette: Palette,
    pub glyphs: Glyphs,
}

/// All sections, with a blank line between two.
pub fn service_table(report: &ServiceReport, style: ServiceStyle) -> String {
    let sections = [
        head(report, style),
        endpoints(report, style),
        others(report, true, style),
        others(report, false, style),
        left_out(report, style),
        skews(report, style),
        new_flow_paths(report, style),
        next_flows::section(report, style),
    ];
    let sections = sections.into_iter().filter(|text| !text.is_empty());
    sections.collect::<Vec<_>>().join("\n")
}

/// Name, frontends, policies.
fn head(report: &ServiceReport, style: ServiceStyle) -> String {
    let known = &report.known;
    let name = format!("{}/{}", known.namespace, known.name);
    let mut text = line(style, Style::Heading, &name);
    let columns = [
        ("FRONTEND", Alignment::Left),
        ("ADDRESS", Alignment::Left),
        ("PORT", Alignment::Left),
        ("NAME", Alignment::Left),
    ];
    let rows = known.frontends.iter().map(|frontend| {
        let address = match (frontend.address, frontend.kind) {
            (Some(address), _) => address.to_string(),
            (None, FrontendKind::NodePort) => "every node".to_owned(),
            (None, _) => "-".to_owned(),
        };
        vec![
            TextCell::plain(frontend.kind.name()),
            TextCell::plain(address),
            TextCell::plain(port_of(frontend)),
            TextCell::or_dash(frontend.name.as_deref()),
        ]
    });
    text += &match known.frontends.is_empty() {
        true => line(
            style,
            Style::Warning,
            "no frontend: clients connect to its pods themselves, and no entry tells which Service they meant",
        ),
        false => bounded_table(&columns, rows, true, style.palette),
    };
    let mut facts = Vec::new();
    if let Some(policy) = known.internal_policy {
        facts.push(format!("internal traffic policy {}", policy.name()));
    }
    if let Some(policy) = known.external_policy {
        facts.push(format!("external traffic policy {}", policy.name()));
    }
    facts.extend(known.affinity.map(|affinity| match affinity {
        Affinity::None => "no session affinity".to_owned(),
        Affinity::ClientIp(None) => "session affinity by client address".to_owned(),
        Affinity::ClientIp(Some(seconds)) => {
            format!(
                "session affinity by client address for {}",
                duration(u64::from(seconds))
            )
        }
    }));
    if known.kube_proxy == Some(false) {
        facts.push("kube-proxy leaves it alone".to_owned());
    }
    if !facts.is_empty() {
        text += &line(style, Style::Faint, &facts.join(", "));
    }
    text
}

fn endpoints(report: &ServiceReport, style: ServiceStyle) -> String {
    let known = &report.known;
    if known.endpoints.is_empty() {
        let text = match known.endpoints_complete {
            true => "no endpoints",
            false => "endpoints are not known: rules that may lead to them are not understood",
        };
        return line(style, Style::Warning, text);
    }
    let columns = [
        ("ENDPOINT", Alignment::Left),
        ("POD", Alignment::Left),
        ("NODE", Alignment::Left),
        ("CONDITIONS", Alignment::Left),
        ("OPEN", Alignment::Right),
        ("", Alignment::Left),
        ("OTHER", Alignment::Right),
        ("PACKETS", Alignment::Right),
        ("BYTES", Alignment::Right),
        ("OLDEST", Alignment::Right),
        ("STALE", Alignment::Right),
    ];
    let loads = &report.tally.loads;
    let all: u64 = loads.iter().map(|load| load.open).sum();
    let rows =
        known.endpoints.iter().zip(loads).map(|(endpoint, load)| {
            let (conditions, conditions_style) = conditions(endpoint);
            let pod = endpoint.pod.as_ref().map(|(namespace, name)| {
                match *namespace == known.namespace {
                    true => name.to_string(),
                    false => format!("{namespace}/{name}"),
                }
            });
            let share = load.open as f64 / all.max(1) as f64;
            vec![
                TextCell::plain(socket_address(endpoint.address, endpoint.protocol)),
                TextCell::or_dash(pod),
                TextCell::or_dash(endpoint.node.as_deref()),
                TextCell::styled(conditions, conditions_style),
                TextCell::plain(load.open.to_string()),
                TextCell::plain(bar(share, MAX_BAR_WIDTH, style.glyphs)),
                TextCell::plain(load.other.to_string()),
                TextCell::or_dash(load.packets.map(|n| n.to_string())),
                TextCell::or_dash(load.bytes.map(|n| n.to_string())),
                TextCell::or_dash(oldest(load, report.now)),
                stale(load),
            ]
        });
    let mut text = bounded_table(&columns, rows, true, style.palette);
    if !known.endpoints_complete {
        let more = "endpoints may be missing: rules that may lead to them are not understood";
        text += &line(style, Style::Warning, more);
    }
    text
}

fn conditions(endpoint: &KnownEndpoint) -> (String, Style) {
    let (word, style) = match (endpoint.ready, endpoint.serving) {
        (None, _) => return ("-".to_owned(), Style::Plain),
        (Some(true), _) => ("ready", Style::Good),
        (_, Some(true)) => ("serving", Style::Warning),
        _ => ("not serving", Style::Bad),
    };
    match endpoint.terminating {
        Some(true) => (format!("{word}, terminating"), Style::Warning),
        _ => (word.to_owned(), style),
    }
}

/// Age of the oldest open flow; `>` where some open flows have no timestamp, because they are older.
fn oldest(load: &FlowCounts, now: u64) -> Option<String> {
    let age = duration(age(load.oldest?, now));
    Some(match load.undated {
        0 => age,
        _ => format!(">{age}"),
    })
}

/// Seconds between two times in nanoseconds.
fn age(start: u64, now: u64) -> u64 {
    now.saturating_sub(start) / 1_000_000_000
}

fn stale(load: &FlowCounts) -> TextCell {
    match (load.stale(), load.stale_at_least()) {
        (Some(0), _) => TextCell::plain("0"),
        (Some(count), _) => TextCell::styled(count.to_string(), Style::Bad),
        // A lower bound.
        (None, Some(count)) if count > 0 => TextCell::styled(format!("{count}+"), Style::Bad),
        (None, _) => TextCell::plain("-"),
    }
}

/// Destinations that are no endpoints: with `gone` those that verdicts call gone, else the rest.
fn others(report: &ServiceReport, gone: bool, style: ServiceStyle) -> String {
    let others = report.tally.others.iter();
    let mut others = others
        .filter(|(_, other)| other.is_gone() == gone)
        .peekable();
    if others.peek().is_none() {
        return String::new();
    }
    let columns = [
        (if gone { "GONE" } else { "ELSEWHERE" }, Alignment::Left),
        ("POD THERE NOW", Alignment::Left),
        ("NODE", Alignment::Left),
        ("OPEN", Alignment::Right),
        ("OTHER", Alignment::Right),
        ("STALE", Alignment::Right),
        ("REASON", Alignment::Left),
    ];
    let rows = others.map(|((protocol, at), other)| {
        let reasons = other
            .reasons
            .iter()
            .map(|(reason, count)| match other.reasons.len() {
                1 => (*reason).to_owned(),
                _ => format!("{reason} ({count})"),
            });
        let pod = other.pod.as_ref();
        vec![
            TextCell::plain(socket_address(*at, *protocol)),
            TextCell::or_dash(pod.map(|(namespace, name)| format!("{namespace}/{name}"))),
            TextCell::or_dash(other.node.as_deref()),
            TextCell::plain(other.load.open.to_string()),
            TextCell::plain(other.load.other.to_string()),
            stale(&other.load),
            TextCell::plain(reasons.collect::<Vec<_>>().join(", ")),
        ]
    });
    bounded_table(&columns, rows, true, style.palette)
}

/// Flows to destinations that are not listed, and flows that were not translated.
fn left_out(report: &ServiceReport, style: ServiceStyle) -> String {
    let tally = &report.tally;
    let mut text = String::new();
    let more = tally.more_others.flows();
    if more > 0 {
        let message = format!("{more} flows to further places that are no endpoints");
        text += &line(style, Style::Warning, &message);
    }
    let own = &tally.untranslated;
    if own.flows() > 0 {
        let stale = match (own.stale(), own.stale_at_least()) {
            (Some(stale), _) => format!("{stale} of them are stale"),
            (None, Some(stale)) if stale > 0 => format!("at least {stale} of them are stale"),
            (None, _) => "whether they are stale is not known".to_owned(),
        };
        let message = format!(
            "{} flows were never translated: they end at the frontend's own address; {stale}",
            own.flows()
        );
        text += &line(style, Style::Warning, &message);
    }
    text
}

fn new_flow_paths(report: &ServiceReport, style: ServiceStyle) -> String {
    let mut text = line(style, Style::Heading, "NEW FLOWS (this node only)");
    let NewFlowPaths {
        paths,
        not_understood,
    } = match &report.new_flow_paths {
        Ok(known) => known,
        Err(why) => return text + &line(style, Style::Faint, &format!("not known: {why}")),
    };
    if !paths.is_empty() {
        let columns = [
            ("TO", Alignment::Left),
            ("RULE", Alignment::Right),
            ("SHARE", Alignment::Right),
            ("", Alignment::Left),
            ("SINCE LOADED", Alignment::Right),
            ("BY AFFINITY", Alignment::Right),
            ("FRONTENDS", Alignment::Left),
            ("CHAIN", Alignment::Left),
        ];
        let rows = paths.iter().map(|path| {
            let rule = match path.one_of() {
                Some(1) => "rest".to_owned(),
                Some(whole) => format!("1/{whole}"),
                None => percent(path.probability),
            };
            let kinds = path.frontends.iter().map(|kind| kind.name());
            vec![
                TextCell::plain(socket_address(path.address, path.protocol)),
                TextCell::plain(rule),
                TextCell::plain(percent(path.share)),
                TextCell::plain(bar(path.share, MAX_BAR_WIDTH, style.glyphs)),
                TextCell::or_dash(path.packets.map(|n| n.to_string())),
                TextCell::or_dash(path.affinity_packets.map(|n| n.to_string())),
                TextCell::plain(kinds.collect::<Vec<_>>().join(",")),
                TextCell::plain(&path.chain),
            ]
        });
        text += &bounded_table(&columns, rows, true, style.palette);
    }
    for chain in not_understood {
        let message = format!("not known in chain {chain}: a rule of it is not understood");
        text += &line(style, Style::Warning, &message);
    }
    text
}

/// `10.244.1.7:53/udp`
fn socket_address(address: std::net::SocketAddr, protocol: u8) -> String {
    format!("{address}/{}", protocol_name(protocol))
}

/// `53/udp`
fn port_of(frontend: &KnownFrontend) -> String {
    format!("{}/{}", frontend.port, protocol_name(frontend.protocol))
}

fn protocol_name(protocol: u8) -> String {
    let mut out = Vec::new();
    write::protocol(&mut out, protocol);
    String::from_utf8_lossy(&out).into_owned()
}

fn duration(seconds: u64) -> String {
    let mut out = Vec::new();
    write::duration(&mut out, seconds);
    String::from_utf8_lossy(&out).into_owned()
}

/// One line of a section, with its text escaped.
fn line(style: ServiceStyle, text_style: Style, text: &str) -> String {
    let mut out = Vec::new();
    style.palette.begin(&mut out, text_style);
    super::escape::text(&mut out, text);
    style.palette.end(&mut out, text_style);
    out.push(b'\n');
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests;
