//! What a verdict selector takes, holds back and never reaches.

use super::*;
use crate::filter::List;
use ctnetlink::flow::{L4, Tuple};

const TCP: u8 = 6;

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
fn policy(words: &str) -> Result<Policy, PolicyError> {
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
    Policy::new(&selectors, &include)
}

fn fate(words: &str, protocol: u8, reason: Reason, replies: Replies) -> Fate {
    policy(words)
        .unwrap()
        .fate(&flow(protocol), Some(judged(reason)), replies)
}

fn judged(reason: Reason) -> Judged {
    Judged {
        reason,
        last_endpoint: false,
    }
}

#[test]
fn flows_to_the_only_endpoint_are_held_back_unless_their_reason_is_named() {
    let last = Judged {
        reason: Reason::EndpointNotServing,
        last_endpoint: true,
    };
    for (words, expected) in [
        ("stale", Fate::Held(Held::LastEndpoint)),
        ("verdict=stale", Fate::Held(Held::LastEndpoint)),
        ("reason=!endpoint-gone", Fate::Held(Held::LastEndpoint)),
        ("reason=endpoint-not-serving", Fate::Planned),
        ("stale reason=endpoint-not-serving", Fate::Planned),
        ("reason=endpoint-gone", Fate::Left),
    ] {
        let fate = policy(words)
            .unwrap()
            .fate(&flow(UDP), Some(last), Replies::Unknown);
        assert_eq!(fate, expected, "{words}");
    }
}

#[test]
fn each_verdict_is_taken_held_or_left() {
    use Fate::{Left, Planned};
    use Held::*;
    use Reason::*;
    let held = Fate::Held;
    for (words, protocol, reason, expected) in [
        ("stale", UDP, EndpointGone, Planned),
        ("stale", UDP, NoDnat, Planned),
        ("stale", UDP, Misdelivery, Planned),
        ("stale", UDP, Endpoint, Left),
        ("stale", TCP, Endpoint, Left),
        ("stale", TCP, EndpointGone, held(Protocol)),
        ("stale", TCP, PodNotEndpoint, held(Protocol)),
        ("stale tcp", TCP, EndpointGone, Planned),
        ("stale tcp", TCP, PodNotEndpoint, held(Detached)),
        ("stale tcp include=detached", TCP, PodNotEndpoint, Planned),
        ("stale", UDP, EndpointTerminating, held(Draining)),
        ("stale include=draining", UDP, EndpointTerminating, Planned),
        (
            "stale include=draining",
            UDP,
            NoDnatNoEndpoint,
            held(Pending),
        ),
        ("stale include=pending", UDP, NoDnatNoEndpoint, Planned),
        ("stale include=pending", UDP, NoDnatNoRule, Planned),
        ("stale include=pending", UDP, EndpointGone, Planned),
        ("stale", UDP, Reason::ForeignZone, held(Held::ForeignZone)),
        ("stale", UDP, SourceIncomplete, Left),
        ("stale", UDP, NoFrontend, Left),
        ("verdict=draining", UDP, EndpointTerminating, held(Draining)),
        (
            "verdict=draining include=draining",
            UDP,
            EndpointTerminating,
            Planned,
        ),
        ("verdict=draining include=draining", UDP, EndpointGone, Left),
        ("verdict=stale", TCP, EndpointGone, held(Protocol)),
        ("verdict=ok", UDP, Endpoint, Planned),
        ("verdict=ok", UDP, EndpointTerminating, Left),
        // Never what was not decided, and never what is no Service's.
        ("verdict=!ok", UDP, EndpointGone, Planned),
        ("verdict=!ok", UDP, EndpointTerminating, held(Draining)),
        ("verdict=!ok", UDP, SourceIncomplete, Left),
        ("verdict=!ok", UDP, ForeignNetns, Left),
        ("verdict=!ok", UDP, NoFrontend, Left),
        ("verdict=!ok", UDP, OtherPort, Left),
        (
            "verdict=!ok",
            UDP,
            Reason::ForeignZone,
            held(Held::ForeignZone),
        ),
        // What is excluded by name stays excluded.
        (
            "verdict=!draining include=draining",
            UDP,
            EndpointTerminating,
            Left,
        ),
        (
            "reason=!no-dnat-no-rule include=pending",
            UDP,
            NoDnatNoRule,
            Left,
        ),
        (
            "reason=!no-dnat-no-rule include=pending",
            UDP,
            NoDnatNoEndpoint,
            Planned,
        ),
        ("reason=endpoint-gone", UDP, EndpointGone, Planned),
        ("reason=endpoint-gone", UDP, NoDnat, Left),
        ("reason=endpoint-gone", TCP, EndpointGone, held(Protocol)),
        ("reason=!no-dnat", UDP, NoFrontend, Left),
        ("stale reason=no-dnat", UDP, EndpointGone, Left),
        ("stale reason=no-dnat", UDP, NoDnat, Planned),
    ] {
        let fate = fate(words, protocol, reason, Replies::Unknown);
        assert_eq!(fate, expected, "{words}: protocol {protocol}, {reason:?}");
    }
}

