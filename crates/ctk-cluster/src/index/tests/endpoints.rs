//! Rules by which EndpointSlices give endpoints to a Service port.

use crate::index::Endpoint;
use crate::testing::{addresses, ip, loaded, port, world};

const TCP: u8 = 6;
const UDP: u8 = 17;

#[test]
fn services_of_other_proxies_stay_as_marked_owners() {
    let index = world(&[
        "svc x/headless None 53/UDP external=203.0.113.1",
        "svc x/name type=ExternalName 53/UDP external=203.0.113.2",
        "svc x/proxied 10.96.5.1 53/UDP@30053 label=service.kubernetes.io/service-proxy-name=other",
        "svc x/labelled 10.96.5.2 53/UDP label=service.kubernetes.io/headless",
        "svc x/by-slice 10.96.5.3 53/UDP",
        "slice x/by-slice 53/UDP 10.244.0.1 label=service.kubernetes.io/service-proxy-name=other",
        "slice x/proxied 53/UDP 10.244.0.2 label=service.kubernetes.io/service-proxy-name=other",
    ]);
    for address in [
        "203.0.113.1",
        "203.0.113.2",
        "10.96.5.1",
        "10.96.5.2",
        "10.96.5.3",
    ] {
        let [(id, _)] = index.owners(ip(address)) else {
            panic!("{address} has no owner");
        };
        assert!(!index.service(*id).kube_proxy, "{address}");
        assert_eq!(index.frontends(ip(address), UDP, 53).len(), 1, "{address}");
    }
    assert_eq!(index.node_ports(UDP, 30053).len(), 1);
    // Their endpoints are kept: labels may need their names.
    assert_eq!(
        addresses(port(&index, "10.96.5.1", UDP, 53)),
        ["10.244.0.2:53"]
    );
    assert_eq!(
        addresses(port(&index, "10.96.5.3", UDP, 53)),
        ["10.244.0.1:53"]
    );
    let headless = index.service_named("x", "headless").unwrap();
    assert!(index.owners(ip("0.0.0.0")).is_empty());
    assert_eq!(index.service(headless).addresses.len(), 1);
}

#[test]
fn a_slice_that_kube_proxy_ignores_gives_no_endpoint_to_its_services() {
    let loaded = loaded(&[
        "svc x/a 10.96.5.3 53/UDP",
        "slice x/a 53/UDP 10.244.0.1",
        "slice x/a name=other 53/UDP 10.244.0.2 label=service.kubernetes.io/headless",
    ]);
    let port = port(&loaded.index, "10.96.5.3", UDP, 53);
    assert_eq!(addresses(port), ["10.244.0.1:53"]);
    assert!(loaded.index.service(port.service).kube_proxy);
    assert!(loaded.warnings.iter().any(|w| w.contains("x/other")));
}

#[test]
fn slices_join_by_label_namespace_port_name_and_protocol() {
    let index = world(&[
        "svc a/s 10.96.6.1 dns:53/UDP dns-tcp:53/TCP",
        "svc b/s 10.96.6.2 dns:53/UDP",
        "svc b/unnamed 10.96.6.3 53/UDP",
        "slice a/s dns:5353/UDP 10.244.0.1",
        "slice a/s dns-tcp:5354/TCP 10.244.0.2",
        "slice a/s dns:5355/TCP 10.244.0.3", // the name of the one, the protocol of the other
        "slice a/s other:5356/UDP 10.244.0.4",
        "slice b/unnamed 5357/UDP 10.244.0.5",
        "slice c/s dns:53/UDP 10.244.0.6", // of no Service
        "slice b/s dns:-/UDP 10.244.0.7",  // a port without number
        "slice b/s dns:53/ICMP 10.244.0.8",
    ]);
    for (address, protocol, endpoints) in [
        ("10.96.6.1", UDP, &["10.244.0.1:5353"][..]),
        ("10.96.6.1", TCP, &["10.244.0.2:5354"]),
        ("10.96.6.2", UDP, &[]),
        ("10.96.6.3", UDP, &["10.244.0.5:5357"]),
    ] {
        assert_eq!(
            addresses(port(&index, address, protocol, 53)),
            endpoints,
            "{address}"
        );
    }
}

#[test]
fn absent_and_null_conditions_have_their_defaults() {
    let null = r#"{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","addressType":"IPv4",
        "metadata":{"namespace":"net","labels":{"kubernetes.io/service-name":"syslog"}},
        "ports":[{"name":"s","port":514,"protocol":"UDP","appProtocol":null}],
        "endpoints":[{"addresses":["192.0.2.204"],"conditions":{"ready":null,"serving":null}},
                     {"addresses":["192.0.2.205"],"conditions":null,"targetRef":null,"nodeName":null},
                     {"addresses":[]},{"addresses":null},{}]}"#;
    let index = world(&[
        "svc net/syslog 10.96.5.14 s:514/UDP",
        "slice net/syslog s:514/UDP 192.0.2.201 192.0.2.206(!ready) 192.0.2.207(ready,!serving) \
         192.0.2.208(!ready,serving,terminating) 192.0.2.209(!ready,!serving,terminating)",
        null,
    ]);
    let endpoints = &port(&index, "10.96.5.14", UDP, 514).endpoints;
    let words = |e: &Endpoint| {
        (
            e.address.to_string(),
            e.ready,
            e.serving,
            e.terminating,
            e.serves(),
        )
    };
    let expected = [
        ("192.0.2.201", true, true, false, true),
        ("192.0.2.204", true, true, false, true),
        ("192.0.2.205", true, true, false, true),
        ("192.0.2.206", false, false, false, false),
        ("192.0.2.207", true, false, false, true),
        ("192.0.2.208", false, true, true, true),
        ("192.0.2.209", false, false, true, false),
    ];
    let expected = expected.map(|(a, r, s, t, u)| (a.to_owned(), r, s, t, u));
    assert_eq!(endpoints.iter().map(words).collect::<Vec<_>>(), expected);
    assert!(endpoints.iter().all(|e| e.pod.is_none()));
}

