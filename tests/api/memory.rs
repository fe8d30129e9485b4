//! Memory for a large cluster over the API. The test runs itself again as a child that only reads, and reads the child's
//! peak (VmHWM).

use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ctk_cluster::connection::ConnectionOptions;
use ctk_cluster::live::load;
use ctk_cluster::read_scope::ReadScope;

use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{objects, options};
use testkit::api_server::{Answer, ApiRequest, ApiServer, BodyPart};
use testkit::private_netns::private_netns;
use testkit::usage::{MIB, peak_of};
use testkit::watch_process::start;

const KUBECONFIG: &str = "CTK_TEST_LARGE_CLUSTER";
const PODS: usize = 50_000;
const SERVICES: usize = 10_000;
const SLICES: usize = 20_000;

/// Body of the child, not a test of its own. Does nothing without the variable.
#[test]
fn child_reads_the_cluster() {
    let Some(kubeconfig) = std::env::var_os(KUBECONFIG) else {
        return;
    };
    let options = ConnectionOptions {
        limit: Duration::from_secs(600),
        ..options(kubeconfig.into())
    };
    let loaded = load(&options, ReadScope::default(), &[]).unwrap();
    assert!(loaded.summary.complete, "{:?}", loaded.warnings);
    let peak = peak_of("self");
    let counts = loaded.summary.counts;
    println!(
        "peak={} pods={} services={} slices={}",
        peak, counts.pods, counts.services, counts.endpoint_slices
    );
}

#[test]
fn fifty_thousand_pods_ten_thousand_services_and_twenty_thousand_slices_fit_into_128_mib() {
    let few = objects();
    let server = ApiServer::start(move |asked| match asked.resource() {
        "services" => page(asked, "ServiceList", "v1", SERVICES, Arc::new(service)),
        "endpointslices" => {
            let group = "discovery.k8s.io/v1";
            page(asked, "EndpointSliceList", group, SLICES, Arc::new(slice))
        }
        "pods" => page(asked, "PodList", "v1", PODS, Arc::new(pod)),
        _ => few.answer(asked),
    });
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "memory::child_reads_the_cluster", "--nocapture"])
        .env(KUBECONFIG, server.kubeconfig())
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&child.stdout);
    let expected = format!(" pods={PODS} services={SERVICES} slices={SLICES}");
    let line = output.lines().find(|line| line.contains(&expected));
    let line = line.unwrap_or_else(|| panic!("{output}{}", String::from_utf8_lossy(&child.stderr)));
    let (_, after) = line.split_once("peak=").unwrap();
    let peak: u64 = after.split(' ').next().unwrap().parse().unwrap();
    println!("peak: {} MiB", peak / MIB);
    assert!(peak < 128 * MIB, "{} MiB", peak / MIB);
}

/// All Pods, as off a node or with `--all-pods`, and then a new index while the old one is in use. For the figure: `cargo
/// test --release --test api -- --ignored --nocapture fifty_thousand_pods_are_followed`.
#[test]
#[ignore = "takes a while; for a figure"]
fn fifty_thousand_pods_are_followed() {
    private_netns(|| {
        let (few, senders) = (objects(), Arc::new(Mutex::new(Vec::new())));
        let streams = Arc::clone(&senders);
        let server = ApiServer::start(move |asked| {
            if asked.value("watch").is_some() {
                let (sender, receiver) = mpsc::unbounded_channel();
                let resource = asked.resource().to_owned();
                streams.lock().unwrap().push((resource, sender));
                let stream = BodyPart::Stream(Arc::new(Mutex::new(Some(receiver))));
                let body = vec![stream];
                return Answer {
                    body,
                    ..Answer::ok("")
                };
            }
            match asked.resource() {
                "services" => page(asked, "ServiceList", "v1", SERVICES, Arc::new(service)),
                "endpointslices" => {
                    let group = "discovery.k8s.io/v1";
                    page(asked, "EndpointSliceList", group, SLICES, Arc::new(slice))
                }
                "pods" => page(asked, "PodList", "v1", PODS, Arc::new(pod)),
                _ => few.answer(asked),
            }
        });
        let kubeconfig = server.kubeconfig();
        let path = kubeconfig.to_str().unwrap();
        let args = "--all-pods --request-timeout 10m --cluster api --interval 1s --kubeconfig";
        let watch = start(&args.split(' ').chain([path]).collect::<Vec<_>>());
        let peak = || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", watch.pid())).unwrap();
            let line = |name| status.lines().find_map(|l| l.strip_prefix(name)).unwrap();
            format!(
                "peak {}, now {}",
                line("VmHWM:").trim(),
                line("VmRSS:").trim()
            )
        };
        println!("listed: {}", peak());
        for n in 0..20 {
            let mut new: Value = serde_json::from_str(&pod(n)).unwrap();
            new["status"]["podIP"] = json!(format!("10.1.1.{n}"));
            new["status"]["podIPs"] = json!([{"ip": format!("10.1.1.{n}")}]);
            new["metadata"]["resourceVersion"] = json!("8");
            let line = format!("{}\n", json!({"type": "MODIFIED", "object": new}));
            for (resource, sender) in senders.lock().unwrap().iter() {
                if resource == "pods" {
                    let _ = sender.send(BodyPart::Text(line.clone()));
                }
            }
            std::thread::sleep(Duration::from_millis(1000));
        }
        println!("after 20 changes: {}", peak());
        watch.stop();
    });
}

