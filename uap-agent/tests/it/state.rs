//! States: their operations, their JSON, what the reference wrote.

use uap_agent::StateError;
use uap_agent::{AgentState, PlanStep, PlanStepStatus, SubagentExecutionTrace};
use ubos_common::id::IdSource;
use ubos_common::json::{DecodeError, Limits, RawBuf};
use ubos_common::time::Timestamp;
use upp::{Blob, ContentBlock, Message, Source, Stamp};

fn message(ids: &mut IdSource, text: &str) -> Message {
    Message::user(Stamp::new(ids, Timestamp::EPOCH), text)
}

fn read(text: &str) -> Result<AgentState, StateError> {
    AgentState::from_json(text.as_bytes(), &Limits::default())
}

fn full() -> AgentState {
    let ids = &mut IdSource::seeded(3);
    let image = ContentBlock::image(Source::Bytes(Blob::from(vec![1, 2, 255])), "image/png");
    let messages = [
        message(ids, "a"),
        Message::user(Stamp::new(ids, Timestamp::EPOCH), image),
    ];
    let step = PlanStep::new("s".into(), "do".into(), vec![], PlanStepStatus::InProgress);
    let trace =
        SubagentExecutionTrace::new("i".into(), "t".into(), "c".into(), "p".into(), 1, 2, true);
    AgentState::initial(ids)
        .with_messages(ids, messages)
        .with_step(ids, 4)
        .with_metadata(ids, "k", RawBuf::parse(r#"{"nested":[1,null]}"#).unwrap())
        .with_reasoning(ids, "because")
        .with_plan(ids, vec![step])
        .with_subagent_trace(ids, trace)
}

// spec: UAP-6-1, UAP-2-2
#[test]
fn each_operation_changes_its_own_field_and_the_id() {
    let ids = &mut IdSource::seeded(1);
    let initial = AgentState::initial(ids);
    assert_eq!(
        (initial.messages().len(), initial.step(), initial.plan()),
        (0, 0, None)
    );
    assert_eq!(initial.id().as_uuid().get_version_num(), 4);
    let base = full();
    let kept = base.clone();
    let json = |state: &AgentState| state.to_json().replace(&state.id().to_string(), "id");
    let (hello, other) = (message(ids, "hello"), message(ids, "x"));
    let step = PlanStep::new("n".into(), "d".into(), vec![], PlanStepStatus::Pending);
    let trace = base.subagent_traces().get(0).unwrap().clone();
    let changed = [
        (base.with_message(ids, hello.clone()), "messages"),
        (base.with_messages(ids, [hello.clone(), other]), "messages"),
        (base.with_context(ids, vec![hello]), "messages"),
        (base.with_step(ids, 9), "step"),
        (
            base.with_metadata(ids, "k", RawBuf::parse("1").unwrap()),
            "metadata",
        ),
        (base.with_reasoning(ids, "and"), "reasoning"),
        (base.with_plan(ids, vec![step]), "plan"),
        (base.with_subagent_trace(ids, trace), "subagentTraces"),
    ];
    let members = |state: &AgentState| {
        serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(&json(state)).unwrap()
    };
    for (state, field) in changed {
        assert_ne!(state.id(), base.id());
        let (old, new) = (members(&base), members(&state));
        for (name, value) in &old {
            assert_eq!(new[name] != *value, name == field, "{field}: {name}");
        }
    }
    assert_eq!(base, kept);
}

// spec: UAP-12-1
#[test]
fn a_state_reads_back_in_every_field() {
    let state = full();
    assert_eq!(read(&state.to_json()).unwrap(), state);
    let initial = AgentState::initial(&mut IdSource::seeded(1));
    let text = format!(
        r#"{{"version":"1.1.0","id":"{}","messages":[],"step":0,"metadata":{{}},"reasoning":[]}}"#,
        initial.id()
    );
    assert_eq!(initial.to_json(), text);
    let later = text.replace(
        "\"reasoning\":[]",
        "\"reasoning\":[],\"later\":{\"x\":1.50}",
    );
    assert_eq!(read(&later).unwrap().to_json(), later);
    assert!(
        state
            .to_json()
            .contains(r#"{"type":"bytes","data":"AQL/"}"#)
    );
}

// spec: UAP-12-6
#[test]
fn what_the_reference_wrote_is_read() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/vectors/reference-1.0");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let state = read(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let wrote: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            wrote["messages"].as_array().unwrap().len(),
            state.messages().len()
        );
        assert_eq!(wrote["step"], state.step());
        assert_eq!(wrote["id"], state.id().to_string());
        let today: serde_json::Value = serde_json::from_str(&state.to_json()).unwrap();
        for field in ["metadata", "reasoning", "plan", "subagentTraces"] {
            assert_eq!(wrote[field], today[field], "{}: {field}", path.display());
        }
        for (old, new) in wrote["messages"]
            .as_array()
            .unwrap()
            .iter()
            .zip(today["messages"].as_array().unwrap())
        {
            assert_eq!(old["role"], new["type"]);
            if old["role"] == "assistant" {
                assert_eq!(
                    (&old["content"]["content"], &old["content"]["toolCalls"]),
                    (&new["content"], &new["toolCalls"])
                );
            }
            if old["role"] == "tool_result" {
                assert_eq!(old["content"], new["results"]);
            }
        }
        assert_eq!(read(&state.to_json()).unwrap(), state);
        count += 1;
    }
    assert!(count >= 10, "{count}");
}

