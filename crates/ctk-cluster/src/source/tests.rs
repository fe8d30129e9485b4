//! Conditions under which a source is complete, and those under which it is an error.

use std::ffi::OsStr;
use std::io::Write;
use std::time::{Duration, SystemTime};

use proptest::prelude::*;

use crate::index::Completeness;
use crate::source::{ClusterError, ClusterSource, Loaded, SourceKind, load};
use crate::testing::{API, bare_world, list, loaded, object, read};

const WHOLE: [&str; 7] = [
    API[0],
    API[1],
    "svc kube-system/kube-dns 10.96.0.10 dns:53/UDP",
    "slice kube-system/kube-dns dns:53/UDP 10.244.0.11(ready)@node1->coredns-a",
    "pod kube-system/coredns-a 10.244.0.11 @node1",
    "node node1 192.168.7.1 podCIDR=10.244.0.0/24",
    "cidr 10.96.0.0/16",
];

fn has_warning(loaded: &Loaded, part: &str) -> bool {
    loaded.warnings.iter().any(|line| line.contains(part))
}

#[test]
fn a_source_without_the_api_service_or_its_slice_is_not_complete() {
    let complete = |lines: &[&str]| {
        let c = bare_world(lines).completeness().clone();
        c.services && c.slices
    };
    assert!(complete(&WHOLE));
    assert!(!complete(&WHOLE[1..]), "no Service default/kubernetes");
    let without_slice: Vec<&str> = WHOLE.iter().copied().filter(|l| *l != API[1]).collect();
    assert!(!complete(&without_slice));
    assert!(!complete(&[]));
    let loaded = read(&list(&WHOLE[1..])).unwrap();
    assert!(!loaded.summary.complete);
    assert!(has_warning(&loaded, "no Service default/kubernetes"));
}

#[test]
fn a_text_of_one_namespace_is_incomplete_where_kubectl_printed_it() {
    let uid = r#"{"kind":"Service","metadata":{"namespace":"default","name":"kubernetes","uid":"5f"},"spec":{"clusterIP":"10.96.0.1","ports":[{"port":443}]}}"#;
    let pod = "pod kube-system/coredns-a 10.244.0.11 @node1";
    let rest = [API[1], "node node1 192.168.7.1", "cidr 10.96.0.0/16"];
    for (first, more, whole) in [
        (uid, None, false),
        (uid, Some("pod default/web-1 10.244.0.12 @node1"), false),
        (uid, Some(pod), true),
        (API[0], None, true),
    ] {
        let lines: Vec<&str> = [first].into_iter().chain(rest).chain(more).collect();
        let loaded = read(&list(&lines)).unwrap();
        assert_eq!(loaded.summary.complete, whole, "{first} {more:?}");
        assert_eq!(has_warning(&loaded, "was -A forgotten?"), !whole);
        assert_eq!(loaded.index.uid(), (first == uid).then_some("5f"));
    }
}

#[test]
fn a_kind_without_items_is_missing() {
    let whole = read(&list(&WHOLE)).unwrap();
    assert_eq!(whole.summary.missing, [""; 0]);
    assert!(whole.warnings.is_empty(), "{:?}", whole.warnings);
    let all = Completeness {
        services: true,
        slices: true,
        pods: true,
        nodes: true,
        service_cidrs: true,
    };
    assert_eq!(*whole.index.completeness(), all);
    let less = loaded(&[]);
    assert_eq!(less.summary.missing, ["pods", "nodes", "servicecidrs"]);
    assert!(less.summary.complete);
    let json = serde_json::to_value(&whole.summary).unwrap();
    assert_eq!(json["source"], "file");
    assert_eq!(json["counts"]["endpoint_slices"], 2);
}

