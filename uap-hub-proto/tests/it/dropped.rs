//! What is left of handles that are dropped.

use std::{
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::AsyncReadExt as _,
    net::{TcpListener, TcpStream},
    sync::{Notify, mpsc},
    task::JoinSet,
    time::Instant,
};
use tokio_stream::{Empty, wrappers::ReceiverStream};
use tonic::{
    Request, Response, Status, Streaming, async_trait,
    transport::{Server, server::TcpIncoming},
};
use uap_hub_proto::{
    id::JobId,
    role::hub::{Config, Job, Outcome, Record, Verdict},
    store::{JobStore, MemoryStore, StoreError},
    transport::{
        client::{AgentBuilder, AgentHandle},
        server::{HubHandle, JobHandle, ServerConfig, serve},
    },
    wire::{
        AgentRegistration, AgentRegistrationResponse, ListenRequest, ListenResponse, Severity,
        TestInit, TestResponse, TestResult, TranslationInit, TranslationResponse,
        agent_hub_server::{AgentHub, AgentHubServer},
    },
};

use crate::{
    handles::{Ends, hang, reported},
    loopback::{hub, within},
};

// spec: HUB-5-3
#[tokio::test]
async fn a_hub_that_is_dropped_while_it_drains_leaves_at_once() {
    let hub = hub().await;
    let stopped = Arc::new(Notify::new());
    let ended = stopped.clone();
    let _agent = AgentBuilder::new("a")
        .on_test("t", move |_, context| hang(context, Ends(ended.clone())))
        .start(&hub.url())
        .unwrap();
    let mut job = hub.submit(Job::test("t", vec![])).unwrap();
    reported(&mut job).await;
    let day = Duration::from_secs(24 * 60 * 60);
    tokio::select! {
        biased;
        done = hub.shutdown(day) => panic!("{done:?}"),
        () = tokio::task::yield_now() => {}
    }
    drop(hub);
    tokio::select! {
        biased;
        outcome = job.outcome() => assert_eq!(outcome.message, "the hub is shutting down"),
        () = std::future::ready(()) => panic!("the session goes on"),
    }
    within(stopped.notified()).await;
}

/// Drops an agent while its handler, which was told that its session is over, is given time to end; the handler drops it itself
/// where it `is_own`.
async fn drop_while_it_ends(is_own: bool) {
    let hub = hub().await;
    let agent: Arc<Mutex<Option<AgentHandle>>> = Arc::default();
    let (told, stopped) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (own, tells, ended) = (agent.clone(), told.clone(), stopped.clone());
    let started = AgentBuilder::new("a")
        .on_test("t", move |_, context| {
            let (own, tells, ends) = (own.clone(), tells.clone(), Ends(ended.clone()));
            async move {
                let _ends = ends;
                context.status("there").await?;
                context.cancelled().await;
                if is_own {
                    drop(own.lock().unwrap().take());
                }
                tells.notify_one();
                pending().await
            }
        })
        .start(&hub.url());
    *agent.lock().unwrap() = Some(started.unwrap());
    let mut job = hub.submit(Job::test("t", vec![])).unwrap();
    reported(&mut job).await;
    job.cancel().unwrap();
    within(told.notified()).await;
    // From here on time passes only where nothing else is to be done.
    tokio::time::pause();
    let now = Instant::now();
    drop(agent.lock().unwrap().take());
    within(stopped.notified()).await;
    assert_eq!(now.elapsed(), Duration::ZERO, "it was waited for");
    tokio::time::resume();
}

// spec: HUB-4-7
#[tokio::test]
async fn a_handler_is_stopped_with_its_agent() {
    let hub = hub().await;
    let stopped = Arc::new(Notify::new());
    let ended = stopped.clone();
    let agent = AgentBuilder::new("a")
        .on_test("t", move |_, context| hang(context, Ends(ended.clone())))
        .start(&hub.url())
        .unwrap();
    reported(&mut hub.submit(Job::test("t", vec![])).unwrap()).await;
    drop(agent);
    within(stopped.notified()).await;
}

// spec: HUB-4-7
#[tokio::test]
async fn a_handler_that_is_ending_is_stopped_with_its_agent() {
    drop_while_it_ends(false).await;
    // On one thread the handler runs before the task that gives it time: that one is never polled.
    drop_while_it_ends(true).await;
}

// spec: HUB-4-4
#[tokio::test]
async fn the_events_of_a_job_whose_handle_is_dropped_are_not_counted() {
    let hub = hub().await;
    let ended = Arc::new(Notify::new());
    let _agent = AgentBuilder::new("a")
        .on_test("t", move |_, context| hang(context, Ends(ended.clone())))
        .start(&hub.url())
        .unwrap();
    let mut job = hub.submit(Job::test("t", vec![])).unwrap();
    let id = job.id();
    reported(&mut job).await;
    let unread = || hub.inspect(|view| view.job(id).unwrap().unread_events);
    assert!(unread() > 0);
    drop(job);
    assert_eq!(unread(), 0);
}

// spec: HUB-4-4
#[tokio::test]
async fn a_job_goes_on_when_its_handle_is_dropped_inside_an_inspection() {
    goes_on(|hub, job| hub.inspect(|_| drop(job))).await;
}

