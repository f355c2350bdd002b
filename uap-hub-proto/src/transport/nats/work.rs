//! Running jobs of the queue on a hub.

use std::{convert::Infallible, pin::pin, time::Duration};

use async_nats::jetstream::message::{AckKind, Message as Delivery};
use futures::{StreamExt as _, stream::FuturesUnordered};
use tokio::time::MissedTickBehavior;

use super::{JobQueue, QueueError, carried, read};
use crate::{
    id::JobId,
    role::hub::{CommandError, Job, JobEvent, Outcome, Phase, Record, Verdict},
    transport::server::{HubHandle, JobHandle},
};

/// How long one request for jobs waits at the server.
const PULL: Duration = Duration::from_secs(2);

impl JobQueue {
    /// Runs jobs of the queue on a hub until `shutdown` is ready and those that it has are settled. `observe` gets the events of
    /// each.
    ///
    /// To leave well, make `shutdown` ready and shut the hub down: jobs that end in its drain time have their end stored, the
    /// others are given back at once. It then returns soon after the hub has closed, also where the server is away: each
    /// request waits for as long as the client does, and at least 10 s. What runs when the future is dropped, another hub gets
    /// after [`ack_wait`](super::QueueConfig::with_ack_wait), as after a crash.
    ///
    /// # Errors
    ///
    /// [`QueueError`]: the server, or the way to it, failed. What has no end is delivered again.
    // impl: HUB-6-2
    pub async fn work(
        &self,
        hub: &HubHandle,
        observe: impl Fn(JobId, &JobEvent),
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), QueueError> {
        let worked = self.run_all(hub, observe, shutdown).await;
        // What is given back is on its way alone, and a process may end after this. While the server is away it waits for its time.
        let _ = self.in_time(self.client.flush()).await;
        worked
    }

    async fn run_all(
        &self,
        hub: &HubHandle,
        observe: impl Fn(JobId, &JobEvent),
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), QueueError> {
        let mut shutdown = pin!(shutdown);
        let mut running = FuturesUnordered::new();
        let mut is_leaving = false;
        // Of a hub that leaves: where one job fails, the others are still settled.
        let mut settled = Ok(());
        while !is_leaving {
            let room = self.max_in_flight.saturating_sub(running.len());
            if room == 0 {
                tokio::select! {
                    () = &mut shutdown => is_leaving = true,
                    Some(done) = running.next() => done?,
                }
                continue;
            }
            // Never more than there is room for: a job that waits here would send no sign of life.
            let batch = self.jobs.batch().max_messages(room).expires(PULL);
            let mut asking = pin!(batch.messages());
            // While the server is away this waits for as long.
            let batch = loop {
                tokio::select! {
                    () = &mut shutdown => break None,
                    Some(done) = running.next(), if !running.is_empty() => done?,
                    batch = &mut asking => break Some(batch.map_err(QueueError::nats)?),
                }
            };
            let Some(mut batch) = batch else { break };
            loop {
                tokio::select! {
                    () = &mut shutdown, if !is_leaving => is_leaving = true,
                    Some(done) = running.next(), if !running.is_empty() => match is_leaving {
                        true => settled = settled.and(done),
                        false => done?,
                    },
                    delivery = batch.next() => match delivery {
                        Some(Ok(delivery)) => {
                            running.push(self.take(hub, &observe, delivery, is_leaving));
                        }
                        Some(Err(failed)) if is_leaving => {
                            settled = settled.and(Err(QueueError::Nats(failed)));
                            break;
                        }
                        Some(Err(failed)) => return Err(QueueError::Nats(failed)),
                        None => break,
                    },
                }
            }
        }
        while let Some(done) = running.next().await {
            settled = settled.and(done);
        }
        settled
    }

    /// One delivery. A hub that leaves gives it back: it was on its way, and the server would wait for it to be acknowledged.
    async fn take(
        &self,
        hub: &HubHandle,
        observe: &impl Fn(JobId, &JobEvent),
        delivery: Delivery,
        is_leaving: bool,
    ) -> Result<(), QueueError> {
        if !is_leaving {
            return self.run(hub, observe, delivery).await;
        }
        match read(&delivery.payload) {
            Ok((id, _)) => self.hand_back(id, &delivery).await,
            Err(_) => self.done(&delivery).await,
        }
    }