// spec: UAP-12-6
#[test]
fn what_is_no_state_is_refused_with_a_pointer() {
    let good = full().to_json();
    let version = |text: &str| matches!(read(text), Err(StateError::Version { .. }));
    for bad in ["2.0.0", "1.2.0", "1.1", "1.1.x", "1.1.0.0", ""] {
        assert!(version(&good.replace("1.1.0", bad)), "{bad}");
    }
    assert!(version(r#"{"version":"2.0.0"}"#));
    assert!(
        read(&good.replace("1.1.0", "2.0.0"))
            .unwrap_err()
            .to_string()
            .contains("Unsupported UAP version")
    );
    assert!(read(&good.replace("1.1.0", "1.1.7")).is_ok());
    let state = full();
    let (id, first) = (
        state.id().to_string(),
        state.messages().get(0).unwrap().id().to_owned(),
    );
    let second = state.messages().get(1).unwrap().id().to_owned();
    for (from, to, pointer) in [
        ("\"step\":4", "\"step\":-1", "/step"),
        ("\"step\":4,", "", "/step"),
        ("\"metadata\":{", "\"metadata\":[], \"m\":{", "/metadata"),
        ("in_progress", "perhaps", "/plan/0/status"),
        (
            "\"type\":\"user\"",
            "\"type\":\"robot\"",
            "/messages/0/type",
        ),
        (id.as_str(), "5b7a6d8e-1c2d-1e3f-8a4b-9c0d1e2f3a4b", "/id"),
        (second.as_str(), first.as_str(), "/messages/1/id"),
        ("AQL/", "?", "/messages/1/content/0/source"),
    ] {
        assert!(good.contains(from), "{from}");
        let Err(StateError::Invalid(DecodeError::Invalid(report))) = read(&good.replace(from, to))
        else {
            panic!("{pointer}")
        };
        assert_eq!(report.iter().next().unwrap().pointer, pointer);
    }
    assert!(matches!(
        read("{"),
        Err(StateError::Invalid(DecodeError::Json(_)))
    ));
}

// spec: UAP-6-2
#[test]
fn a_hundred_thousand_states_of_one_run_live_at_once() {
    let ids = &mut IdSource::seeded(1);
    let mut states = vec![AgentState::initial(ids)];
    let hello = message(ids, "hello");
    for _ in 0..100_000 {
        let next = states[states.len() - 1].with_message(ids, hello.clone());
        states.push(next);
    }
    assert!(
        states
            .iter()
            .enumerate()
            .all(|(n, state)| state.messages().len() == n)
    );
    let Message::User(shared) = &hello else {
        panic!()
    };
    // Copied, the histories would hold five thousand million.
    assert!(std::sync::Arc::strong_count(shared) < 4_000_000);
}
