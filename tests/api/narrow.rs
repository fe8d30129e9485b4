//! Narrow reads: the slices of one Service for its listing, and the objects that a plan depends on for a second look.
//! Results equal those of a full read.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};

use ctnetlink::flow::{Flow, Status};
use nix::sched::{CloneFlags, unshare};
use serde_json::{Value, json};

use super::objects;
use testkit::api_server::{ApiRequest, ApiServer, Objects};
use testkit::ctk_binary::ctk;
use testkit::lab::cluster::{ClusterFile, minimal, node, pod, service, slice};
use testkit::lab::{self, NODE, add_node_address};
use testkit::mixed::{ASSURED, insert, plain, ports, to_dns, translated, tuple};
use testkit::private_netns::private_netns;
use testkit::tools::Outcome;

/// Address shared by two Services.
const SHARED: &str = "203.0.113.5";
/// Service address without a Service at first.
const FREE: &str = "10.96.9.9";
const GONE: &str = "10.244.9.9";

fn run(command: &str, source: &[&str]) -> Outcome {
    let mut args: Vec<&str> = command.split_whitespace().collect();
    args.extend(source);
    args.extend(["-o", "json"]);
    ctk(args)
}

fn by_api(server: &ApiServer, command: &str) -> Outcome {
    let kubeconfig = server.kubeconfig();
    let kubeconfig = kubeconfig.to_str().unwrap();
    run(command, &["--cluster", "api", "--kubeconfig", kubeconfig])
}

fn by_file(objects: &Objects, command: &str) -> Outcome {
    let file = ClusterFile::of(&objects.0);
    run(command, &["--cluster", file.path()])
}

/// Source port and kind of the entry.
fn verdicts(outcome: &Outcome) -> BTreeMap<u64, (Value, Value)> {
    let port = |item: &Value| item["original"]["sport"].as_u64().unwrap();
    let items = outcome.items().into_iter();
    items
        .map(|item| {
            (
                port(&item),
                (item["reason"].clone(), item["service"].clone()),
            )
        })
        .collect()
}

/// Path and selector of a request.
fn request(asked: &ApiRequest) -> String {
    let selector = asked
        .value("labelSelector")
        .or(asked.value("fieldSelector"));
    format!("{} {}", asked.path, selector.unwrap_or("-"))
}

#[test]
fn a_listing_of_one_service_reads_its_slices_and_those_of_its_neighbours() {
    private_netns(|| {
        add_node_address();
        let mut few = objects();
        for (namespace, name, ip) in [("a", "one", "10.96.1.1"), ("b", "two", "10.96.1.2")] {
            let mut shared = service(namespace, name, ip, &[("p", 53, "UDP")]);
            shared["spec"]["externalIPs"] = json!([SHARED]);
            few.0.push(shared);
        }
        let server = ApiServer::start(move |asked| few.answer(asked));
        for (name, wanted) in [
            ("kube-dns", "kube-dns,kubernetes"),
            ("two", "kubernetes,one,two"),
        ] {
            let before = server.requests().len();
            by_api(&server, &format!("ls --svc {name}")).exits(0);
            let asked: Vec<String> = server.requests()[before..].iter().map(request).collect();
            let slices = format!(
                "/apis/discovery.k8s.io/v1/endpointslices kubernetes.io/service-name in ({wanted})"
            );
            assert_eq!(asked[..2], ["/api/v1/services -".to_owned(), slices]);
        }
        // The selector names more than the Service, or only excludes.
        for more in [
            "--svc two --pod web-1",
            "--svc two -n shop",
            "--svc !two",
            "--stale",
        ] {
            let before = server.requests().len();
            by_api(&server, &format!("ls {more}")).exits(0);
            let asked: Vec<String> = server.requests()[before..].iter().map(request).collect();
            assert_eq!(
                asked[1], "/apis/discovery.k8s.io/v1/endpointslices -",
                "{more}"
            );
        }
    });
}

