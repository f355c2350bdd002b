//! What a verdict, or a contract, makes of a task.

use crate::processor::{
    Jumping, Log, answering, cached, consult, kinds, no_cache, processor, result, run, text, whole,
};
use crate::samples::with;
use futures::executor::block_on;
use sap::OutputContract;
use sap::alignment::{Assessment, Policy, Rules, Subject};
use sap::processor::{Context, ContractCheck, ContractFinding, Outcome, Progress};
use sap::store::MemoryCache;
use sap::transcript::Transcript;
use sap::validate::{Options, decode_result};
use sap::{BoxFuture, ErrorCode, PressureLevel, Status};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use ubos_common::json::{Raw, RawObject};

// spec: SAP-4.2-9, SAP-8-1, SAP-6-7
#[test]
fn a_verdict_decides_the_end() {
    let (log, clock, calls) = (Log::default(), Jumping::new(), Arc::default());
    let rules = |words: &str| {
        Arc::new(Rules::default().forbid("strategic_pause", words).threshold(
            "blueprint_thinking",
            PressureLevel::Instant,
            40.0,
        ))
    };
    let processor = answering(&log, "\"burn it\"", &calls)
        .policy(rules("BURN"))
        .cache(Arc::new(MemoryCache::default()))
        .cached(consult(), whole());
    let refused = result(run(&processor, &clock, &cached(1, "prefer")).1);
    assert_eq!(refused.error_code(), Some(&ErrorCode::NonConstitutional));
    assert_eq!(
        (
            refused.output,
            refused.constitutional_evidence.alignment.as_str()
        ),
        (None, "NON_CONSTITUTIONAL")
    );
    assert_eq!(
        refused.constitutional_evidence.policy_checks.unwrap().len(),
        3 + 2
    );
    assert_eq!(
        result(run(&processor, &clock, &cached(2, "only")).1).error_code(),
        Some(&ErrorCode::CacheMiss)
    );
    // Too much pressure for an instant decision: nothing is computed.
    let hasty = with(
        no_cache(),
        "/constitutionalContext/pressureLevel",
        Some(json!("instant")),
    );
    let hasty = with(
        hasty,
        "/constitutionalContext/riskTolerance",
        Some(json!("high")),
    );
    let before = calls.load(Ordering::SeqCst);
    let escalated = result(run(&processor, &clock, &hasty).1);
    assert_eq!(escalated.status, Status::Escalated);
    // What the policy proposes.
    let [action] = &escalated.next_actions.unwrap()[..] else {
        panic!("one action")
    };
    let action: Value = action.deserialize().unwrap();
    assert_eq!(action["action"], "decide again");
    assert_eq!(
        action["constitutionalContext"]["pressureLevel"],
        "consulted"
    );
    assert_eq!(calls.load(Ordering::SeqCst), before);
}

// spec: SAP-4.2-9
#[test]
fn a_part_that_breaks_a_principle_ends_the_task() {
    let log = Log::default();
    let processor = processor(&log)
        .policy(Arc::new(Rules::default().forbid("strategic_pause", "burn")))
        .handle(
            "consult.align".parse().unwrap(),
            |mut cx: Context| async move {
                cx.report(Progress::partial(
                    text("\"burn\""),
                    vec![RawObject::empty()],
                ))
                .await;
                Ok(Outcome::new(text("1")))
            },
        );
    let ended = result(run(&processor, &Jumping::new(), &no_cache()).1);
    assert_eq!(ended.error_code(), Some(&ErrorCode::NonConstitutional));
    assert_eq!(kinds(&log), ["task", "RUNNING", "FAILED"]);
}

// spec: SAP-4.2-9
#[test]
fn a_part_cites_where_a_policy_demands_it() {
    for (cited, wanted) in [(true, "PARTIAL"), (false, "ESCALATED")] {
        let log = Log::default();
        let sources = || vec!["ubos://a".to_owned()];
        let processor = processor(&log)
            .policy(Arc::new(Rules::default().cite("strategic_pause")))
            .handle(
                "consult.align".parse().unwrap(),
                move |mut cx: Context| async move {
                    let mut part = Progress::partial(text("1"), vec![RawObject::empty()]);
                    if cited {
                        part.citations = sources();
                    }
                    cx.report(part).await;
                    Ok(Outcome::new(text("1")).citing(sources()))
                },
            );
        let task = with(
            no_cache(),
            "/constitutionalContext/riskTolerance",
            Some(json!("medium")),
        );
        run(&processor, &Jumping::new(), &task);
        assert_eq!(kinds(&log)[2], wanted);
        let part = block_on(log.read(2, 1)).unwrap()[0].clone();
        let (part, _) = decode_result(part.body.as_str().as_bytes(), &Options::default()).unwrap();
        let said = part.constitutional_evidence.citations.unwrap_or_default();
        assert_eq!(said.len(), usize::from(cited));
    }
}

