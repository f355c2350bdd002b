//! Bodies that must come in time.

use core::time::Duration;
use std::io;

use axum::body::Body;
use axum::extract::Request;
use futures::StreamExt as _;
use tokio::time::sleep;

/// The same request, whose body fails where it has not come whole in time. Whoever reads it would otherwise wait for as long
/// as its client likes, and keep a connection for that.
pub(super) fn in_time(request: Request, timeout: Duration) -> Request {
    let due = Box::pin(sleep(timeout));
    request.map(|body| {
        let parts = Some((body.into_data_stream(), due));
        Body::from_stream(futures::stream::unfold(parts, async |parts| {
            let (mut rest, mut due) = parts?;
            tokio::select! {
                biased;
                () = &mut due => Some((Err(io::ErrorKind::TimedOut.into()), None)),
                next = rest.next() => {
                    let next = next?.map_err(io::Error::other);
                    Some((next, Some((rest, due))))
                }
            }
        }))
    })
}
