//! The answering side.

use core::future::{Future, ready};
use core::panic::AssertUnwindSafe;
use core::pin::pin;
use core::time::Duration;
use std::io;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::map_request;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use bytes::Bytes;
use futures::future::{BoxFuture, Either, join, select};
use futures::{FutureExt as _, Stream, StreamExt as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;
use ubos_common::driver::Sleep;

use super::CORRELATION;
use super::about;
use super::accept::wants_lines;
use super::admission::{Turned, admit, admit_head};
use super::body::in_time;
use super::closing::{Closing, Running};
use super::config::Config;
use super::connections::{self, Listener};
use super::request::peer_of;
use super::response::{Lost, echo, last, lines, whole};
use crate::ConfigError;
use crate::error::ErrorCode;
use crate::ident::CorrelationId;
use crate::processor::Peer;
use crate::receipt::Nack;
use crate::result::TaskResult;
use crate::task::Task;
use crate::trace;
use crate::transport::{Caller, Message, Service};

struct Server {
    service: Service,
    config: Config,
    closing: Closing,
}

/// The routes of a service, for an application that has others too. Tasks run on tokio. An application that knows
/// who is at the other end of a connection puts a [`Peer`] into the extensions of its requests.
///
/// These routes do not know the address that they are served on. Without [`Config::with_hosts`] they answer for every host:
/// a page of somebody else whose name leads here can then send tasks from a browser. The connections, and how long a client
/// may take to read, are the application's to bound.
///
/// # Errors
///
/// A setting is out of its range.
pub fn router(service: Service, config: Config) -> Result<Router, ConfigError> {
    config.check()?;
    Ok(router_of(Server {
        service,
        config,
        closing: Closing::default(),
    }))
}

fn router_of(server: Server) -> Router {
    let about = about::router(
        server.service.clone(),
        server.config.clone(),
        server.closing.clone(),
    );
    Router::new()
        .route(&server.config.path.clone(), post(answer))
        .with_state(Arc::new(server))
        .merge(about)
}

/// Serves until `shutdown` is ready, then lets tasks end.
///
/// No connection is taken any more then; tasks that came this way and still run have the grace of the settings, after
/// which they end CANCELLED and no further task is taken. Those that came to the processor another way go on. It returns
/// when the last one has ended and the connections are closed;
/// those that are still open after as long again are left, so that a client that stalls keeps nobody waiting. Cancelled tasks
/// have as long for their ends, and at least 10 s; one whose end is not written down by then is dropped, as by a crash, and that of
/// a tool of MCP is left.
///
/// # Errors
///
/// A setting is out of its range.
pub async fn serve(
    listener: impl Into<Listener>,
    service: Service,
    config: Config,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    serve_with(listener, service, config, Router::new(), shutdown).await
}

/// As [`serve`], with routes of the application beside those of the service, such as the
/// tools of MCP: on the same connections, with their bounds.
///
/// A request for them that is for another host, or that comes from a page of another origin than the settings allow, is
/// answered 403. Tasks that tools of MCP begin there are tasks of this server. A body fails where it has not come whole within `body_timeout`, and has no trailers. An application's route
/// has its own rules for the length of bodies.
///
/// # Errors
///
/// A setting is out of its range.
pub async fn serve_with(
    listener: impl Into<Listener>,
    service: Service,
    config: Config,
    beside: Router,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    config
        .check()
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let listener = listener.into();
    let config = config.on(listener.address(), listener.is_tls());
    let (grace, closing) = (config.shutdown_grace, Closing::default());
    let settings = config.clone();
    let server = Server {
        service,
        config,
        closing: closing.clone(),
    };
    let (rules, ending) = (server.config.clone(), closing.clone());
    let judged = map_request(move |request| ready(admitted(request, &rules, &ending)));
    let clock = Arc::clone(server.service.clock());
    let routes = router_of(server).merge(beside.layer(judged));
    let (begin, begun) = tokio::sync::oneshot::channel();
    let serving = async {
        let until = async move {
            shutdown.await;
            let _ = begin.send(());
        };
        connections::take(listener, routes, &settings, until).await;
        // Tasks whose client is gone, or whose results go elsewhere.
        closing.idle().await;
    };
    let impatience = async {
        if begun.await.is_err() {
            return core::future::pending().await;
        }
        let passed = |span| clock.sleep_until(clock.now().mono.saturating_add(span));
        passed(grace).await;
        closing.close();
        let ended = join(closing.idle(), passed(grace));
        // A transcript that hangs holds up the end of a task, and with it what cancels the task.
        let late = passed(grace.max(MIN_ENDING));
        select(pin!(ended), late).await;
        closing.end();
    };
    tokio::select! {
        () = serving => {}
        () = impatience => {}
    }
    Ok(())
}

/// A request for a route of the application, as it may be served.
fn admitted(
    request: Request,
    config: &Config,
    closing: &Closing,
) -> Result<Request, (StatusCode, &'static str)> {
    let (mut head, body) = request.into_parts();
    admit_head(&head, config).map_err(|turned| (turned.status, turned.why))?;
    head.extensions.insert(closing.clone());
    let request = Request::from_parts(head, body);
    Ok(in_time(request, config.body_timeout))
}

async fn answer(State(server): State<Arc<Server>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let bytes = match server.read(&head, body).await {
        Ok(bytes) => bytes,
        Err(turned) => {
            let mut nack = Nack::malformed(turned.why);
            nack.code = turned.code;
            let mut response = server.turn_away(nack, b"", turned.status).await;
            echo(&mut response, None, &head.headers);
            return response;
        }
    };
    let running = server.closing.enter();
    if running.is_late() {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let read = server.service.read(&bytes).await;
    let correlation = match &read {
        Ok(task) => Some(task.correlation_id),
        Err(nack) => nack.correlation_id,
    };
    // impl: SAP-10-2
    let mut claimed = head.headers.get_all(CORRELATION).iter();
    if correlation.is_some() && claimed.any(|header| read_id(header) != correlation) {
        let mut nack = Nack::malformed("the correlation id of the header is not the task's");
        nack.message_id = match &read {
            Ok(task) => Some(task.task_id),
            Err(nack) => nack.message_id,
        };
        nack.correlation_id = correlation;
        let mut response = server
            .turn_away(nack, &bytes, StatusCode::BAD_REQUEST)
            .await;
        echo(&mut response, correlation.as_ref(), &head.headers);
        return response;
    }
    let peer = peer_of(&head);
    let messages = server.start(read, bytes, correlation.as_ref(), (peer, running));
    let mut response = match wants_lines(&head.headers) {
        true => lines(stream(messages)).await,
        false => last(&server.service, stream(messages)).await,
    };
    echo(&mut response, correlation.as_ref(), &head.headers);
    response
}

impl Server {
    /// The body, where it is wanted and comes in time.
    async fn read(&self, head: &Parts, body: Body) -> Result<Bytes, Turned> {
        admit(head, &self.config)?;
        let lost = |status, why| Turned {
            status,
            code: ErrorCode::InvalidTask,
            why,
        };
        let reading = to_bytes(body, self.config.max_body_bytes);
        let read = timeout(self.config.body_timeout, reading).await;
        let late = |_| lost(StatusCode::REQUEST_TIMEOUT, "the body did not come in time");
        read.map_err(late)?.map_err(|_| {
            let why = "the body is too long, or did not arrive whole";
            lost(StatusCode::PAYLOAD_TOO_LARGE, why)
        })
    }

    /// Answers in a task of its own, which the client's going does not end.
    #[expect(clippy::disallowed_methods, reason = "a transport runs on its runtime")]
    fn start(
        &self,
        read: Result<Arc<Task>, Box<Nack>>,
        bytes: Bytes,
        correlation: Option<&CorrelationId>,
        (peer, running): (Peer, Running),
    ) -> Messages {
        let (sender, receiver) = mpsc::channel(WAITING);
        // Holding it open would keep one whose results go elsewhere waiting.
        let lost = sender.downgrade();
        let mut caller = Waiting {
            sender: Some(sender),
            room: Arc::new(Semaphore::new(WAITING_BYTES as usize)),
            clock: Arc::clone(self.service.clock()),
            peer,
            cancelled: Some(running.cancelled()),
        };
        let service = self.service.clone();
        let dropped = running.dropped();
        let span = trace::carry("http", correlation);
        tokio::spawn(async move {
            let served = service.serve_read(read, &bytes, &mut caller);
            let served = trace::within(span, served);
            // What panics beside the processor ends the task as well; what was said last is not its answer.
            let served = pin!(AssertUnwindSafe(served).catch_unwind());
            let served = select(served, dropped).await;
            let is_served = matches!(served, Either::Left((Ok(Ok(_)), _)));
            if !is_served && let Some(lost) = lost.upgrade() {
                let _ = lost.try_send((Err(Lost), None));
            }
            drop(running);
        });
        receiver
    }

    async fn turn_away(&self, nack: Nack, bytes: &[u8], status: StatusCode) -> Response {
        whole(status, &self.service.turn_away(nack, bytes).await)
    }
}

/// What is said about one task, and its room among what waits.
type Said = (Result<Message, Lost>, Option<OwnedSemaphorePermit>);

/// What is said about one task, as it comes.
type Messages = mpsc::Receiver<Said>;

fn stream(mut messages: Messages) -> impl Stream<Item = Result<Message, Lost>> + Send + Unpin {
    let said = futures::stream::poll_fn(move |cx| messages.poll_recv(cx));
    said.map(|(message, _)| message)
}

/// A client that waits for its answer.
struct Waiting {
    sender: Option<mpsc::Sender<Said>>,
    /// Bytes of what may wait.
    room: Arc<Semaphore>,
    clock: Arc<dyn Sleep + Send + Sync>,
    peer: Peer,
    /// The server ends.
    cancelled: Option<BoxFuture<'static, ()>>,
}

impl Caller for Waiting {
    fn peer(&self) -> Peer {
        self.peer.clone()
    }

    fn cancelled(&mut self) -> Option<BoxFuture<'static, ()>> {
        self.cancelled.take()
    }

    fn tell(&mut self, message: Message) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let Some(sender) = &self.sender else { return };
            let bytes = u32::try_from(message.bytes()).unwrap_or(u32::MAX);
            let room = Arc::clone(&self.room).acquire_many_owned(bytes.min(WAITING_BYTES));
            let sent = {
                let mut sending = pin!(async { sender.send((Ok(message), room.await.ok())).await });
                match (&mut sending).now_or_never() {
                    Some(sent) => sent.is_ok(),
                    None => {
                        let late = self.clock.now().mono.saturating_add(WRITE_TIMEOUT);
                        let sent = select(sending, self.clock.sleep_until(late)).await;
                        matches!(sent, Either::Left((Ok(()), _)))
                    }
                }
            };
            if !sent {
                self.sender = None;
            }
        })
    }

    fn elsewhere(&mut self, _: &TaskResult) {
        self.sender = None;
    }
}