#[derive(Debug)]
struct Never;

impl ContractCheck for Never {
    fn check<'a>(&'a self, _: &'a OutputContract, _: Raw<'a>) -> BoxFuture<'a, ContractFinding> {
        Box::pin(async { ContractFinding::Broken(vec!["/n".into()]) })
    }
}

// spec: SAP-4.2-7
#[test]
fn an_output_that_breaks_its_contract_is_unprocessable() {
    let processor = answering(&Log::default(), "1", &Arc::default()).contract(Arc::new(Never));
    let failed = result(run(&processor, &Jumping::new(), &no_cache()).1);
    assert_eq!(failed.error_code(), Some(&ErrorCode::Unprocessable));
    assert!(failed.error.unwrap().message.unwrap().contains("/n"));
}

// spec: SAP-4.1-10, SAP-4.2-7
#[cfg(feature = "schema")]
#[test]
fn an_output_is_held_against_the_schema_of_its_contract() {
    let said = |schema: Value| {
        let processor = answering(&Log::default(), "{\"n\":1.5}", &Arc::default())
            .contract(Arc::new(sap::processor::Schemas::default()));
        let task = with(no_cache(), "/outputContract/schema", Some(schema));
        // Some schemas are compiled on another thread.
        let (told, answer) = run(&processor, &crate::apart::Still, &task);
        (told, result(answer))
    };
    let integer = json!({"properties": {"n": {"type": "integer"}}});
    let (_, failed) = said(integer);
    assert_eq!(failed.error_code(), Some(&ErrorCode::Unprocessable));
    assert!(failed.error.unwrap().message.unwrap().ends_with(" at /n"));
    let (_, kept) = said(json!({"properties": {"n": {"type": "number"}}}));
    assert_eq!(kept.status, Status::Succeeded);
    for descriptor in [
        json!({"type": "jsonish"}),
        json!({"$ref": "http://a.example/b"}),
    ] {
        let (told, kept) = said(descriptor);
        assert_eq!(kept.status, Status::Succeeded);
        assert!(
            told.iter().any(|line| line.contains("Contract(")),
            "{told:?}"
        );
    }
}

/// Escalates whatever is proposed, and proposes nothing.
#[derive(Debug)]
struct Escalating;

impl Policy for Escalating {
    fn assess(&self, subject: &Subject<'_>) -> Assessment {
        let mut assessment = Assessment::valid(subject.context);
        if subject.output.is_some() {
            assessment.alignment = sap::Alignment::Escalate;
        }
        assessment
    }
}

// spec: SAP-4.2-9
#[test]
fn an_escalation_without_a_path_asks_for_a_review() {
    let processor = answering(&Log::default(), "1", &Arc::default()).policy(Arc::new(Escalating));
    let escalated = result(run(&processor, &Jumping::new(), &no_cache()).1);
    assert_eq!(escalated.status, Status::Escalated);
    let [action] = &escalated.next_actions.unwrap()[..] else {
        panic!("one action")
    };
    let action: Value = action.deserialize().unwrap();
    assert_eq!(action, json!({"action": "review", "principles": []}));
}

// spec: SAP-6-5, SAP-4.2-4
#[test]
fn a_hit_says_that_constraints_were_not_held_against_it() {
    let (log, clock, calls) = (Log::default(), Jumping::new(), Arc::default());
    let processor = answering(&log, "{\"t\":\"long\"}", &calls)
        .policy(Arc::new(Rules::default()))
        .cache(Arc::new(MemoryCache::default()))
        .cached(consult(), whole());
    let asks = |id: u8, level: &str, must_align: bool| {
        let task = with(
            cached(id, "prefer"),
            "/constitutionalContext/cachePolicy/mustAlign",
            Some(json!(must_align)),
        );
        let constraint = json!(["output /t length < 2"]);
        let constraint = (level != "instant").then_some(constraint);
        let task = with(task, "/constitutionalContext/constraints", constraint);
        with(
            task,
            "/constitutionalContext/pressureLevel",
            Some(json!(level)),
        )
    };
    let first = result(run(&processor, &clock, &asks(1, "instant", false)).1);
    assert_eq!(first.status, Status::Succeeded);
    let hit = result(run(&processor, &clock, &asks(2, "consulted", false)).1);
    assert_eq!(
        (&hit.status, calls.load(Ordering::SeqCst)),
        (&Status::Succeeded, 1)
    );
    let checks = hit.constitutional_evidence.policy_checks.unwrap();
    let constraint = checks
        .iter()
        .find(|check| check.principle.as_deref() == Some("output /t length < 2"));
    assert_eq!(constraint.unwrap().status.as_deref(), Some("UNCHECKED"));
    // Checked, it is none.
    let computed = result(run(&processor, &clock, &asks(3, "consulted", true)).1);
    assert_eq!(computed.error_code(), Some(&ErrorCode::NonConstitutional));
}
