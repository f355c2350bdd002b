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
//! # #[derive(Clone)]
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
mod apart;
mod books;
mod config;
#[cfg(feature = "schema")]
mod contract;
mod drive;
mod effects;
mod finished;
#[cfg(test)]
pub(crate) mod fixture;
mod flight;
mod gate;
mod guard;
mod handler;
mod hooks;
mod key;
mod known;
mod ledger;
mod left;
#[cfg(feature = "log")]
mod library;
mod peer;
mod recorded;
mod refusals;
mod resume;
mod running;
#[cfg(feature = "sign")]
mod signed;
mod speakers;
mod state;
mod stop;
mod teller;
#[cfg(feature = "typed")]
mod typed;

use core::fmt;
use core::future::Future;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use ubos_common::driver::Sleep;
use ubos_common::time::Now;
use ubos_common::violation::{Level, PointerText, Report};

pub use crate::role::consumer::{
    Access, ContractFinding, HandlerError, NotEnforced, Outcome, Progress, StopReason,
};
pub use answer::{Answer, Delivery, ProcessError, Unreachable, Warning};
pub use config::Config;
#[cfg(feature = "schema")]
pub use contract::Schemas;
pub use handler::{Context, Handler};
pub use hooks::{AllowAll, Authorize, ContractCheck, Judge, Table};
pub use peer::{Identity, Peer};
pub use resume::{Interrupted, Resumed};
#[cfg(feature = "sign")]
pub use signed::Signed;
pub use speakers::Speakers;
pub use state::{Processor, Shape};

use drive::{Driver, Sink};
use effects::Effects;
use flight::SingleFlight;
pub(crate) use guard::guarded;
use hooks::Unchecked;
use key::Key;
pub(crate) use known::{KnownTask, Standing, Unanswered};
pub(crate) use peer::Asker;
pub(crate) use refusals::Refusals;
use state::Route;
use teller::Teller;

