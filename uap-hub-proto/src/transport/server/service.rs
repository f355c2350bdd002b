//! The gRPC service: each call is a stream of inputs to the machine.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::task::coop::consume_budget;
use tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming, async_trait, metadata::AsciiMetadataValue};

use super::{
    budget::Pool,
    call::CallState,
    connection::Peer,
    shared::{Shared, Sink, SinkSender},
    unfinished::Broken,
    unread::{Large, Sent, Split, Unread},
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
    /// What agents have not read.
    unread: Arc<Pool>,
}

impl Service {
    pub(super) const fn new(shared: Arc<Shared>, unread: Arc<Pool>) -> Self {
        Self { shared, unread }
    }

    /// Opens a call and starts reading it. Nothing is read of one that the hub refuses.
    fn open<In, Out>(
        &self,
        rpc: Rpc,
        request: Request<Streaming<In>>,
        sender: impl FnOnce(mail::Sender<Sent<Out>>) -> SinkSender,
        inbound: fn(In) -> Inbound,
    ) -> Result<Response<Answers<Out>>, Status>
    where
        In: Send + 'static,
        Out: Send + 'static,
    {
        let (name, most) = match rpc {
            Rpc::Listen => (CLIENT_ID_KEY, self.shared.max_control_messages),
            Rpc::Execute | Rpc::Translate => (SESSION_ID_KEY, MAX_SESSION_MESSAGES),
        };
        let (messages, answers) = mail::mail(most);
        let call = CallState::default();
        let peer = Peer::of(request.extensions()).cloned();
        let of = peer.as_ref().map(|peer| peer.held[2].clone());
        let sink = Sink {
            unread: Unread::new(self.unread.clone(), of.unwrap_or_default()),
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
        let reader = Reader {
            shared: self.shared.clone(),
            stream,
            broken: request.extensions().get().cloned().unwrap_or_default(),
            call: call.clone(),
            peer,
        };
        spawn(reader.run(request.into_inner(), inbound));
        // The job is there already, and what comes after it is small.
        let is_large = answers.any(|sent| sent.charge.is_some());
        let large = is_large.then(Large::default);
        let mut answer = Response::new(Answers {
            messages: answers,
            large: large.clone(),
            call,
            is_ended: false,
            stream,
            shared: self.shared.clone(),
        });
        if let Some(large) = large {
            answer.extensions_mut().insert(large);
        }
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
    messages: mail::Receiver<Sent<T>>,
    /// Where large messages go instead.
    large: Option<Large>,
    call: CallState,
    is_ended: bool,
    stream: StreamId,
    shared: Arc<Shared>,
}

impl<T: Split> Stream for Answers<T> {
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_ended {
            return Poll::Ready(None);
        }
        let message = std::task::ready!(self.messages.poll(cx));
        if self.messages.has_room() && self.call.unblock() {
            let stream = self.stream;
            // A closed hub refuses inputs.
            let _ = self
                .shared
                .act(|hub, now| hub.handle_input(now, Input::Writable { stream }));
        }
        let message = match message {
            Some(Sent { message, charge }) => match (&self.large, charge) {
                (Some(large), Some(charge)) => match large.put(message, &charge) {
                    // Whoever asked looks there.
                    Ok(()) => return Poll::Pending,
                    Err(status) => Some(Err(status)),
                },
                _ => Some(Ok(message)),
            },
            None => None,
        };
        Poll::Ready(message.or_else(|| {
            self.is_ended = true;
            let unsaid = || status::Status::new(status::Code::Unavailable, "the hub is gone");
            let status = self.call.take_end().unwrap_or_else(unsaid);
            (status.code != status::Code::Ok).then(|| Err(status.into()))
        }))
    }
}

impl<T> Drop for Answers<T> {
    fn drop(&mut self) {
        self.call.gone();
    }
}

#[cfg(test)]
mod tests;
