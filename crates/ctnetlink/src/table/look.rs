//! Looking many entries up, several in one send.

use rustix::io::Errno;

use super::{Table, errno};
use crate::codec::{decode, encode};
use crate::error::NetlinkError;
use crate::flow::{Direction, Flow, Tuple, Zone};
use crate::socket::Message;

/// Looks in one send. Each answer takes up a page of the receive buffer, or 8 KiB where pages are larger.
const LOOKS: usize = 16;

impl Table {
    /// [`Table::get`] for many entries, some in one send; one result each, in order. [`Errno::PERM`]: CAP_NET_ADMIN is
    /// missing. [`Errno::NOBUFS`]: the answer was lost.
    pub fn get_all<'t>(
        &mut self,
        wanted: impl IntoIterator<Item = (&'t Tuple, Direction, Zone)>,
    ) -> Vec<Result<Option<Flow>, Errno>> {
        let wanted: Vec<_> = wanted.into_iter().collect();
        let mut found = Vec::with_capacity(wanted.len());
        for wanted in wanted.chunks(LOOKS) {
            let mut results = vec![None; wanted.len()];
            let error = self.look_up(wanted, &mut results).err();
            if error.is_some() {
                self.unfinished = true;
            }
            let unknown = error.map_or(Errno::IO, errno);
            found.extend(results.into_iter().map(|r| r.unwrap_or(Err(unknown))));
        }
        found
    }

    /// One send of looks. What is not answered when this fails stays `None`.
    fn look_up(
        &mut self,
        wanted: &[(&Tuple, Direction, Zone)],
        results: &mut [Option<Result<Option<Flow>, Errno>>],
    ) -> Result<(), NetlinkError> {
        const DOING: &str = "looking up entries";
        self.fresh()?;
        self.requests.clear();
        let mut sequences = Vec::with_capacity(wanted.len());
        for (tuple, direction, zone) in wanted {
            let sequence = self.socket.next_sequence();
            encode::get(&mut self.requests, sequence, tuple, *direction, *zone);
            sequences.push(sequence);
        }
        self.socket.send(DOING, &self.requests)?;
        let mut open = wanted.len();
        while open > 0 {
            for message in self.socket.receive(DOING)? {
                let message = message?;
                let place = sequences.iter().position(|s| *s == message.sequence());
                let Some(place) = place else { continue };
                let (Some((tuple, direction, _)), Some(result)) =
                    (wanted.get(place), results.get_mut(place))
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
                        // nfnetlink answers the first request of a datagram and drops all the others.
                        Some(Errno::PERM) => return Err(NetlinkError::NotPermitted(DOING)),
                        Some(e) => Err(e),
                        None => Err(Errno::BADMSG),
                    },
                    Message::Done { .. } => Err(Errno::BADMSG),
                });
                open -= 1;
            }
        }
        Ok(())
    }
}
