//! The cluster that was read, and the node that the table belongs to.

use std::time::SystemTime;

use serde_json::Value;

use crate::error::{CommandError, ExitStatus};
use crate::output::ClusterSummary;
use crate::select::Directory;
use crate::this_node::{NetnsOwner, ThisNode};
use ctk_cluster::datapath::Datapath;
use ctk_cluster::index::Index;
use ctk_cluster::read_scope::ReadScope;
use ctk_cluster::rules::read as rules;
use ctk_cluster::rules::{NodeRules, Proxy};
use ctk_cluster::source::{self, ClusterError, ClusterSource, Loaded, Source, SourceKind};

use crate::query::SourceQuery;
use crate::session::cluster_source::{self, Purpose};
use crate::session::node_identity::{find_node, prove_by_rules, this_node};
use crate::session::node_probe::NodeProbe;
use crate::session::node_rules;
use crate::shell::names;
use crate::terminal::messages::note;

/// Hint on how a cluster file is made.
pub const FETCH: &str = "fetch it with: kubectl get nodes,svc,endpointslices,pods,servicecidrs -A -o json > cluster.json \
    (an API server before 1.33 may have no servicecidrs: leave that word out, and give --service-cidr)";

/// Role of the node's rules in a reading of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RulesRole {
    /// The only source.
    Source,
    /// Cross-checked with the objects, as `--cluster SOURCE,rules` asks.
    CrossChecked,
    /// Read because the table is that of this node: they decide on destinations that no object tells of, such as host ports
    /// and published ports, and on whether a new packet is translated.
    Beside,
}

/// The cluster as it was read, and the node that the table belongs to.
pub struct Cluster {
    /// Objects of the API, of a file, or of the output of kubectl.
    pub loaded: Option<Loaded>,
    /// The node's rules, as the source or in addition to it.
    pub rules: Option<rules::Read>,
    pub node: ThisNode,
    pub probe: NodeProbe,
    /// kube-proxy's rules are in the namespace. `None`: not looked for, because other facts show whose the namespace is.
    kube_proxy: Option<bool>,
}

impl Cluster {
    /// Reads the source that `--cluster` names. `None` where there is no source: with `none`, and where `auto` finds none.
    pub fn read(
        source: &SourceQuery,
        purpose: Purpose,
        wanted: ReadScope,
    ) -> Result<Option<Self>, CommandError> {
        let read =
            Self::read_reporting(&source.cluster, source, purpose, wanted, &|text| note(text))?;
        if let Some(cluster) = &read {
            // Names of the demo do not replace real ones.
            let keep = match source.builtin.0 {
                None => names::Keep::Always,
                Some(_) => names::Keep::IfFirst,
            };
            names::keep(cluster.directory(), keep);
        }
        Ok(read)
    }

    /// Reads the source again. Notes on it go to the log only.
    pub fn read_again(
        source: &SourceQuery,
        purpose: Purpose,
        wanted: ReadScope,
    ) -> Result<Option<Self>, CommandError> {
        Self::read_from(&source.cluster, source, purpose, wanted)
    }

    /// Reads `chosen` again, whatever `--cluster` names: `auto` could choose another source than the first time.
    pub fn read_from(
        chosen: &ClusterSource,
        source: &SourceQuery,
        purpose: Purpose,
        wanted: ReadScope,
    ) -> Result<Option<Self>, CommandError> {
        let tell = |text: &str| tracing::info!(text, "cluster");
        Self::read_reporting(chosen, source, purpose, wanted, &tell)
    }

    fn read_reporting(
        chosen: &ClusterSource,
        source: &SourceQuery,
        purpose: Purpose,
        wanted: ReadScope,
        tell: &dyn Fn(&str),
    ) -> Result<Option<Self>, CommandError> {
        let netns = &source.netns;
        // The rules are read before the API: an endpoint that is added meanwhile must not seem to linger in the rules.
        let rules = match chosen {
            ClusterSource::None => None,
            ClusterSource::Rules(path) => Some(node_rules::read(path.as_deref(), netns)?),
            ClusterSource::WithRules(_) => Some(node_rules::read(None, netns)?),
            // A watch follows one source.
            _ if purpose == Purpose::Follow && *chosen != ClusterSource::Auto => None,
            _ => node_rules::automatic(netns),
        };
        let loaded = match (chosen.objects(), source.builtin.0) {
            (ClusterSource::Auto, Some(text)) => {
                let builtin = Source {
                    kind: SourceKind::File,
                    time: SystemTime::now(),
                    path: None,
                };
                let read = source::load(text.as_bytes(), builtin, &source.service_cidr);
                Some(read.map_err(cluster_error)?)
            }
            (ClusterSource::Auto, None) => cluster_source::auto(source, purpose, wanted, tell)?,
            (ClusterSource::Api, _) => Some(cluster_source::api(source, purpose, wanted)?),
            (objects, _) => objects.load(&source.service_cidr).map_err(cluster_error)?,
        };
        let loaded = match chosen {
            ClusterSource::Auto => {
                cluster_source::prefer_complete_source(loaded, rules.as_ref(), tell)
            }
            _ => loaded,
        };
        let role = match (chosen, &loaded) {
            (_, None) => RulesRole::Source,
            (ClusterSource::WithRules(_), Some(_)) => RulesRole::CrossChecked,
            (_, Some(_)) => RulesRole::Beside,
        };
        if role == RulesRole::CrossChecked && *chosen.objects() == ClusterSource::Api {
            tell("cluster: the API");
        }
        if loaded.is_none() && rules.is_none() {
            return Ok(None);
        }
        let rules = rules.map(|rules| (rules, role));
        Ok(Some(Self::assemble(source, loaded, rules, tell)))
    }

