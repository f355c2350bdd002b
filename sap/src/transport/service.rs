//! The answering side: a processor, its time, and the way to endpoints.

use core::fmt;
use core::panic::AssertUnwindSafe;
use core::pin::pin;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::StreamExt as _;
use futures::channel::mpsc;
use futures::future::{BoxFuture, join};
use ubos_common::driver::Sleep;
use ubos_common::trace_context::TraceContext;

use super::Message;
use super::endpoint::{HoldUp, NoReplies, Replies, ToEndpoint, Undelivered};
use crate::future::{LARGE, yield_once};
use crate::processor::{
    Answer, Asker, Delivery, Given, Peer, ProcessError, Processor, Unreachable, Warning, guarded,
};
use crate::receipt::Nack;
use crate::result::TaskResult;
use crate::task::Task;
#[cfg(feature = "sign")]
use crate::work::{self, For};

/// Who sent the task and waits for what is said about it.
pub trait Caller: Send {
    /// Takes one message. One who is gone drops it. It holds up neither the deadline nor the cancel of its task for more than
    /// 1 s: after so long with one message it counts as slow, and results on the way are left out while 64 messages, or 4 MiB of them, wait for it.
    fn tell(&mut self, message: Message) -> BoxFuture<'_, ()>;

    /// Who it is, as far as the transport knows.
    fn peer(&self) -> Peer {
        Peer::default()
    }

    /// Ready when it wants its task no more, which is cancelled then. It waits for the answer nevertheless.
    fn cancelled(&mut self) -> Option<BoxFuture<'static, ()>> {
        None
    }

    /// A result goes to an endpoint instead; no other one comes here.
    fn elsewhere(&mut self, _result: &TaskResult) {}
}

/// What answers tasks behind a transport. Clones are one service.
#[derive(Clone)]
pub struct Service {
    processor: Arc<Processor>,
    clock: Arc<dyn Sleep + Send + Sync>,
    replies: Arc<dyn Replies>,
    on_warning: Arc<dyn Fn(&Warning) + Send + Sync>,
    #[cfg(feature = "sign")]
    key: Option<Arc<crate::sign::SigningKey>>,
}

impl Service {
    /// A service that reaches no endpoint.
    #[must_use]
    pub fn new(processor: Arc<Processor>, clock: Arc<dyn Sleep + Send + Sync>) -> Self {
        Self {
            processor,
            clock,
            replies: Arc::new(NoReplies),
            on_warning: Arc::new(|_| {}),
            #[cfg(feature = "sign")]
            key: None,
        }
    }

    /// Sets what sends results to endpoints.
    #[must_use]
    pub fn replies(mut self, replies: Arc<dyn Replies>) -> Self {
        self.replies = replies;
        self
    }

    /// Sets who is told of warnings.
    #[must_use]
    pub fn on_warning(mut self, on_warning: impl Fn(&Warning) + Send + Sync + 'static) -> Self {
        self.on_warning = Arc::new(on_warning);
        self
    }

    /// Sets the key that signs results. The signature goes beside the result, where the transport has a place.
    #[cfg(feature = "sign")]
    #[must_use]
    pub fn sign(mut self, key: Arc<crate::sign::SigningKey>) -> Self {
        self.key = Some(key);
        self
    }

