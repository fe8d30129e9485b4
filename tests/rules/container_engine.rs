//! Rules of container engines and of the port-mapping plugin.

use serde_json::Value;
use testkit::ctk_binary::ctk_line;
use testkit::private_netns::private_netns;
use testkit::tools::{nft, run, run_with};

use crate::{ASSURED, UNREPLIED, address, entry, expected, fresh, verdicts};

pub const DOCKER_IPTABLES: &str = "*nat
:DOCKER - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A OUTPUT ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j DOCKER
-A DOCKER -i docker0 -j RETURN
-A DOCKER ! -i docker0 -p udp -m udp --dport 52897 -j DNAT --to-destination 172.17.0.9:51820
COMMIT
";

pub const DOCKER_NFT: &str = "table ip docker-bridges {
    chain DOCKER {
        iifname != \"docker0\" udp dport 52897 counter dnat to 172.17.0.9:51820
    }
    chain prerouting {
        type nat hook prerouting priority dstnat; policy accept;
        fib daddr type local counter jump DOCKER
    }
    chain output {
        type nat hook output priority -100; policy accept;
        ip daddr != 127.0.0.0/8 fib daddr type local counter jump DOCKER
    }
}
";

#[test]
fn published_container_ports_are_judged_by_the_engines_rules() {
    private_netns(|| {
        for (flavour, load) in [
            ("iptables-nft-restore", DOCKER_IPTABLES),
            ("iptables-legacy-restore", DOCKER_IPTABLES),
            ("nft", DOCKER_NFT),
        ] {
            fresh();
            address("lo", "192.0.2.5/32");
            address("docker0", "172.17.0.1/16");
            match flavour {
                "nft" => nft(load),
                tool => run_with(tool, &["--noflush"], load),
            }
            entry(
                "198.51.100.60:40555 192.0.2.5:52897 192.0.2.5:52897",
                UNREPLIED,
            );
            entry(
                "198.51.100.61:40556 192.0.2.5:52897 172.17.0.9:51820",
                ASSURED,
            );
            entry(
                "198.51.100.62:40557 192.0.2.5:51820 192.0.2.5:51820",
                UNREPLIED,
            );
            entry(
                "198.51.100.63:40558 192.0.2.5:52897 172.17.0.8:51820",
                ASSURED,
            );
            // A container that uses its own host's published port is answered by the proxy process.
            entry("172.17.0.7:40559 192.0.2.5:52897 192.0.2.5:52897", ASSURED);
            let expected = expected(&[
                (40555, "stale no-dnat"),
                (40556, "ok endpoint"),
                (40557, "unrelated no-frontend"),
                (40558, "stale endpoint-gone"),
                (40559, "unknown not-kube-proxy"),
            ]);
            for source in ["--cluster rules", "--cluster auto"] {
                assert_eq!(verdicts(source), expected, "{flavour} {source}");
            }
            let outcome = ctk_line("ls --cluster rules --sport 40555 -o json").exits(0);
            let document = outcome.json();
            assert_eq!(document["summary"]["cluster"]["source"], "rules");
            let item = &document["items"][0];
            assert_eq!(item["service"]["frontend"], "rule", "{item}");
            for key in ["namespace", "name", "port"] {
                assert_eq!(item["service"][key], Value::Null);
            }
            let evidence = item["evidence"].as_str().unwrap();
            assert!(
                evidence.contains("52897") && evidence.contains("172.17.0.9:51820"),
                "{evidence}"
            );
            let purged =
                ctk_line("purge --cluster rules --stale --yes --settle 0 --verify 0 -o json");
            let deleted: Vec<u64> = purged
                .exits(0)
                .items()
                .iter()
                .map(|item| item["original"]["sport"].as_u64().unwrap())
                .collect();
            assert_eq!(deleted.len(), 2, "{flavour} {deleted:?}");
            assert!(deleted.contains(&40555) && deleted.contains(&40558));
        }
    });
}

