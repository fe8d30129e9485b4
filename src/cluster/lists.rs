//! The lists of a live cluster, one GET after the other, whoever carries the requests.
//!
//! Every list ends in a [`State`] of its own: what cannot be had of one kind takes nothing away from the others. Services
//! come before EndpointSlices, so that no slice is met whose Service is only missing because it was listed too early; and what
//! only gives names comes last: where time runs out, verdicts are possible all the same.

use std::io::BufReader;
use std::time::{Instant, SystemTime};

use ipnet::IpNet;

use super::build::{Builder, NotAServiceRange};
use super::list::{self, ListError};
use super::listed::{Listed, State, gaps};
use super::object::Kind;
use super::server::{self, encoded};
pub use super::server::{GetError, Server};
use super::source::{Loaded, Source, SourceKind};
use super::wanted::{Again, ChosenPods, Concerned, Wanted};

/// Items of a page of a consistent list, as kubectl has it: small enough for the API server to collect at once.
const PAGE: u32 = 500;

/// How to ask.
#[derive(Clone, Copy, Debug)]
pub struct Asking {
    /// When all must be read.
    pub deadline: Instant,
    /// Of every kind the newest state, as for a delete. Else only of Services and EndpointSlices, which decide verdicts;
    /// what gives names may come from the API server's cache.
    pub consistent: bool,
}

/// Why nothing at all could be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error(transparent)]
    Get(#[from] GetError),
    #[error(transparent)]
    ServiceRange(#[from] NotAServiceRange),
}

/// Reads the lists.
///
/// # Errors
/// The first request shows that no other would succeed, or a given Service range holds an address of a Node or Pod.
pub fn read(
    server: &mut dyn Server,
    asking: Asking,
    wanted: Wanted,
    service_ranges: &[IpNet],
) -> Result<Loaded, ReadError> {
    let source = Source {
        kind: SourceKind::Api,
        time: SystemTime::now(),
        path: None,
    };
    let mut reading = Reading::new(server, asking, service_ranges);
    let Wanted {
        slices,
        pods,
        again,
    } = wanted;
    let outcome = reading.services(again.as_ref(), slices.as_ref());
    reading.conclude(Kind::Service, outcome)?;
    let outcome = reading.slices(slices.as_ref());
    reading.conclude(Kind::EndpointSlice, outcome)?;
    if again.is_none() {
        for kind in [Kind::Node, Kind::ServiceCidr] {
            let outcome = reading.list(kind);
            reading.conclude(kind, outcome)?;
        }
    }
    let index = reading.builder.without_pods();
    if again.is_none() {
        let outcome = match pods.and_then(|choose| choose(&index)) {
            Some(chosen) => reading.chosen_pods(chosen),
            None => reading.list(Kind::Pod),
        };
        reading.conclude(Kind::Pod, outcome)?;
    }
    let Reading {
        builder, listed, ..
    } = reading;
    let mut loaded = Loaded::of(builder.finish_with_pods(index)?, source);
    loaded.warnings.extend(gaps(&listed));
    loaded.listed = listed;
    if let Some(again) = again {
        loaded.keep(*again.first);
    }
    Ok(loaded)
}

/// One list, from which its kind is followed.
pub(super) struct List {
    pub builder: Builder,
    /// See [`list::Page::version`].
    pub version: Option<String>,
    /// Where it is served.
    pub path: &'static str,
}

/// Reads one list, or what a field selector chooses of it.
pub(super) fn one(
    server: &mut dyn Server,
    asking: Asking,
    kind: Kind,
    selector: Option<&str>,
    service_ranges: &[IpNet],
) -> Result<List, Failure> {
    let mut reading = Reading::new(server, asking, service_ranges);
    let selector = selector.map_or_else(String::new, field_selector);
    let path = reading.served(kind, &selector)?;
    Ok(List {
        path,
        version: reading.version,
        builder: reading.builder,
    })
}

/// As a part of a query.
pub(super) fn field_selector(selector: &str) -> String {
    format!("fieldSelector={}", encoded(selector))
}

struct Reading<'s> {
    server: &'s mut dyn Server,
    asking: Asking,
    builder: Builder,
    listed: Vec<Listed>,
    /// After it no request is sent.
    ended: Option<GetError>,
    /// What the last page says of itself.
    version: Option<String>,
}

/// Why a list is not whole.
pub(super) enum Failure {
    /// Before its first page.
    Get(GetError),
    /// In it or behind it: something of it was taken.
    Midway(String),
}

