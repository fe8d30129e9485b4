//! Findings about destinations, sources and ports, from inserted tables.

use crate::{cluster, doctor, findings_of, only_finding};
use testkit::ctk_binary::ctk_line;
use testkit::private_netns::private_netns;
use testkit::rows::Rows;
use testkit::tools::{run, sysctl};

/// Nodes of which none has a podCIDR, and Pods in the cloud's network.
const CLOUD: [&str; 3] = [
    "node node3 192.0.2.13",
    "pod shop/web-1 10.20.0.5 @node1",
    "pod shop/web-2 10.20.0.6 @node2",
];

/// Unanswered connections of 40 clients to one place.
fn storm(place: &str, entries: u32) -> Vec<String> {
    (0..entries)
        .map(|n| {
            let (client, port) = (format!("10.20.1.{}", n % 40 + 1), 20_000 + n);
            format!(
                "tcp SYN_SENT src={client} dst={place} sport={port} dport=8080 src={place} dst={client} sport=8080 \
                 dport={port} [UNREPLIED]"
            )
        })
        .collect()
}

#[test]
fn a_storm_at_an_address_of_nobody_is_found_with_its_clients() {
    private_netns(|| {
        crate::new_node();
        Rows::insert(&storm("10.20.7.7", 400));
        let file = cluster(&CLOUD);
        let found = only_finding(&doctor(&file, "--sample 0").exits(5), "unanswered");
        assert_eq!(found["severity"], "warning");
        let evidence = &found["evidence"];
        assert_eq!(evidence["unreplied"], 400);
        assert_eq!(evidence["clients"], 40);
        assert_eq!(evidence["percent_of_table"], 100.0);
        assert_eq!(
            evidence["owner"],
            "no pod, Service or node has this address"
        );
        // Their timers are longer than the setting, so these do not tell when a packet came.
        assert!(evidence["recently_sent_to"].is_null(), "{evidence}");
        // The command that the help names finds the clients.
        let help = found["help"].as_str().unwrap();
        let command = help
            .split("ctk ")
            .nth(1)
            .unwrap()
            .split(';')
            .next()
            .unwrap();
        let top = ctk_line(&format!("{command} --cluster none"))
            .exits(0)
            .stdout;
        assert!(top.contains("10.20.1.40"), "{help}\n{top}");
        // A threshold above the number, and the same without a cluster.
        let more = doctor(&file, "--sample 0 --unanswered-entries 401");
        assert!(findings_of(&more, "unanswered").is_empty());
        let without = ctk_line("doctor --cluster none --sample 0 -o json").exits(5);
        let found = only_finding(&without, "unanswered");
        assert!(found["evidence"]["owner"].is_null(), "{found}");
    });
}

#[test]
fn start_times_tell_the_rate_of_a_storm() {
    private_netns(|| {
        crate::new_node();
        sysctl("timestamp", "1");
        Rows::insert(&storm("10.20.7.7", 150));
        let found = only_finding(
            &doctor(&cluster(&CLOUD), "--sample 0").exits(5),
            "unanswered",
        );
        let evidence = &found["evidence"];
        assert_eq!(evidence["recently_made"], 150, "{found}");
        assert!(
            evidence["oldest_seconds"]
                .as_u64()
                .is_some_and(|age| age < 60)
        );
    });
}

#[test]
fn a_source_port_that_is_a_node_port_is_named_with_its_service() {
    private_netns(|| {
        crate::new_node();
        let row = |state: &str, sport: u16, answers_to: u16, flag: &str| {
            format!(
                "tcp {state} src=192.0.2.11 dst=10.96.60.2 sport={sport} dport=9397 src=10.244.2.47 dst=192.0.2.11 sport=9397 \
                 dport={answers_to} {flag}"
            )
        };
        Rows::insert(&[
            row("SYN_SENT", 39_616, 31_234, "[UNREPLIED]"),
            // In the range of node ports, and nobody's.
            row("ESTABLISHED", 39_617, 31_000, "[ASSURED]"),
            // Another Service's node port, but answered.
            row("ESTABLISHED", 39_618, 31_555, "[ASSURED]"),
            // Not translated.
            "tcp ESTABLISHED src=192.0.2.11 dst=10.244.2.47 sport=31234 dport=9398 src=10.244.2.47 dst=192.0.2.11 sport=9398 \
             dport=31234 [ASSURED]"
                .to_owned(),
        ]);
        let file = cluster(&[
            "svc web/front 10.96.60.1 h:80/TCP@31234 type=NodePort",
            "svc web/other 10.96.60.3 h:80/TCP@31555 type=NodePort",
            "svc db/q 10.96.60.2 q:9397/TCP",
            "slice db/q q:9397/TCP 10.244.2.47(ready)@node2->q",
            "pod db/q 10.244.2.47 @node2",
        ]);
        let found = findings_of(&doctor(&file, "--sample 0").exits(5), "node-port-clash");
        assert_eq!(found.len(), 2, "{found:#?}");
        assert_eq!(found[0]["severity"], "warning");
        assert_eq!(found[0]["evidence"]["port"], 31_234);
        assert_eq!(found[0]["evidence"]["service"], "web/front");
        assert_eq!(found[0]["evidence"]["entries"], 1);
        assert_eq!(found[1]["severity"], "info");
        assert_eq!(found[1]["evidence"]["port"], 31_555);
    });
}

#[test]
fn flows_with_a_source_that_was_removed_are_found_and_those_with_an_own_one_are_not() {
    private_netns(|| {
        crate::new_node();
        let rows: Vec<String> = (0..6)
            .map(|n| {
                format!(
                    "tcp SYN_SENT src=10.244.1.5 dst=198.51.100.7 sport={0} dport=443 src=198.51.100.7 dst=203.0.113.77 sport=443 \
                     dport={0} [UNREPLIED]",
                    40_000 + n
                )
            })
            .collect();
        run("ip", &["address", "add", "203.0.113.77/32", "dev", "lo"]);
        Rows::insert(&rows);
        let file = cluster::<&str>(&[]);
        assert!(findings_of(&doctor(&file, "--sample 0"), "lost-source").is_empty());
        let selected = || {
            ctk_line("ls --lost-source --cluster none -o json")
                .exits(0)
                .items()
                .len()
        };
        assert_eq!(selected(), 0);
        run("ip", &["address", "del", "203.0.113.77/32", "dev", "lo"]);
        assert_eq!(selected(), 6);
        let top = ctk_line("top --lost-source --by reply-dst --cluster none -o json").exits(0);
        assert_eq!(top.items()[0]["count"], 6);
        assert_eq!(top.items()[0]["key"]["reply-dst"], "203.0.113.77");
        let found = only_finding(&doctor(&file, "--sample 0").exits(5), "lost-source");
        assert_eq!(found["severity"], "warning");
        assert_eq!(found["evidence"]["source"], "203.0.113.77");
        assert_eq!(found["evidence"]["silent"], 6);
    });
}
