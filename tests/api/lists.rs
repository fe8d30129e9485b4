//! The lists: pages, caches, refusals, and answers that break.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ctk_cluster::connection::Obstacle;
use ctk_cluster::list_status::State;
use ctk_cluster::live::load;
use ctk_cluster::object::Kind;
use ctk_cluster::read_scope::ReadScope;
use ctk_cluster::source::{Loaded, SourceKind};

use super::{lab, objects, options, read};
use testkit::api_server::{Answer, ApiRequest, ApiServer, BodyPart};

fn state(loaded: &Loaded, kind: Kind) -> State {
    let found = loaded.listed.iter().find(|one| one.kind == kind);
    found.expect("every kind has a state").state
}

/// Kinds that are not complete, with their states.
fn gaps(loaded: &Loaded) -> Vec<(Kind, State)> {
    let all = loaded.listed.iter().map(|one| (one.kind, one.state));
    all.filter(|(_, state)| *state != State::Complete).collect()
}

fn resources(asked: &[ApiRequest]) -> Vec<&str> {
    asked.iter().map(ApiRequest::resource).collect()
}

/// Server that is healthy except for the answers of `special`.
fn server_with(
    special: impl Fn(&ApiRequest) -> Option<Answer> + Send + Sync + 'static,
) -> ApiServer {
    let objects = objects();
    ApiServer::start(move |asked| special(asked).unwrap_or_else(|| objects.answer(asked)))
}

#[test]
fn a_whole_cluster_is_read_with_its_names_and_ranges() {
    let server = server_with(|_| None);
    let loaded = read(server.kubeconfig()).unwrap();
    assert_eq!(gaps(&loaded), []);
    assert!(loaded.summary.complete, "{:?}", loaded.warnings);
    assert_eq!(loaded.summary.missing, Vec::<&str>::new());
    assert_eq!(loaded.source.kind, SourceKind::Api);
    assert_eq!(loaded.warnings, Vec::<String>::new());
    let index = &loaded.index;
    let dns = index.service_named("kube-system", "kube-dns").unwrap();
    let (_, port) = index.ports_of(dns).next().unwrap();
    assert_eq!(port.endpoints.len(), lab::BACKENDS.len());
    assert!(index.node_named("node1").is_some());
    assert_eq!(
        index.in_service_range("10.96.0.77".parse().unwrap()),
        Some(true)
    );
}

#[test]
fn services_are_listed_before_the_slices_that_name_them() {
    let server = server_with(|_| None);
    read(server.kubeconfig()).unwrap();
    let asked = server.requests();
    let wanted = [
        "services",
        "endpointslices",
        "nodes",
        "servicecidrs",
        "pods",
    ];
    assert_eq!(resources(&asked), wanted);
}

#[test]
fn verdict_data_is_read_from_etcd_and_names_from_the_cache_unless_a_delete_depends_on_them() {
    for consistent in [false, true] {
        let server = server_with(|_| None);
        let options = ctk_cluster::connection::ConnectionOptions {
            consistent,
            ..options(server.kubeconfig())
        };
        assert!(
            load(&options, ReadScope::default(), &[])
                .unwrap()
                .summary
                .complete
        );
        for asked in server.requests() {
            let decides = matches!(asked.resource(), "services" | "endpointslices");
            let cached = asked.value("resourceVersion") == Some("0");
            assert_eq!(cached, !decides && !consistent, "{asked:?}");
        }
    }
}

#[test]
fn every_page_is_read() {
    let mut many = objects();
    many.0.extend((0..1200).map(|n| {
        let address = format!("10.97.{}.{}", n / 250, n % 250);
        lab::cluster::service("team", &format!("s{n:04}"), &address, &[("p", 80, "TCP")])
    }));
    let server = ApiServer::start(move |asked| many.answer(asked));
    let loaded = read(server.kubeconfig()).unwrap();
    assert_eq!(gaps(&loaded), []);
    assert!(loaded.summary.complete);
    for name in ["s0000", "s0499", "s0500", "s1199"] {
        assert!(loaded.index.service_named("team", name).is_some(), "{name}");
    }
    let pages = server.requests();
    let pages = pages.iter().filter(|asked| asked.resource() == "services");
    assert_eq!(pages.count(), 3);
}

