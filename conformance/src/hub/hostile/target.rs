//! The hub that is attacked, and what is sent to it.

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
    sync::mpsc,
    task::JoinSet,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Request,
    codegen::{Bytes, Service as _, http},
    transport::{Channel, Endpoint},
};
use uap_hub_proto::{
    role::SESSION_ID_KEY,
    wire::{AgentRegistration, Capability, PayloadRequirement, TestCapability, capability::Format},
};

use super::{
    client::{Client, Shown, client},
    feed::Feed,
};

/// Connections that stay silent, more than one address should have.
const SILENT: usize = 2_000;
/// The pause of a connection between two questions about health.
const BETWEEN_CHECKS: Duration = Duration::from_secs(1);
/// Bytes of a message of many parts.
const PARTS: usize = 16 << 20;

pub(super) const REGISTER: &str = "uap.v1.AgentHub/Register";
pub(super) const LISTEN: &str = "uap.v1.AgentHub/Listen";
pub(super) const EXECUTE: &str = "uap.v1.AgentHub/Execute";
pub(super) const CHECK: &str = "grpc.health.v1.Health/Check";

/// The hub that is attacked, and messages as they go over the wire. They are shared, so that the attacker needs little memory.
#[derive(Clone, Debug)]
pub(super) struct Target {
    endpoint: Endpoint,
    address: Option<IpAddr>,
    pub(super) large: Bytes,
    pub(super) unfinished: Bytes,
    pub(super) unfinished_check: Bytes,
    capabilities: Bytes,
    parts: Bytes,
    /// A message of a session, 4 MiB of 60.
    pub(super) unfinished_report: Bytes,
    check: Bytes,
    pub(super) registration: Arc<AgentRegistration>,
    /// What the attackers show, and what the honest agent shows.
    shown: [Shown; 2],
    pub(super) feed: Option<Feed>,
    /// Answers that tell somebody what is another's.
    breaches: Arc<AtomicU64>,
    /// Held by all tasks of an attack.
    running: Option<mpsc::Sender<Infallible>>,
}