/// Requested page, whose items are generated while it is sent.
fn page(
    asked: &ApiRequest,
    kind: &str,
    group: &str,
    count: usize,
    item: Arc<dyn Fn(usize) -> String + Send + Sync>,
) -> Answer {
    let from: usize = asked.value("continue").map_or(0, |at| at.parse().unwrap());
    let limit: usize = match asked.value("resourceVersion") {
        Some("0") => count,
        _ => asked
            .value("limit")
            .map_or(count, |limit| limit.parse().unwrap()),
    };
    let to = count.min(from + limit);
    let next = if to < count {
        format!(r#","continue":"{to}""#)
    } else {
        String::new()
    };
    let head = format!(
        r#"{{"kind":"{kind}","apiVersion":"{group}","metadata":{{"resourceVersion":"7"{next}}},"items":["#
    );
    let items = move |n: usize| {
        let comma = if n == 0 { "" } else { "," };
        format!("{comma}{}", item(from + n))
    };
    Answer {
        body: vec![
            BodyPart::Text(head),
            BodyPart::Many(Arc::new(items), to - from),
            BodyPart::Text("]}".to_owned()),
        ],
        ..Answer::ok("")
    }
}

fn ip(first: usize, n: usize) -> String {
    format!("10.{}.{}.{}", first + (n >> 16), (n >> 8) & 255, n & 255)
}

/// Name of the length that a Deployment gives.
fn pod_name(n: usize) -> String {
    format!("service-{}-6d5c8f9b7b-{n:05}", n % SERVICES)
}

/// Service number `n`. The first one is `default/kubernetes`.
fn service(n: usize) -> String {
    if n == 0 {
        return r#"{"metadata":{"name":"kubernetes","namespace":"default"},
            "spec":{"clusterIP":"10.96.0.1","ports":[{"name":"https","port":443}]}}"#
            .to_owned();
    }
    format!(
        r#"{{"metadata":{{"name":"service-{n}","namespace":"team-{}"}},"spec":{{"clusterIP":"{ip}","clusterIPs":["{ip}"],
        "ports":[{{"name":"http","port":80,"protocol":"TCP"}},{{"name":"dns","port":53,"protocol":"UDP"}}]}}}}"#,
        n % 200,
        ip = ip(96, n)
    )
}

/// Slice number `n`: two for each Service, with five pods between them.
fn slice(n: usize) -> String {
    let service = n / 2;
    let (namespace, service) = match service {
        0 => ("default".to_owned(), "kubernetes".to_owned()),
        _ => (
            format!("team-{}", service % 200),
            format!("service-{service}"),
        ),
    };
    let pods = (n..PODS).step_by(SLICES);
    let endpoints: Vec<String> = pods
        .map(|pod| {
            format!(
                r#"{{"addresses":["{}"],"conditions":{{"ready":true,"serving":true,"terminating":false}},
                "nodeName":"node-{}","targetRef":{{"kind":"Pod","namespace":"{namespace}","name":"{}"}}}}"#,
                ip(128, pod),
                pod % 500,
                pod_name(pod)
            )
        })
        .collect();
    format!(
        r#"{{"addressType":"IPv4","metadata":{{"name":"{service}-{n:05}","namespace":"{namespace}",
        "labels":{{"kubernetes.io/service-name":"{service}"}}}},
        "ports":[{{"name":"http","port":8080,"protocol":"TCP"}},{{"name":"dns","port":5353,"protocol":"UDP"}}],
        "endpoints":[{}]}}"#,
        endpoints.join(",")
    )
}

fn pod(n: usize) -> String {
    format!(
        r#"{{"metadata":{{"annotations":{{"padding":"{padding}"}},"name":"{name}","namespace":"team-{team}"}},
        "spec":{{"nodeName":"node-{node}","containers":[{{"name":"c","ports":[{{"containerPort":8080,"protocol":"TCP"}}]}}]}},
        "status":{{"phase":"Running","podIP":"{ip}","podIPs":[{{"ip":"{ip}"}}],"hostIP":"192.168.7.1"}}}}"#,
        // Stands for the parts of a real pod that ctk does not need.
        padding = "x".repeat(300),
        name = pod_name(n),
        team = n % 200,
        node = n % 500,
        ip = ip(128, n)
    )
}