fn read_id(header: &HeaderValue) -> Option<CorrelationId> {
    header.to_str().ok()?.trim().parse().ok()
}

/// How long cancelled tasks have for their ends, where the grace is shorter.
const MIN_ENDING: Duration = Duration::from_secs(10);
/// How long one line waits for a client that is slow to read.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Messages that wait for a client; with as many, its task waits.
const WAITING: usize = 16;
/// Their bytes. One that is longer waits alone.
const WAITING_BYTES: u32 = 1 << 20;

#[cfg(test)]
mod tests {
    use ubos_common::json::RawBuf;

    use super::*;
    use crate::processor::fixture::Still;
    use crate::samples;
    use crate::status::Status;

    // spec: SAP-10-2
    #[test]
    fn what_waits_for_a_client_is_bounded_in_bytes_and_one_message_waits_alone() {
        let (sender, mut receiver) = mpsc::channel(WAITING);
        let mut caller = Waiting {
            sender: Some(sender),
            room: Arc::new(Semaphore::new(WAITING_BYTES as usize)),
            clock: Arc::new(Still),
            peer: Peer::default(),
            cancelled: None,
        };
        let part = |bytes: usize| {
            let mut result = samples::result(&samples::task(), Status::Partial);
            let text = format!("\"{}\"", "x".repeat(bytes));
            result.output = Some(RawBuf::parse(&text).unwrap());
            Message::Result(Box::new(result))
        };
        let more_than_half = WAITING_BYTES as usize / 2;
        assert!(caller.tell(part(more_than_half)).now_or_never().is_some());
        let mut second = caller.tell(part(more_than_half));
        assert!((&mut second).now_or_never().is_none());
        drop(receiver.try_recv().unwrap());
        assert!(second.now_or_never().is_some());
        drop(receiver.try_recv().unwrap());
        let long = caller.tell(part(2 * WAITING_BYTES as usize));
        assert!(long.now_or_never().is_some());
        assert!(caller.tell(part(1)).now_or_never().is_none());
    }
}
