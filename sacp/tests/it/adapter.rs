//! From 0.1 to 1.0 and back.

use proptest::prelude::*;
use sacp::ubos_common::violation::{Level, Profile};
use sacp::v1::{self, Id, Ts};
use sacp::v1::{ConvertError, Down, Up, answer_up, down, up};
use sacp::{AnyMessage, Code, ErrReply, Message, State};
use serde_json::{Value, json};
use ubos_common::time::Timestamp;

fn config() -> Up {
    let name = |text: &str| Id::new(text).unwrap();
    Up::new(name("adapter"), Ts::from(Timestamp::EPOCH), name("made-1"))
}

fn old(value: &Value) -> Message {
    Message::decode(value.to_string().as_bytes()).unwrap()
}

fn up_of(value: &Value) -> v1::Message {
    let (new, _) = up(&old(value), &config()).unwrap();
    // What is made is valid, and says its edition.
    let (again, _) = AnyMessage::decode(&new.encode()).unwrap();
    assert_eq!(again, AnyMessage::from(new.clone()));
    new
}

fn round_trip(value: &Value) -> Value {
    let Down {
        message, losses, ..
    } = down(&up_of(value), Profile::Strict).unwrap();
    assert!(losses.is_valid());
    let text = message.encode();
    assert!(
        Message::decode(&text).is_ok(),
        "{}",
        String::from_utf8_lossy(&text)
    );
    serde_json::from_slice(&text).unwrap()
}

/// What 0.1 says in one way only: groups hold acts, and a group of one is its member unless a join follows.
fn normal(plan: &Value) -> Value {
    fn flatten(item: &Value, into: &mut Vec<Value>) {
        match item.get("parallel").and_then(Value::as_array) {
            Some(members) => members.iter().for_each(|member| flatten(member, into)),
            None => into.push(item.clone()),
        }
    }
    let items = plan.as_array().unwrap();
    let item = |n: usize| {
        let mut members = Vec::new();
        flatten(&items[n], &mut members);
        let joined = items.get(n + 1).is_some_and(|next| next[0] == "join");
        match members.as_slice() {
            [one] if !joined => one.clone(),
            _ => json!({"parallel": members}),
        }
    };
    (0..items.len()).map(item).collect()
}

fn item() -> impl Strategy<Value = Value> {
    let act = ("[a-z]{1,3}", "[A-Z]{1,3}").prop_map(|(verb, tool)| json!([verb, tool, {"n": 1}]));
    act.prop_recursive(3, 12, 4, |inner| {
        prop::collection::vec(inner, 1..4).prop_map(|members| json!({"parallel": members}))
    })
}

fn plan() -> impl Strategy<Value = Value> {
    prop::collection::vec((item(), any::<bool>()), 1..6).prop_map(|items| {
        let mut plan = Vec::new();
        for (item, join) in items {
            let is_group = item.is_object();
            plan.push(item);
            if is_group && join {
                plan.push(json!(["join", "MERGE", {}]));
            }
        }
        Value::Array(plan)
    })
}

proptest! {
    // spec: SACP1-15-1
    #[test]
    fn up_and_down_gives_the_plan_in_normal_form(plan in plan()) {
        let back = round_trip(&json!({"msg_id": "m", "g": "G", "plan": plan, "state": "PENDING"}));
        prop_assert_eq!(&back["plan"], &normal(&plan));
        // The normal form is one: it comes back as it went.
        prop_assert_eq!(&round_trip(&back), &back);
    }
}

// spec: SACP1-15-1
#[test]
fn tuples_are_refused_by_1_0_and_taken_by_the_adapter() {
    let mut native = json!({"proto_ver": "1.0.0", "msg_id": "m1", "ts": "2025-10-01T12:00:00Z", "sender": "p",
        "g": "G", "plan": [["a", "T", {}]], "state": "PENDING"});
    assert!(v1::Message::decode(native.to_string().as_bytes()).is_err());
    native["plan"] = json!([{"id": "s1", "verb": "a", "tool": "T", "params": {}}]);
    assert!(v1::Message::decode(native.to_string().as_bytes()).is_ok());
    let plain = json!({"g": "G", "plan": [["a", "T", {}]]});
    let mut to = config();
    to.recipient = Id::new("agent");
    let (sent, _) = up(&old(&plain), &to).unwrap();
    assert_eq!(sent.recipient.as_deref(), Some("agent"));
    let new = up_of(&plain);
    assert_eq!(
        (
            new.msg_id.as_str(),
            new.sender.as_str(),
            new.plan[0].id.as_str()
        ),
        ("made-1", "adapter", "s1")
    );
    let Err(ConvertError::Empty(clarify)) = up(
        &old(&json!({"msg_id": "m9", "g": "G", "plan": []})),
        &config(),
    ) else {
        panic!()
    };
    assert_eq!(
        (clarify.missing, clarify.reply_to.as_deref()),
        (vec!["plan".to_owned()], Some("m9"))
    );
}

