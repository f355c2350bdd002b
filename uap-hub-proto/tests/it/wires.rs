//! What connections do: limits, floods, halves that close.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::mpsc,
    task::JoinSet,
};
use tokio_stream::{StreamExt as _, wrappers::ReceiverStream};
use tonic::{
    Code,
    codegen::{Bytes, Service as _, http},
};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use uap_hub_proto::{
    capability::Skill,
    role::{CLIENT_ID_KEY, SESSION_ID_KEY, hub},
    transport::server::{Denied, ServerConfig, serve},
    wire::{
        AgentRegistration, AgentRegistrationResponse, Attachment, ListenRequest, ListenResponse,
        SessionAcceptance, TestResponse, TestResult, agent_hub_client::AgentHubClient,
        listen_request, listen_response, test_response,
    },
};

use crate::loopback::within;

// spec: HUB-4-6, HUB-2-1
#[tokio::test]
async fn registrations_have_a_size_limit_of_their_own() {
    let config = ServerConfig::default();
    let hub = serve(([127, 0, 0, 1], 0).into(), config).await.unwrap();
    let mut client = AgentHubClient::connect(hub.url()).await.unwrap();
    let named = |bytes| {
        let registration = AgentRegistration {
            display_name: "x".repeat(bytes),
            capabilities: vec![],
        };
        let mut client = client.clone();
        async move { client.register(registration).await.unwrap_err() }
    };
    let refused = within(named(2 << 20)).await;
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    let refused = within(named(2_000)).await;
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    client.register(AgentRegistration::default()).await.unwrap();
}

// spec: HUB-4-6, HUB-2-1
#[tokio::test]
async fn a_registration_that_never_ends_is_given_up() {
    let config = ServerConfig::default().with_register_timeout(Duration::from_millis(100));
    let hub = serve(([127, 0, 0, 1], 0).into(), config).await.unwrap();
    let channel = tonic::transport::Channel::from_shared(hub.url()).unwrap();
    let mut client = tonic::client::Grpc::new(channel.connect().await.unwrap());
    client.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::<AgentRegistration, AgentRegistrationResponse>::default();
    let path = "/uap.v1.AgentHub/Register".parse().unwrap();
    let endless = tonic::Request::new(tokio_stream::pending());
    let refused = within(client.client_streaming(endless, path, codec)).await;
    let refused: tonic::Response<AgentRegistrationResponse> = match refused {
        Ok(answer) => answer,
        Err(status) => return assert_eq!(status.code(), Code::DeadlineExceeded, "{status}"),
    };
    panic!("{refused:?}");
}

/// The first bytes of a message, and nothing more.
pub(crate) struct Begun(pub(crate) Option<Bytes>);

impl http_body::Body for Begun {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        match self.0.take() {
            Some(bytes) => Poll::Ready(Some(Ok(http_body::Frame::data(bytes)))),
            None => Poll::Pending,
        }
    }
}

// spec: HUB-1-1
#[tokio::test]
async fn what_is_no_call_of_a_service_is_not_implemented() {
    let config = ServerConfig::default();
    let hub = serve(([127, 0, 0, 1], 0).into(), config).await.unwrap();
    let endpoint = tonic::transport::Channel::from_shared(hub.url()).unwrap();
    let mut channel = endpoint.connect().await.unwrap();
    let mut call = async |method: &str, path: &str| {
        let request = http::Request::builder()
            .method(method)
            .uri(format!("{}{path}", hub.url()))
            .header("content-type", "application/grpc")
            .body(tonic::body::Body::empty())
            .unwrap();
        std::future::poll_fn(|cx| channel.poll_ready(cx)).await?;
        channel.call(request).await
    };
    let long = format!("/{}/Register", "a.".repeat(4_000));
    for path in [
        "",
        "/",
        "//",
        "//Register",
        "/Register",
        "/uap.v1.AgentHub",
        "/uap.v1.AgentHub/",
        "/uap.v1.AgentHub?/Register",
        "/uap.v1.AgentHub//Register",
        "/uap.v1.AgentHub/register",
        "/uap.v1.AgentHub/Register/",
        "/uap.v1.AgentHub/x/Execute",
        "/uap.v1.agenthub/Register",
        "/uap.v1/AgentHub/Register",
        "/uap%2Ev1%2EAgentHub/Register",
        "/x/../uap.v1.AgentHub/Register",
        "/grpc.health.v1.Health/",
        "/grpc.health.v1.Health/Checked",
        "/other.Service/Call",
        &long,
    ] {
        for method in ["POST", "GET", "HEAD", "OPTIONS"] {
            let answer = within(call(method, path)).await.unwrap();
            assert_eq!(answer.status(), http::StatusCode::OK, "{method} {path}");
            let headers = answer.headers();
            assert_eq!(headers["grpc-status"], "12", "{method} {path}");
            assert_eq!(headers["content-type"], "application/grpc", "{path}");
            assert!(http_body::Body::is_end_stream(answer.body()), "{path}");
        }
    }
}

