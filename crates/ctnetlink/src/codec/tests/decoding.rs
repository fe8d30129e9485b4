//! Decoding of messages built by hand: attributes that kernels omit, add, or never send.

use super::{built, read, tuple};
use crate::codec::attr::{Attribute, Writer};
use crate::codec::decode::{self, DecodeError};
use crate::codec::{expect, tuple as decode_tuple};
use crate::flow::{Counters, Direction, L4, ProtocolState, SeqAdj, Status, TcpDirection, Zone};

#[test]
fn offloaded_entries_without_timer_and_state_are_decoded() {
    for (bit, state) in [(1 << 14, None), (1 << 15, None), (1 << 15, Some(3))] {
        let flow = read(|w| {
            w.be32(3, bit);
            if let Some(state) = state {
                w.nested(4, |w| w.nested(1, |w| w.u8(1, state)));
            }
        });
        assert!(flow.status.is_offloaded());
        assert_eq!(
            (flow.timeout, flow.state.map(ProtocolState::number)),
            (None, state)
        );
    }
}

#[test]
fn missing_and_unknown_attributes_are_no_error() {
    let state = |number| {
        read(|w| w.nested(4, |w| w.nested(1, |w| w.u8(1, number))))
            .state
            .unwrap()
    };
    let bare = TcpDirection::default();
    assert_eq!(
        state(8),
        ProtocolState::Tcp {
            state: 8,
            original: bare,
            reply: bare
        }
    );
    assert_eq!((state(8).name(), state(42).name()), (Some("CLOSE"), None));

    let padded = read(|w| {
        w.nested(9, |w| {
            w.put(5, &[]);
            w.put(1, &7u64.to_be_bytes());
            w.put(2, &700u64.to_be_bytes());
            w.put(5, &[0; 4]);
        });
        w.put(99, &[1; 8]);
    });
    assert_eq!(
        padded.counters_original,
        Some(Counters {
            packets: 7,
            bytes: 700
        })
    );
    assert_eq!(padded.counters_reply, None);

    let nothing = read(|_| {});
    assert_eq!((nothing.status, nothing.zone), (Status(0), Zone::default()));
    assert!(nothing.mark.is_none() && nothing.id.is_none() && nothing.rare.is_none());
    // Values that are too short are absent.
    let short = read(|w| {
        for kind in [3, 7, 8, 11, 12, 18, 22] {
            w.put(kind, &[]);
        }
    });
    assert_eq!(short, nothing);
}

#[test]
fn malformed_messages_are_errors_with_a_reason() {
    let whole = built(|w| w.be32(7, 1));
    let no_reply = {
        let mut message = built(|_| {});
        message.truncate(4 + 52);
        message
    };
    let tail = |tail: &[u8]| [&whole[..], tail].concat();
    for (name, message, error) in [
        ("empty", vec![], DecodeError::Short),
        (
            "no attribute",
            vec![2, 0, 0, 0],
            DecodeError::NoTuple(Direction::Original),
        ),
        ("no reply", no_reply, DecodeError::NoTuple(Direction::Reply)),
        ("length 2", tail(&[2, 0, 8, 0]), DecodeError::Broken),
        (
            "beyond the end",
            tail(&[12, 0, 8, 0, 1, 1, 1, 1]),
            DecodeError::Broken,
        ),
        (
            "broken nest",
            tail(&[8, 0, 9, 0x80, 9, 0, 1, 0]),
            DecodeError::Broken,
        ),
    ] {
        assert_eq!(decode::flow(&message), Err(error), "{name}");
    }
}

#[test]
fn rare_attributes_are_decoded() {
    let flow = read(|w| {
        w.put(22, &[0xfe, 0, 2]);
        w.nested(5, |w| w.text(1, "ftp"));
        w.nested(19, |w| w.text(1, "system_u:object_r:x"));
        w.nested(20, |w| {
            w.put(1, &5u64.to_be_bytes());
            w.put(2, &6u64.to_be_bytes());
        });
        w.nested(15, |w| {
            w.be32(1, 1);
            w.be32(2, 2);
            w.be32(3, 3);
        });
        // One attribute of three is no adjustment.
        w.nested(16, |w| w.be32(1, 1));
        w.nested(14, |w| {
            w.nested(1, |w| {
                w.put(1, &[10, 0, 0, 8]);
                w.put(2, &[10, 0, 0, 9]);
            });
            w.nested(2, |w| w.u8(1, 6));
        });
    });
    let rare = flow.rare.as_deref().unwrap();
    let mut labels = [0; 16];
    labels[..3].copy_from_slice(&[0xfe, 0, 2]);
    assert_eq!(flow.labels(), Some(&labels));
    assert_eq!(
        (flow.helper(), flow.secctx()),
        (Some("ftp"), Some("system_u:object_r:x"))
    );
    assert_eq!((flow.start, rare.stop), (Some(5), Some(6)));
    assert_eq!(
        rare.master,
        Some(tuple(6, "10.0.0.8", "10.0.0.9", L4::None))
    );
    let adjustment = SeqAdj {
        correction_pos: 1,
        offset_before: 2,
        offset_after: 3,
    };
    assert_eq!(rare.seq_adj_original, Some(adjustment));
    assert_eq!(rare.seq_adj_reply, None);
}