impl<'s> Reading<'s> {
    fn new(server: &'s mut dyn Server, asking: Asking, service_ranges: &[IpNet]) -> Self {
        Reading {
            server,
            asking,
            builder: Builder::new(service_ranges),
            listed: Vec::new(),
            ended: None,
            version: None,
        }
    }

    fn list(&mut self, kind: Kind) -> Result<(), Failure> {
        self.served(kind, "").map(|_| ())
    }

    /// Reads a list where it is served, and says where that is.
    fn served(&mut self, kind: Kind, selector: &str) -> Result<&'static str, Failure> {
        let mut result = Err(Failure::Get(GetError::NotServed));
        for path in paths(kind) {
            result = self.pages(kind, path, selector).map(|()| *path);
            if !matches!(result, Err(Failure::Get(GetError::NotServed))) {
                break;
            }
        }
        result
    }

    /// All Services, or those that an earlier reading found.
    fn services(
        &mut self,
        again: Option<&Again>,
        concerned: Option<&Concerned>,
    ) -> Result<(), Failure> {
        let named = again.and_then(|again| again.services.as_ref());
        let (Some(named), Some(Concerned::Destinations(destinations))) = (named, concerned) else {
            return self.list(Kind::Service);
        };
        for (count, (namespace, name)) in named.iter().enumerate() {
            let path = format!("/api/v1/namespaces/{}/services", encoded(namespace));
            let selector = encoded(&format!("metadata.name={name}"));
            let outcome = self.pages(Kind::Service, &path, &format!("fieldSelector={selector}"));
            outcome.map_err(|failure| behind(failure, count))?;
        }
        if self.builder.owns(destinations) {
            self.builder.knows_services_of(destinations);
            return Ok(());
        }
        // One was deleted, or changed its address: somebody else may have it by now.
        self.builder.forget(Kind::Service);
        self.list(Kind::Service)
    }

    /// All EndpointSlices, or those of some Services.
    fn slices(&mut self, concerned: Option<&Concerned>) -> Result<(), Failure> {
        let names = concerned.and_then(|concerned| self.builder.slices_of(concerned));
        let Some(names) = names else {
            return self.list(Kind::EndpointSlice);
        };
        let selector = format!("kubernetes.io/service-name in ({})", names.join(","));
        let selector = format!("labelSelector={}", encoded(&selector));
        let path = paths(Kind::EndpointSlice).first();
        let path = path.copied().unwrap_or_default();
        self.pages(Kind::EndpointSlice, path, &selector)
    }

    /// One node's Pods, then whoever has the addresses; all Pods where these cannot be selected.
    fn chosen_pods(&mut self, chosen: ChosenPods) -> Result<(), Failure> {
        let of_node = format!("spec.nodeName={}", chosen.node);
        self.select_pods(&of_node)?;
        let mut addresses = chosen.addresses;
        // Most sources of a node's entries are its own Pods.
        self.builder.leave_unknown(&mut addresses);
        let of_node = self.builder.pods.iter().map(|(pod, own)| (pod, own));
        let Some(addresses) = addresses.one_by_one(of_node) else {
            self.builder.forget(Kind::Pod);
            return self.list(Kind::Pod);
        };
        for address in &addresses {
            self.select_pods(&format!("status.podIP={address}"))
                .map_err(|failure| behind(failure, 1))?;
        }
        self.builder.chose_pods(addresses);
        Ok(())
    }

    fn select_pods(&mut self, selector: &str) -> Result<(), Failure> {
        let selector = field_selector(selector);
        let path = paths(Kind::Pod).first().copied().unwrap_or_default();
        self.pages(Kind::Pod, path, &selector)
    }

    /// `selector`: a part of the query, or empty.
    fn pages(&mut self, kind: Kind, path: &str, selector: &str) -> Result<(), Failure> {
        let cached = match self.asking.consistent || decides(kind) {
            true => "",
            // With it the server answers from its cache, in one piece.
            false => "resourceVersion=0",
        };
        let mut paged = cached.is_empty();
        let joined = |more: &str| match (selector, more) {
            ("", more) => more.to_owned(),
            (selector, "") => selector.to_owned(),
            (selector, more) => format!("{selector}&{more}"),
        };
        let mut token: Option<String> = None;
        loop {
            let query = match &token {
                None if paged => joined(&format!("limit={PAGE}")),
                None => joined(cached),
                Some(token) => joined(&format!("limit={PAGE}&continue={}", encoded(token))),
            };
            let next = match self.page(kind, path, &query) {
                Ok(next) => next,
                // Once, and all of it: two halves of different age are no list.
                Err(Failure::Get(GetError::Expired)) if token.is_some() && paged => {
                    tracing::info!(
                        kind = kind.name(),
                        "the list expired, once more in one piece"
                    );
                    self.builder.forget(kind);
                    (token, paged) = (None, false);
                    continue;
                }
                Err(Failure::Get(error)) if token.is_some() => {
                    return Err(Failure::Midway(error.to_string()));
                }
                Err(failure) => return Err(failure),
            };
            if next.is_none() {
                return Ok(());
            }
            if next == token {
                let why = "the API server gives the same page again and again";
                return Err(Failure::Midway(why.to_owned()));
            }
            token = next;
        }
    }

    /// Reads one page, and says what to ask with for the next one.
    fn page(&mut self, kind: Kind, path: &str, query: &str) -> Result<Option<String>, Failure> {
        let request = match query {
            "" => path.to_owned(),
            query => format!("{path}?{query}"),
        };
        if let Some(error) = &self.ended {
            return Err(Failure::Get(error.clone()));
        }
        server::get_patiently(self.server, &request, self.asking.deadline).map_err(Failure::Get)?;
        let body = BufReader::with_capacity(64 * 1024, &mut *self.server);
        match list::read_page(body, kind, &mut self.builder) {
            Ok(page) => {
                self.version = page.version;
                Ok(page.token)
            }
            Err(error) => Err(Failure::Midway(broken(&error))),
        }
    }

    /// Notes what became of a list.
    ///
    /// # Errors
    /// It was the first request of all, and shows that no other would succeed.
    fn conclude(&mut self, kind: Kind, outcome: Result<(), Failure>) -> Result<(), GetError> {
        let (state, why) = match outcome {
            Ok(()) => match self.builder.listed(kind) {
                true => (State::Complete, None),
                false => {
                    let why = "some items cannot be read".to_owned();
                    (State::Partial, Some(why))
                }
            },
            Err(failure) => {
                self.builder.not_listed(kind);
                match failure {
                    Failure::Midway(why) => (State::Partial, Some(why)),
                    Failure::Get(error) => {
                        if error.ends_all() {
                            if self.listed.is_empty() {
                                return Err(error);
                            }
                            self.ended.get_or_insert_with(|| error.clone());
                        }
                        (refused_state(kind, &error), Some(error.to_string()))
                    }
                }
            }
        };
        tracing::info!(kind = kind.name(), ?state, "listed");
        let verb = "list";
        self.listed.push(Listed {
            kind,
            state,
            verb,
            why,
        });
        Ok(())
    }
}