// spec: HUB-4-6
#[tokio::test]
async fn a_connection_keeps_few_unfinished_messages() {
    const BYTES: u32 = 100_000;
    let config = ServerConfig::default().with_max_control_message_bytes(BYTES as usize);
    let hub = serve(([127, 0, 0, 1], 0).into(), config).await.unwrap();
    let mut body = [&[0][..], &BYTES.to_be_bytes()].concat();
    body.resize(90_000, 0);
    let register = |mut channel: tonic::transport::Channel| {
        let body = tonic::body::Body::new(Begun(Some(body.clone().into())));
        let request = http::Request::post(format!("{}/uap.v1.AgentHub/Register", hub.url()))
            .header("content-type", "application/grpc")
            .body(body)
            .unwrap();
        async move {
            std::future::poll_fn(|cx| channel.poll_ready(cx))
                .await
                .unwrap();
            channel.call(request).await.unwrap()
        }
    };
    let endpoint = tonic::transport::Channel::from_shared(hub.url()).unwrap();
    let crowded = endpoint.connect().await.unwrap();
    let mut calls: JoinSet<_> = (0..5).map(|_| register(crowded.clone())).collect();
    let refused = within(calls.join_next()).await.unwrap().unwrap();
    assert_eq!(refused.headers()["grpc-status"], "8");
    let mut other = AgentHubClient::new(endpoint.connect().await.unwrap());
    within(other.register(AgentRegistration::default()))
        .await
        .unwrap();
    // What was refused is given back: the four others go on.
    assert_eq!(calls.len(), 4);
    let mut client = AgentHubClient::new(crowded);
    within(client.register(AgentRegistration::default()))
        .await
        .unwrap();
}

/// The session of a job that an agent has accepted, and its control stream.
pub(crate) async fn accepted(
    client: &mut AgentHubClient<tonic::transport::Channel>,
) -> (
    String,
    mpsc::Sender<ListenRequest>,
    tonic::Streaming<ListenResponse>,
) {
    let capabilities = vec![Skill::test("t").into()];
    let registration = AgentRegistration {
        display_name: "a".into(),
        capabilities,
    };
    let id = client
        .register(registration)
        .await
        .unwrap()
        .into_inner()
        .client_id;
    let (answers, messages) = mpsc::channel(4);
    let mut request = tonic::Request::new(ReceiverStream::new(messages));
    (request.metadata_mut()).insert(CLIENT_ID_KEY, id.parse().unwrap());
    let mut listening = client.listen(request).await.unwrap().into_inner();
    loop {
        let message = within(listening.message()).await.unwrap().unwrap();
        match message.event {
            Some(listen_response::Event::SessionProposal(proposal)) => {
                let acceptance = SessionAcceptance {
                    session_id: proposal.session_id,
                    accepted: true,
                    reason: String::new(),
                };
                let event = Some(listen_request::Event::SessionAcceptance(acceptance));
                answers.send(ListenRequest { event }).await.unwrap();
            }
            Some(listen_response::Event::SessionReady(ready)) => {
                return (ready.session_id, answers, listening);
            }
            None => {}
        }
    }
}

/// An HTTP/2 frame on the stream 1 (on the connection for settings), written by hand.
fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let stream = u8::from(kind != SETTINGS);
    [&length[..], &[kind, flags, 0, 0, 0, stream], payload].concat()
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;

