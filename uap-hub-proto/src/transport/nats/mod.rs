//! One queue of jobs for several hubs, on NATS JetStream: a hub that dies loses none of them.
//!
//! For a queue named `desk` there are three streams:
//!
//! | stream | subject | what is there |
//! |---|---|---|
//! | `desk_jobs` | `desk.job` | jobs, each until its end is stored |
//! | `desk_ends` | `desk.end.<job id>` | how they ended; the first end of a job is its only one |
//! | `desk_backs` | `desk.back.<job id>` | how often hubs gave a job back, for lack of room or because they left, which is no attempt |
//!
//! Every hub takes as many jobs as it has room for ([`work`](JobQueue::work)), says every now and then that it
//! is at them, stores each end, and only then lets go of the job. A hub that dies is silent, and after
//! [`ack_wait`](QueueConfig::with_ack_wait) its jobs go to another. A hub that was merely cut off for so long may still be
//! running them: then a job runs twice, and the end that is stored first counts.
//!
//! Jobs are bounded by the server's `max_payload`, 1 MiB unless it is configured, less 256 bytes and those of their place in a
//! trace; larger ones are refused, and of larger ends the verdict alone is stored.
//!
//! The place of a job in a distributed trace ([`Job::trace`]) goes in the headers `traceparent` and `tracestate` of the job and
//! of its end, where tools that trace look for it, and not in their bytes. One that is not valid, or is named twice, is dropped.
//!
//! Only streams are used, so servers from 2.9 on work.

mod work;

use std::time::Duration;

use async_nats::{
    HeaderMap,
    jetstream::{
        self, Context,
        consumer::{AckPolicy, PullConsumer, pull},
        context::PublishErrorKind,
        message::PublishMessage,
        stream::{
            Config as StreamConfig, DiscardPolicy, LastRawMessageErrorKind, RetentionPolicy, Stream,
        },
    },
};
use bytes::Bytes;
use ubos_common::trace_context::TraceContext;

use crate::{
    config::ConfigError,
    id::JobId,
    role::hub::{Job, Outcome, Record, Verdict},
    store::{DecodeError, decode, encode},
    transport::codec::is_bounded_record,
};

ubos_common::config! {
    /// How a queue works. All hubs of a queue should use the same values.
    ///
    /// [`JobQueue::open`] checks them.
    QueueConfig {
        /// Sets how many jobs may wait or run: 100,000 by default. Beyond it none is accepted.
        with_max_jobs: max_jobs: i64 = 100_000,
        /// Sets how many jobs one hub has at the same time: 64 by default.
        with_max_in_flight: max_in_flight: usize = 64,
        /// Sets how long a hub may be silent about a job before another hub gets it: 30 s by default.
        with_ack_wait: ack_wait: Duration = Duration::from_secs(30),
        /// Sets how often hubs may take a job that gets no end: 20 by default. Beyond it the job ends failed. A hub that gives it
        /// back, because it has no room for it or because it leaves, has not taken it.
        with_max_deliveries: max_deliveries: i64 = 20,
        /// Sets when a job that a hub has no room for comes back: 1 s by default.
        with_busy_delay: busy_delay: Duration = Duration::from_secs(1),
        /// Sets how long ends are kept: 7 days by default.
        with_keep: keep: Duration = Duration::from_secs(7 * 24 * 60 * 60),
    }
    into {
        /// Sets the name of streams and subjects, of letters, digits, `-` and `_`: `uap-hub` by default.
        with_name: name: String = "uap-hub".to_owned(),
    }
}

impl QueueConfig {
    fn check(&self) -> Result<(), QueueError> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if self.name.is_empty() || !self.name.chars().all(is_plain) {
            return Err(QueueError::Name);
        }
        ConfigError::at_least("max_jobs", self.max_jobs, 1)?;
        ConfigError::at_least("max_in_flight", self.max_in_flight, 1)?;
        ConfigError::at_least("max_deliveries", self.max_deliveries, 1)?;
        ConfigError::not_zero("ack_wait", self.ack_wait)?;
        ConfigError::not_zero("busy_delay", self.busy_delay)?;
        ConfigError::not_zero("keep", self.keep)?;
        Ok(())
    }
}

