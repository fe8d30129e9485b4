//! Names of the cluster as typed, before they are resolved.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use crate::filter::BadValue;
use crate::filter::cidr::Cidr;
use crate::filter::suggest::did_you_mean;
use crate::verdict::{Reason, Verdict};

/// Longest name of a Kubernetes object, a DNS subdomain (RFC 1123).
const MAX_NAME_LEN: usize = 253;

/// `[NS/]NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectName {
    pub namespace: Option<Box<str>>,
    pub name: Box<str>,
}

impl ObjectName {
    fn parse(text: &str, kind: &str) -> Result<Self, BadValue> {
        let (namespace, name) = match text.split_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, text),
        };
        if !namespace.is_none_or(is_name) || !is_name(name) {
            return Err(BadValue(format!(
                "{text:?} is no {kind} name; it is written NAME or NAMESPACE/NAME, in lower-case letters, digits, '-' and '.'"
            )));
        }
        Ok(ObjectName {
            namespace: namespace.map(Box::from),
            name: name.into(),
        })
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// Returns whether a Kubernetes object can have the name.
pub fn is_name(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
    let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= MAX_NAME_LEN
        && bytes.iter().copied().all(inner)
        && edge(bytes.first())
        && edge(bytes.last())
}

/// Returns whether the text has only digits and dots: a mistyped address rather than a name.
fn looks_like_an_address(text: &str) -> bool {
    text.contains('.') && text.bytes().all(|b| b.is_ascii_digit() || b == b'.')
}

fn is_address(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok() || text.parse::<SocketAddr>().is_ok()
}

/// A port of a Service, by its name or number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortRef {
    Name(Box<str>),
    Number(u16),
}

impl fmt::Display for PortRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PortRef::Name(name) => f.write_str(name),
            PortRef::Number(number) => number.fmt(f),
        }
    }
}

impl FromStr for PortRef {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        if text.is_empty() {
            return Err(BadValue::new("the port after `:` is empty"));
        }
        if text.bytes().all(|b| b.is_ascii_digit()) {
            return match text.parse() {
                Ok(number) if number > 0 => Ok(PortRef::Number(number)),
                _ => Err(BadValue(format!("port {text} is not between 1 and 65535"))),
            };
        }
        if !is_name(text) {
            return Err(BadValue(format!(
                "{text:?} is no port; it is a number or the name of a Service port"
            )));
        }
        Ok(PortRef::Name(text.into()))
    }
}

/// `[NS/]NAME[:PORT]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceRef {
    pub service: ObjectName,
    pub port: Option<PortRef>,
}

impl FromStr for ServiceRef {
    type Err = BadValue;

    /// # Errors
    ///
    /// A text that is not the name of a Service, an impossible port, or an address.
    fn from_str(text: &str) -> Result<Self, BadValue> {
        if is_address(text) {
            return Err(BadValue(format!(
                "{text} is an address; Services are named here, --dst and --dport take addresses and ports"
            )));
        }
        let (service, port) = match text.split_once(':') {
            Some((service, port)) => (service, Some(port.parse()?)),
            None => (text, None),
        };
        Ok(ServiceRef {
            service: ObjectName::parse(service, "Service")?,
            port,
        })
    }
}

/// A pod by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodName(pub ObjectName);

impl FromStr for PodName {
    type Err = BadValue;

    /// # Errors
    ///
    /// A text that is not the name of a pod, or an address.
    fn from_str(text: &str) -> Result<Self, BadValue> {
        if is_address(text) {
            return Err(BadValue(format!(
                "{text} is an address; pods are named here, --ip takes addresses"
            )));
        }
        ObjectName::parse(text, "pod").map(PodName)
    }
}

/// One side of an entry: a pod by name, or the address and port of the tuple.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartyName {
    Pod(ObjectName),
    Net(Cidr),
    Socket(SocketAddr),
}

impl FromStr for PartyName {
    type Err = BadValue;

