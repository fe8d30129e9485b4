//! Comparison of the store with whole lists: following must end in the index that a new list gives.

use std::collections::{BTreeMap, HashSet};
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::connect::Login;
use super::reflector_state::{FeedHandle, ReflectorState, Standing};
use super::store::{Decoded, Decoder, Items, Store};
use super::update::notes;
use super::{Change, EndpointChange, Feed, Follower, Stream};
use crate::build::{Builder, NotAServiceRange};
use crate::index::Index;
use crate::list_status::{Listed, State};
use crate::object::{Item, Kind};
use crate::server::{GetError, Server};
use crate::service_scope::ChosenAddresses;

fn service(name: &str) -> Value {
    json!({"metadata": {"namespace": "shop", "name": name}, "spec": {
        "clusterIP": "10.96.0.10", "ports": [{"name": "dns", "protocol": "UDP", "port": 53}],
    }})
}

fn slice(name: &str, service: &str, addresses: &[&str]) -> Value {
    let endpoints: Vec<Value> = addresses
        .iter()
        .map(|address| json!({"addresses": [address]}))
        .collect();
    json!({"addressType": "IPv4", "endpoints": endpoints,
        "ports": [{"name": "dns", "protocol": "UDP", "port": 53}],
        "metadata": {"namespace": "shop", "name": name, "labels": {"kubernetes.io/service-name": service}},
    })
}

fn decoded(kind: Kind, objects: &[Value]) -> Items {
    let mut decoder = Decoder::default();
    let mut items = Items::new();
    for object in objects {
        let text = object.to_string();
        let item: Item<'_> = serde_json::from_str(&text).unwrap();
        items.extend(decoder.item(kind, &item).items);
    }
    items
}

fn put(store: &mut Store, feed: &Feed, object: &Value) -> Vec<String> {
    let items = decoded(feed.kind(), std::slice::from_ref(object));
    let told = items.into_iter().flat_map(|(key, slim)| {
        let (_, told) = store.apply(feed, key, Some(slim));
        told
    });
    words(told.collect())
}

fn words(told: Vec<EndpointChange>) -> Vec<String> {
    let word = |told: EndpointChange| {
        let change = match told.change {
            Change::Added => "added",
            Change::Ready => "ready",
            Change::Serving => "serving",
            Change::Terminating => "terminating",
            Change::Gone => "gone",
        };
        format!("{change} {}", told.endpoint.address)
    };
    told.into_iter().map(word).collect()
}

fn index(store: &Store) -> Index {
    let mut builder = Builder::new(&[]);
    store.fill(&mut builder);
    builder.finish().unwrap().index
}

fn endpoints(store: &Store) -> Vec<String> {
    let index = index(store);
    let ports = index.services().flat_map(|(id, _)| index.ports_of(id));
    let endpoints = ports.flat_map(|(_, port)| &port.endpoints);
    endpoints.map(|e| e.address.to_string()).collect()
}

#[test]
fn an_endpoint_in_two_slices_is_gone_when_both_have_dropped_it() {
    let mut store = Store::default();
    let (a, b) = ("10.244.0.1", "10.244.0.2");
    assert_eq!(put(&mut store, &Feed::Services, &service("s")), [""; 0]);
    let told = put(&mut store, &Feed::Slices, &slice("x", "s", &[a, b]));
    assert_eq!(told, ["added 10.244.0.1", "added 10.244.0.2"]);
    assert_eq!(
        put(&mut store, &Feed::Slices, &slice("y", "s", &[a])),
        [""; 0]
    );
    assert_eq!(
        put(&mut store, &Feed::Slices, &slice("x", "s", &[b])),
        [""; 0]
    );
    assert_eq!(endpoints(&store), [a, b]);
    let told = put(&mut store, &Feed::Slices, &slice("y", "s", &[]));
    assert_eq!(told, ["gone 10.244.0.1"]);
    assert_eq!(endpoints(&store), [b]);
}

