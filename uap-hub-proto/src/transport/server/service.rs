//! The gRPC service: each call is a stream of inputs to the machine.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use prost::Message;
use tokio::task::coop::consume_budget;
use tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming, async_trait, metadata::AsciiMetadataValue};

use super::{
    call::CallState,
    connection::Peer,
    shared::{Shared, Sink, SinkSender},
    unfinished::Broken,
    unread::{Outgoing, Unread},
};
use crate::{
    capability::Registration,
    id::{Identity, StreamId},
    role::{
        CLIENT_ID_KEY, RESUME_KEY, Resume, Rpc, SESSION_ID_KEY,
        hub::{Inbound, Input, RegisterError},
    },
    status,
    transport::{carry, mail, spawn, trace},
    wire::{
        AgentRegistration, AgentRegistrationResponse, ListenRequest, ListenResponse, TestInit,
        TestResponse, TranslationInit, TranslationResponse, agent_hub_server::AgentHub,
    },
};

/// Messages that wait on a session's stream: the hub sends one.
const MAX_SESSION_MESSAGES: usize = 2;

#[derive(Clone, Debug)]
pub(super) struct Service {
    shared: Arc<Shared>,
    outgoing: Outgoing,
}

impl Service {
    pub(super) const fn new(shared: Arc<Shared>, outgoing: Outgoing) -> Self {
        Self { shared, outgoing }
    }

    /// Opens a call and starts reading it. Nothing is read of one that the hub refuses.
    fn open<In, Out>(
        &self,
        rpc: Rpc,
        request: Request<Streaming<In>>,
        sender: impl FnOnce(mail::Sender<Out>) -> SinkSender,
        inbound: fn(In) -> Inbound,
    ) -> Result<Response<Answers<Out>>, Status>
    where
        In: Send + 'static,
        Out: Message,
    {
        let (name, most) = match rpc {
            Rpc::Listen => (CLIENT_ID_KEY, self.shared.max_control_messages),
            Rpc::Execute | Rpc::Translate => (SESSION_ID_KEY, MAX_SESSION_MESSAGES),
        };
        let (messages, answers) = mail::mail(most);
        let call = CallState::default();
        let sink = Sink {
            messages: sender(messages),
            call: call.clone(),
        };
        let stream = self.shared.open(sink, |hub, now, stream| {
            hub.handle_input(now, opened(stream, rpc, name, &request))
                .is_ok()
        });
        trace::opened("hub", rpc, stream);
        if let Some(refused) = call.take_end() {
            return Err(refused.into());
        }
        let trace = call.take_trace();
        let reader = Reader::of(&request, self.shared.clone(), stream, call.clone());
        // What waits on a control stream is small, and counted in messages.
        let unread =
            (rpc != Rpc::Listen).then(|| Unread::new(self.outgoing.clone(), reader.peer.clone()));
        spawn(reader.run(request.into_inner(), inbound));
        let mut answer = Response::new(Answers {
            messages: answers,
            unread,
            next: None,
            call,
            is_ended: false,
            stream,
            shared: self.shared.clone(),
        });
        carry::carry(trace.as_ref(), answer.metadata_mut());
        Ok(answer)
    }
}

// impl: HUB-1-1
#[async_trait]
impl AgentHub for Service {
    type ListenStream = Answers<ListenResponse>;
    type ExecuteStream = Answers<TestInit>;
    type TranslateStream = Answers<TranslationInit>;

    async fn register(
        &self,
        request: Request<AgentRegistration>,
    ) -> Result<Response<AgentRegistrationResponse>, Status> {
        let identity = request.extensions().get().cloned();
        let address = Peer::of(request.extensions()).and_then(|peer| peer.addr);
        let address = address.map(|at| at.ip());
        let registration = Registration::try_from(request.into_inner());
        let registration =
            registration.map_err(|refused| Status::from(RegisterError::from(refused).status()))?;
        let answer =
            (self.shared).act(|hub, now| hub.register_as(now, identity, address, registration));
        answer
            .map(Response::new)
            .map_err(|error| error.status().into())
    }

    async fn listen(
        &self,
        request: Request<Streaming<ListenRequest>>,
    ) -> Result<Response<Self::ListenStream>, Status> {
        self.open(Rpc::Listen, request, SinkSender::Listen, Inbound::Listen)
    }

    async fn execute(
        &self,
        request: Request<Streaming<TestResponse>>,
    ) -> Result<Response<Self::ExecuteStream>, Status> {
        self.open(Rpc::Execute, request, SinkSender::Test, Inbound::Test)
    }

    async fn translate(
        &self,
        request: Request<Streaming<TranslationResponse>>,
    ) -> Result<Response<Self::TranslateStream>, Status> {
        self.open(
            Rpc::Translate,
            request,
            SinkSender::Translation,
            Inbound::Translation,
        )
    }
}

/// The opening of a call whose key has this name.
fn opened<'a, T>(
    stream: StreamId,
    rpc: Rpc,
    name: &'static str,
    request: &'a Request<T>,
) -> Input<'a> {
    let value = |name| {
        let value: Option<&'a AsciiMetadataValue> = request.metadata().get(name);
        value.and_then(|value| value.to_str().ok())
    };
    Input::Opened {
        stream,
        rpc,
        key: value(name),
        resume: value(RESUME_KEY).and_then(Resume::from_value),
        identity: request.extensions().get::<Identity>(),
    }
}

