//! Session affinity: where the next flow of one client goes, by the kernel's own lists of clients.

use std::net::Ipv4Addr;

use testkit::ctk_binary::ctk;
use testkit::private_netns::private_netns;
use testkit::tools::{nft, run, run_with};

use crate::node::{BACKENDS, CLIENTS, connection, node};
use crate::{ClusterFile, by_address, cluster, svc};

const ENDPOINTS: [Ipv4Addr; 2] = [BACKENDS[0], BACKENDS[1]];

fn iptables() {
    let list = |word: &str, n: u8| {
        format!("-m recent --{word} --name KUBE-SEP-{n} --mask 255.255.255.255 --rsource")
    };
    let mut text = String::from(
        "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-SVC-WEB - [0:0]\n:KUBE-SEP-1 - [0:0]\n:KUBE-SEP-2 - [0:0]\n-A OUTPUT -j KUBE-SERVICES\n\
         -A KUBE-SERVICES -d 10.96.8.8/32 -p tcp -m comment --comment \"shop/web:http cluster IP\" -m tcp --dport 80 -j KUBE-SVC-WEB\n",
    );
    for n in [1, 2] {
        let check = list("rcheck --seconds 10800 --reap", n);
        text += &format!("-A KUBE-SVC-WEB {check} -j KUBE-SEP-{n}\n");
    }
    text += "-A KUBE-SVC-WEB -m statistic --mode random --probability 0.5 -j KUBE-SEP-1\n-A KUBE-SVC-WEB -j KUBE-SEP-2\n";
    for (n, endpoint) in (1..).zip(ENDPOINTS) {
        let set = list("set", n);
        text += &format!(
            "-A KUBE-SEP-{n} -p tcp {set} -m tcp -j DNAT --to-destination {endpoint}:8080\n"
        );
    }
    run_with("iptables-restore", &[], &(text + "COMMIT\n"));
}

fn nftables() {
    let mut text = String::from("table ip kube-proxy {\n");
    let mut checks = String::new();
    for (n, endpoint) in (1..).zip(ENDPOINTS) {
        text += &format!(
            "set affinity-{n} {{ type ipv4_addr; flags dynamic,timeout; timeout 3h; }}
             chain endpoint-{n} {{ update @affinity-{n} {{ ip saddr }}
                meta l4proto tcp dnat to {endpoint}:8080; }}\n"
        );
        checks += &format!("ip saddr @affinity-{n} goto endpoint-{n}\n");
    }
    text += &format!(
        "set cluster-ips {{ type ipv4_addr; elements = {{ 10.96.8.8 }}; }}
         chain web {{ {checks} numgen random mod 2 vmap {{ 0 : goto endpoint-1, 1 : goto endpoint-2 }}; }}
         map service-ips {{
             type ipv4_addr . inet_proto . inet_service : verdict;
             elements = {{ 10.96.8.8 . tcp . 80 comment \"shop/web:http\" : goto web }};
         }}
         chain services {{ ip daddr . meta l4proto . th dport vmap @service-ips; }}
         chain nat-output {{ type nat hook output priority -100; policy accept; jump services; }}
         }}"
    );
    nft(&text);
}

#[test]
fn the_next_flow_of_a_client_goes_where_its_pin_leads() {
    // The list of the `recent` match has times in jiffies, and only root reads the kernel's jiffies.
    let has_clock = std::fs::File::open("/proc/timer_list").is_ok();
    for (load, needs_clock) in [(iptables as fn(), true), (nftables, false)] {
        private_netns(|| {
            let _backends = node();
            load();
            let _connection = connection(CLIENTS[0], 1);
            let file = cluster(&ENDPOINTS);
            let all = svc(&file, "");
            assert!(all["next_flows"].is_null());
            let open = by_address(&all["endpoints"], "open");
            let (pinned, _) = open.iter().find(|(_, open)| **open == 1).unwrap();

            if needs_clock && !has_clock {
                ages_without_a_clock_are_not_known(&file);
                return;
            }
            for client in ["client-1".to_owned(), CLIENTS[0].to_string()] {
                let next = &svc(&file, &format!("--client {client}"))["next_flows"];
                assert_eq!(next.as_array().unwrap().len(), 1, "{next}");
                let next = &next[0];
                assert_eq!(next["client"], CLIENTS[0].to_string());
                assert_eq!(next["pinned"], true, "{next}");
                assert_eq!(next["address"], **pinned);
                assert_eq!(next["port"], 8080);
                let (age, left) = (
                    next["age"].as_u64().unwrap(),
                    next["left"].as_u64().unwrap(),
                );
                assert!(age <= 20 && (10_780..=10_800).contains(&left), "{next}");
            }
            let other = &svc(&file, "--client client-2")["next_flows"][0];
            assert_eq!(other["pinned"], false, "{other}");
            assert!(other["address"].is_null() && other["unknown"].is_null());
        });
    }
}

fn ages_without_a_clock_are_not_known(file: &ClusterFile) {
    let args = ["svc", "web", "--client", "client-1", "-o", "json"];
    let run = ctk(args.into_iter().chain(["--cluster", file.path()])).exits(3);
    assert!(run.stderr.contains("/proc/timer_list"), "{}", run.stderr);
    let next = &run.json()["next_flows"][0];
    assert!(
        next["pinned"].is_null() && next["unknown"].is_string(),
        "{next}"
    );
}

#[test]
fn saved_rules_do_not_tell_who_is_pinned() {
    private_netns(|| {
        let _backends = node();
        iptables();
        let saved = std::env::temp_dir().join(format!("ctk-affinity-{}", std::process::id()));
        run("iptables-save", &["-f", saved.to_str().unwrap()]);
        let source = format!("rules:{}", saved.display());
        let client = CLIENTS[0].to_string();
        let run = ctk([
            "svc",
            "web",
            "--client",
            &client,
            "--cluster",
            &source,
            "-o",
            "json",
        ])
        .exits(3);
        std::fs::remove_file(&saved).unwrap();
        assert!(run.stderr.contains("next flow"), "{}", run.stderr);
        let next = &run.json()["next_flows"][0];
        assert!(
            next["pinned"].is_null() && next["unknown"].is_string(),
            "{next}"
        );
    });
}