#[test]
fn a_broken_item_is_named_and_left_out_and_its_kind_is_incomplete() {
    for (item, named, missing) in [
        (
            r#"{"kind":"Service","metadata":{"name":"odd","namespace":"x"},"spec":{"ports":"many"}}"#,
            "Service x/odd (",
            &["services"][..],
        ),
        (
            r#"{"metadata":{"namespace":"x","name":"odd"},"endpoints":[{"conditions":{"ready":"yes"}}],"kind":"EndpointSlice"}"#,
            "EndpointSlice x/odd (",
            &["endpointslices"],
        ),
        (
            r#"{"kind":"Pod","metadata":{"namespace":"x"}}"#,
            "Pod x/without a name",
            &["pods"],
        ),
        (
            r#"{"kind":"Service","metadata":{"name":"a","namespace":"x"}}"#,
            "has no spec",
            &["services"],
        ),
        (
            r#"{"kind":"Node","metadata":"odd"}"#,
            "Node without a name",
            &["nodes"],
        ),
        (
            r#"{"metadata":{"name":"a"}}"#,
            "an item a (it has no kind)",
            &[
                "services",
                "endpointslices",
                "pods",
                "nodes",
                "servicecidrs",
            ],
        ),
    ] {
        let lines: Vec<&str> = WHOLE.iter().copied().chain([item]).collect();
        let loaded = read(&list(&lines)).unwrap();
        assert!(has_warning(&loaded, named), "{:?}", loaded.warnings);
        assert_eq!(loaded.summary.missing, missing, "{item}");
        assert_eq!(loaded.summary.counts.broken, 1, "{item}");
        assert_eq!(loaded.summary.counts.pods, 1, "the rest is read: {item}");
    }
    let lone = format!("{{\"items\":[null,5,{}]}}", object(WHOLE[4]));
    assert_eq!(read(&lone).unwrap().summary.counts.broken, 2);
}

#[test]
fn kinds_that_are_not_read_are_skipped_with_any_content() {
    let lines: Vec<&str> = WHOLE
        .into_iter()
        .chain([
            r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"ports":"odd"},"status":"odd"}"#,
            r#"{"apiVersion":"serving.knative.dev/v1","kind":"Service","metadata":{"name":"k","namespace":"x"}}"#,
        ])
        .collect();
    let loaded = read(&list(&lines)).unwrap();
    assert_eq!(loaded.summary.counts.skipped, 2);
    assert_eq!(loaded.summary.counts.broken, 0);
    assert!(loaded.summary.complete && loaded.warnings.is_empty());
}

/// Items as the API server lists them: without kind and apiVersion.
fn single_kind_list(kind: &str, lines: &[&str], kind_first: bool) -> String {
    let items: Vec<String> = lines
        .iter()
        .map(|line| {
            let mut item = object(line);
            let fields = item.as_object_mut().unwrap();
            fields.remove("kind");
            fields.remove("apiVersion");
            item.to_string()
        })
        .collect();
    let items = format!("\"items\":[{}]", items.join(","));
    if kind_first {
        format!("{{\"kind\":\"{kind}List\",\"apiVersion\":\"v1\",{items}}}")
    } else {
        format!("{{\"apiVersion\":\"v1\",{items},\"kind\":\"{kind}List\",\"metadata\":{{}}}}")
    }
}

#[test]
fn lists_of_one_kind_may_follow_each_other_and_name_the_kind_first_or_last() {
    for kind_first in [true, false] {
        let parts = [
            single_kind_list("Service", &[WHOLE[0], WHOLE[2]], kind_first),
            single_kind_list("EndpointSlice", &[WHOLE[1], WHOLE[3]], kind_first)
                .replace("\"v1\"", "\"discovery.k8s.io/v1\""),
            single_kind_list("Pod", &[WHOLE[4]], kind_first),
            "{\"kind\":\"NodeList\",\"items\":null}".to_owned(),
        ];
        let loaded = read(&parts.join("\n")).unwrap();
        assert_eq!(loaded.summary.missing, ["nodes", "servicecidrs"]);
        let address = "10.96.0.10".parse().unwrap();
        let [frontend] = loaded.index.frontends(address, 17, 53) else {
            panic!("kind_first: {kind_first}");
        };
        assert_eq!(loaded.index.port(frontend.port).endpoints.len(), 1);
        // A truncated last document invalidates the ones before it as well.
        let text = parts.join("\n");
        let cut = &text[..text.len() - 1];
        assert!(matches!(read(cut), Err(ClusterError::List { .. })));
    }
}

