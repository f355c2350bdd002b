//! A port that agents take for a hub's, as the conformance kit wants it.

use std::{
    cell::RefCell,
    collections::HashMap,
    fmt, io,
    net::SocketAddr,
    pin::Pin,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    net::TcpListener,
    runtime::{Builder, Runtime},
    sync::{mpsc, oneshot},
};
use tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming, async_trait, transport::Server};
use ubos_common::{os::Clock, time::Mono};

use super::incoming;
use crate::{
    conformance::agent::{AgentPeer, Did},
    id::StreamId,
    role::{
        CLIENT_ID_KEY, Rpc, SESSION_ID_KEY,
        hub::{Inbound, Outbound},
    },
    status,
    transport::spawn,
    wire::{
        AgentRegistration, AgentRegistrationResponse, ListenRequest, ListenResponse, TestInit,
        TestResponse, TranslationInit, TranslationResponse,
        agent_hub_server::{AgentHub, AgentHubServer},
    },
};

/// What agents did and nobody has looked at yet; beyond it they are not read.
const MAX_DID: usize = 1024;

/// Messages that wait on a call.
const MAX_WAITING: usize = 64;

/// Bytes of a message, either way.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// A stage: one port, and one agent after the other on it. Not for use within an async runtime: it blocks.
pub struct AgentStage {
    addr: SocketAddr,
    inner: Rc<RefCell<Inner>>,
}

struct Inner {
    runtime: Runtime,
    clock: Clock,
    news: mpsc::Receiver<News>,
    /// What came before anybody looked.
    early: Option<News>,
    /// The `Register` that waits.
    registering: Option<oneshot::Sender<Result<String, status::Status>>>,
    calls: HashMap<StreamId, Call>,
}

/// The sending half of a call.
struct Call {
    sender: Sender,
    /// Whether this side ended it.
    is_ended: Arc<AtomicBool>,
}

enum Sender {
    Listen(mpsc::Sender<Result<ListenResponse, Status>>),
    Test(mpsc::Sender<Result<TestInit, Status>>),
    Translation(mpsc::Sender<Result<TranslationInit, Status>>),
}

/// What a call tells the stage.
enum News {
    Registers(
        AgentRegistration,
        oneshot::Sender<Result<String, status::Status>>,
    ),
    Opens(StreamId, Rpc, Option<String>, Call),
    Did(Did),
}

impl AgentStage {
    /// Opens the port (0 for any).
    ///
    /// # Errors
    ///
    /// The port cannot be had, or no runtime.
    pub fn bind(addr: SocketAddr) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (tell, news) = mpsc::channel(MAX_DID);
        let listener = runtime.block_on(TcpListener::bind(addr))?;
        let addr = listener.local_addr()?;
        let service = AgentHubServer::new(Desk {
            tell,
            opened: AtomicU64::new(0),
        })
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
        let serving = Server::builder()
            .add_service(service)
            .serve_with_incoming(incoming(listener));
        runtime.block_on(async { drop(spawn(serving)) });
        let inner = Inner {
            runtime,
            clock: Clock::start(),
            news,
            early: None,
            registering: None,
            calls: HashMap::new(),
        };
        Ok(Self {
            addr,
            inner: Rc::new(RefCell::new(inner)),
        })
    }

    /// What agents on this machine connect to.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Waits for an agent; its `Register` is kept for the next case.
    #[must_use]
    pub fn wait_for_agent(&self, patience: Duration) -> bool {
        let mut inner = self.inner.borrow_mut();
        let Inner { runtime, news, .. } = &mut *inner;
        let came = runtime.block_on(async { tokio::time::timeout(patience, news.recv()).await });
        inner.early = came.ok().flatten();
        inner.early.is_some()
    }

    /// The agent, for the next case: whatever it had open is ended `UNAVAILABLE`, so that it comes again.
    #[must_use]
    pub fn peer(&self) -> Box<dyn AgentPeer> {
        let mut inner = self.inner.borrow_mut();
        inner.registering = None;
        let open: Vec<_> = inner.calls.keys().copied().collect();
        for stream in open {
            let next = status::Status::new(status::Code::Unavailable, "the next case");
            inner.end(stream, next);
        }
        Box::new(OnStage(self.inner.clone()))
    }
}