/// Services in pages of one. The given number of requests for the second page, and then for the whole list, ends in "410
/// Gone"; answers after the first such one are another state of the list. Returns the number of requests, too.
fn expiring(times: usize) -> (Loaded, usize) {
    let before = objects();
    let mut after = objects();
    after
        .0
        .retain(|object| object["metadata"]["name"] != "kube-dns");
    let gone = AtomicUsize::new(0);
    let server = ApiServer::start(move |asked| {
        let seen = gone.load(Ordering::SeqCst);
        let mut asked = asked.clone();
        if asked.resource() == "services" {
            if (asked.value("continue").is_some() || seen > 0) && seen < times {
                gone.fetch_add(1, Ordering::SeqCst);
                return Answer::status(410);
            }
            for (_, value) in asked.query.iter_mut().filter(|(name, _)| name == "limit") {
                *value = "1".to_owned();
            }
        }
        match seen {
            0 => before.answer(&asked),
            _ => after.answer(&asked),
        }
    });
    let loaded = read(server.kubeconfig()).unwrap();
    let asked = server.requests();
    let services = asked.iter().filter(|asked| asked.resource() == "services");
    (loaded, services.count())
}

#[test]
fn an_expired_list_is_read_again_without_its_older_part() {
    let (loaded, requests) = expiring(1);
    assert_eq!(requests, 3, "a page, one that expired, the whole list");
    assert_eq!(gaps(&loaded), []);
    assert!(loaded.summary.complete);
    assert_eq!(loaded.index.services().count(), 1);
    assert!(
        loaded
            .index
            .service_named("default", "kubernetes")
            .is_some()
    );
}

#[test]
fn a_list_that_expires_twice_is_abandoned() {
    let (loaded, requests) = expiring(2);
    assert_eq!(requests, 3);
    assert_eq!(gaps(&loaded), [(Kind::Service, State::Failed)]);
    assert!(!loaded.summary.complete);
    assert_eq!(loaded.index.services().count(), 0);
}

#[test]
fn each_kind_that_is_forbidden_is_named_with_the_rule_to_add() {
    for (resource, kind, rule, complete) in [
        ("services", Kind::Service, "services", false),
        (
            "endpointslices",
            Kind::EndpointSlice,
            "endpointslices.discovery.k8s.io",
            false,
        ),
        ("pods", Kind::Pod, "pods", true),
        ("nodes", Kind::Node, "nodes", true),
        (
            "servicecidrs",
            Kind::ServiceCidr,
            "servicecidrs.networking.k8s.io",
            true,
        ),
    ] {
        let server =
            server_with(move |asked| (asked.resource() == resource).then(|| Answer::status(403)));
        let loaded = read(server.kubeconfig()).unwrap();
        assert_eq!(gaps(&loaded), [(kind, State::Forbidden)]);
        assert_eq!(loaded.summary.complete, complete, "{resource}");
        assert_eq!(loaded.summary.missing, [resource]);
        let outcome = loaded.warnings.join("\n");
        assert!(outcome.contains(&format!("list on {rule}")), "{outcome}");
        assert!(!outcome.contains("forgotten"), "{outcome}");
    }
}

#[test]
fn an_api_server_without_servicecidrs_is_no_failure() {
    let server =
        server_with(|asked| (asked.resource() == "servicecidrs").then(|| Answer::status(404)));
    let loaded = read(server.kubeconfig()).unwrap();
    assert_eq!(gaps(&loaded), [(Kind::ServiceCidr, State::NotServed)]);
    assert!(loaded.summary.complete);
    assert_eq!(loaded.warnings, Vec::<String>::new());
    let tried = server.requests();
    let tried = tried
        .iter()
        .filter(|asked| asked.resource() == "servicecidrs");
    assert_eq!(tried.count(), 2, "v1 and v1beta1");
}

