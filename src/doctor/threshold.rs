//! Thresholds of the checks. Each is a flag.

use std::time::Duration;

use clap::Args;

/// The defaults fit one node of a cluster in ordinary use: a healthy node stays below all of them.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(next_help_heading = "Thresholds")]
pub struct Thresholds {
    /// stale-udp, never-translated: stale entries of one destination
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one())]
    pub stale_entries: u64,
    /// endpoint-silent: entries without a reply at one endpoint; UDP entries count only at ports 53 and 123, and only if other
    /// endpoints reply
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = at_least_one())]
    pub silent_entries: u64,
    /// endpoint-silent: entries without a reply, in percent of the endpoint's entries
    #[arg(long, value_name = "PERCENT", default_value_t = 80, value_parser = percent())]
    pub silent_share: u64,
    /// lost-pod: entries without a reply to one address that no pod has; UDP entries count only at ports 53 and 123, or if
    /// replies stopped
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = at_least_one())]
    pub lost_entries: u64,
    /// unanswered: unanswered or half-open entries to one destination, of which they are at least --silent-share
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = at_least_one())]
    pub unanswered_entries: u64,
    /// rules-behind: differences between the node's rules and the API
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one())]
    pub rules_behind: u64,
    /// rules-behind: time for which they must differ; --sample 0 is too short for the default
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = humantime::parse_duration)]
    pub rules_apart: Duration,
    /// port-exhaustion: source ports in use from one source address to one destination, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 80, value_parser = percent())]
    pub ports_used: u64,
    /// port-exhaustion: the same in percent, for severity critical
    #[arg(long, value_name = "PERCENT", default_value_t = 95, value_parser = percent())]
    pub ports_critical: u64,
    /// keep-alive-skew: open flows of the busiest endpoint, divided by the mean
    #[arg(long, value_name = "RATIO", default_value_t = 1.8, value_parser = ratio)]
    pub skew_ratio: f64,
    /// keep-alive-skew: open flows of one Service
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = at_least_one())]
    pub skew_flows: u64,
    /// keep-alive-skew: largest probability that random choice makes the skew
    #[arg(long, value_name = "PROBABILITY", default_value_t = 1e-6, value_parser = probability)]
    pub skew_chance: f64,
    /// keep-alive-skew: packets to one endpoint, in percent of the Service's packets; severity info
    #[arg(long, value_name = "PERCENT", default_value_t = 90, value_parser = percent())]
    pub skew_share: u64,
    /// keep-alive-skew: packets of one Service, for --skew-share; needs nf_conntrack_acct=1
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = at_least_one())]
    pub skew_packets: u64,
    /// half-closed: half-closed TCP connections of one workload
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = at_least_one())]
    pub half_closed: u64,
    /// hairpin: hairpin flows without a reply; UDP flows count only at ports 53 and 123
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = at_least_one())]
    pub hairpin_unreplied: u64,
    /// table-full: entries in percent of the limit
    #[arg(long, value_name = "PERCENT", default_value_t = 80, value_parser = percent())]
    pub table_used: u64,
    /// table-full: the same in percent, for severity critical
    #[arg(long, value_name = "PERCENT", default_value_t = 95, value_parser = percent())]
    pub table_critical: u64,
    /// insert-failed: lost insertions within --sample, in a table that is not full
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = at_least_one())]
    pub failed_insertions: u64,
    /// insert-failed: entries in percent of the limit, below which the table is not full
    #[arg(long, value_name = "PERCENT", default_value_t = 90, value_parser = percent())]
    pub room_below: u64,
    /// invalid: INVALID packets within --sample
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = at_least_one())]
    pub invalid_packets: u64,
    /// long-chains: insertions that overfull buckets refused within --sample
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = at_least_one())]
    pub refused_insertions: u64,
    /// unlisted: entries that the kernel counts but does not list
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = at_least_one())]
    pub unlisted_entries: u64,
    /// unlisted: the same, in percent of the count
    #[arg(long, value_name = "PERCENT", default_value_t = 10, value_parser = percent())]
    pub unlisted_share: u64,
    /// allowance: connections that the cloud still accepts; at most N are a finding
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = at_least_one())]
    pub allowance_left: u64,
    /// expectations: expectations in percent of the limit
    #[arg(long, value_name = "PERCENT", default_value_t = 80, value_parser = percent())]
    pub expectations_used: u64,
    /// reverse-path: packets that the filter dropped within --sample
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = at_least_one())]
    pub filtered_packets: u64,
    /// kube-proxy-sync: time for which a change waits for the rules
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = humantime::parse_duration)]
    pub sync_age: Duration,
    /// kube-proxy-sync: time from a change in the cluster to the rules, 99th percentile
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = humantime::parse_duration)]
    pub programming_time: Duration,
    /// kube-proxy-sync: changes that the percentile needs
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = at_least_one())]
    pub programmed_changes: u64,
}

fn at_least_one() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(1..)
}

/// The flows of the busiest endpoint are at least the mean.
fn ratio(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(ratio) if ratio.is_finite() && ratio >= 1.0 => Ok(ratio),
        _ => Err("it takes a number from 1 on".to_owned()),
    }
}

fn probability(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(chance) if (0.0..=1.0).contains(&chance) => Ok(chance),
        _ => Err("it takes a number from 0 to 1".to_owned()),
    }
}

fn percent() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(1..=100)
}

impl Default for Thresholds {
    /// Values without any flag.
    fn default() -> Self {
        #[derive(clap::Parser)]
        struct Flags {
            #[command(flatten)]
            thresholds: Thresholds,
        }
        <Flags as clap::Parser>::parse_from(["ctk"]).thresholds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_the_help() {
        let thresholds = Thresholds::default();
        assert_eq!(thresholds.ports_used, 80);
        assert_eq!(thresholds.sync_age, Duration::from_secs(300));
        assert!(thresholds.ports_used < thresholds.ports_critical);
        assert!(thresholds.table_used < thresholds.table_critical);
        assert_eq!(
            thresholds.room_below as f64,
            crate::stat::explain::NEARLY_FULL_PERCENT
        );
    }
}