    /// The first state of a cluster that is followed.
    pub fn followed(source: &SourceQuery, loaded: Loaded) -> Self {
        Self::assemble(source, Some(loaded), None, &|text| note(text))
    }

    /// A later state of a cluster that is followed. kube-proxy's rules that were seen once count as seen.
    pub fn renewed(&self, source: &SourceQuery, loaded: Loaded) -> Self {
        let netns = &source.netns;
        let mut node = find_node(source.node.clone(), netns, Some(&loaded.index));
        let mut kube_proxy = self.kube_proxy;
        prove_by_rules(&mut node, &mut kube_proxy, None, netns);
        let probe = self.probe.clone();
        Cluster {
            loaded: Some(loaded),
            rules: None,
            node,
            probe,
            kube_proxy,
        }
    }

    /// The same cluster with the node's rules known to be unchanged at `time`. Addresses and datapath of the node are read again.
    pub fn with_rules_of(self, source: &SourceQuery, time: SystemTime) -> Self {
        let rules = self.rules.map(|read| rules::Read { time, ..read });
        let rules = rules.map(|rules| (rules, RulesRole::Source));
        let tell = |text: &str| tracing::info!(text, "cluster");
        Self::assemble(source, self.loaded, rules, &tell)
    }

    fn assemble(
        source: &SourceQuery,
        loaded: Option<Loaded>,
        rules: Option<(rules::Read, RulesRole)>,
        tell: &dyn Fn(&str),
    ) -> Self {
        let (rules, role) = rules.unzip();
        let warnings = loaded.iter().flat_map(|loaded| &loaded.warnings);
        warnings.for_each(|warning| tell(warning));
        let (node, kube_proxy) = this_node(source, loaded.as_ref(), rules.as_ref(), tell);
        // Rules of a namespace that is not this node's do not decide on objects of the cluster.
        let is_foreign = role == Some(RulesRole::Beside) && node.namespace == NetnsOwner::Foreign;
        let rules = rules.filter(|_| !is_foreign);
        match (&rules, role) {
            (Some(read), Some(RulesRole::Beside)) => {
                let odd = node_rules::not_understood(&read.rules);
                odd.iter().for_each(|text| tell(text));
            }
            (Some(read), _) => node_rules::describe(read, tell),
            (None, _) => {}
        }
        let probe = NodeProbe::look(
            loaded
                .as_ref()
                .filter(|_| role == Some(RulesRole::CrossChecked)),
            rules.as_ref(),
            &node,
            &source.netns,
            tell,
        );
        Cluster {
            loaded,
            rules,
            node,
            probe,
            kube_proxy,
        }
    }

    /// Marks the objects as outdated: names stay, and nothing is judged by them.
    pub fn doubt(&mut self) {
        if let Some(loaded) = &mut self.loaded {
            loaded.index.doubt();
        }
    }

    /// The datapath that translates Services in kube-proxy's place.
    pub fn kube_proxy_replacement(&self) -> Option<Datapath> {
        self.probe.translator.as_ref()?.replaces()
    }

    pub fn index(&self) -> Option<&Index> {
        self.loaded.as_ref().map(|loaded| &loaded.index)
    }

    pub fn node_rules(&self) -> Option<&NodeRules> {
        self.rules.as_ref().map(|read| &read.rules)
    }

    /// kube-proxy's rules of this node, which list every endpoint that new flows lead to.
    pub fn kube_proxy_rules(&self) -> Option<&NodeRules> {
        self.node_rules().filter(|rules| rules.has_kube_proxy())
    }

