//! Rules like kube-proxy's for one Service, in the iptables mode and the nftables mode.

use std::fmt::Write;
use std::net::Ipv4Addr;

use super::VIP;
use crate::tools::{nft, run_with};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proxy {
    Iptables,
    Nftables,
}

impl Proxy {
    /// Loads the rules that precede any Service: chains, hooks and masquerading.
    pub(super) fn load_base(self) {
        match self {
            Proxy::Iptables => iptables(IPTABLES_BASE),
            Proxy::Nftables => nft(NFT_BASE),
        }
    }

    /// Replaces the rules of the Service. Chains of former endpoints stay, unreferenced, as on a node.
    pub(super) fn load_service(self, endpoints: &[Ipv4Addr]) {
        match self {
            Proxy::Iptables => iptables(&iptables_service(endpoints)),
            Proxy::Nftables => nft(&nft_service(endpoints)),
        }
    }
}

fn iptables(rules: &str) {
    run_with("iptables-restore", &["--noflush"], rules);
}

const IPTABLES_BASE: &str = "*nat
:KUBE-SERVICES - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-POSTROUTING - [0:0]
-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A OUTPUT -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment \"kubernetes postrouting rules\" -j KUBE-POSTROUTING
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
-A KUBE-POSTROUTING -m comment --comment \"kubernetes service traffic requiring SNAT\" -j MASQUERADE --random-fully
COMMIT
";

fn iptables_service(endpoints: &[Ipv4Addr]) -> String {
    const SERVICE: &str = "KUBE-SVC-TCOU7JCQXEZGVUNU";
    // kube-proxy uses a hash. The address is as short and unique, too.
    let chain = |endpoint: &Ipv4Addr| format!("KUBE-SEP-{:08X}", endpoint.to_bits());
    let mut text = format!("*nat\n:KUBE-SERVICES - [0:0]\n:{SERVICE} - [0:0]\n");
    for endpoint in endpoints {
        writeln!(text, ":{} - [0:0]", chain(endpoint)).unwrap();
    }
    let (ip, port) = (VIP.ip(), VIP.port());
    writeln!(
        text,
        "-A KUBE-SERVICES -d {ip}/32 -p udp -m comment --comment \"kube-system/kube-dns:dns cluster IP\" \
         -m udp --dport {port} -j {SERVICE}"
    )
    .unwrap();
    for (place, endpoint) in endpoints.iter().enumerate() {
        let left = endpoints.len() - place;
        let chance = if left > 1 {
            let probability = 1.0 / left as f64;
            format!("-m statistic --mode random --probability {probability:.11} ")
        } else {
            String::new()
        };
        let chain = chain(endpoint);
        writeln!(
            text,
            "-A {SERVICE} -m comment --comment \"kube-system/kube-dns:dns -> {endpoint}:53\" {chance}-j {chain}\n\
             -A {chain} -s {endpoint}/32 -m comment --comment \"kube-system/kube-dns:dns\" -j KUBE-MARK-MASQ\n\
             -A {chain} -p udp -m comment --comment \"kube-system/kube-dns:dns\" -m udp -j DNAT --to-destination {endpoint}:53"
        )
        .unwrap();
    }
    text + "COMMIT\n"
}

const NFT_BASE: &str = "table ip kube-proxy {
    set cluster-ips { type ipv4_addr; }
    map service-ips { type ipv4_addr . inet_proto . inet_service : verdict; }
    map no-endpoint-services { type ipv4_addr . inet_proto . inet_service : verdict; }
    chain mark-for-masquerade { meta mark set meta mark or 0x4000; }
    chain masquerading {
        meta mark and 0x4000 == 0 return
        meta mark set meta mark xor 0x4000
        masquerade fully-random
    }
    chain services { ip daddr . meta l4proto . th dport vmap @service-ips; }
    chain nat-prerouting { type nat hook prerouting priority dstnat; policy accept; jump services; }
    chain nat-output { type nat hook output priority -100; policy accept; jump services; }
    chain nat-postrouting { type nat hook postrouting priority srcnat; policy accept; jump masquerading; }
}
";

fn nft_service(endpoints: &[Ipv4Addr]) -> String {
    const SERVICE: &str = "service-NWBZK7IH-kube-system/kube-dns/udp/dns";
    let chain = |endpoint: &Ipv4Addr| {
        format!(
            "endpoint-{:08X}-kube-system/kube-dns/udp/dns__{endpoint}/53",
            endpoint.to_bits()
        )
    };
    let (ip, port) = (VIP.ip(), VIP.port());
    let mut text =
        format!("add chain ip kube-proxy {SERVICE}\nflush chain ip kube-proxy {SERVICE}\n");
    let mut targets = Vec::new();
    for (place, endpoint) in endpoints.iter().enumerate() {
        let chain = chain(endpoint);
        writeln!(
            text,
            "add chain ip kube-proxy {chain}\nflush chain ip kube-proxy {chain}\n\
             add rule ip kube-proxy {chain} ip saddr {endpoint} jump mark-for-masquerade\n\
             add rule ip kube-proxy {chain} meta l4proto udp dnat to {endpoint}:53"
        )
        .unwrap();
        targets.push(format!("{place} : goto {chain}"));
    }
    writeln!(
        text,
        "add rule ip kube-proxy {SERVICE} numgen random mod {} vmap {{ {} }}\n\
         add element ip kube-proxy cluster-ips {{ {ip} }}\n\
         add element ip kube-proxy service-ips {{ {ip} . udp . {port} comment \"kube-system/kube-dns:dns\" : goto {SERVICE} }}",
        endpoints.len(),
        targets.join(", ")
    )
    .unwrap();
    text
}