// spec: SACP1-15-1
#[test]
fn the_rest_of_a_message_survives_up_and_down() {
    let whole = json!({"msg_id": "ünd/1", "reply_to": "a b", "g": "x".repeat(200), "ctx": {"n": 1, "test_mode": true},
        "plan": [["a", "T", {}]], "out_fmt": "human", "state": "IN_PROGRESS",
        "subtask": {"g": "S", "plan": [["b", "T", {}]]}, "x-new": {"deep": [1]}});
    let new = up_of(&whole);
    assert_eq!((new.msg_id.as_str(), new.test_mode), ("_nd_1", Some(true)));
    let (_, told) = up(&old(&whole), &config()).unwrap();
    let told: Vec<_> = told.iter().map(|f| (f.level, f.pointer.as_str())).collect();
    for pointer in ["/msg_id", "/g", "/reply_to", "/subtask"] {
        assert!(told.contains(&(Level::Advice, pointer)), "{told:?}");
    }
    assert_eq!(round_trip(&whole), whole);
    for (ctx, outputs) in [
        (json!({"result": [1, 2]}), json!({"result": [1, 2]})),
        (
            json!({"result": {"outputs": {"k": 1}, "summary": "good"}}),
            json!({"k": 1}),
        ),
        (json!({}), json!({})),
    ] {
        let done =
            json!({"msg_id": "m", "g": "G", "ctx": ctx, "plan": [["a", "T", {}]], "state": "DONE"});
        let new: Value = serde_json::from_slice(&up_of(&done).encode()).unwrap();
        assert_eq!(new["result"]["outputs"], outputs);
        if ctx != json!({}) {
            assert_eq!(round_trip(&done), done);
        }
    }
    let failed = up_of(&json!({"g": "G", "plan": [["a", "T", {}]], "state": "FAILED"}));
    assert_eq!(
        failed.error.as_ref().unwrap().code.as_str(),
        "INTERNAL_ERROR"
    );
}

// spec: SACP1-15-1
#[test]
fn as_many_dependencies_as_may_be_are_listed_and_no_more() {
    let group = |members: usize| json!({"parallel": vec![json!(["a", "T", {}]); members]});
    let upped = |first, second| {
        let plan = json!([group(first), group(second)]);
        up(&old(&json!({"g": "G", "plan": plan})), &config())
    };
    let (new, _) = upped(500, 500).unwrap();
    assert_eq!(new.plan.len(), 1000);
    let Err(ConvertError::Lossy(losses)) = upped(500, 501) else {
        panic!("taken");
    };
    assert!(
        losses
            .iter()
            .any(|f| f.message.contains("more than 250000 dependencies"))
    );
}

#[test]
fn a_name_that_is_too_long_for_1_0_is_told_with_its_act() {
    let plan = json!([["a", "T", {}], ["a", "x".repeat(65), {}]]);
    let Err(ConvertError::Lossy(losses)) = up(&old(&json!({"g": "G", "plan": plan})), &config())
    else {
        panic!("taken");
    };
    let told: Vec<_> = losses.iter().map(|f| f.pointer.as_str()).collect();
    assert_eq!(told, ["/plan/1"]);
}

fn native(steps: Value) -> v1::Message {
    let message = json!({"proto_ver": "1.0.0", "msg_id": "m1", "reply_to": "m0", "ts": "2025-10-01T12:00:00Z", "sender": "p",
        "g": "G", "plan": steps, "state": "ACCEPTED", "trace": {"trace_id": "t"}, "ext": {"acme.flag": 1}});
    v1::Message::decode(message.to_string().as_bytes()).unwrap()
}

fn step(id: &str, after: &[&str]) -> Value {
    json!({"id": id, "verb": "do", "tool": id, "params": {}, "depends_on": after})
}

fn tools(value: &Value) -> String {
    match value {
        Value::Array(items) if items.first().is_some_and(Value::is_string) => {
            items[1].as_str().unwrap().to_owned()
        }
        Value::Array(items) => items.iter().map(tools).collect::<Vec<_>>().join(" "),
        group => format!("({})", tools(&group["parallel"])),
    }
}

// spec: SACP1-15-1
#[test]
fn layers_become_groups_and_anything_else_a_sequence() {
    for (steps, strict, text) in [
        (
            json!([
                step("a", &[]),
                step("b", &["a"]),
                step("c", &["a"]),
                step("d", &["b", "c"])
            ]),
            true,
            "a (b c) d",
        ),
        (json!([step("b", &["a"]), step("a", &[])]), true, "a b"),
        (
            json!([step("a", &[]), step("b", &[]), step("c", &["a"])]),
            false,
            "a b c",
        ),
        (
            json!([
                step("a", &[]),
                step("b", &["a"]),
                step("c", &["a"]),
                step("d", &["b"])
            ]),
            false,
            "a b c d",
        ),
        // The followers of the second step stand before those of the first.
        (
            json!([
                step("a", &[]),
                step("b", &[]),
                step("c", &["b"]),
                step("d", &["a"])
            ]),
            false,
            "a b c d",
        ),
    ] {
        let new = native(steps);
        assert_eq!(down(&new, Profile::Strict).is_ok(), strict, "{text}");
        let lossy = down(&new, Profile::Lenient).unwrap();
        let plan: Value = serde_json::from_slice(&lossy.message.encode()).unwrap();
        assert_eq!(tools(&plan["plan"]), text);
        assert_eq!(lossy.losses.iter().any(|f| f.pointer == "/plan"), !strict);
    }
}

