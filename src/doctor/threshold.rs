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
    /// endpoint-silent: entries without an answer at one endpoint; of UDP only at ports 53 and 123, and where its neighbours
    /// answer
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = at_least_one())]
    pub silent_entries: u64,
    /// endpoint-silent: their share of the endpoint's entries, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 80, value_parser = percent())]
    pub silent_share: u64,
    /// lost-pod: entries without an answer to one address that no pod has; of UDP as for endpoint-silent, or when answers
    /// stopped
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = at_least_one())]
    pub lost_entries: u64,
    /// rules-behind: differences between the rules and the API
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one())]
    pub rules_behind: u64,
    /// rules-behind: how long they must differ; the sample of 6 s is long enough, --sample 0 is not
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = humantime::parse_duration)]
    pub rules_apart: Duration,
    /// port-exhaustion: used ports of one source address and destination, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 80, value_parser = percent())]
    pub ports_used: u64,
    /// port-exhaustion: the same, for a critical finding
    #[arg(long, value_name = "PERCENT", default_value_t = 95, value_parser = percent())]
    pub ports_critical: u64,
    /// keep-alive-skew: open flows of the busiest endpoint, compared with the mean
    #[arg(long, value_name = "RATIO", default_value_t = 1.8, value_parser = ratio)]
    pub skew_ratio: f64,
    /// keep-alive-skew: open flows of one Service
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = at_least_one())]
    pub skew_flows: u64,
    /// keep-alive-skew: largest probability that chance alone makes it so uneven
    #[arg(long, value_name = "PROBABILITY", default_value_t = 1e-6, value_parser = probability)]
    pub skew_chance: f64,
    /// keep-alive-skew: share of a Service's packets that go to one endpoint, in percent; never more than information
    #[arg(long, value_name = "PERCENT", default_value_t = 90, value_parser = percent())]
    pub skew_share: u64,
    /// keep-alive-skew: packets of one Service that this share is computed from, where they are counted
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = at_least_one())]
    pub skew_packets: u64,
    /// half-closed: half-closed TCP connections of one workload
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = at_least_one())]
    pub half_closed: u64,
    /// hairpin: hairpin flows without an answer, of TCP and at UDP ports 53 and 123
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = at_least_one())]
    pub hairpin_unreplied: u64,
    /// table-full: entries in percent of the limit
    #[arg(long, value_name = "PERCENT", default_value_t = 80, value_parser = percent())]
    pub table_used: u64,
    /// table-full: the same, for a critical finding
    #[arg(long, value_name = "PERCENT", default_value_t = 95, value_parser = percent())]
    pub table_critical: u64,
    /// insert-failed: lost insertions during the sample, in a table that is not full
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = at_least_one())]
    pub failed_insertions: u64,
    /// insert-failed: usage of the table, in percent, below which it is not full
    #[arg(long, value_name = "PERCENT", default_value_t = 90, value_parser = percent())]
    pub room_below: u64,
    /// long-chains: insertions that overfull buckets refused during the sample
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = at_least_one())]
    pub refused_insertions: u64,
    /// unlisted: entries that are counted and not listed
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = at_least_one())]
    pub unlisted_entries: u64,
    /// unlisted: their share of the count, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 10, value_parser = percent())]
    pub unlisted_share: u64,
    /// allowance: connections that the cloud tracks in addition to the open ones
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = at_least_one())]
    pub allowance_left: u64,
    /// expectations: expectations in use, in percent of the limit
    #[arg(long, value_name = "PERCENT", default_value_t = 80, value_parser = percent())]
    pub expectations_used: u64,
    /// reverse-path: packets that the filter dropped during the sample
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = at_least_one())]
    pub filtered_packets: u64,
    /// kube-proxy-sync: how long a change may wait for kube-proxy
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = humantime::parse_duration)]
    pub sync_age: Duration,
    /// kube-proxy-sync: time from a change in the cluster to the rules, for 99 % of the changes
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = humantime::parse_duration)]
    pub programming_time: Duration,
    /// kube-proxy-sync: number of changes that this time is computed from
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
