//! The answering side.

use core::future::Future;
use core::pin::pin;

use async_nats::HeaderMap;
use async_nats::jetstream::message::{AckKind, Message as Delivery};
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;

use super::cancel::Cancels;
use super::job::{Job, done};
use super::{BODY, MAX_IN_FLIGHT, Queue, QueueError, digest_apart};
use crate::processor::guarded;
use crate::receipt::Nack;
use crate::trace;
use crate::transport::Service;
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
        let listening = cancels.listen(self.cancels().await?);
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

    pub(super) async fn give_back(&self, delivery: &Delivery) -> Result<(), QueueError> {
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

const WHY: &str = "Sap-Why";
/// How long one request for tasks stands at the server.
const PULL: core::time::Duration = core::time::Duration::from_secs(2);
