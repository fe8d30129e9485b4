//! Choice of the cluster source: the API for `--cluster api`, the first source that can judge for `--cluster auto`.

use std::time::Duration;

use crate::error::{CommandError, ExitStatus};
use ctk_cluster::connection::{ConnectionOptions, LiveError, Obstacle};
use ctk_cluster::follow::Follower;
use ctk_cluster::list_status;
use ctk_cluster::live;
use ctk_cluster::read_scope::{ChoosePods, ReadScope};
use ctk_cluster::rules::read::Read;
use ctk_cluster::source::{ClusterSource, Loaded};

use crate::query::SourceQuery;
use crate::terminal::messages::note;

/// Longest time for reading the API with `--cluster api`.
const API_TIMEOUT: Duration = Duration::from_secs(15);
/// Longest time for reading the API with `--cluster auto`. It is shorter, because the user did not name the API.
const AUTO_TIMEOUT: Duration = Duration::from_secs(5);

/// Purpose of reading a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Showing names and verdicts.
    Show,
    /// Deciding on deletes: nothing may come from a cache of the API server.
    Delete,
    /// Judging later entries. One reading of the API is outdated at once: see [`follow`].
    Follow,
}

/// Reads the API, for `--cluster api`.
///
/// # Errors
/// Nothing could be read.
pub fn api(
    source: &SourceQuery,
    purpose: Purpose,
    wanted: ReadScope,
) -> Result<Loaded, CommandError> {
    if purpose == Purpose::Follow {
        let error = "watch judges by the API or by the rules, not by both: --cluster api or --cluster rules";
        return Err(CommandError::usage(error).hint(
            "with --cluster api it also shows when this node's rules gain or lose an endpoint",
        ));
    }
    // `auto` chose the API in the first reading.
    let limit = match source.cluster {
        ClusterSource::Auto => AUTO_TIMEOUT,
        _ => API_TIMEOUT,
    };
    live::load(
        &options(source, purpose, limit),
        wanted,
        &source.service_cidr,
    )
    .map_err(|error| failed(&error))
}

/// Reads the API for `--cluster auto`. `None` where it cannot be used, with a note on the reason. An incomplete API is left to
/// [`prefer_complete_source`].
///
/// # Errors
/// A Service range that is invalid for any source.
pub fn auto(
    source: &SourceQuery,
    purpose: Purpose,
    wanted: ReadScope,
    tell: &dyn Fn(&str),
) -> Result<Option<Loaded>, CommandError> {
    if purpose == Purpose::Follow {
        return Ok(None);
    }
    let options = options(source, purpose, AUTO_TIMEOUT);
    let loaded = live::load(&options, wanted, &source.service_cidr);
    usable(loaded, |loaded| loaded, tell)
}

/// The API for a watch: its first state, and the follower that keeps it current. `None` where `--cluster auto` goes on to the
/// next source.
///
/// # Errors
/// As [`api`] and [`auto`].
pub fn follow(
    source: &SourceQuery,
    pods: Option<ChoosePods>,
) -> Result<Option<(Follower, Loaded)>, CommandError> {
    let start = |limit| {
        let options = options(source, Purpose::Follow, limit);
        Follower::start(&options, pods, &source.service_cidr)
    };
    match source.cluster {
        ClusterSource::Auto => usable(start(AUTO_TIMEOUT), |(_, loaded)| loaded, &|text| {
            note(text)
        }),
        _ => start(API_TIMEOUT).map(Some).map_err(|error| failed(&error)),
    }
}

/// The API as a source of `auto`. `None`, with a note on the reason, where it cannot be one. `loaded`: the part of `read` that
/// holds the objects.
fn usable<T>(
    read: Result<T, LiveError>,
    loaded: impl Fn(&T) -> &Loaded,
    tell: &dyn Fn(&str),
) -> Result<Option<T>, CommandError> {
    let read = match read {
        Ok(read) => read,
        Err(error) if error.obstacle == Obstacle::ServiceRange => return Err(failed(&error)),
        // Without a kubeconfig no cluster is expected.
        Err(error) if error.obstacle == Obstacle::NoConfig => return Ok(None),
        Err(error) => {
            note(format!("cluster: not the API: {error}"));
            if let Some(hint) = error.hint {
                note(format!("hint: {hint}"));
            }
            return Ok(None);
        }
    };
    let loaded = loaded(&read);
    let completeness = loaded.index.completeness();
    if !completeness.services && !completeness.slices {
        loaded.warnings.iter().for_each(note);
        note("cluster: not the API: neither Services nor EndpointSlices could be read");
        return Ok(None);
    }
    // Otherwise the node's rules may be the better source.
    if completeness.services && completeness.slices {
        tell("cluster: the API");
    }
    Ok(Some(read))
}

/// Objects that `auto` takes: those of the API where they are complete or `rules` has none of kube-proxy, else none, so that
/// the rules are the source.
pub fn prefer_complete_source(
    loaded: Option<Loaded>,
    rules: Option<&Read>,
    tell: &dyn Fn(&str),
) -> Option<Loaded> {
    let loaded = loaded?;
    if loaded.summary.complete {
        return Some(loaded);
    }
    if rules.is_none_or(|read| read.rules.proxies.is_empty()) {
        tell("cluster: the API");
        return Some(loaded);
    }
    loaded.warnings.iter().for_each(|warning| tell(warning));
    let missing = ["services", "endpointslices"];
    let missing = missing
        .iter()
        .filter(|kind| loaded.summary.missing.contains(*kind));
    let missing: Vec<&str> = missing.copied().collect();
    tell(&format!(
        "cluster: not the API, which lacks {}, so that nothing could be judged by it; pods have no names \
         (--cluster api shows them)",
        missing.join(" and ")
    ));
    None
}

fn options(source: &SourceQuery, purpose: Purpose, limit: Duration) -> ConnectionOptions {
    ConnectionOptions {
        kubeconfig: source.kubeconfig.clone(),
        context: source.context.clone(),
        connect_limit: source.connect_timeout,
        limit: source.request_timeout.unwrap_or(limit),
        consistent: purpose == Purpose::Delete,
        may_ask: true,
    }
}

fn failed(error: &LiveError) -> CommandError {
    let failed = match error.obstacle {
        Obstacle::ServiceRange => CommandError::usage(error),
        _ => CommandError::failed(format!("--cluster api: {error}")),
    };
    match &error.hint {
        Some(hint) => failed.hint(hint),
        None => failed,
    }
}

/// Error where names or verdicts are asked for and the API server forbids both Services and EndpointSlices.
pub fn refused_all(loaded: &Loaded) -> Option<CommandError> {
    let completeness = loaded.index.completeness();
    let counts = &loaded.summary.counts;
    let nothing = counts.services == 0 && counts.endpoint_slices == 0;
    if !nothing || completeness.services || completeness.slices {
        return None;
    }
    let rules = list_status::refused(&loaded.listed)?;
    let error = CommandError::new(
        ExitStatus::NotPermitted,
        format!(
            "--cluster api: the API server forbids {rules}, so that no name and no verdict is known"
        ),
    );
    Some(error.hint(remedy(loaded)))
}

/// Hint on how to complete the answer.
pub fn remedy(loaded: &Loaded) -> String {
    match list_status::refused(&loaded.listed) {
        Some(rules) => format!("grant {rules} to this user or service account, in a ClusterRole"),
        None => "run it again; --request-timeout gives it more time".to_owned(),
    }
}
