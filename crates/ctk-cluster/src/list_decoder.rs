//! Decoder of lists as the API and kubectl print them, one item at a time.
//!
//! The text of 50,000 Pods is some 300 MB, of which only one item is held at a time. Its text is taken whole, so that a broken
//! item can be named and skipped. It is decoded into the slim shape and dropped.

use std::cell::Cell;
use std::fmt;
use std::io::Read;

use serde::Deserialize;
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::value::RawValue;

use super::build::Builder;
use super::object::{Header, Item, Kind, Named, Str, text};

/// Reason why a text is no list of objects. `byte` counts from the start of the text.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    #[error("cannot be read: {0}")]
    Read(std::io::Error),
    #[error("is empty")]
    Empty,
    #[error("is cut short at line {line}, column {column} (byte {byte})")]
    Cut {
        line: usize,
        column: usize,
        byte: u64,
    },
    #[error(
        "is not what kubectl prints with `-o json`: {message} at line {line}, column {column} (byte {byte})"
    )]
    Syntax {
        message: String,
        line: usize,
        column: usize,
        byte: u64,
    },
    #[error("holds {kind} where a list with items was expected (it ends at byte {byte})")]
    NotAList { kind: String, byte: u64 },
}

/// Metadata of one page of a list of one kind.
#[derive(Debug, PartialEq, Eq)]
pub struct Page {
    /// Token that requests the next page; `None` after the last one.
    pub token: Option<String>,
    /// Resource version of the list, from which a watch can start.
    pub version: Option<String>,
}

/// Feeds the items of one page to the builder. The caller requests further pages.
///
/// After an error the builder holds the items before it: the kind is incomplete then.
pub fn read_page(reader: impl Read, kind: Kind, builder: &mut Builder) -> Result<Page, ListError> {
    let position = Position::new(MAX_ITEM_BYTES);
    let bounded = Bounded {
        reader,
        position: &position,
    };
    let result = read_document(bounded, &position, kind, builder);
    result.map_err(|problem| problem.at(position.byte.get()))
}

fn read_document(
    reader: impl Read,
    position: &Position,
    kind: Kind,
    builder: &mut Builder,
) -> Result<Page, Problem> {
    let mut json = serde_json::Deserializer::from_reader(reader);
    let list = ListVisitor { builder, position }
        .deserialize(&mut json)
        .map_err(Problem::Json)?;
    json.end().map_err(Problem::Json)?;
    if !list.has_items || list.kind() != Some(kind) {
        return Err(list.not_expected());
    }
    Ok(Page {
        token: list.token,
        version: list.version,
    })
}

/// Feeds every item of every list in `reader` to the builder. Lists may follow each other (`cat services.json pods.json`).
///
/// After an error the text as a whole is not trustworthy: the content of the builder must not be used.
pub fn read(reader: impl Read, builder: &mut Builder) -> Result<(), ListError> {
    read_with(reader, builder, MAX_ITEM_BYTES)
}

fn read_with(
    reader: impl Read,
    builder: &mut Builder,
    max_item_bytes: u64,
) -> Result<(), ListError> {
    let position = Position::new(max_item_bytes);
    let bounded = Bounded {
        reader,
        position: &position,
    };
    let result = read_documents(bounded, &position, builder);
    result.map_err(|problem| problem.at(position.byte.get()))
}

enum Problem {
    Empty,
    NotAList(String),
    Json(serde_json::Error),
}

impl Problem {
    fn at(self, byte: u64) -> ListError {
        match self {
            Problem::Empty => ListError::Empty,
            Problem::NotAList(kind) => ListError::NotAList { kind, byte },
            Problem::Json(error) => placed(error, byte),
        }
    }
}

fn read_documents(
    reader: impl Read,
    position: &Position,
    builder: &mut Builder,
) -> Result<(), Problem> {
    let mut json = serde_json::Deserializer::from_reader(reader);
    let mut documents = 0usize;
    loop {
        match json.end() {
            Ok(()) if documents == 0 => return Err(Problem::Empty),
            Ok(()) => return Ok(()),
            Err(error) if error.is_io() => return Err(Problem::Json(error)),
            Err(_) => {} // more text follows: the next document
        }
        let document = ListVisitor { builder, position };
        let list = document.deserialize(&mut json).map_err(Problem::Json)?;
        if !list.has_items {
            return Err(list.not_expected());
        }
        if list.token.is_some() {
            builder.more_pages(list.kind());
        }
        documents += 1;
    }
}

fn placed(error: serde_json::Error, byte: u64) -> ListError {
    let (line, column) = (error.line(), error.column());
    match error.classify() {
        serde_json::error::Category::Io => ListError::Read(error.into()),
        serde_json::error::Category::Eof => ListError::Cut { line, column, byte },
        _ => ListError::Syntax {
            message: without_place(&error),
            line,
            column,
            byte,
        },
    }
}