/// A session opened by hand, after the hub's first message on it: the client libraries do not say how they end a call.
async fn session_by_hand(hub: &str, session: &str) -> TcpStream {
    let address = hub.trim_start_matches("http://");
    let mut socket = TcpStream::connect(address).await.unwrap();
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/uap.v1.AgentHub/Execute"),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        (SESSION_ID_KEY, session),
    ];
    let mut block = vec![];
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap());
            block.extend(text.bytes());
        }
    }
    let opening = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(SETTINGS, 0, &[]),
        frame(HEADERS, 4, &block),
    ];
    socket.write_all(&opening.concat()).await.unwrap();
    loop {
        let mut head = [0; 9];
        within(socket.read_exact(&mut head)).await.unwrap();
        let [a, b, c, kind, ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        within(socket.read_exact(&mut payload)).await.unwrap();
        if kind == DATA {
            return socket;
        }
    }
}

// spec: HUB-4-7
#[tokio::test]
async fn a_cancelled_session_is_told_from_one_that_was_closed() {
    let reset = frame(RST_STREAM, 0, &8_u32.to_be_bytes());
    let half_close = frame(DATA, 1, &[]);
    for (ending, words) in [
        (reset, "Stream error: the call was cancelled"),
        (half_close, "stream closed without result"),
    ] {
        let hub = serve(([127, 0, 0, 1], 0).into(), ServerConfig::default());
        let hub = hub.await.unwrap();
        let mut client = AgentHubClient::connect(hub.url()).await.unwrap();
        let job = hub.submit(hub::Job::test("t", vec![])).unwrap();
        let (session, _answers, _listening) = accepted(&mut client).await;
        let mut socket = session_by_hand(&hub.url(), &session).await;
        socket.write_all(&ending).await.unwrap();
        assert_eq!(within(job.outcome()).await.message, words);
    }
}

// spec: HUB-4-6
#[tokio::test]
async fn connections_are_bounded_and_their_places_come_back() {
    let config = ServerConfig::default().with_max_connections(1);
    let hub = serve(([127, 0, 0, 1], 0).into(), config).await.unwrap();
    let first = TcpStream::connect(hub.local_addr()).await.unwrap();
    let mut second = TcpStream::connect(hub.local_addr()).await.unwrap();
    let read = within(second.read(&mut [0; 64])).await;
    assert!(
        matches!(read, Ok(0) | Err(_)),
        "closed without a word: {read:?}"
    );
    drop(first);
    let registered = async {
        loop {
            if let Ok(mut client) = AgentHubClient::connect(hub.url()).await
                && client.register(AgentRegistration::default()).await.is_ok()
            {
                return;
            }
        }
    };
    within(registered).await;
}

/// How HTTP/2 begins, with settings that set nothing.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";

/// How long a connection may make no call: a busy machine makes one in that time.
const SHORT: Duration = Duration::from_secs(1);

/// Reads until the other side closes.
async fn closed(mut socket: TcpStream) {
    while within(socket.read(&mut [0; 64])).await.is_ok_and(|n| n > 0) {}
}

// spec: HUB-4-6
#[tokio::test]
async fn a_connection_that_makes_no_call_is_closed() {
    let config = ServerConfig::default().with_first_call_timeout(SHORT);
    let hub = serve(([127, 0, 0, 1], 0).into(), config).await.unwrap();
    let mut client = within(called(&hub.url())).await;
    hub.submit(hub::Job::test("t", vec![])).unwrap();
    let (_session, _answers, mut listening) = accepted(&mut client).await;
    closed(TcpStream::connect(hub.local_addr()).await.unwrap()).await;
    let mut begun = TcpStream::connect(hub.local_addr()).await.unwrap();
    begun.write_all(PREFACE).await.unwrap();
    closed(begun).await;
    let agents = hub.agents();
    assert!(agents.iter().any(|agent| agent.is_available), "it called");
    let quiet = tokio::time::timeout(SHORT * 2, listening.message());
    assert!(quiet.await.is_err());
}

/// A client whose connection has made a call in time, on a machine as slow as it may be.
async fn called(hub: &str) -> AgentHubClient<tonic::transport::Channel> {
    loop {
        if let Ok(mut client) = AgentHubClient::connect(hub.to_owned()).await
            && client.register(AgentRegistration::default()).await.is_ok()
        {
            return client;
        }
    }
}

