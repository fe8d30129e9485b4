//! Head and summary of a JSON document of items.

use std::io;

use serde::Serialize;
use serde_json::{Map, Value};

/// Numbers of a listing. Commands add their own fields to `extra`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// Entries printed.
    pub shown: u64,
    /// Entries read.
    pub scanned: u64,
    /// False if the table changed during the dump, so that rows may be missing or repeated.
    pub consistent: bool,
    /// Messages or lines that could not be read.
    pub unreadable: u64,
    pub cluster: ClusterSummary,
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// Source of names and verdicts.
#[derive(Clone, Debug, Serialize)]
pub struct ClusterSummary {
    /// `api`, `rules`, `file` or `none`.
    pub source: &'static str,
    /// Every kind of object that verdicts need was read completely.
    pub complete: bool,
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Default for ClusterSummary {
    fn default() -> Self {
        ClusterSummary {
            source: "none",
            complete: false,
            extra: Map::new(),
        }
    }
}

const HEAD: &[u8] = b"{\"schema\":\"ctk/v1\",\"items\":[\n";

/// The document of `-o json`, written item by item.
#[derive(Default)]
pub(super) struct JsonDocument {
    begun: bool,
}

impl JsonDocument {
    /// Appends the head, or the separator between two items.
    pub fn before_item(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(if self.begun { b",\n" } else { HEAD });
        self.begun = true;
    }

    /// Appends the end of the items and the summary.
    ///
    /// # Errors
    /// The summary cannot be written as JSON.
    pub fn end(&mut self, summary: &Summary, out: &mut Vec<u8>) -> io::Result<()> {
        out.extend_from_slice(if self.begun { b"" } else { HEAD });
        out.extend_from_slice(b"\n],\"summary\":");
        let summary = serde_json::to_string(summary)?;
        out.extend_from_slice(super::escape::escaped_json(&summary).as_bytes());
        out.extend_from_slice(b"}\n");
        Ok(())
    }
}
