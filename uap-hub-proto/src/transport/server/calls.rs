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
    budget::{Held, Pool},
    connection::Peer,
    service::Service,
    unfinished::{Broken, Counted, Pace},
    unread::Large,
};
use crate::wire::agent_hub_server::AgentHubServer;

/// The gRPC library has one message limit a service. Behind `Register` stands anybody, so it must not have
/// that of session payloads.
#[derive(Clone, Debug)]
pub(super) struct Calls(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    small: AgentHubServer<Service>,
    sessions: AgentHubServer<Service>,
    control: Control,
    session_bytes: Arc<Pool>,
    session_pace: Pace,
}

/// What holds for calls that anybody can make: their unfinished messages are counted and have a time, and a hook may be asked.
#[derive(Clone, Debug)]
pub(super) struct Control {
    pub(super) bytes: Arc<Pool>,
    pub(super) time: Duration,
    pub(super) authorize: Option<Authorize>,
    /// Whether a call keeps its connection.
    pub(super) keeps: bool,
}

impl Control {
    /// The same without a hook. What anybody can do for ever does not keep a connection.
    pub(super) fn open(&self) -> Self {
        Self {
            authorize: None,
            keeps: false,
            ..self.clone()
        }
    }

    /// Sees to it that the caller may call, and notes who it is.
    pub(super) async fn authorize(&self, request: &mut http::Request<Body>) -> Result<(), Status> {
        match &self.authorize {
            None => authorize::note_certificate(request),
            Some(hook) => {
                let identity = hook.ask(Caller::of(request)).await?;
                request.extensions_mut().insert(identity);
            }
        }
        Ok(())
    }

    /// The call, of a caller who may make it, with its unfinished messages counted.
    pub(super) fn counted(&self, request: http::Request<Body>) -> http::Request<Body> {
        let held = |peer: &Peer| peer.held[0].clone();
        counted(
            request,
            &self.bytes,
            held,
            Pace::whole(self.time),
            self.keeps,
        )
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
    pace: Pace,
    keeps: bool,
) -> http::Request<Body> {
    let broken = Broken::default();
    request.extensions_mut().insert(broken.clone());
    let peer = Peer::of(request.extensions());
    let call = peer.filter(|_| keeps).map(Peer::call);
    let held = peer.map(held).unwrap_or_default();
    let pool = pool.clone();
    request.map(|body| Body::new(Counted::new(body, broken, pool, held, pace).with_call(call)))
}

impl Calls {
    pub(super) fn new(
        service: Service,
        (max_control_bytes, max_bytes): (usize, usize),
        control: Control,
        (session_bytes, session_pace): (Arc<Pool>, Pace),
    ) -> Self {
        let small = AgentHubServer::new(service.clone())
            .max_decoding_message_size(max_control_bytes)
            .max_encoding_message_size(max_bytes);
        let sessions = AgentHubServer::new(service)
            .max_decoding_message_size(max_bytes)
            .max_encoding_message_size(max_bytes);
        Self(Arc::new(Parts {
            small,
            sessions,
            control,
            session_bytes,
            session_pace,
        }))
    }
}

type Answer = BoxFuture<http::Response<Body>, Infallible>;

impl Parts {
    async fn answer(&self, mut request: http::Request<Body>) -> http::Response<Body> {
        if let Err(denied) = self.control.authorize(&mut request).await {
            return denied.into_http();
        }
        let answer = if is_of_session(&request) {
            self.session(request).await
        } else {
            let request = self.control.counted(request);
            let answer = self.small.clone().call(request).await;
            answer.map(too_large_is_exhausted)
        };
        answer.unwrap_or_else(|never| match never {})
    }

    /// A call of a session, of a caller who may make it.
    fn session(&self, request: http::Request<Body>) -> Answer {
        let held = |peer: &Peer| peer.held[1].clone();
        let request = counted(request, &self.session_bytes, held, self.session_pace, true);
        let answer = self.sessions.clone().call(request);
        Box::pin(async { answer.await.map(Large::within) })
    }
}

fn is_of_session(request: &http::Request<Body>) -> bool {
    let call = request.uri().path().rsplit('/').next();
    matches!(call, Some("Execute" | "Translate"))
}

impl GrpcService<http::Request<Body>> for Calls {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    // impl: HUB-4-6
    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        let calls = self.0.clone();
        if calls.control.authorize.is_none() && is_of_session(&request) {
            // Nobody is asked, and the hub takes or refuses it before it reads any of it: there is nothing to wait for.
            authorize::note_certificate(&mut request);
            return calls.session(request);
        }
        Box::pin(async move { Ok(calls.control.in_time(calls.answer(request)).await) })
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
