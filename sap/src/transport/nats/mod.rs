//! A durable work queue on NATS JetStream: tasks survive the death of workers, and of the server.
//!
//! One queue is served by any number of equal workers. It has three streams, for a queue named `desk`:
//!
//! | stream | subject | what is there |
//! |---|---|---|
//! | `desk_tasks` | `desk.task`, `desk.task.<user>` | tasks, each until a worker has answered it |
//! | `desk_out` | `desk.out.<taskId>.<issuer>.{ack,progress,result,nack,attempt}` | what is said about a task; one result |
//! | | `desk.cancel.<taskId>.<issuer>`, `desk.cancel.<taskId>.<issuer>.<user>` | that a task is to be stopped |
//! | `desk_dead` | `desk.dead` | what could not be answered |
//!
//! A task is acknowledged after its result is stored, so a worker that is killed loses nothing: the task is
//! delivered again. One that has its result is not run again. A task that was begun
//! [`max_attempts`](Config::with_max_attempts) times without an end goes to the dead letters, and its result is FAILED,
//! `INTERNAL`. Where all places are taken a task is returned with a delay, which is no attempt. A copy of a task is given back
//! for as long as another delivery may be at it.
//!
//! An id belongs to the first task that is begun with it: `attempt` says which and how often, and each who writes it says
//! what it takes the place of, and that it is taken, where it goes on for longer than a busy delay. Another task of the
//! same id and issuer comes back until the first was taken, and is a Nack then; where the first is turned away, the other
//! gets the id. When a worker dies, the task keeps its id.
//!
//! A task is stopped by the user that published it, wherever it runs. One that waits ends CANCELLED when its turn
//! comes, without its handler. All that was said to stop it is looked at, in its order, so that nobody displaces what
//! another said.
//!
//! Ids are in the headers `X-Correlation-Id` and `Sap-Task-Id` as they are in the body; others are a Nack.
//! Results go to an endpoint of the task too, if it names one, and are stored for those who come again.
//!
//! A task on `desk.task.<user>` was published by that user, if the permissions of the NATS server let nobody else
//! publish there: workers hand the name on ([`Peer::nats_user`](crate::processor::Peer::nats_user)). In a subject an
//! issuer is the first 16 digits of the BLAKE3 digest of its id, for ids are an issuer's own.
//!
//! Streams alone are used, so that servers from 2.9 on will do.

mod cancel;
mod claim;
mod client;
mod job;
mod stop;
mod taken;
mod worker;

use core::future::Future;
use core::time::Duration;
use std::error::Error as _;

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::{PublishMessage, StreamMessage};
use async_nats::jetstream::stream::{
    Config as StreamConfig, DiscardPolicy, LastRawMessageError, LastRawMessageErrorKind,
    RetentionPolicy, Stream,
};
use async_nats::jetstream::{self, Context};
use bytes::Bytes;
use tokio::time::timeout;
use ubos_common::canon::Digest;
use ubos_common::trace_context::TraceContext;

use crate::ConfigError;
use crate::ident::{CorrelationId, TaskId};
use crate::lifecycle::body_digest;
use crate::processor::Peer;
use crate::role::producer;
use crate::transport::beside::{self, Beside, signed};
use crate::transport::waits::Waits;
use crate::work::{self, For};

