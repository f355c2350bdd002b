//! One call to the hub: its sender and its reader.

use std::{
    error::Error as _,
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
                let call = async move { hub.listen(request?).await };
                (
                    Sender::Listen(sender),
                    spawn(read(receive, stream, call, Inbound::Listen)),
                )
            }
            Rpc::Execute => {
                let (sender, request) = request(route, SESSION_ID_KEY, &opening);
                let call = async move { hub.execute(request?).await };
                (
                    Sender::Test(sender),
                    spawn(read(receive, stream, call, Inbound::Test)),
                )
            }
            Rpc::Translate => {
                let (sender, request) = request(route, SESSION_ID_KEY, &opening);
                let call = async move { hub.translate(request?).await };
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
            let mut request = route.request(Body(body));
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
async fn read<T>(
    receive: impl Fn(Input),
    stream: StreamId,
    call: impl Future<Output = Result<Response<Streaming<T>>, Status>>,
    inbound: fn(T) -> Inbound,
) {
    let status = match call.await {
        Err(status) => status,
        Ok(response) => {
            if let Some(trace) = carried(response.metadata()) {
                receive(Input::Trace { stream, trace });
            }
            let mut messages = response.into_inner();
            loop {
                match messages.message().await {
                    Ok(Some(message)) => {
                        let input = Input::Message {
                            stream,
                            message: inbound(message),
                        };
                        receive(input);
                    }
                    Ok(None) => break Status::ok(""),
                    Err(status) => break status,
                }
            }
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

/// The messages of a call, as the gRPC library wants them.
#[derive(Debug)]
struct Body<T>(mail::Receiver<Waiting<T>>);

impl<T> Stream for Body<T> {
    type Item = T;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        self.0
            .poll(cx)
            .map(|waiting| waiting.map(|(message, _permit)| message))
    }
}
