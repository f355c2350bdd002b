//! What a job says of its claim on an id.

use super::QueueError;
use super::claim::{BY, Claim, Holder, TAKEN};
use super::job::Job;

impl Job<'_> {
    /// Says how often the task was begun, in the place of what was said last; nothing where that is not the last.
    pub(super) async fn claim(&self, last: Claim, begun: u32) -> Result<Option<Claim>, QueueError> {
        let (subject, payload) = (self.subject("attempt"), begun.to_string().into_bytes());
        let mut headers = self.headers(self.correlation_id.as_ref());
        headers.insert(BY, last.by.to_string());
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
            by: last.by,
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
