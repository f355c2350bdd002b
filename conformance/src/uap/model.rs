//! A model as agents need it, for who writes an adapter.

use std::sync::Arc;

use futures::StreamExt as _;
use ubos_common::json::{Limits, decode, to_string};
use ubos_common::time::Timestamp;
use ubos_common::violation::Profile;
use upp::{
    Accumulator, AssistantMessage, ErrorCode, LlmModel, LlmRequest, LlmResponse, Message,
    ModelEvent, Stamp, StreamEvent, StreamEventType, ToolResult, ToolResultMessage, UppError,
};

use super::model_blocks::Blocks;

/// The limits of a response.
const MAX_BYTES: usize = 64 << 20;
const MAX_PARTS: usize = 4_096;

/// What a model does that agents do not expect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelFault {
    /// A whole response and a stream end differently. `None` is a success.
    #[error("a whole response ends with {whole:?}, a stream with {stream:?}")]
    Ends {
        /// The error of the whole response.
        whole: Option<ErrorCode>,
        /// The error of the stream.
        stream: Option<ErrorCode>,
    },
    /// The response of a stream is not the whole response.
    #[error("the {what} of a stream is not that of the whole response")]
    Differs {
        /// What differs.
        what: &'static str,
    },
    /// An event is out of order.
    #[error("event {place} of a stream: {what}")]
    Order {
        /// The place of the event, from 0.
        place: usize,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The events add up to something else than the response.
    #[error("the events of a stream do not add up to the {what} of its response")]
    Sum {
        /// What they do not add up to.
        what: &'static str,
    },
    /// The message is not the one that was asked for, is too large, or does not survive its JSON.
    #[error("the message {what}")]
    Message {
        /// What is wrong with it.
        what: &'static str,
    },
    /// The response cannot be part of the next request, as it came or as it is read back from its JSON.
    #[error("the next request, with the response in it, ends with {code:?}")]
    Back {
        /// The error.
        code: ErrorCode,
    },
}

/// Asks a model the same in whole, by a stream, by a stream that is dropped at its first event, and in whole again, and
/// compares what comes of it: the same response with the same raw form, or the same error; every event once and in order, of the message and of each block;
/// events that add up to the response; a message under the id of the request that JSON keeps, within the limits of a
/// response. A response is then asked to be gone on from, as it came and as it is read back from its JSON: the model may
/// not refuse what it said, and a server that knows what it sent can compare.
///
/// The model must respond to equal requests equally, as behind a server that plays back a recording: two whole ones, of
/// which one is the first, two streams between them, and two more whole ones where the first was no error.
///
/// ```
/// use ubos_conformance::uap::check_model;
/// use upp::ubos_common::time::Timestamp;
/// use upp::{List, LlmRequest, Message, Reply, ScriptedModel, Stamp};
///
/// let model = ScriptedModel::with(|_| Some(Reply::text("hello")));
/// let stamp = |id: &str| Stamp::with_id(id, Timestamp::EPOCH);
/// let request = LlmRequest::new(List::from(vec![Message::user(stamp("q"), "hi")]), stamp("a"));
/// futures::executor::block_on(check_model(&model, request))?;
/// # Ok::<(), ubos_conformance::uap::ModelFault>(())
/// ```
///
/// # Errors
///
/// The first fault.
pub async fn check_model(model: &dyn LlmModel, request: LlmRequest) -> Result<(), ModelFault> {
    let whole = model.complete(request.clone()).await;
    let (events, streamed) = read(model, request.clone()).await?;
    compare(&whole, &streamed)?;
    if let Ok(response) = &streamed {
        check_order(&events)?;
        check_message(response, &request)?;
        check_sum(&events, response)?;
    }
    // Dropping a stream ends its request, and no other.
    let mut dropped = model.stream(request.clone());
    let _ = dropped.next().await;
    drop(dropped);
    compare(&whole, &model.complete(request.clone()).await)?;
    match whole {
        Ok(response) => check_back(model, &request, response.message).await,
        Err(_) => Ok(()),
    }
}

/// The events of a stream, and its end.
async fn read(
    model: &dyn LlmModel,
    request: LlmRequest,
) -> Result<(Vec<StreamEvent>, Result<LlmResponse, UppError>), ModelFault> {
    let mut stream = model.stream(request);
    let mut events = Vec::new();
    let end = loop {
        match stream.next().await {
            Some(Ok(ModelEvent::Event(event))) => events.push(event),
            Some(Ok(ModelEvent::Done(response))) => break Ok(*response),
            Some(Err(error)) => break Err(error),
            Some(Ok(_)) => {}
            None => return Err(order(events.len(), "the stream ends without a response")),
        }
    };
    match stream.next().await {
        Some(_) => Err(order(events.len(), "the stream goes on after its end")),
        None => Ok((events, end)),
    }
}

