//! Attacks of agents that take jobs.

use std::time::Duration;

use tokio::{sync::mpsc, task::JoinSet};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Streaming};
use uap_hub_proto::{
    role::{CLIENT_ID_KEY, RESUME_KEY, Resume, SESSION_ID_KEY},
    wire::{
        AgentRegistration, Capability, ListenRequest, ListenResponse, Payload, PayloadRequirement,
        SessionAcceptance, TestCapability, TestResponse, capability::Format,
        listen_request::Event as Said, listen_response::Event,
    },
};

use super::{
    client::Client,
    feed::{Feed, SKILL},
    target::{Body, EXECUTE, Target, silence, with},
};

/// How often an ended session is asked for by somebody else.
const ASKED: usize = 32;
/// Sessions of an agent whose messages stop.
const STOPPED: usize = 16;
/// Agents of a connection whose messages stop.
const AGENTS: usize = 8;
/// Bytes of a job that is not read, and how often each is opened.
const UNREAD_BYTES: usize = 1 << 20;
const OPENINGS: u64 = 64;
/// The pause between two jobs.
const PAUSE: Duration = Duration::from_millis(1);
/// Payload types that an agent asks about, and MIME types of each.
const KINDS: u64 = 200;
const MIME_TYPES: u64 = 50;

/// Takes jobs, ends them at once, and asks for their sessions as somebody else.
pub(super) async fn ended_sessions(
    target: &Target,
    feed: &Feed,
    count: impl Fn() -> u64,
) -> Option<()> {
    let mut taker = Taker::start(target.client(), SKILL, Vec::new()).await?;
    let mut other = target.other();
    loop {
        feed.give(Vec::new()).await;
        let session = taker.ready().await?;
        let ends = tokio_stream::empty::<TestResponse>();
        if let Ok(opened) = taker.client.execute(of_session(&session, ends)).await {
            let mut opened = opened.into_inner();
            while let Ok(Some(_)) = opened.message().await {}
        }
        for _ in 0..ASKED {
            count();
            let ends = tokio_stream::empty::<TestResponse>();
            let code = match other.execute(of_session(&session, ends)).await {
                Ok(opened) => {
                    let first = opened.into_inner().message().await;
                    first.map_or_else(|status| status.code(), |_| Code::Ok)
                }
                Err(status) => status.code(),
            };
            if matches!(code, Code::Ok | Code::FailedPrecondition) {
                target.tell_breach();
            }
        }
    }
}

/// Takes jobs, and sends of each session a message that stops in the middle.
pub(super) async fn stopped_messages(
    target: &Target,
    feed: &Feed,
    count: impl Fn() -> u64,
) -> Option<()> {
    let mut open = JoinSet::new();
    for _ in 0..AGENTS {
        let channel = target.channel();
        let mut taker = Taker::start(target.client_on(channel.clone()), SKILL, Vec::new()).await?;
        for _ in 0..STOPPED {
            feed.give(Vec::new()).await;
            let session = taker.ready().await?;
            count();
            let (target, channel) = (target.clone(), channel.clone());
            open.spawn(async move {
                let id = Some((SESSION_ID_KEY, session.as_str()));
                let (body, _held) = Body::unfinished(&target.unfinished_report);
                target.call(channel, EXECUTE, id, body).await;
            });
        }
        let target = target.clone();
        open.spawn(async move {
            let _running = target;
            while taker.ready().await.is_some() {}
        });
    }
    while open.join_next().await.is_some() {}
    None
}

