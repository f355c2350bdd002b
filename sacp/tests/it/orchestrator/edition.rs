//! Messages of 1.0.

use sacp::role::orchestrator::{Input, OrchestratorConfig, Output};
use sacp::spawn::{PromptSpawner, serve};
use sacp::{Reply, v1};

use super::{
    ONE, TWO, answer, delegations, drain, library, new, new_answer, now, start_new, state_of,
};

// spec: SACP-3-2, SACP1-7-1
#[test]
fn a_message_of_1_0_is_delegated_and_answered_in_its_edition() {
    let more = r#","ctx":{"lang":"de"},"trace":{"trace_id":"t","span_id":"s-1"}"#;
    let config = OrchestratorConfig::default;
    let mut orchestrator = start_new(&format!("{ONE},{TWO}"), more, config());
    let asked = delegations(&drain(&mut orchestrator));
    let first = new(&asked[0]);
    assert_eq!(
        (first.msg_id.as_str(), first.sender.as_str()),
        ("m.1.1", "o")
    );
    assert_eq!(first.recipient.as_deref(), Some("ONE_AGENT"));
    assert_eq!(first.plan.len(), 1);
    let trace = first.trace.as_ref().unwrap();
    assert_eq!(trace.parent_span_id.as_deref(), Some("s-1"));
    let done = state_of(&first, "DONE", r#","result":{"outputs":{"a":11}}"#);
    answer(&mut orchestrator, asked[0].ticket, &done);
    let asked = delegations(&drain(&mut orchestrator));
    let second = new(&asked[0]);
    let ctx = second.ctx.as_ref().unwrap();
    assert_eq!(
        (ctx["lang"].as_str(), ctx["inputs"].as_str()),
        ("\"de\"", "[11]")
    );
    // Other keys than the one that was asked for: all of them are the output.
    let done = state_of(&second, "DONE", r#","result":{"outputs":{"x":1,"y":2}}"#);
    answer(&mut orchestrator, asked[0].ticket, &done);
    let last = new_answer(&drain(&mut orchestrator));
    assert_eq!(
        (last.reply_to.as_deref(), last.sender.as_str()),
        (Some("m"), "o")
    );
    let result = last.result.unwrap();
    assert_eq!(result.outputs["a"].as_str(), "11");
    assert_eq!(result.outputs["b"].as_str(), r#"{"x":1,"y":2}"#);
    let trace = last.trace.unwrap();
    assert_eq!(trace.parent_span_id.as_deref(), Some("s-1"));
}

#[test]
fn prose_that_is_asked_for_is_the_summary_of_an_answer_of_1_0() {
    let step = r#"{"id":"p","verb":"present","tool":"PRES","params":{}}"#;
    let config = OrchestratorConfig::default().with_formatter("PRES_AGENT");
    let mut run = start_new(step, r#","out_fmt":"human""#, config);
    let ticket = delegations(&drain(&mut run))[0].ticket;
    answer(&mut run, ticket, "It rains.");
    let result = new_answer(&drain(&mut run)).result.unwrap();
    assert_eq!(result.summary.as_deref(), Some("It rains."));
}

// spec: SACP1-5-1
#[test]
fn states_of_a_delegation_go_forward_alone() {
    let mut orchestrator = start_new(ONE, "", OrchestratorConfig::default());
    let asked = delegations(&drain(&mut orchestrator));
    let request = new(&asked[0]);
    let ticket = asked[0].ticket;
    for state in ["ACCEPTED", "IN_PROGRESS", "WAITING", "IN_PROGRESS"] {
        answer(&mut orchestrator, ticket, &state_of(&request, state, ""));
        assert!(drain(&mut orchestrator).is_empty(), "{state}");
    }
    answer(
        &mut orchestrator,
        ticket,
        &state_of(&request, "ACCEPTED", ""),
    );
    let last = new_answer(&drain(&mut orchestrator));
    let error = last.error.unwrap();
    assert!(
        error
            .message
            .contains("does not go from IN_PROGRESS to ACCEPTED"),
        "{}",
        &*error.message
    );
    assert_eq!(error.step_id.as_deref(), Some("one"));
}

// spec: SACP1-7-1
#[test]
fn a_failed_step_of_1_0_is_tried_again_and_a_cancelled_one_fails() {
    let retry = r#""params":{},"retry":{"max_attempts":2,"backoff_ms":0}"#;
    let steps = ONE.replace(r#""params":{}"#, retry);
    let mut orchestrator = start_new(&steps, "", OrchestratorConfig::default());
    let asked = delegations(&drain(&mut orchestrator));
    let late = r#","error":{"code":"TIMEOUT","message":"late","retryable":true}"#;
    let failed = state_of(&new(&asked[0]), "FAILED", late);
    answer(&mut orchestrator, asked[0].ticket, &failed);
    let asked = delegations(&drain(&mut orchestrator));
    assert_eq!(new(&asked[0]).msg_id.as_str(), "m.1.2");
    let cancelled = state_of(&new(&asked[0]), "CANCELLED", "");
    answer(&mut orchestrator, asked[0].ticket, &cancelled);
    assert_eq!(
        new_answer(&drain(&mut orchestrator)).state,
        v1::State::Failed
    );
    // What its agent does not call retryable is not tried again, and is answered in the agent's words.
    let mut orchestrator = start_new(&steps, "", OrchestratorConfig::default());
    let asked = delegations(&drain(&mut orchestrator));
    let gone = late.replace("true", "false");
    let failed = state_of(&new(&asked[0]), "FAILED", &gone);
    answer(&mut orchestrator, asked[0].ticket, &failed);
    let error = new_answer(&drain(&mut orchestrator)).error.unwrap();
    assert_eq!(error.message.to_string(), "late");
}

// spec: SACP-3-7, SACP-9-1
#[test]
fn a_message_of_1_0_is_checked_and_refused_in_its_edition() {
    let ctx = r#","ctx":{"forbidden_tools":["ONE"]}"#;
    let mut strict = start_new(ONE, ctx, OrchestratorConfig::default());
    let outputs = drain(&mut strict);
    assert_eq!(outputs.len(), 1, "{outputs:?}");
    let error = new_answer(&outputs).error.unwrap();
    assert_eq!(*error.code, v1::Code::MalformedMessage);
    assert!(error.details.unwrap().as_str().contains("/plan/0"));
    let config = OrchestratorConfig::default().with_overruling(true);
    let mut lax = start_new(ONE, ctx, config);
    let asked = delegations(&drain(&mut lax));
    let done = state_of(&new(&asked[0]), "DONE", r#","result":{"outputs":{"a":1}}"#);
    answer(&mut lax, asked[0].ticket, &done);
    let ext = new_answer(&drain(&mut lax)).ext.unwrap();
    assert!(
        ext.value("sacp.overruled")
            .unwrap()
            .as_str()
            .contains("MALFORMED_PLAN")
    );
}

// spec: SACP1-14-1
#[test]
fn what_a_message_of_1_0_lacks_is_spawned_in_its_edition() {
    let step = r#"{"id":"v","verb":"check","tool":"VISA","params":{"citizenship":"PT"},"output_key":"visa"}"#;
    let config = OrchestratorConfig::default().with_spawning(true);
    let mut orchestrator = start_new(step, "", config);
    let outputs = drain(&mut orchestrator);
    let [Output::Spawn(request)] = &outputs[..] else {
        panic!("{outputs:?}")
    };
    let read = v1::Message::decode(&request.encode()).unwrap();
    assert_eq!(read.msg_id.as_str(), "m.spawn.1");
    // Our own check lets it pass, whatever is registered.
    let findings = sacp::check::check_plan(
        &**request,
        Some(&library()),
        &sacp::check::Config::default(),
    );
    let musts = findings
        .iter()
        .filter(|finding| finding.violation.level == ubos_common::violation::Level::Must);
    assert_eq!(musts.count(), 0, "{findings:?}");
    let mut service = library();
    let confirmation = serve(
        now(),
        &read,
        &mut service,
        &mut PromptSpawner::default(),
        "c-1",
    );
    let Reply::V10(made) = &confirmation else {
        panic!("{confirmation:?}")
    };
    // A DONE answer names each step.
    let steps = made.result.as_ref().unwrap().step_results.as_ref().unwrap();
    let steps: serde_json::Value = steps.deserialize().unwrap();
    let ids: Vec<_> = read.plan.iter().map(|step| step.id.as_str()).collect();
    assert_eq!(steps.as_object().unwrap().keys().collect::<Vec<_>>(), ids);
    assert_eq!(
        steps[ids[0]],
        serde_json::json!({"state": "DONE", "attempts": 1})
    );
    orchestrator
        .handle_input(now(), Input::Spawned(Box::new(confirmation)))
        .unwrap();
    let asked = delegations(&drain(&mut orchestrator));
    assert_eq!(asked[0].agent.agent_name, "VISA_AGENT");
}

// spec: SACP1-4-4, SACP1-7-1
#[test]
fn every_answer_of_1_0_has_a_trace_of_its_own_and_what_its_agents_took() {
    let retried = ONE.replace(r#""a"}"#, r#""a","retry":{"max_attempts":2}}"#);
    let asked_in =
        r#","trace":{"trace_id":"t","span_id":"s-1","metrics":{"cost_usd":7,"tokens_in":1000}}"#;
    let mut run = start_new(&retried, asked_in, OrchestratorConfig::default());
    let late = r#","error":{"code":"TIMEOUT","message":"late","retryable":true}"#;
    let good = r#","result":{"outputs":{"a":1}}"#;
    for (state, outcome) in [("FAILED", late), ("DONE", good)] {
        let asked = delegations(&drain(&mut run));
        let text = state_of(&new(&asked[0]), state, outcome);
        let mut told: serde_json::Value = serde_json::from_str(&text).unwrap();
        // Twice this cost is no number that JSON can write.
        let metrics = serde_json::json!({"cost_usd": 1e308, "tokens_in": 20, "tokens_out": 3});
        told["trace"] = serde_json::json!({ "metrics": metrics });
        answer(&mut run, asked[0].ticket, &told.to_string());
    }
    let done = new_answer(&drain(&mut run));
    let read: serde_json::Value = serde_json::from_slice(&done.encode()).unwrap();
    let trace = &read["trace"];
    assert_eq!(trace["attempt"], 2, "{read}");
    assert_eq!(
        trace["metrics"],
        serde_json::json!({"latency_ms": 0, "tool_calls": 2, "tokens_in": 40, "tokens_out": 6, "cost_usd": 1e308})
    );
    // An answer to a message that does not run copies nothing either.
    let refused = format!(r#"{asked_in},"ctx":{{"forbidden_tools":["ONE"]}}"#);
    let mut refused = start_new(ONE, &refused, OrchestratorConfig::default());
    let refused = new_answer(&drain(&mut refused));
    let read: serde_json::Value = serde_json::from_slice(&refused.encode()).unwrap();
    assert_eq!(
        read["trace"],
        serde_json::json!({"trace_id": "t", "span_id": read["msg_id"], "parent_span_id": "s-1"})
    );
}