#[test]
fn of_an_item_listed_twice_the_later_one_counts() {
    let loaded = loaded(&[
        "svc x/a 10.96.1.1 53/UDP",
        "svc x/a 10.96.1.2 53/UDP",
        "slice x/a name=s 53/UDP 10.244.0.1",
        "slice x/a name=s 53/UDP 10.244.0.2",
        "pod x/p 192.168.7.1 hostNetwork port=1/UDP",
        "pod x/p 10.244.0.3",
        "node n 192.168.7.1",
        "node n 192.168.7.2",
    ]);
    let index = &loaded.index;
    let at = |text: &str| text.parse().unwrap();
    assert!(index.owners(at("10.96.1.1")).is_empty());
    let [frontend] = index.frontends(at("10.96.1.2"), 17, 53) else {
        panic!("the later Service");
    };
    let endpoints = &index.port(frontend.port).endpoints;
    assert_eq!(
        endpoints.iter().map(|e| e.address).collect::<Vec<_>>(),
        [at("10.244.0.2")]
    );
    assert_eq!(index.pods_at(at("10.244.0.3")).count(), 1);
    assert!(index.host_network_pod(at("192.168.7.1"), 17, 1).is_none());
    assert!(index.node_at(at("192.168.7.1")).is_none());
    assert!(has_warning(&loaded, "listed twice"));
}

#[test]
fn a_page_is_not_a_complete_list() {
    let page = list(&WHOLE).replace(
        "\"resourceVersion\"",
        "\"continue\":\"abc\",\"resourceVersion\"",
    );
    let loaded = read(&page).unwrap();
    assert!(!loaded.summary.complete);
    assert!(has_warning(&loaded, "only a page"));
    let pods = "{\"kind\":\"PodList\",\"metadata\":{\"continue\":\"x\"},\"items\":[]}";
    let loaded = read(&(list(&WHOLE) + pods)).unwrap();
    assert!(loaded.summary.complete);
    assert_eq!(loaded.summary.missing, ["pods"]);
}

#[test]
fn a_forgotten_a_flag_is_suspected_when_all_is_in_one_namespace() {
    let one = loaded(&["svc default/web 10.96.0.9 80/TCP"]);
    assert!(has_warning(&one, "-A"));
    assert!(!has_warning(&loaded(&WHOLE[2..]), "-A"));
}

#[test]
fn errors_name_the_position() {
    for (text, message) in [
        ("", "standard input is empty"),
        (" \n", "standard input is empty"),
        (
            "{\"items\":[\n{\"kind\":\"Pod\"",
            "cut short at line 2, column 13 (byte 24)",
        ),
        (
            "{\"items\":[\n{\"kind\" \"Pod\"}]}",
            "line 2, column 9 (byte 20)",
        ),
        ("[]", "expected a list of Kubernetes objects"),
        (
            "apiVersion: v1\nkind: List\n",
            "is not what kubectl prints with `-o json`",
        ),
        (
            "{\"kind\":\"Pod\",\"metadata\":{}}",
            "holds Pod where a list",
        ),
        ("{}", "holds an object of no kind where a list"),
        ("{\"items\":{}}", "expected items in brackets"),
        ("{\"items\":[]} x", "is not what kubectl prints"),
    ] {
        let error = read(text).expect_err(text).to_string();
        assert!(error.contains(message), "{text:?}: {error}");
    }
}

#[test]
fn a_reader_that_fails_after_a_complete_list_is_an_error() {
    struct Broken;
    impl std::io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("the disk is gone"))
        }
    }
    let text = list(&WHOLE);
    let reader = std::io::Read::chain(text.as_bytes(), Broken);
    let source = read(&text).unwrap().source;
    let error = load(reader, source, &[]).unwrap_err().to_string();
    assert!(error.contains("the disk is gone"), "{error}");
}

#[test]
fn a_given_range_with_a_node_or_pod_in_it_is_refused() {
    let text = list(&WHOLE);
    let with = |range: &str| {
        let source = read(&text).unwrap().source;
        load(text.as_bytes(), source, &[range.parse().unwrap()])
    };
    for (range, owner) in [
        ("192.168.0.0/16", "Node node1 has the address 192.168.7.1"),
        (
            "10.244.0.0/24",
            "Pod kube-system/coredns-a has the address 10.244.0.11",
        ),
    ] {
        let error = with(range).unwrap_err().to_string();
        assert!(error.contains(owner) && error.contains(range), "{error}");
    }
    let index = with("fd00:96::/112").unwrap().index;
    assert_eq!(
        index.in_service_range("fd00:96::1".parse().unwrap()),
        Some(true)
    );
    assert_eq!(
        index.in_service_range("10.96.0.1".parse().unwrap()),
        Some(true)
    );
    assert!(index.completeness().service_cidrs);
}

