//! A task whose agent is waited for with patience: what is said goes through the producer's machine.

use std::sync::Arc;

use futures::channel::mpsc;
use futures::future::{BoxFuture, Either, select};
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, SinkExt as _, StreamExt as _};
use ubos_common::driver::Sleep;

use super::{Bus, panicked};
use crate::processor::{Given, Peer, guarded};
use crate::role::producer::Config;
use crate::task::Task;
use crate::transport::exchange::{Exchange, Received};
use crate::transport::sent::Heard;
use crate::transport::{Caller, Message, SendError};

impl Bus {
    /// Has a task answered. Where nothing is said in time it is given to its agent once more, beside the first time: that one
    /// may hang in a hook, or be at work, and the agent knows the copy.
    pub(super) async fn exchange_watched(
        &self,
        (task, bytes): (Arc<Task>, &[u8]),
        config: Config,
        on_message: &mut (dyn FnMut(&Message) + Send),
    ) -> Result<Option<Message>, SendError> {
        let clock: &(dyn Sleep + Send + Sync) = self.0.clock.as_ref();
        let mut exchange = Exchange::new(&task, clock.now(), config)?;
        let (sender, mut said) = mpsc::channel(MAX_SAID);
        let pass = || {
            let (task, mut caller) = (Arc::clone(&task), Teller(sender.clone()));
            // On the heap, for it is large.
            Box::pin(guarded(async move {
                self.pass(task, Given::Encoded(bytes), &mut caller).await
            }))
        };
        let mut passes = FuturesUnordered::new();
        passes.push(pass());
        loop {
            let next = select(said.next(), passes.next());
            let mut waiting = match exchange.sent.hear(clock, next).await? {
                Heard::SendAgain => {
                    passes.push(pass());
                    continue;
                }
                Heard::Said(Either::Left((message, _))) => message,
                Heard::Said(Either::Right((passed, _))) => {
                    passed.unwrap_or(Ok(Ok(()))).map_err(|_| panicked())??;
                    // What it said before it was over.
                    said.next().now_or_never().flatten()
                }
            };
            while let Some(message) = waiting {
                let received = Received {
                    message,
                    digest: None,
                };
                if exchange.take(clock.now(), received, on_message)? {
                    return exchange.end();
                }
                waiting = said.next().now_or_never().flatten();
            }
            if passes.is_empty() {
                if !exchange.is_sent_again(clock).await? {
                    return exchange.end();
                }
                passes.push(pass());
            }
        }
    }
}

/// Says what is said to one who waits with patience.
struct Teller(mpsc::Sender<Message>);

impl Caller for Teller {
    fn peer(&self) -> Peer {
        Peer::same_process()
    }

    fn tell(&mut self, message: Message) -> BoxFuture<'_, ()> {
        // One who gave up hears nothing more.
        self.0.send(message).map(drop).boxed()
    }
}

/// Messages of one task that wait to be heard.
const MAX_SAID: usize = 16;
