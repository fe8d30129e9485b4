//! The time of a verdict does not grow with the endpoints of the Service.

use std::time::Duration;

use ctk_cluster::index::Index;
use ctk_cluster::testing::world;
use nix::time::{ClockId, clock_gettime};

use super::{Setting, this_node};

const SMALL: usize = 512;
const FACTOR: usize = 16;
/// Of a linear search the ratio is near [`FACTOR`].
const MAX_RATIO: f64 = 6.0;
const ATTEMPTS: usize = 5;

fn service(endpoints: usize) -> Index {
    let mut objects = vec!["svc a/s 10.96.0.10 dns:53/UDP".to_owned()];
    let all: Vec<String> = (0..endpoints)
        .map(|n| format!("10.200.{}.{}(ready)", n / 256, n % 256))
        .collect();
    objects.push(format!("slice a/s dns:53/UDP {}", all.join(" ")));
    let objects: Vec<&str> = objects.iter().map(String::as_str).collect();
    world(&objects)
}

/// CPU time of verdicts on flows to a listed endpoint, to one that is gone, and to the Service itself.
fn time(index: &Index) -> Duration {
    let now = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap());
    let node = this_node();
    let setting = Setting {
        index: Some(index),
        rules: None,
        node: &node,
        zones: &[],
        time: None,
    };
    let began = now();
    for n in 0..2000 {
        for end in ["10.200.1.255:53", "10.99.1.1:53", "10.96.0.10:53"] {
            let client = format!("10.244.1.5:{}", 1000 + n);
            setting.judge(&format!("{client} 10.96.0.10:53 {end}"));
        }
    }
    now() - began
}

#[test]
fn a_verdict_takes_no_longer_with_more_endpoints() {
    let (small, large) = (service(SMALL), service(SMALL * FACTOR));
    let ratios = (0..ATTEMPTS).map(|_| time(&large).as_secs_f64() / time(&small).as_secs_f64());
    let ratios: Vec<f64> = ratios.collect();
    assert!(ratios.iter().any(|ratio| *ratio < MAX_RATIO), "{ratios:?}");
}