/// Removes " at line 1 column 2" of serde_json from a message: inside an item it counts from the start of the item, which
/// does not locate the error.
fn without_place(error: &serde_json::Error) -> String {
    let message = error.to_string();
    match message.rsplit_once(" at line ") {
        Some((message, _)) => message.to_owned(),
        None => message,
    }
}

/// Largest size of one item, in bytes. The API server takes objects of about 1.5 MiB (etcd's limit of a request).
const MAX_ITEM_BYTES: u64 = 32 << 20;
/// Largest number of items of one source.
const MAX_ITEMS: usize = 2_000_000;

/// Largest number of items that wait for the kind of their list.
const MAX_KINDLESS_ITEMS: usize = 200_000;

/// Position in a text.
struct Position {
    max_item_bytes: u64,
    /// Number of bytes that the decoder has taken. It knows lines and columns only.
    byte: Cell<u64>,
    /// Position at which the last item ended.
    item: Cell<u64>,
}

impl Position {
    fn new(max_item_bytes: u64) -> Self {
        Position {
            max_item_bytes,
            byte: Cell::new(0),
            item: Cell::new(0),
        }
    }

    fn end_of_item(&self) {
        self.item.set(self.byte.get());
    }
}

/// Reader that counts bytes, and ends in an item that is too large: memory holds one item.
struct Bounded<'p, R> {
    reader: R,
    position: &'p Position,
}

impl<R: Read> Read for Bounded<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let Position {
            max_item_bytes,
            byte,
            item,
        } = self.position;
        if byte.get() - item.get() > *max_item_bytes {
            let message = format!("an item is larger than {} MiB", max_item_bytes >> 20);
            return Err(std::io::Error::other(message));
        }
        let read = self.reader.read(buffer)?;
        byte.set(byte.get() + read as u64);
        Ok(read)
    }
}

/// Metadata of a list. It is certain only at the end of the list: kubectl prints `kind` after `items`.
#[derive(Default)]
struct ListHead {
    kind: Option<String>,
    api_version: Option<String>,
    has_items: bool,
    /// Token that requests the next page, if any.
    token: Option<String>,
    version: Option<String>,
}

impl ListHead {
    /// Kind of the items: `ServiceList` holds items of kind `Service`; a plain `List` has none.
    fn item_kind(&self) -> Option<&str> {
        let kind = self.kind.as_deref()?.strip_suffix("List")?;
        (!kind.is_empty()).then_some(kind)
    }

    fn kind(&self) -> Option<Kind> {
        Kind::of(self.item_kind()?, self.api_version.as_deref())
    }

    fn not_expected(self) -> Problem {
        let kind = self.kind.unwrap_or_else(|| "an object of no kind".into());
        Problem::NotAList(kind)
    }
}

#[derive(Deserialize)]
struct ListMetadata<'a> {
    #[serde(borrow, rename = "continue")]
    token: Option<Str<'a>>,
    #[serde(borrow, rename = "resourceVersion")]
    version: Option<Str<'a>>,
}

struct ListVisitor<'b> {
    builder: &'b mut Builder,
    position: &'b Position,
}

impl<'de> DeserializeSeed<'de> for ListVisitor<'_> {
    type Value = ListHead;
    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<ListHead, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ListVisitor<'_> {
    type Value = ListHead;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a list of Kubernetes objects")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ListHead, A::Error> {
        let mut head = ListHead::default();
        let mut kindless = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "kind" => head.kind = map.next_value()?,
                "apiVersion" => head.api_version = map.next_value()?,
                "metadata" => {
                    let raw: Box<RawValue> = map.next_value()?;
                    let metadata = serde_json::from_str::<ListMetadata>(raw.get());
                    if let Ok(metadata) = metadata {
                        head.token = text(&metadata.token).map(str::to_owned);
                        head.version = text(&metadata.version).map(str::to_owned);
                    }
                }
                "items" => {
                    head.has_items = true;
                    map.next_value_seed(ItemsVisitor {
                        builder: self.builder,
                        position: self.position,
                        head: &head,
                        kindless: &mut kindless,
                    })?;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        for item in &kindless {
            feed(item, &head, self.builder, None);
        }
        Ok(head)
    }
}

struct ItemsVisitor<'b> {
    builder: &'b mut Builder,
    position: &'b Position,
    head: &'b ListHead,
    /// Items without a kind, in their slim shape, kept until the kind of the list is known.
    kindless: &'b mut Vec<Box<str>>,
}

