//! What strangers do to a hub.

use std::{
    convert::Infallible,
    future::poll_fn,
    net::{IpAddr, Ipv4Addr},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use prost::Message as _;
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpSocket, TcpStream, lookup_host},
    task::JoinSet,
};
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
/// Connections that stay silent, more than one address should have.
const SILENT: usize = 2_000;
/// Agents that a call registers and has listen.
const LISTENING: usize = 7;
/// How long a call waits that found the hub full.
const FULL: Duration = Duration::from_millis(100);
/// Bytes of a message of many parts.
const PARTS: usize = 16 << 20;

const REGISTER: &str = "uap.v1.AgentHub/Register";
const LISTEN: &str = "uap.v1.AgentHub/Listen";
const EXECUTE: &str = "uap.v1.AgentHub/Execute";
const CHECK: &str = "grpc.health.v1.Health/Check";

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
    /// Agents that register and listen, as many as the hub takes.
    NamesThatListen,
    /// Messages of parts that are empty, which take much more memory than bytes.
    EmptyParts,
    /// Questions about the hub's health of 4 MiB that are never sent to their end.
    UnfinishedHealthChecks,
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
    pub const ALL: [Self; 12] = [
        Self::UnfinishedRegistrations,
        Self::LargeRegistrations,
        Self::NamesWithoutListening,
        Self::NamesThatListen,
        Self::EmptyParts,
        Self::UnfinishedHealthChecks,
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
            Self::NamesThatListen => "names that listen",
            Self::EmptyParts => "empty parts",
            Self::UnfinishedHealthChecks => "unfinished health checks",
            Self::GuessedIds => "guessed ids",
            Self::StrayAnswers => "stray answers",
            Self::UnfinishedMessages => "unfinished messages",
            Self::DroppedCalls => "dropped calls",
            Self::SilentConnections => "silent connections",
            Self::Garbage => "garbage",
        }
    }

    /// Whether it takes all places of its address, so that an honest agent needs another.
    pub(super) const fn fills_its_address(self) -> bool {
        matches!(self, Self::NamesThatListen | Self::SilentConnections)
    }

    /// Runs it until it is dropped, and counts how often it did what it does.
    pub(super) async fn run(self, target: Target, attempts: Arc<AtomicU64>) {
        let mut workers = JoinSet::new();
        let (connections, calls) = match self {
            Self::SilentConnections => (1, 1),
            Self::Garbage | Self::StrayAnswers | Self::EmptyParts => (CONNECTIONS, 1),
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
        while workers.join_next().await.is_some() {}
    }

    async fn once(self, target: &Target, channel: Channel, attempts: &AtomicU64) {
        let count = || attempts.fetch_add(1, Ordering::Relaxed);
        let mut client = AgentHubClient::new(channel.clone());
        match self {
            Self::UnfinishedRegistrations => {
                count();
                let body = Body::unfinished(&target.unfinished);
                target.call(channel, REGISTER, None, body).await;
            }
            Self::LargeRegistrations => {
                count();
                let body = Body::whole(&target.large);
                target.call(channel, REGISTER, None, body).await;
            }
            Self::NamesWithoutListening => {
                count();
                let _ = client.register(AgentRegistration::default()).await;
            }
            Self::NamesThatListen => names_that_listen(&mut client, attempts).await,
            Self::EmptyParts => {
                count();
                target.empty_parts(channel).await;
            }
            Self::UnfinishedHealthChecks => {
                count();
                let body = Body::unfinished(&target.unfinished_check);
                target.call(channel, CHECK, None, body).await;
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
                    let id = Some((CLIENT_ID_KEY, id.as_str()));
                    let body = Body::unfinished(&target.unfinished);
                    target.call(channel, LISTEN, id, body).await;
                }
            }
            Self::DroppedCalls => {
                count();
                let body = Body::whole(&target.large);
                let call = target.call(channel, REGISTER, None, body);
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

/// The hub that is attacked, and messages as they go over the wire. They are shared, so that the attacker needs little memory.
#[derive(Clone, Debug)]
pub(super) struct Target {
    endpoint: Endpoint,
    address: Option<IpAddr>,
    large: Bytes,
    unfinished: Bytes,
    unfinished_check: Bytes,
    capabilities: Bytes,
    parts: Bytes,
}

impl Target {
    /// The hub at an endpoint, attacked from another address than an honest agent's if there is one.
    pub(super) fn new(endpoint: Endpoint, address: Option<IpAddr>) -> Self {
        let endpoint = endpoint.local_address(address);
        let unfinished = |bytes: usize| framed(bytes, &vec![0; bytes - 1]);
        let empty = |field: u8, bytes: usize| [field, 0].repeat(bytes / 2);
        // A result of attachments, in the response that it is in.
        let mut result = vec![0x22];
        let attachments = empty(0x22, PARTS);
        prost::encode_length_delimiter(attachments.len(), &mut result).unwrap_or_default();
        let parts = [result, attachments].concat();
        let capabilities = empty(0x12, 1 << 20);
        Self {
            endpoint,
            address,
            large: whole(&large().encode_to_vec()),
            unfinished: unfinished(1 << 20),
            unfinished_check: unfinished(4 << 20),
            capabilities: whole(&capabilities),
            parts: whole(&parts),
        }
    }

    /// A bare connection.
    async fn connect(&self) -> Option<TcpStream> {
        let uri = self.endpoint.uri();
        let (host, port) = (uri.host()?, uri.port_u16().unwrap_or(80));
        let mut found = lookup_host((host.trim_matches(['[', ']']), port))
            .await
            .ok()?;
        let hub = found.next()?;
        let socket = match hub {
            _ if self.address.is_none() => return TcpStream::connect(hub).await.ok(),
            std::net::SocketAddr::V4(_) => TcpSocket::new_v4(),
            std::net::SocketAddr::V6(_) => TcpSocket::new_v6(),
        };
        let socket = socket.ok()?;
        socket.bind((self.address?, 0).into()).ok()?;
        socket.connect(hub).await.ok()
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

    /// Sends a registration of empty capabilities, and a result of empty attachments to no session.
    async fn empty_parts(&self, channel: Channel) {
        let body = Body::whole(&self.capabilities);
        self.call(channel.clone(), REGISTER, None, body).await;
        let id = Some((SESSION_ID_KEY, "JOB-00000000-0000-4000-8000-000000000000"));
        let body = Body::whole(&self.parts);
        self.call(channel, EXECUTE, id, body).await;
    }

    /// Makes a call with this body, and waits for its end.
    async fn call(&self, mut channel: Channel, call: &str, id: Option<(&str, &str)>, body: Body) {
        let uri = format!("{}{call}", self.endpoint.uri());
        let mut request = http::Request::post(uri).header("content-type", "application/grpc");
        if let Some((name, id)) = id {
            request = request.header(name, id);
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

impl Body {
    fn whole(bytes: &Bytes) -> Self {
        Self {
            bytes: Some(bytes.clone()),
            ends: true,
        }
    }

    fn unfinished(bytes: &Bytes) -> Self {
        Self {
            bytes: Some(bytes.clone()),
            ends: false,
        }
    }
}

/// What comes of a message of a length, as it goes over the wire.
fn framed(length: usize, message: &[u8]) -> Bytes {
    let length = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    [&[0][..], &length, message].concat().into()
}

fn whole(message: &[u8]) -> Bytes {
    framed(message.len(), message)
}

/// Another address of this machine, for a hub at `host` that is on it.
pub(super) fn other_address(host: &str) -> Option<IpAddr> {
    let host: Ipv4Addr = host.parse().ok()?;
    host.is_loopback()
        .then(|| Ipv4Addr::new(127, 9, 9, 9).into())
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

/// Registers agents that listen, and keeps them.
async fn names_that_listen(client: &mut AgentHubClient<Channel>, attempts: &AtomicU64) {
    let mut listening = Vec::new();
    for _ in 0..LISTENING {
        attempts.fetch_add(1, Ordering::Relaxed);
        let Ok(answer) = client.register(AgentRegistration::default()).await else {
            break;
        };
        let id = answer.into_inner().client_id;
        listening.extend(client.listen(with(CLIENT_ID_KEY, &id)).await);
    }
    if listening.is_empty() {
        return tokio::time::sleep(FULL).await;
    }
    std::future::pending().await
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