impl fmt::Debug for AgentStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentStage")
            .field("addr", &self.addr)
            .finish_non_exhaustive()
    }
}

impl Inner {
    fn take(&mut self, news: News) -> Did {
        match news {
            News::Registers(registration, answer) => {
                self.registering = Some(answer);
                Did::Registers(registration)
            }
            News::Opens(stream, rpc, key, call) => {
                self.calls.insert(stream, call);
                Did::Opens { stream, rpc, key }
            }
            News::Did(did) => did,
        }
    }

    fn end(&mut self, stream: StreamId, status: status::Status) {
        let Some(call) = self.calls.remove(&stream) else {
            return;
        };
        call.is_ended.store(true, Ordering::SeqCst);
        if status.code == status::Code::Ok {
            return;
        }
        // A full or ended call is over either way.
        let _ = match call.sender {
            Sender::Listen(to) => to.try_send(Err(status.into())).is_ok(),
            Sender::Test(to) => to.try_send(Err(status.into())).is_ok(),
            Sender::Translation(to) => to.try_send(Err(status.into())).is_ok(),
        };
    }
}

struct OnStage(Rc<RefCell<Inner>>);

impl AgentPeer for OnStage {
    fn next(&mut self, patience: Duration) -> Option<Did> {
        let mut inner = self.0.borrow_mut();
        if let Some(news) = inner.early.take() {
            return Some(inner.take(news));
        }
        let Inner { runtime, news, .. } = &mut *inner;
        let news = runtime
            .block_on(async { tokio::time::timeout(patience, news.recv()).await })
            .ok()??;
        Some(inner.take(news))
    }

    fn answer(&mut self, answer: Result<String, status::Status>) {
        if let Some(registering) = self.0.borrow_mut().registering.take() {
            // The agent may have given up.
            let _ = registering.send(answer);
        }
    }

    fn send(&mut self, stream: StreamId, message: Outbound) {
        let inner = self.0.borrow();
        let sender = inner.calls.get(&stream).map(|call| &call.sender);
        // A call that has ended takes no more, which its end says already.
        let _ = match (sender, message) {
            (Some(Sender::Listen(to)), Outbound::Listen(message)) => {
                to.try_send(Ok(message)).is_ok()
            }
            (Some(Sender::Test(to)), Outbound::Test(message)) => to.try_send(Ok(message)).is_ok(),
            (Some(Sender::Translation(to)), Outbound::Translation(message)) => {
                to.try_send(Ok(message)).is_ok()
            }
            _ => false,
        };
    }

    fn end(&mut self, stream: StreamId, status: status::Status) {
        self.0.borrow_mut().end(stream, status);
    }

    fn elapsed(&self) -> Duration {
        let now = self.0.borrow().clock.now();
        now.mono.saturating_since(Mono::ZERO)
    }
}

/// The service: tells what happens, and leaves the answers to the stage.
struct Desk {
    tell: mpsc::Sender<News>,
    opened: AtomicU64,
}

