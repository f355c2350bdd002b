//! A model as agents need it, for who writes an adapter.

use futures::StreamExt as _;
use ubos_common::json::{Limits, decode, to_string};
use ubos_common::violation::Profile;
use upp::{
    Accumulator, ErrorCode, LlmModel, LlmRequest, LlmResponse, Message, ModelEvent, StreamEvent,
    StreamEventType, UppError,
};

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
    /// The message is not the one that was asked for, or does not survive its JSON.
    #[error("the message {what}")]
    Message {
        /// What is wrong with it.
        what: &'static str,
    },
}

/// Asks a model the same in whole, by a stream, by a stream that is dropped at its first event, and in whole again, and
/// compares what comes of it: the same response with the same raw form, or the same error; every event once and in order;
/// events that add up to the response; a message under the id of the request that JSON keeps.
///
/// The model must respond to equal requests equally, as behind a server that plays back a recording.
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
        check_sum(&events, response)?;
        check_message(response, &request)?;
    }
    // Dropping a stream ends its request, and no other.
    let mut dropped = model.stream(request.clone());
    let _ = dropped.next().await;
    drop(dropped);
    compare(&whole, &model.complete(request).await)
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

/// One start, then everything else, then one stop.
fn check_order(events: &[StreamEvent]) -> Result<(), ModelFault> {
    let last = events.len().saturating_sub(1);
    for (place, event) in events.iter().enumerate() {
        let is_start = event.event_type == StreamEventType::MessageStart;
        let is_stop = event.event_type == StreamEventType::MessageStop;
        if is_start != (place == 0) {
            return Err(order(place, "a message starts once, with the first event"));
        }
        if is_stop != (place == last) {
            return Err(order(place, "a message stops once, with the last event"));
        }
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
    let stamp = upp::Stamp::with_id("sum", ubos_common::time::Timestamp::EPOCH);
    let (message, data) = all.finish(stamp).map_err(|_| sum("content"))?;
    let text = |message: &upp::AssistantMessage| message.text();
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
    let message = Message::Assistant(std::sync::Arc::clone(&response.message));
    let read = decode::<Message>(
        to_string(&message).as_bytes(),
        &Limits::default(),
        Profile::Strict,
    );
    match read {
        Ok((read, _)) if read == message => Ok(()),
        _ => fault("is not read back from its JSON"),
    }
}

const fn order(place: usize, what: &'static str) -> ModelFault {
    ModelFault::Order { place, what }
}