#[test]
fn a_second_look_reads_only_the_objects_of_the_plan() {
    private_netns(|| {
        add_node_address();
        insert(&[to_dns(17, 40_000, GONE), to_dns(17, 40_001, "10.244.1.7")]);
        let mut objects = objects();
        let port = [("p", 80, "TCP")];
        let other = service("a", "other", "10.96.1.1", &port);
        let endpoints = slice("a", "other", &port, &[("10.244.1.8", "")]);
        objects.0.extend([other, endpoints]);
        let server = ApiServer::start(move |asked| objects.answer(asked));
        let outcome = by_api(&server, "purge --stale --yes --settle 0 --verify 0").exits(0);
        let asked = server.requests();
        let document = outcome.json();
        assert_eq!(document["summary"]["deleted"], 1, "{document}");
        let cluster = &document["summary"]["cluster"];
        assert_eq!(cluster["complete"], true);
        assert_eq!(cluster["missing"], json!([]));
        let listed = by_api(&server, "ls").exits(0).json();
        let whole = &listed["summary"]["cluster"]["counts"];
        assert_eq!(&cluster["counts"], whole, "those of the first look");
        for kind in [
            "services",
            "endpointslices",
            "nodes",
            "pods",
            "servicecidrs",
        ] {
            assert_eq!(cluster["lists"][kind], "complete", "{kind}");
        }
        let pods = asked.iter().rposition(|asked| asked.resource() == "pods");
        let second = &asked[pods.unwrap() + 1..];
        assert_eq!(
            second.iter().map(request).collect::<Vec<_>>(),
            [
                "/api/v1/namespaces/default/services metadata.name=kubernetes",
                "/api/v1/namespaces/kube-system/services metadata.name=kube-dns",
                "/apis/discovery.k8s.io/v1/endpointslices kubernetes.io/service-name in (kube-dns,kubernetes)",
            ]
        );
        let consistent = |asked: &ApiRequest| asked.value("resourceVersion").is_none();
        assert!(asked.iter().all(consistent), "{asked:?}");
    });
}

/// Numbers of a seed, the same on every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    fn one_in(&mut self, chance: usize) -> bool {
        self.below(chance) == 0
    }
}

fn endpoint(n: usize) -> String {
    Ipv4Addr::new(10, 244, 1, 1 + n as u8).to_string()
}

/// Parts of a random Service.
#[derive(Clone)]
struct Part {
    namespace: &'static str,
    name: String,
    address: String,
    external: bool,
    node_port: Option<u16>,
    endpoints: Vec<(String, bool)>,
    foreign: bool,
}

impl Part {
    fn random(n: usize, dice: &mut Dice) -> Self {
        Part {
            namespace: ["a", "b"][n % 2],
            // Every name exists twice.
            name: format!("s{}", n / 2),
            address: format!("10.96.1.{}", n + 1),
            external: dice.one_in(3),
            node_port: dice.one_in(3).then_some(30_050 + n as u16),
            endpoints: Self::random_endpoints(dice),
            foreign: dice.one_in(10),
        }
    }

    fn random_endpoints(dice: &mut Dice) -> Vec<(String, bool)> {
        (0..8)
            .filter(|_| dice.one_in(3))
            .map(endpoint)
            .collect::<Vec<_>>()
            .into_iter()
            .map(|address| (address, !dice.one_in(5)))
            .collect()
    }

    fn objects(&self) -> [Value; 2] {
        let port = [("p", 53, "UDP")];
        let mut service = service(self.namespace, &self.name, &self.address, &port);
        if self.external {
            service["spec"]["externalIPs"] = json!([SHARED]);
        }
        if let Some(node_port) = self.node_port {
            service["spec"]["ports"][0]["nodePort"] = json!(node_port);
        }
        let named: Vec<(&str, &str)> = self
            .endpoints
            .iter()
            .map(|(a, _)| (a.as_str(), ""))
            .collect();
        let mut slice = slice(self.namespace, &self.name, &port, &named);
        for (place, (_, ready)) in self.endpoints.iter().enumerate() {
            slice["endpoints"][place]["conditions"] = json!({"ready": ready, "serving": ready});
        }
        if self.foreign {
            slice["metadata"]["labels"]["service.kubernetes.io/service-proxy-name"] =
                json!("other");
        }
        [service, slice]
    }
}

fn world(parts: &[Part]) -> Objects {
    let mut all = minimal(NODE);
    all.push(node("node2", "192.0.2.12"));
    all.push(json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "kubernetes"},
        "spec": {"cidrs": ["10.96.0.0/12"]},
    }));
    all.extend(parts.iter().flat_map(Part::objects));
    // Some former endpoint addresses belong to pods still.
    all.extend((0..4).map(|n| pod("a", &format!("pod-{n}"), &endpoint(n), "node2")));
    Objects(all)
}

/// Change between two looks.
fn later(parts: &[Part], dice: &mut Dice) -> Vec<Part> {
    let mut later = Vec::new();
    for part in parts {
        let mut part = part.clone();
        match dice.below(10) {
            0 => continue, // deleted
            1 => part.name = format!("{}-new", part.name),
            2 => part.external = !part.external,
            3 => part.address = format!("10.96.2.{}", later.len() + 1),
            4..7 => part.endpoints = Part::random_endpoints(dice),
            _ => {}
        }
        later.push(part);
    }
    if dice.one_in(2) {
        let mut part = Part::random(0, dice);
        (part.name, part.address) = ("fresh".to_owned(), FREE.to_owned());
        later.push(part);
    }
    later
}

