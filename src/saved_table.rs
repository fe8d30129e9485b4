//! Reads entries from the output of `-o jsonl` and `-o json`.
//!
//! The text is a sequence of objects with any indentation. Each is an item, or a document
//! `{"schema":"ctk/v1","items":[...],"summary":...}` with its keys in any order. One item is in memory at a time. This module
//! knows no kernel and no file names.

mod item;

use std::cell::Cell;
use std::fmt;
use std::io::{self, BufReader, Read};
use std::ops::ControlFlow;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, Error, IgnoredAny, IntoDeserializer, MapAccess, SeqAccess,
    Visitor,
};
use serde_json::error::Category;

use ctnetlink::flow::Flow;
pub use item::FieldError;
use item::SavedItem;

/// Value of `schema` in a document.
pub const SCHEMA: &str = "ctk/v1";

/// An entry of a saved table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedEntry {
    pub flow: Flow,
    /// Value of `result`, which the output of a purge has.
    pub result: Option<String>,
    pub position: ItemPosition,
}

/// Position of an item: the line on which it begins, and its number. Both count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemPosition {
    pub line: u64,
    pub item: u64,
}

impl fmt::Display for ItemPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == self.item {
            write!(f, "line {}", self.line)
        } else {
            write!(f, "line {} (item {})", self.line, self.item)
        }
    }
}

/// Error in a text. The items before it are not the whole table.
#[derive(Debug, thiserror::Error)]
pub enum SavedTableError {
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The text is no output of this program.
    #[error("line {line}: {message}")]
    UnknownFormat { line: u64, message: String },
    #[error("line {line}: the text is cut short")]
    Truncated { line: u64 },
    #[error("line {line}: {message}")]
    Syntax { line: u64, message: String },
    #[error("{position}")]
    Item {
        position: ItemPosition,
        source: FieldError,
    },
}

/// Calls `on_item` with every item in order, until it breaks.
///
/// # Errors
/// [`SavedTableError`]; `on_item` was called with the items before the error.
pub fn read(
    reader: &mut dyn Read,
    on_item: &mut dyn FnMut(SavedEntry) -> ControlFlow<()>,
) -> Result<(), SavedTableError> {
    let line = Cell::new(1);
    let lines = LineCounter {
        // A dynamic reader, because the decoder is large and would be compiled for each type of reader. Reads from the
        // buffer make no dynamic call.
        reader: BufReader::new(reader),
        line: &line,
    };
    let mut json = serde_json::Deserializer::from_reader(lines);
    let mut items = ItemReader {
        line: &line,
        items: 0,
        stopped: None,
        on_item,
    };
    loop {
        match json.end() {
            Ok(()) => return Ok(()),
            Err(error) if error.is_io() => return Err(SavedTableError::Io(error.into())),
            Err(_) => {} // more text follows
        }
        let read = json.deserialize_map(TopLevel(&mut items));
        match (items.stopped.take(), read) {
            (Some(StopReason::Enough), _) => return Ok(()),
            (Some(StopReason::Error(error)), _) => return Err(error),
            (None, Ok(())) => {}
            (None, Err(error)) => return Err(items.read_error(error)),
        }
    }
}

/// Counts the lines that the decoder has read.
struct LineCounter<'l, R> {
    reader: R,
    line: &'l Cell<u64>,
}

impl<R: Read> Read for LineCounter<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        let taken = buffer.get(..read).unwrap_or_default();
        let lines = taken.iter().filter(|byte| **byte == b'\n').count();
        self.line.set(self.line.get() + lines as u64);
        Ok(read)
    }
}

/// Reason for stopping before the end of the text. It is kept aside, because errors of serde carry text only.
enum StopReason {
    /// `on_item` broke.
    Enough,
    Error(SavedTableError),
}

/// Reads items and keeps their number.
struct ItemReader<'w> {
    line: &'w Cell<u64>,
    items: u64,
    stopped: Option<StopReason>,
    on_item: &'w mut dyn FnMut(SavedEntry) -> ControlFlow<()>,
}

