//! Entries that the kernel dumps twice.
//!
//! A dump continues at the entry that did not fit into the last datagram. When that entry is gone by then, the kernel dumps its
//! hash bucket from the beginning (`ctnetlink_dump_table` in net/netfilter/nf_conntrack_netlink.c), so that the entries of the
//! bucket before it come again. Neither `NLM_F_DUMP_INTR` nor the number of buckets shows that. The repeated entries are among
//! the first of a datagram, and were among the last of those before.

use crate::flow::{Flow, Tuple, Zone};

/// Entries of one hash bucket at most, rounded up: the kernel refuses longer chains than 80
/// (`MIN_CHAINLEN` and `MAX_CHAINLEN` in net/netfilter/nf_conntrack_core.c, since 5.16).
const MAX_CHAIN: usize = 128;
/// Entries that are remembered: a chain before the begin of the datagram, and one after it.
const REMEMBERED: usize = 2 * MAX_CHAIN;

/// The last entries of a dump, to recognize those that come again. Takes about 20 KiB.
#[derive(Debug)]
pub(super) struct Repeats {
    /// Identifiers by position modulo [`REMEMBERED`], apart from the rest because most comparisons end there.
    ids: Box<[u32; REMEMBERED]>,
    keys: Vec<(Tuple, Zone)>,
    /// Number of entries that were not repeated.
    count: usize,
    /// [`Repeats::count`] at the begin of the datagram.
    border: usize,
    datagram: usize,
    /// Entries of the datagram so far.
    position: usize,
}

impl Repeats {
    pub(super) fn new() -> Self {
        Repeats {
            ids: Box::new([0; REMEMBERED]),
            keys: Vec::with_capacity(REMEMBERED),
            count: 0,
            border: 0,
            datagram: 0,
            position: 0,
        }
    }

    /// Reports whether `flow` of the datagram with this number came before. Remembers it otherwise.
    pub(super) fn is_repeated(&mut self, datagram: usize, flow: &Flow) -> bool {
        if datagram != self.datagram {
            self.datagram = datagram;
            self.border = self.count;
            self.position = 0;
        }
        self.position += 1;
        let id = flow.id.unwrap_or_default();
        if self.position <= MAX_CHAIN && self.was_before_border(id, flow) {
            return true;
        }
        let slot = self.count % REMEMBERED;
        self.ids[slot] = id;
        match self.keys.get_mut(slot) {
            Some(key) => *key = (flow.original, flow.zone),
            None => self.keys.push((flow.original, flow.zone)),
        }
        self.count += 1;
        false
    }

    fn was_before_border(&self, id: u32, flow: &Flow) -> bool {
        let first = self.border.saturating_sub(MAX_CHAIN);
        (first..self.border).any(|at| {
            let slot = at % REMEMBERED;
            self.ids[slot] == id && self.keys[slot] == (flow.original, flow.zone)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::L4;

    fn flow(port: u16, id: u32) -> Flow {
        let tuple = Tuple {
            src: [10, 0, 0, 1].into(),
            dst: [10, 0, 0, 2].into(),
            protocol: 17,
            l4: L4::Ports { src: port, dst: 53 },
        };
        let mut flow = Flow::new(tuple, tuple);
        flow.id = Some(id);
        flow
    }

    /// Ports that pass, of datagrams given as ports.
    fn passed(datagrams: &[&[u16]]) -> Vec<u16> {
        let mut repeats = Repeats::new();
        let mut passed = Vec::new();
        for (number, ports) in datagrams.iter().enumerate() {
            for port in *ports {
                if !repeats.is_repeated(number, &flow(*port, u32::from(*port))) {
                    passed.push(*port);
                }
            }
        }
        passed
    }

    #[test]
    fn an_entry_of_a_bucket_that_begins_again_passes_once() {
        let begins_again: &[&[u16]] = &[&[1, 2, 3, 4], &[9, 3, 4, 5], &[6]];
        assert_eq!(passed(begins_again), [1, 2, 3, 4, 9, 5, 6]);
        let several_times: &[&[u16]] = &[&[1, 2], &[1, 2], &[1, 2, 3]];
        assert_eq!(passed(several_times), [1, 2, 3]);
    }

    #[test]
    fn an_entry_with_the_id_of_another_passes() {
        let mut repeats = Repeats::new();
        assert!(!repeats.is_repeated(0, &flow(1, 7)));
        assert!(!repeats.is_repeated(1, &flow(2, 7)), "another tuple");
        let mut zoned = flow(1, 7);
        zoned.zone.id = 3;
        assert!(!repeats.is_repeated(1, &zoned), "another zone");
        assert!(repeats.is_repeated(1, &flow(1, 7)));
    }

    #[test]
    fn the_longest_chain_is_recognized_and_nothing_within_one_datagram() {
        let chain: Vec<u16> = (1..=MAX_CHAIN as u16).collect();
        let long: Vec<u16> = (1000..2000).chain(chain.iter().copied()).collect();
        let whole = passed(&[&long, &chain, &[5000]]);
        assert_eq!(whole.len(), long.len() + 1);
        assert_eq!(passed(&[&[1, 1]]), [1, 1]);
    }
}