#[test]
fn the_flag_is_a_keyword_or_a_file() {
    let parse = |text: &str| ClusterSource::parse(OsStr::new(text)).unwrap();
    let with_rules = |objects| ClusterSource::WithRules(Box::new(objects));
    for (text, source) in [
        ("auto", ClusterSource::Auto),
        ("none", ClusterSource::None),
        ("api", ClusterSource::Api),
        ("rules", ClusterSource::Rules(None)),
        ("rules:a b", ClusterSource::Rules(Some("a b".into()))),
        ("api,rules", with_rules(ClusterSource::Api)),
        ("rules,api", with_rules(ClusterSource::Api)),
        (
            "a.json,rules",
            with_rules(ClusterSource::File("a.json".into())),
        ),
        ("-,rules", with_rules(ClusterSource::Stdin)),
        ("-", ClusterSource::Stdin),
        ("./auto", ClusterSource::File("./auto".into())),
        ("cluster.json", ClusterSource::File("cluster.json".into())),
    ] {
        assert_eq!(parse(text), source, "{text}");
    }
    for text in [
        "",
        "rules:",
        "auto,rules",
        "rules,none",
        ",rules",
        "rules,rules:f",
    ] {
        assert!(ClusterSource::parse(OsStr::new(text)).is_err(), "{text:?}");
    }
    for text in ["none", "rules", "rules:f", "api", "api,rules"] {
        assert!(parse(text).load(&[]).unwrap().is_none(), "{text}");
    }
}

#[test]
fn the_age_of_a_file_is_its_modification_time() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(list(&WHOLE).as_bytes()).unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    file.as_file().set_modified(time).unwrap();
    let loaded = ClusterSource::File(file.path().into())
        .load(&[])
        .unwrap()
        .unwrap();
    assert_eq!(loaded.source.time, time);
    assert_eq!(loaded.source.kind, SourceKind::File);
    assert_eq!(loaded.source.path.as_deref(), Some(file.path()));
    assert!(loaded.summary.complete);
    let absent = ClusterSource::File("/nonexistent/cluster.json".into());
    let error = absent.load(&[]).unwrap_err().to_string();
    assert!(error.contains("/nonexistent/cluster.json"), "{error}");
    let directory = ClusterSource::File("/".into()).load(&[]).unwrap_err();
    assert!(
        matches!(directory, ClusterError::List { .. }),
        "{directory}"
    );
}

proptest! {
    /// The worst failure: half a cluster is taken for the whole one, and entries to the other half for stale.
    #[test]
    fn a_cut_text_is_never_a_smaller_cluster(at in 0usize..2000, shuffle in any::<u64>()) {
        let mut lines = WHOLE;
        for i in (1..lines.len()).rev() {
            lines.swap(i, (shuffle >> (8 * (i % 8))) as usize % (i + 1));
        }
        let text = list(&lines);
        let at = at % text.len();
        prop_assert!(read(&text[..at]).is_err());
    }

    #[test]
    fn changed_bytes_never_panic(at in 0usize..2000, byte in any::<u8>(), insert in any::<bool>()) {
        let mut text = list(&WHOLE).into_bytes();
        let at = at % text.len();
        if insert { text.insert(at, byte) } else { text[at] = byte }
        let source = read(&list(&WHOLE)).unwrap().source;
        if let Ok(loaded) = load(&text[..], source, &[]) {
            let _ = loaded.index.pods_at("10.244.0.11".parse().unwrap()).count();
        }
    }

    #[test]
    fn random_text_never_panics_and_is_never_complete(text in "[\\[\\]{}\",:a-z0-9 ]{0,60}") {
        if let Ok(loaded) = read(&text) {
            prop_assert!(!loaded.summary.complete);
        }
    }
}
