//! `ctk svc`: shows one Service, its endpoints, the flows on each, and the shares of new flows.

mod next_flows;

use crate::args::svc::{SvcArgs, SvcFormat};
use std::io::{self, IsTerminal, Write};

use serde_json::{Map, Value, json};

use crate::error::{CommandError, ExitStatus};
use crate::filter::list::List;
use crate::output::{Glyphs, Palette, ServiceStyle, Summary, service_document, service_table};
use crate::plural::count;
use crate::select::ServicePick;
use crate::select::name::ServiceRef;
use crate::service::{self, FlowCounts, KnownService, ServiceReport, ServiceTally};
use crate::this_node::NetnsOwner;
use ctk_cluster::rules::Proxy;
use ctk_cluster::rules::lb_chain::{LbChain, ServiceFilter};
use ctk_cluster::rules::read::Read;
use ctnetlink::netns::Netns;
use ctnetlink::{Table, TableKind};

use crate::args::select::SelectArgs;
use crate::query::{BuiltinCluster, EntryQuery, SourceQuery};
use crate::session::caveats::{self, Caveats};
use crate::session::cluster::{self, Cluster};
use crate::session::cluster_source::Purpose;
use crate::session::node_rules;
use crate::session::pipeline::{self, EntryPipeline};
use crate::session::read_scope;
use crate::session::table_access;
use crate::session::table_scan::{self, Looks};
use crate::terminal::messages;

pub fn run(builtin: BuiltinCluster, args: &SvcArgs) -> Result<ExitStatus, CommandError> {
    check(args)?;
    let select = SelectArgs {
        svc: vec![args.name.clone()],
        ..args.select.clone()
    };
    let entries = EntryQuery::new(&select)?;
    let source = SourceQuery::new(&args.source, builtin)?;
    let scope = read_scope::first(&source, &entries);
    let cluster = Cluster::read(&source, Purpose::Show, scope)?;
    cluster::require(&source, cluster.as_ref(), true)?;
    // The check above printed a note on the missing source.
    let Some(cluster) = &cluster else {
        return Ok(ExitStatus::Partial);
    };
    let mut known = find(&args.name, cluster)?;
    let rules = rules(cluster, &known, &source.netns);
    if let Ok(read) = &rules {
        known.narrow(&read.rules);
    }
    let mut pipeline = EntryPipeline::new(&entries, Some(cluster))?;
    let mut table = Table::open(&source.netns).map_err(table_access::netlink_error)?;
    let looks = Looks {
        kind: TableKind::Conntrack,
        sample: None,
    };
    let (tally, dumped) = table_scan::gather(
        &mut table,
        &mut pipeline,
        looks,
        || ServiceTally::new(&known),
        |pipeline, tally, flow, seen| {
            pipeline.show(flow, seen, |entry| {
                let source = entry.flow.original.src;
                let inside = || service::is_inside(cluster.index()?, &cluster.node, source);
                tally.add(entry, inside);
            });
        },
    )?;
    let lb_chains = rules.as_ref().map_err(String::clone).and_then(lb_chains);
    let with_chains = rules.as_ref().map_err(String::clone);
    let with_chains = with_chains.and_then(|read| Ok((read, lb_chains.clone()?)));
    let next_flows = next_flows::find(args, cluster, &known, with_chains, &source.netns);
    let mut report = ServiceReport::new(known, tally, lb_chains, pipeline::now());
    report.next_flows = next_flows;
    let summary = Summary {
        shown: pipeline.counts.passed,
        scanned: pipeline.counts.scanned,
        consistent: !dumped.inconsistent,
        unreadable: dumped.unreadable,
        cluster: cluster::summary(Some(cluster)),
        extra: extra(&report),
    };
    if let Err(error) = print(args, &report, &summary) {
        return messages::unwritten(error);
    }
    if pipeline.counts.scanned == 0 && pipeline.filter().is_empty() {
        table_access::note_empty(&source.netns);
    }
    let mut caveats = caveats::of_table(dumped.unreadable, dumped.inconsistent);
    caveats.add_selection(&entries, true, Some(cluster), &pipeline.counts);
    add_uncounted(&report, &mut caveats);
    add_rules(&report, rules.ok().as_ref(), &mut caveats);
    let not_known = next_flows::not_known(&report);
    caveats.partial |= !not_known.is_empty();
    caveats.notes.extend(not_known);
    Ok(match caveats.report() {
        true => ExitStatus::Partial,
        false => ExitStatus::Done,
    })
}

/// Refuses selectors that do not go with one Service.
fn check(args: &SvcArgs) -> Result<(), CommandError> {
    if !args.select.svc.is_empty() {
        return Err(
            CommandError::usage("--svc: the Service is the first argument of svc")
                .hint("ctk svc [NS/]NAME[:PORT]; ctk ls --svc lists the entries of several"),
        );
    }
    if args.select.refreshing {
        return Err(
            CommandError::usage("--refreshing does not go with svc: it looks once")
                .hint("ctk ls --svc NAME --refreshing lists the flows that are kept alive"),
        );
    }
    Ok(())
}