    /// One delivery of a job, from the hub to its end.
    async fn run(
        &self,
        hub: &HubHandle,
        observe: &impl Fn(JobId, &JobEvent),
        delivery: Delivery,
    ) -> Result<(), QueueError> {
        let Ok((id, Record::Accepted(mut job))) = read(&delivery.payload) else {
            // It is not a job, and will not be one the next time: there is nobody to report to.
            return self.done(&delivery).await;
        };
        job.trace = carried(delivery.headers.as_ref());
        if self.outcome(id).await?.is_some() {
            return self.done(&delivery).await;
        }
        let delivered = delivery.info().map_err(QueueError::nats)?.delivered;
        if delivered > self.max_deliveries
            && delivered.saturating_sub(self.given_back(id).await?) > self.max_deliveries
        {
            let outcome = Outcome::new(Verdict::Failed, "the job was taken too often");
            return self.end(id, outcome, &delivery).await.map(drop);
        }
        match hub.submit_as(id, own(job)) {
            Ok(job) => self.follow(hub, observe, job, &delivery).await,
            // An earlier delivery of it runs here, which this one adds nothing to.
            Err(CommandError::DuplicateJob) => self.count_given_back(id).await,
            Err(error) if is_passing(&error) => self.hand_back(id, &delivery).await,
            Err(error) => {
                let outcome = Outcome::new(Verdict::Failed, error.to_string());
                self.end(id, outcome, &delivery).await.map(drop)
            }
        }
    }

    /// Waits for the end, and tells the server regularly that the job is in progress.
    async fn follow(
        &self,
        hub: &HubHandle,
        observe: &impl Fn(JobId, &JobEvent),
        mut job: JobHandle,
        delivery: &Delivery,
    ) -> Result<(), QueueError> {
        let mut saying = pin!(self.say_at_work(delivery));
        let outcome = loop {
            tokio::select! {
                event = job.next_event() => match event {
                    Some(JobEvent::Ended(outcome)) => break Some(outcome),
                    Some(event) => observe(job.id(), &event),
                    None => break None,
                },
                // Beside the events: while the server is away, one of these may wait for as long.
                never = &mut saying => match never {},
            }
        };
        let phase = hub.inspect(|view| view.phase());
        let is_leaving = matches!(phase, Phase::Draining | Phase::Closed);
        match outcome {
            Some(outcome) if !(is_leaving && outcome.verdict == Verdict::Cancelled) => {
                let outcome = self.end(job.id(), outcome, delivery).await?;
                observe(job.id(), &JobEvent::Ended(outcome));
                Ok(())
            }
            // The hub is shutting down; the job stays.
            _ => self.hand_back(job.id(), delivery).await,
        }
    }

    /// Tells the server regularly that somebody is at a job.
    async fn say_at_work(&self, delivery: &Delivery) -> Infallible {
        let mut alive = tokio::time::interval(self.ack_wait / 3);
        alive.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            alive.tick().await;
            let _ = delivery.ack_with(AckKind::Progress).await;
        }
    }

    /// Stores the end, and only then acknowledges the job. Returns the stored end: if this hub was
    /// thought dead, another's may have come first.
    async fn end(
        &self,
        id: JobId,
        outcome: Outcome,
        delivery: &Delivery,
    ) -> Result<Outcome, QueueError> {
        let trace = carried(delivery.headers.as_ref());
        let outcome = self.store_end(id, outcome, trace.as_ref()).await?;
        self.done(delivery).await?;
        Ok(outcome)
    }

    /// Gives a job back, which is no attempt: another hub, or this one later, takes it as if this one had not.
    async fn hand_back(&self, id: JobId, delivery: &Delivery) -> Result<(), QueueError> {
        self.count_given_back(id).await?;
        let back = AckKind::Nak(Some(self.busy_delay));
        let given = self.in_time(delivery.ack_with(back));
        given.await?.map_err(QueueError::Nats)
    }

    /// Takes a job out of the queue.
    async fn done(&self, delivery: &Delivery) -> Result<(), QueueError> {
        let done = self.in_time(delivery.double_ack());
        done.await?.map_err(QueueError::Nats)
    }
}

/// Client ids belong to one hub: a job for one agent becomes a job for any in the queue.
fn own(mut job: Job) -> Job {
    job.agent = None;
    job
}

/// Whether another hub, or this one later, may take the job.
const fn is_passing(error: &CommandError) -> bool {
    matches!(
        error,
        CommandError::TooManyJobs { .. }
            | CommandError::QueueFull { .. }
            | CommandError::NoCapableAgent { .. }
            | CommandError::ShuttingDown
    )
}