/// Settings of a queue; all who open it should have the same.
///
/// | setting | default | at the bound |
/// |---|---|---|
/// | `name`, of streams and subjects: letters, digits, `-` and `_` | `sap` | |
/// | `user`, on whose subject tasks are sent: letters, digits, `-` and `_` | none | |
/// | `ack_wait`, for which a worker may be silent about a task | 30 s | another worker gets the task |
/// | `max_attempts` at a task | 5 | dead letter, and FAILED `INTERNAL` |
/// | `busy_delay`, after which a task comes back that could not be taken | 1 s | one whose time is over is turned away, `RATE_LIMIT` |
/// | `max_task_bytes`, of the tasks that wait | 1 GiB | a task cannot be sent |
/// | `max_said_bytes`, of what is said about tasks | 4 GiB | the oldest is removed; a task whose result is removed before it was acknowledged may run again |
///
/// These limits are fixed:
///
/// | limit | value | at the limit |
/// |---|---|---|
/// | tasks that wait | 100,000 | a task cannot be sent |
/// | dead letters | 64 MiB | the oldest is removed |
/// | tasks that one worker runs at the same time | 16 | it takes no more |
/// | a message with its headers | `max_payload` of the server, 1 MiB by default | a task cannot be sent; a part on the way is left out, and an end is FAILED, `UNPROCESSABLE`; the operator is [told](crate::transport::Service::on_warning); of a dead letter its digest is kept |
/// | how long messages about a task, and dead letters, are kept | 7 days | they are removed |
/// | how long a worker looks at what was said to stop a task, before it begins | 30 s | it looks at the rest while the task runs |
/// | how long it asks whether one of them may | 30 s | that one is passed over; it may be said again |
/// | how long one request waits for the server | the request timeout of the client, at least 10 s | the task comes again |
///
/// The server sets so much room aside when the queue is made, and refuses a queue that it has no room for. A stream that is there already keeps its own bounds.
#[derive(Clone, Debug)]
pub struct Config {
    name: String,
    user: Option<String>,
    ack_wait: Duration,
    max_attempts: u32,
    busy_delay: Duration,
    max_task_bytes: u64,
    max_said_bytes: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: "sap".into(),
            user: None,
            ack_wait: Duration::from_secs(30),
            max_attempts: 5,
            busy_delay: Duration::from_secs(1),
            max_task_bytes: 1 << 30,
            max_said_bytes: 4 << 30,
        }
    }
}

impl Config {
    /// Sets the name: letters, digits, `-` and `_`.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sends tasks on the subject of a user: letters, digits, `-` and `_`.
    #[must_use]
    pub fn with_user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// Sets how long a worker may be silent; at least 1 ms.
    #[must_use]
    pub const fn with_ack_wait(mut self, wait: Duration) -> Self {
        self.ack_wait = wait;
        self
    }

    /// Sets how often a task may be begun; at least once.
    #[must_use]
    pub const fn with_max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = attempts;
        self
    }

    /// Sets when a task comes back that could not be taken; at least 1 ms.
    #[must_use]
    pub const fn with_busy_delay(mut self, delay: Duration) -> Self {
        self.busy_delay = delay;
        self
    }

    /// Sets the bytes of the tasks that wait; at least one.
    #[must_use]
    pub const fn with_max_task_bytes(mut self, bytes: u64) -> Self {
        self.max_task_bytes = bytes;
        self
    }

    /// Sets the bytes of what is said about tasks; at least one.
    #[must_use]
    pub const fn with_max_said_bytes(mut self, bytes: u64) -> Self {
        self.max_said_bytes = bytes;
        self
    }

    fn check(&self) -> Result<(), ConfigError> {
        // The server reads 0 as no bound.
        ConfigError::at_least("max_task_bytes", self.max_task_bytes, 1)?;
        ConfigError::at_least("max_said_bytes", self.max_said_bytes, 1)?;
        let is_plain = |text: &str| {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
            !text.is_empty() && text.chars().all(is_plain)
        };
        ConfigError::require(
            is_plain(&self.name),
            "name",
            &self.name,
            "a queue is named with letters, digits, '-' and '_'",
        )?;
        ConfigError::require(
            self.user.as_deref().is_none_or(is_plain),
            "user",
            self.user.as_deref().unwrap_or_default(),
            "a user is named with letters, digits, '-' and '_'",
        )?;
        ConfigError::require(
            self.ack_wait >= Duration::from_millis(1),
            "ack_wait",
            self.ack_wait,
            "a worker needs at least 1 ms",
        )?;
        ConfigError::require(
            self.busy_delay >= Duration::from_millis(1),
            "busy_delay",
            self.busy_delay,
            "a task comes back after at least 1 ms",
        )?;
        ConfigError::require(
            self.max_attempts > 0,
            "max_attempts",
            self.max_attempts,
            "a task is begun at least once",
        )
    }
}

/// Tasks that wait.
const MAX_TASKS: i64 = 100_000;
/// Bytes of dead letters.
const MAX_DEAD_BYTES: i64 = 64 << 20;
/// Tasks that one worker runs at the same time.
const MAX_IN_FLIGHT: usize = 16;
/// How long a request waits at least: as long as the client waits to publish something and for it to be stored.
const MIN_PATIENCE: Duration = Duration::from_secs(10);
/// How long messages about a task, and dead letters, are kept.
const KEEP: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Why a queue does not work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// A setting is out of its range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The server, or the way to it, failed.
    #[error("nats failed")]
    Nats(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A message with its headers is longer than the server takes (`max_payload`).
    #[error("a message is longer than the server takes")]
    TooLong,
}

