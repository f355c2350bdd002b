//! A hub on a port that does what the kit tells it to.

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
use tonic::{
    Request, Response, Status, Streaming, async_trait,
    transport::{Server, server::TcpIncoming},
};
use ubos_common::{os::Clock, time::Mono};

use uap_hub_proto::{
    id::StreamId,
    role::{
        CLIENT_ID_KEY, Rpc, SESSION_ID_KEY,
        hub::{Inbound, Outbound},
    },
    status,
    wire::{
        AgentRegistration, AgentRegistrationResponse, ListenRequest, ListenResponse, TestInit,
        TestResponse, TranslationInit, TranslationResponse,
        agent_hub_server::{AgentHub, AgentHubServer},
    },
};

use super::super::spawn;
use super::{AgentAction, AgentPeer};

/// Actions that wait to be looked at; beyond it agents are not read.
const MAX_ACTIONS: usize = 1024;

/// Messages that wait on a call.
const MAX_WAITING: usize = 64;

/// Bytes of a message, either way.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// A hub on a port, for one agent after the other. It blocks: do not use it inside an async runtime.
pub struct TestHub {
    addr: SocketAddr,
    inner: Rc<RefCell<Inner>>,
}

struct Inner {
    runtime: Runtime,
    clock: Clock,
    events: mpsc::Receiver<Event>,
    /// An event that came before the first case.
    early: Option<Event>,
    /// The `Register` that waits.
    registering: Option<oneshot::Sender<Result<String, status::Status>>>,
    calls: HashMap<StreamId, AgentCall>,
}

/// The sending half of a call.
struct AgentCall {
    sender: Sender,
    /// Whether this side ended it.
    is_ended: Arc<AtomicBool>,
}

enum Sender {
    Listen(mpsc::Sender<Result<ListenResponse, Status>>),
    Test(mpsc::Sender<Result<TestInit, Status>>),
    Translation(mpsc::Sender<Result<TranslationInit, Status>>),
}

/// An event of a call.
enum Event {
    Registers(
        AgentRegistration,
        oneshot::Sender<Result<String, status::Status>>,
    ),
    Opens(StreamId, Rpc, Option<String>, AgentCall),
    Action(AgentAction),
}

impl TestHub {
    /// Listens on an address; port 0 is any.
    ///
    /// # Errors
    ///
    /// The address is taken, or no runtime can be started.
    pub fn bind(addr: SocketAddr) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (report, events) = mpsc::channel(MAX_ACTIONS);
        let listener = runtime.block_on(TcpListener::bind(addr))?;
        let addr = listener.local_addr()?;
        let service = AgentHubServer::new(Service {
            report,
            opened: AtomicU64::new(0),
        })
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
        // It answers for paths of other services as for its own unknown calls.
        let accepted = TcpIncoming::from(listener).with_nodelay(Some(true));
        let serving = Server::builder().serve_with_incoming(service, accepted);
        runtime.block_on(async { drop(spawn(serving)) });
        let inner = Inner {
            runtime,
            clock: Clock::start(),
            events,
            early: None,
            registering: None,
            calls: HashMap::new(),
        };
        Ok(Self {
            addr,
            inner: Rc::new(RefCell::new(inner)),
        })
    }

    /// The URL for agents on this machine.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Waits for an agent to register; the next case begins with that.
    #[must_use]
    pub fn wait_for_agent(&self, timeout: Duration) -> bool {
        let mut inner = self.inner.borrow_mut();
        let Inner {
            runtime, events, ..
        } = &mut *inner;
        let came = runtime.block_on(async { tokio::time::timeout(timeout, events.recv()).await });
        inner.early = came.ok().flatten();
        inner.early.is_some()
    }

    /// The agent, for the next case: its open calls are ended with `UNAVAILABLE`, so that it registers again.
    #[must_use]
    pub fn peer(&self) -> Box<dyn AgentPeer> {
        let mut inner = self.inner.borrow_mut();
        inner.registering = None;
        let open: Vec<_> = inner.calls.keys().copied().collect();
        for stream in open {
            let next = status::Status::new(status::Code::Unavailable, "the next case");
            inner.end(stream, next);
        }
        Box::new(CurrentAgent(self.inner.clone()))
    }
}

impl fmt::Debug for TestHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestHub")
            .field("addr", &self.addr)
            .finish_non_exhaustive()
    }
}

impl Inner {
    fn take(&mut self, event: Event) -> AgentAction {
        match event {
            Event::Registers(registration, answer) => {
                self.registering = Some(answer);
                AgentAction::Registered(registration)
            }
            Event::Opens(stream, rpc, key, call) => {
                self.calls.insert(stream, call);
                AgentAction::Opened { stream, rpc, key }
            }
            Event::Action(action) => action,
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

struct CurrentAgent(Rc<RefCell<Inner>>);

impl AgentPeer for CurrentAgent {
    fn next(&mut self, timeout: Duration) -> Option<AgentAction> {
        let mut inner = self.0.borrow_mut();
        if let Some(event) = inner.early.take() {
            return Some(inner.take(event));
        }
        let Inner {
            runtime, events, ..
        } = &mut *inner;
        let event = runtime
            .block_on(async { tokio::time::timeout(timeout, events.recv()).await })
            .ok()??;
        Some(inner.take(event))
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

/// The service: reports what agents do, and leaves the answers to the test hub.
struct Service {
    report: mpsc::Sender<Event>,
    opened: AtomicU64,
}

impl Service {
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
        let call = AgentCall {
            sender: sender(messages),
            is_ended: is_ended.clone(),
        };
        let gone = Gone {
            stream,
            report: self.report.clone(),
            is_ended,
        };
        let opens = Event::Opens(stream, rpc, key, call);
        let over = |_| Status::unavailable("the test hub is gone");
        self.report.send(opens).await.map_err(over)?;
        spawn(read(
            stream,
            self.report.clone(),
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
impl AgentHub for Service {
    type ListenStream = Answers<ListenResponse>;
    type ExecuteStream = Answers<TestInit>;
    type TranslateStream = Answers<TranslationInit>;

    async fn register(
        &self,
        request: Request<AgentRegistration>,
    ) -> Result<Response<AgentRegistrationResponse>, Status> {
        let (answer, answered) = oneshot::channel();
        let event = Event::Registers(request.into_inner(), answer);
        let later = || Status::unavailable("the next case");
        self.report.send(event).await.map_err(|_| later())?;
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
    report: mpsc::Sender<Event>,
    mut messages: Streaming<In>,
    inbound: fn(In) -> Inbound,
) {
    loop {
        let action = match messages.message().await {
            Ok(Some(message)) => AgentAction::Sent(stream, inbound(message)),
            Ok(None) => AgentAction::HalfClosed(stream),
            // Whoever holds the answers learns of it, too.
            Err(_) => return,
        };
        let is_last = matches!(action, AgentAction::HalfClosed(_));
        if report.send(Event::Action(action)).await.is_err() || is_last {
            return;
        }
    }
}

/// Tells when a call is dropped that this side did not end.
struct Gone {
    stream: StreamId,
    report: mpsc::Sender<Event>,
    is_ended: Arc<AtomicBool>,
}

impl Drop for Gone {
    fn drop(&mut self) {
        if !self.is_ended.load(Ordering::SeqCst) {
            // At the bound the reset is dropped: the case is a flood anyway.
            let _ = self
                .report
                .try_send(Event::Action(AgentAction::Reset(self.stream)));
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