#[test]
fn a_slice_that_changes_its_service_leaves_the_old_one() {
    let mut store = Store::default();
    put(&mut store, &Feed::Services, &service("s"));
    put(&mut store, &Feed::Services, &service("t"));
    put(&mut store, &Feed::Slices, &slice("x", "s", &["10.244.0.1"]));
    let told = put(&mut store, &Feed::Slices, &slice("x", "t", &["10.244.0.1"]));
    let expected = ["gone 10.244.0.1", "added 10.244.0.1"];
    assert_eq!(told, expected);
    assert_eq!(endpoints(&store), ["10.244.0.1"]);
}

#[test]
fn a_new_list_replaces_the_old_one_and_an_endpoint_that_moved_between_slices_stays() {
    let mut store = Store::default();
    put(&mut store, &Feed::Services, &service("s"));
    let (a, b) = ("10.244.0.1", "10.244.0.2");
    let first = decoded(
        Kind::EndpointSlice,
        &[slice("x", "s", &[a]), slice("z", "s", &[b])],
    );
    store.replace(&Feed::Slices, first.clone());
    let (changed, told) = store.replace(&Feed::Slices, first);
    assert!(!changed && told.is_empty(), "the same list: {told:?}");
    let second = decoded(Kind::EndpointSlice, &[slice("y", "s", &[a])]);
    let (changed, told) = store.replace(&Feed::Slices, second);
    assert!(changed);
    assert_eq!(words(told), ["gone 10.244.0.2"]);
    assert_eq!(endpoints(&store), [a]);
    // The Service is removed with all its endpoints.
    let (_, told) = store.replace(&Feed::Services, Items::new());
    assert_eq!(words(told), ["gone 10.244.0.1"]);
}

#[test]
fn endpoints_of_slices_that_kube_proxy_ignores_are_reported_as_in_the_index() {
    let mut foreign = slice("foreign", "web", &["10.244.1.5"]);
    foreign["metadata"]["labels"]["service.kubernetes.io/headless"] = json!("");
    let mut store = Store::default();
    put(&mut store, &Feed::Services, &service("web"));
    let mut seen = Vec::new();
    for object in [&foreign, &slice("own", "web", &["10.244.1.6"])] {
        let told = put(&mut store, &Feed::Slices, object);
        seen.push((told, endpoints(&store)));
    }
    let all = |words: &[&str]| words.iter().map(|w| w.to_string()).collect::<Vec<_>>();
    let added = all(&["added 10.244.1.5"]);
    assert_eq!(seen[0], (added, all(&["10.244.1.5"])));
    let moved = all(&["gone 10.244.1.5", "added 10.244.1.6"]);
    assert_eq!(seen[1], (moved, all(&["10.244.1.6"])));
}

proptest! {
    /// A list compares every endpoint of a Service, an event those of one slice.
    #[test]
    fn events_of_slices_report_the_changes_that_new_lists_would(
        events in prop::collection::vec((0usize..4, prop::option::of((0usize..2, any::<bool>(), 0u8..8))), 1..25),
    ) {
        let services = || decoded(Kind::Service, &[service("a"), service("b")]);
        let mut current: BTreeMap<usize, Value> = BTreeMap::new();
        let mut followed = Store::default();
        followed.replace(&Feed::Services, services());
        for (number, event) in events {
            let mut listed = Store::default();
            listed.replace(&Feed::Services, services());
            listed.replace(&Feed::Slices, decoded(Kind::EndpointSlice, &current.values().cloned().collect::<Vec<_>>()));
            let name = format!("s{number}");
            match event {
                None => drop(current.remove(&number)),
                Some((of, ignored, addresses)) => {
                    let all = ["10.244.0.1", "10.244.0.2", "10.244.0.3"];
                    let bits = all.iter().enumerate().filter(|(bit, _)| addresses >> bit & 1 == 1);
                    let addresses: Vec<&str> = bits.map(|(_, address)| *address).collect();
                    let mut object = slice(&name, ["a", "b"][of], &addresses);
                    if ignored {
                        object["metadata"]["labels"]["service.kubernetes.io/service-proxy-name"] = json!("x");
                    }
                    current.insert(number, object);
                }
            }
            let key = ("shop".into(), name.as_str().into());
            let now = decoded(Kind::EndpointSlice, &current.values().cloned().collect::<Vec<_>>());
            let (_, told) = followed.apply(&Feed::Slices, key, now.get(&("shop".into(), name.as_str().into())).cloned());
            let (_, all) = listed.replace(&Feed::Slices, now);
            prop_assert_eq!(words(told), words(all));
        }
    }
}