/// The named Service, with the selected ports.
fn find(name: &List<ServiceRef>, cluster: &Cluster) -> Result<KnownService, CommandError> {
    let none = || CommandError::failed("the cluster source tells no Services");
    let typed = name.items().first().ok_or_else(none)?;
    let directory = cluster.directory().ok_or_else(none)?;
    let pick = ServicePick::resolve(&typed.value, directory);
    let pick = pick.map_err(|error| unknown(pipeline::argument_error(error, Some(cluster))))?;
    let known = match (&pick, cluster.index(), cluster.node_rules()) {
        (ServicePick::Ports(ports), Some(index), _) => {
            KnownService::of_index(index, ports, cluster.node.name.as_deref())
        }
        (
            ServicePick::Named {
                namespace,
                name,
                ports,
            },
            _,
            Some(rules),
        ) => Some(KnownService::of_rules(rules, namespace, name, ports)),
        _ => None,
    };
    known.ok_or_else(|| {
        let text = "the Service has no ports, so no packet is translated for it";
        CommandError::failed(text).hint("ctk ls --endpoint POD lists the flows to one of its pods")
    })
}

/// Error of an unknown name, with a hint in any case.
fn unknown(error: CommandError) -> CommandError {
    match error.hints.is_empty() {
        true => error.hint("ctk top --by svc lists the Services that have flows here"),
        false => error,
    }
}

/// This node's rules with the chains of the Service, or the reason why they are not known.
fn rules(cluster: &Cluster, known: &KnownService, netns: &Netns) -> Result<Read, String> {
    let wanted = ServiceFilter {
        namespace: Some((*known.namespace).into()),
        name: (*known.name).into(),
    };
    let path = match &cluster.rules {
        Some(read) => read.path.as_deref(),
        None if cluster.node.namespace == NetnsOwner::Foreign => {
            return Err("this network namespace is not known to be the node's".to_owned());
        }
        None => None,
    };
    if path.is_some_and(|path| !path.is_file()) {
        return Err("the saved rules can be read only once".to_owned());
    }
    let read = node_rules::read_with_shares(path, netns, Some(&wanted));
    let read = read.map_err(|error| error.text())?;
    let rules = &read.rules;
    if rules.has_kube_proxy() {
        Ok(read)
    } else if rules.proxies.contains(&Proxy::Ipvs) {
        Err(
            "IPVS balances Services here; ipvsadm -Ln --stats shows its weights and counters"
                .into(),
        )
    } else {
        Err("this network namespace has no rules of kube-proxy".to_owned())
    }
}

/// The chains that choose endpoints, or the reason why none is known.
fn lb_chains(read: &Read) -> Result<&[LbChain], String> {
    match read.rules.is_whole() || !read.lb_chains.is_empty() {
        true => Ok(read.lb_chains.as_slice()),
        false => Err("some rules of this node are not understood".to_owned()),
    }
}

fn print(args: &SvcArgs, report: &ServiceReport, summary: &Summary) -> io::Result<()> {
    let stdout = io::stdout();
    let style = ServiceStyle {
        palette: Palette::of_environment(args.report.color, stdout.is_terminal()),
        glyphs: Glyphs::of(args.ascii),
    };
    let text = match args.report.format {
        SvcFormat::Table => service_table(report, style).into_bytes(),
        SvcFormat::Json => service_document(report, summary)?,
    };
    let mut out = stdout.lock();
    out.write_all(&text)?;
    out.flush()
}

fn extra(report: &ServiceReport) -> Map<String, Value> {
    let tally = &report.tally;
    let flows = |gone: bool| -> u64 {
        let others = tally
            .others
            .values()
            .filter(|other| other.is_gone() == gone);
        others.map(|other| other.load.flows()).sum()
    };
    let fields = json!({
        "scope": "this-node",
        "open": tally.loads.iter().map(|load| load.open).sum::<u64>(),
        "other": tally.loads.iter().map(|load| load.other).sum::<u64>(),
        "gone": flows(true),
        "elsewhere": flows(false),
        "left_out": tally.more_others.flows(),
        "not_translated": tally.untranslated.flows(),
        "stale": report.stale(),
        "stale_at_least": report.stale_at_least(),
        "new_packets_unknown": report.new_flow_paths.as_ref().err(),
        "chains_not_understood": report.new_flow_paths.as_ref().ok().map(|paths| &paths.not_understood),
        "endpoints_complete": report.known.endpoints_complete,
    });
    match fields {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// Adds a note where some flows have no counters.
fn add_uncounted(report: &ServiceReport, caveats: &mut Caveats) {
    let loads = &report.tally.loads;
    let flows: u64 = loads.iter().map(FlowCounts::flows).sum();
    let uncounted: u64 = loads.iter().map(|load| load.uncounted).sum();
    if uncounted > 0 && uncounted < flows {
        caveats.note(format!(
            "{uncounted} of {flows} flows began before packets were counted: PACKETS and BYTES are those of the others"
        ));
    }
}

/// Adds a note where rules are not understood, so that shares of new flows or endpoints are not known.
fn add_rules(report: &ServiceReport, read: Option<&Read>, caveats: &mut Caveats) {
    let Some(rules) = read.map(|read| &read.rules) else {
        return;
    };
    let chains = report
        .new_flow_paths
        .iter()
        .flat_map(|paths| &paths.not_understood);
    let chains: Vec<&str> = chains.map(String::as_str).collect();
    if !chains.is_empty() {
        caveats.note(format!(
            "where new flows go is not known for {} ({}): a rule there is not understood",
            count(chains.len() as u64, "chain", "chains"),
            chains.join(", ")
        ));
    }
    if !chains.is_empty() || !rules.is_whole() || !report.known.endpoints_complete {
        caveats.partial = true;
        caveats.notes.extend(node_rules::not_understood(rules));
    }
}
