//! The cluster behind the flags that were typed: what was read of it, the node that the table belongs to, and what the
//! summary says of both.

use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::error::{CommandError, Status};
use crate::output::ClusterSummary;
use crate::select::Directory;
use crate::this_node::ThisNode;
use ctk_cluster::datapath::Datapath;
use ctk_cluster::index::Index;
use ctk_cluster::read_scope::ReadScope;
use ctk_cluster::rules::read as rules;
use ctk_cluster::rules::{NodeRules, Proxy};
use ctk_cluster::source::{self, ClusterError, ClusterSource, Loaded, Source, SourceKind};

use crate::query::SourceQuery;
use crate::session::node_probe::NodeProbe;
use crate::session::node_rules;
use crate::session::remote::{self, Purpose};
use crate::session::this_node::{find_node, prove_by_rules, this_node};
use crate::shell::names;
use crate::terminal::messages::note;

/// How a cluster file is made.
pub const FETCH: &str = "fetch it with: kubectl get nodes,svc,endpointslices,pods,servicecidrs -A -o json > cluster.json \
    (an API server before 1.33 may have no servicecidrs: leave that word out, and give --service-cidr)";

/// What was read of the cluster, and the node that the table belongs to.
pub struct Cluster {
    /// Objects: of a file, or of what kubectl printed.
    pub loaded: Option<Loaded>,
    /// The node's rules, as the source or beside it.
    pub rules: Option<rules::Read>,
    pub node: ThisNode,
    pub beside: NodeProbe,
    /// Whether kube-proxy's rules are in the namespace; `None` until it was looked for, because nothing else shows whose it is.
    kube_proxy: Option<bool>,
}

impl Cluster {
    /// Reads what `--cluster` names. `None` where there is no source: with `none`, and where `auto` finds none.
    pub fn read(
        source: &SourceQuery,
        purpose: Purpose,
        wanted: ReadScope,
    ) -> Result<Option<Self>, CommandError> {
        let read =
            Self::read_telling(&source.cluster, source, purpose, wanted, &|text| note(text))?;
        if let Some(cluster) = &read {
            // The demo's names are no reason to forget real ones.
            let keep = match source.builtin.0 {
                None => names::Keep::Always,
                Some(_) => names::Keep::IfFirst,
            };
            names::keep(cluster.directory(), keep);
        }
        Ok(read)
    }

    /// The same once more, when everything worth saying of the source was said.
    pub fn read_again(
        source: &SourceQuery,
        purpose: Purpose,
        wanted: ReadScope,
    ) -> Result<Option<Self>, CommandError> {
        Self::read_from(&source.cluster, source, purpose, wanted)
    }

    /// The same from `source`, whatever `--cluster` names: `auto` may go on to another one than the first time.
    pub fn read_from(
        chosen: &ClusterSource,
        source: &SourceQuery,
        purpose: Purpose,
        wanted: ReadScope,
    ) -> Result<Option<Self>, CommandError> {
        let tell = |text: &str| tracing::info!(text, "cluster");
        Self::read_telling(chosen, source, purpose, wanted, &tell)
    }

    fn read_telling(
        chosen: &ClusterSource,
        source: &SourceQuery,
        purpose: Purpose,
        wanted: ReadScope,
        tell: &dyn Fn(&str),
    ) -> Result<Option<Self>, CommandError> {
        // Before the API: an endpoint that comes meanwhile must not look like one that lingers in the rules.
        let netns = &source.netns;
        let both = match chosen {
            ClusterSource::ApiAndRules => Some(node_rules::read(None, netns)?),
            _ => None,
        };
        let loaded = match (chosen, source.builtin.0) {
            (ClusterSource::Auto, Some(text)) => {
                let builtin = Source {
                    kind: SourceKind::File,
                    time: SystemTime::now(),
                    path: None,
                };
                let read = source::load(text.as_bytes(), builtin, &source.service_cidr);
                Some(read.map_err(cluster_error)?)
            }
            (ClusterSource::Auto, None) => remote::auto(source, purpose, wanted, tell)?,
            (ClusterSource::Api | ClusterSource::ApiAndRules, _) => {
                Some(remote::api(source, purpose, wanted)?)
            }
            (other, _) => other.load(&source.service_cidr).map_err(cluster_error)?,
        };
        let (loaded, rules) = match (loaded, chosen) {
            (loaded, ClusterSource::Auto) => remote::prefer_complete_source(loaded, netns, tell),
            (None, ClusterSource::Rules(path)) => {
                (None, Some(node_rules::read(path.as_deref(), netns)?))
            }
            (loaded, _) => (loaded, both),
        };
        if source.cluster == ClusterSource::ApiAndRules {
            tell("cluster: the API");
        }
        if let Some(rules) = &rules {
            node_rules::describe(rules, tell);
        }
        if loaded.is_none() && rules.is_none() {
            return Ok(None);
        }
        Ok(Some(Self::assemble(source, loaded, rules, tell)))
    }