fn compare(
    whole: &Result<LlmResponse, UppError>,
    other: &Result<LlmResponse, UppError>,
) -> Result<(), ModelFault> {
    let (whole, other) = match (whole, other) {
        (Ok(whole), Ok(other)) => (whole, other),
        (whole, other) => {
            let code = |of: &Result<_, UppError>| of.as_ref().err().map(|error| error.code.clone());
            let (whole, stream) = (code(whole), code(other));
            let is_same = whole == stream;
            return is_same
                .then_some(())
                .ok_or(ModelFault::Ends { whole, stream });
        }
    };
    let (one, two) = (&whole.message, &other.message);
    for (what, is_same) in [
        ("content", one.content == two.content),
        ("calls", one.calls() == two.calls()),
        ("raw form", one.metadata == two.metadata),
        ("stop reason", whole.stop_reason == other.stop_reason),
        ("data", whole.data == other.data),
        ("usage", whole.usage == other.usage),
    ] {
        if !is_same {
            return Err(ModelFault::Differs { what });
        }
    }
    Ok(())
}

/// One start, then everything else, then one stop; and the same for each block.
fn check_order(events: &[StreamEvent]) -> Result<(), ModelFault> {
    let last = events.len().saturating_sub(1);
    let mut blocks = Blocks::default();
    for (place, event) in events.iter().enumerate() {
        let is_start = event.event_type == StreamEventType::MessageStart;
        let is_stop = event.event_type == StreamEventType::MessageStop;
        if is_start != (place == 0) {
            return Err(order(place, "a message starts once, with the first event"));
        }
        if is_stop != (place == last) {
            return Err(order(place, "a message stops once, with the last event"));
        }
        blocks.see(event).map_err(|what| order(place, what))?;
    }
    if events.len() < 2 {
        return Err(order(0, "a message has a start and a stop"));
    }
    Ok(())
}

fn check_sum(events: &[StreamEvent], response: &LlmResponse) -> Result<(), ModelFault> {
    let sum = |what| ModelFault::Sum { what };
    let mut all = Accumulator::new("sum");
    for event in events {
        all.add(event).map_err(|_| sum("content"))?;
    }
    let stamp = Stamp::with_id("sum", Timestamp::EPOCH);
    let (message, data) = all.finish(stamp).map_err(|_| sum("content"))?;
    let text = |message: &AssistantMessage| message.text();
    if text(&message) != text(&response.message) {
        return Err(sum("text"));
    }
    if message.calls() != response.message.calls() {
        return Err(sum("calls"));
    }
    match (&response.data, data) {
        (Some(wanted), data) if Some(wanted) != data.as_ref() => Err(sum("data")),
        _ => Ok(()),
    }
}

fn check_message(response: &LlmResponse, request: &LlmRequest) -> Result<(), ModelFault> {
    let fault = |what| Err(ModelFault::Message { what });
    if response.message.id != request.stamp.id {
        return fault("has not the id of the request");
    }
    let message = &response.message;
    let bytes = message.text().len()
        + message
            .calls()
            .iter()
            .map(|call| call.arguments.as_str().len())
            .sum::<usize>();
    if bytes > MAX_BYTES || message.content.len() + message.calls().len() > MAX_PARTS {
        return fault("has more than 64 MiB or 4,096 parts");
    }
    match read_back(message) {
        Some(read) if read == Message::Assistant(Arc::clone(message)) => Ok(()),
        _ => fault("is not read back from its JSON"),
    }
}

/// A message, as a store gives it back.
fn read_back(message: &Arc<AssistantMessage>) -> Option<Message> {
    let limits = Limits::default()
        .with_max_bytes(8 * MAX_BYTES)
        .with_max_string_bytes(8 * MAX_BYTES)
        .with_max_members(usize::MAX)
        .with_max_array_len(usize::MAX)
        .with_max_depth(Limits::DEEPEST);
    let text = to_string(&Message::Assistant(Arc::clone(message)));
    let read = decode::<Message>(text.as_bytes(), &limits, Profile::Strict);
    read.ok().map(|(read, _)| read)
}

async fn check_back(
    model: &dyn LlmModel,
    request: &LlmRequest,
    message: Arc<AssistantMessage>,
) -> Result<(), ModelFault> {
    let stamp = |id| Stamp::with_id(id, Timestamp::EPOCH);
    let results = message.calls().iter();
    let results: Vec<_> = results
        .map(|call| ToolResult::new(Arc::clone(&call.tool_call_id), upp::json_text("done")))
        .collect();
    let next = match results.is_empty() {
        true => Message::user(stamp("next"), "go on"),
        false => ToolResultMessage::new(stamp("next"), results).into(),
    };
    let stored = read_back(&message);
    for said in [Some(Message::Assistant(message)), stored]
        .into_iter()
        .flatten()
    {
        let mut request = request.clone();
        request.messages.push(said);
        request.messages.push(next.clone());
        if let Err(error) = model.complete(request).await {
            return Err(ModelFault::Back { code: error.code });
        }
    }
    Ok(())
}

const fn order(place: usize, what: &'static str) -> ModelFault {
    ModelFault::Order { place, what }
}
