//! Many requests in one send.

use netlink_packet_core::{NLM_F_ACK, NetlinkBuffer};
use rustix::io::Errno;

use crate::error::NetlinkError;
use crate::socket::{Message, Socket};

/// Requests that go out in one send. The kernel works through them in order before the send returns. It answers every
/// failure, and success only where asked to: the last request asks.
#[derive(Default)]
pub(crate) struct Batch {
    pub bytes: Vec<u8>,
    pub sequences: Vec<u32>,
    /// Where the last request starts.
    last: usize,
}

impl Batch {
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.sequences.clear();
    }

    /// `write` must write nothing when it fails.
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

    /// Receives the answers to a batch that was sent on `socket`, into one result for each request.
    pub fn answers(
        &self,
        doing: &'static str,
        socket: &mut Socket,
        results: &mut [Result<(), Errno>],
    ) -> Result<(), NetlinkError> {
        let (first, last) = (self.sequences.first(), self.sequences.last());
        loop {
            for message in socket.receive(doing)? {
                let Message::Answer { sequence, error } = message? else {
                    continue;
                };
                // Without CAP_NET_ADMIN nfnetlink answers the first request of a datagram and drops all the others.
                if Some(&sequence) == first && error == Some(Errno::PERM) {
                    return Err(NetlinkError::NotPermitted(doing));
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
