//! A run that is saved and continued.

use core::time::Duration;

use sacp::registry::MemoryRegistry;
use sacp::role::orchestrator::{
    Input, Orchestrator, OrchestratorConfig, OrchestratorError, Output, RestoreError,
};
use sacp::spawn::{PromptSpawner, serve};
use sacp::{Message, v1};
use ubos_common::id::IdSource;
use ubos_common::time::{Mono, Now, Timestamp};

use super::{
    ONE, TWO, answer, delegations, drain, library, new, new_answer, now, request_new, result,
    start, start_new, state_of,
};

// spec: SACP-3-2
#[test]
fn an_orchestrator_pauses_and_is_taken_up_elsewhere() {
    let config = OrchestratorConfig::default;
    let mut before = start_new(&format!("{ONE},{TWO}"), "", config());
    let asked = delegations(&drain(&mut before));
    before.pause(now()).unwrap();
    let first = new(&asked[0]);
    let done = state_of(&first, "DONE", r#","result":{"outputs":{"a":11}}"#);
    answer(&mut before, asked[0].ticket, &done);
    assert_eq!(drain(&mut before), [Output::Paused]);
    let saved = before.save(now()).unwrap();
    let text = core::str::from_utf8(&saved).unwrap();
    assert!(!text.contains("spawned"), "nobody was: {text}");
    before.resume(now()).unwrap();
    let late = delegations(&drain(&mut before))[0].ticket;
    let text = format!(
        r#"{{"proto_ver":"1.0.0","msg_id":"m","ts":"2025-10-01T12:00:00Z","sender":"s","recipient":"o","g":"G",
        "plan":[{ONE},{TWO}],"state":"PENDING"}}"#
    );
    let message = v1::Message::decode(text.as_bytes()).unwrap();
    let restore = |saved: &[u8]| {
        let ids = IdSource::seeded(8);
        Orchestrator::restore(now(), message.clone(), library(), config(), ids, saved)
    };
    assert!(matches!(restore(b"{}"), Err(RestoreError::Run(_))));
    let mut after = restore(&saved).unwrap();
    after.resume(now()).unwrap();
    let asked = delegations(&drain(&mut after));
    let second = new(&asked[0]);
    assert_eq!(second.ctx.as_ref().unwrap()["inputs"].as_str(), "[11]");
    let done = state_of(&second, "DONE", r#","result":{"outputs":{"b":2}}"#);
    let (ticket, bytes) = (late, done.clone().into_bytes());
    let cause = sacp::runner::Cause::tool("late");
    for input in [
        Input::Answered { ticket, bytes },
        Input::Failed { ticket, cause },
    ] {
        let refused = after.handle_input(now(), input);
        assert_eq!(refused, Err(OrchestratorError::NotRequested));
    }
    answer(&mut after, asked[0].ticket, &done);
    let result = new_answer(&drain(&mut after)).result.unwrap();
    assert_eq!(
        (result.outputs["a"].as_str(), result.outputs["b"].as_str()),
        ("11", "2")
    );
    assert_eq!(after.pause(now()), Err(OrchestratorError::Closed));
}

#[test]
fn a_pause_is_told_at_once_where_nothing_is_open() {
    let retried = ONE.replace(
        r#""a"}"#,
        r#""a","retry":{"max_attempts":2,"backoff_ms":50}}"#,
    );
    let mut run = start_new(&retried, "", OrchestratorConfig::default());
    let ticket = delegations(&drain(&mut run))[0].ticket;
    let cause = sacp::runner::Cause::tool("down");
    run.handle_input(now(), Input::Failed { ticket, cause })
        .unwrap();
    assert_eq!(drain(&mut run), []);
    run.pause(now()).unwrap();
    assert_eq!(drain(&mut run), [Output::Paused]);
}

