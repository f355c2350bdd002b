//! What is left of handles that are dropped.

use std::{
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    net::TcpListener,
    sync::{Notify, mpsc},
    task::JoinSet,
};
use tokio_stream::{Empty, wrappers::ReceiverStream};
use tonic::{
    Request, Response, Status, Streaming, async_trait,
    transport::{Server, server::TcpIncoming},
};
use uap_hub_proto::{
    role::hub::{Job, Verdict},
    transport::client::{AgentBuilder, AgentHandle},
    wire::{
        AgentRegistration, AgentRegistrationResponse, ListenRequest, ListenResponse, TestInit,
        TestResponse, TranslationInit, TranslationResponse,
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
    let outcome = within(job.outcome()).await;
    assert_eq!(outcome.verdict, Verdict::Cancelled);
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
    drop(agent.lock().unwrap().take());
    within(stopped.notified()).await;
}

// spec: HUB-4-7
#[tokio::test]
async fn a_handler_that_is_ending_is_stopped_with_its_agent() {
    drop_while_it_ends(false).await;
    // On one thread the handler runs before the task that gives it time: that one is never polled.
    drop_while_it_ends(true).await;
}

// spec: HUB-2-7
#[tokio::test]
async fn an_agent_that_is_dropped_stops_registering() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let agent = AgentBuilder::new("a").start(&url).unwrap();
    let (mut socket, _) = within(listener.accept()).await.unwrap();
    drop(agent);
    let mut bytes = Vec::new();
    // It ends when the agent closes its connection.
    let _ = within(tokio::io::AsyncReadExt::read_to_end(
        &mut socket,
        &mut bytes,
    ))
    .await;
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
    let serving = Server::builder()
        .add_service(AgentHubServer::new(Deaf(calls)))
        .serve_with_incoming(TcpIncoming::from(listener));
    let mut tasks = JoinSet::new();
    tasks.spawn(serving);
    let agent = AgentBuilder::new("a").start(&url).unwrap();
    let listening = within(called.recv()).await.unwrap();
    drop(agent);
    within(listening.closed()).await;
}