#[test]
fn further_addresses_of_an_endpoint_are_secondary_only() {
    let index = world(&[
        "svc net/syslog 10.96.5.14 s:514/UDP",
        "slice net/syslog s:514/UDP 192.0.2.202+192.0.2.203+192.0.2.204",
    ]);
    let port = port(&index, "10.96.5.14", UDP, 514);
    assert_eq!(addresses(port), ["192.0.2.202:514"]);
    assert_eq!(
        *port.endpoints[0].secondary,
        [ip("192.0.2.203"), ip("192.0.2.204")]
    );
}

#[test]
fn an_endpoint_in_two_slices_is_listed_once_with_the_serving_conditions() {
    for (one, two) in [
        (
            "10.244.0.1(!ready,!serving,terminating)",
            "10.244.0.1(ready)->p",
        ),
        (
            "10.244.0.1(ready)->p",
            "10.244.0.1(!ready,!serving,terminating)@n",
        ),
    ] {
        let index = world(&[
            "svc x/a 10.96.5.3 53/UDP",
            &format!("slice x/a name=one 53/UDP {one}"),
            &format!("slice x/a name=two 53/UDP {two}"),
            "slice x/a name=three 54/UDP 10.244.0.1(!ready)",
        ]);
        let port = port(&index, "10.96.5.3", UDP, 53);
        assert_eq!(addresses(port), ["10.244.0.1:53", "10.244.0.1:54"]);
        let merged = &port.endpoints[0];
        assert!(merged.ready && merged.serving && !merged.terminating);
        assert_eq!(merged.pod.as_ref().map(|(_, name)| &**name), Some("p"));
        assert!(!port.endpoints[1].ready);
    }
}

#[test]
fn slices_of_another_family_are_left_out() {
    let loaded = loaded(&[
        "svc x/a 10.96.5.3 fd00:96::3 53/UDP",
        "slice x/a 53/UDP type=IPv4 fd00::1 10.244.0.1+fd00::2",
        "slice x/a 53/UDP type=IPv6 10.244.0.9 ::ffff:10.244.0.8",
        "slice x/a 53/UDP type=FQDN 10.244.0.7",
        "slice x/a 53/UDP type=Other 10.244.0.6",
        r#"{"kind":"EndpointSlice","metadata":{"name":"lost","namespace":"x"},"addressType":"IPv4",
            "endpoints":[{"addresses":["10.244.0.5"]}],"ports":[{"port":53,"protocol":"UDP"}]}"#,
        r#"{"kind":"EndpointSlice","metadata":{"name":"n","namespace":"x",
            "labels":{"kubernetes.io/service-name":"a"}},"endpoints":null,"ports":null}"#,
    ]);
    let port = port(&loaded.index, "10.96.5.3", UDP, 53);
    // A mapped address is an IPv6 one: the kernel tracks such packets as IPv6.
    assert_eq!(addresses(port), ["10.244.0.1:53", "[::ffff:10.244.0.8]:53"]);
    assert!(port.endpoints.iter().all(|e| e.secondary.is_empty()));
    for part in [
        "another family than their EndpointSlice (3): fd00::1 of EndpointSlice x/a-",
        "without a Service's name (1): x/lost",
        "unknown address type (1): x/a-",
    ] {
        assert!(
            loaded.warnings.iter().any(|w| w.contains(part)),
            "{part}: {:?}",
            loaded.warnings
        );
    }
    // Endpoints that were left out may be those of some entry.
    assert!(!loaded.summary.complete);
    assert!(loaded.summary.missing.contains(&"endpointslices"));
}

#[test]
fn leading_zeros_are_decimal_and_invalid_addresses_are_left_out_with_a_warning() {
    let loaded = loaded(&[
        "svc x/a 10.096.005.003 53/UDP external=nonsense external=10.0.0.256 external=1.2.3 external=+1.2.3.4",
        "slice x/a 53/UDP 10.244.0.011 10.244.0.x 10.244.0.y+10.244.0.77",
        "pod x/p 10.244.0.012",
        "cidr 10.096.0.0/12",
    ]);
    let index = &loaded.index;
    assert_eq!(
        addresses(port(index, "10.96.5.3", UDP, 53)),
        ["10.244.0.11:53"]
    );
    assert_eq!(index.pods_at(ip("10.244.0.12")).count(), 1);
    assert_eq!(index.in_service_range(ip("10.96.0.1")), Some(true));
    let warned = |part: &str| loaded.warnings.iter().any(|w| w.contains(part));
    assert!(warned("read as decimal (3)"), "{:?}", loaded.warnings);
    assert!(warned(
        "addresses that cannot be read (6): \"nonsense\" of Service x/a"
    ));
    for missing in ["services", "endpointslices"] {
        assert!(loaded.summary.missing.contains(&missing), "{missing}");
    }
}
