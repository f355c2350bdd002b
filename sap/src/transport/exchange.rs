//! What the clients of all transports share: the exchange about one task, run by the producer's machine.

use ubos_common::canon::Digest;
use ubos_common::driver::Sleep;
use ubos_common::time::Now;

use super::sent::{Heard, Sent};
use super::{Message, SendError};
use crate::role::producer::{Config, Input};
use crate::task::Task;

/// A message that was read.
#[derive(Debug)]
pub(crate) struct Received {
    pub(super) message: Message,
    /// Of a result, where it was made before.
    pub(super) digest: Option<Digest>,
}

/// Takes the messages about a task, and passes on those that are new and allowed.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(super) sent: Sent,
    /// Whether results go to an endpoint of the task.
    elsewhere: bool,
    /// New messages so far.
    delivered: usize,
    last: Option<Message>,
}

impl Exchange {
    /// The task is on its way.
    pub(crate) fn new(task: &Task, now: Now, config: Config) -> Result<Self, SendError> {
        Ok(Self {
            sent: Sent::new(task, now, config)?,
            elsewhere: task
                .reply_to
                .as_ref()
                .is_some_and(|to| to.endpoint.is_some()),
            delivered: 0,
            last: None,
        })
    }

    /// Takes what was read; tells it if it is new. Gives whether it was the last.
    // impl: SAP-4.3-3, SAP-5-5
    pub(crate) fn take(
        &mut self,
        now: Now,
        Received { message, digest }: Received,
        on_message: &mut (dyn FnMut(&Message) + Send),
    ) -> Result<bool, SendError> {
        let is_new = match &message {
            Message::Ack(ack) => self.sent.take(now, Input::Ack(ack))?,
            Message::Nack(nack) => self.sent.take(now, Input::Nack(nack))?,
            Message::Result(result) => self.sent.take_digested(now, result, digest)?,
        };
        // For a copy alone there was no room.
        let is_ignored = !is_new && matches!(message, Message::Nack(_));
        let is_last = message.is_last() && !is_ignored;
        if is_new {
            on_message(&message);
            self.delivered += 1;
            self.last = Some(message);
        }
        Ok(is_last)
    }

    /// Whether the task is to be sent again after what an attempt came to; waits until its time for that has come.
    ///
    /// # Errors
    ///
    /// [`SendError`]: that of the attempt, or that there is no time left.
    #[cfg(any(feature = "http", feature = "nats"))]
    pub(crate) async fn goes_on(
        &mut self,
        clock: &(impl Sleep + ?Sized),
        attempt: Result<Heard<()>, SendError>,
    ) -> Result<bool, SendError> {
        match attempt {
            Ok(Heard::SendAgain) => Ok(true),
            Ok(Heard::Said(())) => self.is_sent_again(clock).await,
            // Refused and unreadable answers are the same when they come again.
            Err(error @ SendError::Carrier(_)) => match self.is_sent_again(clock).await? {
                true => Ok(true),
                false => Err(error),
            },
            Err(error) => Err(error),
        }
    }

    /// Waits until the task is to be sent again, where its other side ended without an answer; true then.
    ///
    /// # Errors
    ///
    /// [`SendError::NoAnswer`].
    pub(crate) async fn is_sent_again(
        &mut self,
        clock: &(impl Sleep + ?Sized),
    ) -> Result<bool, SendError> {
        if self.elsewhere || !self.sent.may_resend() {
            return Ok(false);
        }
        let heard = self.sent.hear(clock, core::future::pending::<()>()).await?;
        Ok(matches!(heard, Heard::SendAgain))
    }

    /// The last new message; `None` where nothing was said, because results go to an endpoint.
    ///
    /// One that does not end the task is an answer in two cases: where results go to an endpoint, and alone, as
    /// the latest of a task that was sent before and still runs.
    // impl: SAP-4.3-1
    pub(crate) fn end(self) -> Result<Option<Message>, SendError> {
        let what = match &self.last {
            _ if self.elsewhere => return Ok(self.last),
            Some(message) if message.is_last() => return Ok(self.last),
            Some(_) if self.delivered == 1 => return Ok(self.last),
            Some(_) => "results without an end",
            None => "nothing",
        };
        Err(SendError::NoAnswer { what: what.into() })
    }

    /// What was said last.
    ///
    /// # Errors
    ///
    /// [`SendError::NoAnswer`].
    #[cfg(any(feature = "http", feature = "mcp", feature = "nats"))]
    pub(crate) fn latest(self) -> Result<Message, SendError> {
        let nothing = || SendError::NoAnswer {
            what: "nothing".into(),
        };
        self.last.ok_or_else(nothing)
    }
}

#[cfg(test)]
mod tests {
    use ubos_common::time::{Mono, Timestamp};

    use super::*;
    use crate::error::ErrorCode;
    use crate::receipt::Nack;
    use crate::samples;

    // spec: SAP-5-10
    #[test]
    fn a_copy_for_which_there_is_no_room_is_no_answer() {
        let task = samples::task();
        let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
        for copies in [0, 1] {
            let mut exchange = Exchange::new(&task, now, Config::default()).unwrap();
            for _ in 0..copies {
                exchange.sent.take(now, Input::Dispatch(&task)).unwrap();
            }
            let why = "too many tasks".parse().unwrap();
            let message = Message::Nack(Nack::of(&task, ErrorCode::RateLimit, why));
            let received = Received {
                message,
                digest: None,
            };
            let mut told = 0;
            let is_last = exchange.take(now, received, &mut |_| told += 1).unwrap();
            assert_eq!((is_last, told), (copies == 0, 1 - copies));
            assert_eq!(exchange.end().is_ok(), copies == 0);
        }
    }

    #[cfg(any(feature = "http", feature = "nats"))]
    // spec: SAP-4.3-3
    #[test]
    fn a_way_that_failed_is_tried_again_when_the_patience_is_over() {
        use core::time::Duration;

        use futures::FutureExt as _;

        use crate::transport::sent::tests::Set;

        let (task, clock) = (samples::task(), Set::default());
        let patience = Duration::from_secs(50);
        let config = Config::default()
            .with_patience(patience, patience)
            .with_resends(1);
        let mut exchange = Exchange::new(&task, clock.now(), config).unwrap();
        let failed = || Err(SendError::carrier("no way"));
        let mut goes_on = |seconds| {
            clock.set(seconds);
            exchange.goes_on(&clock, failed()).now_or_never()
        };
        assert!(goes_on(49).is_none());
        assert!(matches!(goes_on(50), Some(Ok(true))));
        // No copy is left, and that it failed is what there is to say.
        let failed = goes_on(51);
        assert!(matches!(failed, Some(Err(SendError::Carrier(_)))));
    }
}