// spec: SACP1-15-1
#[test]
fn what_0_1_cannot_say_is_refused_or_dropped_and_listed() {
    let mut first = step("a", &[]);
    first["timeout_ms"] = json!(5);
    first["retry"] = json!({"max_attempts": 2});
    first["on_error"] = json!("fallback");
    first["fallback_step"] = json!("b");
    first["output_key"] = json!("k");
    let new = native(json!([first, step("b", &[]), step("c", &["a"])]));
    let Err(ConvertError::Lossy(losses)) = down(&new, Profile::Strict) else {
        panic!("taken");
    };
    let musts = losses.iter().filter(|f| f.level == Level::Must);
    let mut pointers: Vec<_> = musts.map(|f| f.pointer.as_str()).collect();
    pointers.sort_unstable();
    assert_eq!(
        pointers,
        [
            "/plan/0/fallback_step",
            "/plan/0/on_error",
            "/plan/0/output_key",
            "/plan/0/retry",
            "/plan/0/timeout_ms"
        ]
    );
    let dropped = down(&new, Profile::Lenient).unwrap();
    assert_eq!(dropped.message.plan.items.len(), 2);
    assert_eq!(dropped.message.state(), State::Pending);
    let lost: Vec<_> = dropped.losses.iter().map(|f| f.pointer.as_str()).collect();
    for pointer in ["/trace", "/ext", "/state", "/plan/0/retry"] {
        assert!(lost.contains(&pointer), "{lost:?}");
    }
    assert_eq!(dropped.message.reply_to.as_deref(), Some("m0"));
    let mut rehearsed = native(json!([step("a", &[])]));
    rehearsed.test_mode = Some(true);
    let old = down(&rehearsed, Profile::Lenient).unwrap().message;
    assert!(sacp::MessageRef::from(&old).is_test());
    // A join that nothing comes before has no form at all.
    let mut join = step("j", &[]);
    join["verb"] = json!("join");
    assert!(down(&native(json!([join])), Profile::Lenient).is_err());
    // Nor has one that directly follows another.
    let join = |id, after: &[&str]| {
        let mut join = step(id, after);
        join["verb"] = json!("join");
        join
    };
    let group = [step("a", &[]), step("b", &[])];
    let plan = json!([
        group[0],
        group[1],
        join("j", &["a", "b"]),
        join("k", &["j"])
    ]);
    let Err(ConvertError::Lossy(losses)) = down(&native(plan), Profile::Lenient) else {
        panic!("it cannot be said");
    };
    assert!(losses.iter().any(|finding| finding.pointer == "/plan"));
}

// spec: SACP1-15-1
#[test]
fn a_result_with_more_than_its_output_is_kept_whole() {
    for more in [json!({"summary": "good"}), json!({"step_results": {}})] {
        let mut result = json!({"outputs": {"result": 1}});
        let more = more.as_object().unwrap().clone();
        result.as_object_mut().unwrap().extend(more);
        let done = json!({"msg_id": "m", "g": "G", "ctx": {"result": 1}, "plan": [["a", "T", {}]], "state": "DONE"});
        let mut new: Value = serde_json::from_slice(&up_of(&done).encode()).unwrap();
        new["result"] = result.clone();
        let new = v1::Message::decode(new.to_string().as_bytes()).unwrap();
        let back = down(&new, Profile::Lenient).unwrap().message.encode();
        let back: Value = serde_json::from_slice(&back).unwrap();
        assert_eq!(back["ctx"]["result"], result);
    }
}

// spec: SACP1-15-1
#[test]
fn errors_cross_with_their_reason() {
    let request = native(json!([step("a", &[])]));
    let mut error = ErrReply::new(Code::VerbToolMismatch, "");
    error.pointer = Some("/plan/0".into());
    let answer = answer_up(&request, &error, &config());
    let (AnyMessage::V10(read), _) = AnyMessage::decode(&answer.encode()).unwrap() else {
        panic!()
    };
    let failure = read.error.as_ref().unwrap();
    assert_eq!(*failure.code, v1::Code::UnknownTool);
    assert_eq!(
        failure.details.as_ref().unwrap().as_str(),
        r#"{"pointer":"/plan/0","reason":"VERB_TOOL_MISMATCH"}"#
    );
    error.details = "they do not go together".into();
    let told = answer_up(&request, &error, &config()).error.unwrap();
    assert_eq!(*told.message, *error.details);
    assert_eq!(read.reply_to.as_deref(), Some("m1"));
    let back = down(&read, Profile::Strict).unwrap();
    let error = back.error.unwrap();
    assert_eq!(
        (error.code, error.reply_to.as_deref()),
        (Code::UnknownTool, Some("m1"))
    );
    assert_eq!(back.message.state(), State::Failed);
}