#[test]
fn changes_of_a_service_beyond_the_bound_of_the_index_are_not_told() {
    for (number, told) in [(10, 100), (600, 0)] {
        let ports: Vec<Value> = (1..=number)
            .map(|port| json!({"name": format!("p{port}"), "protocol": "UDP", "port": port}))
            .collect();
        let mut owner = service("dns");
        owner["spec"]["ports"] = json!(ports);
        let addresses: Vec<String> = (0..number)
            .map(|n| format!("10.244.{}.{}", n >> 8, n & 255))
            .collect();
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        let mut slice = slice("dns-x", "dns", &addresses);
        slice["ports"] = json!(ports);
        let mut store = Store::default();
        put(&mut store, &Feed::Services, &owner);
        assert_eq!(put(&mut store, &Feed::Slices, &slice).len(), told);
    }
}

#[test]
fn a_pod_of_two_feeds_is_listed_once() {
    let mut store = Store::default();
    let pod = json!({"metadata": {"namespace": "shop", "name": "web"}, "spec": {"nodeName": "node1"},
        "status": {"podIP": "10.244.0.1"}});
    let at = Feed::PodsAt("10.244.0.1".parse().unwrap());
    for feed in [Feed::PodsOf("node1".to_owned()), at] {
        put(&mut store, &feed, &pod);
    }
    let index = index(&store);
    assert_eq!(index.pods().count(), 1);
    assert_eq!(index.pods_at("10.244.0.1".parse().unwrap()).count(), 1);
}

#[test]
fn a_broken_stream_is_trusted_for_a_moment_and_a_lost_list_never() {
    let feed = Feed::Slices;
    let (reflector, handle, _) = posted(&feed);
    assert!(!reflector.is_whole(&feed), "not listed yet");
    handle.broken("no stream");
    assert!(
        !reflector.is_whole(&feed),
        "not listed yet, whatever becomes of the stream"
    );
    handle.set(Standing::Current);
    handle.broken("the stream ended");
    assert!(reflector.is_whole(&feed));
    let since = ago(3);
    let why = String::new();
    handle.set(Standing::Broken { since, why });
    handle.broken("it cannot be opened");
    assert!(
        !reflector.is_whole(&feed),
        "the time counts from the first break"
    );
    let lost = Standing::Lost {
        state: State::Failed,
        verb: "watch",
        why: String::new(),
    };
    handle.set(lost);
    handle.broken("the stream ended");
    assert!(!reflector.is_whole(&feed), "only a list makes it whole");
}

fn posted(feed: &Feed) -> (Arc<ReflectorState>, FeedHandle, Arc<AtomicBool>) {
    let (reflector, over) = (Arc::<ReflectorState>::default(), Arc::default());
    let handle = FeedHandle::new(&reflector, feed, &over);
    (reflector, handle, over)
}

fn ago(seconds: u64) -> Instant {
    let time = Instant::now().checked_sub(Duration::from_secs(seconds));
    time.unwrap()
}

fn listed(objects: &[Value], kind: Kind) -> Decoded {
    Decoded {
        items: decoded(kind, objects),
        ..Decoded::default()
    }
}

