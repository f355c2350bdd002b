//! The messages of `Execute` and `Translate`.

use super::{
    Walk,
    parts::{attachments, payloads, summary, timestamp},
    validate,
};
use crate::{
    capability::Kind,
    state::State,
    wire::{
        Severity, StepReport, StepStatus, Telemetry, TestInit, TestResponse, TestResult,
        TranslationInit, TranslationResponse, TranslationResult, test_response,
        translation_response,
    },
};

validate! {
    TestInit by test_init;
    TranslationInit by translation_init;
    TestResponse by test_response;
    TranslationResponse by translation_response;
    TestResult by test_result;
    TranslationResult by translation_result;
}

/// The depth of step reports: protobuf readers give up at about 100 messages.
const MAX_STEPS_DEEP: usize = 64;

// impl: HUB-4-9
fn test_init(message: &TestInit, walk: &mut Walk) {
    walk.filled("test_type", &message.test_type, "HUB-4-9");
    payloads(walk, "payloads", &message.payloads);
}

// impl: HUB-4-9
fn translation_init(message: &TranslationInit, walk: &mut Walk) {
    walk.filled("target_format", &message.target_format, "HUB-4-9");
    payloads(walk, "payloads", &message.payloads);
}

// impl: HUB-4-2
fn test_response(message: &TestResponse, walk: &mut Walk) {
    use test_response::Event;
    time(message.timestamp.as_ref(), walk);
    match &message.event {
        None => no_event(walk),
        Some(Event::Status(status)) => walk.at("status", |walk| {
            state(walk, Kind::Test, status.state);
        }),
        Some(Event::Telemetry(line)) => walk.at("telemetry", |walk| telemetry(line, walk)),
        Some(Event::Result(result)) => walk.at("result", |walk| test_result(result, walk)),
    }
}

fn translation_response(message: &TranslationResponse, walk: &mut Walk) {
    use translation_response::Event;
    time(message.timestamp.as_ref(), walk);
    match &message.event {
        None => no_event(walk),
        Some(Event::Status(status)) => walk.at("status", |walk| {
            state(walk, Kind::Translation, status.state);
        }),
        Some(Event::Telemetry(line)) => walk.at("telemetry", |walk| telemetry(line, walk)),
        Some(Event::Result(result)) => walk.at("result", |walk| translation_result(result, walk)),
    }
}

fn time(at: Option<&prost_types::Timestamp>, walk: &mut Walk) {
    match at {
        Some(at) => timestamp(walk, "timestamp", at),
        None => walk.at("timestamp", |walk| {
            walk.advise("missing", "HUB-4-2", "a report without a time is tolerated");
        }),
    }
}

// impl: HUB-4-7
fn no_event(walk: &mut Walk) {
    walk.advise(
        "no_event",
        "HUB-4-2",
        "a message that says nothing is ignored",
    );
}

/// The state of a status that stands where the walk is.
fn state(walk: &mut Walk, kind: Kind, number: i32) -> Option<State> {
    let state = State::from_wire(kind, number);
    if state.is_none() {
        walk.at("state", |walk| {
            walk.must("state", "HUB-4-2", "a state that is unspecified or unknown");
        });
    }
    state
}

/// The status of a result, which must be terminal.
fn outcome(walk: &mut Walk, kind: Kind, number: Option<i32>) {
    walk.at("status", |walk| match number {
        None => walk.must("missing", "HUB-4-7", "a result says how it ended"),
        Some(number) => {
            if state(walk, kind, number).is_some_and(|state| !state.is_terminal()) {
                walk.at("state", |walk| {
                    walk.must("not_terminal", "HUB-4-7", "a result in no terminal state");
                });
            }
        }
    });
}

fn telemetry(message: &Telemetry, walk: &mut Walk) {
    match Severity::try_from(message.severity) {
        Ok(Severity::Unspecified) => walk.at("severity", |walk| {
            walk.advise("unspecified", "HUB-4-2", "a line without severity");
        }),
        Ok(_) => {}
        Err(_) => walk.at("severity", |walk| {
            walk.should("unknown", "HUB-4-2", "a severity that nobody knows");
        }),
    }
    if let Some(at) = &message.timestamp {
        timestamp(walk, "timestamp", at);
    }
    attachments(walk, &message.attachments);
}

fn test_result(message: &TestResult, walk: &mut Walk) {
    let state = message.status.as_ref().map(|status| status.state);
    outcome(walk, Kind::Test, state);
    steps(walk, "reports", &message.reports, 1);
    summary(walk, message.summary.as_ref());
    attachments(walk, &message.attachments);
}

fn translation_result(message: &TranslationResult, walk: &mut Walk) {
    let state = message.status.as_ref().map(|status| status.state);
    outcome(walk, Kind::Translation, state);
    payloads(walk, "payloads", &message.payloads);
    summary(walk, message.summary.as_ref());
}

fn steps(walk: &mut Walk, name: &str, all: &[StepReport], depth: usize) {
    if depth > MAX_STEPS_DEEP && !all.is_empty() {
        walk.at(name, |walk| {
            walk.should("too_deep", "HUB-4-2", "steps so deep that readers give up");
        });
        return;
    }
    walk.each(name, all, |step, walk| {
        if step.name.is_empty() {
            walk.at("name", |walk| {
                walk.advise("empty", "HUB-4-2", "a step without a name");
            });
        }
        if matches!(
            StepStatus::try_from(step.status),
            Err(_) | Ok(StepStatus::Unspecified)
        ) {
            walk.at("status", |walk| {
                let words = "a step's status that is unspecified or unknown";
                walk.should("status", "HUB-4-2", words);
            });
        }
        summary(walk, step.summary.as_ref());
        steps(walk, "steps", &step.steps, depth + 1);
    });
}
