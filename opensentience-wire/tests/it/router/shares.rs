//! What one agent, or one caller, takes of a router that others share.

use core::time::Duration;

use opensentience_wire::message::ActorType;
use opensentience_wire::role::core::Config as CoreConfig;
use opensentience_wire::role::router::{Config, Ended, Input, Output, Refused, RestartPolicy};
use opensentience_wire::{CommandError, EncodeError, Ledger, Share};
use serde_json::json;

use super::*;
use crate::kit::{AGENT, hello, message, tell_core, tool};

#[test]
fn one_agent_leaves_places_for_the_others() {
    let mut router = router(Config::default().with_max_calls(9).with_max_agent_calls(2));
    let first = router.call(at(0), request("a/read")).unwrap();
    router.call(at(0), request("a/write")).unwrap();
    assert_eq!(router.call(at(0), request("a/read")), Err(Refused::Busy));
    assert!(router.call(at(0), request("b/count")).is_ok());
    end(&mut router, first, good(RawObject::empty()));
    assert!(router.call(at(0), request("a/read")).is_ok());
}

#[test]
fn calls_that_wait_for_others_take_places_of_their_agent_too() {
    let mut router = router(Config::default().with_max_agent_calls(3));
    let leader = router.call(at(0), keyed("a/write", 1)).unwrap();
    let follower = router.call(at(0), keyed("a/write", 1)).unwrap();
    router.call(at(0), keyed("a/write", 1)).unwrap();
    let busy = Err(Refused::Busy);
    assert_eq!(router.call(at(0), keyed("a/write", 1)), busy);
    assert!(router.call(at(0), request("b/count")).is_ok());
    router.cancel(at(0), follower).unwrap();
    router.call(at(0), keyed("a/write", 1)).unwrap();
    assert_eq!(router.call(at(0), request("a/read")), busy);
    end(&mut router, leader, good(RawObject::empty()));
    for _ in 0..3 {
        router.call(at(0), request("a/read")).unwrap();
    }
    assert_eq!(router.call(at(0), request("a/read")), busy);
}

/// A router with room for two calls of about 1,000 bytes, of each agent.
fn narrow() -> Router {
    let mut router = router(Config::default().with_max_agent_bytes(16 * 1_300));
    assert_eq!(router.ledger("a").max_bytes_of(Share::Calls), 3_900);
    router
}

#[test]
fn all_that_a_call_holds_counts_for_its_agent() {
    let mut router = narrow();
    let long = || request("a/read").with_correlation_id(&"x".repeat(900));
    let first = router.call(at(0), long()).unwrap();
    router.call(at(0), long()).unwrap();
    assert_eq!(router.call(at(0), long()), Err(Refused::Busy));
    end(&mut router, first, good(RawObject::empty()));
    assert!(router.call(at(0), long()).is_ok());
}

#[test]
fn the_inputs_that_one_agent_is_given_are_bounded_together() {
    let long = |tool: &str| CallRequest::new(tool, object(&json!({"text": "x".repeat(900)})));
    let mut router = narrow();
    let first = router.call(at(0), long("a/read")).unwrap();
    router.call(at(0), long("a/read")).unwrap();
    let busy = Err(Refused::Busy);
    assert_eq!(router.call(at(0), long("a/read")), busy);
    assert!(router.call(at(0), request("a/read")).is_ok(), "a short one");
    assert!(router.call(at(0), long("b/count")).is_ok(), "another's");
    end(&mut router, first, good(RawObject::empty()));
    assert!(router.call(at(0), long("a/read")).is_ok());
    // What is kept of one that was replaced is still the agent's.
    up(&mut router, 1, "a", &["read"]);
    assert_eq!(router.call(at(1), long("a/read")), busy);
}

