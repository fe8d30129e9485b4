//! Source that the cluster is read from, and its completeness.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{BufReader, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ipnet::IpNet;
use serde::Serialize;

use super::build::{Builder, Built, NotAServiceRange, ObjectCounts};
use super::index::{Completeness, Index};
use super::list_decoder::{self, ListError};
use super::list_status::Listed;
use super::object::Kind;

/// Value of `--cluster`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterSource {
    /// The API, else the rules of the node, else nothing.
    Auto,
    None,
    Api,
    /// The rules of this node, or a saved rule set.
    Rules(Option<PathBuf>),
    /// Objects of the API, a file or standard input, cross-checked with the rules of this node.
    WithRules(Box<ClusterSource>),
    /// Output of kubectl in a file.
    File(PathBuf),
    Stdin,
}

/// Reason why no cluster is available for comparison.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    #[error("--cluster needs auto, none, api, rules, api,rules, a file, or - for standard input")]
    NoName,
    #[error("--cluster SOURCE,rules needs api, a file, or - for standard input as SOURCE")]
    NoObjects,
    #[error("cannot open {path}")]
    Open {
        path: PathBuf,
        #[source]
        error: std::io::Error,
    },
    #[error("{what} {error}")]
    List {
        /// The file's path, or "standard input".
        what: String,
        error: ListError,
    },
    #[error(transparent)]
    ServiceRange(#[from] NotAServiceRange),
}

impl ClusterSource {
    /// Parses the value of the flag. Every value that is no keyword is a file: `./auto` names a file called `auto`.
    pub fn parse(value: &OsStr) -> Result<Self, ClusterError> {
        let Some(word) = value.to_str() else {
            return Ok(ClusterSource::File(value.into()));
        };
        Ok(match word {
            "" | "rules:" => return Err(ClusterError::NoName),
            "auto" => ClusterSource::Auto,
            "none" => ClusterSource::None,
            "api" => ClusterSource::Api,
            "rules" => ClusterSource::Rules(None),
            "-" => ClusterSource::Stdin,
            _ => match word.strip_prefix("rules:") {
                Some(file) => ClusterSource::Rules(Some(file.into())),
                None => {
                    Self::parse_pair(word)?.unwrap_or_else(|| ClusterSource::File(value.into()))
                }
            },
        })
    }

    /// Parses `SOURCE,rules` and `rules,SOURCE`. `None` for a word without `rules`.
    fn parse_pair(word: &str) -> Result<Option<Self>, ClusterError> {
        let pair = word
            .strip_suffix(",rules")
            .or_else(|| word.strip_prefix("rules,"));
        let Some(objects) = pair else {
            return Ok(None);
        };
        match Self::parse(OsStr::new(objects))? {
            objects @ (ClusterSource::Api | ClusterSource::File(_) | ClusterSource::Stdin) => {
                Ok(Some(ClusterSource::WithRules(Box::new(objects))))
            }
            _ => Err(ClusterError::NoObjects),
        }
    }

    /// The source of objects, without the rules that they are cross-checked with.
    pub fn objects(&self) -> &Self {
        match self {
            ClusterSource::WithRules(objects) => objects,
            other => other,
        }
    }

    /// Reads objects from a file or standard input. Returns `None` for every other source. `service_ranges` is `--service-cidr`.
    pub fn load(&self, service_ranges: &[IpNet]) -> Result<Option<Loaded>, ClusterError> {
        match self {
            ClusterSource::None => Ok(None),
            ClusterSource::File(path) => load_file(path, service_ranges).map(Some),
            ClusterSource::Stdin => {
                let source = Source {
                    kind: SourceKind::Stdin,
                    time: stdin_time(),
                    path: None,
                };
                load(std::io::stdin().lock(), source, service_ranges).map(Some)
            }
            // Rules hold no objects (see `rules::read`), and `live` reads the API.
            ClusterSource::Auto | ClusterSource::Rules(_) | ClusterSource::Api => Ok(None),
            ClusterSource::WithRules(objects) => objects.load(service_ranges),
        }
    }
}

/// Kind of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    File,
    /// Standard input, or a file that is a pipe (`--cluster <(kubectl ...)`). It can be read only once.
    Stdin,
    /// The API server, asked directly or through kubectl.
    Api,
}

impl SourceKind {
    /// Value of `summary.cluster.source` in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            SourceKind::File | SourceKind::Stdin => "file",
            SourceKind::Api => "api",
        }
    }
}

/// Source of a reading, and the age of its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    pub kind: SourceKind,
    /// Upper bound of the age of the data: the modification time of the file before it was read, or the start of the reading.
    pub time: SystemTime,
    /// Path of the file; `None` for standard input.
    pub path: Option<PathBuf>,
}