    /// What was read of a cluster that is followed from now on.
    pub fn followed(source: &SourceQuery, loaded: Loaded) -> Self {
        Self::assemble(source, Some(loaded), None, &|text| note(text))
    }

    /// A later state of a cluster that is followed. That kube-proxy's rules were seen here holds.
    pub fn renewed(&self, source: &SourceQuery, loaded: Loaded) -> Self {
        let netns = &source.netns;
        let mut node = find_node(source.node.clone(), netns, Some(&loaded.index));
        let mut kube_proxy = self.kube_proxy;
        prove_by_rules(&mut node, &mut kube_proxy, None, netns);
        let beside = self.beside.clone();
        Cluster {
            loaded: Some(loaded),
            rules: None,
            node,
            beside,
            kube_proxy,
        }
    }

    /// The node's rules, read earlier, are still the same at `time`. Addresses and datapath of the node are looked at anew.
    pub fn with_rules_of(self, source: &SourceQuery, time: SystemTime) -> Self {
        let rules = self.rules.map(|read| rules::Read { time, ..read });
        let tell = |text: &str| tracing::info!(text, "cluster");
        Self::assemble(source, self.loaded, rules, &tell)
    }

    fn assemble(
        source: &SourceQuery,
        loaded: Option<Loaded>,
        rules: Option<rules::Read>,
        tell: &dyn Fn(&str),
    ) -> Self {
        let warnings = loaded.iter().flat_map(|loaded| &loaded.warnings);
        warnings.for_each(|warning| tell(warning));
        let (node, kube_proxy) = this_node(source, loaded.as_ref(), rules.as_ref(), tell);
        let beside = NodeProbe::look(loaded.as_ref(), rules.as_ref(), &node, &source.netns, tell);
        Cluster {
            loaded,
            rules,
            node,
            beside,
            kube_proxy,
        }
    }

    /// What was read is not true any more, and nothing better is known: names stay, and nothing is judged.
    pub fn doubt(&mut self) {
        if let Some(loaded) = &mut self.loaded {
            loaded.index.doubt();
        }
    }

    /// Who translates Services in kube-proxy's place.
    pub fn instead(&self) -> Option<Datapath> {
        self.beside.translator.as_ref()?.replaces()
    }

    pub fn index(&self) -> Option<&Index> {
        self.loaded.as_ref().map(|loaded| &loaded.index)
    }

    pub fn node_rules(&self) -> Option<&NodeRules> {
        self.rules.as_ref().map(|read| &read.rules)
    }

    /// Where names are looked up.
    pub fn directory(&self) -> Option<Directory<'_>> {
        let rules = || self.node_rules().map(Directory::Rules);
        self.index().map(Directory::Index).or_else(rules)
    }

    /// Nothing newer is in the source.
    pub fn time(&self) -> Option<SystemTime> {
        let loaded = self.loaded.as_ref().map(|loaded| loaded.source.time);
        loaded.or(self.rules.as_ref().map(|rules| rules.time))
    }

    /// Age of what was read. `None` when it comes from the future.
    pub fn age(&self) -> Option<Duration> {
        self.time()?.elapsed().ok()
    }

    /// The source that was read, where `--cluster` leaves a choice.
    pub fn source(&self, source: &SourceQuery) -> ClusterSource {
        match &source.cluster {
            ClusterSource::Auto if source.builtin.0.is_some() => ClusterSource::Auto,
            ClusterSource::Auto if self.loaded.is_some() => ClusterSource::Api,
            ClusterSource::Auto => ClusterSource::Rules(None),
            named => named.clone(),
        }
    }

    /// It can be read again; standard input cannot.
    pub fn can_be_read_again(&self) -> bool {
        let loaded = self.loaded.as_ref();
        loaded.is_none_or(|loaded| loaded.source.kind != SourceKind::Stdin)
    }

    /// What somebody saved: it tells of a moment that is over.
    pub fn is_file(&self) -> bool {
        let loaded = self.loaded.as_ref();
        loaded.is_some_and(|loaded| loaded.source.kind != SourceKind::Api)
    }

    /// Only the node's rules are known.
    pub fn is_rules_only(&self) -> bool {
        self.loaded.is_none()
    }

    /// This machine's own rules are the source: they change by themselves.
    pub fn is_live_rules(&self) -> bool {
        self.loaded.is_none() && self.rules.as_ref().is_some_and(|read| read.path.is_none())
    }

    /// Services and slices are whole, or all rules were read and their frontends are known.
    pub fn is_complete(&self) -> bool {
        match &self.loaded {
            Some(loaded) => loaded.summary.complete,
            None => self.node_rules().is_some_and(NodeRules::is_whole),
        }
    }

    /// What would make the source whole.
    pub fn remedy(&self) -> String {
        match &self.loaded {
            None => "see above which rules could not be read, or are not understood".to_owned(),
            Some(loaded) if loaded.source.kind == SourceKind::Api => remote::remedy(loaded),
            Some(_) => FETCH.to_owned(),
        }
    }

    /// What would show whether an address is a Service's that was deleted.
    pub fn range_remedy(&self) -> String {
        let flag = "name the Service range with --service-cidr";
        match self.is_file() {
            true => format!("{flag}, or {FETCH}"),
            false => flag.to_owned(),
        }
    }

    /// What is missing, as kubectl calls it, Service ranges aside: few clusters need them.
    pub fn missing(&self) -> Vec<&'static str> {
        let objects = self
            .loaded
            .iter()
            .flat_map(|loaded| &loaded.summary.missing);
        let objects = objects.copied().filter(|kind| *kind != "servicecidrs");
        let rules = self.lacks_rules().then_some("rules");
        objects.chain(rules).collect()
    }

    /// Rules are part of the source, and some of them were not read or are not understood.
    fn lacks_rules(&self) -> bool {
        self.node_rules()
            .is_some_and(|rules| rules.cut || rules.not_understood() > 0)
    }

    /// IPVS balances Services here.
    pub fn has_ipvs(&self) -> bool {
        let by_rules = self
            .node_rules()
            .is_some_and(|rules| rules.proxies.contains(&Proxy::Ipvs));
        by_rules || self.node.has_ipvs()
    }
}