#[test]
fn a_busy_server_is_retried_a_bounded_number_of_times() {
    for (status, failures, wanted) in [
        (429, 2, State::Complete),
        (503, 1, State::Complete),
        (500, 1000, State::Failed),
    ] {
        let count = AtomicUsize::new(0);
        let server = server_with(move |asked| {
            let busy = asked.resource() == "endpointslices"
                && count.fetch_add(1, Ordering::SeqCst) < failures;
            busy.then(|| Answer {
                headers: vec![("retry-after", "0".to_owned())],
                ..Answer::status(status)
            })
        });
        let loaded = read(server.kubeconfig()).unwrap();
        assert_eq!(state(&loaded, Kind::EndpointSlice), wanted, "{status}");
        assert_eq!(loaded.summary.complete, wanted == State::Complete);
        if wanted == State::Failed {
            let outcome = loaded.warnings.join("\n");
            assert!(
                outcome.contains("endpointslices could not be listed"),
                "{outcome}"
            );
            assert!(outcome.contains("500"), "{outcome}");
        }
    }
}

#[test]
fn retry_after_is_bounded_by_the_remaining_time() {
    for wait in [3600, u64::MAX] {
        let server = server_with(move |asked| {
            (asked.resource() == "endpointslices").then(|| Answer {
                headers: vec![("retry-after", wait.to_string())],
                ..Answer::status(429)
            })
        });
        let loaded = read(server.kubeconfig()).unwrap();
        assert_eq!(gaps(&loaded), [(Kind::EndpointSlice, State::Failed)]);
    }
}

/// Body of a healthy server's answer.
fn whole(asked: &ApiRequest) -> String {
    match &objects().answer(asked).body[..] {
        [BodyPart::Text(text)] => text.clone(),
        _ => panic!("a healthy answer is one text"),
    }
}

#[test]
fn a_broken_answer_makes_only_its_kind_partial() {
    type Break = fn(String) -> Vec<BodyPart>;
    let breaks: [(&str, Break); 4] = [
        ("the connection is cut", |text| {
            vec![
                BodyPart::Text(text[..text.len() - 20].to_owned()),
                BodyPart::Cut,
            ]
        }),
        ("the text ends early", |text| {
            vec![BodyPart::Text(text[..text.len() - 20].to_owned())]
        }),
        ("something else follows", |text| {
            vec![BodyPart::Text(text), BodyPart::Text("<html>".to_owned())]
        }),
        ("an item is no object", |text| {
            vec![BodyPart::Text(text.replacen(
                "\"items\":[",
                "\"items\":[17,",
                1,
            ))]
        }),
    ];
    for resource in ["services", "endpointslices", "pods"] {
        for (what, break_it) in breaks {
            let server = server_with(move |asked| {
                (asked.resource() == resource).then(|| Answer {
                    body: break_it(whole(asked)),
                    ..Answer::ok("")
                })
            });
            let loaded = read(server.kubeconfig()).unwrap();
            let wanted: Vec<State> = gaps(&loaded).into_iter().map(|(_, state)| state).collect();
            assert_eq!(wanted, [State::Partial], "{resource}: {what}");
            assert_eq!(
                loaded.summary.complete,
                resource == "pods",
                "{resource}: {what}"
            );
            assert_eq!(loaded.summary.missing, [resource], "{what}");
        }
    }
}

#[test]
fn an_answer_of_another_kind_is_rejected() {
    for text in [
        "",
        "<html>log in here</html>",
        r#"{"kind":"Status","apiVersion":"v1","status":"Success"}"#,
        r#"{"kind":"PodList","apiVersion":"v1","items":[]}"#,
        r#"{"kind":"EndpointSliceList","apiVersion":"example.org/v1","items":[]}"#,
        r#"{"kind":"EndpointSliceList","apiVersion":"discovery.k8s.io/v1"}"#,
    ] {
        let server = server_with(move |asked| {
            (asked.resource() == "endpointslices").then(|| Answer::ok(text))
        });
        let loaded = read(server.kubeconfig()).unwrap();
        assert_eq!(
            gaps(&loaded),
            [(Kind::EndpointSlice, State::Partial)],
            "{text}"
        );
        assert!(!loaded.summary.complete, "{text}");
        let outcome = loaded.warnings.join("\n");
        assert!(
            !outcome.contains("log in here"),
            "no body reaches a message: {outcome}"
        );
    }
}