/// Takes large jobs, and opens the stream of each again and again, as if the last were lost; it reads none and keeps all. Where
/// the hub resumes no sessions each is opened once.
pub(super) async fn unread_jobs(
    target: &Target,
    feed: &Feed,
    count: impl Fn() -> u64,
) -> Option<()> {
    let mut taker = Taker::start(target.client(), SKILL, Vec::new()).await?;
    let mut unread = Vec::new();
    loop {
        let large = Payload::file("large", "l", "text/plain", "x".repeat(UNREAD_BYTES));
        feed.give(vec![large]).await;
        let session = taker.ready().await?;
        // A connection whose window is full takes nothing else.
        let mut opener = target.client();
        for opening in 1..=OPENINGS {
            count();
            let (held, silence) = silence::<TestResponse>();
            let mut request = of_session(&session, silence);
            let resume = Resume::Job(opening).to_value().parse().ok()?;
            request.metadata_mut().insert(RESUME_KEY, resume);
            match opener.execute(request).await {
                Ok(opened) => unread.push((held, opened)),
                Err(_) => break,
            }
        }
    }
}

/// Registers agents that ask about very much, and jobs each of another shape, which they refuse.
pub(super) async fn many_shapes(
    target: &Target,
    feed: &Feed,
    count: impl Fn() -> u64,
) -> Option<()> {
    let worker = count();
    let requirement = |kind: u64| PayloadRequirement {
        r#type: format!("kind-{kind}"),
        is_required: false,
        is_repeatable: true,
        accepted_mime_types: (0..MIME_TYPES)
            .map(|mime| format!("m/{worker}-{mime}"))
            .collect(),
    };
    let requirements = (0..KINDS).map(requirement).collect();
    let mut taker = Taker::start(target.client(), SKILL, requirements).await?;
    loop {
        tokio::select! {
            said = taker.listening.message() => {
                if let Some(Event::SessionProposal(offer)) = said.ok()??.event {
                    taker.answer(offer.session_id, false).await?;
                }
            }
            () = tokio::time::sleep(PAUSE) => {
                let number = count();
                let mime = format!("m/{worker}-{}", number % MIME_TYPES);
                let kind = format!("kind-{}", number % (2 * KINDS));
                let odd = Payload::file(format!("odd-{number}"), "o", "o/o", "x");
                feed.give(vec![Payload::file(kind, "k", mime, "x"), odd]).await;
            }
        }
    }
}

/// An agent that takes every job.
pub(super) struct Taker {
    pub(super) client: Client,
    answers: mpsc::Sender<ListenRequest>,
    listening: Streaming<ListenResponse>,
}

impl Taker {
    /// Registers for tests of a type, and listens.
    pub(super) async fn start(
        mut client: Client,
        skill: &str,
        payloads: Vec<PayloadRequirement>,
    ) -> Option<Self> {
        let test = TestCapability {
            r#type: skill.to_owned(),
            payloads,
        };
        let capability = Capability {
            format: Some(Format::Test(test)),
        };
        let registration = AgentRegistration {
            display_name: skill.to_owned(),
            capabilities: vec![capability],
        };
        let id = client.register(registration).await.ok()?.into_inner();
        let (answers, stream) = mpsc::channel(64);
        let request = with(CLIENT_ID_KEY, &id.client_id, ReceiverStream::new(stream));
        let listening = client.listen(request).await.ok()?.into_inner();
        Some(Self {
            client,
            answers,
            listening,
        })
    }

    async fn answer(&self, session_id: String, accepted: bool) -> Option<()> {
        let answer = SessionAcceptance {
            session_id,
            accepted,
            reason: String::new(),
        };
        let event = Some(Said::SessionAcceptance(answer));
        self.answers.send(ListenRequest { event }).await.ok()
    }

    /// Accepts all offers, and gives the next session that is ready.
    pub(super) async fn ready(&mut self) -> Option<String> {
        loop {
            match self.listening.message().await.ok()??.event {
                Some(Event::SessionProposal(offer)) => self.answer(offer.session_id, true).await?,
                Some(Event::SessionReady(ready)) => return Some(ready.session_id),
                _ => {}
            }
        }
    }
}

/// The opening of a session's stream.
pub(super) fn of_session<S>(id: &str, reports: S) -> Request<S> {
    with(SESSION_ID_KEY, id, reports)
}
