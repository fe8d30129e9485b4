//! Cases. Each begins with kube-proxy in sync and an empty table, see [`crate::lab::Lab::begin`].

mod churn;
mod flows;
mod incident;
mod oracle;
mod shapes;
mod watch;

use crate::lab::Lab;

pub struct Case {
    pub name: String,
    pub run: Box<dyn Fn(&mut Lab) + Send>,
}

impl Case {
    fn new(name: impl Into<String>, run: impl Fn(&mut Lab) + Send + 'static) -> Self {
        Case {
            name: name.into(),
            run: Box::new(run),
        }
    }
}

/// All cases, in the order of their execution.
pub fn all(seed: u64, worlds: u64) -> Vec<Case> {
    let mut all = vec![
        Case::new(
            "sources_agree_on_every_service_shape",
            shapes::sources_agree,
        ),
        Case::new("purge_heals_clients_of_a_dead_dns_endpoint", incident::dns),
        Case::new(
            "purge_heals_flows_that_are_older_than_their_service",
            incident::no_dnat,
        ),
        Case::new(
            "purge_tells_that_kube_proxy_stands_still",
            incident::frozen_kube_proxy,
        ),
        Case::new(
            "purge_deletes_nothing_when_the_api_server_ends_meanwhile",
            incident::api_goes_away,
        ),
        Case::new(
            "watch_goes_on_after_a_restart_of_the_api_server",
            watch::restart,
        ),
        Case::new("watch_goes_on_after_the_api_server_hung", watch::hang),
        Case::new(
            "watch_goes_on_after_its_version_was_compacted",
            watch::compaction,
        ),
        Case::new("watch_goes_on_when_access_is_granted_again", watch::revoked),
        Case::new("watch_goes_on_with_a_new_token", watch::account_replaced),
        Case::new("purge_deletes_no_live_entry_under_churn", churn::churn),
    ];
    for seed in seed..seed + worlds {
        let name = format!("kube_proxy_deletes_what_is_stale_in_world_{seed}");
        all.push(Case::new(name, move |lab| oracle::world(lab, seed)));
    }
    all
}
