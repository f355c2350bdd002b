//! The place of a job in a trace, in the metadata of real calls.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot},
    task::JoinSet,
};
use tokio_stream::{Empty, StreamExt as _, wrappers::ReceiverStream};
use tonic::{
    Request, Response, Status, Streaming, async_trait,
    metadata::{AsciiMetadataValue, MetadataMap},
    transport::{Server, server::TcpIncoming},
};
use uap_hub_proto::{
    capability::Skill,
    role::{
        CLIENT_ID_KEY, SESSION_ID_KEY,
        hub::{self, Job, Verdict},
    },
    transport::{
        client::{AgentBuilder, AgentHandle, Context},
        server::{ServerConfig, serve},
    },
    wire::{
        AgentRegistration, AgentRegistrationResponse, ListenRequest, ListenResponse,
        SessionAcceptance, SessionProposal, SessionReady, TestInit, TestProposalDetails,
        TestResponse, TestResult, TranslationInit, TranslationResponse, TranslationResult,
        agent_hub_client::AgentHubClient,
        agent_hub_server::{AgentHub, AgentHubServer},
        listen_request, listen_response, session_proposal,
    },
};
use ubos_common::{
    id::IdSource,
    trace_context::{TRACEPARENT, TRACESTATE, TraceContext},
};

use crate::{
    loopback::{hub, within},
    resume::Proxy,
};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const ANOTHER: &str = "00-11111111111111111111111111111111-2222222222222222-01";

fn place() -> TraceContext {
    TraceContext::read(PARENT, ["a=1,b=2"]).unwrap()
}

/// What handlers say of the place that they run at.
fn words(context: &Context) -> String {
    let Some(trace) = context.trace() else {
        return "nowhere".into();
    };
    format!("{trace} {}", trace.tracestate().unwrap_or_default())
}

/// An agent whose handlers say where they run.
fn tracer(url: &str) -> AgentHandle {
    AgentBuilder::new("a")
        .on_test("t", |_, context| async move {
            Ok(TestResult::completed(words(&context)))
        })
        .on_translation("f", |_, context| async move {
            let mut result = TranslationResult::completed(Vec::new());
            if let Some(status) = &mut result.status {
                status.message = words(&context);
            }
            Ok(result)
        })
        .start(url)
        .unwrap()
}

#[tokio::test]
async fn a_handler_runs_at_the_place_that_its_job_was_submitted_from() {
    let hub = hub().await;
    let _agent = tracer(&hub.url());
    let bare = TraceContext::read(PARENT, []).unwrap();
    for job in [Job::test("t", vec![]), Job::translation("f", vec![])] {
        let jobs = [
            (job.clone(), "nowhere".to_owned()),
            (job.clone().with_trace(place()), format!("{PARENT} a=1,b=2")),
            (job.clone().with_trace(bare.clone()), format!("{PARENT} ")),
            (job, "nowhere".to_owned()),
        ];
        for (job, wanted) in jobs {
            let outcome = within(hub.submit(job).unwrap().outcome()).await;
            assert_eq!(
                (outcome.verdict, outcome.message),
                (Verdict::Completed, wanted)
            );
        }
    }
}

/// All values of a name.
fn values<'a>(metadata: &'a MetadataMap, name: &str) -> Vec<&'a str> {
    let values = metadata.get_all(name).iter();
    values.map(|value| value.to_str().unwrap()).collect()
}

/// The metadata of the hub's answers to `Listen` and to `Execute` of a job, and the job; on the agent's calls is another place.
async fn answers_of(job: Job) -> (MetadataMap, MetadataMap, TestInit) {
    let hub = hub().await;
    let mut client = AgentHubClient::connect(hub.url()).await.unwrap();
    let registration = AgentRegistration {
        display_name: "a".into(),
        capabilities: vec![Skill::test("t").into()],
    };
    let registered = client.register(registration).await.unwrap().into_inner();
    let (control, messages) = mpsc::channel(4);
    let mut listen = Request::new(ReceiverStream::new(messages));
    let client_id = registered.client_id.parse().unwrap();
    listen.metadata_mut().insert(CLIENT_ID_KEY, client_id);
    listen
        .metadata_mut()
        .insert(TRACEPARENT, ANOTHER.parse().unwrap());
    let listening = within(client.listen(listen)).await.unwrap();
    let listened = listening.metadata().clone();
    let mut listening = listening.into_inner();
    let job = hub.submit(job).unwrap();
    let mut heard = async || within(listening.next()).await.unwrap().unwrap().event;
    let Some(listen_response::Event::SessionProposal(offer)) = heard().await else {
        panic!("a proposal comes first");
    };
    let answer = SessionAcceptance {
        session_id: offer.session_id.clone(),
        accepted: true,
        reason: String::new(),
    };
    let event = Some(listen_request::Event::SessionAcceptance(answer));
    control.send(ListenRequest { event }).await.unwrap();
    heard().await.unwrap();
    let mut execute = Request::new(tokio_stream::pending::<TestResponse>());
    let session_id = offer.session_id.parse().unwrap();
    execute.metadata_mut().insert(SESSION_ID_KEY, session_id);
    execute
        .metadata_mut()
        .insert(TRACEPARENT, ANOTHER.parse().unwrap());
    let executing = within(client.execute(execute)).await.unwrap();
    let executed = executing.metadata().clone();
    let init = within(executing.into_inner().next()).await;
    drop(job);
    (listened, executed, init.unwrap().unwrap())
}

