//! Rules as kube-proxy writes them in nftables mode (`syncProxyRules` in `pkg/proxy/nftables/proxier.go`), by minor version.
//!
//! | minor | form |
//! |---|---|
//! | 29 | `endpoints-check`, `firewall` and `firewall-allow` sets, no `cluster-ips` |
//! | 30 to 35 | `cluster-ips`, `firewall-ips`; a chain for each endpoint |
//! | 36 | a `dnat` to a random element of a map where there is no affinity; masquerading by marks in place, `hairpin-connections` |
//! | 37 | a plain `dnat` for a single endpoint |

use std::fmt::{Display, Write};

use super::hash;
use super::world::{Detector, Endpoint, ServicePort, World};

/// Script for `nft -f`.
pub fn script(world: &World, minor: u32) -> String {
    let mut script = Script {
        world,
        minor,
        family: if world.ipv6 { "ip6" } else { "ip" },
        declared: String::new(),
        rules: String::new(),
    };
    script.base();
    for port in &world.ports {
        script.port(port);
    }
    script.declared + &script.rules
}

struct Script<'w> {
    world: &'w World,
    minor: u32,
    family: &'static str,
    /// The table, its chains, maps and sets.
    declared: String,
    rules: String,
}

impl Script<'_> {
    fn declare(&mut self, kind: &str, name: &str, body: &str) {
        writeln!(
            self.declared,
            "add {kind} {} kube-proxy {name} {body}",
            self.family
        )
        .unwrap();
    }

    fn chain(&mut self, name: &str) {
        self.declare("chain", name, "");
    }

    fn rule(&mut self, chain: &str, rule: impl Display) {
        writeln!(
            self.rules,
            "add rule {} kube-proxy {chain} {rule}",
            self.family
        )
        .unwrap();
    }

    fn element(&mut self, set: &str, element: impl Display) {
        writeln!(
            self.rules,
            "add element {} kube-proxy {set} {{ {element} }}",
            self.family
        )
        .unwrap();
    }

    /// `setupNFTables`.
    fn base(&mut self) {
        let ip = self.family;
        let address = if self.world.ipv6 {
            "ipv6_addr"
        } else {
            "ipv4_addr"
        };
        let not_loopback = match self.world.ipv6 {
            true => "ip6 daddr != ::1",
            false => "ip daddr != 127.0.0.0/8",
        };
        writeln!(
            self.declared,
            "add table {ip} kube-proxy {{ comment \"rules for kube-proxy\" ; }}"
        )
        .unwrap();
        for (name, hook) in [
            ("filter-input", "type filter hook input priority -101"),
            ("filter-forward", "type filter hook forward priority -101"),
            ("nat-prerouting", "type nat hook prerouting priority -100"),
            ("nat-output", "type nat hook output priority -100"),
            ("nat-postrouting", "type nat hook postrouting priority 100"),
        ] {
            self.declare("chain", name, &format!("{{ {hook} ; }}"));
        }
        for name in [
            "services",
            "masquerading",
            "service-endpoints-check",
            "firewall-check",
            "reject-chain",
        ] {
            self.chain(name);
        }
        let key = format!("type {address} . inet_proto . inet_service");
        let maps = [
            ("no-endpoint-services", format!("{{ {key} : verdict ; }}")),
            (
                "no-endpoint-nodeports",
                "{ type inet_proto . inet_service : verdict ; }".to_owned(),
            ),
            (
                "service-ips",
                format!(
                    "{{ {key} : verdict ; comment \"ClusterIP, ExternalIP and LoadBalancer IP traffic\" ; }}"
                ),
            ),
            (
                "service-nodeports",
                "{ type inet_proto . inet_service : verdict ; }".to_owned(),
            ),
        ];
        for (name, body) in maps {
            self.declare("map", name, &body);
        }
        if self.minor == 29 {
            self.declare("set", "firewall", &format!("{{ {key} ; }}"));
            self.declare(
                "set",
                "firewall-allow",
                &format!("{{ {key} . {address} ; flags interval ; }}"),
            );
        } else {
            self.declare("map", "firewall-ips", &format!("{{ {key} : verdict ; }}"));
            self.declare(
                "set",
                "cluster-ips",
                &format!("{{ type {address} ; comment \"Active ClusterIPs\" ; }}"),
            );
        }
        if self.minor >= 36 {
            self.declare(
                "set",
                "hairpin-connections",
                &format!("{{ type {address} . {address} . inet_proto . inet_service ; }}"),
            );
        } else {
            self.chain("mark-for-masquerade");
            self.rule("mark-for-masquerade", "mark set mark or 0x4000");
        }
        self.rule("filter-input", "ct state new jump service-endpoints-check");
        self.rule(
            "service-endpoints-check",
            format!("{ip} daddr . meta l4proto . th dport vmap @no-endpoint-services"),
        );
        self.rule("nat-output", "jump services");
        self.rule("nat-prerouting", "jump services");
        self.rule("nat-postrouting", "jump masquerading");
        self.rule(
            "masquerading",
            "mark and 0x4000 != 0 mark set mark xor 0x4000 masquerade fully-random",
        );
        self.rule("reject-chain", "reject");
        if self.minor >= 36
            && let Some(not_local) = self.not_local()
        {
            self.rule(
                "services",
                format!("{ip} daddr @cluster-ips {not_local} mark set mark or 0x4000"),
            );
        }
        self.rule(
            "services",
            format!("{ip} daddr . meta l4proto . th dport vmap @service-ips"),
        );
        let to_node = match self.world.node_port_addresses.as_slice() {
            [] => format!("fib daddr type local {not_loopback}"),
            all => {
                self.declare("set", "nodeport-ips", &format!("{{ type {address} ; }}"));
                for own in all {
                    self.element("nodeport-ips", own);
                }
                format!("{ip} daddr @nodeport-ips")
            }
        };
        self.rule(
            "services",
            format!("{to_node} meta l4proto . th dport vmap @service-nodeports"),
        );
    }

    fn port(&mut self, port: &ServicePort) {
        let name = port.full_name();
        let base = chain_base(port, "");
        let chain = |prefix: &str| format!("{prefix}-{base}");
        let (cluster, local, external) = (chain("service"), chain("local"), chain("external"));
        let inside = if port.internal_local {
            &local
        } else {
            &cluster
        };
        let refusal = match port.endpoints.is_empty() {
            true => "goto reject-chain",
            false => "drop",
        };
        let used = [
            (port.uses_cluster_chain(), &cluster),
            (port.uses_local_chain(), &local),
            (!port.endpoints.is_empty() && port.is_external(), &external),
        ];
        for (_, chain) in used.iter().filter(|(used, _)| *used) {
            self.chain(chain);
        }
        if self.minor > 29 {
            self.element("cluster-ips", port.cluster_ip);
        }
        let key = |address| format!("{address} . {} . {}", port.protocol, port.port);
        if port.serves_inside() {
            self.element(
                "service-ips",
                format!("{} : goto {inside}", key(port.cluster_ip)),
            );
            self.masquerade_inside(port, inside);
        } else {
            self.element(
                "no-endpoint-services",
                format!("{} comment \"{name}\" : {refusal}", key(port.cluster_ip)),
            );
        }
        for address in port.external_ips.iter().chain(&port.ingress_ips) {
            if !port.endpoints.is_empty() {
                self.element(
                    "service-ips",
                    format!("{} : goto {external}", key(*address)),
                );
            }
            if !port.serves_outside() {
                self.element(
                    "no-endpoint-services",
                    format!("{} comment \"{name}\" : {refusal}", key(*address)),
                );
            }
        }
        if let Some(number) = port.node_port {
            let key = format!("{} . {number}", port.protocol);
            if !port.endpoints.is_empty() {
                self.element("service-nodeports", format!("{key} : goto {external}"));
            }
            if !port.serves_outside() {
                self.element(
                    "no-endpoint-nodeports",
                    format!("{key} comment \"{name}\" : {refusal}"),
                );
            }
        }
        self.firewall(port, &chain("firewall"));
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
        if port.uses_cluster_chain() {
            self.choice(port, &cluster, &port.chosen(false));
        }
        if port.uses_local_chain() {
            self.choice(port, &local, &port.chosen(true));
        }
        if self.minor < 36 || port.affinity {
            for endpoint in &port.endpoints {
                self.endpoint(port, endpoint);
            }
        }
    }

    /// Source ranges of load balancer addresses.
    fn firewall(&mut self, port: &ServicePort, chain: &str) {
        if port.source_ranges.is_empty() {
            return;
        }
        let key = |address| format!("{address} . {} . {}", port.protocol, port.port);
        if self.minor == 29 {
            for address in &port.ingress_ips {
                self.element(
                    "firewall",
                    format!("{} comment \"{}\"", key(*address), port.full_name()),
                );
                for range in &port.source_ranges {
                    self.element("firewall-allow", format!("{} . {range}", key(*address)));
                }
            }
            return;
        }
        self.chain(chain);
        for address in &port.ingress_ips {
            self.element("firewall-ips", format!("{} : goto {chain}", key(*address)));
        }
        let ranges = port.source_ranges.join(", ");
        self.rule(
            chain,
            format!("{} saddr != {{ {ranges} }} drop", self.family),
        );
    }

    /// Packets to the clusterIP that do not come from the node's own pods are masqueraded; since 1.36 for all Services at once.
    fn masquerade_inside(&mut self, port: &ServicePort, chain: &str) {
        if self.minor < 36
            && let Some(not_local) = self.not_local()
        {
            let port_match = match self.minor {
                29 => format!("{} dport {} ", port.protocol, port.port),
                _ => String::new(),
            };
            let to = format!("{} daddr {}", self.family, port.cluster_ip);
            self.rule(
                chain,
                format!("{to} {port_match}{not_local} jump mark-for-masquerade"),
            );
        }
    }

    /// Match for packets from elsewhere than the node's own pods; `None` where none are masqueraded for that.
    fn not_local(&self) -> Option<String> {
        match self.world.detector {
            _ if self.world.masquerade_all => Some(String::new()),
            Detector::None => None,
            _ => Some(self.local("!= ")),
        }
    }

    fn local(&self, not: &str) -> String {
        match (self.world.detector, self.world.ipv6) {
            (Detector::BridgeInterface, _) => format!("iifname {not}cbr0"),
            (Detector::InterfaceNamePrefix, _) => format!("iifname {not}cali*"),
            (_, false) => format!("ip saddr {not}10.244.0.0/16"),
            (_, true) => format!("ip6 saddr {not}2001:db8:1::/48"),
        }
    }

    fn external(&mut self, port: &ServicePort, external: &str, cluster: &str, policy: &str) {
        let mark = match self.minor {
            36.. => "mark set mark or 0x4000",
            _ => "jump mark-for-masquerade",
        };
        if port.external_local {
            if self.world.detector != Detector::None {
                let local = self.local("");
                self.rule(
                    external,
                    format!("{local} goto {cluster} comment \"short-circuit pod traffic\""),
                );
            }
            self.rule(
                external,
                format!("fib saddr type local {mark} comment \"masquerade local traffic\""),
            );
            self.rule(
                external,
                format!(
                    "fib saddr type local goto {cluster} comment \"short-circuit local traffic\""
                ),
            );
        } else {
            self.rule(external, mark);
        }
        if port.serves_outside() {
            self.rule(external, format!("goto {policy}"));
        }
    }

    /// `writeServiceToEndpointRules`; since 1.36 `writeServiceToEndpointDNATs` and `writeServiceToEndpointJumps`.
    fn choice(&mut self, port: &ServicePort, chain: &str, endpoints: &[Endpoint]) {
        let family = self.family;
        let number = format!("numgen random mod {}", endpoints.len());
        if self.minor >= 36 && !port.affinity {
            let rule = match endpoints {
                [only] if self.minor >= 37 => format!("dnat to {}", only.place),
                all => {
                    let elements = all.iter().enumerate();
                    let elements: Vec<String> = elements
                        .map(|(n, e)| format!("{n} : {} . {}", e.place.ip(), e.place.port()))
                        .collect();
                    format!(
                        "dnat {family} addr . port to {number} map {{ {} }}",
                        elements.join(", ")
                    )
                }
            };
            self.rule(chain, format!("meta l4proto {} {rule}", port.protocol));
            return;
        }
        if port.affinity {
            for endpoint in endpoints {
                let base = endpoint_base(port, endpoint);
                self.rule(
                    chain,
                    format!("{family} saddr @affinity-{base} goto endpoint-{base}"),
                );
            }
        }
        let elements = endpoints.iter().enumerate();
        let elements: Vec<String> = elements
            .map(|(n, e)| format!("{n} : goto endpoint-{}", endpoint_base(port, e)))
            .collect();
        self.rule(
            chain,
            format!("{number} vmap {{ {} }}", elements.join(", ")),
        );
    }

    fn endpoint(&mut self, port: &ServicePort, endpoint: &Endpoint) {
        let base = endpoint_base(port, endpoint);
        let chain = format!("endpoint-{base}");
        let family = self.family;
        self.chain(&chain);
        if self.minor < 36 {
            self.rule(
                &chain,
                format!(
                    "{family} saddr {} jump mark-for-masquerade",
                    endpoint.place.ip()
                ),
            );
        }
        if port.affinity {
            let address = if self.world.ipv6 {
                "ipv6_addr"
            } else {
                "ipv4_addr"
            };
            self.declare(
                "set",
                &format!("affinity-{base}"),
                &format!("{{ type {address} ; flags dynamic,timeout ; timeout 10800s ; }}"),
            );
            self.rule(
                &chain,
                format!("update @affinity-{base} {{ {family} saddr }}"),
            );
        }
        self.rule(
            &chain,
            format!("meta l4proto {} dnat to {}", port.protocol, endpoint.place),
        );
    }
}

fn chain_base(port: &ServicePort, endpoint: &str) -> String {
    let name = format!(
        "{}/{}/{}/{}{endpoint}",
        port.namespace, port.name, port.protocol, port.port_name
    );
    format!("{}-{name}", hash(&name, 8))
}

fn endpoint_base(port: &ServicePort, endpoint: &Endpoint) -> String {
    let address = endpoint.place.ip().to_string().replace(':', ".");
    chain_base(port, &format!("__{address}/{}", endpoint.place.port()))
}
