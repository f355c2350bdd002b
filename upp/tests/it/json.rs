//! JSON forms: golden documents, round trips, refusals.

use std::sync::Arc;

use futures::StreamExt;
use futures::executor::block_on;
use ubos_common::id::IdSource;
use ubos_common::json::{DecodeError, Limits, RawBuf, Read, Write, decode, to_string};
use ubos_common::time::Timestamp;
use ubos_common::violation::Profile;
use upp::{
    Accumulator, AssistantMessage, Blob, ContentBlock, CycleUsage, ErrorCode, List, LlmModel,
    LlmRequest, MediaKind, Message, ModelEvent, Reply, ScriptedModel, Source, Stamp, StreamEvent,
    StreamEventType, Thread, TokenUsage, ToolCall, ToolExecution, ToolResultMessage, Turn,
    UppError, llm, object,
};

fn stamp(n: u32) -> Stamp {
    Stamp::with_id(format!("m-{n}"), Timestamp::EPOCH)
}

fn read<T: for<'a> Read<'a>>(text: &str) -> Result<T, DecodeError> {
    decode(text.as_bytes(), &Limits::default(), Profile::Strict).map(|(value, _)| value)
}

fn round<T: for<'a> Read<'a> + Write + PartialEq + std::fmt::Debug>(value: &T) {
    assert_eq!(&read::<T>(&to_string(value)).unwrap(), value);
}

fn call() -> ToolCall {
    ToolCall::new(
        "c1".into(),
        "add".into(),
        object(r#"{"a":1,"b":2}"#).unwrap(),
    )
}

fn execution() -> ToolExecution {
    let ToolCall {
        tool_call_id,
        tool_name,
        arguments,
        ..
    } = call();
    ToolExecution::new(
        tool_name,
        tool_call_id,
        arguments,
        RawBuf::parse("3").unwrap(),
        false,
        4,
    )
}

/// A thread as the reference implementation writes one.
const THREAD: &str = r#"{"id":"0b2f6c9e-8f0e-4a55-9a2e-3d1c6a0f9b11","messages":[
{"id":"u1","type":"user","content":[{"type":"text","text":"a"}],"timestamp":"2025-10-01T12:00:00.123Z"},
{"id":"a1","type":"assistant","content":[{"type":"reasoning","text":"r"},{"type":"text","text":"b"}],"metadata":{"mock":{"x":1}},"timestamp":"2025-10-01T12:00:00.123Z","toolCalls":[{"toolCallId":"1","toolName":"t","arguments":{"z":1}}]},
{"id":"t1","type":"tool_result","content":[],"timestamp":"2025-10-01T12:00:00.123Z","results":[{"toolCallId":"1","result":{"ok":true},"isError":false}]}
],"createdAt":"2025-10-01T12:00:00.123Z","updatedAt":"2025-10-01T12:00:01.000Z"}"#;

