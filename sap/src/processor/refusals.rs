//! What was turned away, noted apart from the transcript.

use core::time::Duration;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ubos_common::time::{Mono, Now};

use super::guard::guarded;
use crate::evidence::BodyDigest;
use crate::lifecycle::body_digest;
use crate::receipt::Nack;
use crate::store::MemoryTranscript;
use crate::transcript::{Entry, Transcript};
use crate::work::{self, For};

/// Notes Nacks in a log of their own.
///
/// Anybody can be turned away, as often as he likes, so that a Nack has no place in the transcript: whoever filled
/// it would stop every task. At most 100 are noted at once, and 10 a second after that; what is over the rate or
/// does not fit the log is counted. The log of one's own that comes with it keeps the newest.
#[derive(Debug)]
pub(crate) struct Refusals {
    log: Arc<dyn Transcript>,
    rate: Mutex<Rate>,
    unlogged: AtomicU64,
}

/// What may be noted, as the time that it takes to earn it.
#[derive(Debug, Default)]
struct Rate {
    /// Until when the notes that were made are paid for.
    paid: Mono,
}

impl Rate {
    fn take(&mut self, now: Mono) -> bool {
        let paid = self.paid.max(now).saturating_add(PRICE);
        let is_within = paid.saturating_since(now) <= PRICE * BURST;
        if is_within {
            self.paid = paid;
        }
        is_within
    }
}

impl Default for Refusals {
    fn default() -> Self {
        Self::new(Arc::new(
            MemoryTranscript::new(MAX_REFUSALS).keeping_newest(),
        ))
    }
}

impl Refusals {
    pub(crate) fn new(log: Arc<dyn Transcript>) -> Self {
        Self {
            log,
            rate: Mutex::default(),
            unlogged: AtomicU64::new(0),
        }
    }

    /// Nacks that were told and not noted.
    pub(crate) fn unlogged(&self) -> u64 {
        self.unlogged.load(Ordering::Relaxed)
    }

    /// Notes a Nack and the digest of what it turns away.
    // impl: SAP-10-1
    pub(crate) async fn note(&self, now: Now, nack: &Nack, refused: &[u8]) {
        if !self.log_it(now, nack, refused).await {
            self.unlogged.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn is_within(&self, now: Now) -> bool {
        let mut rate = self.rate.lock().unwrap_or_else(PoisonError::into_inner);
        rate.take(now.mono)
    }

    async fn log_it(&self, now: Now, nack: &Nack, refused: &[u8]) -> bool {
        if !self.is_within(now) {
            return false;
        }
        let bytes = refused.to_vec();
        let digest = work::done(For::Stranger, bytes.len(), move || body_digest(&bytes)).await;
        let Ok(entry) = Entry::nack(now.wall, nack, BodyDigest(digest)) else {
            return false;
        };
        let noted = guarded(async { self.log.record(&entry).await }).await;
        matches!(noted, Ok(Ok(_)))
    }
}

/// The time that earns one note.
const PRICE: Duration = Duration::from_millis(100);
/// Notes that may be made at once.
const BURST: u32 = 100;
/// Entries of the log that a processor has where it is given none.
const MAX_REFUSALS: usize = 1_000;

#[cfg(test)]
mod tests {
    use futures::executor::block_on;
    use ubos_common::time::Timestamp;

    use super::*;

    /// Nacks about so much garbage, ten a second.
    fn note(refusals: &Refusals, times: u64) {
        for number in 0..times {
            let now = Now::new(Mono::from_millis(number * 100), Timestamp::EPOCH);
            let nack = Nack::malformed("no task");
            block_on(refusals.note(now, &nack, &number.to_le_bytes()));
        }
    }

    // spec: SAP-10-1
    #[test]
    fn a_log_that_was_filled_has_room_for_the_newest() {
        let refusals = Refusals::default();
        note(&refusals, 3 * MAX_REFUSALS as u64);
        assert_eq!(refusals.unlogged(), 0);
        let log = Arc::new(MemoryTranscript::new(MAX_REFUSALS).keeping_newest());
        note(&Refusals::new(log.clone()), 3_000);
        let removed = log.removed();
        assert!((2_000..2_200).contains(&removed), "{removed}");
        let left = block_on(log.read(removed, 3_000)).unwrap();
        assert_eq!(left.len() as u64, 3_000 - removed);
        let last = Some(BodyDigest(body_digest(&2_999_u64.to_le_bytes())));
        assert_eq!(left.last().unwrap().digest, last);
        // One that keeps the oldest takes no more, and what is not noted is counted.
        let refusals = Refusals::new(Arc::new(MemoryTranscript::new(MAX_REFUSALS)));
        note(&refusals, 3_000);
        assert_eq!(refusals.unlogged(), 2_000);
    }
}
