//! The asking side.

use core::time::Duration;

use async_nats::jetstream::consumer::{DeliverPolicy, pull};
use async_nats::jetstream::message::PublishMessage;
use bytes::Bytes;
use futures::StreamExt as _;
use ubos_common::canon::Digest;

use super::claim::Holder;
use super::{BODY, ELSEWHERE, Queue, QueueError, digest_apart, headers, is_of, only};
use crate::task::Task;
use crate::transport::beside;
use crate::transport::exchange::Exchange;
use crate::transport::sent::Heard;
use crate::transport::waits::waiting;
use crate::transport::{Message, SendError};

waiting! {
    Queue:
    /// Sets how long nothing may be said about a task that this client sent or follows, and how long after a task's deadline
    /// something may be: 7 days, as long as what is said is kept, and 300 s where this is not set.
    with_patience(patience: Duration) by set_patience;

    /// Sets how often a task is sent again for which nothing came in time, or whose way to the server failed; never, where
    /// this is not set. Workers know the copies.
    with_resends(resends: u32) by set_resends;

    /// Sets the time of a task that names no deadline: 7 days where this is not set. Workers may have a time of their own for
    /// it.
    with_default_time(time: Duration) by set_default_time;
}

impl Queue {
    /// Sends a task and gives the last that is said: a result, a Nack, or the Ack where results go to an endpoint;
    /// nothing where no Ack is wanted then. Everything is told on the way.
    ///
    /// It waits for as long as what workers say is kept, and gives up 300 s after the task's deadline
    /// ([`with_patience`](Self::with_patience)). Giving up, as dropping the
    /// future, leaves the task in the queue. Sent again, it is answered with the result that is stored; one that was
    /// turned away is tried again.
    ///
    /// # Errors
    ///
    /// [`SendError`]. Spec: SAP 10
    pub async fn send(
        &self,
        task: &Task,
        on_message: &mut (dyn FnMut(&Message) + Send),
    ) -> Result<Option<Message>, SendError> {
        let (bytes, mut exchange) = self.waits.begin(task).await?;
        let bytes = Bytes::from(bytes);
        let body = digest_apart(bytes.clone()).await;
        let mut copies = 0;
        loop {
            let sent = (task, &bytes, &body, copies);
            let answer = self.send_once(sent, &mut exchange, on_message).await;
            if !exchange.goes_on(self.waits.clock(), answer).await? {
                return exchange.end();
            }
            copies += 1;
        }
    }

    /// Sends the task once, and takes all that is said then.
    async fn send_once(
        &self,
        (task, bytes, body, copies): (&Task, &Bytes, &Digest, u32),
        exchange: &mut Exchange,
        on_message: &mut (dyn FnMut(&Message) + Send),
    ) -> Result<Heard<()>, SendError> {
        let publishing = self.publish(task, bytes.clone(), body, copies);
        let over = match exchange.sent.hear(self.waits.clock(), publishing).await? {
            Heard::Said(over) => over?,
            Heard::SendAgain => return Ok(Heard::SendAgain),
        };
        let hearing = Hearing {
            over,
            follows: false,
        };
        self.hear(task, body, exchange, hearing, on_message).await
    }

    /// How far a task is that was sent before: the latest that a worker said of it, or nothing where none has yet. One
    /// that was turned away and sent again is so until a worker begins it again.
    ///
    /// # Errors
    ///
    /// [`SendError`].
    pub async fn status(&self, task: &Task) -> Result<Option<Message>, SendError> {
        let body = digest_apart(task.encode()).await;
        let over = self.over(task, &body).await.map_err(SendError::carrier)?;
        for kind in ["result", "nack", "progress", "ack"] {
            let last = self.last_stored(&self.about(task, kind)).await;
            let last = last.map_err(SendError::carrier)?;
            let Some(last) = last.filter(|last| {
                let is_over = kind == "nack" && last.sequence <= over;
                is_of(&last.headers, &body) && !is_over
            }) else {
                continue;
            };
            let signature = only(&last.headers, beside::SIGNATURE);
            let read = self.beside.read(last.payload, signature).await?;
            let mut exchange = self.waits.about(task)?;
            exchange.take(self.waits.clock().now(), read, &mut |_| {})?;
            return exchange.latest().map(Some);
        }
        Ok(None)
    }

    /// Has a task stopped that was sent before, on the subject of the same user, and gives how far it is. Its end
    /// is CANCELLED where it had not ended by itself, and comes to those who wait for it. A task that waits for a
    /// worker ends so when its turn comes.
    ///
    /// # Errors
    ///
    /// [`SendError`].
    pub async fn cancel(&self, task: &Task) -> Result<Option<Message>, SendError> {
        let body = digest_apart(task.encode()).await;
        let mut beside = headers((&task.task_id, Some(&task.correlation_id)), &body);
        for (name, value) in self.beside.of(task).await? {
            beside.insert(name, value);
        }
        let user = self.config.user.as_deref();
        let subject = self.cancel_subject(&task.task_id, task.issuer.agent_id.as_str(), user);
        let stored = self.store(subject, Bytes::new(), beside).await;
        stored.map_err(SendError::carrier)?;
        self.status(task).await
    }

