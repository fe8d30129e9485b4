//! Incidents reported in public, reduced to the relevant entries and objects.
//!
//! Addresses: pods 10.244.0.0/16 and 2001:db8:244::/48, Services 10.96.0.0/12 and 2001:db8:96::/112, nodes 192.0.2.0/24,
//! external clients 198.51.100.0/24, virtual addresses 203.0.113.0/24.

pub struct Case {
    pub name: &'static str,
    /// Description of an entry and its expected verdict; see `src/verdict/tests.rs` for the form.
    pub entries: &'static [(&'static str, &'static str)],
    pub lines: &'static [&'static str],
}

pub const CASES: &[Case] = &[
    Case {
        name: "a DNS client with a fixed source port stays pinned to a deleted pod",
        entries: &[
            (
                "10.244.1.45:54810 10.96.0.10:53 10.244.2.71:53 unreplied",
                "stale/endpoint-gone",
            ),
            (
                "10.244.1.46:40112 10.96.0.10:53 10.244.2.33:53",
                "ok/endpoint",
            ),
        ],
        lines: &[
            "svc kube-system/kube-dns 10.96.0.10 dns:53/UDP",
            "slice kube-system/kube-dns dns:53/UDP 10.244.2.33(ready)@node2->coredns-b",
        ],
    },
    Case {
        name: "a datagram from before the rules stays untranslated",
        entries: &[(
            "10.244.1.27:41000 10.96.3.80:8125 10.96.3.80:8125 unreplied",
            "stale/no-dnat",
        )],
        lines: &[
            "svc obs/statsd 10.96.3.80 udp:8125/UDP",
            "slice obs/statsd udp:8125/UDP 10.244.7.18(ready)->statsd-0",
        ],
    },
    Case {
        name: "an untranslated datagram to a Service without an endpoint",
        entries: &[(
            "10.244.1.27:41000 10.96.3.80:8125 10.96.3.80:8125 unreplied",
            "pending/no-dnat-no-endpoint",
        )],
        lines: &["svc obs/statsd 10.96.3.80 udp:8125/UDP"],
    },
    Case {
        name: "a Service scaled to zero keeps its old translations",
        entries: &[
            (
                "10.244.1.11:33001 10.96.2.50:8125 10.244.9.4:8125 unreplied",
                "stale/service-empty",
            ),
            (
                "10.244.3.12:33002 10.96.2.50:8125 10.244.9.4:8125 unreplied",
                "stale/service-empty",
            ),
        ],
        lines: &[
            "svc obs/statsd 10.96.2.50 udp:8125/UDP",
            r#"{"kind":"EndpointSlice","metadata":{"namespace":"obs","name":"statsd-a","labels":{"kubernetes.io/service-name":"statsd"}},"addressType":"IPv4","ports":[{"name":"udp","port":8125,"protocol":"UDP"}],"endpoints":null}"#,
        ],
    },
    Case {
        name: "packets of a deleted Service reach an unrelated pod",
        entries: &[(
            "10.244.0.61:33210 10.96.2.60:9100 10.244.0.62:9100 unreplied",
            "stale/service-gone",
        )],
        lines: &["cidr 10.96.0.0/16", "pod pay/ledger-7 10.244.0.62 @node1"],
    },
    Case {
        name: "an address of a deleted Service is undecided without the Service range",
        entries: &[(
            "10.244.0.61:33210 10.96.2.60:9100 10.244.0.62:9100 unreplied",
            "unknown/service-range-unknown",
        )],
        lines: &["pod pay/ledger-7 10.244.0.62 @node1"],
    },
    Case {
        name: "SIP with one port on both sides is stale by clusterIP and by node port alike",
        entries: &[
            (
                "10.244.3.61:5060 10.96.110.7:5060 10.244.3.70:5060 assured",
                "stale/endpoint-gone",
            ),
            (
                "198.51.100.20:5060 192.0.2.11:32060 10.244.3.70:5060 >192.0.2.11:5060 unreplied",
                "stale/endpoint-gone",
            ),
            (
                "198.51.100.21:5060 198.51.100.99:5060 198.51.100.99:5060 assured",
                "unrelated/no-frontend",
            ),
        ],
        lines: &[
            "svc voice/sip 10.96.110.7 sip:5060/UDP@32060",
            "slice voice/sip sip:5060/UDP 10.244.3.75(ready)->sip-9",
        ],
    },
    Case {
        name: "one port number of two Services and the Internet",
        entries: &[
            (
                "198.51.100.3:4000 192.0.2.11:30123 10.244.1.9:9000 >192.0.2.11:61001 unreplied",
                "stale/endpoint-gone",
            ),
            (
                "10.244.1.50:4001 10.96.7.7:30123 10.244.1.60:30123 assured",
                "ok/endpoint",
            ),
            (
                "10.244.1.51:4002 203.0.113.200:30123 203.0.113.200:30123 >192.0.2.11:4002 unreplied",
                "unrelated/no-frontend",
            ),
        ],
        lines: &[
            "svc a/one 10.96.7.6 x:9000/UDP@30123",
            "slice a/one x:9000/UDP 10.244.1.77(ready)",
            "svc b/two 10.96.7.7 y:30123/UDP",
            "slice b/two y:30123/UDP 10.244.1.60(ready)",
        ],
    },
    Case {
        name: "tunnel packets to an external address belong to no Service",
        entries: &[
            (
                "192.0.2.12:48123 192.0.2.11:8472 192.0.2.11:8472 unreplied",
                "unrelated/other-port",
            ),
            (
                "198.51.100.5:5000 192.0.2.11:514 10.244.8.1:514 unreplied",
                "stale/endpoint-gone",
            ),
        ],
        lines: &[
            "svc log/syslog 10.96.0.99 external=192.0.2.11 s:514/UDP",
            "slice log/syslog s:514/UDP 10.244.8.2(ready)->syslog-0",
        ],
    },
    Case {
        name: "healthy QUIC sessions stay with their pod under masquerading",
        entries: &[
            (
                "198.51.100.30:50443 203.0.113.10:443 10.244.5.5:8443 >192.0.2.11:17001 assured",
                "ok/endpoint",
            ),
            (
                "198.51.100.31:50444 203.0.113.10:443 10.244.5.6:8443 >192.0.2.11:17002 unreplied",
                "ok/endpoint",
            ),
            (
                "198.51.100.32:50445 203.0.113.10:443 203.0.113.10:443 unreplied",
                "stale/no-dnat",
            ),
        ],
        lines: &[
            "svc web/h3 10.96.1.1 ingress=203.0.113.10 quic:443/UDP",
            "slice web/h3 quic:8443/UDP 10.244.5.5(ready) 10.244.5.6(ready)",
        ],
    },
    Case {
        name: "policy Local with an endpoint here: a new packet would be translated",
        entries: &[(
            "198.51.100.40:50287 203.0.113.20:6343 203.0.113.20:6343 unreplied",
            "stale/no-dnat",
        )],
        lines: &[
            "svc net/ipfix 10.96.1.9 ingress=203.0.113.20 externalTrafficPolicy=Local f:6343/UDP",
            "slice net/ipfix f:6343/UDP 10.244.2.8(ready)@node1",
        ],
    },
    Case {
        name: "policy Local with an endpoint on another node: a delete does not help",
        entries: &[(
            "198.51.100.40:50287 203.0.113.20:6343 203.0.113.20:6343 unreplied",
            "pending/no-dnat-no-endpoint",
        )],
        lines: &[
            "svc net/ipfix 10.96.1.9 ingress=203.0.113.20 externalTrafficPolicy=Local f:6343/UDP",
            "slice net/ipfix f:6343/UDP 10.244.1.8(ready)@node2",
        ],
    },
    Case {
        name: "a terminating pod is healthy while it serves",
        entries: &[
            (
                "10.244.1.5:40001 10.96.0.10:53 10.244.2.2:53 assured",
                "draining/endpoint-terminating",
            ),
            (
                "10.244.1.6:40002 10.96.0.10:53 10.244.2.3:53 unreplied",
                "stale/endpoint-not-serving",
            ),
        ],
        lines: &[
            "svc kube-system/kube-dns 10.96.0.10 dns:53/UDP",
            "slice kube-system/kube-dns dns:53/UDP 10.244.2.2(!ready,serving,terminating) 10.244.2.3(!ready,!serving,terminating) 10.244.2.4(ready)",
        ],
    },
    Case {
        name: "slices written by hand, with and without conditions",
        entries: &[
            (
                "198.51.100.1:1 10.96.5.14:514 192.0.2.201:514",
                "ok/endpoint",
            ),
            (
                "198.51.100.1:1 10.96.5.14:514 192.0.2.202:514",
                "ok/endpoint",
            ),
            (
                "198.51.100.1:1 10.96.5.14:514 192.0.2.203:514",
                "unknown/secondary-address",
            ),
            (
                "198.51.100.1:1 10.96.5.14:514 192.0.2.204:514",
                "ok/endpoint",
            ),
            (
                "198.51.100.1:1 10.96.5.14:514 192.0.2.205:514",
                "stale/endpoint-not-serving",
            ),
        ],
        lines: &[
            "svc net/syslog 10.96.5.14 s:514/UDP",
            r#"{"kind":"EndpointSlice","metadata":{"namespace":"net","name":"ext-a","labels":{"kubernetes.io/service-name":"syslog"}},"addressType":"IPv4","ports":[{"name":"s","port":514,"protocol":"UDP"}],"endpoints":[{"addresses":["192.0.2.201"]},{"addresses":["192.0.2.202","192.0.2.203"],"conditions":{}},{"addresses":["192.0.2.204"],"conditions":{"ready":null,"serving":null}},{"addresses":["192.0.2.205"],"conditions":{"ready":false}}]}"#,
        ],
    },
    Case {
        name: "both families of one Service, each by its own slice",
        entries: &[
            (
                "[2001:db8:244:1::7]:41001 [2001:db8:96::a]:53 [2001:db8:244:2::9]:53 unreplied",
                "stale/endpoint-gone",
            ),
            (
                "[2001:0db8:0244:0001:0000:0000:0000:0007]:41001 [2001:db8:96::a]:53 [2001:db8:244:2::30]:53",
                "ok/endpoint",
            ),
            (
                "10.244.1.7:41001 10.96.0.10:53 10.244.2.9:53 unreplied",
                "stale/endpoint-gone",
            ),
        ],
        lines: &[
            "svc kube-system/kube-dns 10.96.0.10 2001:db8:96::a dns:53/UDP",
            "slice kube-system/kube-dns dns:53/UDP 10.244.2.30(ready)",
            "slice kube-system/kube-dns dns:53/UDP 2001:db8:244:2::30(ready)",
        ],
    },
    Case {
        name: "one client flow in the zones of a network plugin",
        entries: &[
            (
                "sctp 192.0.2.69:40541 203.0.113.93:30200 10.96.151.9:30200 unreplied",
                "unknown/service-hop",
            ),
            (
                "sctp 192.0.2.69:40541 10.96.151.9:30200 10.96.151.9:30200 >169.254.169.2:40541 zone=64001",
                "unknown/foreign-zone",
            ),
            (
                "sctp 169.254.169.2:40541 10.96.151.9:30200 10.244.0.72:30200 zone=12",
                "unknown/foreign-zone",
            ),
            (
                "sctp 100.64.0.5:40541 10.244.0.72:30200 10.244.0.72:30200 zone=39",
                "unknown/foreign-zone",
            ),
        ],
        lines: &[
            "svc t/sctp 10.96.151.9 ingress=203.0.113.93 s:30200/SCTP",
            "slice t/sctp s:30200/SCTP 10.244.0.72(ready)->sctpserver",
        ],
    },
    Case {
        name: "an external address without its Service is unrelated",
        entries: &[(
            "sctp 192.0.2.69:40541 203.0.113.93:30200 10.96.151.9:30200 unreplied",
            "unrelated/no-frontend",
        )],
        lines: &["cidr 10.96.0.0/12"],
    },
    Case {
        name: "timers of offloaded flows are no evidence",
        entries: &[
            (
                "10.64.0.5:40510 203.0.113.8:53 203.0.113.8:53 >192.0.2.222:13100 offload",
                "unknown/offloaded",
            ),
            (
                "tcp 10.64.0.6:40511 203.0.113.9:443 203.0.113.9:443 >192.0.2.222:13101 hw-offload",
                "unknown/offloaded",
            ),
        ],
        lines: &[],
    },
    Case {
        name: "hostPort of a pod that moved to the host network, without its rules",
        entries: &[
            (
                "10.244.1.20:34371 192.0.2.11:8125 10.244.1.55:8125 unreplied",
                "unrelated/no-frontend",
            ),
            (
                "10.244.1.21:34372 192.0.2.11:8125 192.0.2.11:8125",
                "unrelated/no-frontend",
            ),
        ],
        lines: &[
            "cidr 10.96.0.0/12",
            "pod obs/agent-n 192.0.2.11 @node1 hostNetwork port=8125/UDP",
        ],
    },
    Case {
        name: "TCP that is never established, and TCP to a pod that left its Service",
        entries: &[
            (
                "tcp 198.51.100.1:61000 10.96.10.10:80 10.244.2.13:80 >192.0.2.11:45000 syn-sent unreplied",
                "stale/endpoint-gone",
            ),
            (
                "tcp 10.244.1.4:61001 10.96.10.10:80 10.244.2.5:80 established assured",
                "detached/pod-not-endpoint",
            ),
        ],
        lines: &[
            "svc w/web 10.96.10.10 h:80/TCP",
            "slice w/web h:80/TCP 10.244.2.9(ready)",
            "pod w/web-old 10.244.2.5",
        ],
    },
    Case {
        name: "a sender pinned to the node's own address; a node port of the other protocol is none",
        entries: &[
            (
                "198.51.100.7:6000 192.0.2.11:30300 192.0.2.11:30300 unreplied",
                "stale/no-dnat",
            ),
            (
                "198.51.100.7:6001 192.0.2.11:30301 192.0.2.11:30301 unreplied",
                "unrelated/no-frontend",
            ),
        ],
        lines: &[
            "svc d/dao 10.96.9.9 tcp:80/TCP@30301 udp:8080/UDP@30300",
            "slice d/dao tcp:80/TCP udp:8080/UDP 10.244.0.8(ready)",
        ],
    },
    Case {
        name: "a Service of IPVS looks like any other",
        entries: &[(
            "192.0.2.19:45117 10.96.127.9:514 10.244.129.16:514 unreplied",
            "stale/endpoint-gone",
        )],
        lines: &[
            "svc log/syslog 10.96.127.9 s:514/UDP",
            "slice log/syslog s:514/UDP 10.244.128.3(ready)",
        ],
    },
    Case {
        name: "a network plugin translates node ports to an address of its own first",
        entries: &[
            (
                "198.51.100.4:7001 192.0.2.11:31000 169.254.0.252:31000 unreplied",
                "unknown/cni-internal",
            ),
            (
                "169.254.0.253:7001 169.254.0.252:31000 10.244.3.3:8000 unreplied zone=65520",
                "unknown/foreign-zone",
            ),
        ],
        lines: &[
            "svc x/udp 10.96.3.3 p:8000/UDP@31000",
            "slice x/udp p:8000/UDP 10.244.3.4(ready)",
        ],
    },
    Case {
        name: "a virtual address on a local interface may accept node ports or not",
        entries: &[
            (
                "198.51.100.90:7000 203.0.113.77:31514 203.0.113.77:31514 unreplied",
                "unknown/source-incomplete",
            ),
            (
                "198.51.100.93:7000 203.0.113.77:31514 10.244.1.6:514 >192.0.2.11:41001 assured",
                "ok/endpoint",
            ),
        ],
        lines: &[
            "svc log/syslog 10.96.4.4 s:514/UDP@31514",
            "slice log/syslog s:514/UDP 10.244.1.6(ready)",
        ],
    },
];
