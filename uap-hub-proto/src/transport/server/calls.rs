//! The service in two parts: control calls take small messages, sessions large ones.

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tonic::{
    Status,
    body::Body,
    codegen::{BoxFuture, Service as GrpcService, http},
    server::NamedService,
};

use super::{
    authorize::{self, Authorize, Caller},
    connection::Peer,
    service::Service,
    unfinished::{Broken, Counted, Held, Pool},
};
use crate::wire::agent_hub_server::AgentHubServer;

/// The gRPC library has one message limit a service. Behind `Register` stands anybody, so it must not have
/// that of session payloads.
#[derive(Clone, Debug)]
pub(super) struct Calls {
    small: AgentHubServer<Service>,
    sessions: AgentHubServer<Service>,
    control: Control,
    session_bytes: Arc<Pool>,
}

/// What holds for calls that anybody can make: their unfinished messages are counted and have a time, and a hook may be asked.
#[derive(Clone, Debug)]
pub(super) struct Control {
    pub(super) bytes: Arc<Pool>,
    pub(super) time: Duration,
    pub(super) authorize: Option<Authorize>,
}

impl Control {
    /// The same without a hook.
    pub(super) fn open(&self) -> Self {
        Self {
            authorize: None,
            ..self.clone()
        }
    }

    /// Sees to it that the caller may call, and notes who it is.
    pub(super) async fn authorize(&self, request: &mut http::Request<Body>) -> Result<(), Status> {
        let identity = match &self.authorize {
            None => authorize::of_certificate(request.extensions()),
            Some(hook) => Some(hook.ask(Caller::of(request)).await?),
        };
        if let Some(identity) = identity {
            request.extensions_mut().insert(identity);
        }
        Ok(())
    }

    /// The call with its unfinished messages counted.
    pub(super) fn counted(&self, request: http::Request<Body>) -> http::Request<Body> {
        let held = |peer: &Peer| peer.held[0].clone();
        counted(request, &self.bytes, held, Some(self.time))
    }

    /// An answer begins when the hub has taken the call: a registration that is never sent to its end would keep what was
    /// sent of it, and a hook that never answers would keep the call.
    pub(super) async fn in_time(
        &self,
        answer: impl Future<Output = http::Response<Body>>,
    ) -> http::Response<Body> {
        let late = || Status::deadline_exceeded("the hub could not take the call in time");
        let answer = tokio::time::timeout(self.time, answer).await;
        answer.unwrap_or_else(|_| late().into_http())
    }
}

fn counted(
    mut request: http::Request<Body>,
    pool: &Arc<Pool>,
    held: impl FnOnce(&Peer) -> Held,
    time: Option<Duration>,
) -> http::Request<Body> {
    let broken = Broken::default();
    request.extensions_mut().insert(broken.clone());
    let peer = Peer::of(request.extensions());
    peer.inspect(|peer| peer.has_called());
    let held = peer.map(held).unwrap_or_default();
    request.map(|body| Body::new(Counted::new(body, broken, pool.clone(), held, time)))
}

impl Calls {
    pub(super) fn new(
        service: Service,
        (max_control_bytes, max_bytes): (usize, usize),
        control: Control,
        session_bytes: Arc<Pool>,
    ) -> Self {
        let small = AgentHubServer::new(service.clone())
            .max_decoding_message_size(max_control_bytes)
            .max_encoding_message_size(max_bytes);
        let sessions = AgentHubServer::new(service)
            .max_decoding_message_size(max_bytes)
            .max_encoding_message_size(max_bytes);
        Self {
            small,
            sessions,
            control,
            session_bytes,
        }
    }

    async fn answer(mut self, mut request: http::Request<Body>) -> http::Response<Body> {
        if let Err(denied) = self.control.authorize(&mut request).await {
            return denied.into_http();
        }
        let answer = if matches!(call_of(&request), Some("Execute" | "Translate")) {
            let held = |peer: &Peer| peer.held[1].clone();
            let request = counted(request, &self.session_bytes, held, None);
            self.sessions.call(request).await
        } else {
            let request = self.control.counted(request);
            self.small.call(request).await.map(too_large_is_exhausted)
        };
        answer.unwrap_or_else(|never| match never {})
    }
}

/// The name of the call.
fn call_of(request: &http::Request<Body>) -> Option<&str> {
    request.uri().path().rsplit('/').next()
}

impl GrpcService<http::Request<Body>> for Calls {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    // impl: HUB-4-6
    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let (calls, control) = (self.clone(), self.control.clone());
        Box::pin(async move { Ok(control.in_time(calls.answer(request)).await) })
    }
}

/// The library calls a message beyond the limit out of range.
pub(super) fn too_large_is_exhausted(mut response: http::Response<Body>) -> http::Response<Body> {
    const OUT_OF_RANGE: &str = "11";
    const RESOURCE_EXHAUSTED: http::HeaderValue = http::HeaderValue::from_static("8");
    if let Some(status) = response.headers_mut().get_mut("grpc-status")
        && status == OUT_OF_RANGE
    {
        *status = RESOURCE_EXHAUSTED;
    }
    response
}

impl NamedService for Calls {
    const NAME: &'static str = <AgentHubServer<Service> as NamedService>::NAME;
}

/// The full name of the service.
pub(super) const SERVICE: &str = crate::wire::agent_hub_server::SERVICE_NAME;