impl QueueError {
    fn nats(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Nats(error.into())
    }
}

/// A queue. Clones are one queue.
#[derive(Clone, Debug)]
pub struct Queue {
    context: Context,
    out: Stream,
    tasks: PullConsumer,
    config: Config,
    beside: Beside,
    waits: Waits,
}

impl Queue {
    /// Opens a queue, or makes it.
    ///
    /// # Errors
    ///
    /// [`QueueError`].
    pub async fn open(client: async_nats::Client, config: Config) -> Result<Self, QueueError> {
        config.check()?;
        let context = jetstream::new(client);
        let name = &config.name;
        let stream = |kind: &str, subject: &str| StreamConfig {
            name: format!("{name}_{kind}"),
            subjects: vec![format!("{name}.{subject}")],
            ..StreamConfig::default()
        };
        let bound = |bytes| i64::try_from(bytes).unwrap_or(i64::MAX);
        let tasks = StreamConfig {
            retention: RetentionPolicy::WorkQueue,
            discard: DiscardPolicy::New,
            max_messages: MAX_TASKS,
            max_bytes: bound(config.max_task_bytes),
            subjects: vec![format!("{name}.task"), format!("{name}.task.*")],
            ..stream("tasks", "task")
        };
        // What is new goes before what is old, for otherwise no task could end.
        let kept = |kind: &str, subject: &str, max_bytes| StreamConfig {
            max_age: KEEP,
            discard: DiscardPolicy::Old,
            max_bytes,
            ..stream(kind, subject)
        };
        let made = async |stream: StreamConfig| made(&context, stream).await;
        let mut out = kept("out", "out.>", bound(config.max_said_bytes));
        out.subjects.push(format!("{name}.cancel.>"));
        let (tasks, out) = (made(tasks).await?, made(out).await?);
        made(kept("dead", "dead", MAX_DEAD_BYTES)).await?;
        let consumer = pull::Config {
            durable_name: Some(format!("{name}_workers")),
            ack_policy: AckPolicy::Explicit,
            ack_wait: config.ack_wait,
            // Those that were given back count until they come again, and keep no others from their turn.
            max_ack_pending: MAX_TASKS,
            ..pull::Config::default()
        };
        let durable = format!("{name}_workers");
        let tasks = tasks.get_or_create_consumer(&durable, consumer).await;
        Ok(Self {
            tasks: tasks.map_err(QueueError::nats)?,
            context,
            out,
            config,
            beside: Beside::default(),
            waits: Waits::new(
                producer::Config::default()
                    .with_patience(KEEP, KEEP)
                    .with_default_time(KEEP),
            ),
        })
    }

    /// Sets the place in a trace that tasks are sent from: in the headers `traceparent` and `tracestate`, with all that is said
    /// of the task. A clone may have a place of its own.
    #[must_use]
    pub fn with_trace(mut self, trace: TraceContext) -> Self {
        self.beside.trace = Some(trace);
        self
    }

    /// Sets the key that signs tasks.
    #[cfg(feature = "sign")]
    #[must_use]
    pub fn with_signing_key(mut self, key: std::sync::Arc<crate::sign::SigningKey>) -> Self {
        self.beside.key = Some(key);
        self
    }

    /// Takes only results that their producer has signed with one of these keys.
    #[cfg(feature = "sign")]
    #[must_use]
    pub fn with_trusted_keys(mut self, keys: std::sync::Arc<crate::sign::Keys>) -> Self {
        self.beside.keys = Some(keys);
        self
    }

    /// Where something is said about a task. The issuer is empty where it cannot be read.
    fn subject(&self, task_id: &TaskId, issuer: &str, kind: &str) -> String {
        let issuer = issuer_digits(issuer);
        format!("{}.out.{task_id}.{issuer}.{kind}", self.config.name)
    }

    /// Where the user that published a task says that it is to be stopped.
    fn cancel_subject(&self, task_id: &TaskId, issuer: &str, user: Option<&str>) -> String {
        let issuer = issuer_digits(issuer);
        let subject = format!("{}.cancel.{task_id}.{issuer}", self.config.name);
        match user {
            Some(user) => format!("{subject}.{user}"),
            None => subject,
        }
    }

