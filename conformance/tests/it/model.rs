//! The check of models, on models that do one thing wrong each.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::executor::block_on;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use ubos_common::time::Timestamp;
use ubos_conformance::uap::{ModelFault, check_model};
use upp::{
    ErrorCode, List, LlmCapabilities, LlmModel, LlmRequest, LlmResponse, Message, ModelEvent,
    ModelStream, Reply, ScriptedModel, Stamp, StreamEvent, StreamEventType, UppError, object,
};

type Items = Vec<Result<ModelEvent, UppError>>;

/// A model whose streams are changed.
struct Wrong<F> {
    model: ScriptedModel,
    change: F,
    streams: AtomicU64,
}

impl<F: Fn(u64, &mut Items) + Send + Sync> LlmModel for Wrong<F> {
    fn provider(&self) -> &str {
        self.model.provider()
    }
    fn model_id(&self) -> &str {
        self.model.model_id()
    }
    fn capabilities(&self) -> LlmCapabilities {
        self.model.capabilities()
    }
    fn complete(&self, request: LlmRequest) -> BoxFuture<'static, Result<LlmResponse, UppError>> {
        self.model.complete(request)
    }
    fn stream(&self, request: LlmRequest) -> ModelStream {
        let items = self.model.stream(request).collect::<Items>();
        let mut items = items.now_or_never().unwrap();
        (self.change)(self.streams.fetch_add(1, Ordering::Relaxed), &mut items);
        stream::iter(items).boxed()
    }
}

