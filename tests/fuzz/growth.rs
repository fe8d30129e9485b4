//! Time and memory of a reader grow with its input, and not with the square of it.

use std::process::Command;
use std::time::Duration;

use ctk_fuzz::{TARGETS, Target};
use nix::time::{ClockId, clock_gettime};
use testkit::usage::{MIB, peak_of};

/// Factor between the two inputs that are compared. Quadratic time has a ratio of its square, 64.
const FACTOR: usize = 8;
/// Largest accepted ratio of time: three times that of linear time.
const MAX_RATIO: u32 = 24;
/// Least time of the smaller input, and its least ratio to the time of one piece: constant parts must not hide the rest.
const MIN_TIME: Duration = Duration::from_millis(8);
const MIN_GROWTH: u32 = 4;
/// Number of pieces at which the search for such an input begins and ends.
const PIECES: std::ops::RangeInclusive<usize> = 64..=1 << 16;
/// Number of attempts: another program on the machine spoils some of them.
const ATTEMPTS: usize = 5;
/// Bytes of memory for each byte of an input. The shortest pieces become the widest rows.
const MAX_MEMORY_FACTOR: u64 = 100;
/// Set for the process whose memory is measured: target, number of the shape, and pieces.
const ONE: &str = "CTK_FUZZ_ONE";
/// Word before the bytes that this process took.
const GREW: &str = "memory-grew-by";

/// CPU time of this thread.
fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .unwrap()
        .into()
}

fn time(target: &Target, data: &[u8]) -> Duration {
    let began = now();
    let read = (target.body)(data);
    assert!(read > 0, "{} reads what grows", target.name);
    now() - began
}

/// Number of pieces of the smaller input.
fn pieces(target: &Target, grown: fn(usize) -> Vec<u8>) -> usize {
    let least = MIN_TIME.max(MIN_GROWTH * time(target, &grown(1)));
    let mut pieces = *PIECES.start();
    while pieces < *PIECES.end() && time(target, &grown(pieces)) < least {
        pieces *= 2;
    }
    pieces
}

fn check(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).unwrap();
    for (shape, grown) in target.grown.iter().enumerate() {
        let pieces = pieces(target, *grown);
        let (small, large) = (grown(pieces), grown(pieces * FACTOR));
        let mut ratios = Vec::new();
        let is_linear = (0..ATTEMPTS).any(|_| {
            let (short, long) = (time(target, &small), time(target, &large));
            ratios.push(long.as_secs_f64() / short.as_secs_f64());
            long < short * MAX_RATIO
        });
        println!("{name} {shape}: {pieces} pieces, {ratios:?}");
        assert!(
            is_linear,
            "{name}, shape {shape}: {FACTOR} times {pieces} pieces take {ratios:?} times as long"
        );
        memory(name, shape, pieces, large.len() as u64);
    }
}

/// Runs this test again with the larger input, in a process of its own whose memory holds nothing else.
fn memory(name: &str, shape: usize, pieces: usize, bytes: u64) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("growth::{name}"), "--nocapture"])
        .env(ONE, format!("{name} {shape} {}", pieces * FACTOR))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let mut words = said.split_whitespace().skip_while(|word| *word != GREW);
    let grown = words.nth(1).and_then(|number| number.parse::<u64>().ok());
    let Some(grown) = grown.filter(|_| output.status.success()) else {
        panic!("{name}: {} {said}", output.status);
    };
    println!("{name} {shape}: {bytes} bytes take {grown}");
    assert!(
        grown < 16 * MIB + bytes * MAX_MEMORY_FACTOR,
        "{name}, shape {shape}: {bytes} bytes take {} MiB",
        grown / MIB
    );
}

/// Reads the input that the environment names, and prints by how much the memory of this process grew. False without one.
fn one() -> bool {
    let Ok(one) = std::env::var(ONE) else {
        return false;
    };
    let words: Vec<&str> = one.split(' ').collect();
    let target = TARGETS.iter().find(|target| target.name == words[0]);
    let (shape, pieces): (usize, usize) = (words[1].parse().unwrap(), words[2].parse().unwrap());
    let target = target.unwrap();
    let data = (target.grown[shape])(pieces);
    let before = peak_of("self");
    (target.body)(&data);
    println!("{GREW} {}", peak_of("self") - before);
    true
}

macro_rules! linear {
    ($($name:ident)+) => { $(
        #[test]
        fn $name() {
            if !one() {
                check(stringify!($name));
            }
        }
    )+ };
}

linear!(
    entry events rules_iptables rules_nft rules_ipvs cluster watch_stream saved_table undo selectors metrics
);
