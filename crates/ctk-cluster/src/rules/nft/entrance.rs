//! Chains of kube-proxy's table that a packet passes before a map leads it to a Service (`setupNFTables` in
//! `pkg/proxy/nftables/proxier.go`). An unknown form of them may translate destinations that the maps lack.

use serde_json::Value;

use super::super::reach::each_chain;
use super::{NftTable, jump};

/// Maps that lead to the chains of Services.
pub(super) const SERVICE_IPS: &str = "service-ips";
pub(super) const NODE_PORTS: &str = "service-nodeports";

/// Counts the rules between the hooks and the maps that are not understood.
pub(super) fn not_understood(table: &NftTable<'_>) -> usize {
    let mut count = 0;
    for (_, hooked) in &table.hooks {
        each_chain(hooked, |chain| {
            count += usize::from(!table.has(chain));
            let mut onward = Vec::new();
            for rule in table.rules(chain) {
                let mut understood = !rule.is_empty();
                for expression in &rule {
                    understood &= take(expression, &mut onward).is_some();
                }
                count += usize::from(!understood);
            }
            onward
        });
    }
    count
}

/// Reads one expression, and returns the chain that it leads to; `None` where it is not understood.
fn take(expression: &Value, onward: &mut Vec<String>) -> Option<()> {
    let (word, body) = expression.as_object()?.iter().next()?;
    match word.as_str() {
        "match" | "counter" | "mangle" | "log" | "return" | "accept" | "continue" => Some(()),
        "jump" | "goto" => {
            onward.push(jump(expression)?.0.to_owned());
            Some(())
        }
        "vmap" => {
            let map = body.get("data")?.as_str()?.strip_prefix('@')?;
            matches!(map, SERVICE_IPS | NODE_PORTS).then_some(())
        }
        _ => None,
    }
}