#[test]
fn an_ended_reader_does_not_change_the_state_of_its_successor() {
    let feed = Feed::PodsAt("10.244.0.1".parse().unwrap());
    let (reflector, old, over) = posted(&feed);
    over.store(true, Ordering::Relaxed);
    reflector.remove(&feed);
    let new = FeedHandle::new(&reflector, &feed, &Arc::default());
    let pod = json!({"metadata": {"namespace": "shop", "name": "web"}, "spec": {"nodeName": "node1"},
        "status": {"podIP": "10.244.0.1"}});
    let stands = || format!("{:?}", reflector.known().standing(&feed));
    old.replace(
        listed(std::slice::from_ref(&pod), Kind::Pod),
        Instant::now(),
    );
    old.set(Standing::Current);
    old.failed(&GetError::Forbidden);
    for (key, slim) in decoded(Kind::Pod, &[pod]) {
        old.apply(key, Some(slim), None);
    }
    assert_eq!(stands(), "Some(Awaited)");
    assert!(!reflector.known().store.has(&feed));
    new.replace(Decoded::default(), Instant::now());
    assert_eq!(stands(), "Some(Current)");
}

#[test]
fn an_index_is_as_old_as_the_oldest_proof_and_the_first_change_that_it_lacks() {
    let (reflector, services, over) = posted(&Feed::Services);
    let slices = FeedHandle::new(&reflector, &Feed::Slices, &over);
    assert_eq!(reflector.known().as_of(), None);
    services.replace(Decoded::default(), ago(30));
    assert_eq!(
        reflector.known().as_of(),
        None,
        "half of it is not known at all"
    );
    slices.replace(Decoded::default(), ago(20));
    reflector.known().unbuilt = None;
    let (first, second) = (ago(10), ago(5));
    services.proven(first);
    slices.proven(second);
    assert_eq!(reflector.known().as_of(), Some(first), "a silent stream");
    services.proven(Instant::now());
    assert_eq!(reflector.known().as_of(), Some(second));
    slices.proven(Instant::now());
    reflector.known().unbuilt = Some(ago(1));
    for (key, slim) in decoded(Kind::Service, &[service("s")]) {
        services.apply(key, Some(slim), None);
    }
    let as_of = reflector.known().as_of().unwrap();
    assert!(
        as_of.elapsed() >= Duration::from_secs(1),
        "it waits to be built in"
    );
}

#[test]
fn a_lost_and_a_recovered_list_are_reported_once() {
    let one = |kind, state| Listed {
        kind,
        state,
        verb: "watch",
        why: (state != State::Complete).then(|| "why".to_owned()),
    };
    let whole = [
        one(Kind::Service, State::Complete),
        one(Kind::Pod, State::Complete),
    ];
    let lost = [
        one(Kind::Service, State::Failed),
        one(Kind::Pod, State::Failed),
    ];
    let said = notes(&whole, &lost);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].contains("services, pods may be out of date (why)"),
        "{said:?}"
    );
    assert_eq!(notes(&lost, &lost), [""; 0]);
    let said = notes(&lost, &whole);
    assert_eq!(said, ["the API: services, pods are up to date again"]);
}

/// A server that never answers.
struct Nobody;

impl Login for Nobody {
    fn client(&self) -> (u64, Box<dyn Stream>) {
        (0, Box::new(Nobody))
    }

    fn renewed(&self, _: u64) -> Option<(u64, Box<dyn Stream>)> {
        None
    }
}

impl Stream for Nobody {
    fn until(&mut self, _: Instant) {}
}

impl Server for Nobody {
    fn get(&mut self, _: &str) -> Result<(), GetError> {
        Err(GetError::TimedOut)
    }
}

impl Read for Nobody {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        Err(std::io::ErrorKind::TimedOut.into())
    }
}

/// A follower that starts no feed by itself.
fn follower() -> Follower {
    Follower {
        reflector: Arc::default(),
        login: Arc::new(Nobody),
        limit: Duration::from_secs(1),
        ranges: Vec::new(),
        feeds: BTreeMap::new(),
        listed: Vec::new(),
        asked: HashSet::new(),
        not_before: Instant::now(),
    }
}

