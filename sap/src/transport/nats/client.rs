//! The asking side.

use async_nats::jetstream::consumer::{DeliverPolicy, pull};
use async_nats::jetstream::message::PublishMessage;
use futures::StreamExt as _;
use ubos_common::canon::Digest;
use ubos_common::driver::Sleep as _;

use super::{BODY, ELSEWHERE, KEEP, Queue, headers};
use crate::lifecycle::body_digest;
use crate::role::producer::Config;
use crate::task::Task;
use crate::transport::exchange::begin;
use crate::transport::sent::Heard;
use crate::transport::signing;
use crate::transport::{Message, SendError, TokioClock};
use crate::validate::Options;

impl Queue {
    /// Sends a task and gives the last that is said: a result, a Nack, or the Ack where results go to an endpoint;
    /// nothing where no Ack is wanted then. Everything is told on the way.
    ///
    /// It waits for as long as what workers say is kept, and gives up 300 s after the task's deadline. Dropping the
    /// future leaves the task in the queue. Sent again, it is answered with what is stored.
    ///
    /// # Errors
    ///
    /// [`SendError`]. Spec: SAP 10
    pub async fn send(
        &self,
        task: &Task,
        on_message: &mut (dyn FnMut(&Message) + Send),
    ) -> Result<Option<Message>, SendError> {
        let clock = TokioClock::default();
        let patient = Config::default().with_patience(KEEP, KEEP);
        let (bytes, mut exchange) = begin(task, clock.now(), patient)?;
        let body = body_digest(&bytes);
        let queue = self;
        queue.publish(task, bytes, &body).await?;
        let following = pull::OrderedConfig {
            filter_subject: queue.subject(&task.task_id, task.issuer.agent_id.as_str(), ">"),
            deliver_policy: DeliverPolicy::All,
            ..pull::OrderedConfig::default()
        };
        let consumer = queue.out.create_consumer(following).await;
        let messages = consumer.map_err(SendError::carrier)?.messages().await;
        let mut messages = messages.map_err(SendError::carrier)?;
        let elsewhere = task
            .reply_to
            .as_ref()
            .is_some_and(|to| to.endpoint.is_some());
        while let Heard::Said(Some(message)) = exchange.sent.hear(&clock, messages.next()).await? {
            let message = message.map_err(SendError::carrier)?;
            let header = |name| {
                message
                    .headers
                    .as_ref()
                    .and_then(|headers| headers.get(name))
            };
            // Said about another task of the same id, which was turned away or went first.
            if header(BODY).map(|value| value.as_str()) != Some(&*body.to_string()) {
                continue;
            }
            if message.subject.ends_with(".attempt") {
                continue;
            }
            if header(ELSEWHERE).is_some() {
                break;
            }
            let read = Message::decode(&message.payload, &Options::default());
            let is_ack = message.subject.ends_with(".ack");
            let read = read.map_err(SendError::Answer)?;
            let signature = header(signing::NAME).map(|value| value.as_str());
            queue.signing.check(&read, signature)?;
            let is_last = exchange.take(clock.now(), read, on_message)?;
            if is_last || (is_ack && elsewhere) {
                break;
            }
        }
        exchange.end()
    }

    async fn publish(&self, task: &Task, bytes: Vec<u8>, body: &Digest) -> Result<(), SendError> {
        let mut beside = headers((&task.task_id, Some(&task.correlation_id)), body);
        if let Some(signature) = self.signing.sign(task)? {
            beside.insert(signing::NAME, signature);
        }
        let publish = PublishMessage::build()
            .payload(bytes.into())
            .headers(beside)
            .message_id(format!("{}.{body}", task.task_id));
        let stored = self.context.send_publish(self.task_subject(), publish);
        let stored = stored.await.map_err(SendError::carrier)?;
        stored.await.map(drop).map_err(SendError::carrier)
    }
}