/// Cluster as read from one source.
#[derive(Debug)]
pub struct Loaded {
    pub index: Index,
    /// Notes for stderr, one line each.
    pub warnings: Vec<String>,
    pub source: Source,
    pub summary: SourceSummary,
    /// Status of each list of a live cluster; empty for other sources.
    pub listed: Vec<Listed>,
}

impl Loaded {
    /// Builds the index from the objects that `builder` collected from `source`.
    ///
    /// # Errors
    /// A Service range given on the command line holds an address of a Node or Pod.
    pub fn build(builder: Builder, source: Source) -> Result<Self, NotAServiceRange> {
        Ok(Loaded::of(builder.finish()?, source))
    }

    /// Wraps the result of a builder that was fed from `source`.
    pub fn of(built: Built, source: Source) -> Self {
        let Built {
            index,
            counts,
            warnings,
        } = built;
        Loaded {
            summary: SourceSummary::new(&source, index.completeness(), counts),
            index,
            warnings,
            source,
            listed: Vec::new(),
        }
    }

    /// Takes Nodes, Pods and Service ranges, which this reading left out, from an earlier one.
    pub(super) fn keep(&mut self, first: Loaded) {
        // Services and slices may have been read for a few destinations only: the earlier count describes the cluster better.
        let (few_services, few_slices) = (
            self.index.services_are_chosen(),
            self.index.slices_are_chosen(),
        );
        self.index.keep(first.index);
        let (before, now) = (first.summary.counts, self.summary.counts);
        let counts = ObjectCounts {
            services: if few_services {
                before.services
            } else {
                now.services
            },
            endpoint_slices: if few_slices {
                before.endpoint_slices
            } else {
                now.endpoint_slices
            },
            pods: before.pods,
            nodes: before.nodes,
            service_cidrs: before.service_cidrs,
            ..now
        };
        self.summary = SourceSummary::new(&self.source, self.index.completeness(), counts);
        let is_new = |kind| self.listed.iter().any(|one: &Listed| one.kind == kind);
        let kept: Vec<Listed> = first
            .listed
            .into_iter()
            .filter(|one| !is_new(one.kind))
            .collect();
        self.listed.extend(kept);
    }
}

/// Content of `summary.cluster` in JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourceSummary {
    pub source: &'static str,
    /// Services and EndpointSlices are complete, so that verdicts are possible. `missing` names other gaps.
    pub complete: bool,
    /// Missing or incomplete resources, by the names that `kubectl get` uses.
    pub missing: Vec<&'static str>,
    pub counts: ObjectCounts,
}

impl SourceSummary {
    fn new(source: &Source, completeness: &Completeness, counts: ObjectCounts) -> Self {
        let whole = |kind: &Kind| match kind {
            Kind::Service => completeness.services,
            Kind::EndpointSlice => completeness.slices,
            Kind::Pod => completeness.pods,
            Kind::Node => completeness.nodes,
            Kind::ServiceCidr => completeness.service_cidrs,
        };
        let missing = Kind::ALL.iter().filter(|kind| !whole(kind));
        SourceSummary {
            source: source.kind.name(),
            complete: completeness.services && completeness.slices,
            missing: missing.map(|kind| kind.resource()).collect(),
            counts,
        }
    }
}

/// Time of the objects on standard input: the last change of a file that is redirected to it, else now.
fn stdin_time() -> SystemTime {
    let file = std::io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .map(File::from);
    let metadata = file.and_then(|file| file.metadata());
    let modified = metadata.ok().filter(Metadata::is_file);
    let modified = modified.and_then(|metadata| metadata.modified().ok());
    modified.unwrap_or_else(SystemTime::now)
}

fn load_file(path: &Path, service_ranges: &[IpNet]) -> Result<Loaded, ClusterError> {
    let failed = |error| ClusterError::Open {
        path: path.to_owned(),
        error,
    };
    let began = SystemTime::now();
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let (kind, time) = if metadata.is_file() {
        // Taken from the open file, so that the time belongs to the data that is read.
        (SourceKind::File, metadata.modified().map_err(failed)?)
    } else {
        (SourceKind::Stdin, began)
    };
    let source = Source {
        kind,
        time,
        path: Some(path.to_owned()),
    };
    load(file, source, service_ranges)
}

/// Reads objects from `reader`, the content of `source`. Holds the text of one item and the index in memory.
pub fn load(
    reader: impl Read,
    source: Source,
    service_ranges: &[IpNet],
) -> Result<Loaded, ClusterError> {
    let mut builder = Builder::new(service_ranges);
    let reader = BufReader::with_capacity(64 * 1024, reader);
    list_decoder::read(reader, &mut builder).map_err(|error| ClusterError::List {
        what: match &source.path {
            Some(path) => path.display().to_string(),
            None => "standard input".to_owned(),
        },
        error,
    })?;
    Ok(Loaded::build(builder, source)?)
}

#[cfg(test)]
mod tests;
