//! The demo's namespace and the entries in its table: a node on which one DNS client is pinned to a CoreDNS pod that is
//! gone, with healthy neighbours around it.

use std::net::IpAddr;

use nix::sched::CloneFlags;
use rustix::process::{getegid, geteuid};

use crate::error::{CommandError, chain};
use ctnetlink::Table;
use ctnetlink::flow::{Flow, L4, ProtocolState, Status, TcpDirection, Tuple};
use ctnetlink::netns::Netns;
use ctnetlink::rtnetlink;

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Address of this node, which is node1 of the sample cluster.
const NODE: [u8; 4] = [192, 0, 2, 11];

/// Moves this process into a private network namespace and fills its table. It must have one thread only: unshare(2) moves
/// the calling thread.
pub fn enter() -> Result<(), CommandError> {
    if nix::sched::unshare(CloneFlags::CLONE_NEWNET).is_err() {
        enter_user_namespace()?;
    }
    let failed = |error: &dyn std::error::Error| {
        let error = chain(error);
        CommandError::failed(format!("the demo's namespace could not be set up: {error}"))
    };
    let netns = Netns::current();
    rtnetlink::add_loopback_address(&netns, IpAddr::from(NODE)).map_err(|error| failed(&error))?;
    let mut table = Table::open(&netns).map_err(|error| failed(&error))?;
    match table.insert_all(flows()).into_iter().find_map(Result::err) {
        Some(error) => Err(failed(&error)),
        None => Ok(()),
    }
}

/// An ordinary user becomes root of a user namespace of their own, which may own a network namespace.
fn enter_user_namespace() -> Result<(), CommandError> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    let forbidden = |error: &dyn std::fmt::Display| {
        CommandError::failed(format!("no private namespace for the demo: {error}"))
            .hint("the system forbids user namespaces; run `sudo ctk demo`, or allow them: sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces=1000, kernel.apparmor_restrict_unprivileged_userns=0")
    };
    nix::sched::unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)
        .map_err(|error| forbidden(&error))?;
    for (file, text) in [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("0 {user} 1")),
        ("gid_map", format!("0 {group} 1")),
    ] {
        std::fs::write(format!("/proc/self/{file}"), text).map_err(|error| forbidden(&error))?;
    }
    Ok(())
}

fn flows() -> Vec<Flow> {
    let mut flows = dns();
    flows.extend(keep_alive());
    flows.extend(others());
    flows
}

/// DNS clients. The first one keeps its source port, so its entry still leads to the pod that was killed.
fn dns() -> Vec<Flow> {
    let dns = "10.96.0.10:53";
    vec![
        udp("10.244.1.5:40123", dns, "10.244.1.7:53", 118),
        udp("10.244.1.6:40124", dns, "10.244.2.33:53", 72),
        udp("10.244.1.8:40125", dns, "10.244.1.34:53", 104),
        udp(
            "[fd00:10:244:1::6]:41001",
            "[fd00:96::a]:53",
            "[fd00:10:244:2::33]:53",
            91,
        ),
        tcp("10.244.1.6:40900", dns, "10.244.2.33:53", 7, 64),
    ]
}

/// Three clients with keep-alive connections, all on one of three pods.
fn keep_alive() -> impl Iterator<Item = Flow> {
    (0..9u16).map(|n| {
        let client = format!("10.244.1.{}:{}", [5, 6, 8][usize::from(n % 3)], 51500 + n);
        tcp(
            &client,
            "10.96.8.8:80",
            "10.244.2.21:8080",
            3,
            86_300 + u32::from(n),
        )
    })
}

fn others() -> Vec<Flow> {
    let mut never_translated = udp(
        "198.51.100.7:50001",
        "203.0.113.20:6343",
        "203.0.113.20:6343",
        28,
    );
    never_translated.status = Status::CONFIRMED;
    let node = IpAddr::from(NODE);
    let mut hairpin = tcp(
        "10.244.1.23:52000",
        "10.96.8.8:80",
        "10.244.1.23:8080",
        3,
        86_200,
    );
    hairpin.reply.dst = node;
    let mut outside = tcp(
        "10.244.1.5:51544",
        "203.0.113.9:443",
        "203.0.113.9:443",
        3,
        431_000,
    );
    outside.reply.dst = node;
    let api = tcp(
        "10.244.1.8:47110",
        "10.96.0.1:443",
        "192.0.2.10:6443",
        3,
        86_390,
    );
    vec![never_translated, hairpin, outside, api, ping()]
}

fn ping() -> Flow {
    let (client, host) = (IpAddr::from([10, 244, 1, 6]), IpAddr::from([192, 0, 2, 12]));
    let icmp = |src, dst, kind| Tuple {
        src,
        dst,
        protocol: ICMP,
        l4: L4::Icmp {
            kind,
            code: 0,
            id: 77,
        },
    };
    let mut flow = Flow::new(icmp(client, host, 8), icmp(host, client, 0));
    flow.status = flow.status.with(Status::SEEN_REPLY);
    flow.timeout = Some(25);
    flow
}

fn udp(client: &str, service: &str, endpoint: &str, timeout: u32) -> Flow {
    flow(UDP, client, service, endpoint, timeout)
}

fn tcp(client: &str, service: &str, endpoint: &str, state: u8, timeout: u32) -> Flow {
    let mut flow = flow(TCP, client, service, endpoint, timeout);
    flow.state = Some(ProtocolState::Tcp {
        state,
        original: TcpDirection::default(),
        reply: TcpDirection::default(),
    });
    flow
}

/// An assured entry that `endpoint` answers.
fn flow(protocol: u8, client: &str, service: &str, endpoint: &str, timeout: u32) -> Flow {
    let original = tuple(protocol, client, service);
    let reply = tuple(protocol, endpoint, client);
    let mut flow = Flow::new(original, reply);
    flow.status = flow.status.with(Status::SEEN_REPLY).with(Status::ASSURED);
    flow.timeout = Some(timeout);
    flow
}

/// A tuple of constants of this file.
fn tuple(protocol: u8, src: &str, dst: &str) -> Tuple {
    let place = |text: &str| -> std::net::SocketAddr {
        text.parse().unwrap_or_else(|_| ([0, 0, 0, 0], 0).into())
    };
    let (src, dst) = (place(src), place(dst));
    Tuple {
        src: src.ip(),
        dst: dst.ip(),
        protocol,
        l4: L4::Ports {
            src: src.port(),
            dst: dst.port(),
        },
    }
}