// spec: HUB-4-4
#[tokio::test]
async fn a_job_goes_on_when_an_inspection_panics_with_its_handle() {
    goes_on(|hub, job| {
        let inspect = || hub.inspect(|_| panic!("not while {} runs", job.id()));
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(inspect));
        assert!(panicked.is_err());
    })
    .await;
    goes_on(|hub, job| {
        let inspect = || {
            hub.inspect(|_| {
                let _job = job;
                panic!("with the handle")
            })
        };
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(inspect));
        assert!(panicked.is_err());
    })
    .await;
}

async fn goes_on(dropped: impl FnOnce(&HubHandle, JobHandle)) {
    let store = Arc::new(MemoryStore::default());
    let config = Config::default().with_max_unread_events(8);
    let config = ServerConfig::default()
        .with_hub(config)
        .with_store(store.clone());
    let hub = serve(([127, 0, 0, 1], 0).into(), config).await.unwrap();
    let _agent = AgentBuilder::new("a")
        .on_test("t", |_, context| async move {
            for _ in 0..100 {
                context.log(Severity::Info, "line").await?;
            }
            Ok(TestResult::completed(""))
        })
        .start(&hub.url())
        .unwrap();
    let job = hub.submit(Job::test("t", vec![])).unwrap();
    let id = job.id();
    let is_held_up = || hub.inspect(|view| view.job(id).unwrap().is_held_up);
    until(is_held_up).await;
    dropped(&hub, job);
    until(|| store.unfinished().unwrap().is_empty()).await;
}

// spec: HUB-4-4
#[tokio::test]
async fn a_job_that_is_held_up_goes_on_when_only_its_end_is_waited_for() {
    let config = Config::default().with_max_unread_events(8);
    let config = ServerConfig::default().with_hub(config);
    let hub = serve(([127, 0, 0, 1], 0).into(), config).await.unwrap();
    let _agent = AgentBuilder::new("a")
        .on_test("t", |_, context| async move {
            for _ in 0..100 {
                context.log(Severity::Info, "line").await?;
            }
            Ok(TestResult::completed(""))
        })
        .start(&hub.url())
        .unwrap();
    let job = hub.submit(Job::test("t", vec![])).unwrap();
    let id = job.id();
    until(|| hub.inspect(|view| view.job(id).unwrap().is_held_up)).await;
    let outcome = within(job.outcome()).await;
    assert_eq!(outcome.verdict, Verdict::Completed);
}

/// A store that is asked to write and does not come back until it is let go.
#[derive(Debug)]
struct Stuck(Mutex<std::sync::mpsc::Receiver<()>>);

impl JobStore for Stuck {
    fn write(&self, _: &[(JobId, Record)]) -> Result<(), StoreError> {
        // The sender is dropped at the end of the test.
        let _ = self.0.lock().unwrap().recv();
        Ok(())
    }

    fn unfinished(&self) -> Result<Vec<(JobId, Job)>, StoreError> {
        Ok(Vec::new())
    }

    fn outcome(&self, _: JobId) -> Result<Option<Outcome>, StoreError> {
        Ok(None)
    }

    fn labelled(&self, _: &str) -> Result<Option<JobId>, StoreError> {
        Ok(None)
    }
}

// spec: HUB-6-1
#[tokio::test]
async fn a_hub_that_is_dropped_does_not_wait_for_its_store() {
    let (_let_go, stuck) = std::sync::mpsc::channel();
    let store = Arc::new(Stuck(Mutex::new(stuck)));
    let config = ServerConfig::default().with_store(store);
    let hub = serve(([127, 0, 0, 1], 0).into(), config).await.unwrap();
    let job = hub.submit(Job::test("t", vec![])).unwrap();
    drop(hub);
    assert_eq!(within(job.outcome()).await.message, "the hub is gone");
}

// spec: HUB-4-8
#[tokio::test]
async fn an_agent_closes_the_stream_of_a_finished_session_itself() {
    let day = Duration::from_secs(24 * 60 * 60);
    let config = ServerConfig::default().with_hub(Config::default().with_linger(day));
    let hub = serve(([127, 0, 0, 1], 0).into(), config).await.unwrap();
    let agent = AgentBuilder::new("a")
        .on_test("t", |_, _| async { Ok(TestResult::completed("")) })
        .configure(|config| config.with_linger(day))
        .start(&hub.url())
        .unwrap();
    within(hub.submit(Job::test("t", vec![])).unwrap().outcome()).await;
    within(agent.shutdown(day)).await;
}

// spec: HUB-2-7
#[tokio::test]
async fn a_registration_that_takes_too_long_is_given_up() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let _agent = AgentBuilder::new("a")
        .configure(|config| config.with_register_timeout(Duration::from_millis(100)))
        .start(&url)
        .unwrap();
    let (mut first, _) = within(listener.accept()).await.unwrap();
    let _second = within(listener.accept()).await.unwrap();
    is_closed(&mut first).await;
}

