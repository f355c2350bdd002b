//! One call to the hub: its sender and its reader.

use std::{
    error::Error as _,
    mem,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{sync::OwnedSemaphorePermit, task::AbortHandle};
use tokio_stream::Stream;
use tonic::{
    Request, Response, Status, Streaming, metadata::AsciiMetadataValue, transport::Channel,
};

use ubos_common::trace_context::TraceContext;

use super::route::Route;
use crate::{
    id::StreamId,
    role::{
        CLIENT_ID_KEY, RESUME_KEY, Resume, Rpc, SESSION_ID_KEY,
        agent::{Inbound, Input, Outbound},
    },
    transport::{
        carry::{carried, carry},
        mail, spawn,
    },
    wire::{ListenRequest, TestResponse, TranslationResponse, agent_hub_client::AgentHubClient},
};

/// A message with its permit to wait, which is released when it is sent.
type Waiting<T> = (T, Option<OwnedSemaphorePermit>);

/// The sending half of a call, and its reader.
#[derive(Debug)]
pub(super) struct Call {
    /// `None` once half-closed.
    sender: Option<Sender>,
    reader: AbortHandle,
}

#[derive(Debug)]
enum Sender {
    Listen(mail::Sender<Waiting<ListenRequest>>),
    Test(mail::Sender<Waiting<TestResponse>>),
    Translation(mail::Sender<Waiting<TranslationResponse>>),
}

impl Call {
    /// Opens a call, and hands what it reads to `receive`.
    pub(super) fn open(
        route: &Route,
        mut hub: AgentHubClient<Channel>,
        opening: Opening<'_>,
        receive: impl Fn(Input) + Send + 'static,
    ) -> Self {
        let stream = opening.stream;
        let (sender, reader) = match opening.rpc {
            Rpc::Listen => {
                let (sender, request) = request(route, CLIENT_ID_KEY, &opening);
                let call = Box::pin(async move { hub.listen(request?).await });
                (
                    Sender::Listen(sender),
                    spawn(read(receive, stream, call, Inbound::Listen)),
                )
            }
            Rpc::Execute => {
                let (sender, request) = request(route, SESSION_ID_KEY, &opening);
                let call = Box::pin(async move { hub.execute(request?).await });
                (
                    Sender::Test(sender),
                    spawn(read(receive, stream, call, Inbound::Test)),
                )
            }
            Rpc::Translate => {
                let (sender, request) = request(route, SESSION_ID_KEY, &opening);
                let call = Box::pin(async move { hub.translate(request?).await });
                (
                    Sender::Translation(sender),
                    spawn(read(receive, stream, call, Inbound::Translation)),
                )
            }
        };
        Self {
            sender: Some(sender),
            reader: reader.abort_handle(),
        }
    }

    /// Whether the message found room.
    pub(super) fn send(&self, message: Outbound, permit: Option<OwnedSemaphorePermit>) -> bool {
        match (&self.sender, message) {
            (Some(Sender::Listen(to)), Outbound::Listen(message)) => pass(to, message, permit),
            (Some(Sender::Test(to)), Outbound::Test(message)) => pass(to, message, permit),
            (Some(Sender::Translation(to)), Outbound::Translation(message)) => {
                pass(to, message, permit)
            }
            _ => false,
        }
    }

    pub(super) fn half_close(&mut self) {
        self.sender = None;
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// How a call is opened.
#[derive(Debug)]
pub(super) struct Opening<'a> {
    pub(super) stream: StreamId,
    pub(super) rpc: Rpc,
    pub(super) key: &'a str,
    pub(super) resume: Option<Resume>,
    pub(super) trace: Option<&'a TraceContext>,
    /// Messages that may wait on it.
    pub(super) most: usize,
}

/// Whether there was room. A call that broke takes nothing; its reader says so.
fn pass<T>(
    to: &mail::Sender<Waiting<T>>,
    message: T,
    permit: Option<OwnedSemaphorePermit>,
) -> bool {
    to.send((message, permit))
}

/// The sender of a call's messages, and its request.
type Opened<T> = (mail::Sender<Waiting<T>>, Result<Request<Body<T>>, Status>);

fn request<T>(route: &Route, name: &'static str, opening: &Opening<'_>) -> Opened<T> {
    let (sender, body) = mail::mail(opening.most);
    let value = AsciiMetadataValue::try_from(opening.key);
    let resume = opening.resume.map(Resume::to_value);
    let request = value
        .map_err(|_| Status::invalid_argument("the hub's id is no metadata value"))
        .map(|value| {
            let mut request = route.request(Body::new(body));
            request.metadata_mut().insert(name, value);
            if let Some(resume) = resume {
                // choice: its value is ASCII
                if let Ok(value) = AsciiMetadataValue::try_from(resume) {
                    request.metadata_mut().insert(RESUME_KEY, value);
                }
            }
            carry(opening.trace, request.metadata_mut());
            request
        });
    (sender, request)
}

/// Reads a call until it ends. The call counts as open before its headers come.
///
/// Opening it is boxed: it is large, and over before the first message comes.
async fn read<T>(
    receive: impl Fn(Input),
    stream: StreamId,
    call: Pin<Box<impl Future<Output = Result<Response<Streaming<T>>, Status>>>>,
    inbound: fn(T) -> Inbound,
) {
    let mut opened = call.await.map(|response| {
        if let Some(trace) = carried(response.metadata()) {
            receive(Input::Trace { stream, trace });
        }
        response.into_inner()
    });
    let status = loop {
        let messages = match &mut opened {
            Ok(messages) => messages,
            Err(status) => break mem::replace(status, Status::ok("")),
        };
        match messages.message().await {
            Ok(Some(message)) => {
                let message = inbound(message);
                receive(Input::Message { stream, message });
            }
            Ok(None) => break Status::ok(""),
            Err(status) => break status,
        }
    };
    // The library keeps the error of a connection in the status that it makes of it.
    let is_broken = status.source().is_some();
    let status = status.into();
    receive(match is_broken {
        true => Input::Broken { stream, status },
        false => Input::Ended { stream, status },
    });
}

/// The messages of a call, as the gRPC library wants them: what is there at the same time goes in one frame.
#[derive(Debug)]
struct Body<T> {
    messages: mail::Receiver<Waiting<T>>,
    /// Whether a message that is alone has waited for others. The first of a call has nothing to wait for.
    has_waited: bool,
}

impl<T> Body<T> {
    const fn new(messages: mail::Receiver<Waiting<T>>) -> Self {
        Self {
            messages,
            has_waited: true,
        }
    }
}

impl<T> Stream for Body<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        // One turn of the executor: the result of a handler that is done at once comes behind the status that it runs.
        if self.messages.is_alone() && !mem::replace(&mut self.has_waited, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let next = self.messages.poll(cx);
        self.has_waited &= next.is_ready();
        next.map(|waiting| waiting.map(|(message, _permit)| message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_is_alone_waits_one_turn_for_others() {
        let (sender, messages) = mail::mail(4);
        let mut body = Body::new(messages);
        let cx = &mut Context::from_waker(std::task::Waker::noop());
        let mut next = || Pin::new(&mut body).poll_next(cx);
        let say = |n| assert!(sender.send((n, None)));
        say(1);
        assert_eq!(next(), Poll::Ready(Some(1)), "the first waits for nothing");
        assert!(next().is_pending());
        say(2);
        assert!(next().is_pending());
        say(3);
        assert_eq!(next(), Poll::Ready(Some(2)));
        assert_eq!(next(), Poll::Ready(Some(3)));
        assert!(next().is_pending());
        say(4);
        assert!(next().is_pending());
        assert_eq!(next(), Poll::Ready(Some(4)), "once");
        assert!(next().is_pending());
        say(5);
        drop(sender);
        assert_eq!(next(), Poll::Ready(Some(5)), "none can come");
        assert_eq!(next(), Poll::Ready(None));
    }
}
