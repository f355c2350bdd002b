//! Calls over many agents.

mod driven;
mod policy;
mod shares;
mod unwell;

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use opensentience_wire::message::ActorType;
use opensentience_wire::message::{Health, Status, ToolSpec};
use opensentience_wire::role::core::{CallRequest, Outcome};
use opensentience_wire::role::router::{
    Config, Ended, Input, Output, Quota, Refused, RestartPolicy, RouteId, Router,
};
use opensentience_wire::{AuditName, CommandError, ErrorCode, ErrorObject};
use serde_json::json;
use ubos_common::json::RawObject;

use crate::kit::RequestExt as _;
use crate::kit::*;

pub(super) fn tools(agent: &str, names: &[&str]) -> Vec<Arc<ToolSpec>> {
    let tool = |name: &&str| {
        let mut spec = spec(name);
        spec.tool_id = format!("{agent}/{name}");
        Arc::new(spec)
    };
    names.iter().map(tool).collect()
}

pub(super) fn up(router: &mut Router, millis: u64, agent: &str, names: &[&str]) {
    let tools = tools(agent, names);
    router.handle_input(
        at(millis),
        Input::AgentUp {
            agent: agent.into(),
            tools,
        },
    );
}

pub(super) fn router(config: Config) -> Router {
    let mut router = Router::new(config).unwrap();
    up(&mut router, 0, "a", &["read", "write"]);
    up(&mut router, 0, "b", &["count"]);
    router
}

pub(super) fn request(tool: &str) -> CallRequest {
    CallRequest::new(tool, object(&json!({"n": 1})))
}

pub(super) fn keyed(tool: &str, n: u64) -> CallRequest {
    let mut request = CallRequest::new(tool, object(&json!({"n": n})));
    request.idempotency_key = Some("k".into());
    request
}

pub(super) fn drain(router: &mut Router) -> Vec<Output> {
    core::iter::from_fn(|| router.poll_output()).collect()
}

pub(super) fn sent(outputs: &[Output]) -> Vec<String> {
    let send = |output: &Output| match output {
        Output::Send { agent, request, .. } => Some(format!("{agent} {}", request.tool_id)),
        _ => None,
    };
    outputs.iter().filter_map(send).collect()
}

pub(super) fn ended(outputs: &[Output]) -> BTreeMap<RouteId, String> {
    let end = |output: &Output| match output {
        Output::Ended { route, outcome } => {
            let code = outcome.error.as_ref().map(|error| error.code.to_string());
            Some((*route, code.unwrap_or_else(|| outcome.status.to_string())))
        }
        _ => None,
    };
    let all: Vec<_> = outputs.iter().filter_map(end).collect();
    let count = all.len();
    let map: BTreeMap<_, _> = all.into_iter().collect();
    assert_eq!(map.len(), count, "a call ended twice");
    map
}

pub(super) fn good(output: RawObject) -> Box<Outcome> {
    let mut outcome = bad(ErrorCode::ToolFailed);
    (outcome.status, outcome.error, outcome.output) = (Status::Succeeded, None, Some(output));
    outcome
}

/// An outcome as a connection reports it: there is no public way to make one but to have it happen.
pub(super) fn bad(code: ErrorCode) -> Box<Outcome> {
    let mut conn = open_core(opensentience_wire::role::core::Config::default());
    conn.call_tool(at(0), request(&format!("{AGENT}/echo")))
        .unwrap();
    conn.handle_input(at(0), opensentience_wire::role::Input::Eof)
        .unwrap();
    let said = drain_core(&mut conn);
    let outcome = said.events.into_iter().find_map(|event| match event {
        opensentience_wire::role::core::Event::Ended(_, outcome) => Some(outcome),
        _ => None,
    });
    let mut outcome = outcome.unwrap();
    outcome.error = Some(ErrorObject::of(code, "no"));
    outcome
}

pub(super) fn end(
    router: &mut Router,
    route: RouteId,
    outcome: Box<Outcome>,
) -> BTreeMap<RouteId, String> {
    router.handle_input(at(5), Input::Ended { route, outcome });
    ended(&drain(router))
}

