//! What the machine of a task asks for, done.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use ubos_common::canon::Digest;
use ubos_common::json::RawBuf;
use ubos_common::time::Now;

use super::answer::Warning;
use super::flight::{Flight, LeaderGuard};
use super::guard::{Panicked, guarded};
use super::ledger::{Before, Entered, Key};
use super::peer::Peer;
use super::state::{Processor, Route};
use super::stop::Stop;
use crate::cache::{CacheKey, CacheRecord, Caching, Keys, WholePayload};
use crate::context::CacheMode;
use crate::error::StoreError;
use crate::evidence::BodyDigest;
use crate::future::LARGE;
use crate::learning::Signal;
use crate::lifecycle::body_digest;
use crate::role::consumer::{
    Access, Admission, ContractFinding, Outcome, Proposed, Record, Reply, Request, Written,
};
use crate::status::Status;
use crate::task::Task;
use crate::transcript::{Entry, EntryKind, TranscriptError};
use crate::validate::{Options, decode_result};
use crate::work;

/// The world of one task.
pub(super) struct Effects<'p> {
    pub(super) processor: &'p Processor,
    pub(super) task: Arc<Task>,
    pub(super) route: Option<&'p Route>,
    peer: &'p Peer,
    key: Key,
    /// The task as it is written here.
    encoded: Cow<'p, [u8]>,
    keys: Arc<OnceLock<Option<Keys>>>,
    /// The task ends before its handler begins.
    pub(super) abandons: bool,
}

/// An effect that was performed.
pub(super) struct Done {
    pub(super) reply: Reply,
    pub(super) gain: Gain,
    pub(super) warning: Option<Warning>,
}

/// What the driver keeps of an effect.
pub(super) enum Gain {
    Nothing,
    /// The place among those that run.
    Place(Stop),
    /// Others wait for this one's outcome.
    Lead(LeaderGuard),
    /// Why a record failed.
    Lost(TranscriptError),
}

impl From<Reply> for Done {
    fn from(reply: Reply) -> Self {
        Self {
            reply,
            gain: Gain::Nothing,
            warning: None,
        }
    }
}

impl<'p> Effects<'p> {
    pub(super) fn new(
        processor: &'p Processor,
        task: Task,
        encoded: Cow<'p, [u8]>,
        peer: &'p Peer,
    ) -> Self {
        Self {
            route: processor.route(&task),
            key: Key::of(&task),
            peer,
            processor,
            task: Arc::new(task),
            encoded,
            keys: Arc::default(),
            abandons: false,
        }
    }

    /// The world of a task that is taken up only to end it.
    pub(super) fn abandoning(
        processor: &'p Processor,
        task: Task,
        encoded: Cow<'p, [u8]>,
        peer: &'p Peer,
    ) -> Self {
        Self {
            abandons: true,
            ..Self::new(processor, task, encoded, peer)
        }
    }

    /// Bytes of the task.
    pub(super) fn bytes(&self) -> usize {
        self.encoded.len()
    }

    /// Whether each step takes its time.
    pub(super) fn is_large(&self) -> bool {
        self.encoded.len() > LARGE
    }

    /// Performs one request, whatever somebody else's code does.
    pub(super) async fn perform(&self, now: Now, request: Request) -> Done {
        let done = guarded(self.perform_one(now, request)).await;
        done.unwrap_or_else(|Panicked| Reply::Panicked.into())
    }

    async fn perform_one(&self, now: Now, request: Request) -> Done {
        let processor = self.processor;
        match request {
            // It was allowed when it was begun.
            Request::Authorize if self.abandons => Reply::Access(Access::Allowed).into(),
            Request::Authorize => {
                let access = processor.authorize.authorize(self.peer, &self.task);
                Reply::Access(access.await).into()
            }
            Request::Enter => self.enter().await,
            Request::Record(record) => self.record(now, &record).await,
            Request::Assess(proposed) => Reply::Assessed(self.assess(&proposed).await).into(),
            Request::LookUp => self.look_up().await,
            Request::Join(key) => self.join(key).await,
            Request::Check(outcome) => self.check(&outcome).await,
            Request::Keep(record) => self.keep(&record).await,
            // The driver does these itself.
            Request::Deliver(_) => Reply::Delivered.into(),
            Request::Run => Reply::Panicked.into(),
        }
    }