/// Names and verdicts that were asked for need a source.
///
/// # Errors
/// Usage with `--cluster none`; partial where `auto` found nothing.
pub fn require(
    source: &SourceQuery,
    cluster: Option<&Cluster>,
    asked: bool,
) -> Result<(), CommandError> {
    if let Some(cluster) = cluster {
        let refused = cluster.loaded.as_ref().and_then(remote::refused_all);
        return refused.filter(|_| asked).map_or(Ok(()), Err);
    }
    let error = match (&source.cluster, asked) {
        (ClusterSource::None, true) => {
            CommandError::usage("names and verdicts cannot be selected with --cluster none")
        }
        (_, true) => CommandError::new(
            Status::Partial,
            "no cluster source, so names and verdicts are not known",
        ),
        (ClusterSource::None, false) => return Ok(()),
        (_, false) => {
            note("cluster: none; name one with --cluster FILE to see names and verdicts");
            return Ok(());
        }
    };
    Err(error.hint(format!("name a file with --cluster FILE; {FETCH}")))
}

fn cluster_error(error: ClusterError) -> CommandError {
    match &error {
        ClusterError::NoName | ClusterError::ServiceRange(_) => CommandError::usage(error),
        ClusterError::Open { .. } => {
            CommandError::failed(format!("--cluster: {error}")).hint(FETCH)
        }
        // A file that cannot be read to its end is an incomplete source.
        ClusterError::List { .. } => {
            CommandError::new(Status::Partial, format!("--cluster: {error}")).hint(FETCH)
        }
    }
}

/// What the summary says of the source.
pub fn summary(cluster: Option<&Cluster>) -> ClusterSummary {
    let Some(cluster) = cluster else {
        return ClusterSummary::default();
    };
    let mut extra = serde_json::Map::new();
    extra.insert("node".to_owned(), cluster.node.name.clone().into());
    if let Some(time) = cluster.time() {
        let time = humantime::format_rfc3339_seconds(time).to_string();
        extra.insert("time".to_owned(), Value::from(time));
    }
    extra.insert("ipvs".to_owned(), cluster.has_ipvs().into());
    cluster.beside.summarize(&mut extra);
    if let Some(rules) = cluster.node_rules() {
        extra.insert("rules".to_owned(), node_rules::summary(rules));
    }
    let Some(loaded) = &cluster.loaded else {
        extra.insert("missing".to_owned(), cluster.missing().into());
        return ClusterSummary {
            source: "rules",
            complete: cluster.is_complete(),
            extra,
        };
    };
    let summary = &loaded.summary;
    extra.insert("missing".to_owned(), summary.missing.clone().into());
    if let Ok(counts) = serde_json::to_value(summary.counts) {
        extra.insert("counts".to_owned(), counts);
    }
    let listed = &loaded.listed;
    if !listed.is_empty() {
        let states = listed.iter().map(|one| {
            let state = serde_json::to_value(one.state).unwrap_or_default();
            (one.kind.resource().to_owned(), state)
        });
        extra.insert("lists".to_owned(), Value::Object(states.collect()));
    }
    ClusterSummary {
        source: summary.source,
        complete: summary.complete,
        extra,
    }
}

#[cfg(test)]
mod tests;
