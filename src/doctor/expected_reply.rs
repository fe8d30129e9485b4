//! Protocols whose requests are always answered. UDP without answers may be healthy (syslog, statsd, sFlow).

use ctnetlink::flow::Flow;

const TCP: u8 = 6;
const UDP: u8 = 17;
/// UDP ports of DNS and NTP: every datagram to them asks for an answer.
pub const ANSWERED_BY_DESIGN: [u16; 2] = [53, 123];

/// Whether a healthy server answers such a flow.
pub fn expects_reply(flow: &Flow) -> bool {
    match flow.protocol() {
        TCP => true,
        // The port that the client sent to, and the one after translation.
        UDP => [flow.original.dport(), flow.reply.sport()]
            .into_iter()
            .flatten()
            .any(|port| ANSWERED_BY_DESIGN.contains(&port)),
        _ => false,
    }
}