    /// Where tasks are sent.
    fn task_subject(&self) -> String {
        match &self.config.user {
            Some(user) => format!("{}.task.{user}", self.config.name),
            None => format!("{}.task", self.config.name),
        }
    }

    /// The last message on a subject.
    async fn last(&self, subject: &str) -> Result<Option<(HeaderMap, Vec<u8>)>, QueueError> {
        let last = self.last_stored(subject).await?;
        Ok(last.map(|message| (message.headers, message.payload.to_vec())))
    }

    /// The same with its number.
    async fn last_stored(&self, subject: &str) -> Result<Option<StreamMessage>, QueueError> {
        let last = self.out.get_last_raw_message_by_subject(subject);
        found(self.in_time(last).await?)
    }

    /// The first message on a subject that has this number or a later one.
    async fn stored_from(
        &self,
        subject: &str,
        number: u64,
    ) -> Result<Option<StreamMessage>, QueueError> {
        let first = self.out.get_first_raw_message_by_subject(subject, number);
        found(self.in_time(first).await?)
    }

    /// What comes of a request, for as long as the client waits for an answer, and at least 10 s. The client counts from when
    /// it could ask: without a bound of its own a request would wait for as long as the server is away.
    async fn in_time<T>(&self, request: impl Future<Output = T>) -> Result<T, QueueError> {
        let patience = self.context.client().timeout().unwrap_or(MIN_PATIENCE);
        let answer = timeout(patience.max(MIN_PATIENCE), request).await;
        answer.map_err(QueueError::nats)
    }

    /// Stores a message and waits until it is stored.
    async fn store(
        &self,
        subject: String,
        payload: Bytes,
        headers: HeaderMap,
    ) -> Result<(), QueueError> {
        let publish = PublishMessage::build().payload(payload).headers(headers);
        self.publish_stored(subject, publish).await.map(drop)
    }

    /// Stores a message behind the one of its subject that has this number, 0 where there is none. Gives its own
    /// number, and nothing where another is the last.
    async fn store_after(
        &self,
        last: u64,
        subject: String,
        payload: Bytes,
        headers: HeaderMap,
    ) -> Result<Option<u64>, QueueError> {
        let publish = PublishMessage::build().payload(payload).headers(headers);
        let publish = publish.expected_last_subject_sequence(last);
        self.publish_stored(subject, publish).await
    }

    async fn publish_stored(
        &self,
        subject: String,
        publish: PublishMessage,
    ) -> Result<Option<u64>, QueueError> {
        let stored = match self.context.send_publish(subject, publish).await {
            Ok(stored) => stored.await,
            Err(error) => Err(error),
        };
        match stored {
            Ok(stored) => Ok(Some(stored.sequence)),
            Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => Ok(None),
            Err(error) if is_too_long(&error) => Err(QueueError::TooLong),
            Err(error) => Err(QueueError::nats(error)),
        }
    }
}

/// What a stream has, where it has it.
fn found(
    message: Result<StreamMessage, LastRawMessageError>,
) -> Result<Option<StreamMessage>, QueueError> {
    match message {
        Ok(message) => Ok(Some(message)),
        Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
        Err(error) => Err(QueueError::nats(error)),
    }
}

/// Whether a message is longer than the server takes, or its headers alone are.
fn is_too_long(error: &PublishError) -> bool {
    let said = error
        .source()
        .and_then(|why| why.downcast_ref::<jetstream::Error>());
    let is_headers = said.is_some_and(|said| said.error_code().0 == HEADERS_TOO_LONG);
    is_headers || error.kind() == PublishErrorKind::MaxPayloadExceeded
}

/// A stream, which is there or is made. One that an earlier version made has not all of its subjects: it gets them,
/// and keeps what else it has.
async fn made(context: &Context, wanted: StreamConfig) -> Result<Stream, QueueError> {
    let subjects = wanted.subjects.clone();
    let stream = context
        .get_or_create_stream(wanted)
        .await
        .map_err(QueueError::nats)?;
    let mut there = stream.cached_info().config.clone();
    let missing: Vec<String> = subjects
        .into_iter()
        .filter(|subject| !there.subjects.contains(subject))
        .collect();
    if !missing.is_empty() {
        there.subjects.extend(missing);
        context
            .update_stream(there)
            .await
            .map_err(QueueError::nats)?;
    }
    Ok(stream)
}

