//! Whose an id is: the task's that was begun first.

use ubos_common::canon::Digest;

use super::job::Job;
use super::{BODY, Queue, QueueError, is_of};

/// Who has an id.
pub(super) enum Holder {
    /// The task that asks, or nobody.
    This(Claim),
    /// A task with another body, and whether a processor has taken it.
    Another { is_taken: bool },
}

/// How often the task was begun that has an id.
///
/// Who begins it, or gives the id back, says so in the place of what was said last, so that one of two workers comes
/// first. It names the task and no worker: where one dies, the next that gets the same task goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Claim {
    /// Without an end.
    pub(super) begun: u32,
    /// The number of the message that says so; 0 where there is none.
    pub(super) place: u64,
    /// A processor has written the task down: it will have its end, and no other task of the id begins before it.
    pub(super) is_taken: bool,
}

impl Queue {
    /// Who has an id, by what was last said of attempts.
    pub(super) async fn holder(&self, subject: &str, body: &Digest) -> Result<Holder, QueueError> {
        let Some(said) = self.last_stored(subject).await? else {
            return Ok(Holder::This(Claim::default()));
        };
        let number = core::str::from_utf8(&said.payload).ok();
        let begun = number.and_then(|text| text.parse().ok()).unwrap_or(0);
        let place = said.sequence;
        let is_taken = said.headers.get(TAKEN).is_some();
        if is_of(&said.headers, body) {
            return Ok(Holder::This(Claim {
                begun,
                place,
                is_taken,
            }));
        }
        match said.headers.get(BODY) {
            Some(_) if begun > 0 => Ok(Holder::Another { is_taken }),
            // It gave the id back.
            _ => Ok(Holder::This(Claim {
                place,
                ..Claim::default()
            })),
        }
    }
}

impl Job<'_> {
    /// Says how often the task was begun, in the place of what was said last; nothing where that is not the last.
    pub(super) async fn claim(&self, last: Claim, begun: u32) -> Result<Option<Claim>, QueueError> {
        let (subject, payload) = (self.subject("attempt"), begun.to_string().into_bytes());
        let mut headers = self.headers(self.correlation_id.as_ref());
        let is_taken = last.is_taken && begun > 0;
        if is_taken {
            headers.insert(TAKEN, "true");
        }
        let stored = self
            .queue
            .store_after(last.place, subject, payload.into(), headers);
        let place = stored.await?;
        Ok(place.map(|place| Claim {
            begun,
            place,
            is_taken,
        }))
    }

    /// Says of a task that goes on for a while that it is taken: another one of its id need not come back until its end.
    pub(super) async fn mark_taken(&self) {
        let Ok(task) = &self.read else { return };
        let subject = self.subject("attempt");
        loop {
            tokio::time::sleep(self.queue.config.busy_delay).await;
            if !self.service.processor().has_taken(task) {
                continue;
            }
            match self.queue.holder(&subject, &self.body).await {
                Ok(Holder::This(claim)) if !claim.is_taken => {
                    let taken = Claim {
                        is_taken: true,
                        ..claim
                    };
                    // What fails, or comes after somebody else's word, is tried again.
                    let _ = self.claim(taken, claim.begun).await;
                }
                Ok(_) => return,
                Err(_) => {}
            }
        }
    }
}

/// The header by which a claim says that its task is taken.
const TAKEN: &str = "Sap-Taken";
