//! What one agent may do, and how much of it may be used.

use core::time::Duration;

use opensentience_wire::message::{ActorType, Caller};
use opensentience_wire::role::router::{
    AgentPolicy, Config, Ended, Input, Output, Quota, Refused, RestartPolicy, Router,
};
use opensentience_wire::{ErrorCode, Manifest};
use serde_json::json;
use ubos_common::json::RawObject;

use super::{bad, drain, end, good, request, router, up};
use crate::kit::{RequestExt as _, at, object};

fn with_policy(policy: AgentPolicy) -> Router {
    let mut router = router(Config::default());
    router.set_policy("a", policy).unwrap();
    router
}

#[test]
fn a_policy_binds_the_agent_that_it_is_for() {
    let quota = Quota::default()
        .with_concurrent(1)
        .with_max_output_bytes(100);
    let mut router = with_policy(AgentPolicy::default().with_quota(quota));
    let first = router.call(at(0), request("a/read")).unwrap();
    assert_eq!(
        router.call(at(0), request("a/write")),
        Err(Refused::ConcurrencyExceeded { limit: 1 })
    );
    router.call(at(0), request("b/count")).unwrap();
    let long = good(object(&json!({"text": "x".repeat(200)})));
    let ends = end(&mut router, first, long);
    assert_eq!(ends, [(first, "tool.output_too_large".into())].into());
    router.call(at(0), request("a/write")).unwrap();

    let small = Quota::default().with_max_input_bytes(7);
    let mut router = with_policy(AgentPolicy::default().with_quota(small));
    router.call(at(0), request("a/read")).unwrap();
    let mut large = request("a/read");
    large.input = object(&json!({"text": "x".repeat(20)}));
    let refused = router.call(at(0), large).unwrap_err();
    assert!(matches!(refused, Refused::InputTooLarge { limit: 7, .. }));
}

// spec: OSW-8-1
#[test]
fn a_refusal_is_recorded_with_its_caller_and_its_ids() {
    let mut router = router(Config::default());
    let mut asked = request("a/none")
        .with_caller(ActorType::Human, "ada")
        .with_correlation_id("run-1")
        .with_causation_id("cause-1");
    asked.request_id = Some("r-1".into());
    router.call(at(0), asked.clone()).unwrap_err();
    let [Output::Audit(record)] = &drain(&mut router)[..] else {
        panic!("one record")
    };
    assert_eq!(record.tool_id.as_deref(), Some("a/none"));
    assert_eq!(record.caller, asked.caller);
    assert_eq!(record.request_id, asked.request_id);
    assert_eq!(record.correlation_id, asked.correlation_id);
    assert_eq!(record.causation_id, asked.causation_id);
}

#[test]
fn no_call_takes_longer_than_its_agent_may() {
    let second = Duration::from_secs(1);
    let mut router = with_policy(AgentPolicy::default().with_call_timeout(second));
    for (asked, gets) in [
        (None, second),
        (Some(second * 2), second),
        (Some(second / 2), second / 2),
    ] {
        let mut call = request("a/read");
        call.timeout = asked;
        router.call(at(0), call).unwrap();
        let sent = drain(&mut router)
            .into_iter()
            .find_map(|output| match output {
                Output::Send { request, .. } => Some(request.timeout),
                _ => None,
            });
        assert_eq!(sent, Some(Some(gets)));
    }
}

// spec: OSW-4.3-2
#[test]
fn an_agent_may_call_what_its_policy_permits() {
    let mut router = with_policy(AgentPolicy::default().with_permission("tool:invoke:b/*"));
    let by = |kind: ActorType, id: &str, tool: &str| {
        let mut request = request(tool);
        request.caller = Some(Caller::new(kind, id.into()));
        request
    };
    router
        .call(at(0), by(ActorType::Agent, "a", "b/count"))
        .unwrap();
    for (kind, id, tool) in [
        (ActorType::Agent, "a", "a/read"),
        (ActorType::Agent, "b", "b/count"),
    ] {
        let refused = router.call(at(0), by(kind, id, tool)).unwrap_err();
        assert!(matches!(refused, Refused::PermissionDenied { .. }));
    }
    router.clear_policy("a");
    let refused = router.call(at(0), by(ActorType::Agent, "a", "b/count"));
    assert!(refused.is_err());
}

#[test]
fn a_policy_says_whether_its_agent_is_launched_again() {
    let down = |router: &mut Router| {
        let (agent, ended) = ("a".into(), Ended::Failed);
        router.handle_input(at(0), Input::AgentDown { agent, ended });
        router.poll_timeout().is_some()
    };
    assert!(!down(&mut with_policy(AgentPolicy::default())));
    let always = AgentPolicy::default().with_restart(RestartPolicy::Always);
    assert!(down(&mut with_policy(always)));
}

