//! The answering side.

use core::future::Future;
use core::pin::pin;
use std::sync::Arc;

use async_nats::HeaderMap;
use async_nats::jetstream::message::{AckKind, Message as Delivery};
use bytes::Bytes;
use futures::StreamExt as _;
use futures::channel::oneshot;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tokio::time::timeout;
use ubos_common::canon::Digest;
use ubos_common::trace_context::TraceContext;

use super::cancel::{Cancels, Told};
use super::{
    BODY, CORRELATION, ELSEWHERE, MAX_IN_FLIGHT, Queue, QueueError, TASK_ID, digest_apart, headers,
    is_of, trace_of,
};
use crate::error::ErrorCode;
use crate::evidence::ConstitutionalEvidence;
use crate::ident::{CorrelationId, TaskId};
use crate::processor::{Peer, Warning, guarded};
use crate::receipt::Nack;
use crate::result::TaskResult;
use crate::status::Status;
use crate::task::Task;
use crate::trace;
use crate::transport::about::MAX_AUTHORIZE;
use crate::transport::beside::{self, signed};
use crate::transport::{Caller, Message, Service};
use crate::validate::{Options, issuer_of};
use crate::work::{self, For};

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
        let cancels = Cancels::default();
        let told = format!("{}.cancel.>", self.config.name);
        let told = self.context.client().subscribe(told).await;
        let listening = cancels.listen(told.map_err(QueueError::nats)?);
        tokio::select! {
            ended = self.work_with(service, &cancels, shutdown) => ended,
            () = listening => Ok(()),
        }
    }

    async fn work_with(
        &self,
        service: &Service,
        cancels: &Cancels,
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
                            jobs.push(self.answer_alone(service, cancels, delivery));
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

    /// Answers one delivery. What panics beside the hooks of the processor gives the task back, and ends no other one.
    async fn answer_alone(
        &self,
        service: &Service,
        cancels: &Cancels,
        delivery: Delivery,
    ) -> Result<(), QueueError> {
        match guarded(self.answer(service, cancels, &delivery)).await {
            Ok(answered) => answered,
            Err(_panicked) => self.give_back(&delivery).await,
        }
    }

    async fn answer(
        &self,
        service: &Service,
        cancels: &Cancels,
        delivery: &Delivery,
    ) -> Result<(), QueueError> {
        let read = service.read(&delivery.payload).await;
        let (task_id, correlation_id) = match &read {
            Ok(task) => (Some(task.task_id), Some(task.correlation_id)),
            Err(nack) => (nack.message_id, nack.correlation_id),
        };
        let Some(task_id) = task_id else {
            // Nobody can be told; it is written down, and kept for somebody to look at.
            let nack = Nack::malformed("no task, or none whose id can be read");
            service.turn_away(nack, &delivery.payload).await;
            self.bury(delivery, "no task id").await?;
            return done(delivery).await;
        };
        let job = Job {
            queue: self,
            service,
            cancels,
            body: digest_apart(delivery.payload.clone()).await,
            task_id,
            issuer: match &read {
                Ok(task) => task.issuer.agent_id.to_string(),
                Err(_) => issuer_apart(delivery.payload.clone()).await,
            },
            read,
            correlation_id,
            delivery,
        };
        job.answer().await
    }

    /// Keeps what could not be answered, with the headers that came with it. Of what is too long with one header more
    /// its digest is kept: otherwise it would come to every worker for ever.
    async fn bury(&self, delivery: &Delivery, why: &str) -> Result<(), QueueError> {
        let mut headers = delivery.headers.clone().unwrap_or_default();
        headers.insert(WHY, why);
        // What its sender asked of the server is not asked again.
        let kept: HeaderMap = headers
            .iter()
            .filter(|(name, _)| !name.to_string().to_ascii_lowercase().starts_with("nats-"))
            .filter_map(|(name, values)| Some((name.clone(), values.first()?.clone())))
            .collect();
        let (subject, payload) = (
            format!("{}.dead", self.config.name),
            delivery.payload.clone(),
        );
        let whole = self.store_with(subject.clone(), payload.clone(), kept, false);
        match whole.await {
            Err(QueueError::TooLong) => {}
            stored => return stored,
        }
        let mut headers = HeaderMap::new();
        headers.insert(WHY, why);
        headers.insert(BODY, digest_apart(payload).await.to_string());
        self.store_with(subject, Bytes::new(), headers, false).await
    }

    async fn give_back(&self, delivery: &Delivery) -> Result<(), QueueError> {
        let back = AckKind::Nak(Some(self.config.busy_delay));
        delivery.ack_with(back).await.map_err(QueueError::Nats)
    }
}

