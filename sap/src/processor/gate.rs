//! How many tasks wait to be let in.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Places before the hook, kept until the ledger has said whether there is room. Whoever brings a task has shown nothing yet,
/// so these are few.
#[derive(Debug, Default)]
pub(super) struct Gate(Arc<AtomicUsize>);

/// A place, until it is dropped.
pub(super) struct Waits(Arc<AtomicUsize>);

impl Gate {
    /// A place, where one is free.
    pub(super) fn enter(&self) -> Option<Waits> {
        let more = |waiting: usize| (waiting < MAX_AUTHORIZING).then_some(waiting + 1);
        let entered = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        entered.ok().map(|_| Waits(Arc::clone(&self.0)))
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Tasks that wait for the hook or for their place, and questions about tasks that wait for the hook, at the same time.
const MAX_AUTHORIZING: usize = 256;

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use futures::future::{BoxFuture, pending};

    use super::super::fixture::{Still, TASK, processor};
    use super::super::{Config, Context, Delivery, HandlerError, Outcome};
    use super::*;
    use crate::store::MemoryTranscript;
    use crate::transcript::{Entry, Head, Proof, Transcript, TranscriptError};

    /// Never says what it has.
    #[derive(Debug, Default)]
    struct Mute(MemoryTranscript);

    impl Transcript for Mute {
        fn record(&self, entry: &Entry) -> BoxFuture<'_, Result<u64, TranscriptError>> {
            self.0.record(entry)
        }

        fn read(&self, _: u64, _: usize) -> BoxFuture<'_, Result<Vec<Entry>, TranscriptError>> {
            Box::pin(pending())
        }

        fn verify(&self, kept: Option<&Head>) -> Result<Proof, TranscriptError> {
            self.0.verify(kept)
        }
    }

    // spec: SAP-11-2, SAP-5-10
    #[test]
    fn a_task_waits_until_it_is_let_in_and_no_longer() {
        let hangs = |_: Context| pending::<Result<Outcome, HandlerError>>();
        let processor = processor(Arc::new(Mute::default()), Config::default());
        let processor = processor.handle("text.echo".parse().unwrap(), hangs);
        let waiting = || processor.gate.0.load(Ordering::Relaxed);
        let mut sink = |_: Delivery<'_>| {};
        let mut runs = Box::pin(processor.process(&Still, TASK.as_bytes(), &mut sink));
        assert!((&mut runs).now_or_never().is_none());
        assert_eq!((processor.ledger.running(), waiting()), (1, 0));
        // It is held against what the transcript has, and nothing else counts it meanwhile.
        let copy = TASK.replace(r#""payload":{"#, r#""payload":{ "#);
        let mut sink = |_: Delivery<'_>| {};
        let mut copies = Box::pin(processor.process(&Still, copy.as_bytes(), &mut sink));
        assert!((&mut copies).now_or_never().is_none());
        assert_eq!(waiting(), 1);
        drop(copies);
        assert_eq!(waiting(), 0);
    }
}
