//! Connections of the program itself to the API server.

use std::net::TcpStream;

use super::objects;
use testkit::api_server::ApiServer;
use testkit::ctk_binary::ctk;
use testkit::lab::add_node_address;
use testkit::private_netns::private_netns;
use testkit::tools::{Outcome, nft};

/// Rule that turns connection tracking on.
const TRACK: &str =
    "table inet t { chain c { type filter hook output priority 0; ct state new accept; }; }";

fn run(server: &ApiServer, args: &str) -> Outcome {
    let kubeconfig = server.kubeconfig();
    let mut all: Vec<&str> = args.split_whitespace().collect();
    all.extend(["--cluster", "api", "-o", "json", "--kubeconfig"]);
    all.push(kubeconfig.to_str().unwrap());
    ctk(all).exits(0)
}

fn own(outcome: &Outcome) -> u64 {
    outcome.json()["summary"]["own_connections"]
        .as_u64()
        .unwrap()
}

fn scanned(outcome: &Outcome) -> u64 {
    outcome.json()["summary"]["scanned"].as_u64().unwrap()
}

#[test]
fn own_connections_are_left_out_and_counted_unless_selected_by_address_or_port() {
    private_netns(|| {
        add_node_address();
        nft(TRACK);
        let objects = objects();
        let server = ApiServer::start(move |asked| objects.answer(asked));
        let port = server.address.port();
        let other = TcpStream::connect(server.address).unwrap();
        let source = u64::from(other.local_addr().unwrap().port());
        let sources = |outcome: &Outcome| {
            let ports = outcome.items().into_iter();
            ports
                .map(|item| item["original"]["sport"].as_u64().unwrap())
                .collect::<Vec<_>>()
        };
        let outcome = run(&server, "ls --tcp");
        assert_eq!(sources(&outcome), [source], "the test's own connection");
        let hidden = own(&outcome);
        assert!(hidden >= 1, "{outcome:#?}");
        assert_eq!(scanned(&outcome), 1 + hidden);
        for asked in [format!("--tcp {port}"), "--dst 127.0.0.1".to_owned()] {
            let outcome = run(&server, &format!("ls {asked}"));
            assert_eq!(
                (own(&outcome), sources(&outcome).len() as u64),
                (0, scanned(&outcome))
            );
        }
        let outcome = run(&server, "top --tcp --by client,dport");
        let items = outcome.items();
        let counted: u64 = items.iter().filter_map(|item| item["count"].as_u64()).sum();
        assert!(own(&outcome) >= 1, "{outcome:#?}");
        assert_eq!(counted + own(&outcome), scanned(&outcome));
    });
}
