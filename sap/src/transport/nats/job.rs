//! One delivery of a task, from its arrival to its end.

use core::convert::Infallible;
use core::future::Future;
use core::pin::pin;
use std::sync::Arc;

use async_nats::HeaderMap;
use async_nats::jetstream::message::{AckKind, Message as Delivery};
use bytes::Bytes;
use futures::channel::oneshot;
use futures::future::BoxFuture;
use ubos_common::canon::Digest;
use ubos_common::time::Timestamp;
use ubos_common::trace_context::TraceContext;

use super::cancel::Cancels;
use super::claim::{Claim, Holder};
use super::stop::Stopping;
use super::{
    CORRELATION, ELSEWHERE, Queue, QueueError, TASK_ID, headers, is_of, peer_of, trace_of,
};
use crate::error::ErrorCode;
use crate::evidence::ConstitutionalEvidence;
use crate::ident::{CorrelationId, TaskId};
use crate::processor::{Peer, Warning};
use crate::receipt::Nack;
use crate::result::TaskResult;
use crate::status::Status;
use crate::task::Task;
use crate::trace;
use crate::transport::beside;
use crate::transport::{Caller, Message, Service};

/// One delivery of a task.
pub(super) struct Job<'a> {
    pub(super) queue: &'a Queue,
    pub(super) service: &'a Service,
    pub(super) cancels: &'a Cancels,
    pub(super) delivery: &'a Delivery,
    pub(super) read: Result<Arc<Task>, Box<Nack>>,
    pub(super) task_id: TaskId,
    /// Empty where it cannot be read.
    pub(super) issuer: String,
    pub(super) correlation_id: Option<CorrelationId>,
    pub(super) body: Digest,
}