#[test]
fn an_invalid_range_is_dropped_and_hides_no_change() {
    let range: ipnet::IpNet = "10.96.0.0/12".parse().unwrap();
    let mut follower = follower();
    follower.ranges = vec![range];
    let services = FeedHandle::new(&follower.reflector, &Feed::Services, &Arc::default());
    let conflict = || NotAServiceRange {
        range,
        address: "10.96.0.1".parse().unwrap(),
        owner: "Node node1".to_owned(),
    };
    for (count, name) in ["s", "t"].into_iter().enumerate() {
        for (key, slim) in decoded(Kind::Service, &[service(name)]) {
            // Readers still use the range that they were given.
            services.apply(key, Some(slim), Some(conflict()));
        }
        (follower.reflector.known().unbuilt, follower.not_before) = (Some(ago(1)), Instant::now());
        let news = follower.news();
        let index = news.loaded.expect("an index").index;
        assert_eq!(index.services().count(), count + 1);
        let said = news
            .notes
            .iter()
            .filter(|note| note.contains("not used any more"));
        assert_eq!(said.count(), usize::from(count == 0), "{:?}", news.notes);
    }
}

#[test]
fn a_lost_list_is_reported_at_once_however_long_building_takes() {
    let mut follower = follower();
    let services = FeedHandle::new(&follower.reflector, &Feed::Services, &Arc::default());
    services.replace(Decoded::default(), Instant::now());
    follower.build().unwrap();
    follower.not_before = Instant::now() + Duration::from_secs(60);
    for (key, slim) in decoded(Kind::Service, &[service("s")]) {
        services.apply(key, Some(slim), None);
    }
    follower.reflector.known().unbuilt = Some(ago(1));
    assert!(follower.news().loaded.is_none(), "it is not time yet");
    services.failed(&GetError::Forbidden);
    let loaded = follower.news().loaded.expect("an index");
    assert!(!loaded.index.completeness().services);
}

#[test]
fn owners_of_addresses_are_requested_once_the_family_of_the_nodes_pods_is_known() {
    let of_node = Feed::PodsOf("node1".to_owned());
    let mut follower = follower();
    let over: Arc<AtomicBool> = Arc::default();
    let own = FeedHandle::new(&follower.reflector, &of_node, &over);
    follower.feeds.insert(of_node.clone(), over);
    let addresses = ChosenAddresses {
        deciding: HashSet::from(["10.244.9.9".parse().unwrap()]),
        named: vec!["10.244.9.8".parse().unwrap(), "fd00::1".parse().unwrap()],
    };
    assert_eq!(follower.ask(addresses.clone()), Ok(false));
    assert!(follower.feeds.keys().eq([&of_node]), "and not all Pods");
    let pod = json!({"metadata": {"namespace": "shop", "name": "web"}, "spec": {"nodeName": "node1"},
        "status": {"podIP": "10.244.0.1"}});
    own.replace(listed(&[pod], Kind::Pod), Instant::now());
    assert_eq!(follower.ask(addresses), Ok(true));
    let at = |address: &str| Feed::PodsAt(address.parse().unwrap());
    let asked = [&of_node, &at("10.244.9.8"), &at("10.244.9.9")];
    assert!(
        follower.feeds.keys().eq(asked),
        "a name is no reason to follow all Pods"
    );
}

#[test]
fn the_start_waits_until_it_is_known_whether_the_lists_can_be_followed() {
    let feeds = [Feed::Services, Feed::Slices];
    let (reflector, services, over) = posted(&feeds[0]);
    let slices = FeedHandle::new(&reflector, &feeds[1], &over);
    services.replace(Decoded::default(), Instant::now());
    services.is_followed();
    slices.replace(Decoded::default(), Instant::now());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            let (state, verb) = (State::Forbidden, "watch");
            let why = String::new();
            slices.set(Standing::Lost { state, verb, why });
        });
        let far = Instant::now() + Duration::from_secs(60);
        reflector.wait_for_streams(&feeds, far);
        assert!(!reflector.is_whole(&feeds[1]), "its stream is refused");
    });
}