fn headers(
    (task_id, correlation_id): (&TaskId, Option<&CorrelationId>),
    body: &Digest,
) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(TASK_ID, task_id.to_string());
    headers.insert(BODY, body.to_string());
    if let Some(correlation_id) = correlation_id {
        headers.insert(CORRELATION, correlation_id.to_string());
    }
    headers
}

/// Who may publish where a message with these headers was published, on the subject of a user.
fn peer_of(user: Option<String>, headers: Option<&HeaderMap>) -> Peer {
    let mut peer = Peer::on_nats(user);
    peer.trace = headers.and_then(trace_of);
    signed(
        peer,
        headers.and_then(|headers| only(headers, beside::SIGNATURE)),
    )
}

/// A header that is there once: of two nobody knows which one is meant.
fn only<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name);
    let only = values.next().filter(|_| values.next().is_none())?;
    Some(only.as_str())
}

/// The place in a trace that headers name.
fn trace_of(headers: &HeaderMap) -> Option<TraceContext> {
    TraceContext::carried(|name| {
        let values = headers.get_all(name);
        values.map(async_nats::HeaderValue::as_str)
    })
}

/// The digest of a body: made at once where it is short, on another thread where it is not.
async fn digest_apart(body: impl AsRef<[u8]> + Send + 'static) -> Digest {
    work::done(For::Stranger, body.as_ref().len(), move || {
        body_digest(body.as_ref())
    })
    .await
}

/// An issuer in a subject, where its id itself may have any character.
fn issuer_digits(issuer: &str) -> String {
    let mut digits = Digest::of_bytes(issuer.as_bytes()).to_string();
    digits.truncate(ISSUER_DIGITS);
    digits
}

fn is_of(headers: &HeaderMap, body: &Digest) -> bool {
    only(headers, BODY).is_some_and(|value| value == body.to_string())
}

/// The server's code for headers of more than 64 KiB.
const HEADERS_TOO_LONG: u64 = 10_097;
/// Digits of an issuer's digest in a subject.
const ISSUER_DIGITS: usize = 16;
const CORRELATION: &str = "X-Correlation-Id";
const TASK_ID: &str = "Sap-Task-Id";
const BODY: &str = "Sap-Body";
/// On a result that went to an endpoint of the task.
const ELSEWHERE: &str = "Sap-Elsewhere";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_length_of_a_message_makes_it_too_long() {
        for (kind, wanted) in [
            (PublishErrorKind::MaxPayloadExceeded, true),
            (PublishErrorKind::StreamNotFound, false),
            (PublishErrorKind::TimedOut, false),
        ] {
            assert_eq!(is_too_long(&kind.into()), wanted, "{kind}");
        }
        // The server's own words for it come as another kind.
        for (code, wanted) in [(HEADERS_TOO_LONG, true), (10_077, false)] {
            let said = format!(r#"{{"code": 400, "err_code": {code}, "description": "no"}}"#);
            let said: jetstream::Error = serde_json::from_str(&said).unwrap();
            let error = PublishError::with_source(PublishErrorKind::Other, said);
            assert_eq!(is_too_long(&error), wanted, "{code}");
        }
    }

    #[test]
    fn settings_out_of_range_are_refused() {
        for (config, wanted) in [
            (Config::default().with_name("a.b"), "name is \"a.b\", but"),
            (Config::default().with_user("a b"), "user is \"a b\", but"),
            (Config::default().with_name(""), "name is \"\", but"),
            (
                Config::default().with_ack_wait(Duration::ZERO),
                "ack_wait is 0ns, but",
            ),
            (
                Config::default().with_ack_wait(Duration::from_nanos(999_999)),
                "ack_wait is 999.999µs, but",
            ),
            (
                Config::default().with_busy_delay(Duration::ZERO),
                "busy_delay is 0ns, but",
            ),
            (
                Config::default().with_max_attempts(0),
                "max_attempts is 0, but",
            ),
            (
                Config::default().with_max_task_bytes(0),
                "max_task_bytes is 0, but",
            ),
            (
                Config::default().with_max_said_bytes(0),
                "max_said_bytes is 0, but",
            ),
        ] {
            let refused = config.check().unwrap_err().to_string();
            assert!(refused.starts_with(wanted), "{refused}");
        }
        let least = Duration::from_millis(1);
        let least = Config::default()
            .with_ack_wait(least)
            .with_busy_delay(least);
        for config in [Config::default(), least] {
            assert_eq!(config.check(), Ok(()));
        }
    }
}
