//! Target `entry`: one message of ctnetlink as an entry, an expectation and counters.

use ctk::entry::Entry;
use ctk::output::Format;
use ctnetlink::flow::{Flow, Status};
use ctnetlink::testing::{
    HEADER, cpu_stats, delete_request, expectation, insert_request, tuples_agree,
};
use ctnetlink::{DeleteTarget, decode};

use crate::{print, samples, saved_table};

/// `data` is the payload of a message: `struct nfgenmsg` and attributes.
pub fn target(data: &[u8]) -> usize {
    let mut read = 0;
    assert!(tuples_agree(data), "two decoders disagree");
    if let Ok(expectation) = expectation(data) {
        print::expectation_everywhere(&expectation);
        read += 1;
    }
    if let Ok(stats) = cpu_stats(data) {
        let counters: usize = stats.iter().map(|stats| stats.counters.len()).sum();
        assert!(counters <= 2 * data.len() / 4, "more counters than bytes");
    }
    if let Ok(flow) = decode(data) {
        assert_eq!(decode(data).as_ref(), Ok(&flow));
        print::flow_everywhere(&flow);
        saved_table::check_round_trip(&print::entry(
            Format::Jsonl,
            &Entry::bare(flow.clone()),
            None,
        ));
        check_requests(&flow);
        read += 1;
    }
    read
}

/// Requests that are made of an entry name that entry.
pub fn check_requests(flow: &Flow) {
    if let Ok(request) = insert_request(flow) {
        let sent = request.get(HEADER..).map(decode);
        let Some(Ok(sent)) = sent else {
            unreachable!("{flow:?} is sent as {sent:?}");
        };
        assert_eq!(sent.original, flow.original);
        assert_eq!((sent.timeout, sent.mark), (flow.timeout, flow.mark));
        if !flow
            .status
            .intersects(Status::SRC_NAT.with(Status::DST_NAT))
        {
            assert_eq!(sent.reply, flow.reply);
        }
        if flow.zone.id != 0 {
            assert_eq!(sent.zone, flow.zone);
        }
        let again = insert_request(&sent);
        let decoded = again.as_ref().map(|again| again.get(HEADER..).map(decode));
        assert_eq!(decoded, Ok(Some(Ok(sent))), "a second request differs");
    }
    let target = DeleteTarget::of(flow);
    assert_eq!(target.is_some(), flow.id.is_some());
    if let Some(target) = target {
        assert_eq!(target.reply(), &flow.reply);
        // The kernel takes a request without a tuple as a flush of the table.
        assert!(delete_request(&target).len() > HEADER + 40);
    }
}

/// See [`Target::grown`](crate::Target).
pub const GROWN: &[fn(usize) -> Vec<u8>] = &[unknown_attributes];

/// An entry, and attributes that are not known.
fn unknown_attributes(pieces: usize) -> Vec<u8> {
    let request = insert_request(&samples::flows()[0]);
    let mut data = request.unwrap_or_else(|error| unreachable!("{error}"));
    data.drain(..HEADER);
    for _ in 0..pieces {
        data.extend([8, 0, 200, 0, 1, 2, 3, 4]);
    }
    data
}