#[test]
fn policies_out_of_their_range_are_refused() {
    let mut router = router(Config::default().with_max_agents(2));
    let none = AgentPolicy::default().with_call_timeout(Duration::ZERO);
    let refused = router.set_policy("a", none).unwrap_err();
    assert!(refused.to_string().starts_with("call_timeout is"));
    let none =
        AgentPolicy::default().with_quota(Quota::default().with_rate(0, Duration::from_secs(1)));
    let refused = router.set_policy("a", none).unwrap_err();
    assert!(refused.to_string().starts_with("quota is"), "{refused}");
    let none = AgentPolicy::default().with_quota(Quota::default().with_concurrent(0));
    let refused = router.set_policy("a", none).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "quota is Some(0), but at least 1 call must be allowed at once"
    );
    router.set_policy("a", AgentPolicy::default()).unwrap();
    router.set_policy("b", AgentPolicy::default()).unwrap();
    router.set_policy("b", AgentPolicy::default()).unwrap();
    let refused = router.set_policy("c", AgentPolicy::default()).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "max_agents is 2, but more agents have policies"
    );
}

#[test]
fn calls_of_an_agent_that_is_replaced_end_by_themselves() {
    let mut router = router(Config::default());
    let before = router.call(at(0), request("a/read")).unwrap();
    up(&mut router, 0, "a", &["read"]);
    let behind = router.call(at(0), request("a/read")).unwrap();
    drain(&mut router);
    router.handle_input(at(0), Input::AgentDisconnected { agent: "a".into() });
    let ends = end(&mut router, behind, bad(ErrorCode::AgentDisconnected));
    assert_eq!(ends, [(behind, "agent.disconnected".into())].into());
    let ends = end(&mut router, before, good(RawObject::empty()));
    assert_eq!(ends, [(before, "succeeded".into())].into());
}

// spec: OSW-4.1-9
#[test]
fn a_manifest_and_a_policy_of_its_own_bind_an_agent_both() {
    let manifest = br#"{"id": "a", "entrypoint": {"type": "command", "value": "a"},
        "permissions": [" tool:invoke:b/* "],
        "execution_limits": {"max_tool_call_duration": "2s", "max_concurrent_calls": 2}}"#;
    let manifest = Manifest::decode(manifest).unwrap();
    let second = Duration::from_secs(1);
    let own = |at_once| {
        let quota = Quota::default()
            .with_concurrent(at_once)
            .with_rate(4, second);
        AgentPolicy::default()
            .with_quota(quota)
            .with_call_timeout(second)
            .with_permission("tool:invoke:a/read")
            .with_manifest(&manifest)
    };
    for (at_once, limit) in [(1, 1), (3, 2)] {
        let mut router = with_policy(own(at_once));
        let begun: Vec<_> = (0..limit)
            .map(|_| router.call(at(0), request("a/read")).unwrap())
            .collect();
        let full = router.call(at(0), request("a/read"));
        assert_eq!(full, Err(Refused::ConcurrencyExceeded { limit }));
        let times = drain(&mut router)
            .into_iter()
            .filter_map(|output| match output {
                Output::Send { request, .. } => request.timeout,
                _ => None,
            });
        assert!(times.eq(vec![second; limit]));
        for route in begun {
            end(&mut router, route, good(RawObject::empty()));
        }
        // What has ended leaves its place in both.
        router.call(at(0), request("a/read")).unwrap();
    }
    let mut router = with_policy(own(9).with_call_timeout(3 * second));
    router.call(at(0), request("a/read")).unwrap();
    assert!(matches!(&drain(&mut router)[..],
        [Output::Send { request, .. }] if request.timeout == Some(2 * second)));
    let mut router = with_policy(own(9));
    for tool in ["a/read", "b/count"] {
        let mut by_agent = request(tool);
        by_agent.caller = Some(Caller::new(ActorType::Agent, "a".into()));
        router.call(at(0), by_agent).unwrap();
    }
}

#[test]
fn a_manifest_that_was_made_by_hand_is_checked_with_its_policy() {
    let manifest =
        br#"{"id": "a", "entrypoint": {"type": "command", "value": "a"}, "permissions": [],
        "execution_limits": {"max_concurrent_calls": 2}}"#;
    let mut manifest = Manifest::decode(manifest).unwrap();
    manifest
        .execution_limits
        .as_mut()
        .unwrap()
        .max_concurrent_calls = Some(0);
    let mut router = Router::new(Config::default()).unwrap();
    let policy = AgentPolicy::from(&manifest);
    let error = router.set_policy("a", policy).unwrap_err();
    assert!(error.to_string().contains("at least 1 call"), "{error}");
}
