//! What strangers do to a hub.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{io::AsyncWriteExt as _, task::JoinSet};
use tokio_stream::StreamExt as _;
use tonic::transport::Channel;
use uap_hub_proto::{
    role::{CLIENT_ID_KEY, SESSION_ID_KEY},
    wire::{
        AgentRegistration, ListenRequest, SessionAcceptance, TestResponse, capability::Format,
        listen_request,
    },
};

use super::{
    client::Client,
    jobs,
    target::{Body, CHECK, LISTEN, REGISTER, Target, silence, with},
};

/// Connections of an attack.
const CONNECTIONS: usize = 8;
/// Calls at once on a connection.
const CALLS: usize = 32;
/// Agents that a call registers and has listen.
const LISTENING: usize = 7;
/// As many where they are to take all bytes, to the last.
const LISTENING_FOR_BYTES: usize = 100;
/// How long a call waits that found the hub full.
const FULL: Duration = Duration::from_millis(100);

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
    /// Agents that register with as many requirements as may be and listen, as many as the hub takes.
    RegisteredBytes,
    /// Connections that ask about the hub's health now and then, and nothing else.
    HealthCallsAlone,
    /// Connections that want answers without end, and read none.
    UnreadAnswers,
    /// Sessions that ended, asked for by somebody else. Needs jobs; with two tokens, whoever is not their agent must learn
    /// nothing of them.
    EndedSessions,
    /// Messages of sessions that stop in the middle. Needs jobs.
    StoppedMessages,
    /// Jobs each of another shape, for agents that ask about very much and refuse them. Needs jobs.
    ManyShapes,
    /// Large jobs whose streams are opened again and again, and never read. Needs jobs.
    UnreadJobs,
}

