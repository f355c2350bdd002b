//! What strangers write beside the messages: constraints, places in a trace, manifests, a model's answers, a hub's records, the
//! lines of a run's trace. What is read is written again, and read as the same.

use opensentience_wire::Manifest;
use opensentience_wire::message::SemVer;
use sacp::prompt::{Bridge, Turn};
use sap::alignment::Predicate;
use uap_agent::{AgentStreamEvent, Trace, TraceLimits};
use uap_hub_proto::store;
use ubos_common::json::{self, Limits, RawBuf};
use ubos_common::time::Rfc3339;
use ubos_common::trace_context::TraceContext;

/// The first byte chooses what the others are.
pub fn check(bytes: &[u8]) {
    let Some((choice, rest)) = bytes.split_first() else {
        return;
    };
    match choice % 7 {
        0 => return manifest(rest),
        1 => return record(rest),
        2 => return lines(rest),
        _ => {}
    }
    let Ok(text) = std::str::from_utf8(rest) else {
        return;
    };
    match choice % 7 {
        3 => constraint(text),
        4 => place(text),
        5 => answer(text),
        _ => words(text),
    }
}

fn manifest(bytes: &[u8]) {
    let Ok(manifest) = Manifest::decode(bytes) else {
        return;
    };
    let again = Manifest::decode(&json::to_vec(&manifest)).expect("what was written is read");
    assert_eq!(again, manifest);
    assert_eq!(again.agent_id(), manifest.agent_id());
}

fn record(bytes: &[u8]) {
    let Ok((job, record)) = store::decode(bytes) else {
        return;
    };
    let written = store::encode(job, &record);
    let (again, record) = store::decode(&written).expect("what was written is read");
    assert_eq!(store::encode(again, &record), written);
}

fn lines(bytes: &[u8]) {
    let _ = AgentStreamEvent::from_json(bytes, &Limits::default());
    let limits = TraceLimits::default().with_max_bytes(1 << 16);
    let Ok(trace) = Trace::read_lines(bytes, limits) else {
        return;
    };
    let written = |trace: &Trace| {
        let mut lines = Vec::new();
        trace.write_lines(&mut lines).expect("memory takes all");
        lines
    };
    let lines = written(&trace);
    let again =
        Trace::read_lines(&lines, TraceLimits::default()).expect("what was written is read");
    assert_eq!(written(&again), lines);
}

fn constraint(text: &str) {
    let Ok(predicate) = text.parse::<Predicate>() else {
        return;
    };
    let again: Predicate = predicate
        .to_string()
        .parse()
        .expect("what was written is read");
    for value in ["null", "[1,\"a\"]", r#"{"a":{"b":2},"c":"text"}"#] {
        let value = RawBuf::parse(value).expect("it is JSON");
        assert_eq!(predicate.holds(value.as_raw()), again.holds(value.as_raw()));
    }
}

fn place(text: &str) {
    let mut lines = text.lines();
    let parent = lines.next().unwrap_or_default();
    let Some(place) = TraceContext::read(parent, lines) else {
        return;
    };
    let again = TraceContext::read(&place.traceparent(), place.tracestate());
    assert_eq!(again.as_ref(), Some(&place));
    let member = |name| place.to_carry().filter(move |(key, _)| *key == name);
    let carried: Vec<_> = ["traceparent", "tracestate"]
        .map(|name| member(name).next())
        .into();
    let carried = TraceContext::carried(|name| {
        let member = carried
            .iter()
            .flatten()
            .filter(move |(key, _)| *key == name);
        member.map(|(_, value)| value.as_str())
    });
    assert_eq!(carried.as_ref(), Some(&place));
}

fn answer(text: &str) {
    let mut bridge = Bridge::new("P".into()).with_repairs(1);
    match bridge.answer(text) {
        Turn::Done(reply) => {
            let written = json::to_string(&*reply);
            let again = Bridge::new("P".into()).answer(&written);
            assert!(
                matches!(again, Turn::Done(again) if again == reply),
                "{written}"
            );
        }
        // No text of the model gets into the next question.
        Turn::Again(prompt) => assert!(prompt.starts_with("P\n")),
        other => panic!("one round is left: {other:?}"),
    }
}

fn words(text: &str) {
    if let Ok(version) = text.parse::<SemVer>() {
        assert_eq!(version.as_ref(), text);
    }
    if let Ok(time) = text.parse::<Rfc3339>() {
        assert_eq!(time.to_string(), text);
    }
}