    async fn assess(&self, proposed: &Proposed) -> crate::alignment::Assessment {
        let subject = proposed.subject(&self.task);
        self.processor.policy.judge(subject).await
    }

    /// Takes the place of a task that is new.
    async fn enter(&self) -> Done {
        if self.route.is_none() && !self.abandons {
            return Reply::Admission(Admission::NotFound).into();
        }
        let body = Digest::of_bytes(&self.encoded);
        let max_running = self.processor.config.max_running;
        let ledger = &self.processor.ledger;
        let mut entered = ledger.enter(&self.key, &self.task, body, max_running);
        // The same task may be written otherwise, which its bytes do not show.
        if let Entered::Other(before) = &entered
            && self.is_equal(before).await
            && let Some(again) = ledger.enter_equal(&self.key, max_running)
        {
            entered = again;
        }
        let (admission, gain) = match entered {
            Entered::New(stop) => (Admission::New, Gain::Place(stop)),
            Entered::Interrupted(stop, status) => {
                (Admission::Interrupted(status), Gain::Place(stop))
            }
            Entered::Known(latest) => (known(latest).await, Gain::Nothing),
            Entered::Other(_) => (Admission::Other, Gain::Nothing),
            Entered::Full => (Admission::Full, Gain::Nothing),
        };
        Done {
            gain,
            ..Reply::Admission(admission).into()
        }
    }

    /// Whether a task is the one that came before, written otherwise: in another order, or with other white space.
    async fn is_equal(&self, before: &Before) -> bool {
        let entry = match before {
            Before::Unwritten(task) => {
                let (task, encoded) = (Arc::clone(task), self.encoded.clone().into_owned());
                return work::done(encoded.len(), move || {
                    body_digest(&task.encode()) == body_digest(&encoded)
                })
                .await;
            }
            Before::Written(entry) => *entry,
        };
        let transcript = &self.processor.transcript;
        let entries = guarded(async { transcript.read(entry, 1).await }).await;
        let entries = entries.ok().and_then(Result::ok);
        let Some(entry) = entries.and_then(|entries| entries.into_iter().next()) else {
            return false;
        };
        let encoded = self.encoded.clone().into_owned();
        let bytes = encoded.len().max(entry.body.as_str().len());
        work::done(bytes, move || {
            let redacted = entry.digest.map(|BodyDigest(digest)| digest);
            let before = redacted.unwrap_or_else(|| body_digest(entry.body.as_str().as_bytes()));
            before == body_digest(&encoded)
        })
        .await
    }

    async fn record(&self, now: Now, record: &Record) -> Done {
        let entry = match record {
            Record::Task => Entry::encoded(EntryKind::Task, now.wall, &self.encoded),
            Record::Result(written) | Record::Queued(written) => {
                let number = self.processor.ledger.entry(&self.key);
                let entry = Entry::encoded(EntryKind::Result, now.wall, &written.encoded);
                entry.of_task(number)
            }
        };
        match self.processor.record(&entry).await {
            Ok(number) => {
                if matches!(record, Record::Task) {
                    let ledger = &self.processor.ledger;
                    ledger.written(&self.key, number);
                }
                Reply::Recorded.into()
            }
            Err(lost) => Done {
                gain: Gain::Lost(lost),
                ..Reply::NotRecorded.into()
            },
        }
    }

