//! The service in two parts: control calls take small messages, sessions large ones.

use std::{
    convert::Infallible,
    task::{Context, Poll},
    time::Duration,
};

use tonic::{
    Status,
    body::Body,
    codegen::{BoxFuture, Service as GrpcService, http},
    server::NamedService,
};

use super::service::Service;
use crate::wire::agent_hub_server::AgentHubServer;

/// The gRPC library has one message limit a service. Behind `Register` stands anybody, so it must not have
/// that of session payloads.
#[derive(Clone, Debug)]
pub(super) struct Calls {
    control: AgentHubServer<Service>,
    sessions: AgentHubServer<Service>,
    register_timeout: Duration,
}

impl Calls {
    pub(super) fn new(
        service: Service,
        max_control_bytes: usize,
        max_bytes: usize,
        register_timeout: Duration,
    ) -> Self {
        let control = AgentHubServer::new(service.clone())
            .max_decoding_message_size(max_control_bytes.min(max_bytes))
            .max_encoding_message_size(max_bytes);
        let sessions = AgentHubServer::new(service)
            .max_decoding_message_size(max_bytes)
            .max_encoding_message_size(max_bytes);
        Self {
            control,
            sessions,
            register_timeout,
        }
    }
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
        match request.uri().path().rsplit('/').next() {
            Some("Execute" | "Translate") => self.sessions.call(request),
            // A registration that is never sent to its end would keep what was sent of it.
            Some("Register") => {
                let answer =
                    tokio::time::timeout(self.register_timeout, self.control.call(request));
                Box::pin(async move {
                    let late = || Status::deadline_exceeded("the registration took too long");
                    match answer.await {
                        Ok(answer) => answer.map(too_large_is_exhausted),
                        Err(_) => Ok(late().into_http()),
                    }
                })
            }
            _ => {
                let answer = self.control.call(request);
                Box::pin(async move { answer.await.map(too_large_is_exhausted) })
            }
        }
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
