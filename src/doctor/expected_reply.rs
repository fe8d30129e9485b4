//! Whether silence tells anything: UDP that is never answered may be healthy (syslog, statsd, sFlow).

use ctnetlink::flow::Flow;

const TCP: u8 = 6;
const UDP: u8 = 17;
/// Every datagram to these is a question.
pub const ANSWERED_BY_DESIGN: [u16; 2] = [53, 123];

/// Whoever is asked so by such a flow answers, if it lives.
pub fn expects_reply(flow: &Flow) -> bool {
    match flow.protocol() {
        TCP => true,
        // The client's port, and the one that it was translated to.
        UDP => [flow.original.dport(), flow.reply.sport()]
            .into_iter()
            .flatten()
            .any(|port| ANSWERED_BY_DESIGN.contains(&port)),
        _ => false,
    }
}
