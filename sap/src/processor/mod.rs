//! The consuming side: a task in, a result out, whatever happens between.
//!
//! ```text
//! validate -> authorize -> route -> seen before? -> transcript -> Ack
//!   -> time, admission -> cache -> run -> contract -> align -> cache -> transcript -> signal -> result
//! ```
//!
//! What goes wrong up to the Ack is a Nack, what goes wrong after it a FAILED result, never both. It needs no
//! runtime of its own: time comes from a [`Sleep`], work runs in the caller's task.
//!
//! ```
//! use std::sync::Arc;
//! use sap::processor::{AllowAll, Answer, Config, Context, Outcome, Processor};
//! use sap::store::MemoryTranscript;
//! use sap::{Producer, ProducerKind, Status};
//! # use sap::*;
//! # use sap::ubos_common::{driver::Sleep, id::IdSource, json::{RawBuf, RawObject}, time::{Mono, Now, Timestamp}};
//! # struct Still;
//! # impl Sleep for Still {
//! #     fn now(&self) -> Now { Now::new(Mono::ZERO, Timestamp::EPOCH) }
//! #     fn sleep_until(&self, _: Mono) -> futures::future::BoxFuture<'static, ()> { Box::pin(std::future::pending()) }
//! # }
//! # let task = Task::draft(&mut IdSource::seeded(1), Timestamp::EPOCH, Issuer::new("A-prime".parse()?, AgentKind::Agent),
//! #     Target::new("text.upper".parse()?), ConstitutionalContext::new(PressureLevel::Instant), RawObject::empty());
//!
//! let producer = Producer::new("A-ml-001".parse()?, ProducerKind::Agent);
//! let transcript = Arc::new(MemoryTranscript::default());
//! let processor = Processor::new(producer, Arc::new(AllowAll), transcript, Config::default())?
//!     .handle("text.upper".parse()?, |_cx: Context| async { Ok(Outcome::new(RawBuf::parse("\"DONE\"").unwrap())) });
//! let mut seen = Vec::new();
//! let answer = futures::executor::block_on(processor.process(&Still, &task.encode(), &mut |delivery: sap::processor::Delivery<'_>| {
//!     seen.push(format!("{delivery:?}").split(['(', ' ']).next().unwrap_or_default().to_owned());
//! }))?;
//! let Answer::Result(result) = answer else { panic!("not turned away") };
//! assert_eq!((result.status, seen), (Status::Succeeded, vec!["Ack".to_owned(), "Result".to_owned()]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod answer;
mod config;
#[cfg(feature = "schema")]
mod contract;
mod flight;
mod guard;
mod handler;
mod hooks;
mod ledger;
mod race;
mod refusals;
mod results;
mod state;
mod stop;

use core::fmt;
use core::ops::ControlFlow;
use core::panic::AssertUnwindSafe;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::panic::catch_unwind;
use std::sync::Arc;

use futures::FutureExt as _;
use ubos_common::canon::Digest;
use ubos_common::driver::Sleep;
use ubos_common::time::Now;
use ubos_common::violation::{Level, Report};

pub use answer::{Answer, Delivery, ProcessError, Unreachable, Warning};
pub use config::Config;
#[cfg(feature = "schema")]
pub use contract::Schemas;
pub use handler::{Context, Handler, HandlerError, Outcome, Progress};
pub use hooks::{
    Access, AllowAll, Authorize, ContractCheck, ContractFinding, Judge, NotEnforced, Table,
};
pub use state::Processor;
pub use stop::StopReason;

use flight::{Flight, SingleFlight};
use guard::{Panicked, guarded};
use hooks::Unchecked;
use ledger::{Before, Entered, Ledger};
use race::{Race, Step, TimeLimits};
use refusals::MAX_REFUSALS;
pub(crate) use refusals::Refusals;
use results::Run;
use state::Route;
use stop::Stop;

