//! The yardstick of sessions: the same seven messages, written by hand on the gRPC library for one agent and one kind of job.
//! No limits, no timeouts, no placement; nothing is checked and nothing is told.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use tokio::sync::{mpsc, oneshot, watch};
use tokio_stream::{Stream, wrappers::ReceiverStream};
use tonic::{Request, Response, Status, Streaming, transport::Channel};
use uap_hub_proto::{
    role::SESSION_ID_KEY,
    wire::{
        AgentRegistration, AgentRegistrationResponse, ListenRequest, ListenResponse, Payload,
        SessionAcceptance, SessionProposal, SessionReady, TestInit, TestProposalDetails,
        TestResponse, TestResult, TestState, TestStatus, TranslationInit, TranslationResponse,
        agent_hub_client::AgentHubClient, agent_hub_server::AgentHub, listen_request,
        listen_response, session_proposal, test_response,
    },
};

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;
type Control = mpsc::Sender<Result<ListenResponse, Status>>;
type Job = (oneshot::Sender<TestResult>, Vec<Payload>);

/// A hub for one agent.
#[derive(Clone)]
pub(crate) struct Hub {
    control: Arc<watch::Sender<Option<Control>>>,
    jobs: Arc<Mutex<HashMap<String, Job>>>,
    count: Arc<AtomicU64>,
}

impl Hub {
    pub(crate) fn new() -> Self {
        Self {
            control: Arc::new(watch::Sender::new(None)),
            jobs: Arc::default(),
            count: Arc::default(),
        }
    }

    pub(crate) async fn wait_for_agent(&self) {
        let mut control = self.control.subscribe();
        control.wait_for(Option::is_some).await.expect("a hub");
    }

    /// One job, from its proposal to its result.
    pub(crate) async fn run(&self) -> TestResult {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let session_id = format!("JOB-00000000-0000-4000-8000-{number:012}");
        let (done, result) = oneshot::channel();
        let job = (done, vec![Payload::new("p")]);
        self.jobs().insert(session_id.clone(), job);
        let details = session_proposal::Details::Test(TestProposalDetails { r#type: "t".into() });
        let proposal = SessionProposal {
            session_id,
            details: Some(details),
        };
        let event = Some(listen_response::Event::SessionProposal(proposal));
        let control = self.control.borrow().clone().expect("an agent");
        let sent = control.send(Ok(ListenResponse { event })).await;
        sent.expect("the agent is there");
        result.await.expect("a result")
    }

    fn jobs(&self) -> std::sync::MutexGuard<'_, HashMap<String, Job>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[tonic::async_trait]
impl AgentHub for Hub {
    type ListenStream = Answers<ListenResponse>;
    type ExecuteStream = Answers<TestInit>;
    type TranslateStream = Answers<TranslationInit>;

    async fn register(
        &self,
        _: Request<AgentRegistration>,
    ) -> Result<Response<AgentRegistrationResponse>, Status> {
        Ok(Response::new(AgentRegistrationResponse::default()))
    }

    async fn listen(
        &self,
        request: Request<Streaming<ListenRequest>>,
    ) -> Result<Response<Self::ListenStream>, Status> {
        let (control, answers) = mpsc::channel(1024);
        self.control.send_replace(Some(control.clone()));
        let mut messages = request.into_inner();
        tokio::spawn(async move {
            while let Ok(Some(message)) = messages.message().await {
                if let Some(listen_request::Event::SessionAcceptance(answer)) = message.event {
                    let session_id = answer.session_id;
                    let ready = listen_response::Event::SessionReady(SessionReady { session_id });
                    let event = Some(ready);
                    let _ = control.send(Ok(ListenResponse { event })).await;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }

    async fn execute(
        &self,
        request: Request<Streaming<TestResponse>>,
    ) -> Result<Response<Self::ExecuteStream>, Status> {
        let session = request.metadata().get(SESSION_ID_KEY);
        let session = session.and_then(|value| value.to_str().ok());
        let job = session.and_then(|session| self.jobs().remove(session));
        let (done, payloads) = job.ok_or_else(|| Status::not_found("no session"))?;
        let (init, answers) = mpsc::channel(1);
        let mut messages = request.into_inner();
        tokio::spawn(async move {
            let test_type = "t".to_owned();
            let _ = init
                .send(Ok(TestInit {
                    test_type,
                    payloads,
                    acknowledged: None,
                }))
                .await;
            let mut done = Some(done);
            while let Ok(Some(message)) = messages.message().await {
                if let Some(test_response::Event::Result(result)) = message.event
                    && let Some(done) = done.take()
                {
                    let _ = done.send(result);
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }

    async fn translate(
        &self,
        _: Request<Streaming<TranslationResponse>>,
    ) -> Result<Response<Self::TranslateStream>, Status> {
        Err(Status::unimplemented(""))
    }
}

fn report(event: test_response::Event) -> TestResponse {
    TestResponse {
        timestamp: Some(SystemTime::now().into()),
        event: Some(event),
        number: 0,
    }
}

fn status(state: TestState) -> TestResponse {
    report(test_response::Event::Status(TestStatus {
        state: state.into(),
        message: String::new(),
    }))
}

/// An agent that accepts everything, and whose jobs are done at once.
pub(crate) async fn agent(channel: Channel) {
    let (control, messages) = mpsc::channel(1024);
    let event = Some(listen_request::Event::Ready(()));
    control.send(ListenRequest { event }).await.expect("room");
    let mut hub = AgentHubClient::new(channel.clone());
    let listening = hub.listen(ReceiverStream::new(messages)).await;
    let mut listening = listening.expect("listens").into_inner();
    while let Ok(Some(message)) = listening.message().await {
        match message.event {
            Some(listen_response::Event::SessionProposal(proposal)) => {
                let answer = SessionAcceptance {
                    session_id: proposal.session_id,
                    accepted: true,
                    reason: String::new(),
                };
                let event = Some(listen_request::Event::SessionAcceptance(answer));
                control
                    .send(ListenRequest { event })
                    .await
                    .expect("is read");
            }
            Some(listen_response::Event::SessionReady(ready)) => {
                tokio::spawn(session(channel.clone(), ready.session_id));
            }
            None => {}
        }
    }
}

async fn session(channel: Channel, id: String) {
    let (reports, messages) = mpsc::channel(4);
    let acknowledged = status(TestState::Acknowledged);
    reports.send(acknowledged).await.expect("room");
    let mut request = Request::new(ReceiverStream::new(messages));
    let id = id.parse().expect("a header");
    request.metadata_mut().insert(SESSION_ID_KEY, id);
    let running = AgentHubClient::new(channel).execute(request).await;
    let mut running = running.expect("opens").into_inner();
    assert!(running.message().await.expect("the job").is_some());
    reports
        .send(status(TestState::Running))
        .await
        .expect("room");
    let result = test_response::Event::Result(TestResult::completed("done"));
    reports.send(report(result)).await.expect("room");
    drop(reports);
    assert!(running.message().await.expect("an end").is_none());
}
