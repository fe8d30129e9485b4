//! Tables of cases: selectors by verdict, and the decision on an entry of each reason.

use super::*;
use crate::filter::List;
use crate::filter::protocol::TCP;
use ctnetlink::flow::{L4, Tuple};

fn flow(protocol: u8) -> Flow {
    let tuple = |src: u8, dst: u8| Tuple {
        src: [10, 0, 0, src].into(),
        dst: [10, 0, 0, dst].into(),
        protocol,
        l4: L4::Ports { src: 4000, dst: 53 },
    };
    let mut flow = Flow::new(tuple(1, 2), tuple(2, 1));
    flow.id = Some(7);
    flow
}

fn picks<T: FromStr<Err = BadValue> + Clone>(text: &str) -> Picks<T> {
    let list: List<T> = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
    Picks::from([list].as_slice())
}

/// `stale`, `verdict=LIST`, `reason=LIST`, `include=LIST`, `tcp`.
fn policy(words: &str) -> Result<VerdictPolicy, PolicyError> {
    let mut selectors = Selectors::default();
    let mut include = Vec::new();
    for word in words.split_whitespace() {
        match word.split_once('=') {
            None if word == "stale" => selectors.stale = true,
            None if word == "tcp" => selectors.names_a_protocol = true,
            Some(("verdict", list)) => selectors.verdicts = picks(list),
            Some(("reason", list)) => selectors.reasons = picks(list),
            Some(("include", list)) => {
                include = list.split(',').map(|word| word.parse().unwrap()).collect();
            }
            _ => panic!("{word}"),
        }
    }
    VerdictPolicy::new(&selectors, &include)
}

fn decide(words: &str, protocol: u8, reason: Reason, replies: Replies) -> PlanDecision {
    policy(words)
        .unwrap()
        .decide(&flow(protocol), Some(judged(reason)), replies)
}

fn judged(reason: Reason) -> DeleteVerdict {
    DeleteVerdict {
        reason,
        last_endpoint: false,
        unsettled: false,
    }
}

#[test]
fn flows_to_the_only_endpoint_are_held_back_unless_their_reason_is_named() {
    let last = DeleteVerdict {
        last_endpoint: true,
        ..judged(Reason::EndpointNotServing)
    };
    for (words, expected) in [
        ("stale", PlanDecision::Hold(HoldReason::LastEndpoint)),
        (
            "verdict=stale",
            PlanDecision::Hold(HoldReason::LastEndpoint),
        ),
        (
            "reason=!endpoint-gone",
            PlanDecision::Hold(HoldReason::LastEndpoint),
        ),
        ("reason=endpoint-not-serving", PlanDecision::Delete),
        ("stale reason=endpoint-not-serving", PlanDecision::Delete),
        ("reason=endpoint-gone", PlanDecision::Leave),
    ] {
        let decision = policy(words)
            .unwrap()
            .decide(&flow(UDP), Some(last), Replies::Unknown);
        assert_eq!(decision, expected, "{words}");
    }
}