// spec: OSW-4.3-10
#[test]
fn an_agent_forgets_its_own_oldest_results_for_the_next() {
    // Its results have 5,000 bytes together, of which each takes about 1,500.
    let mut router = router(Config::default().with_max_agent_bytes(16 * 5_000));
    let keyed = |tool: &str, key: &str| {
        let mut request = request(tool);
        request.idempotency_key = Some(key.to_owned());
        request
    };
    let output = || good(object(&json!({"text": "y".repeat(900)})));
    let run = |router: &mut Router, tool: &str, key: &str| {
        let route = router.call(at(0), keyed(tool, key)).unwrap();
        let is_new = sent(&drain(router)).len() == 1;
        end(router, route, output());
        is_new
    };
    for key in ["1", "2", "3", "4"] {
        assert!(run(&mut router, "a/write", key), "{key}");
        assert!(key != "1" || run(&mut router, "b/count", key));
    }
    let ledger = router.ledger("a");
    assert!(ledger.held_bytes_of(Share::Remembered) <= 5_000);
    assert!(!run(&mut router, "b/count", "1"), "another's is kept");
    for (key, is_forgotten) in [("4", false), ("3", false), ("1", true)] {
        assert_eq!(run(&mut router, "a/write", key), is_forgotten, "{key}");
    }
}

// spec: OSW-4.3-10
#[test]
fn a_router_remembers_successes_and_lasting_failures_alone() {
    let mut canceled = bad(ErrorCode::ToolCanceled);
    canceled.status = Status::Canceled;
    let mut later = bad(ErrorCode::ToolFailed);
    later.error.as_mut().unwrap().retryable = Some(true);
    for (outcome, is_remembered) in [
        (good(RawObject::empty()), true),
        (bad(ErrorCode::ToolFailed), true),
        (later, false),
        (canceled, false),
    ] {
        let mut router = router(Config::default());
        let route = router.call(at(0), keyed("a/write", 1)).unwrap();
        drain(&mut router);
        let told = format!("{outcome:?}");
        end(&mut router, route, outcome);
        router.call(at(0), keyed("a/write", 1)).unwrap();
        assert_eq!(
            sent(&drain(&mut router)).is_empty(),
            is_remembered,
            "{told}"
        );
    }
}

#[test]
fn a_result_that_is_too_long_to_remember_is_given_all_the_same() {
    let mut router = router(Config::default().with_max_agent_bytes(16 * 1_000));
    let route = router.call(at(0), keyed("a/write", 1)).unwrap();
    let long = good(object(&json!({"text": "y".repeat(2_000)})));
    let ends = end(&mut router, route, long);
    assert_eq!(ends, [(route, "succeeded".into())].into());
    let again = router.call(at(0), keyed("a/write", 1)).unwrap();
    assert_eq!(sent(&drain(&mut router)).len(), 1, "{again:?}");
}

// spec: OSW-4.3-9
#[test]
fn one_who_waits_for_the_end_of_another_call_waits_no_longer_than_his_time() {
    let mut router = router(Config::default());
    let leader = router.call(at(0), keyed("a/write", 1)).unwrap();
    let with = |millis| {
        let mut request = keyed("a/write", 1);
        request.timeout = Some(Duration::from_millis(millis));
        request
    };
    let patient = router.call(at(0), with(5_000)).unwrap();
    let hasty = router.call(at(0), with(1_000)).unwrap();
    assert_eq!(sent(&drain(&mut router)).len(), 1);
    assert_eq!(router.poll_timeout(), Some(at(1_000).mono));
    router.handle_timeout(at(1_000));
    let late = [(hasty, "tool.timeout".to_owned())].into();
    assert_eq!(ended(&drain(&mut router)), late);
    let ends = end(&mut router, leader, good(RawObject::empty()));
    assert_eq!(ends.keys().copied().collect::<Vec<_>>(), [leader, patient]);
    assert_eq!(router.poll_timeout(), None, "nobody waits any more");
}

#[test]
fn the_last_one_to_give_up_waiting_has_the_call_cancelled() {
    let mut router = router(Config::default());
    let leader = router.call(at(0), keyed("a/write", 1)).unwrap();
    let mut hasty = keyed("a/write", 1);
    hasty.timeout = Some(Duration::from_secs(1));
    router.call(at(0), hasty).unwrap();
    router.cancel(at(0), leader).unwrap();
    drain(&mut router);
    router.handle_timeout(at(1_000));
    let outputs = drain(&mut router);
    let cancel =
        |output: &Output| matches!(output, Output::Cancel { route, .. } if *route == leader);
    assert!(outputs.iter().any(cancel), "{outputs:?}");
}

