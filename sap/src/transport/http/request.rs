//! What a request shows of the one who asks.

use std::sync::Arc;

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, header};
use ubos_common::secret::Secret;
use ubos_common::trace_context::TraceContext;

use super::admission::text;
use crate::processor::Peer;
use crate::transport::beside::{self, signed};

/// Who asks: what the connection shows, and the token of the request.
pub(super) fn peer_of(head: &Parts) -> Peer {
    let mut peer = asking(head, &Peer::default());
    let name = HeaderName::from_static(beside::SIGNATURE);
    peer.trace = trace_of(&head.headers);
    signed(peer, text(&head.headers, &name))
}

/// Who asks, whatever the request carries: what the connection shows, or who it is known to be where that is not told, and
/// the token of the request.
pub(crate) fn asking(head: &Parts, known: &Peer) -> Peer {
    let connection = head.extensions.get::<Peer>();
    let mut peer = connection.unwrap_or(known).clone();
    peer.bearer = bearer_of(&head.headers).or(peer.bearer);
    peer
}

fn bearer_of(headers: &HeaderMap) -> Option<Arc<Secret<String>>> {
    let value = text(headers, &header::AUTHORIZATION)?;
    let (scheme, token) = value.split_once(' ')?;
    let is_bearer = scheme.eq_ignore_ascii_case("bearer");
    is_bearer.then(|| Arc::new(Secret::new(token.trim().to_owned())))
}

fn trace_of(headers: &HeaderMap) -> Option<TraceContext> {
    TraceContext::carried(|name| {
        let values = headers.get_all(name).iter();
        values.filter_map(|value| value.to_str().ok())
    })
}