    /// The signature of a result, where this service signs and the result has a canonical form; made on another thread
    /// where the result is long.
    #[cfg_attr(
        not(feature = "sign"),
        expect(clippy::unused_async, unused_variables, reason = "the feature does it")
    )]
    pub(super) async fn signature(&self, message: &Message) -> Option<String> {
        #[cfg(feature = "sign")]
        if let (Some(key), Message::Result(result)) = (&self.key, message) {
            let (key, result) = (Arc::clone(key), result.clone());
            // Any part of it may be long.
            let bytes = result.encode().len();
            let signed = work::done(For::Task, bytes, move || key.sign_result(&result));
            return Some(signed.await.ok()?.to_string());
        }
        None
    }

    pub(super) const fn clock(&self) -> &Arc<dyn Sleep + Send + Sync> {
        &self.clock
    }

    /// The processor.
    pub(crate) const fn processor(&self) -> &Arc<Processor> {
        &self.processor
    }

    /// Answers a task, given as its bytes.
    ///
    /// # Errors
    ///
    /// [`ProcessError`]: what could not be written down was not said.
    pub async fn serve(&self, bytes: &[u8], caller: &mut dyn Caller) -> Result<(), ProcessError> {
        let read = self.read(bytes).await;
        self.serve_read(read, bytes, caller).await
    }

    /// Reads a task, or says why it is turned away. Others have their turn after one that takes its time.
    pub(super) async fn read(&self, bytes: &[u8]) -> Result<Arc<Task>, Box<Nack>> {
        let read = self.processor.read(bytes).await;
        if bytes.len() > LARGE {
            yield_once().await;
        }
        read
    }

    /// Answers a task that was read from these bytes, or was none.
    pub(super) async fn serve_read(
        &self,
        read: Result<Arc<Task>, Box<Nack>>,
        bytes: &[u8],
        caller: &mut dyn Caller,
    ) -> Result<(), ProcessError> {
        match read {
            Ok(task) => self.serve_task(task, Given::Wire(bytes), caller).await,
            Err(nack) => {
                let now = self.clock.now();
                let answer = self.processor.turn_away(now, *nack, bytes).await;
                caller.tell(answer.into()).await;
                Ok(())
            }
        }
    }

    /// Turns a task away before the processor sees it.
    #[cfg(any(feature = "http", feature = "mcp", feature = "nats"))]
    pub(super) async fn turn_away(&self, nack: Nack, bytes: &[u8]) -> Message {
        let now = self.clock.now();
        self.processor.turn_away(now, nack, bytes).await.into()
    }

    /// Notes a Nack that is about no message.
    pub(super) async fn note(&self, nack: Nack) -> Nack {
        self.processor.note(self.clock.now(), &nack).await;
        nack
    }

    /// Ends a task that is not processed any more.
    #[cfg(feature = "nats")]
    pub(super) async fn abandon(&self, bytes: &[u8]) -> Result<Message, ProcessError> {
        let ended = self.processor.abandon(&self.clock, bytes).await;
        ended.map(Message::from)
    }

    /// Answers a task that was read from these bytes.
    // impl: SAP-1-1, SAP-5-9
    pub(super) async fn serve_task(
        &self,
        task: Arc<Task>,
        given: Given<'_>,
        caller: &mut dyn Caller,
    ) -> Result<(), ProcessError> {
        let endpoint = task.reply_to.as_ref().and_then(|to| to.endpoint.clone());
        let peer = caller.peer();
        let cancelled = caller.cancelled();
        let (sender, mut receiver) = mpsc::unbounded();
        // The channel itself has no bound: while as many wait as may, nothing is made that could be sent, or it is left out.
        let waiting = Undelivered::default();
        let left_out = LeftOut::of(endpoint.is_some());
        let say = |message| {
            if waiting.is_too_much(&message) {
                return left_out.warn(self);
            }
            let bytes = message.bytes();
            waiting.add(bytes);
            let _ = sender.unbounded_send((message, bytes));
        };
        let mut process = pin!(async {
            let mut sink = |delivery: Delivery<'_>| {
                let message = match delivery {
                    Delivery::Ack(ack) => Message::Ack(ack),
                    Delivery::Result(result) => Message::Result(Box::new(result.clone())),
                    Delivery::Warning(warning) => return self.warn(&warning),
                };
                say(message);
            };
            let clock = &self.clock;
            let processor = &self.processor;
            let asker = Asker {
                peer: &peer,
                cancelled,
            };
            let answer = processor.answer(clock, asker, task, given, &mut sink).await;
            let outcome = answer.map(|answer| say(answer.into()));
            sender.close_channel();
            outcome
        });
        let gated = HoldUp::new(&waiting, self.clock.as_ref()).around(process.as_mut());
        let deliver = async {
            while let Some((message, bytes)) = receiver.next().await {
                if waiting.is_overtaken(&message) {
                    left_out.warn(self);
                } else {
                    let elsewhere = endpoint.as_deref().map(|to| (to, peer.trace.as_ref()));
                    self.pass(message, elsewhere, &waiting, caller).await;
                }
                waiting.remove(bytes);
            }
        };
        // Delivering is polled first, so that what it makes room for is used in the same turn.
        let ((), outcome) = join(deliver, gated).await;
        outcome
    }

    // impl: SAP-4.1-17
    async fn pass(
        &self,
        message: Message,
        elsewhere: Option<(&str, Option<&TraceContext>)>,
        waiting: &Undelivered,
        caller: &mut dyn Caller,
    ) {
        let clock = self.clock.as_ref();
        let Some((endpoint, trace)) = elsewhere else {
            return waiting.watched(clock, caller.tell(message)).await;
        };
        let signature = self.signature(&message).await;
        match message {
            Message::Result(result) => {
                caller.elsewhere(&result);
                let sent = ToEndpoint {
                    endpoint,
                    result: &result,
                    signature: signature.as_deref(),
                    trace,
                };
                let sent = async { self.replies.send(sent).await };
                let sent = guarded(waiting.taken(clock, sent)).await;
                let sent =
                    sent.unwrap_or_else(|panicked| Err(Unreachable::Carrier(panicked.into())));
                if let Err(why) = sent {
                    self.warn(&Warning::Unreachable(why));
                }
            }
            message => caller.tell(message).await,
        }
    }

    /// Tells of a warning. Whoever panics at it ends no task by that.
    pub(super) fn warn(&self, warning: &Warning) {
        drop(catch_unwind(AssertUnwindSafe(|| {
            (self.on_warning)(warning)
        })));
    }
}

