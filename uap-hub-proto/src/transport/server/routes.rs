//! The services of a port, and which of them a call is for.

use std::{
    convert::Infallible,
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use tonic::{
    Status,
    body::Body,
    codegen::{BoxFuture, Service as GrpcService, http},
    server::NamedService,
};

type Answer = BoxFuture<http::Response<Body>, Infallible>;

/// One service of a port.
pub(super) struct Route {
    name: &'static str,
    call: Box<dyn Fn(http::Request<Body>) -> Answer + Send + Sync>,
}

impl Route {
    /// The route to a service, which is always ready.
    pub(super) fn to<S>(service: S) -> Self
    where
        S: GrpcService<http::Request<Body>, Future = Answer>,
        S: NamedService + Clone + Send + Sync + 'static,
    {
        Self {
            name: S::NAME,
            call: Box::new(move |request| service.clone().call(request)),
        }
    }
}

/// All services of a port. The gRPC library's own router is a whole one of HTTP, with four more crates.
#[derive(Clone)]
pub(super) struct Routes(Arc<[Route]>);

impl FromIterator<Route> for Routes {
    fn from_iter<I: IntoIterator<Item = Route>>(routes: I) -> Self {
        Self(routes.into_iter().collect())
    }
}

impl fmt::Debug for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set()
            .entries(self.0.iter().map(|route| route.name))
            .finish()
    }
}

/// The service that a path names; `None` where it is no path of a call.
fn service_of(path: &str) -> Option<&str> {
    let (service, call) = path.strip_prefix('/')?.split_once('/')?;
    (!call.is_empty()).then_some(service)
}

impl GrpcService<http::Request<Body>> for Routes {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let service = service_of(request.uri().path());
        match self.0.iter().find(|route| Some(route.name) == service) {
            Some(route) => (route.call)(request),
            None => Box::pin(std::future::ready(
                Ok(Status::unimplemented("").into_http()),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_a_call_is_a_service_and_a_call() {
        assert_eq!(service_of("/a.B/C"), Some("a.B"));
        assert_eq!(
            service_of("/a.B/C/D"),
            Some("a.B"),
            "the service's to refuse"
        );
        assert_eq!(service_of("//C"), Some(""));
        for none in ["", "*", "/", "//", "a.B/C", "/a.B", "/a.B/"] {
            assert_eq!(service_of(none), None, "{none}");
        }
    }
}