// spec: HUB-4-6
#[tokio::test]
async fn a_connection_that_makes_no_more_calls_is_closed() {
    let config = ServerConfig::default()
        .with_max_connections(2)
        .with_first_call_timeout(SHORT)
        .with_idle_timeout(SHORT);
    let hub = serve(([127, 0, 0, 1], 0).into(), config).await.unwrap();
    let mut busy = within(called(&hub.url())).await;
    hub.submit(hub::Job::test("t", vec![])).unwrap();
    let (_session, _answers, mut listening) = accepted(&mut busy).await;
    let _idle = within(called(&hub.url())).await;
    // There is a place for it when the idle one is closed.
    within(called(&hub.url())).await;
    let quiet = tokio::time::timeout(SHORT * 2, listening.message());
    assert!(quiet.await.is_err(), "a call that is open keeps its own");
}

// spec: HUB-4-6, HUB-6-3
#[tokio::test]
async fn a_place_is_not_kept_by_calls_that_anybody_can_make() {
    let config = ServerConfig::default()
        .with_max_connections(1)
        .with_first_call_timeout(SHORT)
        .with_authorize(|caller| async move {
            let denied = || Denied::Unauthenticated("who are you".to_owned());
            caller.bearer_token().map(Into::into).ok_or_else(denied)
        });
    let hub = serve(([127, 0, 0, 1], 0).into(), config).await.unwrap();
    let endpoint = tonic::transport::Channel::from_shared(hub.url()).unwrap();
    let next = async |call: &str| loop {
        let Ok(channel) = endpoint.connect().await else {
            continue;
        };
        let answer = match call {
            "health" => {
                let check = HealthCheckRequest::default();
                let checked = HealthClient::new(channel.clone()).check(check).await;
                checked.map(drop)
            }
            token => {
                let mut request = tonic::Request::new(AgentRegistration::default());
                let token = format!("Bearer {token}").parse().unwrap();
                if call != "denied" {
                    request.metadata_mut().insert("authorization", token);
                }
                let mut client = AgentHubClient::new(channel.clone());
                client.register(request).await.map(drop)
            }
        };
        match answer {
            Ok(()) => return channel,
            Err(status) if status.code() == Code::Unauthenticated => return channel,
            Err(_) => {}
        }
    };
    let _stranger = within(next("health")).await;
    let _denied = within(next("denied")).await;
    let _honest = within(next("sesame")).await;
}

// spec: HUB-4-6
#[tokio::test]
async fn an_address_has_so_many_connections_and_others_have_theirs() {
    let config = ServerConfig::default().with_max_connections_per_address(1);
    let hub = serve(([127, 0, 0, 1], 0).into(), config).await.unwrap();
    let mut client = AgentHubClient::connect(hub.url()).await.unwrap();
    client.register(AgentRegistration::default()).await.unwrap();
    closed(TcpStream::connect(hub.local_addr()).await.unwrap()).await;
    let other = tokio::net::TcpSocket::new_v4().unwrap();
    other.bind(([127, 0, 0, 2], 0).into()).unwrap();
    let mut other = other.connect(hub.local_addr()).await.unwrap();
    other.write_all(PREFACE).await.unwrap();
    let mut answer = [0; 9];
    within(other.read_exact(&mut answer)).await.unwrap();
    assert_eq!(answer[3], 4, "the hub's own settings");
}

// spec: HUB-4-6
#[tokio::test]
async fn a_message_of_very_many_parts_is_refused() {
    let hub = serve(([127, 0, 0, 1], 0).into(), ServerConfig::default());
    let hub = hub.await.unwrap();
    let mut client = AgentHubClient::connect(hub.url()).await.unwrap();
    let job = hub.submit(hub::Job::test("t", vec![])).unwrap();
    let (session, _answers, _listening) = accepted(&mut client).await;
    let mut result = TestResult::completed("done");
    result.attachments = vec![Attachment::default(); 300_000];
    let result = TestResponse {
        event: Some(test_response::Event::Result(result)),
        ..TestResponse::default()
    };
    let sent = tokio_stream::once(result).chain(tokio_stream::pending());
    let mut request = tonic::Request::new(sent);
    (request.metadata_mut()).insert(SESSION_ID_KEY, session.parse().unwrap());
    let mut inits = client.execute(request).await.unwrap().into_inner();
    assert!(within(inits.message()).await.unwrap().is_some());
    let refused = within(inits.message()).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    assert_eq!(within(job.outcome()).await.verdict, hub::Verdict::Failed);
}