impl Job<'_> {
    pub(super) async fn answer(&self) -> Result<(), QueueError> {
        if !self.headers_agree() {
            return self.refuse("a header has another id than the body").await;
        }
        // A task that has its result is not run again.
        if let Some((headers, _)) = self.queue.last(&self.subject("result")).await? {
            if is_of(&headers, &self.body) {
                return self.queue.done(self.delivery).await;
            }
            return self.refuse(SECOND).await;
        }
        let attempts = self.subject("attempt");
        let before = match self.queue.holder(&attempts, &self.body).await? {
            Holder::This(claim) => claim,
            // What is no task never begins, and takes no id.
            Holder::Another { .. } if self.read.is_err() => Claim::default(),
            // Until that one is taken it may be turned away.
            Holder::Another { is_taken: false } => {
                return self.queue.give_back(self.delivery).await;
            }
            Holder::Another { is_taken: true } => return self.refuse(SECOND).await,
        };
        let by = self.number();
        if before.begun >= self.queue.config.max_attempts {
            // A copy gives nothing up that another delivery may be at: where that one's worker died, it comes again itself.
            if before.by != by && self.queue.has_task(before.by).await? {
                return self.queue.give_back(self.delivery).await;
            }
            return self.give_up(before).await;
        }
        let begun = match self.read {
            Ok(_) => {
                let own = Claim { by, ..before };
                self.claim(own, before.begun + 1).await?
            }
            Err(_) => Some(before),
        };
        match begun {
            Some(begun) => self.run(begun).await,
            // Another worker was first, with this task or another of its id.
            None => self.queue.give_back(self.delivery).await,
        }
    }

    /// Runs what has its id, and says what came of it.
    async fn run(&self, begun: Claim) -> Result<(), QueueError> {
        let (stop, stopped) = oneshot::channel();
        let mut stopping = self.stopping().map(|stopping| (stopping, stop));
        if let Some((looking, _)) = &mut stopping
            && self.at_work(looking.is_stopped()).await?
            && let Some((_, stop)) = stopping.take()
        {
            let _ = stop.send(());
        }
        let mut caller = Publisher {
            job: self,
            cancelled: Some(stopped),
            last: None,
            elsewhere: None,
            is_silent: false,
        };
        let served = self.serve(&mut caller, stopping).await;
        let (last, elsewhere) = (caller.last, caller.elsewhere);
        if served.is_err() {
            return self.queue.give_back(self.delivery).await;
        }
        match (last, elsewhere) {
            // impl: SAP-10-4
            (Some(Message::Nack(nack)), _)
                if nack.code == ErrorCode::RateLimit && !self.is_late() =>
            {
                self.later(begun).await
            }
            (Some(Message::Nack(nack)), _) => self.turn_away(nack, begun).await,
            (Some(Message::Result(result)), _) if result.status.is_terminal() => {
                self.finish(&result, false).await
            }
            (_, Some(result)) => self.finish(&result, true).await,
            // It runs here already: this delivery is one too many.
            _ => self.later(begun).await,
        }
    }

    /// Gives back a task that was not begun: that is no attempt.
    async fn later(&self, mut last: Claim) -> Result<(), QueueError> {
        for _ in 0..MAX_TRIES {
            let Some(before) = last.begun.checked_sub(1) else {
                break;
            };
            if self.claim(last, before).await?.is_some() {
                break;
            }
            // Something was said of the same task meanwhile.
            match self
                .queue
                .holder(&self.subject("attempt"), &self.body)
                .await?
            {
                Holder::This(claim) => last = claim,
                Holder::Another { .. } => break,
            }
        }
        self.queue.give_back(self.delivery).await
    }

    /// Whether it has waited for a place for as long as it may take.
    // impl: SAP-5-8
    fn is_late(&self) -> bool {
        let Ok(task) = &self.read else { return false };
        let now = self.service.clock().now();
        if let Some(deadline) = task.deadline() {
            return now.wall.truncated_to_second() > deadline;
        }
        let default = self.service.processor().default_time();
        let sent = self.delivery.info().ok().and_then(|info| {
            let sent = info.published;
            Timestamp::new(sent.unix_timestamp(), sent.nanosecond())
        });
        sent.is_some_and(|sent| now.wall.saturating_since(sent) > default)
    }

    /// Answers, and stops what is to be stopped.
    async fn serve(
        &self,
        caller: &mut Publisher<'_>,
        stopping: Option<(Stopping<'_>, oneshot::Sender<()>)>,
    ) -> Result<(), crate::processor::ProcessError> {
        let mut stopping = pin!(async {
            if let Some((stopping, stop)) = stopping {
                stopping.stopped().await;
                let _ = stop.send(());
            }
        });
        let mut is_listening = true;
        let span = trace::carry("nats", self.correlation_id.as_ref());
        let read = self.read.clone();
        let serving = self
            .service
            .serve_read(read, &self.delivery.payload, caller);
        let mut serving = pin!(trace::within(span, serving));
        let (mut marking, mut is_marking) = (pin!(self.mark_taken()), true);
        self.at_work(async {
            loop {
                tokio::select! {
                    served = &mut serving => return served,
                    () = &mut stopping, if is_listening => is_listening = false,
                    () = &mut marking, if is_marking => is_marking = false,
                }
            }
        })
        .await
    }

    /// Tells the server every now and then that somebody is at it.
    async fn at_work<T>(&self, work: impl Future<Output = T>) -> T {
        tokio::select! {
            done = work => done,
            // Beside the work: while the server is away, one of these may wait for as long.
            never = self.say_at_work() => match never {},
        }
    }

    async fn say_at_work(&self) -> Infallible {
        loop {
            tokio::time::sleep(self.queue.config.ack_wait / 3).await;
            let _ = self.delivery.ack_with(AckKind::Progress).await;
        }
    }

    /// Stores the one result, and only then acknowledges the task. Of a result that the server does not take, whoever
    /// waits is told that.
    async fn finish(&self, result: &TaskResult, elsewhere: bool) -> Result<(), QueueError> {
        match self.end(result.clone(), elsewhere).await {
            Err(QueueError::TooLong) => {
                self.service.warn(&Warning::TooLong);
                self.end(too_long(result), elsewhere).await?;
            }
            ended => ended?,
        }
        self.queue.done(self.delivery).await
    }

    async fn end(&self, result: TaskResult, elsewhere: bool) -> Result<(), QueueError> {
        let mut headers = self.headers(Some(&result.correlation_id));
        if elsewhere {
            headers.insert(ELSEWHERE, "true");
        }
        let message = Message::Result(Box::new(result));
        if let Some(signature) = self.service.signature(&message).await {
            headers.insert(beside::SIGNATURE, signature);
        }
        let (subject, payload) = (self.subject("result"), Bytes::from(message.encode()));
        let stored = self
            .queue
            .store_after(0, subject, payload.clone(), headers.clone());
        if stored.await?.is_some() {
            return Ok(());
        }
        match self.queue.last(&self.subject("result")).await? {
            // Another task was first, because nothing is left of who has the id: that is removed with the oldest that was
            // said. Who waits for this one is told its end.
            Some((of, _)) if !is_of(&of, &self.body) => {
                let subject = self.subject("progress");
                self.queue.store(subject, payload, headers).await
            }
            // Another worker was first: its result is the result.
            _ => Ok(()),
        }
    }

    /// Says a Nack, and then gives the id back.
    async fn turn_away(&self, nack: Nack, claim: Claim) -> Result<(), QueueError> {
        self.say("nack", Message::Nack(nack).encode()).await?;
        if claim.begun > 0 {
            self.claim(claim, 0).await?;
        }
        self.queue.done(self.delivery).await
    }

    async fn refuse(&self, why: &'static str) -> Result<(), QueueError> {
        let mut nack = Nack::malformed(why);
        nack.message_id = Some(self.task_id);
        nack.correlation_id = self.correlation_id;
        let refused = &self.delivery.payload;
        let message = self.service.turn_away(nack, refused).await;
        self.say("nack", message.encode()).await?;
        self.queue.done(self.delivery).await
    }

    /// Dead letter: nobody got to the end of it.
    async fn give_up(&self, claim: Claim) -> Result<(), QueueError> {
        let why = format!("begun {} times", claim.begun);
        match self.service.abandon(&self.delivery.payload).await {
            Ok(Message::Result(result)) if result.status.is_terminal() => {
                if result.status == Status::Failed {
                    self.queue.bury(self.delivery, &why).await?;
                }
                self.finish(&result, false).await
            }
            Ok(Message::Nack(nack)) if nack.code != ErrorCode::RateLimit => {
                self.queue.bury(self.delivery, &why).await?;
                self.turn_away(nack, claim).await
            }
            // It runs here, there is no room, or its end could not be written down.
            _ => self.queue.give_back(self.delivery).await,
        }
    }

    pub(super) fn subject(&self, kind: &str) -> String {
        self.queue.subject(&self.task_id, &self.issuer, kind)
    }

    /// The number of the task in the stream of tasks; 0 where that is not said.
    fn number(&self) -> u64 {
        self.delivery.info().map_or(0, |info| info.stream_sequence)
    }

    /// The user on whose subject the task was published.
    fn user(&self) -> Option<String> {
        let prefix = format!("{}.task.", self.queue.config.name);
        let user = self.delivery.subject.strip_prefix(&prefix);
        user.map(str::to_owned)
    }

    /// What comes to stop the task, from now on and before. What is no task is not stopped.
    fn stopping(&self) -> Option<Stopping<'_>> {
        let (task, user) = (self.read.as_ref().ok()?, self.user());
        let (task_id, issuer) = (&self.task_id, &self.issuer);
        let subject = self.queue.cancel_subject(task_id, issuer, user.as_deref());
        Some(Stopping {
            queue: self.queue,
            processor: self.service.processor(),
            task,
            body: &self.body,
            user,
            stored: self.cancels.of(subject),
            is_behind: false,
        })
    }

    async fn say(&self, kind: &str, payload: Vec<u8>) -> Result<(), QueueError> {
        let headers = self.headers(self.correlation_id.as_ref());
        let subject = self.subject(kind);
        self.queue.store(subject, payload.into(), headers).await
    }

    /// Stores what is said on the way, with its signature. A part that the server does not take is left out.
    async fn progress(&self, kind: &str, message: &Message) -> Result<(), QueueError> {
        let mut headers = self.headers(self.correlation_id.as_ref());
        if let Some(signature) = self.service.signature(message).await {
            headers.insert(beside::SIGNATURE, signature);
        }
        let subject = self.subject(kind);
        let payload = message.encode().into();
        match self.queue.store(subject, payload, headers).await {
            Err(QueueError::TooLong) => {
                self.service.warn(&Warning::TooLong);
                Ok(())
            }
            stored => stored,
        }
    }

    /// What goes beside all that is said of the task: the place in a trace that came with it, too.
    pub(super) fn headers(&self, correlation_id: Option<&CorrelationId>) -> HeaderMap {
        let mut headers = headers((&self.task_id, correlation_id), &self.body);
        let trace = self.delivery.headers.as_ref().and_then(trace_of);
        for (name, value) in trace.iter().flat_map(TraceContext::to_carry) {
            headers.insert(name, value);
        }
        headers
    }

    fn headers_agree(&self) -> bool {
        let Some(headers) = &self.delivery.headers else {
            return true;
        };
        let agree = |name, wanted: &str| {
            let mut said = headers.get_all(name);
            said.all(|id| id.as_str().eq_ignore_ascii_case(wanted))
        };
        let correlation_id = self.correlation_id.map(|id| id.to_string());
        agree(TASK_ID, &self.task_id.to_string())
            && correlation_id.is_none_or(|wanted| agree(CORRELATION, &wanted))
    }
}

