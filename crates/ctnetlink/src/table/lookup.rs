//! Lookups of several entries with few sends.

use rustix::io::Errno;

use super::Table;
use crate::codec::{decode, encode};
use crate::error::{NetlinkError, Operation};
use crate::flow::{Direction, Flow, Tuple, Zone};
use crate::socket::Message;

/// Requests in one send. Each answer takes a page of the receive buffer, or 8 KiB where pages are larger.
const MAX_REQUESTS: usize = 16;

impl Table {
    /// [`Table::get`] for several entries, 16 in one send. One result for each, in order.
    ///
    /// Errors: `PERM` without CAP_NET_ADMIN, `NOBUFS` when the answer was lost, `BADMSG` when it cannot be decoded, else the
    /// answer of the kernel.
    pub fn get_all<'t>(
        &mut self,
        keys: impl IntoIterator<Item = (&'t Tuple, Direction, Zone)>,
    ) -> Vec<Result<Option<Flow>, Errno>> {
        let keys: Vec<_> = keys.into_iter().collect();
        let mut found = Vec::with_capacity(keys.len());
        for keys in keys.chunks(MAX_REQUESTS) {
            let mut results = vec![None; keys.len()];
            let error = self.look_up(keys, &mut results).err();
            if error.is_some() {
                self.unfinished = true;
            }
            let unanswered = error.map_or(Errno::IO, NetlinkError::errno);
            found.extend(results.into_iter().map(|r| r.unwrap_or(Err(unanswered))));
        }
        found
    }

    /// Looks up entries in one send. After an error, results without an answer are `None`.
    fn look_up(
        &mut self,
        keys: &[(&Tuple, Direction, Zone)],
        results: &mut [Option<Result<Option<Flow>, Errno>>],
    ) -> Result<(), NetlinkError> {
        const OPERATION: Operation = Operation::GetEntries;
        self.replace_unfinished_socket()?;
        self.requests.clear();
        let mut sequences = Vec::with_capacity(keys.len());
        for (tuple, direction, zone) in keys {
            let sequence = self.socket.next_sequence();
            encode::get(&mut self.requests, sequence, tuple, *direction, *zone);
            sequences.push(sequence);
        }
        self.socket.send(OPERATION, &self.requests)?;
        let mut unanswered = keys.len();
        while unanswered > 0 {
            for message in self.socket.receive(OPERATION)? {
                let message = message?;
                let index = sequences.iter().position(|s| *s == message.sequence());
                let Some(index) = index else { continue };
                let (Some((tuple, direction, _)), Some(result)) =
                    (keys.get(index), results.get_mut(index))
                else {
                    continue;
                };
                *result = Some(match message {
                    Message::Data { payload, .. } => match decode::flow(payload) {
                        Ok(flow) => Ok((flow.tuple(*direction) == *tuple).then_some(flow)),
                        Err(_) => Err(Errno::BADMSG),
                    },
                    Message::Answer { error, .. } => match error {
                        Some(Errno::NOENT) => Ok(None),
                        // nfnetlink answers the first request of a datagram and drops the others.
                        Some(Errno::PERM) => return Err(NetlinkError::NotPermitted(OPERATION)),
                        Some(e) => Err(e),
                        None => Err(Errno::BADMSG),
                    },
                    Message::Done { .. } => Err(Errno::BADMSG),
                });
                unanswered -= 1;
            }
        }
        Ok(())
    }
}