// spec: OSW-4.3-10
#[test]
fn one_that_waits_for_another_may_end_before_it() {
    let mut router = router(Config::default());
    let mut join = || router.call(at(0), keyed("a/write", 1)).unwrap();
    let [leader, first, second] = [join(), join(), join()];
    drain(&mut router);
    let succeeded = |routes: &[RouteId]| -> BTreeMap<RouteId, String> {
        routes.iter().map(|it| (*it, "succeeded".into())).collect()
    };
    let ends = end(&mut router, first, good(RawObject::empty()));
    assert_eq!(ends, succeeded(&[first]));
    let ends = end(&mut router, leader, good(RawObject::empty()));
    assert_eq!(ends, succeeded(&[leader, second]));
}

#[test]
fn one_that_waits_no_longer_leaves_no_deadline_behind() {
    let mut router = router(Config::default());
    router.call(at(0), keyed("a/write", 1)).unwrap();
    let mut hasty = keyed("a/write", 1);
    hasty.timeout = Some(Duration::from_secs(1));
    let follower = router.call(at(0), hasty).unwrap();
    assert_eq!(router.poll_timeout(), Some(at(1_000).mono));
    router.cancel(at(0), follower).unwrap();
    assert_eq!(router.poll_timeout(), None);
}

#[test]
fn as_many_wait_for_one_call_as_may() {
    let mut router = router(Config::default());
    for _ in 0..=64 {
        router.call(at(0), keyed("a/write", 1)).unwrap();
    }
    let refused = router.call(at(0), keyed("a/write", 1));
    assert_eq!(refused, Err(Refused::Busy));
}

// spec: OSW-4.3-10
#[test]
fn a_result_that_is_repeated_has_a_route_of_its_own() {
    let mut router = router(Config::default());
    let mut routes = std::collections::BTreeSet::new();
    for _ in 0..3 {
        let route = router.call(at(0), keyed("a/write", 1)).unwrap();
        end(&mut router, route, good(RawObject::empty()));
        routes.insert(route);
    }
    routes.insert(router.call(at(0), request("a/read")).unwrap());
    assert_eq!(routes.len(), 4);
}

// spec: OSW-8-1
#[test]
fn a_call_that_its_connection_refused_is_audited_there_alone() {
    let refused = |error: CommandError| {
        let mut router = router(Config::default());
        let route = router.call(at(0), request("a/read")).unwrap();
        drain(&mut router);
        router.handle_input(at(1), Input::NotSent { route, error });
        let audits = drain(&mut router)
            .into_iter()
            .filter_map(|output| match output {
                Output::Audit(event) => Some(event.name.clone()),
                _ => None,
            });
        audits.collect::<Vec<_>>()
    };
    for error in [
        CommandError::Late,
        CommandError::Closing,
        CommandError::Busy,
        CommandError::Encode(EncodeError::HoldsToken),
    ] {
        assert_eq!(refused(error), []);
    }
}

#[test]
fn nothing_is_kept_of_an_agent_that_is_not_wanted_any_more() {
    let config = Config::default()
        .with_max_agents(2)
        .with_restart(RestartPolicy::Always);
    let mut router = router(config);
    let agent = || "a".to_owned();
    router.handle_input(at(0), Input::AgentStopped { agent: agent() });
    assert!(router.health("a").is_some(), "it is there until it is gone");
    let ended = Ended::Failed;
    router.handle_input(
        at(1),
        Input::AgentDown {
            agent: agent(),
            ended,
        },
    );
    assert!(router.poll_timeout().is_some());
    router.handle_input(at(2), Input::AgentStopped { agent: agent() });
    assert_eq!(router.poll_timeout(), None, "it is launched no more");
    up(&mut router, 3, "c", &["run"]);
    assert!(router.call(at(3), request("c/run")).is_ok());
}