fn random_entry(n: u16, parts: &[Part], dice: &mut Dice) -> Flow {
    let part = &parts[dice.below(parts.len())];
    let node = NODE.to_string();
    let (to, port) = match dice.below(8) {
        0 => (SHARED, 53),
        1 => (node.as_str(), part.node_port.unwrap_or(30_050)),
        2 => (FREE, 53),
        3 => (part.address.as_str(), 99),
        _ => (part.address.as_str(), 53),
    };
    let sport = 40_000 + n;
    let original = tuple(17, "10.244.3.3", to, ports(sport, port));
    let from = match dice.below(8) {
        0 => return plain(original, ASSURED),
        1 => GONE.to_owned(),
        _ => endpoint(dice.below(8)),
    };
    let from_port = if dice.one_in(8) { 54 } else { 53 };
    translated(
        original,
        tuple(17, &from, "10.244.3.3", ports(from_port, sport)),
        ASSURED,
    )
}

/// Namespace of node1 with random entries and their Services.
fn random_node(dice: &mut Dice) -> Vec<Part> {
    unshare(CloneFlags::CLONE_NEWNET).unwrap();
    add_node_address();
    let parts: Vec<Part> = (0..8).map(|n| Part::random(n, dice)).collect();
    let entries: Vec<Flow> = (0..40).map(|n| random_entry(n, &parts, dice)).collect();
    insert(&entries);
    parts
}

#[test]
fn verdicts_by_one_services_slices_equal_those_by_all() {
    private_netns(|| {
        let mut judged = 0;
        for seed in 0..6 {
            let mut dice = Dice(seed);
            let parts = random_node(&mut dice);
            let all = world(&parts);
            let served = all.clone();
            let server = ApiServer::start(move |asked| served.answer(asked));
            for part in parts.iter().take(4) {
                let command = format!("ls --svc {}/{}", part.namespace, part.name);
                let narrow = by_api(&server, &command);
                let whole = by_file(&all, &command);
                assert_eq!(narrow.status, whole.status, "{seed} {command}: {narrow:#?}");
                let narrow = verdicts(&narrow);
                assert_eq!(narrow, verdicts(&whole), "{seed} {command}");
                judged += narrow.len();
            }
            let asked = server.requests();
            let mut slices = asked
                .iter()
                .filter(|one| one.resource() == "endpointslices");
            assert!(slices.all(|one| one.value("labelSelector").is_some()));
        }
        assert!(judged > 50, "{judged} entries only");
    });
}

#[test]
fn a_narrow_second_look_deletes_the_same_entries_as_a_full_one() {
    private_netns(|| {
        let (mut by_name, mut deleted, mut spared) = (0, 0, 0);
        for seed in 0..16 {
            let mut dice = Dice(1000 + seed);
            let parts = random_node(&mut dice);
            let (first, second) = (world(&parts), world(&later(&parts, &mut dice)));
            // Sometimes of one clusterIP alone, which can be read by name.
            let part = &parts[dice.below(parts.len())];
            let only = match seed % 2 {
                0 => format!("--dst {}", part.address),
                _ => String::new(),
            };
            let stale = |objects: &Objects| -> BTreeSet<u64> {
                verdicts(&by_file(
                    objects,
                    &format!("purge --stale --dry-run {only}"),
                ))
                .into_keys()
                .collect()
            };
            let (before, after) = (stale(&first), stale(&second));
            let wanted: BTreeSet<u64> = before.intersection(&after).copied().collect();
            let (pods_read, renewed) = (AtomicBool::new(false), AtomicBool::new(false));
            let server = ApiServer::start(move |asked| {
                if asked.resource() == "pods" {
                    pods_read.store(true, Ordering::SeqCst);
                } else if asked.resource() == "services" && pods_read.load(Ordering::SeqCst) {
                    renewed.store(true, Ordering::SeqCst);
                }
                match renewed.load(Ordering::SeqCst) {
                    true => second.answer(asked),
                    false => first.answer(asked),
                }
            });
            let command = format!("purge --stale {only} --yes --settle 0 --verify 0");
            let outcome = by_api(&server, &command).exits(0);
            let gone: BTreeSet<u64> = outcome
                .items()
                .iter()
                .filter(|item| item["result"] == "deleted")
                .map(|item| item["original"]["sport"].as_u64().unwrap())
                .collect();
            assert_eq!(gone, wanted, "{seed}: {outcome:#?}");
            deleted += gone.len();
            spared += before.len() - gone.len();
            let asked = server.requests();
            by_name += usize::from(asked.iter().any(|one| one.path.contains("/namespaces/")));
            let mut slices = asked
                .iter()
                .filter(|one| one.resource() == "endpointslices");
            if !before.is_empty() {
                let last = slices.next_back().unwrap();
                assert!(last.value("labelSelector").is_some(), "{seed}: {last:?}");
            }
        }
        println!("{deleted} deleted, {spared} spared, {by_name} plans read by name");
        assert!(
            deleted > 20 && spared > 5 && by_name > 2,
            "{deleted} {spared} {by_name}"
        );
    });
}