/// Tells of results on the way that are left out for one who is slow: of an endpoint's each, and of a caller's once, who could
/// otherwise have the operator told as often as it likes.
struct LeftOut {
    is_endpoint: bool,
    is_told: AtomicBool,
}

impl LeftOut {
    const fn of(is_endpoint: bool) -> Self {
        Self {
            is_endpoint,
            is_told: AtomicBool::new(false),
        }
    }

    fn warn(&self, service: &Service) {
        if self.is_endpoint {
            service.warn(&Warning::Unreachable(Unreachable::Refused));
        } else if !self.is_told.swap(true, Ordering::Relaxed) {
            let why = "the caller takes nothing: results on the way are left out";
            service.warn(&Warning::Carrier(why.into()));
        }
    }
}

impl From<Answer> for Message {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Nack(nack) => Self::Nack(nack),
            Answer::Result(result) => Self::Result(result),
            Answer::Ack(ack) => Self::Ack(ack),
        }
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service")
            .field("processor", &self.processor)
            .field("replies", &self.replies)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;
    use crate::processor::Config;
    use crate::processor::fixture::{Still, processor};
    use crate::store::MemoryTranscript;

    // spec: SAP-2-4
    #[cfg(feature = "sign")]
    #[test]
    fn a_result_is_signed_on_another_thread_whatever_part_of_it_is_long() {
        use futures::executor::block_on;
        use ubos_common::secret::Secret;

        use crate::validate::Options;

        let processor = processor(Arc::new(MemoryTranscript::default()), Config::default());
        let key = crate::sign::SigningKey::from_seed("agent", &Secret::new([1; 32])).unwrap();
        let service = Service::new(Arc::new(processor), Arc::new(Still)).sign(Arc::new(key));
        for (bytes, threads) in [(1, 0), (work::HEAVY, 1)] {
            let text = "x".repeat(bytes);
            let result = format!(
                r#"{{"protocolVersion":"2.0","taskId":"00000000-0000-0000-0000-000000000001","correlationId":"00000000-0000-0000-0000-000000000002","reportedAt":"1970-01-01T00:00:00Z","producer":{{"agentId":"A-1","agentKind":"agent"}},"status":"SUCCEEDED","output":1,"metrics":{{"text":"{text}"}},"constitutionalEvidence":{{"alignment":"VALID"}}}}"#
            );
            let message = Message::decode(result.as_bytes(), &Options::default()).unwrap();
            let signing = || block_on(service.signature(&message));
            let (signature, handed_over) = work::handed_over(signing);
            assert!(signature.is_some());
            assert_eq!(handed_over, threads);
        }
    }

    #[test]
    fn others_have_their_turn_after_a_long_task_was_read() {
        let transcript = Arc::new(MemoryTranscript::default());
        let processor = processor(transcript, Config::default());
        let service = Service::new(Arc::new(processor), Arc::new(Still));
        for (bytes, is_long) in [(LARGE, false), (LARGE + 1, true)] {
            let read = service.read(&vec![b' '; bytes]).now_or_never();
            assert_eq!(read.is_none(), is_long);
        }
    }
}