#[test]
fn a_host_port_leads_to_the_plugins_pod_only() {
    private_netns(|| {
        fresh();
        address("lo", "192.0.2.11/32");
        run_with(
            "iptables-nft-restore",
            &["--noflush"],
            "*nat
:CNI-HOSTPORT-DNAT - [0:0]
:CNI-HOSTPORT-SETMARK - [0:0]
:CNI-DN-0123456789abcdef01234 - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A OUTPUT -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A CNI-HOSTPORT-SETMARK -m comment --comment \"CNI portfwd masquerade mark\" -j MARK --set-xmark 0x2000/0x2000
-A CNI-HOSTPORT-DNAT -p udp -m comment --comment \"dnat name: \\\"cbr0\\\" id: \\\"x\\\"\" -m multiport --dports 8125,9125 -j CNI-DN-0123456789abcdef01234
-A CNI-DN-0123456789abcdef01234 -s 10.244.1.0/24 -p udp -m udp --dport 8125 -j CNI-HOSTPORT-SETMARK
-A CNI-DN-0123456789abcdef01234 -p udp -m udp --dport 8125 -j DNAT --to-destination 10.244.1.56:8125
COMMIT
",
        );
        entry(
            "10.244.1.20:34371 192.0.2.11:8125 10.244.1.55:8125",
            UNREPLIED,
        );
        entry(
            "10.244.1.21:34372 192.0.2.11:8125 10.244.1.56:8125",
            ASSURED,
        );
        entry("10.244.1.22:34373 192.0.2.11:9125 192.0.2.11:9125", ASSURED);
        assert_eq!(
            verdicts("--cluster rules"),
            expected(&[
                (34371, "stale endpoint-gone"),
                (34372, "ok endpoint"),
                (34373, "unrelated no-frontend"),
            ])
        );
    });
}

#[test]
fn a_forward_created_after_its_peers_sent_is_the_evidence() {
    private_netns(|| {
        fresh();
        address("lo", "192.0.2.5/32");
        nft(
            "table ip nat { chain prerouting { type nat hook prerouting priority dstnat; \
             ip daddr 192.0.2.5 udp dport 49737 dnat to 10.0.3.10:49737\n }\n }",
        );
        entry(
            "198.51.100.80:49737 192.0.2.5:49737 192.0.2.5:49737",
            UNREPLIED,
        );
        // The container behind the forward answers, and its own port is in use.
        let line = "-I -p udp -t 100 -s 10.0.3.10 --sport 49737 -d 198.51.100.80 --dport 49737 -r 198.51.100.80 \
                    --reply-port-src 49737 -q 192.0.2.5 --reply-port-dst 1024";
        run("conntrack", &line.split_whitespace().collect::<Vec<_>>());
        let all = ctk_line("ls --cluster rules -o jsonl").exits(0).jsonl();
        let answer = all
            .iter()
            .find(|item| item["original"]["src"] == "10.0.3.10");
        let evidence = answer.unwrap()["evidence"].as_str().unwrap();
        for words in [
            "source port changed 49737 -> 1024",
            "198.51.100.80:49737 -> 192.0.2.5:49737",
            "dnat to 10.0.3.10:49737",
        ] {
            assert!(evidence.contains(words), "{evidence}");
        }
        let outcome = ctk_line("ls --cluster rules --stale -o jsonl").exits(0);
        let items = outcome.jsonl();
        let [item] = &items[..] else {
            panic!("{outcome:?}")
        };
        assert_eq!(item["reason"], "no-dnat");
        let evidence = item["evidence"].as_str().unwrap();
        assert!(
            evidence.contains("ip daddr 192.0.2.5 udp dport 49737 dnat to 10.0.3.10:49737"),
            "{evidence}"
        );
        ctk_line("purge --cluster rules --stale --yes --settle 0 --verify 0").exits(0);
        let left = ctk_line("ls --cluster none -o jsonl").jsonl();
        assert_eq!(left.len(), 1, "{left:?}");
        assert_eq!(left[0]["original"]["src"], "10.0.3.10");
    });
}
