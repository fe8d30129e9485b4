//! Lines of a watch, one event each, as the API server sends them.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::object::{Item, Kind, Metadata, Str, text};

/// Longest accepted line in bytes: etcd takes objects of some 1.5 MB.
const MAX_LINE: usize = 16 << 20;

/// One event.
#[derive(Debug)]
pub enum Event<'a> {
    /// Current state of an object, new or changed.
    Is(Box<Item<'a>>, &'a str),
    Gone(Box<Item<'a>>, &'a str),
    /// Every change up to this version was sent.
    Bookmark(&'a str),
    /// The requested version is no longer available: the list must be read again.
    Expired,
    /// The stream ends with an error of the server, by its code.
    Error(Option<u16>),
}

/// A line that is no event. The error holds no part of it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a line of the stream is no event")]
pub struct Malformed;

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow, rename = "type")]
    kind: Str<'a>,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct ErrorStatus {
    code: Option<u16>,
    reason: Option<String>,
}

/// Only its version is used.
#[derive(Deserialize)]
struct Versioned<'a> {
    #[serde(borrow)]
    metadata: VersionOnly<'a>,
}

#[derive(Deserialize)]
struct VersionOnly<'a> {
    /// Digits, so that the text holds no escapes.
    #[serde(rename = "resourceVersion")]
    version: &'a str,
}

/// Parses one line of a watch for `kind`.
///
/// # Errors
/// The line is no event.
pub fn event(line: &[u8], kind: Kind) -> Result<Event<'_>, Malformed> {
    let line: Line<'_> = serde_json::from_slice(line).map_err(|_| Malformed)?;
    let raw = line.object.get();
    match &*line.kind {
        "ADDED" | "MODIFIED" => item(raw, kind).map(|(item, version)| Event::Is(item, version)),
        "DELETED" => item(raw, kind).map(|(item, version)| Event::Gone(item, version)),
        "BOOKMARK" => version(raw).map(Event::Bookmark),
        "ERROR" => {
            let status: ErrorStatus = serde_json::from_str(raw).map_err(|_| Malformed)?;
            let expired = matches!(status.reason.as_deref(), Some("Expired" | "Gone"));
            Ok(match status.code {
                Some(410) => Event::Expired,
                _ if expired => Event::Expired,
                code => Event::Error(code),
            })
        }
        _ => Err(Malformed),
    }
}

fn version(raw: &str) -> Result<&str, Malformed> {
    let object: Versioned<'_> = serde_json::from_str(raw).map_err(|_| Malformed)?;
    match object.metadata.version {
        "" => Err(Malformed),
        version => Ok(version),
    }
}

fn item(raw: &str, kind: Kind) -> Result<(Box<Item<'_>>, &str), Malformed> {
    let item: Item<'_> = serde_json::from_str(raw).map_err(|_| Malformed)?;
    let said = text(&item.kind).map(|said| Kind::of(said, text(&item.api_version)));
    let named = |metadata: &Metadata<'_>| text(&metadata.name).is_some();
    if said.is_some_and(|said| said != Some(kind)) || !item.metadata.as_ref().is_some_and(named) {
        return Err(Malformed);
    }
    Ok((Box::new(item), version(raw)?))
}

/// Buffer that turns received bytes into lines.
#[derive(Debug, Default)]
pub struct Lines {
    bytes: Vec<u8>,
    /// The bytes before this position hold no line end.
    scanned: usize,
    /// The bytes before this position were returned.
    taken: usize,
}

impl Lines {
    pub fn push(&mut self, bytes: &[u8]) {
        if self.taken > 0 {
            self.bytes.drain(..self.taken);
            self.scanned -= self.taken;
            self.taken = 0;
        }
        self.bytes.extend_from_slice(bytes);
        if self.bytes.capacity() > (1 << 20) && self.bytes.len() < (1 << 16) {
            self.bytes.shrink_to(1 << 16);
        }
    }