use crate::ConfigError;
use crate::alignment::AlwaysValid;
use crate::cache::{CacheStore, Caching};
use crate::error::ErrorCode;
use crate::future::{LARGE, yield_once};
use crate::ident::{AgentId, Capability, Reason, TaskId};
use crate::learning::SignalSink;
use crate::receipt::{Nack, ReceiptStatus};
use crate::result::Producer;
use crate::role::consumer;
use crate::task::Task;
use crate::trace;
use crate::transcript::Transcript;
use crate::validate::{Options, decode_task_alone, findings, ids_of};
use crate::work::{self, For, HEAVY};

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
        let consumer =
            consumer::Config::new(producer.clone()).with_default_time(config.default_time);
        Ok(Self {
            producer,
            consumer,
            routes: BTreeMap::new(),
            caching: BTreeMap::new(),
            authorize,
            gate: gate::Gate::default(),
            policy: Arc::new(AlwaysValid),
            contract: Arc::new(Unchecked),
            cache: None,
            signals: None,
            refusals: Refusals::default(),
            transcript,
            config,
            ledger: Arc::default(),
            flights: SingleFlight::default(),
        })
    }

    /// Adds a handler, or replaces the one of the same capability.
    #[must_use]
    pub fn handle(mut self, capability: Capability, handler: impl Handler + 'static) -> Self {
        let route = Route {
            handler: Box::new(handler),
            shape: None,
        };
        self.routes.insert(capability, route);
        self
    }

    /// Says what the handler of a capability does, takes and gives. What is said of a typed handler goes before what
    /// its types say. Without a handler it says nothing.
    #[must_use]
    pub fn shaped(mut self, capability: &Capability, shape: Shape) -> Self {
        if let Some(route) = self.routes.get_mut(capability) {
            let known = route.shape.take().unwrap_or_default();
            route.shape = Some(Shape {
                about: shape.about.or(known.about),
                payload: shape.payload.or(known.payload),
                output: shape.output.or(known.output),
            });
        }
        self
    }

    /// What the handler of a capability does, takes and gives, where that is known.
    #[must_use]
    pub fn shape(&self, capability: &Capability) -> Option<&Shape> {
        self.routes.get(capability)?.shape.as_ref()
    }

    /// Lets outcomes of a capability be kept in the cache and answer other tasks. Without it each is computed.
    #[must_use]
    pub fn cached(mut self, capability: Capability, caching: Caching) -> Self {
        self.caching.insert(capability, caching);
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

    /// Sets the cache, for the capabilities that are [`cached`](Self::cached).
    #[must_use]
    pub fn cache(mut self, cache: Arc<dyn CacheStore>) -> Self {
        self.cache = Some(cache);
        self
    }

    /// Sets where signals for learning go: one for each PARTIAL or last result. Without it none is made.
    ///
    /// The sink is called on a thread of its own, in the order of the results, and no task waits for it. At most 10,000
    /// signals wait, made of at most 64 MiB of tasks and results; what is more is [lost](Self::lost_signals), with a
    /// [`Warning::Signal`].
    #[must_use]
    pub fn signals(mut self, signals: Arc<dyn SignalSink>) -> Self {
        self.signals = Some(Arc::new(Teller::start(signals)));
        self
    }

    /// Signals of which nobody learned: too many waited, or the sink refused them, or panicked.
    pub fn lost_signals(&self) -> u64 {
        self.signals.as_ref().map_or(0, |teller| teller.lost())
    }

    /// Ready once the sink of [`signals`](Self::signals) has been told of every result so far: for one who then looks at
    /// what was learned, or ends the process. A sink that never answers keeps it waiting.
    pub fn signals_told(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        let told = self.signals.as_ref().map(|teller| teller.all_told());
        async move {
            if let Some(told) = told {
                // It is woken by being dropped.
                let _ = told.await;
            }
        }
    }

    /// Sets where Nacks are noted: a transcript of their own, for anybody can fill it, which keeps the newest
    /// ([`MemoryTranscript::keeping_newest`](crate::store::MemoryTranscript::keeping_newest), `FileTranscript::keeping_newest`); another takes no more Nacks once it is full, or
    /// has no bound. Where none is set the newest 1,000 are noted in memory. At most 100 are noted at once, and 10 a second
    /// after that.
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

    /// Cancels a task of an issuer; false where it does not run. One that is to run again after a restart ends when it comes.
    pub fn cancel(&self, issuer: &AgentId, task_id: &TaskId) -> bool {
        let key = Key::new(*task_id, issuer);
        self.ledger.cancel(&key)
    }

    /// Cancels every task that runs, for a clean end; gives their number. Their answers still come.
    pub fn cancel_all(&self) -> usize {
        self.ledger.cancel_all()
    }

    /// Answers one task of this process, given as its bytes.
    ///
    /// Every task ends in a Nack or a terminal result. Dropping the future ends the task as FAILED/`INTERNAL` in
    /// the transcript. A hook or a handler that panics ends its own task as FAILED/`INTERNAL`, and no other.
    ///
    /// # Errors
    ///
    /// [`ProcessError`]. Spec: SAP 5
    pub async fn process<S: Sleep + Clone + Send + Sync + 'static>(
        &self,
        clock: &S,
        task: &[u8],
        sink: Sink<'_>,
    ) -> Result<Answer, ProcessError> {
        let peer = Peer::same_process();
        self.process_from(clock, &peer, task, sink).await
    }

    /// Answers one task that a peer brought, given as its bytes. See [`process`](Self::process).
    ///
    /// # Errors
    ///
    /// [`ProcessError`]. Spec: SAP 5
    pub async fn process_from<S: Sleep + Clone + Send + Sync + 'static>(
        &self,
        clock: &S,
        peer: &Peer,
        task: &[u8],
        sink: Sink<'_>,
    ) -> Result<Answer, ProcessError> {
        match self.read(task).await {
            Ok(read) => {
                let given = Given::Wire(task);
                if task.len() > LARGE {
                    yield_once().await;
                }
                let asker = Asker::from(peer);
                self.answer(clock, asker, read, given, sink).await
            }
            Err(nack) => Ok(self.turn_away(clock.now(), *nack, task).await),
        }
    }

    /// Answers one task, given also as its bytes.
    pub(crate) async fn answer<S: Sleep + Clone + Send + Sync + 'static>(
        &self,
        clock: &S,
        asker: Asker<'_>,
        task: Arc<Task>,
        given: Given<'_>,
        sink: Sink<'_>,
    ) -> Result<Answer, ProcessError> {
        let span = trace::task(&task);
        let answer = Box::pin(self.answer_once(clock, asker, task, given, sink));
        let answer = trace::within(span.clone(), answer).await;
        trace::ended(&span, &answer, self.running());
        answer
    }

    async fn answer_once<S: Sleep + Clone + Send + Sync + 'static>(
        &self,
        clock: &S,
        asker: Asker<'_>,
        task: Arc<Task>,
        given: Given<'_>,
        sink: Sink<'_>,
    ) -> Result<Answer, ProcessError> {
        let bytes = given.bytes();
        let encoded = given.encoded(&task);
        let effects = Effects::new(self, task, encoded, asker.peer);
        let driver = Driver::new(clock, &effects).cancelled_by(asker.cancelled);
        let answer = driver.run(sink).await?;
        match answer {
            Answer::Nack(nack) => Ok(self.turn_away(clock.now(), nack, bytes).await),
            answer => Ok(answer),
        }
    }

    /// Reads a task, or says why it is turned away.
    pub(crate) async fn read(&self, bytes: &[u8]) -> Result<Arc<Task>, Box<Nack>> {
        read_apart(bytes, self.config.options).await
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
    // impl: SAP-4.3-2
    pub(crate) async fn turn_away(&self, now: Now, nack: Nack, bytes: &[u8]) -> Answer {
        self.refusals.note(now, &nack, bytes).await;
        Answer::Nack(nack)
    }

    /// Notes a Nack that is about no message.
    pub(crate) async fn note(&self, now: Now, nack: &Nack) {
        self.refusals.note(now, nack, b"").await;
    }

    /// Whether a task of this issuer and id came before, and was not forgotten since.
    pub(crate) fn knows(&self, task: &Task) -> bool {
        self.ledger.before(&Key::of(task)).is_some()
    }

    /// The time of a task that names no deadline.
    #[cfg(feature = "nats")]
    pub(crate) const fn default_time(&self) -> core::time::Duration {
        self.config.default_time
    }

    /// Whether a task of this issuer and id is written down, and will have its end here.
    #[cfg(feature = "nats")]
    pub(crate) fn has_taken(&self, task: &Task) -> bool {
        self.ledger.entry(&Key::of(task)).is_some()
    }

    /// Ends a task that a transport gives up, given as its bytes.
    #[cfg(feature = "nats")]
    pub(crate) async fn abandon<S: Sleep + Clone + Send + Sync + 'static>(
        &self,
        clock: &S,
        task: &[u8],
    ) -> Result<Answer, ProcessError> {
        match self.read(task).await {
            Ok(read) => {
                let encoded = read.encode();
                self.end_unrun(clock, read, &encoded).await
            }
            Err(nack) => Ok(self.turn_away(clock.now(), *nack, task).await),
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

/// Reads a task, or says why it is turned away: at once where it is short, on another thread where it is not.
pub(crate) async fn read_apart(bytes: &[u8], options: Options) -> Result<Arc<Task>, Box<Nack>> {
    if bytes.len() <= HEAVY {
        return read(bytes, &options);
    }
    let bytes = bytes.to_vec();
    work::done(For::Stranger, bytes.len(), move || read(&bytes, &options)).await
}

fn read(bytes: &[u8], options: &Options) -> Result<Arc<Task>, Box<Nack>> {
    let decoded = decode_task_alone(bytes, options).map(Arc::new);
    decoded.map_err(|error| {
        let report = findings::<Task>(&Err(error));
        Box::new(invalid(&report, bytes, options))
    })
}

/// The Nack of bytes that are no valid task.
fn invalid(report: &Report, bytes: &[u8], options: &Options) -> Nack {
    let musts = report.iter().filter(|f| f.level == Level::Must);
    let shown: Vec<String> = musts
        .take(MAX_SHOWN)
        .map(|f| {
            let pointer: String = f.pointer.chars().take(MAX_POINTER).collect();
            let is_version = f.pointer == "/protocolVersion";
            let supported = if is_version { SUPPORTED } else { "" };
            format!("{} at {}{supported}", f.code, PointerText(&pointer))
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

/// What a Nack says of a version that is not supported.
const SUPPORTED: &str = ", where the string \"2.0\" is supported";
/// Characters of a pointer that a Nack shows; names in it are the issuer's.
const MAX_POINTER: usize = 200;
/// Findings that a Nack shows.
const MAX_SHOWN: usize = 8;