impl ItemReader<'_> {
    fn stop<E: Error>(&mut self, reason: StopReason) -> E {
        self.stopped = Some(reason);
        E::custom("stopped")
    }

    fn unknown_format<E: Error>(&mut self, line: u64, message: impl fmt::Display) -> E {
        self.stop(StopReason::Error(SavedTableError::UnknownFormat {
            line,
            message: message.to_string(),
        }))
    }

    /// Reads one item, whose opening brace on `line` was read.
    fn item<'de, A: MapAccess<'de>>(&mut self, line: u64, map: A) -> Result<(), A::Error> {
        self.items += 1;
        let position = ItemPosition {
            line,
            item: self.items,
        };
        let item = SavedItem::deserialize(MapAccessDeserializer::new(map))?;
        let (flow, result) = match item.into_flow() {
            Ok(read) => read,
            Err(source) => {
                return Err(self.stop(StopReason::Error(SavedTableError::Item {
                    position,
                    source,
                })));
            }
        };
        let saved = SavedEntry {
            flow,
            result,
            position,
        };
        match (self.on_item)(saved) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(self.stop(StopReason::Enough)),
        }
    }

    /// Converts an error of the decoder. An error before the first item means an unknown format, a later one damage.
    fn read_error(&self, error: serde_json::Error) -> SavedTableError {
        let line = error.line() as u64;
        let text = error.to_string();
        let message = text
            .rsplit_once(" at line ")
            .map_or(text.as_str(), |(message, _)| message)
            .to_owned();
        match error.classify() {
            Category::Io => SavedTableError::Io(error.into()),
            Category::Eof => SavedTableError::Truncated { line },
            Category::Syntax | Category::Data if self.items == 0 => {
                SavedTableError::UnknownFormat { line, message }
            }
            Category::Syntax | Category::Data => SavedTableError::Syntax { line, message },
        }
    }
}

/// Reads an item or a document, which the first key distinguishes.
struct TopLevel<'a, 'w>(&'a mut ItemReader<'w>);

impl<'de> Visitor<'de> for TopLevel<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an item or a document of ctk")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let line = self.0.line.get();
        let first = map.next_key::<String>()?;
        match first.as_deref() {
            Some("schema" | "items" | "summary") => self.document(line, first, map),
            _ => self.0.item(line, WithFirstKey { first, map }),
        }
    }
}

impl TopLevel<'_, '_> {
    fn document<'de, A: MapAccess<'de>>(
        self,
        line: u64,
        mut key: Option<String>,
        mut map: A,
    ) -> Result<(), A::Error> {
        let (mut has_schema, mut has_items) = (false, false);
        while let Some(name) = key {
            match name.as_str() {
                "schema" => {
                    let schema: serde_json::Value = map.next_value()?;
                    if schema != SCHEMA {
                        let message = format!("schema {schema} is not known here, only {SCHEMA:?}");
                        return Err(self.0.unknown_format(line, message));
                    }
                    has_schema = true;
                }
                "items" => {
                    map.next_value_seed(ItemsVisitor(&mut *self.0))?;
                    has_items = true;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            key = map.next_key()?;
        }
        match (has_schema, has_items) {
            (true, true) => Ok(()),
            (false, _) => Err(self.0.unknown_format(line, "a document without a schema")),
            (true, false) => Err(self.0.unknown_format(line, "a document without items")),
        }
    }
}

/// Reads the list `items` of a document.
struct ItemsVisitor<'a, 'w>(&'a mut ItemReader<'w>);

impl<'de> DeserializeSeed<'de> for ItemsVisitor<'_, '_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for ItemsVisitor<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("items in brackets")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(OneItem(&mut *self.0))?.is_some() {}
        Ok(())
    }
}

/// Reads one element of `items`.
struct OneItem<'a, 'w>(&'a mut ItemReader<'w>);

impl<'de> DeserializeSeed<'de> for OneItem<'_, '_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for OneItem<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an item in braces")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        let line = self.0.line.get();
        self.0.item(line, map)
    }
}

/// A map with its first key, which was already read.
struct WithFirstKey<A> {
    first: Option<String>,
    map: A,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for WithFirstKey<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        match self.first.take() {
            Some(first) => seed.deserialize(first.into_deserializer()).map(Some),
            None => self.map.next_key_seed(seed),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}

#[cfg(test)]
mod tests;
