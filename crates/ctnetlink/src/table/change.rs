//! Inserts and deletes.

use std::borrow::Borrow;
use std::convert::Infallible;

use rustix::io::Errno;

use super::Table;
use crate::batch::Batch;
use crate::codec::encode::{self, DeleteTarget};
use crate::codec::insert;
use crate::error::{InsertError, NetlinkError, Operation};
use crate::flow::Flow;

/// Number of requests in one send. So many answers fit into the default receive buffer (208 KiB); twice as many do not.
pub const MAX_BATCH: usize = 128;

impl Table {
    /// Inserts one entry equal to `flow`.
    ///
    /// The status bits [`SRC_NAT`](crate::flow::Status::SRC_NAT) and [`DST_NAT`](crate::flow::Status::DST_NAT) decide about
    /// translation: with either, the kernel translates to exactly the addresses and ports of `flow.reply`. Without them it stores
    /// the reply tuple as it is, like IPVS does, and translates nothing. The kernel chooses id, counters, start and use count.
    /// The master is not sent, because it may not exist any more. Labels are stored only where a rule of the namespace uses
    /// labels.
    ///
    /// # Errors
    /// [`InsertError`]. `EXIST` when one of the tuples is taken.
    pub fn insert(&mut self, flow: &Flow) -> Result<(), InsertError> {
        self.insert_all([flow]).pop().unwrap_or(Ok(()))
    }

    /// Inserts several entries, [`MAX_BATCH`] in one send, see [`Table::insert`]. One result for each, in order.
    pub fn insert_all<I>(&mut self, flows: I) -> Vec<Result<(), InsertError>>
    where
        I: IntoIterator,
        I::Item: Borrow<Flow>,
    {
        let mut results = Vec::new();
        let mut flows = flows.into_iter().peekable();
        let mut batch = Batch::default();
        while flows.peek().is_some() {
            batch.clear();
            // Index of the result of each request of the batch: incomplete flows make no request.
            let mut indices = Vec::with_capacity(MAX_BATCH);
            for flow in flows.by_ref().take(MAX_BATCH) {
                let sequence = self.socket.next_sequence();
                let added = batch.add(sequence, |out| insert::insert(out, sequence, flow.borrow()));
                if added.is_ok() {
                    indices.push(results.len());
                }
                results.push(added.map_err(InsertError::Incomplete));
            }
            let answers = self.transact(Operation::InsertEntries, &mut batch);
            for (index, answer) in indices.into_iter().zip(answers) {
                if let (Some(result), Err(e)) = (results.get_mut(index), answer) {
                    *result = Err(InsertError::Kernel(e));
                }
            }
        }
        results
    }

    /// Deletes entries, [`MAX_BATCH`] in one send. One result for each, in order.
    ///
    /// Errors: `NOENT` when the entry does not exist any more, or another one has its place; `PERM` without CAP_NET_ADMIN;
    /// `NOBUFS` when the answer was lost, and the entry may have been deleted; else the answer of the kernel.
    ///
    /// A caller that may stop between two sends passes slices of [`MAX_BATCH`] targets.
    pub fn delete(&mut self, targets: &[DeleteTarget]) -> Vec<Result<(), Errno>> {
        let mut results = Vec::with_capacity(targets.len());
        let mut batch = Batch::default();
        for targets in targets.chunks(MAX_BATCH) {
            batch.clear();
            for target in targets {
                let sequence = self.socket.next_sequence();
                let Ok(()) = batch.add(sequence, |out| {
                    encode::delete(out, sequence, target);
                    Ok::<(), Infallible>(())
                });
            }
            results.extend(self.transact(Operation::DeleteEntries, &mut batch));
        }
        results
    }

    /// Sends a batch. Returns one result for each of its requests.
    fn transact(&mut self, operation: Operation, batch: &mut Batch) -> Vec<Result<(), Errno>> {
        let mut results = vec![Ok(()); batch.sequences.len()];
        if results.is_empty() {
            return results;
        }
        batch.acknowledge_last();
        let answered = self
            .replace_unfinished_socket()
            .and_then(|()| self.socket.send(operation, &batch.bytes))
            .and_then(|()| batch.answers(operation, &mut self.socket, &mut results));
        if let Err(error) = answered {
            // Answers received so far stay. The other results are not known.
            self.unfinished = true;
            let errno = NetlinkError::errno(error);
            for result in results.iter_mut().filter(|result| result.is_ok()) {
                *result = Err(errno);
            }
        }
        results
    }
}