impl Desk {
    /// Opens a call. Its headers come no earlier than its first message, as deployed hubs have it.
    async fn open<In, Out>(
        &self,
        rpc: Rpc,
        request: Request<Streaming<In>>,
        sender: fn(mpsc::Sender<Result<Out, Status>>) -> Sender,
        inbound: fn(In) -> Inbound,
    ) -> Result<Response<Answers<Out>>, Status>
    where
        In: Send + 'static,
    {
        let stream = StreamId(self.opened.fetch_add(1, Ordering::Relaxed) + 1);
        let name = match rpc {
            Rpc::Listen => CLIENT_ID_KEY,
            Rpc::Execute | Rpc::Translate => SESSION_ID_KEY,
        };
        let key = request.metadata().get(name);
        let key = key.and_then(|value| value.to_str().ok()).map(str::to_owned);
        let (messages, mut answers) = mpsc::channel(MAX_WAITING);
        let is_ended = Arc::new(AtomicBool::new(false));
        let call = Call {
            sender: sender(messages),
            is_ended: is_ended.clone(),
        };
        let gone = Gone {
            stream,
            tell: self.tell.clone(),
            is_ended,
        };
        let opens = News::Opens(stream, rpc, key, call);
        let over = |_| Status::unavailable("the stage is gone");
        self.tell.send(opens).await.map_err(over)?;
        spawn(read(
            stream,
            self.tell.clone(),
            request.into_inner(),
            inbound,
        ));
        match answers.recv().await {
            Some(Err(status)) => Err(status),
            first => Ok(Response::new(Answers {
                first: first.and_then(Result::ok),
                answers,
                _gone: gone,
            })),
        }
    }
}

#[async_trait]
impl AgentHub for Desk {
    type ListenStream = Answers<ListenResponse>;
    type ExecuteStream = Answers<TestInit>;
    type TranslateStream = Answers<TranslationInit>;

    async fn register(
        &self,
        request: Request<AgentRegistration>,
    ) -> Result<Response<AgentRegistrationResponse>, Status> {
        let (answer, answered) = oneshot::channel();
        let news = News::Registers(request.into_inner(), answer);
        let later = || Status::unavailable("the next case");
        self.tell.send(news).await.map_err(|_| later())?;
        let client_id = answered.await.map_err(|_| later())??;
        Ok(Response::new(AgentRegistrationResponse { client_id }))
    }

    async fn listen(
        &self,
        request: Request<Streaming<ListenRequest>>,
    ) -> Result<Response<Self::ListenStream>, Status> {
        self.open(Rpc::Listen, request, Sender::Listen, Inbound::Listen)
            .await
    }

    async fn execute(
        &self,
        request: Request<Streaming<TestResponse>>,
    ) -> Result<Response<Self::ExecuteStream>, Status> {
        self.open(Rpc::Execute, request, Sender::Test, Inbound::Test)
            .await
    }

    async fn translate(
        &self,
        request: Request<Streaming<TranslationResponse>>,
    ) -> Result<Response<Self::TranslateStream>, Status> {
        let rpc = Rpc::Translate;
        self.open(rpc, request, Sender::Translation, Inbound::Translation)
            .await
    }
}

async fn read<In>(
    stream: StreamId,
    tell: mpsc::Sender<News>,
    mut messages: Streaming<In>,
    inbound: fn(In) -> Inbound,
) {
    loop {
        let did = match messages.message().await {
            Ok(Some(message)) => Did::Says(stream, inbound(message)),
            Ok(None) => Did::HalfCloses(stream),
            // Whoever holds the answers learns of it, too.
            Err(_) => return,
        };
        let is_last = matches!(did, Did::HalfCloses(_));
        if tell.send(News::Did(did)).await.is_err() || is_last {
            return;
        }
    }
}

/// Tells when a call is dropped that this side did not end.
struct Gone {
    stream: StreamId,
    tell: mpsc::Sender<News>,
    is_ended: Arc<AtomicBool>,
}

impl Drop for Gone {
    fn drop(&mut self) {
        if !self.is_ended.load(Ordering::SeqCst) {
            // A stage so far behind has more to look at than this.
            let _ = self.tell.try_send(News::Did(Did::Resets(self.stream)));
        }
    }
}

/// The messages of a call, then its status.
struct Answers<T> {
    first: Option<T>,
    answers: mpsc::Receiver<Result<T, Status>>,
    _gone: Gone,
}

impl<T: Unpin> Stream for Answers<T> {
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(Ok(first))),
            None => self.answers.poll_recv(cx),
        }
    }
}
