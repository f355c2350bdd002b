//! The answering side.

use core::future::Future;
use core::pin::pin;

use async_nats::HeaderMap;
use async_nats::jetstream::message::{AckKind, Message as Delivery, PublishMessage};
use async_nats::jetstream::stream::LastRawMessageErrorKind;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use ubos_common::canon::Digest;

use super::{
    BODY, CORRELATION, ELSEWHERE, MAX_IN_FLIGHT, Queue, QueueError, Said, TASK_ID, headers,
};
use crate::error::ErrorCode;
use crate::ident::{CorrelationId, TaskId};
use crate::lifecycle::body_digest;
use crate::processor::Peer;
use crate::receipt::{Nack, ReceiptStatus};
use crate::result::TaskResult;
use crate::status::Status;
use crate::trace;
use crate::transport::signing::{self, signed};
use crate::transport::{Caller, Message, Service};
use crate::validate::{Options, ids_of, issuer_of};

impl Queue {
    /// Answers tasks until `shutdown` is ready, then lets those that run end.
    ///
    /// Dropping the future instead leaves them to another worker, as a crash does. Tasks run in this future.
    ///
    /// # Errors
    ///
    /// [`QueueError`]: the server, or the way to it, failed. What was not answered is delivered again.
    // impl: SAP-10-4
    pub async fn work(
        &self,
        service: &Service,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), QueueError> {
        let mut shutdown = pin!(shutdown);
        let mut jobs = FuturesUnordered::new();
        loop {
            let room = MAX_IN_FLIGHT - jobs.len();
            if room == 0 {
                tokio::select! {
                    () = &mut shutdown => break,
                    Some(done) = jobs.next() => done?,
                }
                continue;
            }
            // Never more than there is room for: what waits here would be silent about.
            let batch = self.tasks.batch().max_messages(room).expires(PULL);
            let mut batch = batch.messages().await.map_err(QueueError::nats)?;
            let mut over = false;
            while !over {
                tokio::select! {
                    () = &mut shutdown => {
                        while let Some(done) = jobs.next().await {
                            done?;
                        }
                        return Ok(());
                    }
                    Some(done) = jobs.next(), if !jobs.is_empty() => done?,
                    delivery = batch.next() => match delivery {
                        Some(delivery) => {
                            let delivery = delivery.map_err(QueueError::nats)?;
                            jobs.push(self.answer(service, delivery));
                            trace::queue("nats", jobs.len(), MAX_IN_FLIGHT);
                        }
                        None => over = true,
                    },
                }
            }
        }
        while let Some(done) = jobs.next().await {
            done?;
        }
        Ok(())
    }

    async fn answer(&self, service: &Service, delivery: Delivery) -> Result<(), QueueError> {
        let (task_id, correlation_id) = ids_of(&delivery.payload, &Options::default().limits);
        let Some(task_id) = task_id else {
            // Nobody can be told; it is written down, and kept for somebody to look at.
            let nack = malformed("no task, or none whose id can be read");
            service.turn_away(nack, &delivery.payload).await;
            self.bury(&delivery, "no task id").await?;
            return done(&delivery).await;
        };
        let job = Job {
            queue: self,
            service,
            body: body_digest(&delivery.payload),
            task_id,
            issuer: issuer_of(&delivery.payload, &Options::default().limits).unwrap_or_default(),
            correlation_id,
            delivery: &delivery,
        };
        job.answer().await
    }

    async fn last(&self, subject: &str) -> Result<Option<(HeaderMap, Vec<u8>)>, QueueError> {
        match self.out.get_last_raw_message_by_subject(subject).await {
            Ok(message) => Ok(Some((message.headers, message.payload.to_vec()))),
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(QueueError::nats(error)),
        }
    }

    async fn bury(&self, delivery: &Delivery, why: &str) -> Result<(), QueueError> {
        let mut headers = delivery.headers.clone().unwrap_or_default();
        headers.insert(WHY, why);
        // What its sender asked of the server is not asked again.
        let kept: HeaderMap = headers
            .iter()
            .filter(|(name, _)| !name.to_string().to_ascii_lowercase().starts_with("nats-"))
            .filter_map(|(name, values)| Some((name.clone(), values.first()?.clone())))
            .collect();
        let publish = PublishMessage::build()
            .payload(delivery.payload.clone())
            .headers(kept);
        let subject = format!("{}.dead", self.config.name);
        let stored = self.context.send_publish(subject, publish).await;
        stored
            .map_err(QueueError::nats)?
            .await
            .map_err(QueueError::nats)?;
        Ok(())
    }

