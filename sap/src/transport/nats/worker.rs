//! The answering side.

use core::convert::Infallible;
use core::future::Future;
use core::pin::pin;

use async_nats::HeaderMap;
use async_nats::jetstream::message::{AckKind, Message as Delivery};
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;

use super::cancel::Cancels;
use super::job::Job;
use super::{BODY, MAX_IN_FLIGHT, Queue, QueueError, digest_apart, found};
use crate::processor::{Warning, guarded};
use crate::receipt::Nack;
use crate::trace;
use crate::transport::Service;
use crate::validate::{Options, issuer_of};
use crate::work::{self, For};

impl Queue {
    /// Answers tasks until `shutdown` is ready, then lets those that run end. While the server is away they go on, and end in
    /// their time; what cannot be stored then is delivered again.
    ///
    /// Dropping the future instead leaves them to another worker, as a crash does. Tasks run in this future. Where
    /// carrying one of them fails, that one is given back with a [`Warning::Carrier`], and the others go on.
    ///
    /// # Errors
    ///
    /// [`QueueError`]: no more tasks could be had from the server. It is told when the tasks that ran have ended; what
    /// was not answered is delivered again.
    // impl: SAP-10-4
    pub async fn work(
        &self,
        service: &Service,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), QueueError> {
        let cancels = Cancels::default();
        let mut shutdown = pin!(shutdown);
        let listening = tokio::select! {
            () = &mut shutdown => return Ok(()),
            messages = self.cancels() => cancels.listen(messages?),
        };
        let mut jobs = FuturesUnordered::new();
        let begin = |delivery| self.answer_alone(service, &cancels, delivery);
        let working = async {
            let ended = tokio::select! {
                () = &mut shutdown => Ok(()),
                Err(failed) = self.take(&mut jobs, begin) => Err(failed),
            };
            while jobs.next().await.is_some() {}
            // What is given back is on its way alone: a process may end after this.
            let _ = self.in_time(self.context.client().flush()).await;
            ended
        };
        tokio::select! {
            ended = working => ended,
            () = listening => Ok(()),
        }
    }

    /// Takes tasks for as long as the server has some to give.
    async fn take<J: Future<Output = ()>>(
        &self,
        jobs: &mut FuturesUnordered<J>,
        begin: impl Fn(Delivery) -> J,
    ) -> Result<Infallible, QueueError> {
        loop {
            let room = MAX_IN_FLIGHT - jobs.len();
            if room == 0 {
                jobs.next().await;
                continue;
            }
            // Never more than there is room for: what waits here would be silent about.
            let batch = self.tasks.batch().max_messages(room).expires(PULL);
            let batch = while_working(jobs, batch.messages()).await;
            let mut batch = batch.map_err(QueueError::nats)?;
            while let Some(delivery) = while_working(jobs, batch.next()).await {
                jobs.push(begin(delivery.map_err(QueueError::nats)?));
                trace::queue("nats", jobs.len(), MAX_IN_FLIGHT);
            }
        }
    }

    /// Answers one delivery. What fails, or panics beside the hooks of the processor, gives the task back, and ends no other
    /// one.
    async fn answer_alone(&self, service: &Service, cancels: &Cancels, delivery: Delivery) {
        let answered = guarded(self.answer(service, cancels, &delivery)).await;
        match answered {
            Ok(Ok(())) => return,
            Ok(Err(failed)) => service.warn(&Warning::Carrier(failed.into())),
            Err(_panicked) => {}
        }
        // Where that fails too, the task comes again once its worker was silent for long enough.
        if let Err(failed) = self.give_back(&delivery).await {
            service.warn(&Warning::Carrier(failed.into()));
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
            return self.done(delivery).await;
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
    pub(super) async fn bury(&self, delivery: &Delivery, why: &str) -> Result<(), QueueError> {
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
        let whole = self.store(subject.clone(), payload.clone(), kept);
        match whole.await {
            Err(QueueError::TooLong) => {}
            stored => return stored,
        }
        let mut headers = HeaderMap::new();
        headers.insert(WHY, why);
        headers.insert(BODY, digest_apart(payload).await.to_string());
        self.store(subject, Bytes::new(), headers).await
    }

    /// Whether a task still waits for its end in the stream of tasks.
    pub(super) async fn has_task(&self, number: u64) -> Result<bool, QueueError> {
        if number == 0 {
            return Ok(false);
        }
        let name = format!("{}_tasks", self.config.name);
        let tasks = self.context.get_stream_no_info(name).await;
        let tasks = tasks.map_err(QueueError::nats)?;
        let task = self.in_time(tasks.get_raw_message(number));
        Ok(found(task.await?)?.is_some())
    }

    /// Takes what is settled out of the queue.
    pub(super) async fn done(&self, delivery: &Delivery) -> Result<(), QueueError> {
        let done = self.in_time(delivery.double_ack());
        done.await?.map_err(QueueError::Nats)
    }

    pub(super) async fn give_back(&self, delivery: &Delivery) -> Result<(), QueueError> {
        let back = AckKind::Nak(Some(self.config.busy_delay));
        let given = self.in_time(delivery.ack_with(back));
        given.await?.map_err(QueueError::Nats)
    }
}

/// What is waited for, while jobs go on.
async fn while_working<T>(
    jobs: &mut FuturesUnordered<impl Future<Output = ()>>,
    wanted: impl Future<Output = T>,
) -> T {
    let mut wanted = pin!(wanted);
    loop {
        tokio::select! {
            wanted = &mut wanted => return wanted,
            Some(()) = jobs.next(), if !jobs.is_empty() => {}
        }
    }
}

/// Who issued what is no valid task; empty where that cannot be read.
async fn issuer_apart(payload: Bytes) -> String {
    let read = work::done(For::Stranger, payload.len(), move || {
        issuer_of(&payload, &Options::default().limits)
    });
    read.await.unwrap_or_default()
}

const WHY: &str = "Sap-Why";
/// How long one request for tasks stands at the server.
const PULL: core::time::Duration = core::time::Duration::from_secs(2);
