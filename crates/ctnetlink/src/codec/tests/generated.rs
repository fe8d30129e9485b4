//! Generated flows, encoded and decoded; mutated and random bytes.

use std::net::IpAddr;

use proptest::prelude::*;

use super::{CAPTURED, bytes};
use crate::codec::attr::Attribute;
use crate::codec::{decode, encode, expect, insert::insert, tuple};
use crate::flow::{Direction, Flow, L4, ProtocolState, SeqAdj, Status, TcpDirection, Tuple, Zone};
use crate::socket::{Message, Messages};

fn any_address(v6: bool) -> BoxedStrategy<IpAddr> {
    if v6 {
        any::<[u8; 16]>().prop_map(IpAddr::from).boxed()
    } else {
        any::<[u8; 4]>().prop_map(IpAddr::from).boxed()
    }
}

fn any_l4(protocol: u8) -> BoxedStrategy<L4> {
    let pair = any::<(u16, u16)>();
    match protocol {
        1 | 58 => any::<(u8, u8, u16)>()
            .prop_map(|(kind, code, id)| L4::Icmp { kind, code, id })
            .boxed(),
        47 => pair.prop_map(|(src, dst)| L4::Gre { src, dst }).boxed(),
        89 => Just(L4::None).boxed(),
        _ => pair.prop_map(|(src, dst)| L4::Ports { src, dst }).boxed(),
    }
}

fn any_tuples() -> impl Strategy<Value = (Tuple, Tuple)> {
    let protocol = prop::sample::select(vec![1u8, 6, 17, 33, 47, 58, 89, 132, 136]);
    (any::<bool>(), protocol).prop_flat_map(|(v6, protocol)| {
        let one = move || {
            (any_address(v6), any_address(v6), any_l4(protocol)).prop_map(move |(src, dst, l4)| {
                Tuple {
                    src,
                    dst,
                    protocol,
                    l4,
                }
            })
        };
        (one(), one())
    })
}

fn any_state() -> impl Strategy<Value = Option<ProtocolState>> {
    let side = any::<(Option<u8>, Option<u8>)>().prop_map(|(flags, window_scale)| TcpDirection {
        flags,
        window_scale,
    });
    let tcp =
        (any::<u8>(), side.clone(), side).prop_map(|(state, original, reply)| ProtocolState::Tcp {
            state,
            original,
            reply,
        });
    let sctp = any::<(u8, u32, u32)>().prop_map(|(state, a, b)| ProtocolState::Sctp {
        state,
        vtag_original: Some(a),
        vtag_reply: Some(b),
    });
    let dccp = any::<(u8, u8)>().prop_map(|(state, role)| ProtocolState::Dccp {
        state,
        role: Some(role),
    });
    prop::option::of(prop_oneof![tcp, sctp, dccp])
}

/// Flows without translation, with the properties that an insert sends.
fn any_flow() -> impl Strategy<Value = Flow> {
    let direction = prop::sample::select(vec![
        None,
        Some(Direction::Original),
        Some(Direction::Reply),
    ]);
    let zone = (1u16.., direction).prop_map(|(id, direction)| Zone { id, direction });
    let zone = prop_oneof![Just(Zone::default()), zone];
    let adjustment = prop::option::of(any::<(u32, u32, u32)>().prop_map(|(a, b, c)| SeqAdj {
        correction_pos: a,
        offset_before: b,
        offset_after: c,
    }));
    let rare = (
        prop::option::of(any::<[u8; 16]>()),
        prop::option::of("[a-z]{1,15}"),
        adjustment,
    );
    (
        any_tuples(),
        zone,
        any_state(),
        any::<(u32, Option<u32>, bool)>(),
        rare,
    )
        .prop_map(
            |(
                (original, reply),
                zone,
                state,
                (timeout, mark, replied),
                (labels, helper, adjusted),
            )| {
                let mut flow = Flow::new(original, reply);
                flow.zone = zone;
                flow.state = state;
                (flow.timeout, flow.mark) = (Some(timeout), mark);
                if replied {
                    flow.status = flow.status.with(Status::SEEN_REPLY);
                }
                if labels.is_some() || helper.is_some() || adjusted.is_some() {
                    let rare = flow.rare_mut();
                    rare.labels = labels;
                    rare.helper = helper.map(Into::into);
                    rare.seq_adj_reply = adjusted;
                }
                flow
            },
        )
}

proptest! {
    #[test]
    fn encoded_and_decoded_flow_is_equal(flow in any_flow()) {
        let mut out = Vec::new();
        insert(&mut out, 1, &flow).unwrap();
        prop_assert_eq!(decode::flow(&out[16..]), Ok(flow));
    }

    #[test]
    fn typical_tuple_equals_the_tuple_of_the_iteration(
        (original, _) in any_tuples(),
        flip in prop::option::of(any::<(prop::sample::Index, u8)>()),
    ) {
        let mut out = Vec::new();
        encode::get(&mut out, 1, &original, Direction::Original, Zone::default());
        let mut value = out.split_off(24);
        if let Some((at, bits)) = flip {
            let at = at.index(value.len());
            value[at] ^= bits;
        }
        let attribute = Attribute { kind: 1, value: &value };
        prop_assert_eq!(tuple::tuple(attribute), tuple::any_tuple(attribute));
    }

    #[test]
    fn mutated_message_never_panics(
        which in 0..CAPTURED.len(),
        cut in any::<prop::sample::Index>(),
        flips in prop::collection::vec(any::<(prop::sample::Index, u8)>(), 0..8),
    ) {
        let mut message = bytes(CAPTURED[which]);
        for (at, bits) in flips {
            let at = at.index(message.len());
            message[at] ^= bits;
        }
        message.truncate(cut.index(message.len() + 1));
        let _ = decode::flow(&message);
        let _ = expect::expectation(&message);
    }

    #[test]
    fn cut_message_is_never_decoded_as_another(which in 0..CAPTURED.len(), cut in any::<prop::sample::Index>()) {
        let whole = bytes(CAPTURED[which]);
        let cut = cut.index(whole.len());
        if let Ok(flow) = decode::flow(&whole[..cut]) {
            // Cut between two attributes: the rest is correct.
            let full = decode::flow(&whole).unwrap();
            prop_assert_eq!((flow.original, flow.reply), (full.original, full.reply));
            prop_assert!(flow.timeout.is_none() || flow.timeout == full.timeout);
        }
    }

    #[test]
    fn random_bytes_never_panic(noise in prop::collection::vec(any::<u8>(), 0..600)) {
        let _ = decode::flow(&noise);
        let _ = expect::expectation(&noise);
        let _ = Messages::over(&noise).count();
    }

    #[test]
    fn iteration_over_random_datagrams_ends(lengths in prop::collection::vec((0u32..80, 0u16..5), 0..20)) {
        let mut datagram = Vec::new();
        for (length, kind) in lengths {
            datagram.extend(length.to_ne_bytes());
            datagram.extend(kind.to_ne_bytes());
            datagram.resize(datagram.len() + 14, 0);
        }
        for message in Messages::over(&datagram) {
            if let Ok(Message::Data { payload, .. }) = message {
                let _ = decode::flow(payload);
            }
        }
    }
}
