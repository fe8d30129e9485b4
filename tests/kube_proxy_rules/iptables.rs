//! Rules as kube-proxy writes them in iptables mode (`syncProxyRules` in `pkg/proxy/iptables/proxier.go`). The forms that
//! translate packets are the same from 1.29 to 1.37.

use std::fmt::Write;

use super::hash;
use super::world::{Detector, Endpoint, ServicePort, World};

/// Text for `iptables-restore`. `comments`: above 1000 endpoints kube-proxy leaves them out of the Services' chains.
pub fn rules(world: &World, comments: bool) -> String {
    let mut writer = Writer {
        world,
        comments,
        chains: String::new(),
        nat: String::new(),
        filter: String::new(),
    };
    for port in &world.ports {
        writer.port(port);
    }
    let mut node_ports = String::new();
    match world.node_port_addresses.as_slice() {
        [] => {
            let except = if world.ipv6 { "! -d ::1/128 " } else { "" };
            writeln!(
                node_ports,
                "-A KUBE-SERVICES -m comment --comment \"kubernetes service nodeports; NOTE: this must be the last rule in this \
                 chain\" -m addrtype --dst-type LOCAL {except}-j KUBE-NODEPORTS"
            )
            .unwrap();
        }
        all => {
            for address in all {
                writeln!(node_ports, "-A KUBE-SERVICES -m comment --comment \"kubernetes service nodeports\" -d {address} -j KUBE-NODEPORTS").unwrap();
            }
        }
    }
    format!(
        "*filter\n:KUBE-SERVICES - [0:0]\n:KUBE-EXTERNAL-SERVICES - [0:0]\n:KUBE-FORWARD - [0:0]\n:KUBE-NODEPORTS - [0:0]\n\
         :KUBE-PROXY-FIREWALL - [0:0]\n{}\
         -A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP\n\
         -A FORWARD -m conntrack --ctstate NEW -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n\
         COMMIT\n*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-NODEPORTS - [0:0]\n:KUBE-POSTROUTING - [0:0]\n:KUBE-MARK-MASQ - [0:0]\n{}\
         -A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n\
         -A OUTPUT -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n\
         -A KUBE-MARK-MASQ -j MARK --or-mark 0x4000\n{}{node_ports}COMMIT\n",
        writer.filter, writer.chains, writer.nat
    )
}

struct Writer<'w> {
    world: &'w World,
    comments: bool,
    chains: String,
    nat: String,
    filter: String,
}