/// Labels are verbatim. An empty or too long value is absent.
#[test]
fn labels_are_verbatim_or_absent() {
    let labels = |value: &[u8]| read(|w| w.put(22, value)).labels().copied();
    let all: [u8; 16] = std::array::from_fn(|n| n as u8);
    assert_eq!(labels(&all), Some(all));
    assert_eq!((labels(&[]), labels(&[1; 17])), (None, None));
}

/// Only the first is in the typical layout.
#[test]
fn counters_in_any_order_and_among_other_attributes_are_decoded() {
    let (packets, bytes) = ((1, 7u64.to_be_bytes()), (2, 700u64.to_be_bytes()));
    let pad = (5, [0; 8]);
    for order in [
        &[packets, bytes][..],
        &[bytes, packets],
        &[pad, packets, bytes],
        &[packets, pad, bytes],
    ] {
        let flow = read(|w| {
            w.nested(9, |w| {
                order.iter().for_each(|(kind, value)| w.put(*kind, value))
            });
        });
        let expected = Counters {
            packets: 7,
            bytes: 700,
        };
        assert_eq!(flow.counters_original, Some(expected), "{order:?}");
    }
    // Length of the typical layout.
    for one in [packets, pad] {
        let flow = read(|w| {
            w.nested(9, |w| {
                [one, one]
                    .iter()
                    .for_each(|(kind, value)| w.put(*kind, value))
            });
        });
        assert_eq!(flow.counters_original, None);
    }
}

#[test]
fn old_counters_and_protocols_without_ports_are_decoded() {
    let old = read(|w| {
        w.nested(10, |w| {
            w.be32(3, 3);
            w.be32(4, 300);
        });
    });
    assert_eq!(
        old.counters_reply,
        Some(Counters {
            packets: 3,
            bytes: 300
        })
    );
    let l4 = |fill: &dyn Fn(&mut Writer<'_>)| {
        let mut own = Vec::new();
        let mut writer = Writer::new(&mut own);
        writer.nested(1, |w| {
            w.put(1, &[10, 0, 0, 8]);
            w.put(2, &[10, 0, 0, 9]);
        });
        writer.nested(2, |w| fill(w));
        let (tuple, zone) = decode_tuple::tuple(Attribute {
            kind: 1,
            value: &own,
        })
        .unwrap();
        assert_eq!(zone, None);
        tuple.map(|tuple| tuple.l4)
    };
    let with = |protocol: u8, kinds: &'static [u16]| {
        l4(&move |w| {
            w.u8(1, protocol);
            for kind in kinds {
                w.be16(*kind, 0x0102);
            }
        })
    };
    let both = (0x0102, 0x0102);
    assert_eq!(with(89, &[]), Some(L4::None));
    assert_eq!(with(33, &[]), Some(L4::None), "DCCP without its tracker");
    assert_eq!(
        with(33, &[2, 3]),
        Some(L4::Ports {
            src: both.0,
            dst: both.1
        })
    );
    assert_eq!(
        with(47, &[2, 3]),
        Some(L4::Gre {
            src: both.0,
            dst: both.1
        })
    );
    assert_eq!(with(47, &[]), Some(L4::None));
    assert_eq!(with(1, &[]), Some(L4::None));
    assert_eq!(with(17, &[2]), Some(L4::None));
    assert_eq!(l4(&|w| w.be16(2, 1)), None, "no protocol, no tuple");
}

#[test]
fn expectation_without_its_tuples_is_an_error() {
    assert_eq!(expect::expectation(&[]), Err(DecodeError::Short));
    assert_eq!(
        expect::expectation(&[2, 0, 0, 0]),
        Err(DecodeError::NoExpectedTuple)
    );
    // The attributes 1 and 2, tuples of an entry, are master and tuple of an expectation.
    let mut message = built(|_| {});
    Writer::new(&mut message).text(6, "sip");
    let read = expect::expectation(&message).unwrap();
    assert_eq!(
        (read.master.sport(), read.tuple.sport()),
        (Some(1), Some(2))
    );
    assert_eq!(
        (read.helper.as_deref(), read.mask, read.id),
        (Some("sip"), None, None)
    );
}
