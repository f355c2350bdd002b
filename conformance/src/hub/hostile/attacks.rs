//! What strangers do to a hub.

use std::{
    convert::Infallible,
    future::poll_fn,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use prost::Message as _;
use tokio::{io::AsyncWriteExt as _, net::TcpStream, task::JoinSet};
use tokio_stream::StreamExt as _;
use tonic::{
    Request,
    codegen::{Bytes, Service as _, http},
    transport::{Channel, Endpoint},
};
use uap_hub_proto::{
    role::{CLIENT_ID_KEY, SESSION_ID_KEY},
    wire::{
        AgentRegistration, Capability, ListenRequest, PayloadRequirement, SessionAcceptance,
        TestCapability, TestResponse, agent_hub_client::AgentHubClient, capability::Format,
        listen_request,
    },
};

/// Connections of an attack.
const CONNECTIONS: usize = 8;
/// Calls at once on a connection.
const CALLS: usize = 32;
/// Connections that stay silent.
const SILENT: usize = 2_000;

/// One kind of attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Attack {
    /// Registrations of 1 MiB that are never sent to their end.
    UnfinishedRegistrations,
    /// Registrations with as many requirements as may be.
    LargeRegistrations,
    /// Agents that register one after the other and never listen.
    NamesWithoutListening,
    /// Client ids and session ids that are guessed.
    GuessedIds,
    /// Answers to offers that were never made.
    StrayAnswers,
    /// Control messages that begin and do not go on.
    UnfinishedMessages,
    /// Calls that are dropped as soon as they are made.
    DroppedCalls,
    /// Connections that send nothing.
    SilentConnections,
    /// Connections that send what is not HTTP/2.
    Garbage,
}

impl Attack {
    /// All attacks, in the order in which they run.
    pub const ALL: [Self; 9] = [
        Self::UnfinishedRegistrations,
        Self::LargeRegistrations,
        Self::NamesWithoutListening,
        Self::GuessedIds,
        Self::StrayAnswers,
        Self::UnfinishedMessages,
        Self::DroppedCalls,
        Self::SilentConnections,
        Self::Garbage,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::UnfinishedRegistrations => "unfinished registrations",
            Self::LargeRegistrations => "large registrations",
            Self::NamesWithoutListening => "names without listening",
            Self::GuessedIds => "guessed ids",
            Self::StrayAnswers => "stray answers",
            Self::UnfinishedMessages => "unfinished messages",
            Self::DroppedCalls => "dropped calls",
            Self::SilentConnections => "silent connections",
            Self::Garbage => "garbage",
        }
    }

    /// Runs it for a time; how often it did what it does.
    pub(super) async fn run(self, target: Target, time: Duration) -> u64 {
        let attempts = Arc::new(AtomicU64::new(0));
        let mut workers = JoinSet::new();
        let (connections, calls) = match self {
            Self::SilentConnections => (1, 1),
            Self::Garbage | Self::StrayAnswers => (CONNECTIONS, 1),
            _ => (CONNECTIONS, CALLS),
        };
        for _ in 0..connections {
            let channel = target.endpoint.connect_lazy();
            for _ in 0..calls {
                let (target, channel) = (target.clone(), channel.clone());
                let attempts = attempts.clone();
                workers.spawn(async move {
                    loop {
                        self.once(&target, channel.clone(), &attempts).await;
                        // A hub that refuses at once must not be what keeps this process busy.
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                });
            }
        }
        tokio::time::sleep(time).await;
        workers.shutdown().await;
        attempts.load(Ordering::Relaxed)
    }

    async fn once(self, target: &Target, channel: Channel, attempts: &AtomicU64) {
        let count = || attempts.fetch_add(1, Ordering::Relaxed);
        let mut client = AgentHubClient::new(channel.clone());
        match self {
            Self::UnfinishedRegistrations => {
                count();
                target.call(channel, "Register", None, unfinished()).await;
            }
            Self::LargeRegistrations => {
                count();
                target.call(channel, "Register", None, target.large()).await;
            }
            Self::NamesWithoutListening => {
                count();
                let _ = client.register(AgentRegistration::default()).await;
            }
            Self::GuessedIds => {
                let guess = format!("00000000-0000-4000-8000-{:012x}", count());
                let _ = client.listen(with(CLIENT_ID_KEY, &guess)).await;
                let guess = format!("JOB-{guess}");
                let _ = client.execute(sessions(&guess)).await;
            }
            Self::StrayAnswers => stray_answers(client, attempts).await,
            Self::UnfinishedMessages => {
                count();
                if let Ok(answer) = client.register(AgentRegistration::default()).await {
                    let id = answer.into_inner().client_id;
                    target
                        .call(channel, "Listen", Some(&id), unfinished())
                        .await;
                }
            }
            Self::DroppedCalls => {
                count();
                let call = target.call(channel, "Register", None, target.large());
                let _ = tokio::time::timeout(Duration::ZERO, call).await;
            }
            Self::SilentConnections => target.silent(attempts).await,
            Self::Garbage => {
                count();
                if let Some(mut stream) = target.connect().await {
                    let _ = stream.write_all(&[0x5A; 64 << 10]).await;
                }
            }
        }
    }
}

/// The hub that is attacked.
#[derive(Clone, Debug)]
pub(super) struct Target {
    endpoint: Endpoint,
    /// A large registration, as it goes over the wire.
    large: Bytes,
}

