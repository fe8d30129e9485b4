//! Flows to kube-dns for several cases, and entries restored after kube-proxy's own clean-up.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::lab::{COREDNS, DNS, Lab, WEB};
use crate::network::{Place, pod_address};
use crate::process::wait;
use crate::table::{Key, ctk_on_node, udp_entries};

/// Endpoint that dies, and endpoint that lives on.
pub const DEAD: &str = COREDNS[0].0;
pub const ALIVE: &str = COREDNS[1].0;
const FIRST_PORT: u16 = 40_100;
const LIMIT: Duration = Duration::from_secs(20);

/// Clients of kube-dns by the endpoint of their flow.
pub struct Pinned {
    /// Source ports.
    pub to_dead: Vec<u16>,
    pub to_alive: Vec<u16>,
}

/// Starts clients of kube-dns until both endpoints have at least two.
pub fn pin(lab: &Lab) -> Pinned {
    let began = Instant::now();
    let mut pinned = Pinned {
        to_dead: Vec::new(),
        to_alive: Vec::new(),
    };
    for port in FIRST_PORT..FIRST_PORT + 60 {
        let address = pod_address(1, WEB.start + u64::from(port) % 10);
        lab.clients.add(Place::Clients, &address, port, DNS);
        wait(LIMIT, "an answer of kube-dns", || {
            lab.clients.answer(port, began).is_some()
        });
        match lab.clients.answer(port, began) {
            Some(answer) if answer.starts_with(DEAD) => pinned.to_dead.push(port),
            _ => pinned.to_alive.push(port),
        }
        if pinned.to_dead.len() > 1 && pinned.to_alive.len() > 1 {
            return pinned;
        }
    }
    panic!("kube-proxy deals out no flow to one of two endpoints")
}

/// Entries of these source ports.
pub fn entries(ports: &[u16]) -> BTreeSet<Key> {
    let mut all = udp_entries();
    all.retain(|key| {
        ports
            .iter()
            .any(|&port| key.original.sport == u64::from(port))
    });
    all.into_iter().collect()
}

/// Entries as `ctk purge -o jsonl` saves them.
pub struct Saved {
    file: tempfile::NamedTempFile,
    ports: Vec<u16>,
    keys: BTreeSet<Key>,
}

impl Saved {
    /// Saves the entries of these source ports and leaves them in the table. Clients must be paused.
    pub fn of(ports: &[u16]) -> Self {
        let keys = entries(ports);
        let outcome = ctk_on_node(&format!(
            "purge -o jsonl --yes --cluster none {}",
            selector(ports)
        ));
        let saved = Saved {
            file: tempfile::NamedTempFile::new().unwrap(),
            ports: ports.to_vec(),
            keys,
        };
        let text = outcome.exits(0).stdout;
        assert_eq!(text.lines().count(), saved.keys.len(), "{text}");
        std::fs::write(saved.file.path(), text).unwrap();
        saved.put_back();
        saved
    }

    /// Restores the entries in place of the present ones.
    pub fn put_back(&self) {
        let selector = selector(&self.ports);
        ctk_on_node(&format!("purge --yes --cluster none {selector}")).exits(0);
        let path = self.file.path().display();
        ctk_on_node(&format!("restore {path} --yes")).exits(0);
        assert_eq!(entries(&self.ports), self.keys);
    }
}

fn selector(ports: &[u16]) -> String {
    let ports: Vec<String> = ports.iter().map(ToString::to_string).collect();
    format!("--udp --sport {}", ports.join(","))
}