#[test]
fn a_service_without_its_former_address_makes_the_second_look_read_all_services() {
    private_netns(|| {
        add_node_address();
        insert(&[to_dns(17, 40_000, GONE)]);
        let first = objects();
        // The Service is recreated under another name with the same address, and the endpoint is an endpoint again.
        let mut second = Objects(lab::cluster_objects(&[]));
        second
            .0
            .retain(|object| object["metadata"]["name"] != "kube-dns");
        let port = [("dns", 53, "UDP")];
        second.0.retain(|object| {
            object["metadata"]["labels"]["kubernetes.io/service-name"] != "kube-dns"
        });
        second
            .0
            .push(service("kube-system", "new-dns", "10.96.0.10", &port));
        second
            .0
            .push(slice("kube-system", "new-dns", &port, &[(GONE, "")]));
        let server = ApiServer::start(move |asked| {
            let by_name = asked.path.contains("/namespaces/kube-system/");
            static RENEWED: AtomicBool = AtomicBool::new(false);
            if by_name {
                RENEWED.store(true, Ordering::SeqCst);
            }
            match RENEWED.load(Ordering::SeqCst) {
                true => second.answer(asked),
                false => first.answer(asked),
            }
        });
        let outcome = by_api(&server, "purge --stale --yes --settle 0 --verify 0").exits(0);
        assert_eq!(outcome.json()["summary"]["changed"], 1, "{outcome:#?}");
        let asked = server.requests();
        let last: Vec<String> = asked.iter().rev().take(2).map(request).collect();
        assert_eq!(last[1], "/api/v1/services -");
        assert!(last[0].ends_with("in (kubernetes,new-dns)"), "{}", last[0]);
    });
}

#[test]
fn a_node_port_on_an_address_of_a_service_is_stale_at_both_looks() {
    private_netns(|| {
        add_node_address();
        let node = NODE.to_string();
        let entry = translated(
            tuple(17, "198.51.100.7", &node, ports(40_000, 30_053)),
            tuple(17, GONE, "198.51.100.7", ports(53, 40_000)),
            ASSURED.with(Status::DST_NAT),
        );
        insert(&[entry]);
        let mut all = objects();
        let port = [("p", 53, "UDP")];
        let mut by_node = service("a", "by-node", "10.96.1.1", &port);
        by_node["spec"]["ports"][0]["nodePort"] = json!(30_053);
        let mut by_address = service("b", "by-address", "10.96.1.2", &[("p", 80, "TCP")]);
        by_address["spec"]["externalIPs"] = json!([node]);
        let endpoints = slice("a", "by-node", &port, &[("10.244.1.7", "")]);
        all.0.extend([by_node, by_address, endpoints]);
        let server = ApiServer::start(move |asked| all.answer(asked));
        let outcome = by_api(&server, "purge --stale --yes --settle 0 --verify 0").exits(0);
        assert_eq!(outcome.json()["summary"]["deleted"], 1, "{outcome:#?}");
    });
}

#[test]
fn one_of_two_services_at_an_address_is_judged_by_its_own_slices() {
    private_netns(|| {
        add_node_address();
        let entry = translated(
            tuple(17, "198.51.100.7", SHARED, ports(40_000, 53)),
            tuple(17, GONE, "198.51.100.7", ports(53, 40_000)),
            ASSURED.with(Status::DST_NAT),
        );
        insert(&[entry]);
        let mut all = objects();
        for (name, ip, protocol) in [("udp", "10.96.1.1", "UDP"), ("tcp", "10.96.1.2", "TCP")] {
            let port = [("p", 53, protocol)];
            let mut service = service("a", name, ip, &port);
            service["spec"]["externalIPs"] = json!([SHARED]);
            let endpoints = slice("a", name, &port, &[("10.244.1.7", "")]);
            all.0.extend([service, endpoints]);
        }
        let server = ApiServer::start(move |asked| all.answer(asked));
        let listed = by_api(&server, "ls --svc a/udp").exits(0);
        assert_eq!(listed.items()[0]["reason"], "endpoint-gone", "{listed:#?}");
        let asked = server.requests();
        let narrow = |asked: &ApiRequest| asked.value("labelSelector").is_some();
        assert!(asked.iter().any(narrow), "{asked:?}");
        let outcome = by_api(
            &server,
            "purge --svc a/udp --stale --yes --settle 0 --verify 0",
        );
        assert_eq!(
            outcome.exits(0).json()["summary"]["deleted"],
            1,
            "what --svc selects"
        );
    });
}