impl Target {
    pub(super) fn new(endpoint: Endpoint) -> Self {
        let message = large().encode_to_vec();
        let large = [&[0][..], &length(message.len()), &message].concat().into();
        Self { endpoint, large }
    }

    fn large(&self) -> Body {
        Body {
            bytes: Some(self.large.clone()),
            ends: true,
        }
    }

    /// A bare connection.
    async fn connect(&self) -> Option<TcpStream> {
        let uri = self.endpoint.uri();
        let (host, port) = (uri.host()?, uri.port_u16().unwrap_or(80));
        TcpStream::connect((host.trim_matches(['[', ']']), port))
            .await
            .ok()
    }

    /// Opens connections, and keeps them.
    async fn silent(&self, attempts: &AtomicU64) {
        let mut kept = Vec::new();
        while kept.len() < SILENT {
            attempts.fetch_add(1, Ordering::Relaxed);
            match self.connect().await {
                Some(stream) => kept.push(stream),
                None => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
        std::future::pending().await
    }

    /// Makes a call with this body, and waits for its end.
    async fn call(&self, mut channel: Channel, call: &str, id: Option<&str>, body: Body) {
        let uri = format!("{}uap.v1.AgentHub/{call}", self.endpoint.uri());
        let mut request = http::Request::post(uri).header("content-type", "application/grpc");
        if let Some(id) = id {
            request = request.header(CLIENT_ID_KEY, id);
        }
        let Ok(request) = request.body(tonic::body::Body::new(body)) else {
            return;
        };
        if poll_fn(|cx| channel.poll_ready(cx)).await.is_ok()
            && let Ok(answer) = channel.call(request).await
        {
            let mut body = answer.into_body();
            while let Some(Ok(_)) =
                poll_fn(|cx| http_body::Body::poll_frame(Pin::new(&mut body), cx)).await
            {
            }
        }
    }
}

/// Some bytes, and then the end, or nothing for ever.
struct Body {
    bytes: Option<Bytes>,
    ends: bool,
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        match self.bytes.take() {
            Some(bytes) => Poll::Ready(Some(Ok(http_body::Frame::data(bytes)))),
            None if self.ends => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

/// A message of 1 MiB that lacks its last byte.
fn unfinished() -> Body {
    const BYTES: usize = 1 << 20;
    let mut body = [&[0][..], &length(BYTES)].concat();
    body.resize(body.len() + BYTES - 1, 0);
    Body {
        bytes: Some(body.into()),
        ends: false,
    }
}

/// The length of a message, as it goes before it.
fn length(bytes: usize) -> [u8; 4] {
    u32::try_from(bytes).unwrap_or(u32::MAX).to_be_bytes()
}

fn with(name: &'static str, id: &str) -> Request<tokio_stream::Pending<ListenRequest>> {
    let mut request = Request::new(tokio_stream::pending());
    if let Ok(id) = id.parse() {
        request.metadata_mut().insert(name, id);
    }
    request
}

fn sessions(id: &str) -> Request<tokio_stream::Pending<TestResponse>> {
    let (metadata, extensions, _) = with(SESSION_ID_KEY, id).into_parts();
    Request::from_parts(metadata, extensions, tokio_stream::pending())
}

/// Registers, listens, and answers offers that nobody made until the hub ends the call.
async fn stray_answers(mut client: AgentHubClient<Channel>, attempts: &AtomicU64) {
    let Ok(answer) = client.register(AgentRegistration::default()).await else {
        return;
    };
    let id = answer.into_inner().client_id;
    let (sender, answers) = tokio::sync::mpsc::channel(64);
    let (metadata, extensions, _) = with(CLIENT_ID_KEY, &id).into_parts();
    let answers = tokio_stream::wrappers::ReceiverStream::new(answers);
    let request = Request::from_parts(metadata, extensions, answers);
    let Ok(mut listening) = client
        .listen(request)
        .await
        .map(tonic::Response::into_inner)
    else {
        return;
    };
    let flood = async {
        loop {
            let number = attempts.fetch_add(1, Ordering::Relaxed);
            let answer = SessionAcceptance {
                session_id: format!("JOB-{number}-{}", "x".repeat(1_000)),
                accepted: true,
                reason: String::new(),
            };
            let event = Some(listen_request::Event::SessionAcceptance(answer));
            if sender.send(ListenRequest { event }).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = flood => {}
        () = async { while let Some(Ok(_)) = listening.next().await {} } => {}
    }
}

/// A registration of just under 1 MiB, of many skills with many requirements each.
fn large() -> AgentRegistration {
    let requirement = |n: usize| PayloadRequirement {
        r#type: format!("payload-{n}"),
        is_required: true,
        is_repeatable: false,
        accepted_mime_types: (0..16).map(|m| format!("a/{n}-{m}")).collect(),
    };
    let payloads: Vec<_> = (0..256).map(requirement).collect();
    let capability = |n: usize| Capability {
        format: Some(Format::Test(TestCapability {
            r#type: format!("skill-{n}"),
            payloads: payloads.clone(),
        })),
    };
    let most = 1_000_000 / capability(0).encoded_len();
    AgentRegistration {
        display_name: "large".to_owned(),
        capabilities: (0..most).map(capability).collect(),
    }
}