#[test]
fn agents_that_come_and_go_leave_no_names_behind() {
    let mut router = Router::new(Config::default()).unwrap();
    for n in 0..3_000 {
        let agent = format!("agent-{n}");
        up(&mut router, 0, &agent, &["read"]);
        let asked = request(&format!("{agent}/read"));
        let route = router.call(at(0), asked).unwrap();
        end(&mut router, route, good(RawObject::empty()));
        let ended = Ended::Asked;
        router.handle_input(at(0), Input::AgentDown { agent, ended });
    }
    let kept = format!("{router:?}").matches("\"agent-").count();
    assert!(
        kept < 1_500,
        "{kept}: a few of each kind, however many came"
    );
}

// spec: OSW-8-1
#[test]
fn ends_that_no_connection_knows_of_are_recorded_once() {
    let quota = Quota::default().with_max_output_bytes(7);
    let mut router = router(Config::default().with_agent_quota(quota));
    let asked = |n: u64| {
        let mut request = keyed("a/read", 1)
            .with_correlation_id(&format!("c{n}"))
            .with_causation_id("cause");
        request.request_id = Some("asked".into());
        request.timeout = Some(Duration::from_secs(n));
        request.with_caller(ActorType::Human, "ada")
    };
    let routes: Vec<_> = (1..=5)
        .map(|n| router.call(at(0), asked(n)).unwrap())
        .collect();
    // The first is sent; nobody but those behind it waits for that any more. The second leaves, the third is too late.
    router.cancel(at(10), routes[0]).unwrap();
    router.cancel(at(20), routes[1]).unwrap();
    router.handle_timeout(at(3_000));
    let outcome = good(object(&json!({"n": 1})));
    router.handle_input(
        at(3_500),
        Input::Ended {
            route: routes[0],
            outcome,
        },
    );
    router.call(at(4_000), asked(6)).unwrap();
    let mut last = asked(7);
    last.idempotency_key = Some("another".into());
    let route = router.call(at(4_000), last).unwrap();
    let outcome = good(object(&json!({"n": 10})));
    router.handle_input(at(4_500), Input::Ended { route, outcome });
    let records: Vec<_> = drain(&mut router)
        .into_iter()
        .filter_map(|output| match output {
            Output::Audit(event) => Some(event),
            _ => None,
        })
        .map(|event| {
            assert_eq!(event.name, AuditName::CallCompleted);
            assert_eq!(event.agent_id.as_deref(), Some("a"));
            assert_eq!(event.tool_id.as_deref(), Some("a/read"));
            assert_eq!(event.caller.unwrap().id.as_str(), "ada");
            assert_eq!(event.request_id.as_deref(), Some("asked"));
            assert_eq!(event.causation_id.as_deref(), Some("cause"));
            let status = event.status.unwrap().to_string();
            let end = event.code.map_or(status, |code| code.to_string());
            let bytes = event.bytes.unwrap_or_default();
            let (of, took) = (event.correlation_id.unwrap(), event.duration_ms.unwrap());
            format!("{of} {end} {bytes} {took}")
        })
        .collect();
    let wanted = [
        "c1 tool.canceled 0 10",
        "c2 tool.canceled 0 20",
        "c3 tool.timeout 0 3000",
        "c4 succeeded 7 3500",
        "c5 succeeded 7 3500",
        "c6 succeeded 7 0",
        "c7 tool.output_too_large 0 500",
    ];
    assert_eq!(records, wanted);
}

#[test]
fn calls_of_one_that_was_replaced_take_places_of_their_agent() {
    let mut router = router(Config::default().with_max_agent_calls(3));
    let old = [request("a/read"), keyed("a/write", 1)].map(|request| router.call(at(0), request));
    up(&mut router, 1, "a", &["read", "write"]);
    let new = router.call(at(2), request("a/read")).unwrap();
    assert_eq!(router.call(at(2), request("a/read")), Err(Refused::Busy));
    // They go on where they are, though the new one is gone.
    let agent = "a".to_owned();
    router.handle_input(at(3), Input::AgentDisconnected { agent });
    end(&mut router, new, bad(ErrorCode::AgentDisconnected));
    let (agent, ended) = ("a".to_owned(), Ended::Failed);
    router.handle_input(at(3), Input::AgentDown { agent, ended });
    assert_eq!(router.running_calls(), 2);
    up(&mut router, 4, "a", &["read", "write"]);
    router.call(at(4), request("a/read")).unwrap();
    assert_eq!(router.call(at(4), request("a/read")), Err(Refused::Busy));
    for route in old {
        end(&mut router, route.unwrap(), good(RawObject::empty()));
        router.call(at(5), request("a/read")).unwrap();
    }
    assert_eq!(router.call(at(6), request("a/read")), Err(Refused::Busy));
}