#[test]
fn each_verdict_is_deleted_held_or_left() {
    use HoldReason::*;
    use PlanDecision::{Delete, Leave};
    use Reason::*;
    let held = PlanDecision::Hold;
    for (words, protocol, reason, expected) in [
        ("stale", UDP, EndpointGone, Delete),
        ("stale", UDP, NoDnat, Delete),
        ("stale", UDP, Misdelivery, Delete),
        ("stale", UDP, Endpoint, Leave),
        ("stale", TCP, Endpoint, Leave),
        ("stale", TCP, EndpointGone, held(Protocol)),
        ("stale", TCP, PodNotEndpoint, held(Detached)),
        (
            "stale include=detached",
            TCP,
            PodNotEndpoint,
            held(Protocol),
        ),
        ("stale tcp", TCP, EndpointGone, Delete),
        ("stale tcp", TCP, PodNotEndpoint, held(Detached)),
        ("stale tcp include=detached", TCP, PodNotEndpoint, Delete),
        ("stale", UDP, EndpointTerminating, held(Draining)),
        ("stale include=draining", UDP, EndpointTerminating, Delete),
        (
            "stale include=draining",
            UDP,
            NoDnatNoEndpoint,
            held(Pending),
        ),
        ("stale include=pending", UDP, NoDnatNoEndpoint, Delete),
        ("stale include=pending", UDP, NoDnatNoRule, Delete),
        ("stale include=pending", UDP, EndpointGone, Delete),
        (
            "stale",
            UDP,
            Reason::ForeignZone,
            held(HoldReason::ForeignZone),
        ),
        ("stale", UDP, SourceIncomplete, Leave),
        ("stale", UDP, NoFrontend, Leave),
        ("verdict=draining", UDP, EndpointTerminating, held(Draining)),
        (
            "verdict=draining include=draining",
            UDP,
            EndpointTerminating,
            Delete,
        ),
        (
            "verdict=draining include=draining",
            UDP,
            EndpointGone,
            Leave,
        ),
        ("verdict=stale", TCP, EndpointGone, held(Protocol)),
        ("verdict=ok", UDP, Endpoint, Delete),
        ("verdict=ok", UDP, EndpointTerminating, Leave),
        // Neither an undecided entry nor one that is no Service's.
        ("verdict=!ok", UDP, EndpointGone, Delete),
        ("verdict=!ok", UDP, EndpointTerminating, held(Draining)),
        ("verdict=!ok", UDP, SourceIncomplete, Leave),
        ("verdict=!ok", UDP, ForeignNetns, Leave),
        ("verdict=!ok", UDP, NoFrontend, Leave),
        ("verdict=!ok", UDP, OtherPort, Leave),
        (
            "verdict=!ok",
            UDP,
            Reason::ForeignZone,
            held(HoldReason::ForeignZone),
        ),
        // --include does not bring back what a negated selector excludes.
        (
            "verdict=!draining include=draining",
            UDP,
            EndpointTerminating,
            Leave,
        ),
        (
            "reason=!no-dnat-no-rule include=pending",
            UDP,
            NoDnatNoRule,
            Leave,
        ),
        (
            "reason=!no-dnat-no-rule include=pending",
            UDP,
            NoDnatNoEndpoint,
            Delete,
        ),
        ("reason=endpoint-gone", UDP, EndpointGone, Delete),
        ("reason=endpoint-gone", UDP, NoDnat, Leave),
        ("reason=endpoint-gone", TCP, EndpointGone, held(Protocol)),
        ("reason=!no-dnat", UDP, NoFrontend, Leave),
        ("stale reason=no-dnat", UDP, EndpointGone, Leave),
        ("stale reason=no-dnat", UDP, NoDnat, Delete),
    ] {
        let decision = decide(words, protocol, reason, Replies::Unknown);
        assert_eq!(
            decision, expected,
            "{words}: protocol {protocol}, {reason:?}"
        );
    }
}

#[test]
fn a_suspect_is_held_without_its_word_or_without_stopped_answers() {
    let suspect = |words, replies| decide(words, UDP, Reason::NotInNodeRules, replies);
    let held = PlanDecision::Hold(HoldReason::Suspect);
    assert_eq!(suspect("stale", Replies::Stopped), held);
    assert_eq!(
        suspect("stale include=suspect", Replies::Stopped),
        PlanDecision::Delete
    );
    for replies in [Replies::Unknown, Replies::OneWay, Replies::TwoWay] {
        assert_eq!(
            suspect("stale include=suspect", replies),
            held,
            "{replies:?}"
        );
    }
}

#[test]
fn every_protocol_is_deleted_without_a_selector_by_verdict() {
    let policy = policy("").unwrap();
    for protocol in [1, TCP, UDP, 132] {
        for reason in [None, Some(Reason::Endpoint), Some(Reason::SourceIncomplete)] {
            let decision = policy.decide(&flow(protocol), reason.map(judged), Replies::Unknown);
            assert_eq!(decision, PlanDecision::Delete, "{protocol} {reason:?}");
        }
    }
}

#[test]
fn entries_that_are_not_confirmed_or_are_dying_are_never_deleted() {
    for words in ["", "stale"] {
        let policy = policy(words).unwrap();
        for status in [Status::default(), Status::CONFIRMED.with(Status::DYING)] {
            let mut flow = flow(UDP);
            flow.status = status;
            let decision =
                policy.decide(&flow, Some(judged(Reason::EndpointGone)), Replies::Unknown);
            assert_eq!(decision, PlanDecision::Leave, "{words:?} {status:?}");
        }
    }
}

#[test]
fn verdicts_that_are_never_deleted_cannot_be_named() {
    for words in [
        "verdict=unknown",
        "verdict=stale,unrelated",
        "reason=foreign-netns",
        "reason=no-frontend",
        "reason=endpoint-gone,source-incomplete",
    ] {
        assert!(
            matches!(policy(words), Err(PolicyError::Never { .. })),
            "{words}"
        );
    }
    policy("verdict=!unknown").unwrap();
    assert_eq!(
        policy("include=draining").unwrap_err(),
        PolicyError::IncludeAlone
    );
    for word in ["stale", "unknown", "ok", "", "Draining"] {
        assert!(word.parse::<IncludeWord>().is_err(), "{word:?}");
    }
}
