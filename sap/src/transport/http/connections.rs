//! The connections of a server: as many as it may have, each read in time.

use core::future::Future;
use core::pin::pin;
use core::time::Duration;
use std::io;
use std::sync::Arc;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::config::Config;

/// Answers on every connection until `shutdown` is ready; then takes no more, and waits for the last answers.
///
/// At the bound the next connection waits in the queue of the system. One without a whole head in time is closed,
/// also between two requests.
pub(super) async fn take(
    listener: TcpListener,
    routes: Router,
    config: &Config,
    shutdown: impl Future<Output = ()>,
) {
    let places = Arc::new(Semaphore::new(config.max_connections));
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(config.head_timeout);
    let graceful = GracefulShutdown::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let next = async {
            // The places are never closed.
            let place = Arc::clone(&places).acquire_owned().await.ok();
            (place, accept(&listener).await)
        };
        let (place, stream) = tokio::select! {
            () = &mut shutdown => break,
            next = next => next,
        };
        let service = TowerToHyperService::new(routes.clone());
        let connection = server.serve_connection(TokioIo::new(stream), service);
        let connection = graceful.watch(connection);
        #[expect(clippy::disallowed_methods, reason = "a transport runs on its runtime")]
        tokio::spawn(async move {
            // A connection that fails is the client's affair.
            let _ = connection.await;
            drop(place);
        });
    }
    drop(listener);
    graceful.shutdown().await;
}

/// The next connection. One that failed before it was taken is passed over; where the system has no room, this waits.
async fn accept(listener: &TcpListener) -> tokio::net::TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) if is_of_one(&error) => {}
            Err(_) => tokio::time::sleep(NO_ROOM).await,
        }
    }
}

/// Whether an error is that of the connection, and not of the listener.
fn is_of_one(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}

/// Between two attempts where the system has no room for a connection.
const NO_ROOM: Duration = Duration::from_millis(100);
