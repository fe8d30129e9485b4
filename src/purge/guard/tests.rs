//! Tables of cases: each veto, and each change between the scan and the second look.

use ctk_cluster::rules::RuleFrontend;
use ctnetlink::flow::{L4, ProtocolState, Status, Tuple};

use super::*;
use crate::purge::plan::PlanBuilder;
use crate::purge::policy::IncludeWord;
use crate::select::Selectors;
use crate::this_node::NetnsOwner;

const OWN: &str = "10.244.0.11:53";
const OTHER: &str = "10.244.0.12:53";

/// A flow of kube-dns to [`OWN`].
fn flow(start: Option<u64>) -> Flow {
    let tuple = |src: &str, dst: &str, ports: (u16, u16)| Tuple {
        src: src.parse().unwrap(),
        dst: dst.parse().unwrap(),
        protocol: 17,
        l4: L4::Ports {
            src: ports.0,
            dst: ports.1,
        },
    };
    let mut flow = Flow::new(
        tuple("10.244.0.2", "10.96.0.10", (4000, 53)),
        tuple("10.244.0.11", "10.244.0.2", (53, 4000)),
    );
    flow.id = Some(7);
    flow.start = start;
    flow
}

fn node() -> ThisNode {
    ThisNode {
        name: None,
        local: Some(Vec::new()),
        routes: None,
        namespace: NetnsOwner::Node,
    }
}

fn stale() -> VerdictPolicy {
    policy(true, &[])
}

fn policy(stale: bool, include: &[IncludeWord]) -> VerdictPolicy {
    let selectors = Selectors {
        stale,
        ..Selectors::default()
    };
    VerdictPolicy::new(&selectors, include).unwrap()
}

fn plan(flow: Flow) -> PurgePlan {
    let policy = policy(false, &[]);
    let mut builder = PlanBuilder::new(&policy);
    builder.add(Entry::bare(flow), None);
    builder.finish(false)
}

fn verdict(reason: Reason) -> DeleteVerdict {
    DeleteVerdict {
        reason,
        last_endpoint: false,
        unsettled: false,
    }
}

fn selected(verdict: DeleteVerdict) -> Option<SelectedEntry> {
    Some(SelectedEntry {
        verdict: Some(verdict),
        replies: Replies::Unknown,
    })
}

fn rules(targets: &[&str], draining: &[&str], understood: bool) -> NodeRules {
    let addresses = |all: &[&str]| all.iter().map(|text| text.parse().unwrap()).collect();
    let mut rules = NodeRules::default();
    let frontend = RuleFrontend {
        targets: addresses(targets),
        draining: addresses(draining),
        understood,
        ..RuleFrontend::default()
    };
    let key = ("10.96.0.10".parse().unwrap(), 17, 53);
    rules.frontends.insert(key, frontend);
    rules
}

#[test]
fn an_entry_is_deleted_only_where_the_second_look_still_selects_it() {
    use DeleteDecision::{Delete, Leave, Veto};
    let gone = verdict(Reason::EndpointGone);
    let incomplete = verdict(Reason::SourceIncomplete);
    let unsettled = DeleteVerdict {
        unsettled: true,
        ..incomplete
    };
    let last = DeleteVerdict {
        last_endpoint: true,
        ..verdict(Reason::EndpointNotServing)
    };
    let suspect = verdict(Reason::NotInNodeRules);
    let stopped = Some(SelectedEntry {
        verdict: Some(suspect),
        replies: Replies::Stopped,
    });
    let by_kernel = policy(false, &[]);
    let suspects = policy(true, &[IncludeWord::Suspect]);
    let stale = &stale();
    let not_judged = Veto(super::Veto::NotJudged);
    for (case, policy, selected, verdict, expected) in [
        ("still stale", stale, selected(gone), gone, Delete),
        ("fails another selector", stale, None, gone, Leave),
        (
            "its endpoint is back",
            stale,
            selected(verdict(Reason::Endpoint)),
            verdict(Reason::Endpoint),
            Leave,
        ),
        (
            "its endpoint is not ready",
            stale,
            selected(last),
            last,
            Leave,
        ),
        (
            "no rule translates its destination",
            stale,
            selected(verdict(Reason::NoDnatNoRule)),
            verdict(Reason::NoDnatNoRule),
            Leave,
        ),
        (
            "its endpoint drains",
            stale,
            selected(verdict(Reason::EndpointTerminating)),
            verdict(Reason::EndpointTerminating),
            Leave,
        ),
        (
            "not judged",
            stale,
            selected(incomplete),
            incomplete,
            not_judged,
        ),
        (
            "not judged, fails another selector",
            stale,
            None,
            incomplete,
            not_judged,
        ),
        (
            "newer than the source",
            stale,
            selected(unsettled),
            unsettled,
            Leave,
        ),
        ("suspect", stale, stopped, suspect, Leave),
        (
            "suspect, included, stopped",
            &suspects,
            stopped,
            suspect,
            Delete,
        ),
        (
            "suspect, included, not stopped",
            &suspects,
            selected(suspect),
            suspect,
            Leave,
        ),
        (
            "no selector by verdict",
            &by_kernel,
            selected(incomplete),
            incomplete,
            Delete,
        ),
        (
            "no selector by verdict, does not match",
            &by_kernel,
            None,
            incomplete,
            Leave,
        ),
    ] {
        let guard = Guard::new(policy, None);
        let decision = guard.decide(&flow(None), selected, || Some(verdict));
        assert_eq!(decision, expected, "{case}");
    }
    let unjudged = Some(SelectedEntry {
        verdict: None,
        replies: Replies::Unknown,
    });
    let guard = Guard::new(stale, None);
    assert_eq!(guard.decide(&flow(None), unjudged, || None), Leave);
}