fn reply() -> Reply {
    let arguments = object(r#"{"a":1}"#).unwrap();
    Reply::text("hello there")
        .in_pieces_of(3)
        .calling("c", "add", arguments)
}

fn check(change: impl Fn(u64, &mut Items) + Send + Sync) -> Result<(), ModelFault> {
    check_script(|_| reply(), change)
}

fn check_script(
    script: impl Fn(&LlmRequest) -> Reply + Send + 'static,
    change: impl Fn(u64, &mut Items) + Send + Sync,
) -> Result<(), ModelFault> {
    let stamp = |id: &str| Stamp::with_id(id, Timestamp::EPOCH);
    let question = Message::user(stamp("q"), "hi");
    let request = LlmRequest::new(List::from(vec![question]), stamp("a"));
    let model = Wrong {
        model: ScriptedModel::with(move |request| Some(script(request))),
        change,
        streams: AtomicU64::new(0),
    };
    block_on(check_model(&model, request))
}

fn done(items: &mut Items, change: impl FnOnce(&mut LlmResponse)) {
    let Some(Ok(ModelEvent::Done(response))) = items.last_mut() else {
        panic!("no end");
    };
    change(response);
}

#[test]
fn a_model_that_does_one_thing_wrong_is_found() {
    assert_eq!(check(|_, _| {}), Ok(()));
    let error = || Err(UppError::new(ErrorCode::Timeout, "m", "x"));
    let text = || StreamEvent::text(StreamEventType::TextDelta, 0, "x");
    let faults = [
        check(|_, items| items.truncate(3)),
        check(|_, items| items.push(error())),
        check(|_, items| *items.last_mut().unwrap() = error()),
        check(|_, items| {
            drop(items.remove(0));
        }),
        check(|_, items| {
            let first = items[0].clone();
            items.insert(1, first);
        }),
        check(|_, items| {
            let stop = items.len() - 2;
            drop(items.remove(stop));
        }),
        check(|_, items| {
            let place = items.len() - 1;
            items.insert(place, Ok(ModelEvent::Event(text())));
        }),
        check(|_, items| {
            let piece = items[2].clone();
            items.insert(2, piece);
        }),
        check(|_, items| {
            items.retain(|item| !matches!(item, Ok(ModelEvent::Event(event)) if event.event_type == StreamEventType::ToolCallDelta))
        }),
        check(|_, items| done(items, |response| response.stop_reason = "other".into())),
        check(|_, items| done(items, |response| response.usage.output_tokens += 1)),
        check(|_, items| {
            done(items, |response| {
                Arc::make_mut(&mut response.message).tool_calls = None
            })
        }),
        check(|_, items| {
            done(items, |response| {
                let message = Arc::make_mut(&mut response.message);
                message.metadata = Some(upp::Metadata::default());
            });
        }),
        check(|_, items| {
            done(items, |response| {
                Arc::make_mut(&mut response.message).id = "b".into()
            })
        }),
    ];
    let said = faults.map(|fault| fault.unwrap_err().to_string());
    assert_eq!(
        said.each_ref().map(String::as_str),
        [
            "event 3 of a stream: the stream ends without a response",
            "event 9 of a stream: the stream goes on after its end",
            "a whole response ends with None, a stream with Some(Timeout)",
            "event 0 of a stream: a message starts once, with the first event",
            "event 1 of a stream: a message starts once, with the first event",
            "event 7 of a stream: a message stops once, with the last event",
            "event 8 of a stream: a message stops once, with the last event",
            "the events of a stream do not add up to the text of its response",
            "the events of a stream do not add up to the calls of its response",
            "the stop reason of a stream is not that of the whole response",
            "the usage of a stream is not that of the whole response",
            "the calls of a stream is not that of the whole response",
            "the raw form of a stream is not that of the whole response",
            "the message has not the id of the request",
        ]
    );
}

#[test]
fn a_response_is_gone_on_from_and_within_the_limits() {
    // It refuses what it said itself.
    let refuse = |request: &LlmRequest| match request.messages.len() {
        1 => reply(),
        _ => Reply::error(ErrorCode::InvalidRequest, "no"),
    };
    let code = ErrorCode::InvalidRequest;
    let fault = check_script(refuse, |_, _| {});
    assert_eq!(fault, Err(ModelFault::Back { code }));
    // The results of its calls stand behind them.
    let fault = check_script(
        |request| match &request.messages.iter().last() {
            Some(Message::ToolResult(_)) => Reply::text("done"),
            _ => reply(),
        },
        |_, _| {},
    );
    assert_eq!(fault, Ok(()));

    let many = |calls: usize| {
        let arguments = object("{}").unwrap();
        let call = |reply: Reply, n| reply.calling(format!("c{n}"), "add", arguments.clone());
        (0..calls).fold(Reply::text("x"), call)
    };
    assert_eq!(check_script(move |_| many(4_095), |_, _| {}), Ok(()));
    let fault = check_script(move |_| many(4_096), |_, _| {}).unwrap_err();
    assert!(fault.to_string().contains("4,096 parts"), "{fault}");
}

/// What each block of a stream may not do.
#[test]
fn a_block_that_is_out_of_order_is_found() {
    use StreamEventType::{
        ContentBlockStart, ContentBlockStop, ReasoningDelta, TextDelta, ToolExecutionStart,
    };
    let at = |items: &Items, kind: StreamEventType| {
        let is_it = |item: &Result<ModelEvent, UppError>| matches!(item, Ok(ModelEvent::Event(event)) if event.event_type == kind);
        items.iter().position(is_it).unwrap()
    };
    let insert = |place: usize, event: StreamEvent| {
        check(move |_, items| items.insert(place, Ok(ModelEvent::Event(event.clone()))))
    };
    let bare = StreamEvent::bare;
    let named = |id: &str| StreamEvent::tool_call(1, Some(id.into()), None, "");
    let faults = [
        // Behind the start of the message and that of the block.
        insert(2, bare(ContentBlockStart, 0)),
        insert(2, StreamEvent::text(ReasoningDelta, 0, "")),
        insert(7, StreamEvent::text(TextDelta, 0, "")),
        insert(7, bare(ContentBlockStop, 0)),
        insert(7, bare(ContentBlockStop, 5)),
        insert(8, named("other")),
        insert(3, bare(ToolExecutionStart, 0)),
        insert(1, StreamEvent::text(TextDelta, 7, "")),
        check(|_, items| drop(items.remove(at(items, ContentBlockStop)))),
    ];
    let said = faults.map(|fault| fault.unwrap_err().to_string());
    assert_eq!(
        said.each_ref().map(|said| said.split_once(": ").unwrap().1),
        [
            "a block starts once, before its parts",
            "the parts of a block are of one kind",
            "a block has no parts after its stop",
            "a block stops once, after its start",
            "a block stops once, after its start",
            "a call has one id and one name",
            "a model runs no tools",
            "blocks begin in the order of their places",
            "a block that has started stops before the message",
        ]
    );
}