impl Attack {
    /// All attacks, in the order in which they run.
    pub const ALL: [Self; 19] = [
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
        Self::RegisteredBytes,
        Self::HealthCallsAlone,
        Self::UnreadAnswers,
        Self::EndedSessions,
        Self::StoppedMessages,
        Self::ManyShapes,
        Self::UnreadJobs,
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
            Self::RegisteredBytes => "registered bytes",
            Self::HealthCallsAlone => "health calls alone",
            Self::UnreadAnswers => "unread answers",
            Self::EndedSessions => "ended sessions",
            Self::StoppedMessages => "stopped messages",
            Self::ManyShapes => "many shapes",
            Self::UnreadJobs => "unread jobs",
        }
    }

    /// Whether it takes all places of its address, so that an honest agent needs another.
    pub(super) const fn fills_its_address(self) -> bool {
        matches!(
            self,
            Self::NamesThatListen
                | Self::SilentConnections
                | Self::RegisteredBytes
                | Self::HealthCallsAlone
        )
    }

    /// Whether it needs jobs of the hub.
    pub(super) const fn takes_jobs(self) -> bool {
        matches!(
            self,
            Self::EndedSessions | Self::StoppedMessages | Self::ManyShapes | Self::UnreadJobs
        )
    }

    /// Runs it until it is dropped, and counts how often it did what it does.
    pub(super) async fn run(self, target: Target, attempts: Arc<AtomicU64>) {
        let mut workers = JoinSet::new();
        let (connections, calls) = match self {
            Self::SilentConnections | Self::HealthCallsAlone => (1, 1),
            Self::Garbage
            | Self::UnreadAnswers
            | Self::StrayAnswers
            | Self::EmptyParts
            | Self::RegisteredBytes
            | Self::EndedSessions
            | Self::StoppedMessages
            | Self::ManyShapes
            | Self::UnreadJobs => (CONNECTIONS, 1),
            _ => (CONNECTIONS, CALLS),
        };
        for _ in 0..connections {
            let channel = target.channel();
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

    async fn once(self, target: &Target, channel: Channel, attempts: &Arc<AtomicU64>) {
        let count = || attempts.fetch_add(1, Ordering::Relaxed);
        let mut client = target.client_on(channel.clone());
        match self {
            Self::UnfinishedRegistrations => {
                let (body, _held) = Body::unfinished(&target.unfinished);
                called(target, channel, REGISTER, body, attempts).await;
            }
            Self::LargeRegistrations => {
                let body = Body::whole(&target.large);
                called(target, channel, REGISTER, body, attempts).await;
            }
            Self::NamesWithoutListening => {
                count();
                let _ = client.register(AgentRegistration::default()).await;
            }
            Self::NamesThatListen => {
                let name = AgentRegistration::default();
                names_that_listen(&mut client, &name, LISTENING, attempts).await;
            }
            Self::RegisteredBytes => {
                let (most, large) = (LISTENING_FOR_BYTES, &target.registration);
                names_that_listen(&mut client, large, most, attempts).await;
            }
            Self::HealthCallsAlone => target.health_calls(attempts).await,
            Self::EmptyParts => {
                count();
                target.empty_parts(channel).await;
            }
            Self::UnfinishedHealthChecks => {
                let (body, _held) = Body::unfinished(&target.unfinished_check);
                called(target, channel, CHECK, body, attempts).await;
            }
            Self::GuessedIds => {
                let number = count();
                guessed_ids(&mut client, number).await;
            }
            Self::StrayAnswers => stray_answers(client, attempts).await,
            Self::UnfinishedMessages => {
                count();
                unfinished_message(&mut client, target, channel).await;
            }
            Self::DroppedCalls => {
                let body = Body::whole(&target.large);
                let call = called(target, channel, REGISTER, body, attempts);
                let _ = tokio::time::timeout(Duration::ZERO, call).await;
            }
            Self::SilentConnections => target.silent(attempts).await,
            Self::Garbage => {
                count();
                if let Some(mut stream) = target.connect().await {
                    let _ = stream.write_all(&[0x5A; 64 << 10]).await;
                }
            }
            Self::UnreadAnswers => target.unread_answers(attempts).await,
            Self::EndedSessions | Self::StoppedMessages | Self::ManyShapes | Self::UnreadJobs => {
                self.take_jobs(target, attempts).await;
            }
        }
    }

    /// Attacks that need jobs. One that finds the hub full, or is ended by it, begins again.
    async fn take_jobs(self, target: &Target, attempts: &AtomicU64) {
        let Some(feed) = &target.feed else {
            return std::future::pending().await;
        };
        let count = || attempts.fetch_add(1, Ordering::Relaxed);
        let _ = match self {
            Self::EndedSessions => jobs::ended_sessions(target, feed, count).await,
            Self::StoppedMessages => jobs::stopped_messages(target, feed, count).await,
            Self::UnreadJobs => jobs::unread_jobs(target, feed, count).await,
            _ => jobs::many_shapes(target, feed, count).await,
        };
        tokio::time::sleep(FULL).await;
    }
}

/// Makes a call with this body.
async fn called(target: &Target, channel: Channel, call: &str, body: Body, attempts: &AtomicU64) {
    attempts.fetch_add(1, Ordering::Relaxed);
    target.call(channel, call, None, body).await;
}

/// Listens and opens a session by ids that nobody was given.
async fn guessed_ids(client: &mut Client, number: u64) {
    let guess = format!("00000000-0000-4000-8000-{number:012x}");
    let (_held, nothing) = silence::<ListenRequest>();
    let _ = client.listen(with(CLIENT_ID_KEY, &guess, nothing)).await;
    let guess = format!("JOB-{guess}");
    let (_held, nothing) = silence::<TestResponse>();
    let _ = client.execute(with(SESSION_ID_KEY, &guess, nothing)).await;
}

/// Registers, listens, and sends a message that begins and does not go on.
async fn unfinished_message(client: &mut Client, target: &Target, channel: Channel) {
    if let Ok(answer) = client.register(AgentRegistration::default()).await {
        let id = answer.into_inner().client_id;
        let id = Some((CLIENT_ID_KEY, id.as_str()));
        let (body, _held) = Body::unfinished(&target.unfinished);
        target.call(channel, LISTEN, id, body).await;
    }
}

/// Registers agents that listen, at most so many, and keeps them. Where there is no room for one, it takes what room there is.
async fn names_that_listen(
    client: &mut Client,
    registration: &AgentRegistration,
    most: usize,
    attempts: &AtomicU64,
) {
    let mut registration = registration.clone();
    let mut listening = Vec::new();
    while listening.len() < most {
        attempts.fetch_add(1, Ordering::Relaxed);
        match listens(client, &registration).await {
            Some(kept) => listening.push(kept),
            None if halve(&mut registration) => {}
            // Somebody may leave.
            None => tokio::time::sleep(FULL).await,
        }
    }
    std::future::pending().await
}

/// Registers and listens while what it gives is kept.
async fn listens(
    client: &mut Client,
    registration: &AgentRegistration,
) -> Option<impl Sized + use<>> {
    let answer = client.register(registration.clone()).await.ok()?;
    let id = answer.into_inner().client_id;
    let (held, nothing) = silence::<ListenRequest>();
    let opened = client
        .listen(with(CLIENT_ID_KEY, &id, nothing))
        .await
        .ok()?;
    Some((opened, held))
}

/// Leaves half of it out; gives whether there was anything to leave out.
fn halve(registration: &mut AgentRegistration) -> bool {
    let capabilities = &mut registration.capabilities;
    let payloads = capabilities.iter_mut().filter_map(|capability| {
        let Some(Format::Test(test)) = &mut capability.format else {
            return None;
        };
        Some(&mut test.payloads)
    });
    let mut halved = false;
    for payloads in payloads {
        match payloads.as_mut_slice() {
            [only] => {
                halved |= only.accepted_mime_types.len() > 1;
                let left = only.accepted_mime_types.len().div_ceil(2);
                only.accepted_mime_types.truncate(left);
            }
            many => {
                let left = many.len().div_ceil(2);
                halved |= left < payloads.len();
                payloads.truncate(left);
            }
        }
    }
    if halved {
        return true;
    }
    capabilities.pop().is_some()
}

/// Registers, listens, and answers offers that nobody made until the hub ends the call.
async fn stray_answers(mut client: Client, attempts: &AtomicU64) {
    let Ok(answer) = client.register(AgentRegistration::default()).await else {
        return;
    };
    let id = answer.into_inner().client_id;
    let (sender, answers) = tokio::sync::mpsc::channel(64);
    let answers = tokio_stream::wrappers::ReceiverStream::new(answers);
    let request = with(CLIENT_ID_KEY, &id, answers);
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