/// Reads a call until it ends.
struct Reader {
    shared: Arc<Shared>,
    stream: StreamId,
    /// Whether the end of its messages is that of a broken call.
    broken: Broken,
    call: CallState,
    peer: Option<Peer>,
}

impl Reader {
    fn of<T>(request: &Request<T>, shared: Arc<Shared>, stream: StreamId, call: CallState) -> Self {
        Self {
            shared,
            stream,
            broken: request.extensions().get().cloned().unwrap_or_default(),
            call,
            peer: Peer::of(request.extensions()).cloned(),
        }
    }

    #[expect(
        clippy::manual_async_fn,
        reason = "an async fn holds what it was given twice"
    )]
    fn run<In>(
        self,
        mut messages: Streaming<In>,
        inbound: fn(In) -> Inbound,
    ) -> impl Future<Output = ()> {
        async move {
            let stream = self.stream;
            let end = loop {
                // One that is not read stops its own stream and no other.
                let next = poll_fn(|cx| {
                    self.call
                        .poll_read(cx, |cx| Pin::new(&mut messages).poll_next(cx))
                });
                let Some(read) = next.await else {
                    read_out(&mut messages).await;
                    break Status::cancelled("the call was dropped");
                };
                match read {
                    Some(Ok(message)) => {
                        let message = inbound(message);
                        let input = Input::Message { stream, message };
                        if self
                            .shared
                            .act(|hub, now| hub.handle_input(now, input))
                            .is_err()
                        {
                            return;
                        }
                        // A peer that sends many small messages does not keep the thread.
                        consume_budget().await;
                    }
                    None if self.broken.is_lost() => {
                        break Status::cancelled("the connection was lost");
                    }
                    None if self.broken.is_set() => {
                        break Status::cancelled("the call was cancelled");
                    }
                    None => {
                        // A closed hub refuses inputs.
                        let last = Input::HalfClosed { stream };
                        let _ = self.shared.act(|hub, now| hub.handle_input(now, last));
                        return;
                    }
                    Some(Err(status)) => break status,
                }
            };
            let is_lost = self.broken.is_lost() || self.peer.is_some_and(|peer| peer.is_lost());
            self.shared.broke(stream, end.into(), is_lost);
        }
    }
}

/// Reads what has come of a call that was paused and is gone: only behind it stands whether its connection was lost. An agent
/// that can resume the session sends it again, and to others it is lost as before.
async fn read_out<In>(messages: &mut Streaming<In>) {
    let mut next = async || {
        poll_fn(|cx| match Pin::new(&mut *messages).poll_next(cx) {
            Poll::Ready(Some(Ok(_))) => Poll::Ready(true),
            _ => Poll::Ready(false),
        })
        .await
    };
    while next().await {
        consume_budget().await;
    }
}

/// The messages of a call, then its status.
#[derive(Debug)]
pub(super) struct Answers<T> {
    messages: mail::Receiver<T>,
    unread: Option<Unread>,
    /// Waits for the peer to take what it was sent.
    next: Option<T>,
    call: CallState,
    is_ended: bool,
    stream: StreamId,
    shared: Arc<Shared>,
}

impl<T> Answers<T> {
    /// The next message of the hub.
    fn poll_mail(&self, cx: &Context<'_>) -> Poll<Option<T>> {
        let message = self.messages.poll(cx);
        if message.is_ready() && self.messages.has_room() && self.call.unblock() {
            let stream = self.stream;
            // A closed hub refuses inputs.
            let _ = self
                .shared
                .act(|hub, now| hub.handle_input(now, Input::Writable { stream }));
        }
        message
    }
}

impl<T: Message + Unpin> Stream for Answers<T> {
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_ended {
            return Poll::Ready(None);
        }
        let this = &mut *self;
        if let Some(unread) = &mut this.unread {
            unread.taken();
        }
        let message = match this.next.take() {
            Some(message) => Some(message),
            None => std::task::ready!(this.poll_mail(cx)),
        };
        if let Some(message) = message {
            let Some(unread) = &mut this.unread else {
                return Poll::Ready(Some(Ok(message)));
            };
            let bytes = message.encoded_len();
            if unread.poll_room(cx, bytes).is_ready() {
                unread.watch(&this.call, bytes);
                return Poll::Ready(Some(Ok(message)));
            }
            // Where the call ends before there is room, the peer is told that alone.
            if !this.messages.poll_over(cx) {
                this.next = Some(message);
                return Poll::Pending;
            }
        }
        this.is_ended = true;
        let unsaid = || status::Status::new(status::Code::Unavailable, "the hub is gone");
        let status = this.call.take_end().unwrap_or_else(unsaid);
        Poll::Ready((status.code != status::Code::Ok).then(|| Err(status.into())))
    }
}

impl<T> Drop for Answers<T> {
    fn drop(&mut self) {
        self.call.gone();
    }
}

#[cfg(test)]
mod tests;
