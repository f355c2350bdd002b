//! The services beside the hub's, health and reflection: small messages, few calls at once, and a time to be sent in.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use tonic::{
    Status,
    body::Body,
    codegen::{BoxFuture, Bytes, Service as GrpcService, http},
    server::NamedService,
};

use super::{
    calls::{Control, too_large_is_exhausted},
    connection::Peer,
};

/// Bytes of a message of these services: names of services and symbols.
pub(super) const MAX_BYTES: usize = 16 << 10;

/// A service beside the hub's.
#[derive(Clone, Debug)]
pub(super) struct Beside<S> {
    service: S,
    control: Control,
}

impl<S> Beside<S> {
    /// A service whose calls have the bounds, and perhaps the authorization, of control calls.
    pub(super) const fn new(service: S, control: Control) -> Self {
        Self { service, control }
    }
}

impl<S> GrpcService<http::Request<Body>> for Beside<S>
where
    S: GrpcService<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    // impl: HUB-4-6
    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        let (mut service, control) = (self.service.clone(), self.control.clone());
        Box::pin(async move {
            let place = match Peer::of(request.extensions()).map(Peer::call_beside) {
                Some(None) => {
                    let few = "the connection has too many calls of health and reflection";
                    return Ok(Status::resource_exhausted(few).into_http());
                }
                place => place.flatten(),
            };
            let answer = async {
                if let Err(denied) = control.authorize(&mut request).await {
                    return denied.into_http();
                }
                let answer = service.call(control.counted(request)).await;
                too_large_is_exhausted(answer.unwrap_or_else(|never| match never {}))
            };
            let answer = control.in_time(answer).await;
            Ok(answer.map(|body| {
                Body::new(Placed {
                    body,
                    _place: place,
                })
            }))
        })
    }
}

impl<S: NamedService> NamedService for Beside<S> {
    const NAME: &'static str = S::NAME;
}

/// An answer that keeps the place of its call until it has ended.
struct Placed {
    body: Body,
    _place: Option<OwnedSemaphorePermit>,
}

impl HttpBody for Placed {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