use crate::ConfigError;
use crate::alignment::AlwaysValid;
use crate::cache::{CacheStore, Essence, WholePayload};
use crate::error::{ErrorCode, StoreError};
use crate::evidence::Alignment;
use crate::ident::{Capability, Reason, TaskId};
use crate::learning::{Signal, SignalSink};
use crate::lifecycle::{LifecycleError, body_digest};
use crate::receipt::{Ack, Nack, ReceiptStatus};
use crate::result::{Producer, TaskResult};
use crate::status::Status;
use crate::store::MemoryTranscript;
use crate::task::Task;
use crate::trace;
use crate::transcript::{Entry, EntryKind, Transcript, TranscriptError};
use crate::validate::{Options, decode_result, decode_task, findings, ids_of};

impl Processor {
    /// A processor without handlers: everything is aligned, no contract is checked, and there is no cache. Who may
    /// do what has no default: [`AllowAll`] is a word that one writes.
    ///
    /// # Errors
    ///
    /// A setting is out of its range.
    pub fn new(
        producer: Producer,
        authorize: Arc<dyn Authorize>,
        transcript: Arc<dyn Transcript>,
        config: Config,
    ) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            producer,
            routes: BTreeMap::new(),
            authorize,
            policy: Arc::new(AlwaysValid),
            contract: Arc::new(Unchecked),
            cache: None,
            signals: None,
            refusals: Refusals::new(Arc::new(MemoryTranscript::new(MAX_REFUSALS))),
            transcript,
            config,
            ledger: Ledger::default(),
            flights: SingleFlight::default(),
        })
    }

    /// Adds a handler, or replaces the one of the same capability. The whole payload is its essence.
    #[must_use]
    pub fn handle(self, capability: Capability, handler: impl Handler + 'static) -> Self {
        self.handle_with(capability, handler, Arc::new(WholePayload))
    }

    /// Adds a handler with the extractor of its payload's essence.
    #[must_use]
    pub fn handle_with(
        mut self,
        capability: Capability,
        handler: impl Handler + 'static,
        essence: Arc<dyn Essence>,
    ) -> Self {
        let handler = Box::new(handler);
        self.routes.insert(capability, Route { handler, essence });
        self
    }

    /// Sets who may do what, in the place of what the processor was made with.
    #[must_use]
    pub fn authorize(mut self, authorize: Arc<dyn Authorize>) -> Self {
        self.authorize = authorize;
        self
    }

    /// Sets what is aligned.
    #[must_use]
    pub fn policy(mut self, policy: Arc<dyn Judge>) -> Self {
        self.policy = policy;
        self
    }

    /// Sets what checks outputs against their contracts.
    #[must_use]
    pub fn contract(mut self, contract: Arc<dyn ContractCheck>) -> Self {
        self.contract = contract;
        self
    }

    /// Sets the cache.
    #[must_use]
    pub fn cache(mut self, cache: Arc<dyn CacheStore>) -> Self {
        self.cache = Some(cache);
        self
    }

    /// Sets where signals for learning go: one for each PARTIAL or last result. Without it none is made.
    #[must_use]
    pub fn signals(mut self, signals: Arc<dyn SignalSink>) -> Self {
        self.signals = Some(signals);
        self
    }

    /// Sets where Nacks are noted: a transcript of their own, for anybody can fill it. Where none is set they are
    /// noted in memory, 1,000 of them. At most 100 are noted at once, and 10 a second after that.
    #[must_use]
    pub fn refusals(mut self, log: Arc<dyn Transcript>) -> Self {
        self.refusals = Refusals::new(log);
        self
    }

    /// Nacks that were told and not noted, because of their rate or because the log took no more.
    pub fn unlogged_refusals(&self) -> u64 {
        self.refusals.unlogged()
    }

    /// Who answers.
    pub(crate) const fn producer(&self) -> &Producer {
        &self.producer
    }

    /// What is done here, in order.
    pub fn capabilities(&self) -> impl Iterator<Item = &Capability> {
        self.routes.keys()
    }

    /// Whether there is a handler for a capability.
    pub(crate) fn handles(&self, capability: &Capability) -> bool {
        self.routes.contains_key(capability)
    }

    /// Tasks that run.
    pub(crate) fn running(&self) -> usize {
        self.ledger.running()
    }

    /// Cancels a task; false where it does not run.
    pub fn cancel(&self, task_id: &TaskId) -> bool {
        self.ledger.cancel(task_id)
    }

    /// Cancels every task that runs, for a clean end; gives their number. Their answers still come.
    pub fn cancel_all(&self) -> usize {
        self.ledger.cancel_all()
    }

    /// Answers one task, given as its bytes.
    ///
    /// Every task ends in a Nack or a terminal result. Dropping the future ends the task as FAILED/`INTERNAL` in
    /// the transcript. A hook or a handler that panics ends its own task as FAILED/`INTERNAL`, and no other.
    ///
    /// # Errors
    ///
    /// [`ProcessError`]. Spec: SAP 5
    pub async fn process<S: Sleep + Sync + ?Sized>(
        &self,
        clock: &S,
        task: &[u8],
        sink: &mut (dyn FnMut(Delivery<'_>) + Send),
    ) -> Result<Answer, ProcessError> {
        match self.read(task) {
            Ok(read) => self.answer(clock, read, Given::Wire(task), sink).await,
            Err(nack) => Ok(self.turn_away(clock.now(), *nack, task).await),
        }
    }

    /// Answers one task, given also as its bytes.
    pub(crate) async fn answer<S: Sleep + Sync + ?Sized>(
        &self,
        clock: &S,
        task: Task,
        given: Given<'_>,
        sink: &mut (dyn FnMut(Delivery<'_>) + Send),
    ) -> Result<Answer, ProcessError> {
        let span = trace::task(&task);
        let answer = Box::pin(self.answer_once(clock, task, given, sink));
        let answer = trace::within(span.clone(), answer).await;
        trace::ended(&span, &answer, self.running());
        answer
    }

    async fn answer_once<S: Sleep + Sync + ?Sized>(
        &self,
        clock: &S,
        task: Task,
        given: Given<'_>,
        sink: &mut (dyn FnMut(Delivery<'_>) + Send),
    ) -> Result<Answer, ProcessError> {
        let bytes = given.bytes();
        let now = clock.now();
        let refused = guarded(self.refuse(&task)).await;
        let refused = refused.unwrap_or_else(|Panicked| {
            let why = "whether the issuer may have this done is not known";
            Some(nack(&task, ErrorCode::Internal, why))
        });
        if let Some(nack) = refused {
            return Ok(self.turn_away(now, nack, bytes).await);
        }
        let task = Arc::new(task);
        let Some(route) = self.route(&task) else {
            let nack = nack(
                &task,
                ErrorCode::NotFound,
                "no such capability or agent here",
            );
            return Ok(self.turn_away(now, nack, bytes).await);
        };
        let run = Run::new(self, Arc::clone(&task), Arc::clone(&route.essence));
        let encoded = given.encoded(&task);
        let stop = match self.enter(now, &run, bytes, &encoded).await? {
            ControlFlow::Continue(stop) => stop,
            ControlFlow::Break(answer) => return Ok(answer),
        };
        let mut active = ActiveTask {
            processor: self,
            clock,
            run,
            limits: TimeLimits::of(&task, now, self.config.default_time),
            stop,
            status: None,
            handed_over: None,
        };
        active.begin(&encoded).await?;
        if task.expects_ack() {
            sink(Delivery::Ack(Ack::from(&*task)));
        }
        let worked = guarded(Box::pin(self.work(&mut active, route, sink))).await;
        let result = match worked {
            Ok(result) => active.judged_by_time(result?),
            Err(Panicked) => {
                let why = "the processor was stopped by a panic";
                active.run.failed(clock.now(), ErrorCode::Internal, why)
            }
        };
        let result = active.emit(result, sink).await?;
        Ok(Answer::Result(Box::new(result)))
    }

    /// Takes the place of a task that is new. `Break` answers one that is not new, or for which there is no place.
    async fn enter(
        &self,
        now: Now,
        run: &Run<'_>,
        bytes: &[u8],
        encoded: &[u8],
    ) -> Result<ControlFlow<Answer, Stop>, ProcessError> {
        let task = &run.task;
        let body = Digest::of_bytes(encoded);
        let max_running = self.config.max_running;
        let refused = |code, why| self.turn_away(now, nack(task, code, why), bytes);
        let answer = match self.ledger.enter(task, body, max_running) {
            Entered::New(stop) => return Ok(ControlFlow::Continue(stop)),
            Entered::Known(latest) => self.answer_again(now, run, latest.as_deref()).await,
            // The same task may be written otherwise, which its bytes do not show.
            Entered::Other(before, latest) => {
                if self.is_equal(before, encoded).await {
                    self.answer_again(now, run, latest.as_deref()).await
                } else {
                    let why = "another task of this id came before";
                    Ok(refused(ErrorCode::InvalidTask, why).await)
                }
            }
            Entered::Full => {
                let why = "too many tasks run at the same time";
                Ok(refused(ErrorCode::RateLimit, why).await)
            }
        };
        answer.map(ControlFlow::Break)
    }

    /// Reads a task, or says why it is turned away.
    pub(crate) fn read(&self, bytes: &[u8]) -> Result<Task, Box<Nack>> {
        let decoded = decode_task(bytes, &self.config.options);
        match decoded {
            Ok((task, _)) => Ok(task),
            Err(_) => Err(Box::new(invalid(
                &findings(&decoded),
                bytes,
                &self.config.options,
            ))),
        }
    }

    // impl: SAP-11-2
    async fn refuse(&self, task: &Task) -> Option<Nack> {
        let capability = &task.target.capability;
        match self.authorize.authorize(&task.issuer, capability).await {
            Access::Allowed => None,
            Access::Forbidden => {
                let why = "the issuer may not have this done";
                Some(nack(task, ErrorCode::Forbidden, why))
            }
            Access::Unknown => {
                let why = "the issuer is not known";
                Some(nack(task, ErrorCode::Unauthorized, why))
            }
        }
    }

    // impl: SAP-4.1-16
    fn route(&self, task: &Task) -> Option<&Route> {
        let wanted = task.target.agent_id.as_deref();
        if wanted.is_some_and(|agent| agent != self.producer.agent_id.as_str()) {
            return None;
        }
        self.routes.get(&task.target.capability)
    }

    /// Notes a Nack, and gives it to be told.
    pub(crate) async fn turn_away(&self, now: Now, nack: Nack, bytes: &[u8]) -> Answer {
        self.refusals.note(now, &nack, bytes).await;
        Answer::Nack(nack)
    }

    /// Ends a task as FAILED that a transport gives up; `None` where an id is not known.
    #[cfg(feature = "nats")]
    pub(crate) async fn abandon(
        &self,
        now: Now,
        nack: Nack,
    ) -> Result<Option<TaskResult>, ProcessError> {
        let Some(result) = nack.into_result(now.wall, self.producer.clone()) else {
            return Ok(None);
        };
        self.record(&Entry::of(EntryKind::Result, now.wall, &result)?)
            .await?;
        Ok(Some(result))
    }

    /// Writes an entry down. A transcript that panics has failed.
    async fn record(&self, entry: &Entry) -> Result<u64, TranscriptError> {
        let recorded = guarded(async { self.transcript.record(entry).await }).await;
        recorded.unwrap_or_else(|Panicked| Err(TranscriptError::Store(Box::new(Panicked))))
    }

    /// Whether a task is the one that came before, written otherwise: in another order, or with other white space.
    async fn is_equal(&self, before: Before, encoded: &[u8]) -> bool {
        let entry = match before {
            Before::Unwritten(task) => return body_digest(&task.encode()) == body_digest(encoded),
            Before::Written(entry) => entry,
        };
        let entries = guarded(async { self.transcript.read(entry, 1).await }).await;
        let entries = entries.ok().and_then(Result::ok);
        let there = entries.as_deref().and_then(<[Entry]>::first);
        there.is_some_and(|entry| {
            body_digest(entry.body.as_str().as_bytes()) == body_digest(encoded)
        })
    }

    /// Keeps a result, to answer the same task again.
    fn remember(&self, result: &TaskResult, encoded: Vec<u8>) {
        let max_bytes = self.config.max_remembered_bytes;
        self.ledger.update(result, encoded, max_bytes);
    }

    /// Answers a task that came before.
    // impl: SAP-5-10
    async fn answer_again(
        &self,
        now: Now,
        run: &Run<'_>,
        latest: Option<&[u8]>,
    ) -> Result<Answer, ProcessError> {
        let latest = latest.and_then(|bytes| {
            let read = decode_result(bytes, &Options::default());
            read.ok().map(|(result, _)| result)
        });
        let result = match latest {
            Some(result) => result,
            // That it waits was not said yet, so it is not yet written down.
            None => {
                let queued = run.interim(now, Status::Queued);
                self.record(&Entry::of(EntryKind::Result, now.wall, &queued)?)
                    .await?;
                queued
            }
        };
        Ok(Answer::Result(Box::new(result)))
    }

    /// From the Ack to the last result, which is not yet told.
    async fn work<S: Sleep + Sync + ?Sized>(
        &self,
        active: &mut ActiveTask<'_, S>,
        route: &Route,
        sink: &mut (dyn FnMut(Delivery<'_>) + Send),
    ) -> Result<TaskResult, ProcessError> {
        let now = active.clock.now();
        if let Some(why) = active.limits.over(now) {
            return Ok(active.run.failed(now, ErrorCode::Timeout, why));
        }
        let admission = self.policy.judge(active.run.subject()).await;
        let now = active.clock.now();
        active.run.admission = admission;
        if active.run.admission.alignment != Alignment::Valid {
            let assessment = active.run.admission.clone();
            return Ok(active.run.by_verdict(now, assessment, Outcome::default()));
        }
        if let Some(result) = active.run.look_up(now, sink).await {
            return Ok(result);
        }
        let leader_guard = loop {
            let completion = match active.run.flight() {
                Some(Flight::Follow(completion)) => completion,
                Some(Flight::Lead(leader_guard)) => break Some(leader_guard),
                None => break None,
            };
            let waited = race::wait(active.clock, &active.limits, &active.stop, completion);
            if let Some(ended) = waited.await {
                return Ok(active.run.end(active.clock.now(), ended, sink).await);
            }
            // Where the leader came to nothing, those who waited form one new flight.
            let now = active.clock.now();
            if let Some(result) = active.run.look_up(now, sink).await {
                return Ok(result);
            }
        };
        // On the heap, so that what is answered without it stays small.
        let result = Box::pin(self.run(active, route, sink)).await;
        drop(leader_guard);
        result
    }

    /// From RUNNING to the last result, which is not yet told.
    async fn run<S: Sleep + Sync + ?Sized>(
        &self,
        active: &mut ActiveTask<'_, S>,
        route: &Route,
        sink: &mut (dyn FnMut(Delivery<'_>) + Send),
    ) -> Result<TaskResult, ProcessError> {
        let running = active.run.interim(active.clock.now(), Status::Running);
        let running = active.emit(running, sink).await?;
        sink(Delivery::Result(&running));
        let task = Arc::clone(&active.run.task);
        active.limits = active.limits.beginning(active.clock.now());
        let (handler, stop) = (route.handler.as_ref(), active.stop.clone());
        let mut race = Race::new(active.clock, handler, &task, stop, active.limits);
        loop {
            match race.next().await {
                Step::Progress(progress) => {
                    let now = active.clock.now();
                    let result = active.run.progress(now, progress).await;
                    let validated = active.run.validated(active.clock.now(), result);
                    // A part that breaks a principle, or is no valid result.
                    if validated.0.status.is_terminal() {
                        return Ok(validated.0);
                    }
                    let result = active.emit_validated(validated, sink).await?;
                    sink(Delivery::Result(&result));
                }
                Step::Ended(ended) => {
                    return Ok(active.run.end(active.clock.now(), ended, sink).await);
                }
            }
        }
    }
}

impl fmt::Debug for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Processor")
            .field("producer", &self.producer)
            .field("capabilities", &self.routes.keys())
            .finish_non_exhaustive()
    }
}

/// The bytes of a task, by where they are from.
#[derive(Clone, Copy)]
pub(crate) enum Given<'a> {
    /// Somebody sent them; the task was read from them.
    Wire(&'a [u8]),
    /// They were made of the task.
    Encoded(&'a [u8]),
}

impl<'a> Given<'a> {
    pub(crate) const fn bytes(self) -> &'a [u8] {
        match self {
            Self::Wire(bytes) | Self::Encoded(bytes) => bytes,
        }
    }

    /// The task as it is written here.
    fn encoded(self, task: &Task) -> Cow<'a, [u8]> {
        match self {
            Self::Wire(_) => Cow::Owned(task.encode()),
            Self::Encoded(bytes) => Cow::Borrowed(bytes),
        }
    }
}

/// A task that was taken and has no last result yet.
struct ActiveTask<'p, S: Sleep + Sync + ?Sized> {
    processor: &'p Processor,
    clock: &'p S,
    run: Run<'p>,
    limits: TimeLimits,
    stop: Stop,
    /// Of the last result that was written down.
    status: Option<Status>,
    /// What the transcript is writing down.
    handed_over: Option<(TaskResult, Vec<u8>)>,
}

impl<S: Sleep + Sync + ?Sized> ActiveTask<'_, S> {
    /// Writes the task down.
    async fn begin(&self, encoded: &[u8]) -> Result<(), TranscriptError> {
        let task_id = &self.run.task.task_id;
        let entry = Entry::encoded(EntryKind::Task, self.clock.now().wall, encoded);
        match self.processor.record(&entry).await {
            Ok(entry) => self.processor.ledger.written(task_id, entry),
            Err(lost) => {
                // What is not in the transcript was never here, and has no end there either.
                self.processor.ledger.forget(task_id);
                return Err(lost);
            }
        }
        Ok(())
    }

    /// The last result as it may be told now: contract check and alignment take their time.
    // impl: SAP-5-8
    fn judged_by_time(&self, result: TaskResult) -> TaskResult {
        let counts = matches!(result.status, Status::Succeeded | Status::Escalated);
        let now = self.clock.now();
        if counts && self.stop.reason() == Some(StopReason::Cancelled) {
            return self.run.interim(now, Status::Cancelled);
        }
        match self.limits.over(now).filter(|_| counts) {
            Some(why) => self.run.failed(now, ErrorCode::Timeout, why),
            None => result,
        }
    }

    /// Writes a result down, as of now; only then may it be told.
    // impl: SAP-10-1
    async fn emit(
        &mut self,
        mut result: TaskResult,
        sink: &mut (dyn FnMut(Delivery<'_>) + Send),
    ) -> Result<TaskResult, ProcessError> {
        let now = self.clock.now();
        result.reported_at = now.wall.into();
        let validated = self.run.validated(now, result);
        self.emit_validated(validated, sink).await
    }

    async fn emit_validated(
        &mut self,
        (result, encoded): (TaskResult, Vec<u8>),
        sink: &mut (dyn FnMut(Delivery<'_>) + Send),
    ) -> Result<TaskResult, ProcessError> {
        let now = self.clock.now();
        if !result.status.may_follow(self.status.as_ref()) {
            return Err(LifecycleError::Transition {
                from: self.status.clone().unwrap_or(Status::Queued),
                to: result.status,
            }
            .into());
        }
        let processor = self.processor;
        let entry = Entry::encoded(EntryKind::Result, now.wall, &encoded);
        // Dropped while it is written, the run has ended with it all the same.
        self.handed_over = Some((result.clone(), encoded));
        let recorded = processor.record(&entry).await;
        let handed_over = self.handed_over.take();
        recorded?;
        self.status = Some(result.status.clone());
        if let Some((result, encoded)) = handed_over {
            processor.remember(&result, encoded);
        }
        self.signal(&result, sink);
        Ok(result)
    }

    // impl: SAP-7-6
    fn signal(&self, result: &TaskResult, sink: &mut (dyn FnMut(Delivery<'_>) + Send)) {
        let Some(signals) = &self.processor.signals else {
            return;
        };
        if !result.status.is_terminal() && result.status != Status::Partial {
            return;
        }
        let kept = catch_unwind(AssertUnwindSafe(|| {
            let fingerprint = self.run.fingerprint();
            let signal = Signal::of_result(&self.run.task, fingerprint, result);
            signal.map_or(Ok(()), |signal| signals.emit(signal))
        }));
        if let Err(error) = kept.unwrap_or_else(|_| Err(StoreError::Failed(Box::new(Panicked)))) {
            sink(Delivery::Warning(Warning::Signal(error)));
        }
    }
}

impl<S: Sleep + Sync + ?Sized> Drop for ActiveTask<'_, S> {
    /// Ends a task whose processing was given up, or whose transcript failed. The transcript is handed the end,
    /// and nobody waits for it.
    fn drop(&mut self) {
        let ledger = &self.processor.ledger;
        let task_id = &self.run.task.task_id;
        if self.status.as_ref().is_some_and(Status::is_terminal) || !ledger.runs(task_id) {
            return;
        }
        if let Some((result, encoded)) = self.handed_over.take()
            && result.status.is_terminal()
        {
            return self.processor.remember(&result, encoded);
        }
        let now = self.clock.now();
        let why = "processing was given up before its end";
        let result = self.run.failed(now, ErrorCode::Internal, why);
        let (result, encoded) = self.run.validated(now, result);
        let entry = Entry::encoded(EntryKind::Result, now.wall, &encoded);
        let recorded = guarded(async { self.processor.transcript.record(&entry).await });
        match recorded.now_or_never() {
            Some(Ok(Err(_)) | Err(Panicked)) => ledger.forget(task_id),
            Some(Ok(Ok(_))) | None => self.processor.remember(&result, encoded),
        }
    }
}

/// The Nack of bytes that are no valid task.
pub(crate) fn invalid(report: &Report, bytes: &[u8], options: &Options) -> Nack {
    let musts = report.iter().filter(|f| f.level == Level::Must);
    let shown: Vec<String> = musts
        .take(MAX_SHOWN)
        .map(|f| {
            let pointer: String = f.pointer.chars().take(MAX_POINTER).collect();
            format!("{} at {pointer:?}", f.code)
        })
        .collect();
    let why = format!("not a valid task: {}", shown.join(", "));
    let mut nack = Nack::new(ReceiptStatus::Nack, ErrorCode::InvalidTask, reason(&why));
    (nack.message_id, nack.correlation_id) = ids_of(bytes, &options.limits);
    nack
}

pub(crate) fn nack(task: &Task, code: ErrorCode, why: &str) -> Nack {
    Nack::of(task, code, reason(why))
}

#[expect(clippy::expect_used, reason = "every caller gives a text of its own")]
fn reason(why: &str) -> Reason {
    why.parse().expect("no reason here is blank")
}

/// Characters of a pointer that a Nack shows; names in it are the issuer's.
const MAX_POINTER: usize = 200;
/// Findings that a Nack shows.
const MAX_SHOWN: usize = 8;