    /// Returns the next complete line that is not empty.
    ///
    /// # Errors
    /// More than the longest line was received without an end.
    pub fn next(&mut self) -> Result<Option<&[u8]>, Malformed> {
        loop {
            let from = self.bytes.get(self.scanned..).unwrap_or_default();
            let Some(length) = from.iter().position(|byte| *byte == b'\n') else {
                self.scanned = self.bytes.len();
                return match self.bytes.len() - self.taken > MAX_LINE {
                    true => Err(Malformed),
                    false => Ok(None),
                };
            };
            let (begin, end) = (self.taken, self.scanned + length);
            (self.taken, self.scanned) = (end + 1, end + 1);
            let line = self.bytes.get(begin..end).unwrap_or_default();
            if !line.trim_ascii().is_empty() {
                return Ok(self.bytes.get(begin..end));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(line: &str) -> String {
        match event(line.as_bytes(), Kind::Service) {
            Ok(Event::Is(item, version)) => {
                let metadata = item.metadata.unwrap();
                format!("is {} {version}", &*metadata.name.unwrap())
            }
            Ok(Event::Gone(_, version)) => format!("gone {version}"),
            Ok(Event::Bookmark(version)) => format!("bookmark {version}"),
            Ok(Event::Expired) => "expired".to_owned(),
            Ok(Event::Error(code)) => format!("error {code:?}"),
            Err(Malformed) => "malformed".to_owned(),
        }
    }

    #[test]
    fn every_line_is_parsed_or_refused() {
        let object =
            r#"{"kind":"Service","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"7"}}"#;
        let other =
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"7"}}"#;
        for (line, expected) in [
            (format!(r#"{{"type":"ADDED","object":{object}}}"#), "is a 7"),
            (format!(r#"{{"object":{object},"type":"MODIFIED"}}"#), "is a 7"),
            (format!(r#"{{"type":"DELETED","object":{object}}}"#), "gone 7"),
            (
                r#"{"type":"BOOKMARK","object":{"kind":"Service","metadata":{"resourceVersion":"9"}}}"#.into(),
                "bookmark 9",
            ),
            (
                r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}"#.into(),
                "expired",
            ),
            (
                r#"{"type":"ERROR","object":{"kind":"Status","reason":"Gone"}}"#.into(),
                "expired",
            ),
            (
                r#"{"type":"ERROR","object":{"kind":"Status","code":500,"message":"etcd"}}"#.into(),
                "error Some(500)",
            ),
            (format!(r#"{{"type":"ADDED","object":{other}}}"#), "malformed"),
            (r#"{"type":"ADDED","object":{"metadata":{"name":"a"}}}"#.into(), "malformed"),
            (r#"{"type":"ADDED","object":{"metadata":{"resourceVersion":"7"}}}"#.into(), "malformed"),
            (r#"{"type":"BOOKMARK","object":{"metadata":{}}}"#.into(), "malformed"),
            (r#"{"type":"LATER","object":{}}"#.into(), "malformed"),
            (r#"{"type":"ADDED","object":{"metadata":"#.into(), "malformed"),
            ("\u{0}".into(), "malformed"),
        ] {
            assert_eq!(told(&line), expected, "{line}");
        }
    }

    #[test]
    fn lines_do_not_depend_on_the_chunks_of_bytes() {
        let text = b"{\"a\":1}\n\n{\"b\":2}\r\nhalf";
        for size in 1..text.len() {
            let (mut lines, mut found) = (Lines::default(), Vec::new());
            for piece in text.chunks(size) {
                lines.push(piece);
                while let Some(line) = lines.next().unwrap() {
                    found.push(String::from_utf8(line.trim_ascii().to_vec()).unwrap());
                }
            }
            assert_eq!(found, ["{\"a\":1}", "{\"b\":2}"], "{size} bytes at a time");
        }
        let mut lines = Lines::default();
        lines.push(&vec![b' '; MAX_LINE + 1]);
        assert_eq!(lines.next(), Err(Malformed));
    }
}