// spec: HUB-4-9
#[tokio::test]
async fn the_place_is_metadata_of_one_answer_once_and_never_a_member() {
    let job = || Job::test("t", vec![]);
    let (listened, executed, init) = answers_of(job().with_trace(place())).await;
    assert_eq!(values(&executed, TRACEPARENT), [PARENT]);
    assert_eq!(values(&executed, TRACESTATE), ["a=1,b=2"]);
    assert_eq!(values(&listened, TRACEPARENT), [""; 0]);
    let (_, without, same) = answers_of(job()).await;
    assert_eq!(
        values(&without, TRACEPARENT),
        [""; 0],
        "the agent's is its own"
    );
    assert_eq!(values(&without, TRACESTATE), [""; 0]);
    assert_eq!(init, same);
}

/// A hub with one job, whose call it answers with metadata.
struct OneJob {
    metadata: MetadataMap,
    reports: Mutex<Option<oneshot::Sender<Streaming<TestResponse>>>>,
}

#[async_trait]
impl AgentHub for OneJob {
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
        let (session_id, r#type) = ("s".to_owned(), "t".to_owned());
        let proposal = SessionProposal {
            session_id: session_id.clone(),
            details: Some(session_proposal::Details::Test(TestProposalDetails {
                r#type,
            })),
        };
        let ready = SessionReady { session_id };
        let (sender, receiver) = mpsc::channel(2);
        for event in [
            listen_response::Event::SessionProposal(proposal),
            listen_response::Event::SessionReady(ready),
        ] {
            let event = Some(event);
            sender.try_send(Ok(ListenResponse { event })).unwrap();
        }
        // It stays open as long as the test.
        std::mem::forget(sender);
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    type ExecuteStream = ReceiverStream<Result<TestInit, Status>>;

    async fn execute(
        &self,
        request: Request<Streaming<TestResponse>>,
    ) -> Result<Response<Self::ExecuteStream>, Status> {
        let carried = values(request.metadata(), TRACEPARENT).len();
        assert_eq!(carried, 0, "the agent knows of none yet");
        let (sender, receiver) = mpsc::channel(1);
        let init = TestInit {
            test_type: "t".into(),
            ..TestInit::default()
        };
        sender.try_send(Ok(init)).unwrap();
        std::mem::forget(sender);
        let reports = self.reports.lock().unwrap().take().unwrap();
        reports.send(request.into_inner()).unwrap();
        let mut answer = Response::new(ReceiverStream::new(receiver));
        *answer.metadata_mut() = self.metadata.clone();
        Ok(answer)
    }

    type TranslateStream = Empty<Result<TranslationInit, Status>>;

    async fn translate(
        &self,
        _: Request<Streaming<TranslationResponse>>,
    ) -> Result<Response<Self::TranslateStream>, Status> {
        Err(Status::unimplemented(""))
    }
}

/// Where our handler runs under a hub that answers with this metadata.
async fn told(metadata: &[(&'static str, &'static [u8])]) -> String {
    let mut answered = MetadataMap::new();
    for (name, value) in metadata {
        answered.append(*name, AsciiMetadataValue::try_from(*value).unwrap());
    }
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (reports, reported) = oneshot::channel();
    let service = AgentHubServer::new(OneJob {
        metadata: answered,
        reports: Mutex::new(Some(reports)),
    });
    let mut tasks = JoinSet::new();
    tasks.spawn(Server::builder().serve_with_incoming(service, TcpIncoming::from(listener)));
    let _agent = tracer(&url);
    let mut reports = within(reported).await.unwrap();
    loop {
        use uap_hub_proto::wire::test_response::Event;
        let report = within(reports.next()).await.expect("a result comes");
        if let Some(Event::Result(result)) = report.unwrap().event {
            return result.status.unwrap().message;
        }
    }
}

#[tokio::test]
async fn a_place_that_is_not_valid_is_dropped_and_the_job_runs() {
    let parent = (TRACEPARENT, PARENT.as_bytes());
    let at = |state: &str| format!("{PARENT} {state}");
    assert_eq!(told(&[]).await, "nowhere");
    assert_eq!(told(&[parent]).await, at(""));
    let states: [(&str, &[u8]); 2] = [(TRACESTATE, b"a=1"), (TRACESTATE, b"b=2")];
    assert_eq!(told(&[parent, states[0], states[1]]).await, at("a=1,b=2"));
    assert_eq!(
        told(&[parent, states[0], states[0]]).await,
        at(""),
        "a key twice"
    );
    assert_eq!(told(&[parent, parent]).await, "nowhere", "twice");
    assert_eq!(told(&states).await, "nowhere", "a state of nothing");
    let no_text = (TRACEPARENT, "\u{e9}".as_bytes());
    let zeroes: &[u8] = b"00-00000000000000000000000000000000-b7ad6b7169203331-01";
    for wrong in [&b""[..], b"00", zeroes] {
        assert_eq!(told(&[(TRACEPARENT, wrong)]).await, "nowhere", "{wrong:?}");
    }
    assert_eq!(told(&[no_text]).await, "nowhere");
    assert_eq!(told(&[parent, no_text]).await, "nowhere", "twice");
}

// spec: HUB-5-4
#[tokio::test]
async fn a_call_that_is_opened_again_carries_the_place_once() {
    let (heard, mut places) = mpsc::unbounded_channel();
    let grace = hub::Config::default().with_resume_grace(Duration::from_secs(600));
    let config = ServerConfig::default().with_hub(grace);
    let config = config.with_authorize(move |caller| {
        // Of calls of sessions.
        if caller.metadata(SESSION_ID_KEY).is_some() {
            heard.send(caller.trace()).unwrap();
        }
        async { Ok("a".into()) }
    });
    let hub = serve(([127, 0, 0, 1], 0).into(), config).await.unwrap();
    let proxy = Proxy::start(&hub).await;
    let (go_on, wait) = oneshot::channel::<()>();
    let (begin, begun) = oneshot::channel();
    let once = Arc::new(Mutex::new(Some((begin, wait))));
    let _agent = AgentBuilder::new("a")
        .configure(|config| config.with_resume(true))
        .on_test("t", move |_, context| {
            let (begin, wait) = once.lock().unwrap().take().unwrap();
            async move {
                begin.send(()).unwrap();
                let _ = wait.await;
                Ok(TestResult::completed(words(&context)))
            }
        })
        .start(&proxy.url)
        .unwrap();
    let job = Job::test("t", vec![]).with_trace(place());
    let job = hub.submit(job).unwrap();
    within(begun).await.unwrap();
    assert_eq!(within(places.recv()).await, Some(None), "the hub tells it");
    let mut ids = IdSource::seeded(0);
    while proxy.cut(&mut ids) {}
    assert_eq!(within(places.recv()).await, Some(Some(place())));
    go_on.send(()).unwrap();
    assert_eq!(
        within(job.outcome()).await.message,
        format!("{PARENT} a=1,b=2")
    );
}

#[tokio::test]
async fn the_hook_sees_the_place_that_a_call_comes_from() {
    let (heard, mut places) = mpsc::unbounded_channel();
    let config = ServerConfig::default().with_authorize(move |caller| {
        heard.send(caller.trace()).unwrap();
        async { Ok("a".into()) }
    });
    let hub = serve(([127, 0, 0, 1], 0).into(), config).await.unwrap();
    let mut client = AgentHubClient::connect(hub.url()).await.unwrap();
    for (parents, wanted) in [
        (vec![], None),
        (vec![PARENT], TraceContext::read(PARENT, [])),
        (vec![PARENT, PARENT], None),
        (vec!["00"], None),
    ] {
        let mut request = Request::new(AgentRegistration::default());
        for parent in parents {
            let parent = parent.parse().unwrap();
            request.metadata_mut().append(TRACEPARENT, parent);
        }
        within(client.register(request)).await.unwrap();
        assert_eq!(places.recv().await, Some(wanted));
    }
}
