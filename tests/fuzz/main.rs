//! Fuzz targets of `crates/fuzz`, bounded: the corpus, mutations of it that are the same in every run, and inputs that grow.
//! CONTRIBUTING.md tells how to run them without a bound.

mod growth;
mod mutation;

use std::fs;
use std::path::{Path, PathBuf};

use ctk_fuzz::{TARGETS, Target};

use mutation::Mutator;

/// Number of mutations of each file.
const MUTATIONS: u64 = 150;
/// Longest file of the corpus in bytes: it is part of the repository, and each is run many times.
const MAX_FILE_BYTES: usize = 24 * 1024;

fn corpus(target: &Target) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new("crates/fuzz/corpus").join(target.name);
    let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
        .into_iter()
        .map(|path| {
            let bytes = fs::read(&path).unwrap();
            (path, bytes)
        })
        .collect()
}

/// Runs a target, and stores the input of a failure, so that it can become a file of the corpus.
fn run(target: &Target, data: &[u8], what: &str) -> usize {
    let run = std::panic::AssertUnwindSafe(|| (target.body)(data));
    std::panic::catch_unwind(run).unwrap_or_else(|_| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{}", target.name));
        fs::write(&path, data).unwrap();
        panic!(
            "{} fails on {what}; the input is {}",
            target.name,
            path.display()
        )
    })
}

fn mutate(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).unwrap();
    let files = corpus(target);
    let mut read = 0;
    for (path, bytes) in &files {
        assert!(bytes.len() <= MAX_FILE_BYTES, "{} is long", path.display());
        read += run(target, bytes, &path.display().to_string());
    }
    assert!(read > 0, "no file of {name} is read");
    for (number, (path, bytes)) in files.iter().enumerate() {
        let mut mutator = Mutator::new(number as u64, &files);
        for round in 0..MUTATIONS {
            let data = mutator.mutated(bytes);
            run(
                target,
                &data,
                &format!("mutation {round} of {}", path.display()),
            );
        }
    }
}

/// One test for each target, so that they run at the same time.
macro_rules! mutated {
    ($($name:ident)+) => {
        const MUTATED: &[&str] = &[$(stringify!($name)),+];

        mod corpus_and_its_mutations_hold_every_invariant {
            $(#[test] fn $name() { super::mutate(stringify!($name)); })+
        }
    };
}

mutated!(
    entry events rules_iptables rules_nft rules_ipvs cluster watch_stream saved_table undo selectors metrics
);

#[test]
fn every_target_has_a_test_a_program_and_a_folder() {
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(names, MUTATED);
    let manifest = fs::read_to_string("crates/fuzz/Cargo.toml").unwrap();
    for name in &names {
        let program = fs::read_to_string(format!("crates/fuzz/fuzz_targets/{name}.rs")).unwrap();
        assert!(program.contains(&format!("run(\"{name}\"")), "{name}");
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
    }
    let mut folders: Vec<String> = fs::read_dir("crates/fuzz/corpus")
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    folders.sort();
    let mut sorted = names;
    sorted.sort_unstable();
    assert_eq!(folders, sorted);
}
