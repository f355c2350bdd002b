//! Plans: made, done in order, made anew.

use std::sync::Arc;

use futures::executor::block_on;
use uap_agent::{AgentOptions, AgentState, PlanOptions, PlanStepStatus, agent, plan};
use ubos_common::json::RawBuf;
use upp::{ErrorCode, Reply, ScriptedModel, object};

use crate::support::{calling, options, script};

use super::{STEPS, pairs};

fn planned(
    model: &Arc<ScriptedModel>,
    change: impl Fn(PlanOptions) -> PlanOptions,
) -> AgentOptions {
    options(model).with_execution(plan(change(PlanOptions::default())).unwrap())
}

fn statuses(state: &AgentState) -> Vec<(String, String)> {
    state
        .plan()
        .unwrap()
        .iter()
        .map(|s| (s.id.to_string(), s.status.to_string()))
        .collect()
}

// spec: UAP-5-4
#[test]
fn the_schema_of_a_plan_is_the_one_that_is_set() {
    let schema = object(r#"{"type":"object","title":"mine"}"#).unwrap();
    let model = script([
        Reply::text(STEPS),
        Reply::text("added"),
        Reply::text("reported"),
    ]);
    let agent = agent(planned(&model, |options| {
        options.with_plan_schema(schema.clone())
    }))
    .unwrap();
    block_on(agent.generate("go", &agent.initial_state())).unwrap();
    let structures: Vec<_> = model
        .requests()
        .into_iter()
        .map(|asked| asked.structure)
        .collect();
    assert_eq!(structures[0].as_deref(), Some(&schema));
    assert!(structures[1..].iter().all(Option::is_none));
}

// spec: UAP-5-4
#[test]
fn a_plan_is_made_and_done_in_the_order_of_its_dependencies() {
    let model = script([
        Reply::text(STEPS),
        calling("adding", "c1", r#"{"fail":1}"#),
        Reply::text("added"),
        Reply::text("reported"),
    ]);
    let agent = agent(planned(&model, |o| o)).unwrap();
    let result = block_on(agent.generate("go", &agent.initial_state())).unwrap();
    assert_eq!(
        statuses(&result.state),
        pairs([("b", "completed"), ("a", "completed")])
    );
    assert_eq!(
        (result.state.step(), result.turn.cycles, result.turn.data),
        (3, 4, None)
    );
    let requests = model.requests();
    assert!(
        !requests[0].offers_tools()
            && !requests[0].tools.is_empty()
            && requests[0].structure.is_some()
    );
    assert!(requests[1].structure.is_none());
    assert!(
        requests[1]
            .messages
            .last()
            .unwrap()
            .text()
            .contains("step a of the plan")
    );
    assert!(
        requests[3]
            .messages
            .last()
            .unwrap()
            .text()
            .contains("step b of the plan")
    );
}

// spec: UAP-5-7
#[test]
fn a_step_that_fails_leads_to_a_new_plan_or_to_the_error() {
    let replies = || {
        [
            Reply::text(STEPS),
            Reply::text("added"),
            Reply::error(ErrorCode::ProviderError, "provider down"),
            Reply::text(r#"{"steps":[{"id":"c","description":"again","dependsOn":["a"]}]}"#),
            Reply::text("done"),
        ]
    };
    let model = script(replies());
    let replanning = agent(planned(&model, |o| o)).unwrap();
    let result = block_on(replanning.generate("go", &replanning.initial_state())).unwrap();
    assert_eq!(
        statuses(&result.state),
        pairs([("b", "failed"), ("a", "completed"), ("c", "completed")])
    );
    let asked = model.requests()[3].messages.last().unwrap().text();
    assert!(asked.contains("provider down"), "{asked}");
    assert!(asked.contains("keep their ids: a. Plan"), "{asked}");
    let strict = agent(planned(&script(replies()), |o| o.with_allow_replan(false))).unwrap();
    let error = block_on(strict.generate("go", &strict.initial_state())).unwrap_err();
    assert_eq!(
        (&error.error.code, statuses(&error.state)),
        (
            &ErrorCode::ProviderError,
            pairs([("b", "failed"), ("a", "completed")])
        )
    );
}

// spec: UAP-5-4
#[test]
fn a_bad_plan_is_asked_for_once_more_and_then_refused() {
    for bad in [
        r#"{"steps":[]}"#,
        r#"{"steps":3}"#,
        "no plan",
        r#"{"steps":[{"id":"a","description":"x","dependsOn":["b"]},{"id":"b","description":"x","dependsOn":["a"]}]}"#,
        r#"{"steps":[{"id":"a","description":"x"},{"id":"a","description":"x"}]}"#,
        r#"{"steps":[{"id":"a","description":"x","dependsOn":["z"]}]}"#,
    ] {
        let model = script([Reply::text(bad), Reply::text(bad)]);
        let twice = agent(planned(&model, |o| o)).unwrap();
        let error = block_on(twice.generate("go", &twice.initial_state())).unwrap_err();
        assert_eq!(
            (&error.error.code, model.requests().len()),
            (&ErrorCode::InvalidResponse, 2),
            "{bad}"
        );
    }
    let long = r#"{"steps":[{"description":"x","dependsOn":["d"]},{"id":"c","description":"x"},{"id":"d","description":"x"}]}"#;
    let model = script([
        Reply::text("-").with_data(RawBuf::parse(long).unwrap()),
        Reply::text("done"),
        Reply::text("done"),
    ]);
    let cut = agent(planned(&model, |o| o.with_max_plan_steps(2))).unwrap();
    let result = block_on(cut.generate("go", &cut.initial_state())).unwrap();
    let plan = result.state.plan().unwrap();
    assert_eq!((plan.len(), plan.get(0).unwrap().id.len()), (2, 36));
    assert!(
        plan.iter()
            .all(|step| step.status == PlanStepStatus::Completed)
    );
}
