//! Several requests in one datagram.

use netlink_packet_core::{NLM_F_ACK, NetlinkBuffer};
use rustix::io::Errno;

use crate::error::{NetlinkError, Operation};
use crate::socket::{Message, Socket};

/// Requests of one datagram. The kernel handles them in order before `send` returns. It answers every failure, and success only
/// where `NLM_F_ACK` is set: on the last request.
#[derive(Default)]
pub(crate) struct Batch {
    pub bytes: Vec<u8>,
    pub sequences: Vec<u32>,
    /// Offset of the last request.
    last: usize,
}

impl Batch {
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.sequences.clear();
    }

    /// Adds a request. `write` must write nothing when it fails.
    pub fn add<E>(
        &mut self,
        sequence: u32,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let start = self.bytes.len();
        write(&mut self.bytes)?;
        self.last = start;
        self.sequences.push(sequence);
        Ok(())
    }

    pub fn acknowledge_last(&mut self) {
        if let Some(last) = self.bytes.get_mut(self.last..) {
            let mut header = NetlinkBuffer::new(last);
            header.set_flags(header.flags() | NLM_F_ACK);
        }
    }

    /// Receives the answers to a batch that was sent on `socket`, as one result for each request.
    pub fn answers(
        &self,
        operation: Operation,
        socket: &mut Socket,
        results: &mut [Result<(), Errno>],
    ) -> Result<(), NetlinkError> {
        let (first, last) = (self.sequences.first(), self.sequences.last());
        loop {
            for message in socket.receive(operation)? {
                let Message::Answer { sequence, error } = message? else {
                    continue;
                };
                // Without CAP_NET_ADMIN nfnetlink answers the first request of a datagram and drops the others.
                if Some(&sequence) == first && error == Some(Errno::PERM) {
                    return Err(NetlinkError::NotPermitted(operation));
                }
                let Some(index) = self.sequences.iter().position(|s| *s == sequence) else {
                    continue;
                };
                if let (Some(result), Some(e)) = (results.get_mut(index), error) {
                    *result = Err(e);
                }
                if Some(&sequence) == last {
                    return Ok(());
                }
            }
        }
    }
}
