//! Requests the lists of a live cluster, one GET after the other, over any transport.
//!
//! Every list ends in its own [`State`]: a failure of one kind does not affect the others. Services are listed before
//! EndpointSlices, so that no slice lacks its Service only because that was listed too early. Kinds that supply only names come
//! last: verdicts stay possible when time runs out.

use std::io::BufReader;
use std::time::{Instant, SystemTime};

use ipnet::IpNet;

use super::build::{Builder, NotAServiceRange};
use super::list_decoder::{self, ListError};
use super::list_status::{Listed, State, gaps};
use super::object::Kind;
use super::read_scope::{ReadScope, Reread};
use super::server::{self, encoded};
pub use super::server::{GetError, Server};
use super::service_scope::{ChosenPods, ServiceScope};
use super::source::{Loaded, Source, SourceKind};

/// Items on one page of a consistent list. The value is that of kubectl: the API server collects such a page at once.
const PAGE_ITEMS: u32 = 500;

/// Parameters of a listing.
#[derive(Clone, Copy, Debug)]
pub struct Asking {
    /// Deadline of all requests.
    pub deadline: Instant,
    /// Requests the newest state of every kind, as a delete needs it. Otherwise only Services and EndpointSlices, which decide
    /// verdicts, are the newest; kinds that supply names may come from the cache of the API server.
    pub consistent: bool,
}

/// Reason why nothing could be read.
#[derive(Debug, thiserror::Error)]
pub enum ClusterReadError {
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
    wanted: ReadScope,
    service_ranges: &[IpNet],
) -> Result<Loaded, ClusterReadError> {
    let source = Source {
        kind: SourceKind::Api,
        time: SystemTime::now(),
        path: None,
    };
    let mut reading = Reading::new(server, asking, service_ranges);
    let ReadScope {
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

/// One list, from which its kind can be followed.
pub(super) struct List {
    pub builder: Builder,
    /// See [`list_decoder::Page::version`].
    pub version: Option<String>,
    /// Path at which it is served.
    pub path: &'static str,
}

/// Reads one list, or the part of it that a field selector chooses.
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

/// Formats a field selector as a part of a query.
pub(super) fn field_selector(selector: &str) -> String {
    format!("fieldSelector={}", encoded(selector))
}

struct Reading<'s> {
    server: &'s mut dyn Server,
    asking: Asking,
    builder: Builder,
    listed: Vec<Listed>,
    /// Deadline: no request is sent after it.
    ended: Option<GetError>,
    /// Metadata of the last page.
    version: Option<String>,
}

/// Reason why a list is incomplete.
pub(super) enum Failure {
    /// It failed before its first page.
    Get(GetError),
    /// It failed after its first page: a part of it was taken.
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

    /// Reads a list, and returns the path at which it is served.
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

    /// Reads all Services, or those that an earlier reading found.
    fn services(
        &mut self,
        again: Option<&Reread>,
        concerned: Option<&ServiceScope>,
    ) -> Result<(), Failure> {
        let named = again.and_then(|again| again.services.as_ref());
        let (Some(named), Some(ServiceScope::Destinations(destinations))) = (named, concerned)
        else {
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
        // A Service was deleted or changed its address: another one may have the address by now.
        self.builder.forget(Kind::Service);
        self.list(Kind::Service)
    }

    /// Reads all EndpointSlices, or those of some Services.
    fn slices(&mut self, concerned: Option<&ServiceScope>) -> Result<(), Failure> {
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

    /// Reads the Pods of one node, then those with the chosen addresses; all Pods where these cannot be selected.
    fn chosen_pods(&mut self, chosen: ChosenPods) -> Result<(), Failure> {
        let of_node = format!("spec.nodeName={}", chosen.node);
        self.select_pods(&of_node)?;
        let mut addresses = chosen.addresses;
        // Most sources of the entries of a node are its own Pods.
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

    /// `selector` is a part of the query, or empty.
    fn pages(&mut self, kind: Kind, path: &str, selector: &str) -> Result<(), Failure> {
        let cached = match self.asking.consistent || decides(kind) {
            true => "",
            // With this version the server answers from its cache, in one piece.
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
                None if paged => joined(&format!("limit={PAGE_ITEMS}")),
                None => joined(cached),
                Some(token) => joined(&format!("limit={PAGE_ITEMS}&continue={}", encoded(token))),
            };
            let next = match self.page(kind, path, &query) {
                Ok(next) => next,
                // Starts over once and in one piece: two halves of different age are no list.
                Err(Failure::Get(GetError::Expired)) if token.is_some() && paged => {
                    tracing::info!(
                        kind = kind.name(),
                        "the list expired; it is requested again in one piece"
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

    /// Reads one page, and returns the token of the next one.
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
        match list_decoder::read_page(body, kind, &mut self.builder) {
            Ok(page) => {
                self.version = page.version;
                Ok(page.token)
            }
            Err(error) => Err(Failure::Midway(broken(&error))),
        }
    }

    /// Notes the status of a list.
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

/// Marks a failure after a number of parts as partial: some of the list was taken already, whatever the reason.
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

/// Reports whether a kind decides verdicts by itself.
fn decides(kind: Kind) -> bool {
    matches!(kind, Kind::Service | Kind::EndpointSlice)
}

/// Paths that serve a kind, the newest version first.
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

/// Formats the reason why a body was no list, without quoting it.
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
mod tests;