/// Why a queue operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// The name has characters that subjects and streams do not take.
    #[error("the name of a queue must have letters, digits, '-' and '_' only")]
    Name,
    /// The configuration cannot work.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The job is larger than what the server takes beside the headers of a message.
    #[error("the job has {seen} bytes, the server takes at most {most}")]
    TooLarge {
        /// Bytes of the job.
        seen: usize,
        /// The limit of the server, without the headers.
        most: usize,
    },
    /// The job has more parts than a hub takes, 262,144 fields of its payloads.
    #[error("the job has more than 262,144 fields")]
    TooManyFields,
    /// The server, or the way to it, failed.
    #[error("nats failed")]
    Nats(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Bytes that are left for the headers of a message: its id, or what the server has to find before it stores it.
const MAX_HEADER_BYTES: usize = 256;

/// Bytes of a header beside its name and its value.
const HEADER_SIGNS: usize = 4;

/// How long a request waits at least: as long as the client waits to publish something and for it to be stored.
const MIN_PATIENCE: Duration = Duration::from_secs(10);

/// Characters that are left of the words of an end without its result.
const MAX_SHORT_CHARS: usize = 1_000;

impl QueueError {
    fn nats(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Nats(error.into())
    }
}

/// A queue. Clones are one queue.
#[derive(Clone, Debug)]
pub struct JobQueue {
    client: async_nats::Client,
    context: Context,
    ends: Stream,
    backs: Stream,
    jobs: PullConsumer,
    name: String,
    max_in_flight: usize,
    ack_wait: Duration,
    max_deliveries: i64,
    busy_delay: Duration,
}

impl JobQueue {
    /// Connects to a server, and opens the queue there.
    ///
    /// # Errors
    ///
    /// [`QueueError`].
    pub async fn connect(url: &str, config: QueueConfig) -> Result<Self, QueueError> {
        let client = async_nats::connect(url).await;
        Self::open(client.map_err(QueueError::nats)?, config).await
    }

    /// Opens a queue, or creates it.
    ///
    /// # Errors
    ///
    /// [`QueueError`].
    pub async fn open(client: async_nats::Client, config: QueueConfig) -> Result<Self, QueueError> {
        config.check()?;
        let context = jetstream::new(client.clone());
        let name = config.name;
        let jobs = StreamConfig {
            name: format!("{name}_jobs"),
            subjects: vec![format!("{name}.job")],
            retention: RetentionPolicy::WorkQueue,
            discard: DiscardPolicy::New,
            max_messages: config.max_jobs,
            ..StreamConfig::default()
        };
        let ends = StreamConfig {
            name: format!("{name}_ends"),
            subjects: vec![format!("{name}.end.>")],
            max_age: config.keep,
            ..StreamConfig::default()
        };
        let backs = StreamConfig {
            name: format!("{name}_backs"),
            subjects: vec![format!("{name}.back.>")],
            max_age: config.keep,
            max_messages: config.max_jobs,
            max_messages_per_subject: 1,
            discard: DiscardPolicy::Old,
            ..StreamConfig::default()
        };
        let made = async |stream: StreamConfig| {
            let made = context.get_or_create_stream(stream).await;
            made.map_err(QueueError::nats)
        };
        let (jobs, ends, backs) = (made(jobs).await?, made(ends).await?, made(backs).await?);
        let durable = format!("{name}_hubs");
        let consumer = pull::Config {
            durable_name: Some(durable.clone()),
            ack_policy: AckPolicy::Explicit,
            ack_wait: config.ack_wait,
            max_ack_pending: config.max_jobs,
            ..pull::Config::default()
        };
        let jobs = jobs.get_or_create_consumer(&durable, consumer).await;
        Ok(Self {
            jobs: jobs.map_err(QueueError::nats)?,
            client,
            context,
            ends,
            backs,
            name,
            max_in_flight: config.max_in_flight,
            ack_wait: config.ack_wait,
            max_deliveries: config.max_deliveries,
            busy_delay: config.busy_delay,
        })
    }

    /// Submits a job to any hub with room. It is stored by the server when this returns. The same id twice
    /// within two minutes is one job.
    ///
    /// # Errors
    ///
    /// [`QueueError`]; it is then not known whether the job is there, and to say it again does no harm.
    // impl: HUB-6-2
    pub async fn submit(&self, id: JobId, job: &Job) -> Result<(), QueueError> {
        let mut job = job.clone();
        let trace = job.trace.take();
        let bytes = encode(id, &Record::Accepted(job));
        if !is_bounded_record(&bytes) {
            return Err(QueueError::TooManyFields);
        }
        let (seen, most) = (bytes.len(), self.max_bytes(trace.as_ref()));
        if seen > most {
            return Err(QueueError::TooLarge { seen, most });
        }
        let publish = carry(trace.as_ref(), PublishMessage::build())
            .payload(bytes.into())
            .message_id(id.to_string());
        let subject = format!("{}.job", self.name);
        let sent = self.context.send_publish(subject, publish).await;
        let stored = sent.map_err(QueueError::nats)?.await;
        stored.map(|_| ()).map_err(QueueError::nats)
    }

    /// How a job ended; `None` where it has not, or so long ago that it is not kept.
    ///
    /// # Errors
    ///
    /// [`QueueError`].
    pub async fn outcome(&self, id: JobId) -> Result<Option<Outcome>, QueueError> {
        let subject = self.end_of(id);
        let last = self.ends.get_last_raw_message_by_subject(&subject);
        match self.in_time(last).await? {
            Ok(message) => Ok(Some(match read(&message.payload) {
                Ok((_, Record::Ended(outcome))) => outcome,
                // It is the only end that the job can have: hubs that failed over it would fail again and again.
                _ => Outcome::new(Verdict::Failed, "the end of the job cannot be read"),
            })),
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(QueueError::nats(error)),
        }
    }

    /// What comes of a request, for as long as the client waits for an answer, and at least 10 s. The client counts from when
    /// it could ask: without a bound of its own a request would wait for as long as the server is away.
    async fn in_time<T>(&self, request: impl Future<Output = T>) -> Result<T, QueueError> {
        let patience = self.client.timeout().unwrap_or(MIN_PATIENCE);
        let answer = tokio::time::timeout(patience.max(MIN_PATIENCE), request).await;
        answer.map_err(QueueError::nats)
    }

    /// The most bytes of a record: the server counts the headers of a message as its payload, and breaks the connection of
    /// a client that sends more than it takes.
    fn max_bytes(&self, trace: Option<&TraceContext>) -> usize {
        let most = self.client.server_info().max_payload;
        let carried = trace.into_iter().flat_map(TraceContext::to_carry);
        let carried = carried.map(|(name, value)| name.len() + value.len() + HEADER_SIGNS);
        most.saturating_sub(MAX_HEADER_BYTES + carried.sum::<usize>())
    }

    /// Stores an end, unless the job has one; returns the stored one.
    async fn store_end(
        &self,
        id: JobId,
        outcome: Outcome,
        trace: Option<&TraceContext>,
    ) -> Result<Outcome, QueueError> {
        let mut bytes = encode(id, &Record::Ended(outcome.clone()));
        if bytes.len() > self.max_bytes(trace) {
            // The verdict alone is better than nothing. The words are the agent's, and may be as long as the result.
            let mut short = outcome.clone();
            short.result = None;
            let words: String = outcome.message.chars().take(MAX_SHORT_CHARS).collect();
            short.message = format!("{words} (the result is too large for the queue)");
            bytes = encode(id, &Record::Ended(short));
        }
        let publish = carry(trace, PublishMessage::build())
            .payload(Bytes::from(bytes))
            .expected_last_subject_sequence(0);
        let stored = match self.context.send_publish(self.end_of(id), publish).await {
            Ok(stored) => stored.await,
            Err(error) => Err(error),
        };
        match stored {
            Ok(_) => Ok(outcome),
            Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => {
                Ok(self.outcome(id).await?.unwrap_or(outcome))
            }
            Err(error) => Err(QueueError::nats(error)),
        }
    }

    /// How often hubs gave a job back.
    async fn given_back(&self, id: JobId) -> Result<i64, QueueError> {
        let subject = format!("{}.back.{id}", self.name);
        let last = self.backs.get_last_raw_message_by_subject(&subject);
        match self.in_time(last).await? {
            Ok(message) => Ok(count(&message.payload)),
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(0),
            Err(error) => Err(QueueError::nats(error)),
        }
    }

    /// Counts that a job is given back. Only the hub that has it does.
    async fn count_given_back(&self, id: JobId) -> Result<(), QueueError> {
        let count = self.given_back(id).await?.saturating_add(1);
        let subject = format!("{}.back.{id}", self.name);
        let count = Bytes::copy_from_slice(&count.to_be_bytes());
        let sent = self.context.publish(subject, count).await;
        let stored = sent.map_err(QueueError::nats)?.await;
        stored.map(|_| ()).map_err(QueueError::nats)
    }

    fn end_of(&self, id: JobId) -> String {
        format!("{}.end.{id}", self.name)
    }
}

/// Reads a record that anybody who may write to the server has written.
fn read(bytes: &[u8]) -> Result<(JobId, Record), DecodeError> {
    match is_bounded_record(bytes) {
        true => decode(bytes),
        false => Err(DecodeError::Malformed),
    }
}

/// Reads a count that anybody who may write to the server has written: none is less than 0.
fn count(bytes: &[u8]) -> i64 {
    let count = <[u8; 8]>::try_from(bytes);
    count.map_or(0, i64::from_be_bytes).max(0)
}

/// Writes the place of a job in a trace.
fn carry(trace: Option<&TraceContext>, message: PublishMessage) -> PublishMessage {
    let headers = trace.into_iter().flat_map(TraceContext::to_carry);
    headers.fold(message, |message, (name, value)| {
        message.header(name, value)
    })
}

/// Reads it.
fn carried(headers: Option<&HeaderMap>) -> Option<TraceContext> {
    let headers = headers?;
    TraceContext::carried(|name| {
        let values = headers.get_all(name);
        values.map(async_nats::HeaderValue::as_str)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_out_of_its_range_is_named() {
        let config = QueueConfig::default;
        assert!(config().check().is_ok());
        for (name, config) in [
            ("max_jobs", config().with_max_jobs(0)),
            ("max_in_flight", config().with_max_in_flight(0)),
            ("max_deliveries", config().with_max_deliveries(0)),
            ("ack_wait", config().with_ack_wait(Duration::ZERO)),
            ("busy_delay", config().with_busy_delay(Duration::ZERO)),
            ("keep", config().with_keep(Duration::ZERO)),
        ] {
            let refused = config.check().unwrap_err().to_string();
            assert!(refused.contains(name), "{refused}");
        }
    }

    #[test]
    fn a_count_that_is_none_is_zero() {
        for (bytes, wanted) in [
            (&3_i64.to_be_bytes()[..], 3),
            (&i64::MAX.to_be_bytes(), i64::MAX),
            (&i64::MIN.to_be_bytes(), 0),
            (&(-1_i64).to_be_bytes(), 0),
            (b"3", 0),
        ] {
            assert_eq!(count(bytes), wanted);
        }
    }

    #[test]
    fn a_name_that_subjects_do_not_take_is_refused() {
        let check = |name: &str| QueueConfig::default().with_name(name).check();
        assert!(check("Desk-2_b").is_ok());
        for name in ["", "a.b", "a b", ">", "*", "\u{e9}"] {
            assert!(matches!(check(name), Err(QueueError::Name)), "{name:?}");
        }
    }
}
