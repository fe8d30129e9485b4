//! The endpoint of the next flow of one client, where session affinity may decide it.

use std::net::{IpAddr, SocketAddr};

use crate::attribution::FrontendKind;
use ctk_cluster::rules::affinity;
use ctk_cluster::rules::lb_chain::LbChain;

use super::known_service::kind_of_rule;

/// The next flow of a client that comes to one chain.
#[derive(Clone, Debug, PartialEq)]
pub struct NextFlow {
    pub client: IpAddr,
    pub chain: String,
    /// Kinds of the frontends that lead to the chain.
    pub frontends: Vec<FrontendKind>,
    /// IANA number.
    pub protocol: u8,
    /// `Err` says why it is not known.
    pub to: Result<NextEndpoint, String>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum NextEndpoint {
    Pinned {
        address: SocketAddr,
        /// Seconds since the last new flow of the client.
        age: u64,
        /// Seconds until the pin ends; `None` if it never does.
        left: Option<u64>,
    },
    /// No pin: the chain chooses an endpoint by its shares.
    Chosen,
}

impl NextFlow {
    /// The next flow of `client` for each chain of its address family. `lists` is the reason why the kernel's lists of
    /// clients are not known, if they are not.
    pub fn of(lb_chains: &[&LbChain], client: IpAddr, lists: Option<&str>) -> Vec<Self> {
        let of_family = lb_chains
            .iter()
            .filter(|chain| chain.ipv6 == client.is_ipv6());
        let next = |chain: &&LbChain| NextFlow {
            client,
            chain: chain.chain.clone(),
            frontends: chain
                .frontends
                .iter()
                .map(|kind| kind_of_rule(*kind))
                .collect(),
            protocol: chain.protocol,
            to: match lists {
                Some(why) if chain.affinity => Err(why.to_owned()),
                _ => next_endpoint(chain, client),
            },
        };
        of_family.map(next).collect()
    }
}

fn next_endpoint(chain: &LbChain, client: IpAddr) -> Result<NextEndpoint, String> {
    if chain.shares.is_none() {
        return Err(format!("a rule in chain {} is not understood", chain.chain));
    }
    Ok(match affinity::pinned(&chain.client_lists, client)? {
        Some((address, pin)) => NextEndpoint::Pinned {
            address,
            age: pin.age,
            left: pin.left,
        },
        None => NextEndpoint::Chosen,
    })
}
