//! What stands around the items of a JSON document.

use std::io;

use serde::Serialize;
use serde_json::{Map, Value};

/// What a listing amounts to. Always has these fields; commands add theirs to `extra`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// Entries printed.
    pub shown: u64,
    /// Entries looked at.
    pub scanned: u64,
    /// False when the table changed under the reader so that rows may be missing or doubled.
    pub consistent: bool,
    /// Messages or lines that could not be read.
    pub unreadable: u64,
    pub cluster: ClusterSummary,
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// Where names and verdicts came from.
#[derive(Clone, Debug, Serialize)]
pub struct ClusterSummary {
    /// `api`, `rules`, `file` or `none`.
    pub source: &'static str,
    /// Every kind that verdicts need was read whole.
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

/// `-o json`: one document, written as its items come.
#[derive(Default)]
pub(super) struct JsonDocument {
    begun: bool,
}

impl JsonDocument {
    /// What stands before the next item.
    pub fn before_item(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(if self.begun { b",\n" } else { HEAD });
        self.begun = true;
    }

    /// What follows the last one.
    pub fn end(&mut self, summary: &Summary, out: &mut Vec<u8>) -> io::Result<()> {
        out.extend_from_slice(if self.begun { b"" } else { HEAD });
        out.extend_from_slice(b"\n],\"summary\":");
        serde_json::to_writer(&mut *out, summary)?;
        out.extend_from_slice(b"}\n");
        Ok(())
    }
}
