//! What the machine of a task asks for, done.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use ubos_common::canon::Digest;
use ubos_common::json::RawBuf;
use ubos_common::time::Now;
use ubos_common::trace_context::TraceContext;

use super::answer::Warning;
use super::books::Books;
use super::flight::{Flight, LeaderGuard};
use super::gate::Waits;
use super::guard::{Fragile, Panicked, guarded};
use super::ledger::{Before, Entered};
use super::peer::Peer;
use super::recorded::Unread;
use super::state::{Processor, Route};
use super::stop::Stop;
use crate::alignment::Prepared;
use crate::cache::{CacheKey, CacheRecord, Caching};
use crate::context::CacheMode;
use crate::evidence::BodyDigest;
use crate::future::LARGE;
use crate::lifecycle::body_digest;
use crate::role::consumer::{
    Access, Admission, ContractFinding, Outcome, Proposed, Record, Reply, Request,
};
use crate::task::Task;
use crate::transcript::{Entry, EntryKind, TranscriptError};
use crate::work::{self, For};

/// The world of one task.
pub(super) struct Effects<'p> {
    pub(super) processor: &'p Processor,
    pub(super) task: Arc<Task>,
    pub(super) route: Option<&'p Route>,
    peer: &'p Peer,
    /// The task as it is written here.
    encoded: Cow<'p, [u8]>,
    prepared: Arc<Prepared>,
    pub(super) books: Books,
    /// The task ends before its handler begins.
    pub(super) abandons: bool,
    /// Its place among those that wait, until it has one among those that run or has none.
    waits: Mutex<Option<Waits>>,
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
        task: Arc<Task>,
        encoded: Cow<'p, [u8]>,
        peer: &'p Peer,
    ) -> Self {
        let route = processor.route(&task);
        Self {
            books: Books::new(processor, &task, encoded.len(), route.is_some()),
            route,
            peer,
            processor,
            task,
            encoded,
            prepared: Arc::default(),
            abandons: false,
            waits: Mutex::default(),
        }
    }

    /// The world of a task that is taken up only to end it.
    pub(super) fn abandoning(
        processor: &'p Processor,
        task: Arc<Task>,
        encoded: Cow<'p, [u8]>,
        peer: &'p Peer,
    ) -> Self {
        Self {
            abandons: true,
            ..Self::new(processor, task, encoded, peer)
        }
    }

    /// The place in a trace that the peer gave.
    pub(super) fn trace(&self) -> Option<TraceContext> {
        self.peer.trace.clone()
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
        match request {
            // It was allowed when it was begun.
            Request::Authorize if self.abandons => Reply::Access(Access::Allowed).into(),
            Request::Authorize => Reply::Access(self.access().await).into(),
            Request::Enter => {
                let entered = self.enter().await;
                self.wait_as(None);
                entered
            }
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

    /// Whether the issuer may. One who may waits on until the task is let in or not: till then nothing else counts it.
    async fn access(&self) -> Access {
        let (access, waits) = self.processor.access(self.peer, &self.task).await;
        self.wait_as(waits.filter(|_| access == Access::Allowed));
        access
    }

    fn wait_as(&self, waits: Option<Waits>) {
        *self.waits.lock().unwrap_or_else(PoisonError::into_inner) = waits;
    }

    async fn assess(&self, proposed: &Proposed) -> crate::alignment::Assessment {
        let subject = proposed.subject(&self.task).prepared_by(&self.prepared);
        Fragile::from(self.processor.policy.judge(subject)).await
    }

    /// Takes the place of a task that is new.
    async fn enter(&self) -> Done {
        if self.route.is_none() && !self.abandons {
            return Reply::Admission(Admission::NotFound).into();
        }
        let body = Digest::of_bytes(&self.encoded);
        let (bytes, room) = (self.encoded.len(), self.processor.config.room());
        let ledger = &self.processor.ledger;
        let mut entered = ledger.enter(&self.books.key, &self.task, body, bytes, room);
        // The same task may be written otherwise, which its bytes do not show.
        if let Entered::Other(before) = &entered {
            match self.is_equal(before).await {
                Ok(true) => {
                    let again = ledger.enter_equal(&self.books.key, bytes, room);
                    entered = again.unwrap_or(entered);
                }
                Ok(false) | Err(Unread::Lost) => {}
                Err(Unread::Now) => return Reply::Admission(Admission::Unreadable).into(),
            }
        }
        let (admission, gain) = match entered {
            Entered::New(stop) => (Admission::New, Gain::Place(stop)),
            Entered::Interrupted(stop, status, ends) => {
                (Admission::Interrupted { status, ends }, Gain::Place(stop))
            }
            Entered::Known(latest) => {
                let admission = match self.processor.read_latest(latest).await {
                    Ok(latest) => Admission::Known(latest),
                    Err(Unread::Lost) => Admission::Gone,
                    Err(Unread::Now) => Admission::Unreadable,
                };
                (admission, Gain::Nothing)
            }
            Entered::Other(_) => (Admission::Other, Gain::Nothing),
            Entered::Full => (Admission::Full, Gain::Nothing),
        };
        Done {
            gain,
            ..Reply::Admission(admission).into()
        }
    }

    /// Whether a task is the one that came before, written otherwise: in another order, or with other white space.
    async fn is_equal(&self, before: &Before) -> Result<bool, Unread> {
        let entry = match before {
            Before::Unwritten(task) => {
                let (task, encoded) = (Arc::clone(task), self.encoded.clone().into_owned());
                let equal = move || body_digest(&task.encode()) == body_digest(&encoded);
                return Ok(work::done(For::Task, self.encoded.len(), equal).await);
            }
            Before::Written(entry) => *entry,
        };
        let entry = self.processor.read_entry(entry).await?;
        let encoded = self.encoded.clone().into_owned();
        let bytes = encoded.len().max(entry.body.as_str().len());
        let equal = move || {
            let redacted = entry.digest.map(|BodyDigest(digest)| digest);
            let before = redacted.unwrap_or_else(|| body_digest(entry.body.as_str().as_bytes()));
            before == body_digest(&encoded)
        };
        Ok(work::done(For::Task, bytes, equal).await)
    }

    async fn record(&self, now: Now, record: &Record) -> Done {
        let recorded = match record {
            Record::Task => {
                let entry = Entry::encoded(EntryKind::Task, now.wall, &self.encoded);
                let recorded = self.books.record(&entry).await;
                if let Ok(number) = recorded {
                    self.processor.ledger.written(&self.books.key, number);
                }
                recorded
            }
            Record::Result(written) => self.books.result(now, written).await,
        };
        match recorded {
            Ok(_) => Reply::Recorded.into(),
            Err(lost) => Done {
                gain: Gain::Lost(lost),
                ..Reply::NotRecorded.into()
            },
        }
    }

    /// Whether outcomes of the task's capability may answer others.
    fn caching(&self) -> Option<&Caching> {
        self.books.caching.as_ref()
    }

    async fn look_up(&self) -> Done {
        let keys = match self.caching() {
            Some(_) => work::done(For::Task, self.encoded.len(), self.books.keys()).await,
            None => None,
        };
        let cache = self.processor.cache.as_ref();
        let mut warning = None;
        let mut record = None;
        if let Some((keys, cache)) = keys.zip(cache) {
            match Fragile::from(cache.find(&keys.key)).await {
                Ok(lookup) => {
                    let records = lookup.damaged;
                    warning = (records > 0).then_some(Warning::CacheDamaged { records });
                    // Extractors of other versions share keys with this one: what they took to be enough may not be.
                    let same = |record: &CacheRecord| record.fingerprint == keys.fingerprint;
                    let record_here = lookup.record.filter(same);
                    record = record_here.filter(|_| !self.doubts()).map(Arc::new);
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
        let doubts = |caching: &Caching| caching.doubts(&self.task.target.capability);
        mode != Some(&CacheMode::Only) && self.caching().is_some_and(doubts)
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
        let finding = self.processor.contract.check(contract, output);
        let finding = Fragile::from(finding).await;
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
            Some(cache) => Fragile::from(cache.put(record)).await,
            None => Ok(()),
        };
        Done {
            warning: kept.err().map(Warning::Cache),
            ..Reply::Kept.into()
        }
    }
}
