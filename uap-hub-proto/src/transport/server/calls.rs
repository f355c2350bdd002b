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
    unfinished::{Broken, Counted, Pool},
};
use crate::wire::agent_hub_server::AgentHubServer;

/// The gRPC library has one message limit a service. Behind `Register` stands anybody, so it must not have
/// that of session payloads.
#[derive(Clone, Debug)]
pub(super) struct Calls {
    control: AgentHubServer<Service>,
    sessions: AgentHubServer<Service>,
    control_bytes: Arc<Pool>,
    session_bytes: Arc<Pool>,
    register_timeout: Duration,
    authorize: Option<Authorize>,
}

impl Calls {
    pub(super) fn new(
        service: Service,
        max_control_bytes: usize,
        max_bytes: usize,
        register_timeout: Duration,
        authorize: Option<Authorize>,
    ) -> Self {
        let max_control_bytes = max_control_bytes.min(max_bytes);
        let control = AgentHubServer::new(service.clone())
            .max_decoding_message_size(max_control_bytes)
            .max_encoding_message_size(max_bytes);
        let sessions = AgentHubServer::new(service)
            .max_decoding_message_size(max_bytes)
            .max_encoding_message_size(max_bytes);
        Self {
            control,
            sessions,
            control_bytes: Pool::new(max_control_bytes, 4, 64),
            session_bytes: Pool::new(max_bytes, 4, 16),
            register_timeout,
            authorize,
        }
    }

    async fn answer(mut self, mut request: http::Request<Body>) -> http::Response<Body> {
        let identity = match &self.authorize {
            None => authorize::of_certificate(request.extensions()),
            Some(hook) => {
                let caller = Caller::of(&request);
                match hook.ask(caller).await {
                    Ok(identity) => Some(identity),
                    Err(denied) => return denied.into_http(),
                }
            }
        };
        if let Some(identity) = identity {
            request.extensions_mut().insert(identity);
        }
        let is_session = matches!(call_of(&request), Some("Execute" | "Translate"));
        let request = self.counted(request, is_session);
        let answer = match is_session {
            true => self.sessions.call(request).await,
            false => self.control.call(request).await.map(too_large_is_exhausted),
        };
        answer.unwrap_or_else(|never| match never {})
    }

    /// The call with its unfinished messages counted. Those of a control stream have a time as well.
    fn counted(&self, mut request: http::Request<Body>, is_session: bool) -> http::Request<Body> {
        let broken = Broken::default();
        request.extensions_mut().insert(broken.clone());
        let peer = Peer::of(request.extensions());
        let [control, session] = peer.map(|peer| peer.held.clone()).unwrap_or_default();
        let (pool, held, time) = match is_session {
            true => (&self.session_bytes, session, None),
            false => (&self.control_bytes, control, Some(self.register_timeout)),
        };
        request.map(|body| Body::new(Counted::new(body, broken, pool.clone(), held, time)))
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
        // An answer begins when the hub has taken the call: a registration that is never sent to its end would keep what
        // was sent of it, and a hook that never answers would keep the call.
        let answer = tokio::time::timeout(self.register_timeout, self.clone().answer(request));
        Box::pin(async move {
            let late = || Status::deadline_exceeded("the hub could not take the call in time");
            Ok(answer.await.unwrap_or_else(|_| late().into_http()))
        })
    }
}

/// The library calls a message beyond the limit out of range.
fn too_large_is_exhausted(mut response: http::Response<Body>) -> http::Response<Body> {
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
