//! Where the next flows of the clients of `--client` go.

use std::net::IpAddr;

use crate::args::svc::SvcArgs;
use crate::select::name::PartyName;
use crate::service::{self, Affinity, KnownService, NextFlow, ServiceReport};
use crate::session::cluster::Cluster;
use ctk_cluster::rules::lb_chain::LbChain;
use ctk_cluster::rules::read::Read;
use ctnetlink::netns::Netns;

/// Next flows of each client that is named by a pod or one address; `None` where none is.
pub fn find(
    args: &SvcArgs,
    cluster: &Cluster,
    known: &KnownService,
    rules: Result<(&Read, &[LbChain]), String>,
    netns: &Netns,
) -> Option<Result<Vec<NextFlow>, String>> {
    let clients = clients(args, cluster);
    (!clients.is_empty()).then(|| {
        let (read, lb_chains) = rules?;
        let lb_chains = service::chains_of(known, lb_chains)?;
        let saved = read.path.is_some();
        let lists = saved
            .then_some("the rules were saved, and the clients of affinity may have changed since");
        let next = || {
            let clients = clients.iter();
            clients
                .flat_map(|client| NextFlow::of(&lb_chains, *client, lists))
                .collect()
        };
        netns.run(next).map_err(|error| error.to_string())
    })
}

/// Addresses of `--client`. Networks and negated values name no single client.
fn clients(args: &SvcArgs, cluster: &Cluster) -> Vec<IpAddr> {
    let items = args.select.client.iter().flat_map(|list| list.items());
    let mut all: Vec<IpAddr> = Vec::new();
    for item in items.filter(|item| !item.negated) {
        match &item.value {
            PartyName::Net(net) => all.extend(net.single()),
            PartyName::Socket(socket) => all.push(socket.ip()),
            PartyName::Pod(name) => {
                let Some(index) = cluster.index() else {
                    continue;
                };
                let pods = index.pods().filter(|pod| {
                    let mut namespace = name.namespace.iter();
                    *pod.name == *name.name && namespace.all(|wanted| **wanted == *pod.namespace)
                });
                all.extend(pods.flat_map(|pod| index.addresses_of(&pod.namespace, &pod.name)));
            }
        }
    }
    all.sort();
    all.dedup();
    all
}

/// A sentence for each cause why a next flow is not known.
pub fn not_known(report: &ServiceReport) -> Vec<String> {
    let whys = match &report.next_flows {
        None => return Vec::new(),
        // Only affinity pins clients. For other Services the section itself says that the rules are not known.
        Some(Err(_)) if !matches!(report.known.affinity, Some(Affinity::ClientIp(_))) => {
            return Vec::new();
        }
        Some(Err(why)) => vec![why],
        Some(Ok(next)) => next
            .iter()
            .filter_map(|flow| flow.to.as_ref().err())
            .collect(),
    };
    let mut notes: Vec<String> = whys
        .into_iter()
        .map(|why| format!("where the next flow of a client goes is not known: {why}"))
        .collect();
    notes.dedup();
    notes
}