#[test]
fn an_entry_that_is_dying_at_the_second_look_is_left() {
    for policy in [stale(), policy(false, &[])] {
        let mut dying = flow(None);
        dying.status = Status::CONFIRMED.with(Status::DYING);
        let gone = verdict(Reason::EndpointGone);
        let guard = Guard::new(&policy, None);
        let decision = guard.decide(&dying, selected(gone), || None);
        assert_eq!(decision, DeleteDecision::Leave);
    }
}

#[test]
fn an_entry_that_may_be_newer_than_the_file_is_left_where_rules_may_lead_to_its_endpoint() {
    let cut = NodeRules {
        cut: true,
        ..NodeRules::default()
    };
    let unknown = NodeRules {
        unknown_shapes: 1,
        ..NodeRules::default()
    };
    let there = Some(Veto::RulesLeadThere);
    let not_known = Some(Veto::RulesNotKnown);
    let (stale, by_kernel, node) = (stale(), policy(false, &[]), node());
    for (case, start, rules, expected) in [
        ("led to", None, rules(&[OTHER, OWN], &[], true), there),
        (
            "led to, not understood",
            None,
            rules(&[OWN], &[], false),
            there,
        ),
        ("draining", None, rules(&[OTHER], &[OWN], true), there),
        ("not led to", None, rules(&[OTHER], &[], true), None),
        (
            "not led to, not understood",
            None,
            rules(&[OTHER], &[], false),
            not_known,
        ),
        ("no frontend", None, NodeRules::default(), None),
        ("rules missing", None, cut, not_known),
        ("an unknown form", None, unknown.clone(), not_known),
        (
            "its start is known",
            Some(7),
            rules(&[OWN], &[], true),
            None,
        ),
        ("its start is known, unknown form", Some(7), unknown, None),
    ] {
        let file = ClusterView {
            is_file: true,
            rules: Some(&rules),
            index: None,
            node: &node,
        };
        let api = ClusterView {
            is_file: false,
            ..file
        };
        let no_rules = ClusterView {
            rules: None,
            ..file
        };
        let gone = verdict(Reason::EndpointGone);
        for (policy, cluster, expected) in [
            (&stale, Some(file), expected),
            (&stale, Some(api), None),
            (&stale, Some(no_rules), None),
            (&stale, None, None),
            (&by_kernel, Some(file), None),
        ] {
            let guard = Guard::new(policy, cluster);
            let decision = guard.decide(&flow(start), selected(gone), || None);
            let expected = expected.map_or(DeleteDecision::Delete, DeleteDecision::Veto);
            assert_eq!(decision, expected, "{case}");
        }
    }
}

#[test]
fn entries_are_looked_up_where_anything_that_decides_may_have_changed() {
    let plan = |state: Option<ProtocolState>| {
        let mut flow = flow(None);
        flow.state = state;
        plan(flow)
    };
    let (udp, sctp) = (
        plan(None),
        plan(Some(ProtocolState::Sctp {
            state: 4,
            vtag_original: None,
            vtag_reply: None,
        })),
    );
    let scope = |uses_changing_values, cluster_decides, cluster_read_again| SecondLookScope {
        uses_changing_values,
        cluster_decides,
        cluster_read_again,
    };
    let (stale, by_kernel) = (stale(), policy(false, &[]));
    for (policy, plan, scope, expected) in [
        (&stale, &udp, scope(false, true, true), false),
        (&stale, &udp, scope(false, true, false), true),
        (&stale, &udp, scope(true, true, true), true),
        (&stale, &sctp, scope(false, true, true), true),
        (&by_kernel, &sctp, scope(false, false, false), false),
        (&by_kernel, &udp, scope(true, false, false), true),
    ] {
        let guard = Guard::new(policy, None);
        assert_eq!(guard.needs_lookups(plan, &scope), expected, "{scope:?}");
    }
}

#[test]
fn an_unknown_age_is_noted_only_for_files_without_rules_and_entries_without_start() {
    let (node, rules, stale) = (node(), NodeRules::default(), stale());
    for (is_file, has_rules, start, expected) in [
        (true, false, None, true),
        (true, false, Some(7), false),
        (true, true, None, false),
        (false, false, None, false),
    ] {
        let cluster = ClusterView {
            is_file,
            rules: has_rules.then_some(&rules),
            index: None,
            node: &node,
        };
        let guard = Guard::new(&stale, Some(cluster));
        assert_eq!(guard.cannot_tell_age(&plan(flow(start))), expected);
    }
}