    /// Makes the task's keys, once.
    fn keys(&self) -> impl FnOnce() -> Option<Keys> + Send + 'static {
        let has_route = self.route.is_some();
        let (keys, task) = (Arc::clone(&self.keys), Arc::clone(&self.task));
        let caching = self.caching().cloned();
        move || {
            let make = || match &caching {
                Some(caching) => Keys::within(&task, caching.essence(), caching.is_issuers_own),
                None => Keys::of(&task, &WholePayload),
            };
            *keys.get_or_init(|| has_route.then(make).and_then(Result::ok))
        }
    }

    /// Whether outcomes of the task's capability may answer others.
    fn caching(&self) -> Option<&Caching> {
        let caching = &self.processor.caching;
        caching.get(&self.task.target.capability)
    }

    async fn look_up(&self) -> Done {
        let keys = match self.caching() {
            Some(_) => work::done(self.encoded.len(), self.keys()).await,
            None => None,
        };
        let cache = self.processor.cache.as_ref();
        let mut warning = None;
        let mut record = None;
        if let Some((keys, cache)) = keys.zip(cache) {
            match cache.find(&keys.key).await {
                Ok(lookup) => {
                    let records = lookup.damaged;
                    warning = (records > 0).then_some(Warning::CacheDamaged { records });
                    record = lookup.record.filter(|_| !self.doubts()).map(Arc::new);
                }
                Err(error) => warning = Some(Warning::Cache(error)),
            }
        }
        let keeps = cache.is_some();
        Done {
            warning,
            ..Reply::Found {
                keys,
                record,
                keeps,
            }
            .into()
        }
    }

    /// Whether the task is computed although there is a record; never where only the cache may answer.
    fn doubts(&self) -> bool {
        let policy = &self.task.constitutional_context.cache_policy;
        let mode = policy.as_ref().and_then(|policy| policy.mode.as_ref());
        mode != Some(&CacheMode::Only) && self.caching().is_some_and(Caching::doubts)
    }

    async fn join(&self, key: CacheKey) -> Done {
        match self.processor.flights.join(key) {
            Flight::Lead(guard) => Done {
                gain: Gain::Lead(guard),
                ..Reply::Lead.into()
            },
            Flight::Follow(completion) => {
                completion.await;
                Reply::Followed.into()
            }
        }
    }

    async fn check(&self, outcome: &Outcome) -> Done {
        let output = outcome.output.as_ref().map(RawBuf::as_raw);
        let Some((contract, output)) = self.task.output_contract.as_ref().zip(output) else {
            return Reply::Checked(ContractFinding::Kept).into();
        };
        let finding = self.processor.contract.check(contract, output).await;
        let warning = match &finding {
            ContractFinding::NotEnforced(why) => Some(Warning::Contract(*why)),
            _ => None,
        };
        Done {
            warning,
            ..Reply::Checked(finding).into()
        }
    }

    async fn keep(&self, record: &CacheRecord) -> Done {
        let kept = match &self.processor.cache {
            Some(cache) => cache.put(record).await,
            None => Ok(()),
        };
        Done {
            warning: kept.err().map(Warning::Cache),
            ..Reply::Kept.into()
        }
    }

    /// Keeps a result, to answer the same task again.
    pub(super) fn remember(&self, written: &Written) {
        let result = &written.result;
        let max_bytes = self.processor.config.max_remembered_bytes;
        let encoded = Arc::clone(&written.encoded);
        let ledger = &self.processor.ledger;
        ledger.update(&self.key, result, encoded, max_bytes);
    }

    /// Tells those who learn of a result. The first poll hands it over.
    // impl: SAP-7-6
    pub(super) async fn signal(&self, written: &Arc<Written>) -> Option<Warning> {
        let status = &written.result.status;
        let signals = self.processor.signals.clone()?;
        if !status.is_terminal() && *status != Status::Partial {
            return None;
        }
        let (keys, task, written) = (self.keys(), Arc::clone(&self.task), Arc::clone(written));
        let bytes = self.encoded.len().max(written.encoded.len());
        let told = guarded(work::done(bytes, move || {
            let fingerprint = keys().map(|keys| keys.fingerprint);
            let signal = Signal::of_result(&task, fingerprint, &written.result);
            signal.map_or(Ok(()), |signal| signals.emit(signal))
        }));
        let told = told.await;
        let told = told.unwrap_or_else(|panicked| Err(StoreError::Failed(Box::new(panicked))));
        told.err().map(Warning::Signal)
    }

    pub(super) fn forget(&self) {
        self.processor.ledger.forget(&self.key);
    }
}

async fn known(latest: Option<Arc<[u8]>>) -> Admission {
    let bytes = latest.as_ref().map_or(0, |latest| latest.len());
    let latest = work::done(bytes, move || {
        decode_result(&latest?, &Options::default()).ok()
    });
    Admission::Known(latest.await.map(|(result, _)| Box::new(result)))
}
