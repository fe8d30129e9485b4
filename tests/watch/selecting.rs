//! Selectors on events: several watches of one table, each with its own selection.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use serde_json::Value;

use testkit::lab::{BACKENDS, CLIENTS, Client, Lab, Proxy, cluster};
use testkit::private_netns::private_netns;
use testkit::watch_process::{Watch, record_types, start};

/// Address without a server.
const LOST: u16 = 41_001;
/// Address of kube-dns, which answers.
const ANSWERED: u16 = 41_002;
/// TCP connection that is opened, used and closed.
const CONNECTION: u16 = 41_003;

#[test]
fn every_selector_selects_the_same_events_as_entries() {
    private_netns(|| {
        let lab = Lab::new(Proxy::Nftables);
        lab.set_endpoints(&BACKENDS[..1]);
        let file = cluster(&BACKENDS[..1]);
        let backend = BACKENDS[0].to_string();
        let none = ["--cluster", "none"];
        let named = ["--cluster", file.path()];
        let watch = |selectors: &[&str], cluster: &[&str]| {
            start(&[selectors, cluster, &["--interval", "0"]].concat())
        };
        // Records that each watch prints of the three flows.
        let life = ["new", "update", "update", "destroy"];
        let watches = [
            // A flow that leaves the selection has a record of that.
            (
                watch(&["--unreplied"], &none),
                vec!["new", "destroy"],
                vec!["new", "update"],
                vec!["new", "update"],
            ),
            (
                watch(&["--status", "assured"], &none),
                vec![],
                vec!["new", "destroy"],
                vec!["assured"],
            ),
            (
                watch(&["--state", "established"], &none),
                vec![],
                vec![],
                vec!["new", "update"],
            ),
            (
                watch(&["--svc", "kube-dns"], &named),
                vec![],
                life.to_vec(),
                vec![],
            ),
            (
                watch(&["--reply-src", &backend], &none),
                vec![],
                life.to_vec(),
                vec![],
            ),
            (
                watch(&["--dport", "9", "--udp"], &none),
                vec!["new", "destroy"],
                vec![],
                vec![],
            ),
        ];
        let all = watch(&[], &none);
        scene(&all);
        for (watch, lost, answered, connection) in watches {
            // Printed long ago: before the awaited record, or with it.
            watch.wait_for_quiet(Duration::from_millis(500));
            let ended = watch.stop();
            assert_eq!(ended.status, Some(0), "{ended:#?}");
            let told = |port| {
                let words = record_types(&ended.records, port);
                assert_eq!(words[0], "synced");
                words[1..].to_vec()
            };
            assert_eq!(told(LOST), lost, "{:#?}", ended.records);
            assert_eq!(told(ANSWERED), answered, "{:#?}", ended.records);
            if connection == ["assured"] {
                assured_to_the_end(&ended.records);
            } else {
                assert_eq!(told(CONNECTION), connection, "{:#?}", ended.records);
            }
        }
        told_state_by_state(&all.stop().records);
    });
}

/// Creates three flows and deletes them.
fn scene(all: &Watch) {
    let lost = UdpSocket::bind((CLIENTS[1], LOST)).unwrap();
    // Address without a pod.
    lost.send_to(&[0], ("10.244.9.9", 9)).unwrap();
    let client = Client::bind(CLIENTS[0], ANSWERED);
    client.ask().unwrap();
    connection(all);
    // A flow is assured when it is answered more than 2 s after its start.
    std::thread::sleep(Duration::from_millis(2200));
    client.ask().unwrap();
    all.wait("assurance", |records| {
        record_types(records, ANSWERED).len() >= 4
    });
    assert_eq!(crate::delete(|_| true), 3);
    for port in [LOST, ANSWERED, CONNECTION] {
        all.wait("the end", |records| {
            record_types(records, port).contains(&"destroy".to_owned())
        });
    }
}

fn connection(all: &Watch) {
    let listener = TcpListener::bind((BACKENDS[1], 443)).unwrap();
    let socket = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::STREAM,
        None,
    )
    .unwrap();
    let address = |ip, port| std::net::SocketAddrV4::new(ip, port);
    rustix::net::bind(&socket, &address(CLIENTS[0], CONNECTION)).unwrap();
    rustix::net::connect(&socket, &address(BACKENDS[1], 443)).unwrap();
    let mut client = TcpStream::from(socket);
    let (mut server, _) = listener.accept().unwrap();
    client.write_all(b"question").unwrap();
    server.read_exact(&mut [0; 8]).unwrap();
    let in_state = |state: &'static str| {
        move |records: &[Value]| {
            records
                .iter()
                .any(|record| record["entry"]["state"] == state)
        }
    };
    all.wait("the connection", in_state("established"));
    drop(client);
    drop(server);
    all.wait("its end", in_state("time-wait"));
}

/// Every state of the tracker is recorded, although the status bits change only twice.
fn told_state_by_state(records: &[Value]) {
    let of_connection = |record: &&Value| record["entry"]["original"]["sport"] == CONNECTION;
    let mut states: Vec<&str> = records
        .iter()
        .filter(of_connection)
        .map(|record| record["entry"]["state"].as_str().unwrap())
        .collect();
    states.dedup();
    assert_eq!(states[..3], ["syn-sent", "syn-recv", "established"]);
    assert!(states.contains(&"fin-wait"), "{states:?}");
    assert_eq!(states.last(), Some(&"time-wait"));
}

/// An assured connection stays assured.
fn assured_to_the_end(records: &[Value]) {
    let words = record_types(records, CONNECTION);
    assert_eq!(words[1], "new");
    assert!(
        words.len() > 4
            && words[2..words.len() - 1]
                .iter()
                .all(|word| word == "update")
    );
    assert_eq!(words.last().map(String::as_str), Some("destroy"));
}