    async fn give_back(&self, delivery: &Delivery) -> Result<(), QueueError> {
        let back = AckKind::Nak(Some(self.config.busy_delay));
        delivery.ack_with(back).await.map_err(QueueError::Nats)
    }
}

async fn done(delivery: &Delivery) -> Result<(), QueueError> {
    delivery.double_ack().await.map_err(QueueError::Nats)
}

/// One delivery of a task.
struct Job<'a> {
    queue: &'a Queue,
    service: &'a Service,
    delivery: &'a Delivery,
    task_id: TaskId,
    /// Empty where it cannot be read.
    issuer: String,
    correlation_id: Option<CorrelationId>,
    body: Digest,
}

impl Job<'_> {
    async fn answer(&self) -> Result<(), QueueError> {
        if !self.headers_agree() {
            return self.refuse("a header has another id than the body").await;
        }
        // A task that has its result is not run again.
        if let Some((headers, _)) = self.queue.last(&self.subject("result")).await? {
            if is_of(&headers, &self.body) {
                return done(self.delivery).await;
            }
            return self.refuse("another task of this id came before").await;
        }
        let begun = self.attempts().await?;
        if begun >= self.queue.config.max_attempts {
            return self.give_up(begun).await;
        }
        self.say("attempt", (begun + 1).to_string().into_bytes())
            .await?;
        let mut caller = Publisher {
            job: self,
            last: None,
            elsewhere: None,
            failed: None,
        };
        let served = self.serve(&mut caller).await;
        let (last, elsewhere, failed) = (caller.last, caller.elsewhere, caller.failed);
        if let Some(error) = failed {
            return Err(error);
        }
        if served.is_err() {
            return self.queue.give_back(self.delivery).await;
        }
        match (last, elsewhere) {
            // impl: SAP-10-4
            (Some(Message::Nack(nack)), _) if nack.code == ErrorCode::RateLimit => {
                self.say("attempt", begun.to_string().into_bytes()).await?;
                self.queue.give_back(self.delivery).await
            }
            (Some(Message::Nack(nack)), _) => {
                self.say("nack", Message::Nack(nack).encode()).await?;
                done(self.delivery).await
            }
            (Some(Message::Result(result)), _) if result.status.is_terminal() => {
                self.finish(&result, false).await
            }
            (_, Some(result)) => self.finish(&result, true).await,
            // It runs here already: this delivery is one too many.
            _ => self.queue.give_back(self.delivery).await,
        }
    }

    /// Answers, and tells the server every now and then that somebody is at it.
    async fn serve(
        &self,
        caller: &mut Publisher<'_>,
    ) -> Result<(), crate::processor::ProcessError> {
        let span = trace::carry("nats", self.correlation_id.as_ref());
        let serving = self.service.serve(&self.delivery.payload, caller);
        let mut serving = pin!(trace::within(span, serving));
        loop {
            tokio::select! {
                served = &mut serving => return served,
                () = tokio::time::sleep(self.queue.config.ack_wait / 3) => {
                    let _ = self.delivery.ack_with(AckKind::Progress).await;
                }
            }
        }
    }

    /// Stores the one result, and only then acknowledges the task.
    async fn finish(&self, result: &TaskResult, elsewhere: bool) -> Result<(), QueueError> {
        let mut headers = headers((&self.task_id, Some(&result.correlation_id)), &self.body);
        if elsewhere {
            headers.insert(ELSEWHERE, "true");
        }
        let message = Message::Result(Box::new(result.clone()));
        if let Some(signature) = self.service.signature(&message) {
            headers.insert(signing::NAME, signature);
        }
        // Another worker may have been first: then its result is the result.
        let subject = self.subject("result");
        let payload = result.encode();
        self.queue
            .store_with(subject, payload, headers, true)
            .await?;
        done(self.delivery).await
    }

    async fn refuse(&self, why: &str) -> Result<(), QueueError> {
        let mut nack = malformed(why);
        nack.message_id = Some(self.task_id);
        nack.correlation_id = self.correlation_id;
        let refused = &self.delivery.payload;
        let message = self.service.turn_away(nack, refused).await;
        self.say("nack", message.encode()).await?;
        done(self.delivery).await
    }

    /// Dead letter: nobody got to the end of it.
    async fn give_up(&self, begun: u32) -> Result<(), QueueError> {
        match self.service.abandon(&self.delivery.payload).await {
            Ok(Message::Result(result)) if result.status.is_terminal() => {
                if result.status == Status::Failed {
                    let why = format!("begun {begun} times");
                    self.queue.bury(self.delivery, &why).await?;
                }
                self.finish(&result, false).await
            }
            Ok(Message::Nack(nack)) if nack.code != ErrorCode::RateLimit => {
                let why = format!("begun {begun} times");
                self.queue.bury(self.delivery, &why).await?;
                self.say("nack", Message::Nack(nack).encode()).await?;
                done(self.delivery).await
            }
            // It runs here, there is no room, or its end could not be written down.
            _ => self.queue.give_back(self.delivery).await,
        }
    }

    fn subject(&self, kind: &str) -> String {
        self.queue.subject(&self.task_id, &self.issuer, kind)
    }

    /// Who may publish where the task was published.
    fn peer(&self) -> Peer {
        let prefix = format!("{}.task.", self.queue.config.name);
        let user = self.delivery.subject.strip_prefix(&prefix);
        let peer = Peer::on_nats(user.map(str::to_owned));
        let headers = self.delivery.headers.as_ref();
        let signature = headers.and_then(|headers| headers.get(signing::NAME));
        signed(peer, signature.map(|value| value.as_str()))
    }

    async fn attempts(&self) -> Result<u32, QueueError> {
        let last = self.queue.last(&self.subject("attempt")).await?;
        let of_this = last.filter(|(headers, _)| is_of(headers, &self.body));
        let number = of_this.and_then(|(_, text)| String::from_utf8(text).ok()?.parse().ok());
        Ok(number.unwrap_or(0))
    }

    async fn say(&self, kind: &str, payload: Vec<u8>) -> Result<(), QueueError> {
        let subject = self.subject(kind);
        self.queue.store(subject, self.said(payload)).await
    }

    /// Stores what is said on the way, with its signature.
    async fn progress(&self, kind: &str, message: &Message) -> Result<(), QueueError> {
        let ids = (&self.task_id, self.correlation_id.as_ref());
        let mut headers = headers(ids, &self.body);
        if let Some(signature) = self.service.signature(message) {
            headers.insert(signing::NAME, signature);
        }
        let subject = self.subject(kind);
        self.queue
            .store_with(subject, message.encode(), headers, false)
            .await
    }

    const fn said(&self, payload: Vec<u8>) -> Said<'_> {
        Said {
            payload,
            ids: (&self.task_id, self.correlation_id.as_ref()),
            body: &self.body,
        }
    }

    fn headers_agree(&self) -> bool {
        let header = |name| {
            let headers = self.delivery.headers.as_ref()?;
            headers
                .get(name)
                .map(|value| value.as_str().to_ascii_lowercase())
        };
        let task_id = header(TASK_ID).is_none_or(|id| id == self.task_id.to_string());
        let wanted = self.correlation_id.map(|id| id.to_string());
        task_id && header(CORRELATION).is_none_or(|id| wanted.is_none_or(|wanted| wanted == id))
    }
}

/// Stores what is said on the way; the end is stored by itself.
struct Publisher<'a> {
    job: &'a Job<'a>,
    last: Option<Message>,
    elsewhere: Option<TaskResult>,
    failed: Option<QueueError>,
}

impl Caller for Publisher<'_> {
    fn peer(&self) -> Peer {
        self.job.peer()
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
            if self.failed.is_none() {
                self.failed = self.job.progress(kind, &message).await.err();
            }
        })
    }

    fn elsewhere(&mut self, result: &TaskResult) {
        if result.status.is_terminal() {
            self.elsewhere = Some(result.clone());
        }
    }
}

fn is_of(headers: &HeaderMap, body: &Digest) -> bool {
    headers
        .get(BODY)
        .is_some_and(|value| value.as_str() == body.to_string())
}

#[expect(clippy::expect_used, reason = "every caller gives a text of its own")]
fn malformed(why: &str) -> Nack {
    let why = why.parse().expect("no reason here is blank");
    Nack::new(ReceiptStatus::Nack, ErrorCode::InvalidTask, why)
}

const WHY: &str = "Sap-Why";
/// How long one request for tasks stands at the server.
const PULL: core::time::Duration = core::time::Duration::from_secs(2);