    /// # Errors
    ///
    /// A text that is not a name, network, address or address:port.
    fn from_str(text: &str) -> Result<Self, BadValue> {
        if let Ok(socket) = text.parse() {
            return Ok(PartyName::Socket(socket));
        }
        let address = text.split('/').next().unwrap_or(text);
        if address.parse::<IpAddr>().is_ok() || looks_like_an_address(address) {
            return text.parse().map(PartyName::Net);
        }
        if text.contains(':') {
            return Err(BadValue(format!(
                "{text:?} is no address:port (10.0.0.1:53, [fd00::1]:53)"
            )));
        }
        ObjectName::parse(text, "pod").map(PartyName::Pod)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace(pub Box<str>);

impl FromStr for Namespace {
    type Err = BadValue;

    /// # Errors
    ///
    /// A text that is not the name of a namespace.
    fn from_str(text: &str) -> Result<Self, BadValue> {
        if !is_name(text) || text.contains('.') {
            return Err(BadValue(format!(
                "{text:?} is no namespace; it has lower-case letters, digits and '-'"
            )));
        }
        Ok(Namespace(text.into()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerdictWord(pub Verdict);

impl FromStr for VerdictWord {
    type Err = BadValue;

    /// # Errors
    ///
    /// An unknown word.
    fn from_str(text: &str) -> Result<Self, BadValue> {
        let words = Verdict::ALL.map(|verdict| (verdict.name(), verdict));
        word(text, "verdict", &words).map(VerdictWord)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReasonWord(pub Reason);

impl FromStr for ReasonWord {
    type Err = BadValue;

    /// # Errors
    ///
    /// An unknown word.
    fn from_str(text: &str) -> Result<Self, BadValue> {
        let words: Vec<_> = Reason::ALL.iter().map(|r| (r.name(), *r)).collect();
        word(text, "reason", &words).map(ReasonWord)
    }
}

fn word<T: Copy>(text: &str, kind: &str, words: &[(&str, T)]) -> Result<T, BadValue> {
    let normal = text.to_ascii_lowercase().replace('_', "-");
    let names = || words.iter().map(|(name, _)| *name);
    words
        .iter()
        .find(|(name, _)| *name == normal)
        .map(|(_, value)| *value)
        .ok_or_else(|| {
            let all: Vec<&str> = names().collect();
            BadValue(format!(
                "unknown {kind} {text}{}; accepted are {}",
                did_you_mean(&normal, names()),
                all.join(", ")
            ))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(namespace: Option<&str>, name: &str) -> ObjectName {
        ObjectName {
            namespace: namespace.map(Box::from),
            name: name.into(),
        }
    }

    #[test]
    fn a_service_is_parsed_with_namespace_and_port() {
        let name = |s: &str| Some(PortRef::Name(s.into()));
        for (text, service, port) in [
            ("kube-dns", object(None, "kube-dns"), None),
            (
                "kube-system/kube-dns",
                object(Some("kube-system"), "kube-dns"),
                None,
            ),
            (
                "kube-dns:53",
                object(None, "kube-dns"),
                Some(PortRef::Number(53)),
            ),
            ("a/b:dns-tcp", object(Some("a"), "b"), name("dns-tcp")),
        ] {
            assert_eq!(text.parse(), Ok(ServiceRef { service, port }), "{text}");
        }
    }

    #[test]
    fn the_error_of_an_impossible_name_says_what_is_accepted() {
        fn refused<T: FromStr<Err = BadValue> + fmt::Debug>(cases: &[(&str, &str)]) {
            for (text, says) in cases {
                let error = text.parse::<T>().expect_err(text);
                assert!(error.0.contains(says), "{text}: {error}");
            }
        }
        refused::<ServiceRef>(&[
            ("a:", "empty"),
            ("a:0", "1 and 65535"),
            ("a:99999", "1 and 65535"),
            ("a:b:c", "no port"),
            ("/a", "NAMESPACE/NAME"),
            ("a/", "NAMESPACE/NAME"),
            ("a/b/c", "NAMESPACE/NAME"),
            (":53", "NAMESPACE/NAME"),
            ("Kube-DNS", "lower-case"),
            ("-a", "NAMESPACE/NAME"),
            ("10.96.0.10", "--dst"),
            ("10.96.0.10:53", "--dst"),
            ("fd00::1", "--dst"),
        ]);
        refused::<PodName>(&[
            ("10.0.0.1", "--ip"),
            ("a b", "NAMESPACE/NAME"),
            ("a:53", "NAMESPACE/NAME"),
        ]);
        refused::<PartyName>(&[
            ("10.0.0.1:99999", "address:port"),
            ("10.0.0", "not an address"),
            ("10.0.0.1/8", "10.0.0.0/8"),
            ("10.0.0.0/40", "0 to 32"),
            ("fd00::1:x", "address:port"),
            ("A", "lower-case"),
        ]);
        refused::<Namespace>(&[
            ("a/b", "no namespace"),
            ("a.b", "no namespace"),
            ("", "no namespace"),
        ]);
        refused::<VerdictWord>(&[
            ("stal", "did you mean stale?"),
            ("gone", "accepted are stale"),
        ]);
        refused::<ReasonWord>(&[("endpoint-gon", "did you mean endpoint-gone?")]);
    }

    #[test]
    fn a_side_is_a_pod_a_network_or_a_socket() {
        assert_eq!("a/b".parse(), Ok(PartyName::Pod(object(Some("a"), "b"))));
        assert_eq!("web-1".parse(), Ok(PartyName::Pod(object(None, "web-1"))));
        for text in ["10.0.0.1", "10.0.0.0/8", "fd00::1", "fd00::/8"] {
            assert_eq!(
                text.parse(),
                Ok(PartyName::Net(text.parse().unwrap())),
                "{text}"
            );
        }
        for text in ["10.0.0.1:53", "[fd00::1]:53"] {
            assert_eq!(
                text.parse(),
                Ok(PartyName::Socket(text.parse().unwrap())),
                "{text}"
            );
        }
    }

    #[test]
    fn every_verdict_and_reason_word_is_accepted() {
        for verdict in Verdict::ALL {
            assert_eq!(verdict.name().parse(), Ok(VerdictWord(verdict)));
        }
        for reason in Reason::ALL {
            assert_eq!(
                reason.name().replace('-', "_").parse(),
                Ok(ReasonWord(*reason))
            );
        }
    }
}
