//! Real UDP flows: backends that answer with their address, and clients that keep their source port and send repeatedly.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::network::{POD_PORTS, Place, pod_address};

/// Time between two questions of a client.
const EVERY: Duration = Duration::from_secs(1);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A case that failed while it held the lock leaves no half-done change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn bind(place: Place, address: &str, port: u16) -> UdpSocket {
    let socket = place.run(|| UdpSocket::bind((address, port)));
    let socket = socket.unwrap_or_else(|error| panic!("{place:?} {address}:{port}: {error}"));
    socket.set_nonblocking(true).unwrap();
    socket
}

/// Backends on both nodes. They answer with `ADDRESS:PORT` until the process ends.
pub struct Backends {
    silent: Arc<Mutex<BTreeSet<String>>>,
}

impl Backends {
    pub fn start() -> Self {
        let mut sockets = Vec::new();
        for node in [1, 2] {
            for last in 10..=39 {
                let address = pod_address(node, last);
                for port in POD_PORTS {
                    let socket = bind(Place::Backends(node), &address, port);
                    sockets.push((socket, address.clone(), format!("{address}:{port}")));
                }
            }
        }
        let backends = Backends {
            silent: Arc::default(),
        };
        let silent = Arc::clone(&backends.silent);
        std::thread::spawn(move || serve(&sockets, &silent));
        backends
    }

    /// Silences the pod at this address: its process is dead, and its address still exists.
    pub fn silence(&self, address: &str) {
        lock(&self.silent).insert(address.to_owned());
    }

    pub fn all_answer(&self) {
        lock(&self.silent).clear();
    }
}

fn serve(sockets: &[(UdpSocket, String, String)], silent: &Mutex<BTreeSet<String>>) {
    let mut buffer = [0; 512];
    loop {
        let mut all: Vec<PollFd<'_>> = sockets
            .iter()
            .map(|(socket, _, _)| PollFd::new(socket, PollFlags::IN))
            .collect();
        let second = Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        if poll(&mut all, Some(&second)).is_err() {
            continue;
        }
        let ready = all.iter().map(|fd| fd.revents().contains(PollFlags::IN));
        let ready: Vec<bool> = ready.collect();
        for ((socket, address, answer), _) in sockets.iter().zip(ready).filter(|(_, ready)| *ready)
        {
            while let Ok((_, from)) = socket.recv_from(&mut buffer) {
                if !lock(silent).contains(address) {
                    // An ended client does not matter.
                    let _ = socket.send_to(answer.as_bytes(), from);
                }
            }
        }
    }
}

/// Client with its destination and its last answer.
struct Client {
    socket: UdpSocket,
    to: SocketAddr,
    answer: Option<(Instant, String)>,
}

type All = Mutex<BTreeMap<u16, Client>>;

/// Clients by their source port.
pub struct Clients {
    all: Arc<All>,
    paused: Arc<AtomicBool>,
}

impl Clients {
    pub fn start() -> Self {
        let clients = Clients {
            all: Arc::default(),
            paused: Arc::default(),
        };
        let (all, paused) = (Arc::clone(&clients.all), Arc::clone(&clients.paused));
        std::thread::spawn(move || ask_for_ever(&all, &paused));
        clients
    }

    /// Starts a client with this namespace, address and source port that sends to `to` (`ADDRESS:PORT`) at once and then
    /// every second.
    pub fn add(&self, place: Place, address: &str, port: u16, to: &str) {
        let socket = bind(place, address, port);
        let to = to.parse().unwrap_or_else(|error| panic!("{to}: {error}"));
        let client = Client {
            socket,
            to,
            answer: None,
        };
        client.ask();
        let before = lock(&self.all).insert(port, client);
        assert!(before.is_none(), "two clients have port {port}");
    }

    pub fn remove(&self, port: u16) {
        lock(&self.all).remove(&port);
    }

    pub fn clear(&self) {
        self.resume();
        lock(&self.all).clear();
    }

    /// Pauses all clients until [`Clients::resume`].
    pub fn pause(&self) {
        // Waits for the round under way.
        let _all = lock(&self.all);
        self.paused.store(true, Ordering::SeqCst);
    }

    pub fn resume(&self) {
        self.paused.store(false, Ordering::SeqCst);
    }

    pub fn count(&self) -> usize {
        lock(&self.all).len()
    }

    /// Oldest clients, by port.
    pub fn first(&self) -> Option<u16> {
        lock(&self.all).keys().next().copied()
    }

    /// Sends once, paused or not.
    pub fn ask(&self, port: u16) {
        lock(&self.all)[&port].ask();
    }

    /// Backend of the last answer since `since`, if any.
    pub fn answer(&self, port: u16, since: Instant) -> Option<String> {
        let all = lock(&self.all);
        let (when, text) = all.get(&port)?.answer.as_ref()?;
        (*when >= since).then(|| text.clone())
    }
}

impl Client {
    fn ask(&self) {
        // Refused where kube-proxy rejects packets; the next one may succeed.
        let _ = self.socket.send_to(b"?", self.to);
    }

    fn listen(&mut self) {
        let mut buffer = [0; 512];
        // An error is an ICMP message about an earlier packet.
        for _ in 0..3 {
            if let Ok(length) = self.socket.recv(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
                self.answer = Some((Instant::now(), text));
            }
        }
    }
}

fn ask_for_ever(all: &All, paused: &AtomicBool) {
    loop {
        let began = Instant::now();
        {
            let all = lock(all);
            if !paused.load(Ordering::SeqCst) {
                all.values().for_each(Client::ask);
            }
        }
        while began.elapsed() < EVERY {
            lock(all).values_mut().for_each(Client::listen);
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