    /// Reads the node's rules again, where they are beside objects that cannot be read again.
    pub fn refresh_rules(&mut self, source: &SourceQuery) {
        if self.rules.is_some() && !self.is_rules_only() {
            self.rules = node_rules::automatic(&source.netns);
        }
    }

    /// Directory of names: the objects, else the rules.
    pub fn directory(&self) -> Option<Directory<'_>> {
        let rules = || self.node_rules().map(Directory::Rules);
        self.index().map(Directory::Index).or_else(rules)
    }

    /// Time as of which the source is true. It has nothing newer.
    pub fn time(&self) -> Option<SystemTime> {
        let loaded = self.loaded.as_ref().map(|loaded| loaded.source.time);
        loaded.or(self.rules.as_ref().map(|rules| rules.time))
    }

    /// The source that was chosen, where `--cluster` leaves a choice.
    pub fn source(&self, source: &SourceQuery) -> ClusterSource {
        match &source.cluster {
            ClusterSource::Auto if source.builtin.0.is_some() => ClusterSource::Auto,
            ClusterSource::Auto if self.loaded.is_some() => ClusterSource::Api,
            ClusterSource::Auto => ClusterSource::Rules(None),
            named => named.clone(),
        }
    }

    /// The source can be read again, which standard input cannot.
    pub fn can_be_read_again(&self) -> bool {
        let loaded = self.loaded.as_ref();
        loaded.is_none_or(|loaded| loaded.source.kind != SourceKind::Stdin)
    }

    /// The source was saved at an earlier moment.
    pub fn is_file(&self) -> bool {
        let loaded = self.loaded.as_ref();
        loaded.is_some_and(|loaded| loaded.source.kind != SourceKind::Api)
    }

    /// Only the node's rules are known.
    pub fn is_rules_only(&self) -> bool {
        self.loaded.is_none()
    }

    /// The source is the current rules of this node.
    pub fn is_live_rules(&self) -> bool {
        self.loaded.is_none() && self.rules.as_ref().is_some_and(|read| read.path.is_none())
    }

    /// All Services and slices were read, or all rules were read and understood.
    pub fn is_complete(&self) -> bool {
        match &self.loaded {
            Some(loaded) => loaded.summary.complete,
            None => self.node_rules().is_some_and(NodeRules::is_whole),
        }
    }

    /// Hint on how to complete the source.
    pub fn remedy(&self) -> String {
        match &self.loaded {
            None => "see above which rules could not be read, or are not understood".to_owned(),
            Some(loaded) if loaded.source.kind == SourceKind::Api => cluster_source::remedy(loaded),
            Some(_) => FETCH.to_owned(),
        }
    }

    /// Hint on how to tell whether an address belonged to a deleted Service.
    pub fn range_remedy(&self) -> String {
        let flag = "name the Service range with --service-cidr";
        match self.is_file() {
            true => format!("{flag}, or {FETCH}"),
            false => flag.to_owned(),
        }
    }

    /// Missing kinds by their kubectl names, without Service ranges, which few clusters need.
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

    /// IPVS balances Services on this node.
    pub fn has_ipvs(&self) -> bool {
        let by_rules = self
            .node_rules()
            .is_some_and(|rules| rules.proxies.contains(&Proxy::Ipvs));
        by_rules || self.node.has_ipvs()
    }
}

/// Checks that a source exists where names or verdicts are asked for.
///
/// # Errors
/// Usage with `--cluster none`; partial where `auto` found nothing.
pub fn require(
    source: &SourceQuery,
    cluster: Option<&Cluster>,
    asked: bool,
) -> Result<(), CommandError> {
    if let Some(cluster) = cluster {
        let refused = cluster
            .loaded
            .as_ref()
            .and_then(cluster_source::refused_all);
        return refused.filter(|_| asked).map_or(Ok(()), Err);
    }
    let error = match (&source.cluster, asked) {
        (ClusterSource::None, true) => {
            CommandError::usage("names and verdicts cannot be selected with --cluster none")
        }
        (_, true) => CommandError::new(
            ExitStatus::Partial,
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
    let status = match &error {
        ClusterError::NoName | ClusterError::NoObjects | ClusterError::ServiceRange(_) => {
            return CommandError::of(ExitStatus::Usage, error);
        }
        ClusterError::Open { .. } => ExitStatus::Failed,
        // A file that cannot be read to its end is an incomplete source.
        ClusterError::List { .. } => ExitStatus::Partial,
    };
    CommandError::new(status, "--cluster")
        .with_source(error)
        .hint(FETCH)
}

/// Value of `summary.cluster` in JSON.
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
    cluster.probe.summarize(&mut extra);
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