// spec: OSW-4.3-4
#[test]
fn a_call_goes_to_the_agent_that_has_the_tool_and_ends_once() {
    let mut router = router(Config::default());
    let read = router.call(at(0), request("a/read")).unwrap();
    let count = router.call(at(0), request("b/count")).unwrap();
    let missing = router.call(at(0), request("b/read")).unwrap_err();
    assert_eq!(missing.to_string(), r#"no such tool: "b/read""#);
    let long = "b".repeat(1 << 20);
    let missing = router.call(at(0), request(&long)).unwrap_err();
    assert!(missing.to_string().len() < 300);
    assert_eq!(sent(&drain(&mut router)), ["a a/read", "b b/count"]);
    assert_eq!(router.running_calls(), 2);
    assert_eq!(
        end(&mut router, read, good(RawObject::empty())),
        [(read, "succeeded".into())].into()
    );
    assert_eq!(
        end(&mut router, read, good(RawObject::empty())),
        BTreeMap::new()
    );
    let error = CommandError::Busy;
    router.handle_input(
        at(5),
        Input::NotSent {
            route: count,
            error,
        },
    );
    assert_eq!(
        ended(&drain(&mut router)),
        [(count, "tool.busy".into())].into()
    );
    assert_eq!(router.running_calls(), 0);
}

// spec: OSW-4.3-2
#[test]
fn agents_need_a_grant_and_directives_a_cause() {
    let config = Config::default()
        .with_grant("x", "tool:invoke:a/*")
        .with_grant("*", "tool:invoke:*/count");
    let mut router = router(config);
    let as_caller = |kind, id: &str, tool: &str| request(tool).with_caller(kind, id);
    assert!(
        router
            .call(at(0), as_caller(ActorType::Agent, "x", "a/read"))
            .is_ok()
    );
    assert!(
        router
            .call(at(0), as_caller(ActorType::Agent, "y", "b/count"))
            .is_ok()
    );
    assert!(
        router
            .call(at(0), as_caller(ActorType::Human, "h", "a/read"))
            .is_ok()
    );
    drain(&mut router);
    let denied = router
        .call(at(0), as_caller(ActorType::Agent, "y", "a/read"))
        .unwrap_err();
    assert_eq!(
        denied,
        Refused::PermissionDenied {
            permission: "tool:invoke:a/read".into()
        }
    );
    let mut write = tools("a", &["write"]);
    Arc::make_mut(&mut write[0]).requires_directive = Some(true);
    router.handle_input(
        at(0),
        Input::Tools {
            agent: "a".into(),
            tools: write,
        },
    );
    assert_eq!(
        router.call(at(0), request("a/write")),
        Err(Refused::DirectiveRequired)
    );
    assert!(
        router
            .call(at(0), request("a/write").with_causation_id("d-1"))
            .is_ok()
    );
    let outputs = drain(&mut router);
    let audits: Vec<_> = outputs
        .iter()
        .filter_map(|output| match output {
            Output::Audit(event) => {
                Some((event.name.as_str().to_owned(), event.code.clone().unwrap()))
            }
            _ => None,
        })
        .collect();
    let denied = |code| ("security.denied".to_owned(), code);
    assert_eq!(
        audits,
        [
            denied(ErrorCode::ToolPermissionDenied),
            denied(ErrorCode::ToolDirectiveRequired)
        ]
    );
    assert_eq!(sent(&outputs), ["a a/write"]);
}

// spec: OSW-4.5-2
#[test]
fn an_unhealthy_agent_gets_no_new_calls() {
    let mut router = router(Config::default());
    let health = |health| Input::Health {
        agent: "a".into(),
        health,
    };
    router.handle_input(at(0), health(Health::Unhealthy));
    assert_eq!(
        router.call(at(0), request("a/read")),
        Err(Refused::Unhealthy)
    );
    assert!(router.call(at(0), request("b/count")).is_ok());
    router.handle_input(at(0), health(Health::Degraded));
    assert!(router.call(at(0), request("a/read")).is_ok());
}

#[test]
fn quotas_bound_rate_concurrency_and_bytes() {
    let config = Config::default()
        .with_agent_quota(Quota::default().with_rate(3, Duration::from_millis(300)))
        .with_tool_quota(
            "a/write",
            Quota::default()
                .with_concurrent(1)
                .with_max_input_bytes(10)
                .with_max_output_bytes(20),
        );
    let mut router = router(config);
    let first = router.call(at(0), request("a/write")).unwrap();
    assert_eq!(
        router.call(at(0), request("a/write")),
        Err(Refused::ConcurrencyExceeded { limit: 1 })
    );
    let long = CallRequest::new("a/write", object(&json!({"text": "too long"})));
    assert_eq!(
        router.call(at(0), long),
        Err(Refused::InputTooLarge {
            bytes: 19,
            limit: 10
        })
    );
    let large = object(&json!({"text": "x".repeat(20)}));
    assert_eq!(
        end(&mut router, first, good(large)),
        [(first, "tool.output_too_large".into())].into()
    );
    // Refused calls used nothing of the rate.
    for _ in 0..2 {
        router.call(at(0), request("a/read")).unwrap();
    }
    let retry_after = Duration::from_millis(100);
    assert_eq!(
        router.call(at(0), request("a/read")),
        Err(Refused::RateExceeded { retry_after })
    );
    assert!(router.call(at(99), request("a/read")).is_err());
    assert!(router.call(at(100), request("a/read")).is_ok());
    assert!(router.call(at(100), request("a/read")).is_err());
    assert!(
        router.call(at(100), request("b/count")).is_ok(),
        "each agent has its own"
    );
    let quota = Quota::default().with_max_output_bytes(20);
    let mut router = self::router(Config::default().with_agent_quota(quota));
    for (letters, wanted) in [(9, "succeeded"), (10, "tool.output_too_large")] {
        let route = router.call(at(0), request("a/read")).unwrap();
        let output = object(&json!({"text": "x".repeat(letters)}));
        assert_eq!(
            end(&mut router, route, good(output)),
            [(route, wanted.into())].into()
        );
    }
    let full = Config::default().with_max_agents(9).with_max_calls(1);
    let mut router = self::router(full);
    router.call(at(0), request("a/read")).unwrap();
    assert_eq!(router.call(at(0), request("b/count")), Err(Refused::Busy));
}

#[test]
fn a_quota_outlives_registrations_and_connections() {
    let rate = Quota::default().with_rate(2, Duration::from_secs(60));
    let config = Config::default().with_tool_quota("a/write", Quota::default().with_concurrent(1));
    let mut router = router(config.with_agent_quota(rate));
    router.call(at(0), request("a/write")).unwrap();
    let none = Input::Tools {
        agent: "a".into(),
        tools: Vec::new(),
    };
    router.handle_input(at(1), none);
    let again = Input::Tools {
        agent: "a".into(),
        tools: tools("a", &["read", "write"]),
    };
    router.handle_input(at(1), again);
    assert_eq!(
        router.call(at(2), request("a/write")),
        Err(Refused::ConcurrencyExceeded { limit: 1 })
    );
    router.call(at(2), request("a/read")).unwrap();
    let down = Input::AgentDown {
        agent: "a".into(),
        ended: Ended::Well,
    };
    router.handle_input(at(3), down);
    up(&mut router, 4, "a", &["read", "write"]);
    let refused = router.call(at(4), request("a/read"));
    assert!(
        matches!(refused, Err(Refused::RateExceeded { .. })),
        "{refused:?}"
    );
    assert!(
        router.call(at(60_000), request("a/write")).is_ok(),
        "its place was given back"
    );
}

// spec: OSW-8-1
#[test]
fn every_refusal_is_audited() {
    let quota = Quota::default().with_concurrent(1).with_max_input_bytes(9);
    let config = Config::default().with_tool_quota("a/read", quota);
    let mut router = router(config.with_max_calls(2));
    router.call(at(0), keyed("a/read", 1)).unwrap();
    let long = CallRequest::new("a/read", object(&json!({"text": "too long"})));
    let refused = [
        request("a/none"),
        long,
        request("a/read"),
        keyed("b/count", 1),
        keyed("b/count", 2),
    ]
    .map(|request| router.call(at(0), request).err());
    assert_eq!(refused.iter().flatten().count(), 4, "{refused:?}");
    let codes: Vec<_> = drain(&mut router)
        .into_iter()
        .filter_map(|output| match output {
            Output::Audit(event) => Some((event.name.to_string(), event.code.unwrap().to_string())),
            _ => None,
        })
        .collect();
    let codes: Vec<_> = codes
        .iter()
        .map(|(name, code)| (name.as_str(), code.as_str()))
        .collect();
    let name = "tool.call_refused";
    assert_eq!(
        codes,
        [
            (name, "tool.not_found"),
            (name, "tool.invalid_input"),
            (name, "limits.concurrency_exceeded"),
            (name, "tool.busy")
        ]
    );
}

#[test]
fn an_agent_whose_connection_ended_is_down_before_its_process_is() {
    let mut router = router(Config::default().with_restart(RestartPolicy::Always));
    let [done, left] = [(); 2].map(|()| router.call(at(0), request("a/read")).unwrap());
    drain(&mut router);
    router.handle_input(at(1), Input::AgentDisconnected { agent: "a".into() });
    // What came before the connection ended may be told of after it.
    assert_eq!(ended(&drain(&mut router)), BTreeMap::new());
    assert_eq!(
        end(&mut router, done, good(RawObject::empty())),
        [(done, "succeeded".into())].into()
    );
    assert_eq!((router.health("a"), router.tools().count()), (None, 1));
    assert_eq!(
        router.call(at(1), request("a/read")),
        Err(Refused::Unavailable)
    );
    let ended = Ended::Failed;
    router.handle_input(
        at(900),
        Input::AgentDown {
            agent: "a".into(),
            ended,
        },
    );
    let outputs = drain(&mut router);
    let lost = self::ended(&outputs);
    assert_eq!(lost, [(left, "agent.disconnected".into())].into());
    assert!(
        router.poll_timeout().is_some(),
        "it is to be launched again"
    );
}

// spec: OSW-4.3-4
#[test]
fn the_tools_of_an_agent_that_is_launched_again_are_missed_for_a_while_alone() {
    let agent = || "a".to_owned();
    let down = |router: &mut Router, ended| {
        let agent = agent();
        router.handle_input(at(1), Input::AgentDown { agent, ended });
    };
    let call = |router: &mut Router, tool: &str| router.call(at(2), request(tool)).err();
    let missing = |tool: &str| Some(Refused::ToolNotFound { tool: tool.into() });
    let unavailable = Some(Refused::Unavailable);
    let started = || router(Config::default().with_restart(RestartPolicy::OnFailure));
    let mut router = started();
    let ledger = router.ledger("a");
    down(&mut router, Ended::Failed);
    // Its launches may fail for long.
    for _ in 0..3 {
        assert_eq!(call(&mut router, "a/read"), unavailable);
        assert_eq!(call(&mut router, "a/none"), missing("a/none"));
        router.handle_input(at(2), Input::LaunchFailed { agent: agent() });
    }
    let refused = unavailable.as_ref().unwrap();
    let error = ErrorObject::of(ErrorCode::from(refused), refused.to_string());
    assert_eq!(
        (error.code.as_str(), error.retryable),
        ("agent.disconnected", Some(true))
    );
    assert!(ledger.held_bytes() > 0);
    up(&mut router, 3, "a", &["write"]);
    assert_eq!(call(&mut router, "a/write"), None);
    assert_eq!(
        call(&mut router, "a/read"),
        missing("a/read"),
        "it has it no more"
    );
    // One that ends for good is not expected back.
    for ended in [Ended::Well, Ended::Asked] {
        let mut router = started();
        let ledger = router.ledger("a");
        router.handle_input(at(1), Input::AgentDisconnected { agent: agent() });
        assert_eq!(call(&mut router, "a/read"), unavailable);
        down(&mut router, ended);
        assert_eq!(call(&mut router, "a/read"), missing("a/read"));
        assert_eq!(ledger.held_bytes(), 0);
    }
    let mut router = started();
    down(&mut router, Ended::Failed);
    router.handle_input(at(2), Input::AgentStopped { agent: agent() });
    assert_eq!(call(&mut router, "a/read"), missing("a/read"));
    let mut router = started();
    router.handle_input(at(1), Input::AgentStopping { agent: agent() });
    assert_eq!(call(&mut router, "a/read"), missing("a/read"));
}

// spec: OSW-4.3-10
#[test]
fn a_call_goes_on_whose_copy_is_cancelled() {
    let mut router = router(Config::default());
    let [first, copy] = [(); 2].map(|()| router.call(at(0), keyed("a/write", 1)).unwrap());
    assert_eq!(sent(&drain(&mut router)).len(), 1);
    router.cancel(at(1), copy).unwrap();
    let outputs = drain(&mut router);
    let is_cancel = |output: &Output| matches!(output, Output::Cancel { .. });
    assert!(!outputs.iter().any(is_cancel), "{outputs:?}");
    assert_eq!(
        end(&mut router, first, good(RawObject::empty())),
        [(first, "succeeded".into())].into()
    );
}

// spec: OSW-4.3-10
#[test]
fn keys_of_callers_are_apart() {
    let mut router = router(Config::default());
    let of = |id| keyed("a/write", 1).with_caller(ActorType::Human, id);
    let first = router.call(at(0), of("one")).unwrap();
    let other = router.call(at(0), of("two")).unwrap();
    assert_eq!(sent(&drain(&mut router)).len(), 2);
    let end_of_first = end(&mut router, first, good(RawObject::empty()));
    assert_eq!(end_of_first.len(), 1);
    router.call(at(0), of("one")).unwrap();
    assert!(
        sent(&drain(&mut router)).is_empty(),
        "its own result is repeated"
    );
    end(&mut router, other, good(RawObject::empty()));
    router.call(at(0), keyed("a/write", 1)).unwrap();
    assert_eq!(
        sent(&drain(&mut router)).len(),
        1,
        "nobody is a caller of its own"
    );
}

// spec: OSW-4.3-10
#[test]
fn figures_and_errors_count_for_what_is_remembered() {
    let mut router = router(Config::default());
    let large = || object(&json!({"text": "x".repeat(1 << 20)}));
    let with_key = |n: usize| {
        let mut request = request("a/write");
        request.idempotency_key = Some(n.to_string());
        request
    };
    for n in 0..40 {
        let call = router.call(at(0), with_key(n)).unwrap();
        let mut outcome = match n % 3 {
            0 => good(RawObject::empty()),
            _ => bad(ErrorCode::ToolFailed),
        };
        match &mut outcome.error {
            Some(error) if n % 3 == 1 => error.details = Some(large()),
            Some(error) => error.extra.insert("later", large().into()),
            None => outcome.metrics = Some(large()),
        }
        end(&mut router, call, outcome);
    }
    let is_known = |router: &mut Router, n| {
        router.call(at(0), with_key(n)).unwrap();
        sent(&drain(router)).is_empty()
    };
    let known = (0..40).filter(|n| is_known(&mut router, *n)).count();
    assert_eq!(known, 4, "of 1 MiB each, and 5 MiB may be kept of an agent");
}

// spec: OSW-4.3-10
#[test]
fn one_key_is_sent_once_and_everybody_gets_its_end() {
    let mut router = router(Config::default());
    let first = router.call(at(0), keyed("a/write", 1)).unwrap();
    let second = router.call(at(0), keyed("a/write", 1)).unwrap();
    assert_eq!(
        router.call(at(0), keyed("a/write", 2)),
        Err(Refused::Conflict)
    );
    router.call(at(0), keyed("a/read", 2)).unwrap();
    assert_eq!(sent(&drain(&mut router)), ["a a/write", "a a/read"]);
    let ends = end(&mut router, first, good(RawObject::empty()));
    assert_eq!(
        ends,
        [(first, "succeeded".into()), (second, "succeeded".into())].into()
    );
    let later = router.call(at(9), keyed("a/write", 1)).unwrap();
    let outputs = drain(&mut router);
    assert_eq!(
        (sent(&outputs).len(), ended(&outputs)),
        (0, [(later, "succeeded".into())].into())
    );
    // What may be tried again is not remembered.
    let mut router = self::router(Config::default());
    let first = router.call(at(0), keyed("a/write", 1)).unwrap();
    drain(&mut router);
    end(&mut router, first, bad(ErrorCode::ToolTimeout));
    router.call(at(0), keyed("a/write", 1)).unwrap();
    assert_eq!(sent(&drain(&mut router)).len(), 1);
}

// spec: OSW-4.3-10
#[test]
fn cancelling_one_of_several_leaves_the_others() {
    let mut router = router(Config::default());
    let routes: Vec<_> = (0..3)
        .map(|_| router.call(at(0), keyed("a/write", 1)).unwrap())
        .collect();
    drain(&mut router);
    router.cancel(at(0), routes[0]).unwrap();
    router.cancel(at(0), routes[1]).unwrap();
    let outputs = drain(&mut router);
    assert_eq!(ended(&outputs).len(), 2);
    assert!(
        !outputs
            .iter()
            .any(|output| matches!(output, Output::Cancel { .. }))
    );
    router.cancel(at(0), routes[2]).unwrap();
    let outputs = drain(&mut router);
    assert!(
        outputs
            .iter()
            .any(|output| matches!(output, Output::Cancel { route, .. } if *route == routes[0]))
    );
    assert_eq!(ended(&outputs).len(), 1);
    assert_eq!(
        end(&mut router, routes[0], bad(ErrorCode::ToolCanceled)),
        BTreeMap::new()
    );
    assert_eq!(
        (router.running_calls(), router.cancel(at(0), routes[0])),
        (0, Err(CommandError::NoSuchCall))
    );
    let alone = router.call(at(0), request("a/read")).unwrap();
    drain(&mut router);
    router.cancel(at(0), alone).unwrap();
    assert!(matches!(drain(&mut router)[..], [Output::Cancel { route, .. }] if route == alone));
    assert_eq!(router.running_calls(), 1, "its end is still to come");
}

// spec: OSW-4.5-5
#[test]
fn every_call_of_an_agent_that_goes_ends_and_its_tools_are_gone() {
    let mut router = router(Config::default());
    let lost = [
        router.call(at(0), keyed("a/write", 1)).unwrap(),
        router.call(at(0), keyed("a/write", 1)).unwrap(),
    ];
    let kept = router.call(at(0), request("b/count")).unwrap();
    drain(&mut router);
    router.handle_input(
        at(1),
        Input::AgentDown {
            agent: "a".into(),
            ended: Ended::Failed,
        },
    );
    let ends = ended(&drain(&mut router));
    assert_eq!(
        ends,
        lost.map(|route| (route, "agent.disconnected".to_owned()))
            .into()
    );
    let missing = router.call(at(1), request("a/read"));
    assert!(matches!(missing, Err(Refused::ToolNotFound { .. })));
    assert_eq!(end(&mut router, kept, good(RawObject::empty())).len(), 1);
    assert_eq!(router.tools().count(), 1);
}

#[test]
fn a_tool_stays_with_the_agent_that_has_it() {
    let mut router = router(Config::default());
    let mut stolen = tools("a", &["read"]);
    stolen.extend(tools("c", &["own"]));
    router.handle_input(
        at(0),
        Input::AgentUp {
            agent: "c".into(),
            tools: stolen,
        },
    );
    assert!(
        drain(&mut router)
            .iter()
            .any(|output| matches!(output, Output::Audit(_)))
    );
    router.call(at(0), request("a/read")).unwrap();
    router.call(at(0), request("c/own")).unwrap();
    assert_eq!(sent(&drain(&mut router)), ["a a/read", "c c/own"]);
}

/// The times at which an agent that dies at once is launched again.
#[test]
fn a_router_takes_no_more_agents_than_it_may_and_those_that_it_has_again() {
    let mut router = router(Config::default().with_max_agents(2));
    drain(&mut router);
    up(&mut router, 1, "c", &["add"]);
    let rejected = |outputs: &[Output]| {
        let is_it = |output: &Output| matches!(output, Output::Audit(audit) if audit.name == AuditName::MessageRejected);
        outputs.iter().any(is_it)
    };
    assert!(rejected(&drain(&mut router)));
    up(&mut router, 2, "a", &["read", "write", "find"]);
    assert!(!rejected(&drain(&mut router)));
    let ids: Vec<&str> = router.tools().map(|tool| tool.tool_id.as_str()).collect();
    assert_eq!(ids, ["a/find", "a/read", "a/write", "b/count"]);
}

fn launches(policy: RestartPolicy, ended: Ended) -> Vec<u64> {
    let mut router = router(Config::default().with_restart(policy));
    let (mut times, mut millis) = (Vec::new(), 0);
    for _ in 0..9 {
        router.handle_input(
            at(millis),
            Input::AgentDown {
                agent: "a".into(),
                ended,
            },
        );
        let Some(due) = router.poll_timeout() else {
            break;
        };
        let before = millis;
        millis = due.as_nanos() / 1_000_000;
        router.handle_timeout(at(millis));
        let launched = drain(&mut router)
            .into_iter()
            .any(|output| matches!(output, Output::Launch { .. }));
        assert!(launched);
        times.push(millis - before);
        up(&mut router, millis, "a", &["read"]);
    }
    times
}

// spec: OSW-4.5-3
#[test]
fn agents_are_launched_again_by_policy_with_growing_delays() {
    let growing = [
        1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000,
    ];
    assert_eq!(launches(RestartPolicy::OnFailure, Ended::Failed), growing);
    assert_eq!(launches(RestartPolicy::Always, Ended::Well), growing);
    for (policy, ended) in [
        (RestartPolicy::Never, Ended::Failed),
        (RestartPolicy::OnFailure, Ended::Well),
        (RestartPolicy::Always, Ended::Asked),
    ] {
        assert_eq!(launches(policy, ended), [0; 0], "{policy:?} {ended:?}");
    }
}

// spec: OSW-4.5-3
#[test]
fn an_unhealthy_agent_is_replaced_once_none_of_its_calls_runs() {
    let mut router = router(Config::default().with_restart(RestartPolicy::OnFailure));
    let route = router.call(at(0), request("a/read")).unwrap();
    drain(&mut router);
    let unwell = Input::Health {
        agent: "a".into(),
        health: Health::Unhealthy,
    };
    router.handle_input(at(0), unwell);
    assert_eq!(drain(&mut router), []);
    router.handle_input(
        at(1),
        Input::Ended {
            route,
            outcome: good(RawObject::empty()),
        },
    );
    assert!(
        matches!(&drain(&mut router)[..], [Output::Ended { .. }, Output::Stop { agent }] if &**agent == "a")
    );
    router.handle_input(
        at(1),
        Input::AgentDown {
            agent: "a".into(),
            ended: Ended::Asked,
        },
    );
    router.handle_timeout(at(1_001));
    assert!(matches!(
        &drain(&mut router)[..],
        [Output::Launch { attempt: 1, .. }]
    ));
    // One that was well for longer than the longest delay begins anew.
    up(&mut router, 1_001, "a", &["read"]);
    router.handle_input(
        at(70_000),
        Input::AgentDown {
            agent: "a".into(),
            ended: Ended::Failed,
        },
    );
    assert_eq!(router.poll_timeout(), Some(at(71_000).mono));
}

// spec: OSW-4.5-3
#[test]
fn an_agent_stopped_for_its_health_is_launched_again() {
    let mut router = router(Config::default().with_restart(RestartPolicy::OnFailure));
    for health in [Health::Unhealthy, Health::Ok] {
        let agent = "a".into();
        router.handle_input(at(0), Input::Health { agent, health });
    }
    assert!(matches!(&drain(&mut router)[..], [Output::Stop { .. }]));
    // It is on its way out, however long its process takes.
    assert_eq!(
        (router.health("a"), router.tools_of("a").count()),
        (None, 0)
    );
    let late = router.call(at(1), request("a/read"));
    assert_eq!(late, Err(Refused::Unavailable));
    drain(&mut router);
    let (agent, ended) = ("a".into(), Ended::Asked);
    router.handle_input(at(2), Input::AgentDown { agent, ended });
    router.handle_timeout(at(5_000));
    assert!(matches!(&drain(&mut router)[..], [Output::Launch { .. }]));
    up(&mut router, 5_100, "a", &["read"]);
    assert!(router.call(at(5_200), request("a/read")).is_ok());
}