/// A failure behind so many parts of a list: some of it is there already, so that it is not whole whatever the reason.
fn behind(failure: Failure, parts: usize) -> Failure {
    match failure {
        Failure::Get(error) if parts > 0 && error != GetError::Forbidden => {
            Failure::Midway(error.to_string())
        }
        failure => failure,
    }
}

pub(super) fn refused_state(kind: Kind, error: &GetError) -> State {
    match error {
        GetError::Forbidden => State::Forbidden,
        GetError::NotServed if kind == Kind::ServiceCidr => State::NotServed,
        _ => State::Failed,
    }
}

/// Whether a kind decides verdicts for itself.
fn decides(kind: Kind) -> bool {
    matches!(kind, Kind::Service | Kind::EndpointSlice)
}

/// Where a kind is listed, the newest version first.
fn paths(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Service => &["/api/v1/services"],
        Kind::EndpointSlice => &["/apis/discovery.k8s.io/v1/endpointslices"],
        Kind::Pod => &["/api/v1/pods"],
        Kind::Node => &["/api/v1/nodes"],
        Kind::ServiceCidr => &[
            "/apis/networking.k8s.io/v1/servicecidrs",
            "/apis/networking.k8s.io/v1beta1/servicecidrs",
        ],
    }
}

/// Why a body was no list, in words that hold nothing of it.
fn broken(error: &ListError) -> String {
    match error {
        ListError::Read(error) if error.kind() == std::io::ErrorKind::TimedOut => {
            GetError::TimedOut.to_string()
        }
        ListError::Read(error) => format!("the answer broke off: {error}"),
        ListError::Empty | ListError::Cut { .. } => "the answer was cut short".to_owned(),
        ListError::Syntax { .. } | ListError::NotAList { .. } => {
            "the answer is not the list that was asked for".to_owned()
        }
    }
}

#[cfg(test)]
#[path = "lists_tests.rs"]
mod tests;