/// Stores what is said on the way; the end is stored by itself.
struct Publisher<'a> {
    job: &'a Job<'a>,
    last: Option<Message>,
    elsewhere: Option<TaskResult>,
    /// After a fault nothing more is said on the way: each part could wait for as long, and the end matters more.
    is_silent: bool,
    cancelled: Option<oneshot::Receiver<()>>,
}

impl Caller for Publisher<'_> {
    fn peer(&self) -> Peer {
        peer_of(self.job.user(), self.job.delivery.headers.as_ref())
    }

    fn cancelled(&mut self) -> Option<BoxFuture<'static, ()>> {
        let cancelled = self.cancelled.take()?;
        Some(Box::pin(async move {
            if cancelled.await.is_err() {
                // Nobody is left who could say so: that is no cancel.
                core::future::pending::<()>().await;
            }
        }))
    }

    fn tell(&mut self, message: Message) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let kind = match &message {
                Message::Ack(_) => "ack",
                Message::Result(result) if !result.status.is_terminal() => "progress",
                _ => {
                    self.last = Some(message);
                    return;
                }
            };
            if self.is_silent {
                return;
            }
            if let Err(failed) = self.job.progress(kind, &message).await {
                self.job.service.warn(&Warning::Carrier(failed.into()));
                self.is_silent = true;
            }
        })
    }

    fn elsewhere(&mut self, result: &TaskResult) {
        if result.status.is_terminal() {
            self.elsewhere = Some(result.clone());
        }
    }
}

/// What is said of a result that the server does not take: that, with its verdict.
fn too_long(result: &TaskResult) -> TaskResult {
    let told = TaskResult::new(
        result.protocol_version,
        result.task_id,
        result.correlation_id,
        result.reported_at,
        result.producer.clone(),
        Status::Failed,
        ConstitutionalEvidence::new(result.constitutional_evidence.alignment.clone()),
    );
    let why = "the result is longer than a message of the queue may be";
    told.with_error(ErrorCode::Unprocessable, why)
}

/// How often a claim is given back, where others say something of the same task at the same time.
const MAX_TRIES: usize = 4;
/// Why a task is turned away whose id another has.
const SECOND: &str = "another task of this id came before";