impl<'de> DeserializeSeed<'de> for ItemsVisitor<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ItemsVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("items in brackets")
    }

    /// Go prints an empty list as null.
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        // Items are kept only while the kind of the list is unknown.
        let mut kindless = self.head.kind.is_none().then_some(self.kindless);
        while let Some(raw) = items.next_element::<Box<RawValue>>()? {
            self.position.end_of_item();
            let waiting = kindless.as_ref().map_or(0, |kindless| kindless.len());
            if waiting > MAX_KINDLESS_ITEMS {
                return Err(A::Error::custom(
                    "the items have no kind, and nor has their list so far",
                ));
            }
            if self.builder.items() >= MAX_ITEMS {
                return Err(A::Error::custom(format_args!(
                    "the source has more than {MAX_ITEMS} items"
                )));
            }
            feed(raw.get(), self.head, self.builder, kindless.as_deref_mut());
        }
        Ok(())
    }
}

/// Passes one item to the builder, or notes why not. An item without a kind goes to `kindless`, if given.
fn feed(raw: &str, head: &ListHead, builder: &mut Builder, kindless: Option<&mut Vec<Box<str>>>) {
    let list = (head.item_kind(), head.api_version.as_deref());
    let error = match serde_json::from_str::<Item>(raw) {
        Ok(item) => match kind_of(text(&item.kind), text(&item.api_version), list) {
            ItemKind::Known(kind) => return builder.add(kind, &item),
            ItemKind::Other => return builder.skip(),
            ItemKind::Nothing => match (kindless, serde_json::to_string(&item)) {
                (Some(kindless), Ok(slim)) => return kindless.push(slim.into_boxed_str()),
                _ => "it has no kind".to_owned(),
            },
        },
        Err(error) => without_place(&error),
    };
    let header = serde_json::from_str::<Header>(raw).ok();
    let kind = match &header {
        Some(header) => kind_of(text(&header.kind), text(&header.api_version), list),
        // The item is no object: only the kind of its list is known.
        None => kind_of(None, None, list),
    };
    let metadata = header.as_ref().and_then(|header| header.metadata);
    let named = metadata.and_then(|raw| serde_json::from_str::<Named>(raw.get()).ok());
    let name = named.as_ref().and_then(|named| text(&named.name));
    let namespace = named.as_ref().and_then(|named| text(&named.namespace));
    match kind {
        ItemKind::Known(kind) => builder.broken(Some(kind), namespace, name, &error),
        ItemKind::Other => builder.skip(),
        ItemKind::Nothing => builder.broken(None, namespace, name, &error),
    }
}

enum ItemKind {
    Known(Kind),
    /// A kind that this crate does not read.
    Other,
    Nothing,
}

/// Kind of the item, else the kind of its list.
fn kind_of(
    kind: Option<&str>,
    api_version: Option<&str>,
    list: (Option<&str>, Option<&str>),
) -> ItemKind {
    let (kind, api_version) = match (kind, list) {
        (Some(kind), _) => (kind, api_version),
        (None, (Some(kind), of_list)) => (kind, api_version.or(of_list)),
        (None, (None, _)) => return ItemKind::Nothing,
    };
    Kind::of(kind, api_version).map_or(ItemKind::Other, ItemKind::Known)
}

#[cfg(test)]
mod tests {
    use std::io::{self, Chain, Cursor, Repeat};

    use super::*;

    /// A text that goes on with `byte` for ever.
    fn endless(text: &str, byte: u8) -> Chain<Cursor<Vec<u8>>, Repeat> {
        Cursor::new(text.as_bytes().to_vec()).chain(io::repeat(byte))
    }

    #[test]
    fn a_text_without_an_end_is_an_error_before_it_fills_the_memory() {
        for (text, byte) in [
            ("{\"kind\":\"", b'a'),
            (
                "{\"kind\":\"PodList\",\"items\":[{\"metadata\":{\"name\":\"",
                b'a',
            ),
            ("{\"kind\":\"PodList\",\"items\":[{\"a\":", b'['),
            ("{\"kind\":\"PodList\",\"items\":[", b' '),
            ("{\"unknown\":", b' '),
        ] {
            let mut builder = Builder::default();
            let error = read_with(endless(text, byte), &mut builder, 1 << 20).unwrap_err();
            let message = error.to_string();
            assert!(
                message.contains("larger than 1 MiB") || message.contains("recursion limit"),
                "{text}: {message}"
            );
        }
    }

    #[test]
    fn many_items_of_ordinary_size_are_not_taken_for_a_large_one() {
        let name = "n".repeat(1 << 16);
        let item = format!("{{\"kind\":\"Pod\",\"metadata\":{{\"name\":\"{name}\"}}}}");
        let items = vec![item; 40].join(",");
        let mut builder = Builder::default();
        let text = format!("{{\"items\":[{items}]}}");
        read_with(text.as_bytes(), &mut builder, 1 << 17).unwrap();
        assert_eq!(builder.items(), 40);
    }
}