impl Target {
    /// The hub at an endpoint, attacked from another address than an honest agent's if there is one.
    pub(super) fn new(
        endpoint: Endpoint,
        address: Option<IpAddr>,
        shown: [Shown; 2],
        feed: Option<Feed>,
    ) -> Self {
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
            unfinished_report: framed(60 << 20, &vec![0; 4 << 20]),
            check: whole(&[]),
            registration: Arc::new(heavy()),
            shown,
            feed,
            breaches: Arc::default(),
            running: None,
        }
    }

    /// The same for one attack, and what is closed when all its tasks have ended.
    pub(super) fn for_attack(&self) -> (Self, mpsc::Receiver<Infallible>) {
        let (running, ended) = mpsc::channel(1);
        let mut target = self.clone();
        target.running = Some(running);
        (target, ended)
    }

    /// A connection of its own.
    pub(super) fn channel(&self) -> Channel {
        self.endpoint.connect_lazy()
    }

    pub(super) fn client(&self) -> Client {
        self.client_on(self.channel())
    }

    pub(super) fn client_on(&self, channel: Channel) -> Client {
        let [own, _] = &self.shown;
        client(channel, own)
    }

    /// A client that is somebody else than the attackers.
    pub(super) fn other(&self) -> Client {
        let [_, other] = &self.shown;
        client(self.channel(), other)
    }

    /// Notes that somebody learned what is another's; without tokens nobody is another.
    pub(super) fn tell_breach(&self) {
        let [own, other] = &self.shown;
        if own.value() != other.value() {
            self.breaches.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Breaches since this was asked last.
    pub(super) fn take_breaches(&self) -> u64 {
        self.breaches.swap(0, Ordering::Relaxed)
    }

    /// Opens connections that ask about the hub's health now and then, and keeps them.
    pub(super) async fn health_calls(&self, attempts: &Arc<AtomicU64>) {
        let mut kept = JoinSet::new();
        for _ in 0..SILENT {
            let (target, attempts) = (self.clone(), Arc::clone(attempts));
            kept.spawn(async move {
                let channel = target.channel();
                loop {
                    attempts.fetch_add(1, Ordering::Relaxed);
                    let body = Body::whole(&target.check);
                    target.call(channel.clone(), CHECK, None, body).await;
                    tokio::time::sleep(BETWEEN_CHECKS).await;
                }
            });
        }
        while kept.join_next().await.is_some() {}
    }

    /// A bare connection.
    pub(super) async fn connect(&self) -> Option<TcpStream> {
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
    pub(super) async fn silent(&self, attempts: &AtomicU64) {
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

    /// Sends pings until the hub, whose answers nobody reads, takes no more; and then waits for the end of the connection.
    pub(super) async fn unread_answers(&self, attempts: &AtomicU64) {
        // An empty frame of settings, and a ping.
        const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        const PING: [u8; 17] = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        let Some(mut stream) = self.connect().await else {
            return;
        };
        let start = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &SETTINGS].concat();
        let pings = PING.repeat(1_000);
        let mut written = stream.write_all(&start).await;
        while written.is_ok() {
            attempts.fetch_add(1, Ordering::Relaxed);
            written = stream.write_all(&pings).await;
        }
    }

    /// Sends a registration of empty capabilities, and a result of empty attachments to no session.
    pub(super) async fn empty_parts(&self, channel: Channel) {
        let body = Body::whole(&self.capabilities);
        self.call(channel.clone(), REGISTER, None, body).await;
        let id = Some((SESSION_ID_KEY, "JOB-00000000-0000-4000-8000-000000000000"));
        let body = Body::whole(&self.parts);
        self.call(channel, EXECUTE, id, body).await;
    }

    /// Makes a call with this body, and waits for its end.
    pub(super) async fn call(
        &self,
        mut channel: Channel,
        call: &str,
        id: Option<(&str, &str)>,
        body: Body,
    ) {
        let uri = format!("{}{call}", self.endpoint.uri());
        let mut request = http::Request::post(uri).header("content-type", "application/grpc");
        if let Some((name, id)) = id {
            request = request.header(name, id);
        }
        let [own, _] = &self.shown;
        if let Some(token) = own.value() {
            request = request.header("authorization", token);
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

/// No messages, and the end when the other part is dropped. Of a call that is dropped the HTTP library sends the body to its end,
/// and keeps the connection as long.
pub(super) fn silence<T>() -> (mpsc::Sender<T>, ReceiverStream<T>) {
    let (held, silence) = mpsc::channel(1);
    (held, ReceiverStream::new(silence))
}

/// Some bytes, and then the end, or nothing while it is held.
pub(super) struct Body {
    bytes: Option<Bytes>,
    held: Option<mpsc::Receiver<Infallible>>,
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        let bytes = self.bytes.take();
        match (bytes, &mut self.held) {
            (Some(bytes), _) => Poll::Ready(Some(Ok(http_body::Frame::data(bytes)))),
            (None, Some(held)) => held.poll_recv(cx).map(|_| None),
            (None, None) => Poll::Ready(None),
        }
    }
}

impl Body {
    pub(super) fn whole(bytes: &Bytes) -> Self {
        Self {
            bytes: Some(bytes.clone()),
            held: None,
        }
    }

    /// A body that ends when the other part is dropped.
    pub(super) fn unfinished(bytes: &Bytes) -> (Self, mpsc::Sender<Infallible>) {
        let (holds, held) = mpsc::channel(1);
        let (bytes, held) = (Some(bytes.clone()), Some(held));
        (Self { bytes, held }, holds)
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

/// A call with an id in its metadata.
pub(super) fn with<S>(name: &'static str, id: &str, body: S) -> Request<S> {
    let mut request = Request::new(body);
    if let Ok(id) = id.parse() {
        request.metadata_mut().insert(name, id);
    }
    request
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

/// A registration that is valid, of as many entries as it may have.
fn heavy() -> AgentRegistration {
    let requirement = |n: usize| PayloadRequirement {
        r#type: format!("payload-{n}"),
        is_required: false,
        is_repeatable: false,
        accepted_mime_types: (0..20)
            .map(|m| format!("application/{n:020}-{m:020}"))
            .collect(),
    };
    let payloads: Vec<_> = (0..256).map(requirement).collect();
    let capability = |n: usize| Capability {
        format: Some(Format::Test(TestCapability {
            r#type: format!("skill-{n}"),
            payloads: payloads.clone(),
        })),
    };
    AgentRegistration {
        display_name: "heavy".to_owned(),
        capabilities: (0..3).map(capability).collect(),
    }
}
