//! Entries for the tests of the checks.

use std::net::SocketAddr;

use crate::flow::{Flow, L4, Status, Tuple};

/// A UDP entry that was answered: client, original destination, where it leads.
pub fn udp(client: &str, destination: &str, leads_to: &str) -> Flow {
    flow(17, client, destination, leads_to)
}

pub fn flow(protocol: u8, client: &str, destination: &str, leads_to: &str) -> Flow {
    let mut flow = Flow::new(
        tuple(protocol, client, destination),
        tuple(protocol, leads_to, client),
    );
    flow.status = flow.status.with(Status::SEEN_REPLY).with(Status::ASSURED);
    flow
}

pub fn tuple(protocol: u8, src: &str, dst: &str) -> Tuple {
    let place = |text: &str| -> SocketAddr { text.parse().unwrap() };
    let (src, dst) = (place(src), place(dst));
    Tuple {
        src: src.ip(),
        dst: dst.ip(),
        protocol,
        l4: L4::Ports {
            src: src.port(),
            dst: dst.port(),
        },
    }
}
