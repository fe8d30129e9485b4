//! Clients that session affinity sends to the endpoint that they had before, from the kernel's lists of them.

use std::net::{IpAddr, SocketAddr};

use serde_json::Value;

use super::present::proc_net;

/// Rates of the kernel's clock (`CONFIG_HZ`).
const CLOCK_RATES: [u64; 4] = [100, 250, 300, 1000];
/// Seconds before its first overflow at which the 32-bit clock starts (`INITIAL_JIFFIES`).
const CLOCK_LEAD_SECONDS: u64 = 300;

/// List of the clients that one rule sends to an endpoint.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientList {
    /// List of iptables' `recent`. A client stays on it for `seconds` after its last new flow.
    Recent { name: String, seconds: Option<u64> },
    /// Set of nftables, as it was read.
    Set(Vec<Pin>),
    /// The form of the rule or of the set is not understood.
    NotUnderstood,
}

/// A client on a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    pub client: IpAddr,
    /// Seconds since its last new flow.
    pub age: u64,
    /// Seconds until the client leaves the list; `None` if it never does.
    pub left: Option<u64>,
}

/// The endpoint of the next flow of `client` by the lists of one chain, and its pin; `None` if no list has the client. Lists of `recent` are read in
/// the calling thread's namespace.
///
/// # Errors
/// The reason why it is not known.
pub fn pinned(
    lists: &[(SocketAddr, ClientList)],
    client: IpAddr,
) -> Result<Option<(SocketAddr, Pin)>, String> {
    // The first rule that has the client decides.
    for (endpoint, list) in lists {
        let pin = match list {
            ClientList::Set(pins) => pins.iter().find(|pin| pin.client == client).cloned(),
            ClientList::Recent { name, seconds } => recent(name, *seconds, client)?,
            ClientList::NotUnderstood => {
                return Err(format!(
                    "the list of the clients of {endpoint} is not understood"
                ));
            }
        };
        if let Some(pin) = pin {
            return Ok(Some((*endpoint, pin)));
        }
    }
    Ok(None)
}

fn recent(name: &str, seconds: Option<u64>, client: IpAddr) -> Result<Option<Pin>, String> {
    let path = format!("xt_recent/{name}");
    let text =
        proc_net(&path).map_err(|error| format!("/proc/net/{path} cannot be read: {error}"))?;
    let Some(seen) = last_seen(&text, client) else {
        return Ok(None);
    };
    let clock = std::fs::read_to_string("/proc/timer_list")
        .map_err(|error| format!("/proc/timer_list cannot be read: {error}"))?;
    let (now, rate) = clock_of(&clock)
        .ok_or("/proc/timer_list does not tell how fast the kernel's clock runs")?;
    let age = now.saturating_sub(seen) / rate;
    Ok(match seconds {
        Some(seconds) if age > seconds => None,
        seconds => Some(Pin {
            client,
            age,
            left: seconds.map(|seconds| seconds - age),
        }),
    })
}

/// Time in `/proc/net/xt_recent/NAME` at which the client was last seen, in ticks of the kernel's clock.
fn last_seen(text: &str, client: IpAddr) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let address: IpAddr = words.next()?.strip_prefix("src=")?.parse().ok()?;
        if address != client {
            return None;
        }
        words.find(|word| *word == "last_seen:")?;
        words.next()?.parse().ok()
    })
}

/// Ticks of the kernel's clock, and ticks a second, from `/proc/timer_list`. The rate is the one with which the ticks agree
/// with the time since the start; `None` if not exactly one does.
fn clock_of(timer_list: &str) -> Option<(u64, u64)> {
    let value = |prefix: &str| -> Option<u64> {
        let mut lines = timer_list.lines();
        let rest = lines.find_map(|line| line.strip_prefix(prefix))?;
        rest.split_whitespace().next()?.parse().ok()
    };
    let seconds = value("now at ")? / 1_000_000_000;
    let ticks = value("jiffies: ")?;
    let agrees = |rate: &u64| {
        let start = (1 << 32) - CLOCK_LEAD_SECONDS * rate;
        ticks
            .checked_sub(start)
            .is_some_and(|since| (since / rate).abs_diff(seconds) <= 1)
    };
    let mut rates = CLOCK_RATES.into_iter().filter(agrees);
    let rate = rates.next()?;
    rates.next().is_none().then_some((ticks, rate))
}

/// Clients in the elements of a set of nftables whose elements live for `timeout` seconds.
pub(super) fn set(elements: &[Value], timeout: Option<u64>) -> ClientList {
    let pin = |element: &Value| {
        let element = element.get("elem").unwrap_or(element);
        let number = |key: &str| element.get(key).and_then(Value::as_u64);
        let client = element.get("val").unwrap_or(element).as_str()?;
        let whole = number("timeout").or(timeout);
        let left = number("expires");
        Some(Pin {
            client: client.parse().ok()?,
            age: whole?.checked_sub(left?)?,
            left,
        })
    };
    let pins: Option<Vec<Pin>> = elements.iter().map(pin).collect();
    pins.map_or(ClientList::NotUnderstood, ClientList::Set)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_client_is_found_in_a_list_of_recent_with_its_last_time() {
        let text = "src=10.244.1.55 ttl: 64 last_seen: 7 oldest_pkt: 1 7\n\
                    src=10.244.1.5 ttl: 64 last_seen: 4301652331 oldest_pkt: 2 4301652000, 4301652331\n\
                    src=fd00:0000:0000:0000:0000:0000:0000:0005 ttl: 64 last_seen: 9 oldest_pkt: 1 9\n";
        for (client, seen) in [
            ("10.244.1.5", Some(4_301_652_331)),
            ("fd00::5", Some(9)),
            ("10.244.1.6", None),
        ] {
            assert_eq!(last_seen(text, client.parse().unwrap()), seen, "{client}");
        }
    }

    #[test]
    fn the_rate_of_the_clock_follows_from_the_time_since_the_start() {
        let list = |seconds: u64, ticks: u64| {
            clock_of(&format!(
                "Timer List Version: v0.10\nnow at {seconds}000000000 nsecs\n\ncpu: 0\njiffies: {ticks}\n"
            ))
        };
        assert_eq!(list(27_040, 4_301_652_353), Some((4_301_652_353, 250)));
        assert_eq!(
            list(1000, (1 << 32) + 700_000).map(|(_, rate)| rate),
            Some(1000)
        );
        assert_eq!(list(300, 1 << 32), None, "every rate agrees");
        assert_eq!(list(9000, 5), None);
    }

    #[test]
    fn elements_of_a_set_have_an_age_only_where_their_lifetime_is_known() {
        let elements = [
            json!({"elem": {"val": "10.244.1.5", "expires": 10_000}}),
            json!({"elem": {"val": "10.244.1.6", "timeout": 60, "expires": 20}}),
        ];
        let pin = |client: &str, age, left| Pin {
            client: client.parse().unwrap(),
            age,
            left: Some(left),
        };
        assert_eq!(
            set(&elements, Some(10_800)),
            ClientList::Set(vec![
                pin("10.244.1.5", 800, 10_000),
                pin("10.244.1.6", 40, 20)
            ])
        );
        assert_eq!(set(&elements, None), ClientList::NotUnderstood);
        assert_eq!(
            set(&[json!("10.244.1.5")], Some(9)),
            ClientList::NotUnderstood
        );
    }
}
