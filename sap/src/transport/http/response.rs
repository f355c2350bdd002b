//! What is said, as responses.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures::{Stream, StreamExt as _};

use super::{CORRELATION, JSON, LINES};
use crate::error::ErrorCode;
use crate::ident::CorrelationId;
use crate::transport::beside;
use crate::transport::{Message, Service};

/// What is said next about one task.
type Said = Result<Message, Lost>;

/// The next message could not be written down, so it is not said.
#[derive(Debug, thiserror::Error)]
#[error("the next message could not be written down")]
pub(super) struct Lost;

/// Puts the task's correlation id on a response; where it is not known, what the request had.
pub(super) fn echo(response: &mut Response, known: Option<&CorrelationId>, request: &HeaderMap) {
    let known = known.and_then(|id| HeaderValue::from_str(&id.to_string()).ok());
    if let Some(echoed) = known.or_else(|| request.get(CORRELATION).cloned()) {
        response
            .headers_mut()
            .insert(HeaderName::from_static(CORRELATION), echoed);
    }
}

/// The last message as a whole.
pub(super) async fn last(
    service: &Service,
    mut messages: impl Stream<Item = Said> + Unpin,
) -> Response {
    let mut last = None;
    while let Some(message) = messages.next().await {
        match message {
            Ok(message) => last = Some(message),
            Err(Lost) => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }
    }
    match last {
        Some(message) => signed(service, &message).await,
        // Results go elsewhere, and no Ack is wanted.
        None => StatusCode::ACCEPTED.into_response(),
    }
}

/// All messages as they come; one that turns the task away keeps its status. A stream that cannot go on breaks.
pub(super) async fn lines(
    mut messages: impl Stream<Item = Said> + Send + Unpin + 'static,
) -> Response {
    let first = match messages.next().await {
        None => return StatusCode::ACCEPTED.into_response(),
        Some(Err(Lost)) => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        Some(Ok(nack @ Message::Nack(_))) => return whole(status_of(&nack), &nack),
        Some(Ok(first)) => first,
    };
    let lines = futures::stream::iter([Ok(first)])
        .chain(messages)
        .map(|message| {
            message.map(|message| {
                let mut line = message.encode();
                line.push(b'\n');
                Bytes::from(line)
            })
        });
    let body = Body::from_stream(lines);
    (StatusCode::OK, [(header::CONTENT_TYPE, LINES)], body).into_response()
}

/// One message as a whole, with its signature where the service signs.
pub(super) async fn signed(service: &Service, message: &Message) -> Response {
    let signature = service.signature(message).await;
    let mut response = whole(status_of(message), message);
    if let Some(value) = signature.and_then(|text| HeaderValue::try_from(text).ok()) {
        let name = HeaderName::from_static(beside::SIGNATURE);
        response.headers_mut().insert(name, value);
    }
    response
}

pub(super) fn whole(status: StatusCode, message: &Message) -> Response {
    (status, [(header::CONTENT_TYPE, JSON)], message.encode()).into_response()
}

fn status_of(message: &Message) -> StatusCode {
    match message {
        Message::Ack(_) => StatusCode::ACCEPTED,
        Message::Result(_) => StatusCode::OK,
        Message::Nack(nack) => match &nack.code {
            ErrorCode::Unauthorized => StatusCode::UNAUTHORIZED,
            ErrorCode::Forbidden => StatusCode::FORBIDDEN,
            ErrorCode::NotFound => StatusCode::NOT_FOUND,
            ErrorCode::Unprocessable => StatusCode::UNPROCESSABLE_ENTITY,
            ErrorCode::RateLimit => StatusCode::TOO_MANY_REQUESTS,
            _ => StatusCode::BAD_REQUEST,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::receipt::Nack;

    // spec: SAP-10-2
    #[test]
    fn a_nack_has_the_status_of_its_code() {
        for (code, status) in [
            (ErrorCode::InvalidTask, 400),
            (ErrorCode::Unauthorized, 401),
            (ErrorCode::Forbidden, 403),
            (ErrorCode::NotFound, 404),
            (ErrorCode::Unprocessable, 422),
            (ErrorCode::RateLimit, 429),
            (ErrorCode::Other("OUR_OWN".into()), 400),
        ] {
            let mut nack = Nack::malformed("a reason");
            nack.code = code;
            assert_eq!(status_of(&Message::Nack(nack)).as_u16(), status);
        }
    }
}