#[test]
fn a_page_that_continues_with_itself_ends() {
    let server = server_with(|asked| {
        let same =
            r#"{"kind":"ServiceList","apiVersion":"v1","metadata":{"continue":"x"},"items":[]}"#;
        (asked.resource() == "services").then(|| Answer::ok(same))
    });
    let loaded = read(server.kubeconfig()).unwrap();
    assert_eq!(gaps(&loaded), [(Kind::Service, State::Partial)]);
}

#[test]
fn a_broken_item_leaves_its_kind_partial() {
    let server = server_with(|asked| {
        let text = r#"{"kind":"ServiceList","apiVersion":"v1","items":[{"metadata":{"name":"a","namespace":"b"},"spec":7}]}"#;
        (asked.resource() == "services").then(|| Answer::ok(text))
    });
    let loaded = read(server.kubeconfig()).unwrap();
    assert_eq!(gaps(&loaded), [(Kind::Service, State::Partial)]);
    assert_eq!(loaded.summary.counts.broken, 1);
}

#[test]
fn an_empty_list_is_an_answer() {
    let mut few = objects();
    few.0
        .retain(|object| object["kind"] != "Pod" && object["kind"] != "Node");
    let server = ApiServer::start(move |asked| few.answer(asked));
    let loaded = read(server.kubeconfig()).unwrap();
    assert_eq!(gaps(&loaded), []);
    assert_eq!(loaded.summary.missing, Vec::<&str>::new());
}

#[test]
fn a_silent_server_ends_in_time_with_the_data_read_before() {
    let slow = || {
        vec![
            BodyPart::Text("{\"kind\":".to_owned()),
            BodyPart::Pause(Duration::from_secs(60)),
        ]
    };
    for (resource, complete) in [
        ("services", None),
        ("endpointslices", Some(false)),
        ("pods", Some(true)),
    ] {
        let server = server_with(move |asked| {
            (asked.resource() == resource).then(|| Answer {
                body: slow(),
                ..Answer::ok("")
            })
        });
        let options = ctk_cluster::connection::ConnectionOptions {
            limit: Duration::from_secs(2),
            ..options(server.kubeconfig())
        };
        let began = Instant::now();
        let loaded = load(&options, ReadScope::default(), &[]).unwrap();
        // The server would continue after a minute.
        assert!(began.elapsed() < Duration::from_secs(30), "{resource}");
        assert_eq!(
            loaded.summary.complete,
            complete == Some(true),
            "{resource}"
        );
        let outcome = loaded.warnings.join("\n");
        assert!(
            outcome.contains("the time for reading the cluster is over"),
            "{outcome}"
        );
    }
}

#[test]
fn a_server_that_never_answers_and_an_absent_one_are_different_errors() {
    // The server accepts connections and sends nothing.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = server_with(|_| None);
    let kubeconfig = server.kubeconfig();
    let text = std::fs::read_to_string(&kubeconfig).unwrap();
    let silent = text.replace(
        &server.address.to_string(),
        &listener.local_addr().unwrap().to_string(),
    );
    std::fs::write(&kubeconfig, silent).unwrap();
    let began = Instant::now();
    let error = read(kubeconfig).unwrap_err();
    assert_eq!(error.obstacle, Obstacle::Unreachable, "{error}");
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "not the whole 15 s: 2 s are for connecting"
    );
}

#[test]
fn a_service_range_with_a_node_in_it_is_refused() {
    let server = server_with(|_| None);
    let wrong = ["192.0.2.0/24".parse().unwrap()];
    let error = load(&options(server.kubeconfig()), ReadScope::default(), &wrong).unwrap_err();
    assert_eq!(error.obstacle, Obstacle::ServiceRange);
    assert!(error.message.contains("192.0.2."), "{error}");
}