/// Who issued what is no valid task; empty where that cannot be read.
async fn issuer_apart(payload: Bytes) -> String {
    let read = work::done(For::Stranger, payload.len(), move || {
        issuer_of(&payload, &Options::default().limits)
    });
    read.await.unwrap_or_default()
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

async fn done(delivery: &Delivery) -> Result<(), QueueError> {
    delivery.double_ack().await.map_err(QueueError::Nats)
}

/// One delivery of a task.
struct Job<'a> {
    queue: &'a Queue,
    service: &'a Service,
    cancels: &'a Cancels,
    delivery: &'a Delivery,
    read: Result<Arc<Task>, Box<Nack>>,
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
        // What is no task never begins.
        if self.read.is_ok() {
            self.say("attempt", (begun + 1).to_string().into_bytes())
                .await?;
        }
        let (cancel, cancelled) = oneshot::channel();
        let cancel = self.listen(cancel).await?;
        let mut caller = Publisher {
            job: self,
            cancelled: Some(cancelled),
            last: None,
            elsewhere: None,
            failed: None,
        };
        let served = self.serve(&mut caller, cancel).await;
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
        cancel: Option<(Told<'_>, oneshot::Sender<()>)>,
    ) -> Result<(), crate::processor::ProcessError> {
        let mut cancelling = pin!(self.cancelling(cancel));
        let mut is_listening = true;
        let span = trace::carry("nats", self.correlation_id.as_ref());
        let read = self.read.clone();
        let serving = self
            .service
            .serve_read(read, &self.delivery.payload, caller);
        let mut serving = pin!(trace::within(span, serving));
        loop {
            tokio::select! {
                served = &mut serving => return served,
                () = &mut cancelling, if is_listening => is_listening = false,
                () = tokio::time::sleep(self.queue.config.ack_wait / 3) => {
                    let _ = self.delivery.ack_with(AckKind::Progress).await;
                }
            }
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
        done(self.delivery).await
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
        // Another worker may have been first: then its result is the result.
        let (subject, payload) = (self.subject("result"), message.encode());
        self.queue
            .store_with(subject, payload.into(), headers, true)
            .await
    }

    async fn refuse(&self, why: &'static str) -> Result<(), QueueError> {
        let mut nack = Nack::malformed(why);
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

    /// Says at once that the task is to be stopped, where that was said before; else gives what comes to listen to.
    async fn listen(
        &self,
        cancel: oneshot::Sender<()>,
    ) -> Result<Option<(Told<'_>, oneshot::Sender<()>)>, QueueError> {
        let user = self.user();
        let (task_id, issuer) = (&self.task_id, &self.issuer);
        let subject = self.queue.cancel_subject(task_id, issuer, user.as_deref());
        // Before the look at what is stored, so that nothing is missed between.
        let told = self.cancels.of(&subject);
        match self.queue.last(&subject).await? {
            Some((headers, _)) if self.may_cancel(&headers).await => {
                let _ = cancel.send(());
                Ok(None)
            }
            _ => Ok(Some((told, cancel))),
        }
    }

    /// Waits until the task is to be stopped by somebody who may, and says so.
    async fn cancelling(&self, cancel: Option<(Told<'_>, oneshot::Sender<()>)>) {
        let Some((mut told, cancel)) = cancel else {
            return;
        };
        while !self.may_cancel(&told.next().await).await {}
        let _ = cancel.send(());
    }

    async fn may_cancel(&self, headers: &HeaderMap) -> bool {
        let Ok(task) = &self.read else {
            return false;
        };
        let (processor, peer) = (self.service.processor(), self.peer(Some(headers)));
        if !is_of(headers, &self.body) {
            return false;
        }
        let allowed = timeout(MAX_AUTHORIZE, processor.allows(&peer, task)).await;
        allowed.unwrap_or(false)
    }

    /// The user on whose subject the task was published.
    fn user(&self) -> Option<String> {
        let prefix = format!("{}.task.", self.queue.config.name);
        let user = self.delivery.subject.strip_prefix(&prefix);
        user.map(str::to_owned)
    }

    /// Who may publish where a message with these headers was published.
    fn peer(&self, headers: Option<&HeaderMap>) -> Peer {
        let mut peer = Peer::on_nats(self.user());
        peer.trace = headers.and_then(trace_of);
        let signature = headers.and_then(|headers| headers.get(beside::SIGNATURE));
        signed(peer, signature.map(|value| value.as_str()))
    }

    async fn attempts(&self) -> Result<u32, QueueError> {
        let last = self.queue.last(&self.subject("attempt")).await?;
        let of_this = last.filter(|(headers, _)| is_of(headers, &self.body));
        let number = of_this.and_then(|(_, text)| String::from_utf8(text).ok()?.parse().ok());
        Ok(number.unwrap_or(0))
    }

    async fn say(&self, kind: &str, payload: Vec<u8>) -> Result<(), QueueError> {
        let headers = self.headers(self.correlation_id.as_ref());
        let subject = self.subject(kind);
        self.queue
            .store_with(subject, payload.into(), headers, false)
            .await
    }

    /// Stores what is said on the way, with its signature. A part that the server does not take is left out.
    async fn progress(&self, kind: &str, message: &Message) -> Result<(), QueueError> {
        let mut headers = self.headers(self.correlation_id.as_ref());
        if let Some(signature) = self.service.signature(message).await {
            headers.insert(beside::SIGNATURE, signature);
        }
        let subject = self.subject(kind);
        let payload = message.encode().into();
        let stored = self.queue.store_with(subject, payload, headers, false);
        match stored.await {
            Err(QueueError::TooLong) => {
                self.service.warn(&Warning::TooLong);
                Ok(())
            }
            stored => stored,
        }
    }

    /// What goes beside all that is said of the task: the place in a trace that came with it, too.
    fn headers(&self, correlation_id: Option<&CorrelationId>) -> HeaderMap {
        let mut headers = headers((&self.task_id, correlation_id), &self.body);
        let trace = self.delivery.headers.as_ref().and_then(trace_of);
        for (name, value) in trace.iter().flat_map(TraceContext::to_carry) {
            headers.insert(name, value);
        }
        headers
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
    cancelled: Option<oneshot::Receiver<()>>,
}

impl Caller for Publisher<'_> {
    fn peer(&self) -> Peer {
        self.job.peer(self.job.delivery.headers.as_ref())
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

const WHY: &str = "Sap-Why";
/// How long one request for tasks stands at the server.
const PULL: core::time::Duration = core::time::Duration::from_secs(2);
