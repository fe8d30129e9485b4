//! Control connections on the port of a helper that have none: their data connections are not expected, so NAT and rules for
//! related connections do not know them. Only translated ones count, as others work without a helper unless rules need it.
//!
//! Current kernels assign a helper by rule only; the automatic assignment by port (`nf_conntrack_helper`) is gone.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::doctor::example::{self, Examples};
use crate::doctor::{Check, Facts, Finding, Thresholds};
use crate::entry::Entry;
use crate::plural::count;
use crate::service::is_open;

const NAME: &str = "no-helper";
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Port that a helper was made for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Helped {
    helper: &'static str,
    protocol: u8,
    port: u16,
}

/// Helpers of the kernel that let data connections in, with the standard port of their control connections.
const HELPED: [Helped; 9] = [
    helped("ftp", TCP, 21),
    helped("irc", TCP, 6667),
    helped("pptp", TCP, 1723),
    helped("Q.931", TCP, 1720),
    helped("sane", TCP, 6566),
    helped("sip", TCP, 5060),
    helped("sip", UDP, 5060),
    helped("tftp", UDP, 69),
    helped("amanda", UDP, 10_080),
];

const fn helped(helper: &'static str, protocol: u8, port: u16) -> Helped {
    Helped {
        helper,
        protocol,
        port,
    }
}

#[derive(Default)]
pub struct NoHelper(BTreeMap<Helped, Connections>);

#[derive(Default)]
struct Connections {
    without: u64,
    with: u64,
    examples: Examples,
}

impl Check for NoHelper {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "control connections without a helper"
    }

    fn looks_for(&self) -> &'static str {
        "Translated connections on the port of a helper (ftp, sip, pptp, ...) that have no helper."
    }

    fn observe(&mut self, entry: &Entry<'_>, _: &Facts<'_>) {
        let flow = &entry.flow;
        let ports = [flow.original.dport(), flow.reply.sport()];
        let on = |one: &&Helped| flow.protocol() == one.protocol && ports.contains(&Some(one.port));
        let Some(helped) = HELPED.iter().find(on) else {
            return;
        };
        let group = self.0.entry(*helped).or_default();
        if flow.helper().is_some() {
            group.with += 1;
        } else if is_open(flow) && (flow.is_snat() || flow.is_dnat()) {
            group.without += 1;
            group.examples.push(entry, false);
        }
    }

    fn findings(&self, _: &Facts<'_>, _: &Thresholds) -> Vec<Finding> {
        let all = self.0.iter();
        let mut found: Vec<_> = all.filter(|(_, group)| group.without > 0).collect();
        found.sort_by_key(|(_, group)| Reverse(group.without));
        found.into_iter().map(finding).collect()
    }
}

fn finding((helped, group): (&Helped, &Connections)) -> Finding {
    let Helped { helper, port, .. } = *helped;
    let protocol = example::protocol(helped.protocol);
    let with = match group.with {
        0 => String::new(),
        n => format!("; {n} with it"),
    };
    let message = format!(
        "{} on {port}/{protocol} without the {helper} helper: data connections that they announce are not expected{with}",
        count(
            group.without,
            "translated connection",
            "translated connections"
        ),
    );
    // H.323's helpers are all in one module.
    let module = match helper {
        "Q.931" => "h323",
        other => other,
    };
    Finding::info(NAME, message)
        .with("helper", helper)
        .with("protocol", protocol.as_str())
        .with("port", port)
        .with("without", group.without)
        .with("with", group.with)
        .examples(&group.examples)
        .help(format!(
            "a helper is assigned by rule, no longer by port: modprobe nf_nat_{module}; iptables -t raw -A PREROUTING -p \
             {protocol} --dport {port} -j CT --helper {helper}, and in OUTPUT for this host's own; nft: a ct helper object and ct \
             helper set; it holds for new connections only"
        ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::testing::flow;

    #[test]
    fn translated_control_connections_without_a_helper_are_told_with_the_way_to_assign_it() {
        let mut check = NoHelper::default();
        let facts = Facts::default();
        let mut observe = |protocol, port: u16, leads_to: &str, helper: Option<&str>| {
            let mut one = flow(
                protocol,
                "10.0.0.1:4000",
                &format!("203.0.113.1:{port}"),
                leads_to,
            );
            if let Some(helper) = helper {
                one.rare_mut().helper = Some(helper.into());
            }
            check.observe(&Entry::bare(one), &facts);
        };
        observe(TCP, 21, "10.1.0.7:21", None);
        observe(TCP, 21, "10.1.0.7:21", Some("ftp"));
        // Another port in front of the server.
        observe(TCP, 2121, "10.1.0.7:21", None);
        // Not translated.
        observe(TCP, 21, "203.0.113.1:21", None);
        observe(UDP, 21, "10.1.0.7:21", None);
        observe(TCP, 80, "10.1.0.7:80", None);
        let found = check.findings(&facts, &Thresholds::default());
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].evidence["without"], 2);
        assert_eq!(found[0].evidence["with"], 1);
        let help = found[0].help.as_deref().unwrap();
        assert!(
            help.contains("-p tcp --dport 21 -j CT --helper ftp"),
            "{help}"
        );
    }
}
