//! A durable work queue on NATS JetStream: tasks survive the death of workers, and of the server.
//!
//! One queue is served by any number of equal workers. It has three streams, for a queue named `desk`:
//!
//! | stream | subject | what is there |
//! |---|---|---|
//! | `desk_tasks` | `desk.task` | tasks, each until a worker has answered it |
//! | `desk_out` | `desk.out.<taskId>.{ack,progress,result,nack,attempt}` | what is said about a task; one result |
//! | `desk_dead` | `desk.dead` | what could not be answered |
//!
//! A task is acknowledged after its result is stored, so a worker that is killed loses nothing: the task is
//! delivered again. One that has its result is not run again. A task that was begun
//! [`max_attempts`](Config::max_attempts) times without an end goes to the dead letters, and its result is FAILED,
//! `INTERNAL`. Where all places are taken a task is returned with a delay, which is no attempt.
//!
//! Ids are in the headers `X-Correlation-Id` and `Sap-Task-Id` as they are in the body; others are a Nack.
//! Results go to an endpoint of the task too, if it names one, and are stored for those who come again.
//!
//! Streams alone are used, so that servers from 2.9 on will do.

mod client;
mod worker;

use core::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{
    Config as StreamConfig, DiscardPolicy, RetentionPolicy, Stream,
};
use async_nats::jetstream::{self, Context};
use ubos_common::canon::Digest;

pub use client::Client;

use crate::ident::{CorrelationId, TaskId};

/// Settings of a queue; all who open it should have the same.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Names streams and subjects: letters, digits, `-` and `_`. Default `sap`.
    pub name: String,
    /// Tasks that wait; at the bound a task cannot be sent. Default 100,000.
    pub max_tasks: i64,
    /// Tasks that one worker runs at the same time; it takes no more. Default 16.
    pub max_in_flight: usize,
    /// How long a worker may be silent about a task before another one gets it. Default 30 s.
    pub ack_wait: Duration,
    /// How often a task may be begun. Default 5.
    pub max_attempts: u32,
    /// When a task comes back that could not be taken. Default 1 s.
    pub busy_delay: Duration,
    /// How long what is said about a task is kept, and dead letters. Default 7 days.
    pub keep: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: "sap".into(),
            max_tasks: 100_000,
            max_in_flight: 16,
            ack_wait: Duration::from_secs(30),
            max_attempts: 5,
            busy_delay: Duration::from_secs(1),
            keep: Duration::from_secs(7 * 24 * 60 * 60),
        }
    }
}

impl Config {
    /// Sets the name.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets how many tasks wait.
    #[must_use]
    pub const fn max_tasks(mut self, tasks: i64) -> Self {
        self.max_tasks = tasks;
        self
    }

    /// Sets how many tasks one worker runs at the same time.
    #[must_use]
    pub const fn max_in_flight(mut self, tasks: usize) -> Self {
        self.max_in_flight = tasks;
        self
    }

    /// Sets how long a worker may be silent.
    #[must_use]
    pub const fn ack_wait(mut self, wait: Duration) -> Self {
        self.ack_wait = wait;
        self
    }

    /// Sets how often a task may be begun.
    #[must_use]
    pub const fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = attempts;
        self
    }

    /// Sets when a task comes back that could not be taken.
    #[must_use]
    pub const fn busy_delay(mut self, delay: Duration) -> Self {
        self.busy_delay = delay;
        self
    }

    /// Sets how long results and dead letters are kept.
    #[must_use]
    pub const fn keep(mut self, keep: Duration) -> Self {
        self.keep = keep;
        self
    }
}

/// Why a queue does not work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// The name has characters that subjects and streams do not take.
    #[error("name of a queue with other than letters, digits, '-' and '_'")]
    Name,
    /// The server, or the way to it, failed.
    #[error("nats failed")]
    Nats(#[source] Box<dyn std::error::Error + Send + Sync>),
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
}

impl Queue {
    /// Opens a queue, or makes it.
    ///
    /// # Errors
    ///
    /// [`QueueError`].
    pub async fn open(client: async_nats::Client, config: Config) -> Result<Self, QueueError> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if config.name.is_empty() || !config.name.chars().all(is_plain) {
            return Err(QueueError::Name);
        }
        let context = jetstream::new(client);
        let name = &config.name;
        let stream = |kind: &str, subject: &str| StreamConfig {
            name: format!("{name}_{kind}"),
            subjects: vec![format!("{name}.{subject}")],
            ..StreamConfig::default()
        };
        let tasks = StreamConfig {
            retention: RetentionPolicy::WorkQueue,
            discard: DiscardPolicy::New,
            max_messages: config.max_tasks,
            ..stream("tasks", "task")
        };
        let kept = |kind: &str, subject: &str| StreamConfig {
            max_age: config.keep,
            ..stream(kind, subject)
        };
        let made = async |stream: StreamConfig| {
            let made = context.get_or_create_stream(stream).await;
            made.map_err(QueueError::nats)
        };
        let (tasks, out) = (made(tasks).await?, made(kept("out", "out.>")).await?);
        made(kept("dead", "dead")).await?;
        let consumer = pull::Config {
            durable_name: Some(format!("{name}_workers")),
            ack_policy: AckPolicy::Explicit,
            ack_wait: config.ack_wait,
            ..pull::Config::default()
        };
        let durable = format!("{name}_workers");
        let tasks = tasks.get_or_create_consumer(&durable, consumer).await;
        Ok(Self {
            tasks: tasks.map_err(QueueError::nats)?,
            context,
            out,
            config,
        })
    }

    fn subject(&self, task_id: &TaskId, kind: &str) -> String {
        format!("{}.out.{task_id}.{kind}", self.config.name)
    }

    async fn store(&self, subject: String, message: Said<'_>) -> Result<(), QueueError> {
        let headers = headers(message.ids, message.body);
        self.store_with(subject, message.payload, headers, false)
            .await
    }

    /// Stores a message and waits until it is stored. `once` leaves it where its subject has one already.
    async fn store_with(
        &self,
        subject: String,
        payload: Vec<u8>,
        headers: HeaderMap,
        once: bool,
    ) -> Result<(), QueueError> {
        let mut publish = PublishMessage::build()
            .payload(payload.into())
            .headers(headers);
        if once {
            publish = publish.expected_last_subject_sequence(0);
        }
        let stored = match self.context.send_publish(subject, publish).await {
            Ok(stored) => stored.await,
            Err(error) => Err(error),
        };
        match stored {
            Ok(_) => Ok(()),
            Err(error) if once && error.kind() == PublishErrorKind::WrongLastSequence => Ok(()),
            Err(error) => Err(QueueError::nats(error)),
        }
    }
}

/// One message and whom it is about.
struct Said<'a> {
    payload: Vec<u8>,
    ids: (&'a TaskId, Option<&'a CorrelationId>),
    /// The digest of the task, to tell two of one id apart.
    body: &'a Digest,
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

const CORRELATION: &str = "X-Correlation-Id";
const TASK_ID: &str = "Sap-Task-Id";
const BODY: &str = "Sap-Body";
/// On a result that went to an endpoint of the task.
const ELSEWHERE: &str = "Sap-Elsewhere";
