//! What is written down of a task, and who learns of it.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ubos_common::time::Now;

use super::answer::Warning;
use super::guard::{Fragile, guarded};
use super::key::Key;
use super::ledger::Ledger;
use super::state::Processor;
use super::teller::Teller;
use crate::cache::{Caching, Keys, WholePayload};
use crate::learning::Signal;
use crate::role::consumer::Written;
use crate::status::Status;
use crate::task::Task;
use crate::transcript::{Entry, EntryKind, Transcript, TranscriptError};

/// A result and its entry.
type Recorded = (Arc<Written>, u64);

/// Where one task is written down. It outlives the run.
#[derive(Clone)]
pub(super) struct Books {
    pub(super) key: Key,
    pub(super) caching: Option<Caching>,
    transcript: Arc<dyn Transcript>,
    ledger: Arc<Ledger>,
    signals: Option<Arc<Teller>>,
    max_remembered_bytes: usize,
    task: Arc<Task>,
    /// Of the task.
    bytes: usize,
    has_route: bool,
    keys: Arc<OnceLock<Option<Keys>>>,
    /// The result that was recorded last, and as which entry.
    recorded: Arc<Mutex<Option<Recorded>>>,
}

impl Books {
    pub(super) fn new(
        processor: &Processor,
        task: &Arc<Task>,
        bytes: usize,
        has_route: bool,
    ) -> Self {
        Self {
            key: Key::of(task),
            caching: processor.caching.get(&task.target.capability).cloned(),
            transcript: Arc::clone(&processor.transcript),
            ledger: Arc::clone(&processor.ledger),
            signals: processor.signals.clone(),
            max_remembered_bytes: processor.config.max_remembered_bytes,
            task: Arc::clone(task),
            bytes,
            has_route,
            keys: Arc::default(),
            recorded: Arc::default(),
        }
    }

    /// Writes an entry down. A transcript that panics has failed.
    pub(super) async fn record(&self, entry: &Entry) -> Result<u64, TranscriptError> {
        let recorded = guarded(async { Fragile::from(self.transcript.record(entry)).await }).await;
        recorded.unwrap_or_else(|panicked| Err(TranscriptError::Store(Box::new(panicked))))
    }

    /// Writes a result down, as one of its task.
    pub(super) async fn result(
        &self,
        now: Now,
        written: &Arc<Written>,
    ) -> Result<u64, TranscriptError> {
        let entry = Entry::encoded(EntryKind::Result, now.wall, &written.encoded);
        let entry = entry.of_task(self.ledger.entry(&self.key));
        let number = self.record(&entry).await?;
        *lock(&self.recorded) = Some((Arc::clone(written), number));
        Ok(number)
    }

    /// Makes the task's keys, once.
    pub(super) fn keys(&self) -> impl FnOnce() -> Option<Keys> + Send + 'static {
        let has_route = self.has_route;
        let (keys, task) = (Arc::clone(&self.keys), Arc::clone(&self.task));
        let caching = self.caching.clone();
        move || {
            let make = || match &caching {
                Some(caching) => {
                    let essence = caching.essence(&task.target.capability);
                    Keys::within(&task, essence, caching.is_issuers_own)
                }
                None => Keys::of(&task, &WholePayload),
            };
            *keys.get_or_init(|| has_route.then(make).and_then(Result::ok))
        }
    }

    /// Keeps a result, to answer the same task again.
    pub(super) fn remember(&self, written: &Arc<Written>) {
        let result = &written.result;
        let max_bytes = self.max_remembered_bytes;
        let encoded = Arc::clone(&written.encoded);
        // Of one that is recorded after its run was dropped nobody knows the entry.
        let recorded = lock(&self.recorded).take();
        let recorded = recorded.filter(|(recorded, _)| Arc::ptr_eq(recorded, written));
        let entry = recorded.map(|(_, number)| number);
        self.ledger
            .update(&self.key, result, (encoded, entry), max_bytes);
    }

    /// Hands over what a result says to those who learn of it. It waits for nobody.
    // impl: SAP-7-6
    pub(super) fn signal(&self, written: &Arc<Written>) -> Option<Warning> {
        let status = &written.result.status;
        let teller = self.signals.as_ref()?;
        if !status.is_terminal() && *status != Status::Partial {
            return None;
        }
        let (keys, task, written) = (self.keys(), Arc::clone(&self.task), Arc::clone(written));
        let bytes = self.bytes + written.encoded.len();
        let told = teller.tell(bytes, move || {
            let fingerprint = keys().map(|keys| keys.fingerprint);
            Signal::of_result(&task, fingerprint, &written.result)
        });
        told.err().map(Warning::Signal)
    }

    pub(super) fn forget(&self) {
        self.ledger.forget(&self.key);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