// spec: HUB-2-7
#[tokio::test]
async fn an_agent_that_is_dropped_stops_registering() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let agent = AgentBuilder::new("a").start(&url).unwrap();
    let (mut socket, _) = within(listener.accept()).await.unwrap();
    drop(agent);
    is_closed(&mut socket).await;
}

/// Waits until the peer has closed the connection.
async fn is_closed(socket: &mut TcpStream) {
    let mut bytes = Vec::new();
    // A connection that was reset is closed, too.
    let _ = within(socket.read_to_end(&mut bytes)).await;
}

/// Waits until something that nobody tells of is so.
async fn until(is_so: impl Fn() -> bool) {
    let looks = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(looks).await;
}

/// The sending half of a `Listen` call.
type Listening = mpsc::Sender<Result<ListenResponse, Status>>;

/// A hub that registers everybody, and keeps `Listen` open whatever its agent does.
struct Deaf(mpsc::UnboundedSender<Listening>);

#[async_trait]
impl AgentHub for Deaf {
    async fn register(
        &self,
        _: Request<AgentRegistration>,
    ) -> Result<Response<AgentRegistrationResponse>, Status> {
        let client_id = "a".to_owned();
        Ok(Response::new(AgentRegistrationResponse { client_id }))
    }

    type ListenStream = ReceiverStream<Result<ListenResponse, Status>>;

    async fn listen(
        &self,
        _: Request<Streaming<ListenRequest>>,
    ) -> Result<Response<Self::ListenStream>, Status> {
        let (sender, receiver) = mpsc::channel(1);
        self.0.send(sender).unwrap();
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    type ExecuteStream = Empty<Result<TestInit, Status>>;

    async fn execute(
        &self,
        _: Request<Streaming<TestResponse>>,
    ) -> Result<Response<Self::ExecuteStream>, Status> {
        Err(Status::unimplemented(""))
    }

    type TranslateStream = Empty<Result<TranslationInit, Status>>;

    async fn translate(
        &self,
        _: Request<Streaming<TranslationResponse>>,
    ) -> Result<Response<Self::TranslateStream>, Status> {
        Err(Status::unimplemented(""))
    }
}

// spec: HUB-2-7
#[tokio::test]
async fn an_agent_that_is_dropped_leaves_a_hub_that_does_not_let_it_go() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (calls, mut called) = mpsc::unbounded_channel();
    let service = AgentHubServer::new(Deaf(calls));
    let serving = Server::builder().serve_with_incoming(service, TcpIncoming::from(listener));
    let mut tasks = JoinSet::new();
    tasks.spawn(serving);
    let agent = AgentBuilder::new("a").start(&url).unwrap();
    let listening = within(called.recv()).await.unwrap();
    drop(agent);
    within(listening.closed()).await;
}

/// Passes on what comes for one connection between an agent and a hub; ends when the agent has closed it.
async fn pass_on(listener: TcpListener, hub: std::net::SocketAddr) {
    let (mut agent, _) = listener.accept().await.unwrap();
    let mut hub = TcpStream::connect(hub).await.unwrap();
    let (mut from_agent, mut to_agent) = agent.split();
    let (mut from_hub, mut to_hub) = hub.split();
    // The hub's half stays open: only the agent can end this.
    tokio::select! {
        _ = tokio::io::copy(&mut from_agent, &mut to_hub) => {}
        _ = async {
            let _ = tokio::io::copy(&mut from_hub, &mut to_agent).await;
            pending::<()>().await
        } => {}
    }
}

// spec: HUB-5-1
#[tokio::test]
async fn an_agent_that_is_dropped_ends_its_calls_and_its_connection() {
    let hub = hub().await;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut tasks = JoinSet::new();
    tasks.spawn(pass_on(listener, hub.local_addr()));
    let ended = Arc::new(Notify::new());
    let ends = ended.clone();
    let agent = AgentBuilder::new("a")
        .on_test("t", move |_, context| hang(context, Ends(ends.clone())))
        .start(&url)
        .unwrap();
    let mut job = hub.submit(Job::test("t", vec![])).unwrap();
    reported(&mut job).await;
    drop(agent);
    within(ended.notified()).await;
    // Both its calls, with a body that was open, are over at the hub, and so is the connection.
    assert_eq!(within(job.outcome()).await.verdict, Verdict::Failed);
    until(|| hub.agents().is_empty()).await;
    within(tasks.join_next()).await.unwrap().unwrap();
}

// spec: HUB-5-1
#[tokio::test]
async fn an_agent_that_is_dropped_closes_its_connection_to_a_hub_that_keeps_its_calls() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let hub = listener.local_addr().unwrap();
    let (calls, mut called) = mpsc::unbounded_channel();
    let service = AgentHubServer::new(Deaf(calls));
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let incoming = TcpIncoming::from(listener);
        let _ = Server::builder()
            .serve_with_incoming(service, incoming)
            .await;
        panic!("the hub is never stopped")
    });
    let between = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", between.local_addr().unwrap());
    tasks.spawn(pass_on(between, hub));
    let agent = AgentBuilder::new("a").start(&url).unwrap();
    let _listening = within(called.recv()).await.unwrap();
    drop(agent);
    within(tasks.join_next()).await.unwrap().unwrap();
}
