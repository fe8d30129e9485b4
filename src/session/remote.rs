//! The cluster behind `--cluster api` and `--cluster auto`: which source answers, and what is said where none does.

use std::time::Duration;

use crate::error::{CommandError, Status};
use ctk_cluster::connection::{LiveError, Obstacle, Options};
use ctk_cluster::follow::Follower;
use ctk_cluster::listed;
use ctk_cluster::live;
use ctk_cluster::read_scope::{ChoosePods, ReadScope};
use ctk_cluster::rules::read::Read;
use ctk_cluster::source::{ClusterSource, Loaded};
use ctnetlink::netns::Netns;

use crate::query::SourceQuery;
use crate::session::node_rules;
use crate::terminal::messages::note;

/// For all that `--cluster api` reads.
const API_LIMIT: Duration = Duration::from_secs(15);
/// For all that `--cluster auto` reads of the API: nobody asked for it, so nobody should wait long.
const AUTO_LIMIT: Duration = Duration::from_secs(5);

/// What a cluster is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To be looked at.
    Show,
    /// To decide a delete: nothing may come from a cache.
    Delete,
    /// To judge what comes later. One reading of the API is too old for that at once: see [`follow`].
    Follow,
}

/// `--cluster api`.
///
/// # Errors
/// Nothing could be read of it.
pub fn api(
    source: &SourceQuery,
    purpose: Purpose,
    wanted: ReadScope,
) -> Result<Loaded, CommandError> {
    if purpose == Purpose::Follow {
        let error = "watch judges by the API or by the rules, not by both: --cluster api or --cluster rules";
        return Err(CommandError::usage(error).hint(
            "with --cluster api it tells, too, when this node's rules gain or lose an endpoint",
        ));
    }
    // `auto` chose the API, and looks again.
    let limit = match source.cluster {
        ClusterSource::Auto => AUTO_LIMIT,
        _ => API_LIMIT,
    };
    live::load(
        &options(source, purpose, limit),
        wanted,
        &source.service_cidr,
    )
    .map_err(|error| failed(&error))
}

/// `--cluster auto`: the API, which is told, else nothing. Why not is said in any case. Of an API that is not whole nothing is
/// said here: see [`prefer_complete_source`].
///
/// # Errors
/// Only what would be wrong with any source: a Service range that cannot be one.
pub fn auto(
    source: &SourceQuery,
    purpose: Purpose,
    wanted: ReadScope,
    tell: &dyn Fn(&str),
) -> Result<Option<Loaded>, CommandError> {
    if purpose == Purpose::Follow {
        return Ok(None);
    }
    let options = options(source, purpose, AUTO_LIMIT);
    let loaded = live::load(&options, wanted, &source.service_cidr);
    usable(loaded, |loaded| loaded, tell)
}

/// The API for a watch: what was read of it, and what keeps it current. `None` where `--cluster auto` goes on to the next
/// source.
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
        ClusterSource::Auto => usable(start(AUTO_LIMIT), |(_, loaded)| loaded, &|text| note(text)),
        _ => start(API_LIMIT).map(Some).map_err(|error| failed(&error)),
    }
}

/// What `auto` makes of the API: a source, or a word on why not. `loaded`: the part of it that was read.
fn usable<T>(
    read: Result<T, LiveError>,
    loaded: impl Fn(&T) -> &Loaded,
    tell: &dyn Fn(&str),
) -> Result<Option<T>, CommandError> {
    let read = match read {
        Ok(read) => read,
        Err(error) if error.obstacle == Obstacle::ServiceRange => return Err(failed(&error)),
        // Nobody expects a cluster here.
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
    // Else the node's rules have a better word, where there are any.
    if completeness.services && completeness.slices {
        tell("cluster: the API");
    }
    Ok(Some(read))
}

/// What `auto` takes: the API where it can judge or where there is nothing else, else the rules of kube-proxy on this node.
pub fn prefer_complete_source(
    loaded: Option<Loaded>,
    netns: &Netns,
    tell: &dyn Fn(&str),
) -> (Option<Loaded>, Option<Read>) {
    let Some(loaded) = loaded else {
        return (None, node_rules::automatic(netns));
    };
    if loaded.summary.complete {
        return (Some(loaded), None);
    }
    let rules = node_rules::automatic(netns).filter(|read| !read.rules.proxies.is_empty());
    if rules.is_none() {
        tell("cluster: the API");
        return (Some(loaded), None);
    }
    loaded.warnings.iter().for_each(|warning| tell(warning));
    let missing = ["services", "endpointslices"];
    let missing = missing
        .iter()
        .filter(|kind| loaded.summary.missing.contains(*kind));
    let missing: Vec<&str> = missing.copied().collect();
    tell(&format!(
        "cluster: not the API, which lacks {}, so that nothing could be judged by it; pods have no names then \
         (--cluster api shows them)",
        missing.join(" and ")
    ));
    (None, rules)
}

fn options(source: &SourceQuery, purpose: Purpose, limit: Duration) -> Options {
    Options {
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

/// Names or verdicts were asked for, and the API server gives neither Services nor EndpointSlices to this user.
pub fn refused_all(loaded: &Loaded) -> Option<CommandError> {
    let completeness = loaded.index.completeness();
    let counts = &loaded.summary.counts;
    let nothing = counts.services == 0 && counts.endpoint_slices == 0;
    if !nothing || completeness.services || completeness.slices {
        return None;
    }
    let rules = listed::refused(&loaded.listed)?;
    let error = CommandError::new(
        Status::NotPermitted,
        format!(
            "--cluster api: the API server forbids {rules}, so that no name and no verdict is known"
        ),
    );
    Some(error.hint(remedy(loaded)))
}

/// What would make the answer whole.
pub fn remedy(loaded: &Loaded) -> String {
    match listed::refused(&loaded.listed) {
        Some(rules) => format!("grant {rules} to this user or service account, in a ClusterRole"),
        None => "run it again; --request-timeout gives it more time".to_owned(),
    }
}
