//! Reader of IPVS virtual servers in `/proc/net/ip_vs` (`ip_vs_info_seq_show` in the kernel's `net/netfilter/ipvs/ip_vs_ctl.c`).
//!
//! Addresses are hexadecimal, and the file holds no name of a Service. A server of weight 0 gets no new flows and keeps its old
//! ones: kube-proxy drains a terminating endpoint that way.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::{NodeRules, Proxy, RuleFrontend, protocol};

/// First words of the file.
pub const TITLE: &str = "IP Virtual Server version";

/// Reads the file. Virtual servers by mark (`FWM`) have no address and are left out.
pub fn read(text: &str) -> NodeRules {
    let mut rules = NodeRules::default();
    let mut current: Option<((IpAddr, u8, u16), RuleFrontend)> = None;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("->") => {
                let Some((_, frontend)) = &mut current else {
                    continue;
                };
                // "RemoteAddress:Port" of the title is no server.
                let Some(server) = words.next().and_then(socket) else {
                    frontend.understood = false;
                    continue;
                };
                match words.nth(1).and_then(|weight| weight.parse::<u32>().ok()) {
                    Some(0) => frontend.draining.push(server),
                    Some(_) => frontend.targets.push(server),
                    None => frontend.understood = false,
                }
            }
            Some(word @ ("TCP" | "UDP" | "SCTP")) => {
                keep(&mut rules, current.take());
                let number = protocol(&word.to_ascii_lowercase());
                let place = words.next().and_then(socket);
                current = number.zip(place).map(|(protocol, place)| {
                    let frontend = RuleFrontend {
                        understood: true,
                        ..RuleFrontend::default()
                    };
                    ((place.ip(), protocol, place.port()), frontend)
                });
                rules.unknown_shapes += usize::from(current.is_none());
            }
            _ => keep(&mut rules, current.take()),
        }
    }
    keep(&mut rules, current);
    rules
}

fn keep(rules: &mut NodeRules, found: Option<((IpAddr, u8, u16), RuleFrontend)>) {
    if let Some((key, frontend)) = found {
        rules.proxies.insert(Proxy::Ipvs);
        rules.add_frontend(key, frontend);
    }
}

/// Parses `0A60000A:0035`, or `[fd00:...:000a]:0035`.
fn socket(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.rsplit_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let address = match address.strip_prefix('[') {
        Some(rest) => IpAddr::V6(rest.strip_suffix(']')?.parse().ok()?),
        None if address.len() == 8 => {
            IpAddr::V4(Ipv4Addr::from(u32::from_str_radix(address, 16).ok()?))
        }
        None => return None,
    };
    Some(SocketAddr::new(address, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
UDP  0A607F09:0202 rr
  -> 0AF48003:0202      Masq    1      0          2
  -> 0AF48110:0202      Masq    0      0          1
TCP  0A607F0A:0050 rr persistent 10800 FFFFFFFF
UDP  [fd00:0096:0000:0000:0000:0000:0000:000a]:0035 rr
  -> [fd00:0010:0000:0000:0000:0000:0000:0011]:0035      Masq    1      0          0
FWM  00000007 rr
  -> 0AF48003:0000      Masq    1      0          0
";

    #[test]
    fn virtual_servers_become_frontends_and_weight_zero_is_draining() {
        let rules = read(SAMPLE);
        let at = |address: &str, protocol, port| {
            let frontend = &rules.frontends[&(address.parse().unwrap(), protocol, port)];
            assert!(frontend.understood && frontend.service.is_none());
            let text = |all: &[SocketAddr]| all.iter().map(|s| s.to_string()).collect::<Vec<_>>();
            (text(&frontend.targets), text(&frontend.draining))
        };
        assert_eq!(
            at("10.96.127.9", 17, 514),
            (
                vec!["10.244.128.3:514".to_owned()],
                vec!["10.244.129.16:514".to_owned()]
            )
        );
        assert_eq!(at("10.96.127.10", 6, 80), (vec![], vec![]));
        assert_eq!(
            at("fd00:96::a", 17, 53),
            (vec!["[fd00:10::11]:53".to_owned()], vec![])
        );
        assert_eq!(rules.frontends.len(), 3);
        assert_eq!(rules.unknown_shapes, 0);
    }

    #[test]
    fn a_server_that_cannot_be_read_makes_its_frontend_unknown() {
        let rules = read("UDP  0A607F09:0202 rr\n  -> x Masq 1 0 0\nUDP  0A60:1 rr\n");
        let frontend = &rules.frontends[&("10.96.127.9".parse().unwrap(), 17, 514)];
        assert!(!frontend.understood);
        assert_eq!(rules.not_understood(), 2);
    }
}