impl Writer<'_> {
    fn port(&mut self, port: &ServicePort) {
        let name = port.full_name();
        let chain = |prefix: &str| {
            format!(
                "KUBE-{prefix}-{}",
                hash(&format!("{name}{}", port.protocol), 16)
            )
        };
        let (cluster, local, external, firewall) =
            (chain("SVC"), chain("SVL"), chain("EXT"), chain("FW"));
        let to =
            |address, number| format!("-p {0} -m {0} -d {address} --dport {number}", port.protocol);
        let (reject, why) = match port.endpoints.is_empty() {
            true => ("REJECT", "has no endpoints"),
            false => ("DROP", "has no local endpoints"),
        };
        let inside = match port.internal_local {
            true => &local,
            false => &cluster,
        };
        let to_cluster_ip = to(port.cluster_ip, port.port);
        let comment = format!("-m comment --comment \"{name} cluster IP\"");
        if port.serves_inside() {
            self.nat(format!(
                "-A KUBE-SERVICES {comment} {to_cluster_ip} -j {inside}"
            ));
            self.masquerade(inside, &format!("{comment} {to_cluster_ip}"));
        } else {
            self.filter(format!(
                "-A KUBE-SERVICES -m comment --comment \"{name} {why}\" {to_cluster_ip} -j {reject}"
            ));
        }
        let limited = !port.endpoints.is_empty() && !port.source_ranges.is_empty();
        let kinds = [
            ("external IP", &port.external_ips, &external),
            (
                "loadbalancer IP",
                &port.ingress_ips,
                if limited { &firewall } else { &external },
            ),
        ];
        for (kind, addresses, target) in kinds {
            for address in addresses {
                let to = to(*address, port.port);
                if !port.endpoints.is_empty() {
                    self.nat(format!(
                        "-A KUBE-SERVICES -m comment --comment \"{name} {kind}\" {to} -j {target}"
                    ));
                }
                if !port.serves_outside() {
                    self.filter(format!("-A KUBE-EXTERNAL-SERVICES -m comment --comment \"{name} {why}\" {to} -j {reject}"));
                }
            }
        }
        if let Some(number) = port.node_port {
            if !port.endpoints.is_empty() {
                self.nat(format!("-A KUBE-NODEPORTS -m comment --comment {name} -m {0} -p {0} --dport {number} -j {external}", port.protocol));
            }
            if !port.serves_outside() {
                self.filter(format!(
                    "-A KUBE-EXTERNAL-SERVICES -m comment --comment \"{name} {why}\" -m addrtype --dst-type LOCAL -m {0} -p {0} --dport {number} -j {reject}",
                    port.protocol
                ));
            }
        }
        if !port.endpoints.is_empty() && port.is_external() {
            self.external(
                port,
                &external,
                &cluster,
                if port.external_local {
                    &local
                } else {
                    &cluster
                },
            );
        }
        if limited {
            self.chain(&firewall);
            for range in &port.source_ranges {
                self.nat(format!("-A {firewall} -m comment --comment \"{name} loadbalancer IP\" -s {range} -j {external}"));
            }
            self.nat(format!("-A {firewall} -m comment --comment \"other traffic to {name} will be dropped by KUBE-PROXY-FIREWALL\""));
        }
        if port.uses_cluster_chain() {
            self.choice(port, &cluster, &port.chosen(false));
        }
        if port.uses_local_chain() {
            self.choice(port, &local, &port.chosen(true));
        }
        for endpoint in &port.endpoints {
            self.endpoint(port, endpoint);
        }
    }

    /// Packets that do not come from the node's own pods are masqueraded.
    fn masquerade(&mut self, chain: &str, matches: &str) {
        let not_local = match self.world.detector {
            _ if self.world.masquerade_all => "",
            Detector::None => return,
            _ => &format!("! {} ", self.local()),
        };
        self.nat(format!("-A {chain} {matches} {not_local}-j KUBE-MARK-MASQ"));
    }

    fn local(&self) -> &'static str {
        match (self.world.detector, self.world.ipv6) {
            (Detector::BridgeInterface, _) => "-i cbr0",
            (Detector::InterfaceNamePrefix, _) => "-i cali+",
            (_, false) => "-s 10.244.0.0/16",
            (_, true) => "-s 2001:db8:1::/48",
        }
    }

    fn external(&mut self, port: &ServicePort, external: &str, cluster: &str, policy: &str) {
        let name = port.full_name();
        self.chain(external);
        if port.external_local {
            if self.world.detector != Detector::None {
                self.nat(format!("-A {external} -m comment --comment \"pod traffic for {name} external destinations\" {} -j {cluster}", self.local()));
            }
            self.nat(format!("-A {external} -m comment --comment \"masquerade LOCAL traffic for {name} external destinations\" -m addrtype --src-type LOCAL -j KUBE-MARK-MASQ"));
            self.nat(format!("-A {external} -m comment --comment \"route LOCAL traffic for {name} external destinations\" -m addrtype --src-type LOCAL -j {cluster}"));
        } else {
            self.nat(format!("-A {external} -m comment --comment \"masquerade traffic for {name} external destinations\" -j KUBE-MARK-MASQ"));
        }
        if port.serves_outside() {
            self.nat(format!("-A {external} -j {policy}"));
        }
    }

    /// `writeServiceToEndpointRules`.
    fn choice(&mut self, port: &ServicePort, chain: &str, endpoints: &[Endpoint]) {
        self.chain(chain);
        if port.affinity {
            for endpoint in endpoints {
                let to = endpoint_chain(port, endpoint);
                let comment = self.comment(&format!("{} -> {}", port.full_name(), endpoint.place));
                self.nat(format!("-A {chain} {comment}-m recent --name {to} --rcheck --seconds 10800 --reap -j {to}"));
            }
        }
        for (n, endpoint) in endpoints.iter().enumerate() {
            let left = endpoints.len() - n;
            let chance = match left {
                1 => String::new(),
                _ => format!(
                    "-m statistic --mode random --probability {:.10} ",
                    1.0 / left as f64
                ),
            };
            let comment = self.comment(&format!("{} -> {}", port.full_name(), endpoint.place));
            self.nat(format!(
                "-A {chain} {comment}{chance}-j {}",
                endpoint_chain(port, endpoint)
            ));
        }
    }

    fn endpoint(&mut self, port: &ServicePort, endpoint: &Endpoint) {
        let chain = endpoint_chain(port, endpoint);
        let comment = self.comment(&port.full_name());
        self.chain(&chain);
        self.nat(format!(
            "-A {chain} {comment}-s {} -j KUBE-MARK-MASQ",
            endpoint.place.ip()
        ));
        let recent = match port.affinity {
            true => format!("-m recent --name {chain} --set "),
            false => String::new(),
        };
        self.nat(format!(
            "-A {chain} {comment}{recent}-m {0} -p {0} -j DNAT --to-destination {1}",
            port.protocol, endpoint.place
        ));
    }

    fn comment(&self, text: &str) -> String {
        match self.comments {
            true => format!("-m comment --comment \"{text}\" "),
            false => String::new(),
        }
    }

    fn chain(&mut self, name: &str) {
        writeln!(self.chains, ":{name} - [0:0]").unwrap();
    }

    fn nat(&mut self, rule: String) {
        self.nat += &rule;
        self.nat.push('\n');
    }

    fn filter(&mut self, rule: String) {
        self.filter += &rule;
        self.filter.push('\n');
    }
}

fn endpoint_chain(port: &ServicePort, endpoint: &Endpoint) -> String {
    let name = format!("{}{}{}", port.full_name(), port.protocol, endpoint.place);
    format!("KUBE-SEP-{}", hash(&name, 16))
}