#[test]
fn a_suspect_needs_its_word_and_the_proof_that_nothing_answers() {
    let suspect = |words, replies| fate(words, UDP, Reason::NotInNodeRules, replies);
    let held = Fate::Held(Held::Suspect);
    assert_eq!(suspect("stale", Replies::Stopped), held);
    assert_eq!(
        suspect("stale include=suspect", Replies::Stopped),
        Fate::Planned
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
fn without_a_verdict_selector_every_protocol_is_taken() {
    let policy = policy("").unwrap();
    for protocol in [1, TCP, UDP, 132] {
        for reason in [None, Some(Reason::Endpoint), Some(Reason::SourceIncomplete)] {
            let fate = policy.fate(&flow(protocol), reason.map(judged), Replies::Unknown);
            assert_eq!(fate, Fate::Planned, "{protocol} {reason:?}");
        }
    }
}

#[test]
fn entries_that_are_not_confirmed_or_are_dying_are_never_taken() {
    for words in ["", "stale"] {
        let policy = policy(words).unwrap();
        for status in [Status::default(), Status::CONFIRMED.with(Status::DYING)] {
            let mut flow = flow(UDP);
            flow.status = status;
            let fate = policy.fate(&flow, Some(judged(Reason::EndpointGone)), Replies::Unknown);
            assert_eq!(fate, Fate::Left, "{words:?} {status:?}");
        }
    }
}

#[test]
fn what_was_not_decided_cannot_even_be_named() {
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

#[test]
fn a_plan_counts_what_it_leaves_and_takes_nothing_twice() {
    let mut builder = PlanBuilder::default();
    let gone = Some(Reason::EndpointGone);
    let planned = |flow| Planned {
        flow,
        reason: gone,
        seen: None,
    };
    let mut second = flow(UDP);
    second.original.l4 = L4::Ports { src: 4001, dst: 53 };
    for entry in [flow(UDP), second, flow(UDP)] {
        builder.add(planned(entry), Fate::Planned);
    }
    builder.add(planned(flow(TCP)), Fate::Held(Held::Protocol));
    builder.add(planned(flow(UDP)), Fate::Left);
    let mut nameless = flow(UDP);
    nameless.id = None;
    builder.add(planned(nameless), Fate::Planned);
    let plan = builder.finish(true);
    assert_eq!((plan.len(), plan.nameless()), (2, 1));
    assert_eq!(plan.held().collect::<Vec<_>>(), [(Held::Protocol, 1)]);
}

#[test]
fn a_planned_entry_stays_within_its_documented_size() {
    assert!(size_of::<Planned>() <= 256, "{}", size_of::<Planned>());
}