// spec: UPP-1
#[test]
fn a_thread_of_the_reference_is_written_back_byte_for_byte() {
    let thread: Thread = read(THREAD).unwrap();
    assert_eq!(to_string(&thread), THREAD.replace('\n', ""));
    assert_eq!(thread.messages.len(), 3);
    assert_eq!(
        thread
            .messages
            .get(1)
            .unwrap()
            .metadata()
            .unwrap()
            .get("mock")
            .unwrap()
            .as_str(),
        "{\"x\":1}"
    );
    assert_eq!(thread.messages.get(2).unwrap().text(), r#"{"ok":true}"#);
}

// spec: UPP-1
#[test]
fn every_block_and_message_reads_back() {
    let bytes = Blob::from(vec![0, 255, 7]);
    let blocks = vec![
        ContentBlock::text("t\n\"ü"),
        ContentBlock::image(Source::Bytes(bytes.clone()), "image/png"),
        ContentBlock::image(Source::Url("https://x/y.png".into()), "image/png"),
        ContentBlock::document(Source::Text("plain".into()), "text/plain"),
        ContentBlock::document(Source::Base64("AA==".into()), "application/pdf"),
        ContentBlock::media(MediaKind::Binary, bytes.clone(), "x/y"),
        ContentBlock::media(MediaKind::Audio, bytes, "audio/wav"),
    ];
    let user: Message = upp::UserMessage::new(stamp(1), blocks).into();
    round(&user);
    assert!(to_string(&user).contains(r#"{"type":"bytes","data":"AP8H"}"#));
    // What is said of a sound is written again.
    let sound = r#"{"type":"audio","data":"AP8H","mimeType":"audio/wav","duration":1.5,"metadata":{"k":1}}"#;
    let block = read::<ContentBlock>(sound).unwrap();
    assert_eq!(to_string(&block), sound);
    let answer: Message = AssistantMessage::new(
        stamp(2),
        vec![ContentBlock::Reasoning("r".into())],
        Some(vec![call()]),
    )
    .into();
    let answer = answer.with_metadata("vendor", object(r#"{ "k" : 1.50 }"#).unwrap());
    round(&answer);
    assert!(to_string(&answer).contains(r#"{ "k" : 1.50 }"#));
    let results: Message =
        ToolResultMessage::new(stamp(3), vec![upp::ToolResult::from(&execution())]).into();
    round(&results);

    let messages: List<Message> = List::from(vec![user, answer, results]);
    let usage = TokenUsage::from(CycleUsage::new(5, 3, 1, 0));
    let mut turn = Turn::new(messages, List::from(vec![execution()]), usage, 1).unwrap();
    turn.data = Some(RawBuf::parse("[1]").unwrap());
    round(&turn);
    assert!(!to_string(&turn).contains("\"response\""));
    let mut thread = Thread::new(&mut IdSource::seeded(1), Timestamp::EPOCH);
    thread.append(Timestamp::EPOCH, &turn);
    round(&thread);
    round(&StreamEvent::tool_end(2, &execution(), 1_700_000_000_000));
    // Null is what a tool may give.
    let mut nothing = execution();
    nothing.result = RawBuf::parse("null").unwrap();
    round(&StreamEvent::tool_end(0, &nothing, 0));
    round(&StreamEvent::tool_call(
        1,
        None,
        Some("add".into()),
        "{\"a\"",
    ));
}

// spec: UPP-1
#[test]
fn a_usage_adds_up_every_count_of_its_cycles() {
    let cycle = || CycleUsage::new(1, 20, 300, 4_000);
    let mut usage = TokenUsage::from(cycle());
    usage += cycle();
    let mut wanted = TokenUsage::new(2, 40, 42, 600, 8_000);
    wanted.cycles = Some(List::from(vec![cycle(), cycle()]));
    assert_eq!(usage, wanted);
}

// spec: UPP-1
#[test]
fn members_nobody_knows_survive_and_breaches_have_a_pointer() {
    let text = r#"{"id":"u","type":"user","content":[],"timestamp":"2025-10-01T12:00:00Z","later":{"x":[1]}}"#;
    assert_eq!(to_string(&read::<Message>(text).unwrap()), text);
    for (bad, pointer) in [
        (
            r#"{"id":"u","type":"system","content":[],"timestamp":"2025-10-01T12:00:00Z"}"#,
            "/type",
        ),
        (
            r#"{"id":"u","type":"user","timestamp":"2025-10-01T12:00:00Z"}"#,
            "/content",
        ),
        (
            r#"{"id":"u","type":"user","content":[{"type":"text"}],"timestamp":"2025-10-01T12:00:00Z"}"#,
            "/content/0/text",
        ),
        (
            r#"{"id":"u","type":"user","content":[],"timestamp":"now"}"#,
            "/timestamp",
        ),
        (
            r#"{"type":"user","content":[],"timestamp":"2025-10-01T12:00:00Z"}"#,
            "/id",
        ),
    ] {
        let Err(DecodeError::Invalid(report)) = read::<Message>(bad) else {
            panic!("{bad}")
        };
        assert_eq!(report.iter().next().unwrap().pointer, pointer);
    }
    for (kind, stranger) in [
        ("user", r#"{"type":"reasoning","text":"r"}"#),
        (
            "assistant",
            r#"{"type":"document","source":{"type":"text","data":"d"},"mimeType":"text/plain"}"#,
        ),
        (
            "assistant",
            r#"{"type":"binary","data":"AA==","mimeType":"x/y"}"#,
        ),
    ] {
        let text = |kind: &str| {
            format!(
                r#"{{"id":"u","type":"{kind}","content":[{stranger}],"timestamp":"2025-10-01T12:00:00Z"}}"#
            )
        };
        let other = if kind == "user" { "assistant" } else { "user" };
        assert!(read::<Message>(&text(kind)).is_err(), "{stranger}");
        assert!(read::<Message>(&text(other)).is_ok(), "{stranger}");
    }
}

// spec: UPP-3
#[test]
fn errors_have_the_code_of_their_status() {
    for (status, code) in [
        (400, "INVALID_REQUEST"),
        (401, "AUTHENTICATION_FAILED"),
        (402, "QUOTA_EXCEEDED"),
        (403, "AUTHENTICATION_FAILED"),
        (404, "MODEL_NOT_FOUND"),
        (408, "TIMEOUT"),
        (409, "INVALID_REQUEST"),
        (413, "CONTEXT_LENGTH_EXCEEDED"),
        (418, "PROVIDER_ERROR"),
        (422, "INVALID_REQUEST"),
        (429, "RATE_LIMITED"),
        (451, "CONTENT_FILTERED"),
        (500, "PROVIDER_ERROR"),
        (503, "PROVIDER_ERROR"),
    ] {
        assert_eq!(ErrorCode::of_status(status).as_str(), code, "{status}");
    }
    let error = std::io::Error::other("broken pipe");
    let mut error =
        UppError::new(ErrorCode::ProviderError, "p", error.to_string()).with_cause(error);
    error.status_code = Some(503);
    assert_eq!(
        to_string(&error),
        r#"{"name":"UPPError","message":"broken pipe","code":"PROVIDER_ERROR","provider":"p","modality":"llm","statusCode":503,"cause":"broken pipe"}"#
    );
    assert!(std::error::Error::source(&error).is_some());
}

// spec: UPP-5
#[test]
fn what_a_model_cannot_do_is_refused_before_it_is_asked() {
    let mut none = upp::LlmCapabilities::text();
    (none.tools, none.structured_output) = (false, false);
    let model: upp::ModelReference = Arc::new(ScriptedModel::new([]).with_capabilities(none));
    let options = upp::LlmOptions::new(Arc::clone(&model));
    let options = options.with_structure(object("{}").unwrap());
    assert_eq!(llm(options).unwrap_err().code, ErrorCode::InvalidRequest);
    assert!(llm(upp::LlmOptions::new(model)).is_ok());
}

// spec: UPP-11
#[test]
fn a_scripted_stream_adds_up_to_its_answer() {
    let reply = Reply::text("hello world")
        .in_pieces_of(4)
        .calling("c1", "add", call().arguments);
    let model = ScriptedModel::new([reply.clone(), reply]);
    let request = LlmRequest::new(List::from(vec![Message::user(stamp(1), "hi")]), stamp(2));
    let whole = block_on(model.complete(request.clone())).unwrap();
    let items: Vec<_> = block_on(model.stream(request).collect());
    let mut sum = Accumulator::new("scripted");
    let mut types = Vec::new();
    for item in &items[..items.len() - 1] {
        let Ok(ModelEvent::Event(event)) = item else {
            panic!("{item:?}")
        };
        types.push(event.event_type.as_str());
        sum.add(event).unwrap();
    }
    assert_eq!(
        types,
        [
            "message_start",
            "content_block_start",
            "text_delta",
            "text_delta",
            "text_delta",
            "content_block_stop",
            "tool_call_delta",
            "message_stop",
        ]
    );
    assert_eq!(
        items.last().unwrap().as_ref().unwrap(),
        &ModelEvent::Done(Box::new(whole.clone()))
    );
    assert_eq!(sum.finish(stamp(2)).unwrap().0, *whole.message);
    let request = LlmRequest::new(List::default(), stamp(3));
    assert_eq!(
        block_on(model.complete(request.clone())).unwrap_err().code,
        ErrorCode::InvalidRequest
    );
    (0..4_096).for_each(|_| drop(model.complete(request.clone())));
    assert_eq!(model.requests().len(), 4_096);
}

#[test]
fn a_stream_that_does_not_add_up_is_refused() {
    let mut sum = Accumulator::new("p");
    sum.add(&StreamEvent::tool_call(
        0,
        Some("c".into()),
        Some("t".into()),
        "[1]",
    ))
    .unwrap();
    let (message, _) = sum.clone().finish(stamp(1)).unwrap();
    let call = &message.calls()[0];
    assert_eq!(
        (
            call.malformed_arguments().as_deref(),
            call.arguments.as_str()
        ),
        (Some("[1]"), "{}")
    );
    let text = StreamEvent::text(StreamEventType::TextDelta, 0, "x");
    assert_eq!(sum.add(&text).unwrap_err().code, ErrorCode::InvalidResponse);
}

// spec: UPP-11
#[test]
fn a_delayed_reply_waits_for_its_future() {
    let (open, opened) = futures::channel::oneshot::channel::<()>();
    let opened = std::sync::Mutex::new(Some(opened));
    let model = ScriptedModel::new([Reply::text("late").after(move || {
        let opened = opened.lock().unwrap().take().unwrap();
        async move { opened.await.unwrap() }
    })]);
    let mut answer = model.complete(LlmRequest::new(List::default(), stamp(1)));
    assert!(futures::FutureExt::now_or_never(&mut answer).is_none());
    open.send(()).unwrap();
    assert_eq!(block_on(answer).unwrap().message.text(), "late");
}

#[test]
fn events_of_a_response_have_the_places_of_its_parts() {
    let image = ContentBlock::image(Source::Bytes(vec![1].into()), "image/png");
    let content = vec![image, "a".into(), ContentBlock::Reasoning("b".into())];
    let message = AssistantMessage::new(stamp(1), content, Some(vec![call()]));
    let usage = CycleUsage::new(0, 0, 0, 0);
    let mut response = upp::LlmResponse::new(Arc::new(message), usage, "content_filter");
    assert_eq!(response.stop(), upp::Stop::Filter);
    let events = upp::events_of(&response, 9);
    let places: Vec<u32> = events.iter().map(|event| event.index).collect();
    assert_eq!(places, [0, 1, 1, 1, 2, 2, 2, 3, 0]);
    assert_eq!(events[2].event_type, StreamEventType::TextDelta);
    // Structured output is a text too.
    response.data = Some(RawBuf::parse("1").unwrap());
    let events = upp::events_of(&response, 9);
    assert_eq!(events[2].event_type, StreamEventType::ObjectDelta);
}