// What the router entered of a call moves with it, and its connection enters the rest alone.
#[test]
fn a_call_that_its_connection_sends_is_counted_once() {
    let held = |ledger: &Ledger| ledger.held_bytes_of(Share::Calls);
    let connection = |ledger: &Ledger| {
        let conn = new_core(CoreConfig::default());
        let mut conn = conn.with_ledger(ledger.clone()).unwrap();
        tell_core(&mut conn, 0, &hello());
        let register = json!({"tools": [tool("echo")]});
        tell_core(&mut conn, 0, &message("agent.tools.register", register));
        conn
    };
    let echo = || request(&format!("{AGENT}/echo"));
    let alone = Ledger::new(80 << 20);
    let mut conn = connection(&alone);
    conn.call_tool(at(0), echo()).unwrap();
    let mut router = Router::new(Config::default()).unwrap();
    router.handle_input(
        at(0),
        Input::AgentUp {
            agent: AGENT.to_owned(),
            tools: conn.tools().cloned().collect(),
        },
    );
    router.call(at(0), echo()).unwrap();
    let ledger = router.ledger(AGENT);
    let before = held(&ledger);
    for output in drain(&mut router) {
        if let Output::Send { request, .. } = output {
            let mut conn = connection(&ledger);
            conn.call_tool(at(0), *request).unwrap();
            assert!(held(&ledger) < before + held(&alone));
        }
    }
    assert!(held(&ledger) < before);
}

#[test]
fn what_a_request_says_counts_while_its_call_is_routed() {
    let held = |of: &dyn Fn(&mut CallRequest)| {
        let mut router = router(Config::default());
        let mut request = keyed("a/write", 1);
        of(&mut request);
        router.call(at(0), request).unwrap();
        // What is sent counts with its connection.
        drain(&mut router);
        router.ledger("a").held_bytes_of(Share::Calls)
    };
    let long = || "x".repeat(1_000);
    for of in [
        |request: &mut CallRequest, text| request.request_id = Some(text),
        |request: &mut CallRequest, text| request.correlation_id = Some(text),
        |request: &mut CallRequest, text| request.causation_id = Some(text),
    ] {
        let more =
            held(&|request| of(request, long())) - held(&|request| of(request, String::new()));
        assert_eq!(more, 1_000);
    }
    let of_key = |key: &str| held(&|request| request.idempotency_key = Some(key.to_owned()));
    let more = of_key(&long()) - of_key("k");
    assert_eq!(more, 2 * 999, "it stands at two places");
}

// spec: OSW-4.3-10
#[test]
fn what_was_not_sent_is_no_result_of_its_key() {
    let mut router = router(Config::default());
    let route = router.call(at(0), keyed("a/write", 1)).unwrap();
    drain(&mut router);
    let error = CommandError::ToolNotFound {
        tool: "a/write".into(),
    };
    router.handle_input(at(1), Input::NotSent { route, error });
    drain(&mut router);
    router.call(at(2), keyed("a/write", 1)).unwrap();
    assert_eq!(sent(&drain(&mut router)).len(), 1);
}

#[test]
fn a_ledger_goes_that_nobody_knows_any_more() {
    let mut router = router(Config::default());
    let known = router.ledger("known");
    for n in 0..1_000 {
        router.ledger(&n.to_string());
    }
    let kept = format!("{router:?}").matches("Ledger(").count();
    assert!(kept < 100 && router.ledger("known") == known, "{kept}");
}