// spec: SACP-3-2, SACP-14-1
#[test]
fn a_run_whose_agent_is_gone_goes_on_once_it_is_spawned() {
    let text =
        r#"{"msg_id":"m","g":"G","plan":[["get","ONE",{}],["check","VISA",{}],["get","TWO",{}]]}"#;
    let config = || OrchestratorConfig::default().with_spawning(true);
    let spawned = |run: &mut Orchestrator<MemoryRegistry>| {
        let wanted = drain(run);
        let [Output::Spawn(request)] = &wanted[..] else {
            panic!("{wanted:?}")
        };
        let mut service = MemoryRegistry::default();
        let mut spawner = PromptSpawner::default();
        serve(now(), &**request, &mut service, &mut spawner, "c")
    };
    let mut before = start(text, config());
    let confirmation = spawned(&mut before);
    before
        .handle_input(now(), Input::Spawned(Box::new(confirmation.clone())))
        .unwrap();
    let asked = delegations(&drain(&mut before));
    answer(&mut before, asked[0].ticket, &result("1"));
    let saved = before.save(now()).unwrap();
    // The registry of the next life does not know who was spawned.
    let restore = |saved: &[u8]| {
        let message = Message::decode(text.as_bytes()).unwrap();
        let ids = IdSource::seeded(8);
        Orchestrator::restore(now(), message, library(), config(), ids, saved)
    };
    assert!(matches!(restore(b"{}"), Err(RestoreError::Run(_))));
    // The run of another plan is refused before anybody is spawned for it.
    let (head, tail) = core::str::from_utf8(&saved)
        .unwrap()
        .split_once(r#""plan":""#)
        .unwrap();
    let other = format!(r#"{head}"plan":"0{tail}"#);
    let refused = restore(other.as_bytes()).unwrap_err();
    assert_eq!(refused.to_string(), "the saved run belongs to another plan");
    let mut after = restore(&saved).unwrap();
    let confirmation = spawned(&mut after);
    after
        .handle_input(now(), Input::Spawned(Box::new(confirmation)))
        .unwrap();
    let asked = delegations(&drain(&mut after));
    let names: Vec<&str> = asked.iter().map(|ask| &*ask.agent.agent_name).collect();
    assert_eq!(names, ["VISA_AGENT"], "the first act has run");
}

// spec: SACP1-4-4
#[test]
fn what_was_spent_before_a_restore_counts_on() {
    let at = |seconds| {
        Now::new(
            Mono::ZERO.saturating_add(Duration::from_secs(seconds)),
            Timestamp::EPOCH,
        )
    };
    let cost = serde_json::json!({"metrics": {"tokens_in": 20, "tokens_out": 3, "cost_usd": 0.5}});
    let told = |request: &v1::Message, output: &str| {
        let done = state_of(request, "DONE", output);
        let mut told: serde_json::Value = serde_json::from_str(&done).unwrap();
        told["trace"] = cost.clone();
        told.to_string().into_bytes()
    };
    let mut before = start_new(&format!("{ONE},{TWO}"), "", OrchestratorConfig::default());
    let asked = delegations(&drain(&mut before));
    let ticket = asked[0].ticket;
    let bytes = told(&new(&asked[0]), r#","result":{"outputs":{"a":11}}"#);
    before
        .handle_input(at(2), Input::Answered { ticket, bytes })
        .unwrap();
    let saved = before.save(at(3)).unwrap();

    // Another process has a clock of its own.
    let message = request_new(&format!("{ONE},{TWO}"), "");
    let (config, ids) = (OrchestratorConfig::default(), IdSource::seeded(8));
    let restored = Orchestrator::restore(at(0), message, library(), config, ids, &saved);
    let mut after = restored.unwrap();
    let asked = delegations(&drain(&mut after));
    let ticket = asked[0].ticket;
    let bytes = told(&new(&asked[0]), r#","result":{"outputs":{"b":2}}"#);
    after
        .handle_input(at(4), Input::Answered { ticket, bytes })
        .unwrap();
    let answer = new_answer(&drain(&mut after));
    let read: serde_json::Value = serde_json::from_slice(&answer.encode()).unwrap();
    // The second act was asked for in both lives.
    let metrics = serde_json::json!({"latency_ms": 7_000, "tool_calls": 3, "tokens_in": 40, "tokens_out": 6, "cost_usd": 1.0});
    assert_eq!(read["trace"]["metrics"], metrics);
}