    /// Follows a task that was sent before: tells all that is said about it, from the first on, and gives the last.
    /// Of a task whose results go to an endpoint the queue has the Ack and the end. It waits for a task that nobody has
    /// sent yet, as [`send`](Self::send) waits. A Nack is the last word about a task that was sent again, too,
    /// until a worker begins it again.
    ///
    /// # Errors
    ///
    /// [`SendError`].
    pub async fn follow(
        &self,
        task: &Task,
        on_message: &mut (dyn FnMut(&Message) + Send),
    ) -> Result<Option<Message>, SendError> {
        let mut exchange = self.waits.about(task)?;
        let body = digest_apart(task.encode()).await;
        let over = exchange
            .sent
            .hear(self.waits.clock(), self.over(task, &body));
        let over = match over.await? {
            Heard::Said(over) => over.map_err(SendError::carrier)?,
            // It sends nothing again.
            Heard::SendAgain => return exchange.end(),
        };
        let hearing = Hearing {
            over,
            follows: true,
        };
        self.hear(task, &body, &mut exchange, hearing, on_message)
            .await?;
        exchange.end()
    }

    /// Takes what is said about a task, to its end; one who sent it does not wait for what goes to an endpoint.
    async fn hear(
        &self,
        task: &Task,
        body: &Digest,
        exchange: &mut Exchange,
        Hearing { over, follows }: Hearing,
        on_message: &mut (dyn FnMut(&Message) + Send),
    ) -> Result<Heard<()>, SendError> {
        let (clock, queue) = (self.waits.clock(), self);
        let following = pull::OrderedConfig {
            filter_subject: queue.about(task, ">"),
            deliver_policy: DeliverPolicy::All,
            ..pull::OrderedConfig::default()
        };
        let beginning = async {
            let consumer = queue.out.create_consumer(following).await;
            let messages = consumer.map_err(SendError::carrier)?.messages().await;
            messages.map_err(SendError::carrier)
        };
        let mut messages = match exchange.sent.hear(clock, beginning).await? {
            Heard::Said(messages) => messages?,
            Heard::SendAgain => return Ok(Heard::SendAgain),
        };
        let reply_to = task.reply_to.as_ref();
        let elsewhere = !follows && reply_to.is_some_and(|to| to.endpoint.is_some());
        loop {
            let message = match exchange.sent.hear(clock, messages.next()).await? {
                Heard::Said(Some(message)) => message.map_err(SendError::carrier)?,
                Heard::Said(None) => break,
                Heard::SendAgain => return Ok(Heard::SendAgain),
            };
            let header = |name| only(message.headers.as_ref()?, name);
            // Said about another task of the same id, which was turned away or went first.
            if header(BODY) != Some(&*body.to_string()) {
                continue;
            }
            if message.subject.ends_with(".attempt") {
                continue;
            }
            let is_nack = message.subject.ends_with(".nack");
            if is_nack && message.info().map_err(SendError::carrier)?.stream_sequence <= over {
                continue;
            }
            if !follows && header(ELSEWHERE).is_some() {
                break;
            }
            let is_ack = message.subject.ends_with(".ack");
            let signature = header(beside::SIGNATURE);
            let payload = message.payload.clone();
            let read = queue.beside.read(payload, signature).await?;
            let is_last = exchange.take(clock.now(), read, on_message)?;
            if is_last || (is_ack && elsewhere) {
                break;
            }
        }
        Ok(Heard::Said(()))
    }

    /// Up to which message of the stream the Nacks of a task are over: it was begun again after them, or was turned away
    /// again.
    async fn over(&self, task: &Task, body: &Digest) -> Result<u64, QueueError> {
        match self.holder(&self.about(task, "attempt"), body).await? {
            Holder::This(claim) if claim.begun > 0 => return Ok(claim.place),
            _ => {}
        }
        let nack = self.last_stored(&self.about(task, "nack")).await?;
        let nack = nack.filter(|nack| is_of(&nack.headers, body));
        Ok(nack.map_or(0, |nack| nack.sequence.saturating_sub(1)))
    }

    /// Where something is said about a task.
    fn about(&self, task: &Task, kind: &str) -> String {
        self.subject(&task.task_id, task.issuer.agent_id.as_str(), kind)
    }

    /// Puts a task into the queue, and gives the number of the last message that turned it away before. The server keeps one
    /// of those that are sent twice within its own time; one that was turned away meanwhile is another, and so is a copy that
    /// this client sends because nothing came.
    async fn publish(
        &self,
        task: &Task,
        bytes: Bytes,
        body: &Digest,
        copies: u32,
    ) -> Result<u64, SendError> {
        let nacks = self.last_stored(&self.about(task, "nack")).await;
        let nacks = nacks.map_err(SendError::carrier)?;
        let over = nacks.map_or(0, |nack| nack.sequence);
        let mut beside = headers((&task.task_id, Some(&task.correlation_id)), body);
        for (name, value) in self.beside.of(task).await? {
            beside.insert(name, value);
        }
        let publish = PublishMessage::build()
            .payload(bytes)
            .headers(beside)
            .message_id(format!("{}.{body}.{over}.{copies}", task.task_id));
        let stored = self.context.send_publish(self.task_subject(), publish);
        let stored = stored.await.map_err(SendError::carrier)?;
        stored.await.map_err(SendError::carrier)?;
        Ok(over)
    }
}

/// Who hears what is said about a task.
#[derive(Clone, Copy)]
struct Hearing {
    /// Nacks up to this message of the stream are over.
    over: u64,
    /// It follows a task that was sent before.
    follows: bool,
}
