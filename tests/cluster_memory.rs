//! Memory for a large cluster file. The test runs itself again as a child that only loads a file, and reads the child's
//! peak (VmHWM).

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Command;

use ctk_cluster::source::ClusterSource;
use testkit::usage::{MIB, peak_of};

const FILE: &str = "CTK_TEST_CLUSTER_FILE";

/// Body of the child, not a test of its own. Does nothing without the variable.
#[test]
fn child_loads_the_file() {
    let Some(path) = std::env::var_os(FILE) else {
        return;
    };
    let source = ClusterSource::parse(&path).unwrap();
    let loaded = source.load(&[]).unwrap().unwrap();
    let peak = peak_of("self");
    let counts = loaded.summary.counts;
    assert!(loaded.summary.complete, "{:?}", loaded.warnings);
    println!(
        "peak={} pods={} services={}",
        peak, counts.pods, counts.services
    );
}

/// Position of the kind of a pod: in the item itself, as kubectl prints it, or only at the end of a list of pods. In the
/// second case all items have to be kept until then.
#[derive(Clone, Copy, PartialEq)]
enum KindOf {
    Item,
    ListLast,
}

/// Peak bytes of a process that loads `services` Services with as many slices, and `pods` Pods that back them.
fn peak(services: usize, pods: usize, kind: KindOf) -> u64 {
    let file = tempfile::NamedTempFile::new().unwrap();
    write_cluster(file.path(), services, pods, kind).unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_loads_the_file", "--nocapture"])
        .env(FILE, file.path())
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&child.stdout);
    let expected = format!(" pods={pods} services={}", services + 1);
    let line = output.lines().find(|line| line.contains(&expected));
    let line = line.unwrap_or_else(|| panic!("{output}{}", String::from_utf8_lossy(&child.stderr)));
    let (_, after) = line.split_once("peak=").unwrap();
    after.split(' ').next().unwrap().parse().unwrap()
}

fn write_cluster(path: &Path, services: usize, pods: usize, kind: KindOf) -> std::io::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    let ip = |n: usize| format!("10.{}.{}.{}", 128 + (n >> 16), (n >> 8) & 255, n & 255);
    write!(out, r#"{{"apiVersion":"v1","items":["#)?;
    write!(
        out,
        r#"{{"kind":"Service","metadata":{{"name":"kubernetes","namespace":"default"}},
            "spec":{{"clusterIP":"10.96.0.1","ports":[{{"name":"https","port":443}}]}}}},
           {{"kind":"EndpointSlice","metadata":{{"name":"kubernetes","namespace":"default",
            "labels":{{"kubernetes.io/service-name":"kubernetes"}}}},"addressType":"IPv4",
            "ports":[{{"name":"https","port":6443}}],"endpoints":[{{"addresses":["192.168.7.254"]}}]}}"#
    )?;
    for n in 0..services {
        write!(
            out,
            r#",{{"apiVersion":"v1","kind":"Service","metadata":{{"name":"service-{n}","namespace":"team-{}"}},
                "spec":{{"clusterIP":"10.96.{}.{}","clusterIPs":["10.96.{}.{}"],
                "ports":[{{"name":"http","port":80,"protocol":"TCP"}},{{"name":"dns","port":53,"protocol":"UDP"}}]}}}}"#,
            n % 200,
            1 + n / 250,
            n % 250,
            1 + n / 250,
            n % 250
        )?;
        write!(
            out,
            r#",{{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","addressType":"IPv4",
                "metadata":{{"name":"service-{n}-x7k2p","namespace":"team-{}","labels":{{"kubernetes.io/service-name":"service-{n}"}}}},
                "ports":[{{"name":"http","port":8080,"protocol":"TCP"}},{{"name":"dns","port":5353,"protocol":"UDP"}}],"endpoints":["#,
            n % 200
        )?;
        for (position, pod) in (n..pods).step_by(services).enumerate() {
            let comma = if position == 0 { "" } else { "," };
            write!(
                out,
                r#"{comma}{{"addresses":["{}"],"conditions":{{"ready":true,"serving":true,"terminating":false}},
                    "nodeName":"node-{}","targetRef":{{"kind":"Pod","namespace":"team-{}","name":"{}"}}}}"#,
                ip(pod),
                pod % 500,
                n % 200,
                pod_name(pod)
            )?;
        }
        write!(out, "]}}")?;
    }
    if kind == KindOf::ListLast {
        write!(out, r#"],"kind":"List"}} {{"apiVersion":"v1","items":["#)?;
    }
    let padding = "x".repeat(100); // annotations, volumes, environment: parts of a real pod that ctk does not need
    for n in 0..pods {
        let head = match kind {
            KindOf::Item => r#",{"apiVersion":"v1","kind":"Pod","#,
            KindOf::ListLast if n == 0 => "{",
            KindOf::ListLast => ",{",
        };
        write!(
            out,
            r#"{head}"metadata":{{"annotations":{{"padding":"{padding}"}},
                "name":"{}","namespace":"team-{}"}},"spec":{{"nodeName":"node-{}",
                "containers":[{{"name":"c","ports":[{{"containerPort":8080,"protocol":"TCP"}}]}}]}},
                "status":{{"phase":"Running","podIP":"{}","podIPs":[{{"ip":"{}"}}],"hostIP":"192.168.7.1"}}}}"#,
            pod_name(n),
            (n % services.max(1)) % 200,
            n % 500,
            ip(n),
            ip(n)
        )?;
    }
    let list = match kind {
        KindOf::Item => "List",
        KindOf::ListLast => "PodList",
    };
    write!(
        out,
        r#"],"kind":"{list}","metadata":{{"resourceVersion":""}}}}"#
    )?;
    out.flush()
}

/// Name of the length that a Deployment gives.
fn pod_name(n: usize) -> String {
    format!("service-{}-6d5c8f9b7b-{n:05}", n % 1000)
}

#[test]
fn fifty_thousand_pods_fit_into_100_mib() {
    for kind in [KindOf::Item, KindOf::ListLast] {
        let peak = peak(1000, 50_000, kind);
        assert!(peak < 100 * MIB, "{} MiB", peak / MIB);
    }
}

/// Prints the cost of one more object at the peak, from the difference of two sizes. `cluster::index` has the figures.
#[test]
#[ignore = "a measurement: run it in release with --ignored --nocapture"]
fn bytes_for_each_object() {
    let of = |services, pods| peak(services, pods, KindOf::Item);
    let each = |more: u64, less: u64, count: u64| more.saturating_sub(less) / count;
    println!("no pods: {} KiB", of(1, 0) / 1024);
    let services = each(of(21_000, 0), of(1000, 0), 20_000);
    println!("a Service with two ports and an empty slice: {services}");
    let pods = each(of(0, 100_000), of(0, 50_000), 50_000);
    println!("a pod: {pods}");
    let backed = each(of(1000, 100_000), of(1000, 50_000), 50_000);
    println!("a pod that is an endpoint of two ports: {backed}");
    println!(
        "1000 Services, 50,000 pods: {} KiB",
        of(1000, 50_000) / 1024
    );
    let last = peak(1000, 50_000, KindOf::ListLast);
    println!("the same, kind last: {} KiB", last / 1024);
}
