//! A reader against a server that opens every stream and breaks it off.

use std::io::{Cursor, ErrorKind, Read};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::super::reflector_state::ReflectorState;
use super::*;

/// An empty list of what this path names.
fn list(path: &str) -> String {
    let (group, kind) = match path.split_once('?').map_or(path, |(path, _)| path) {
        "/api/v1/services" => ("v1", "Service"),
        "/api/v1/nodes" => ("v1", "Node"),
        "/apis/discovery.k8s.io/v1/endpointslices" => ("discovery.k8s.io/v1", "EndpointSlice"),
        other => panic!("{other}"),
    };
    format!(
        r#"{{"kind":"{kind}List","apiVersion":"{group}","metadata":{{"resourceVersion":"7"}},"items":[]}}"#
    )
}

/// Counts the streams that were opened.
#[derive(Clone, Default)]
struct Cutter {
    streams: Arc<AtomicUsize>,
    /// The rest of a list; `None` in a stream.
    body: Option<Cursor<String>>,
}

impl Stream for Cutter {
    fn until(&mut self, _: Instant) {}
}

impl Server for Cutter {
    fn get(&mut self, path: &str) -> Result<(), GetError> {
        let is_stream = path.contains("watch=true");
        self.body = (!is_stream).then(|| Cursor::new(list(path)));
        self.streams
            .fetch_add(usize::from(is_stream), Ordering::Relaxed);
        Ok(())
    }
}

impl Read for Cutter {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match &mut self.body {
            Some(body) => body.read(buffer),
            None => Err(ErrorKind::ConnectionReset.into()),
        }
    }
}

impl Login for Cutter {
    fn client(&self) -> (u64, Box<dyn Stream>) {
        (0, Box::new(self.clone()))
    }

    fn renewed(&self, _: u64) -> Option<(u64, Box<dyn Stream>)> {
        None
    }
}

fn reader(
    reflector: &Arc<ReflectorState>,
    server: &Cutter,
    over: &Arc<AtomicBool>,
    feed: &Feed,
) -> Reader {
    Reader {
        handle: FeedHandle::new(reflector, feed, over),
        server: Box::new(server.clone()),
        login: Arc::new(server.clone()),
        credential: 0,
        limit: Duration::from_secs(1),
        ranges: Vec::new(),
        decoder: Decoder::new(&[]),
        partial: None,
        pace: Pace::of(feed),
        troubled: false,
        recoveries: 0,
    }
}

#[test]
fn readers_whose_streams_break_at_once_wait_longer_each_time_and_do_not_wake_each_other() {
    let (reflector, over) = (Arc::default(), Arc::default());
    let server = Cutter::default();
    let feeds = [Feed::Services, Feed::Slices, Feed::Nodes];
    let threads = feeds.clone().map(|feed| {
        let reader = reader(&reflector, &server, &over, &feed);
        std::thread::spawn(move || reader.run())
    });
    std::thread::sleep(Duration::from_secs(3));
    over.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().unwrap();
    }
    // At half the waits: after 0.1 s, 0.3 s, 0.7 s, 1.5 s; woken ones each second from there.
    let streams = server.streams.load(Ordering::Relaxed);
    assert!(
        (feeds.len()..=8 * feeds.len()).contains(&streams),
        "{streams}"
    );
}

#[test]
fn a_long_wait_ends_when_another_reader_recovers() {
    let (reflector, over) = (Arc::default(), Arc::default());
    let waiting = reader(&reflector, &Cutter::default(), &over, &Feed::Nodes);
    let began = Instant::now();
    let thread = std::thread::spawn(move || waiting.pause(Duration::from_secs(60)));
    std::thread::sleep(Duration::from_millis(200));
    reflector.recovered();
    thread.join().unwrap();
    let waited = began.elapsed();
    assert!(
        waited >= MIN_WAIT && waited < Duration::from_secs(10),
        "{waited:?}"
    );
}
