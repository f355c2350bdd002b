//! Agents of one process, without a runtime: a task runs in the caller's own future.
//!
//! ```
//! use std::sync::Arc;
//! use sap::processor::{AllowAll, Config, Context, Outcome, Processor};
//! use sap::store::MemoryTranscript;
//! use sap::transport::{Message, bus::{self, Bus}};
//! use sap::*;
//! # use sap::ubos_common::{driver::Sleep, id::IdSource, json::{RawBuf, RawObject}, time::{Mono, Now, Timestamp}};
//! # struct Still;
//! # impl Sleep for Still {
//! #     fn now(&self) -> Now { Now::new(Mono::ZERO, Timestamp::EPOCH) }
//! #     fn sleep_until(&self, _: Mono) -> futures::future::BoxFuture<'static, ()> { Box::pin(std::future::pending()) }
//! # }
//! # let clock = Arc::new(Still);
//! # let task = Task::draft(&mut IdSource::seeded(1), Timestamp::EPOCH, Issuer::new("A-prime".parse()?, AgentKind::Agent),
//! #     Target::new("text.upper".parse()?), ConstitutionalContext::new(PressureLevel::Instant), RawObject::empty());
//!
//! let transcript = Arc::new(MemoryTranscript::default());
//! let producer = Producer::new("A-ml-001".parse()?, ProducerKind::Agent);
//! let processor = Processor::new(producer, Arc::new(AllowAll), transcript.clone(), Config::default())?
//!     .handle("text.upper".parse()?, |_: Context| async { Ok(Outcome::new(RawBuf::parse("\"DONE\"").unwrap())) });
//! let refusals = Arc::new(MemoryTranscript::default()); // anybody can fill it
//! let bus = Bus::new(clock, refusals, bus::Config::default())?;
//! bus.attach(processor, |warning| eprintln!("{warning}"));
//! let answer = futures::executor::block_on(bus.send(&task, &mut |_| {}))?;
//! let Some(Message::Result(result)) = answer else { panic!("not turned away") };
//! assert_eq!(result.status, Status::Succeeded);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | bound | default | at the bound |
//! |---|---|---|
//! | tasks on the bus | 1,024 | `try_send` gives a Nack `RATE_LIMIT`; `send` waits, first come first served, until the deadline of its task |
//! | results in a mailbox | 1,024 | the endpoint counts as unreachable |
//!
//! How long a task may take, and what follows then, is a [setting](Config).

mod agents;
mod places;
mod watched;

use core::fmt;
use core::panic::AssertUnwindSafe;
use core::time::Duration;
use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, Weak};

use futures::FutureExt as _;
use futures::channel::mpsc;
use futures::future::BoxFuture;
use futures::stream::Stream;
use ubos_common::driver::Sleep;

use self::agents::Agents;
use self::places::{Place, Places, lock};
use super::about::unanswered;
use super::sent::{Heard, Sent};
use super::{About, Caller, Message, Replies, SendError, Service, ToEndpoint};
use crate::ConfigError;
use crate::dispatch::dispatch_apart;
use crate::error::ErrorCode;
use crate::processor::{
    self, Given, Peer, ProcessError, Processor, Refusals, Unanswered, Unreachable, Warning, guarded,
};
use crate::receipt::Nack;
use crate::result::TaskResult;
use crate::role::producer;
use crate::task::Task;
use crate::trace;
use crate::transcript::Transcript;
use crate::validate::Options;

/// Agents of one process. Clones are one bus.
#[derive(Clone)]
pub struct Bus(Arc<Inner>);

struct Inner {
    clock: Arc<dyn Sleep + Send + Sync>,
    refusals: Refusals,
    agents: Agents,
    mailboxes: Mutex<BTreeMap<String, mpsc::Sender<TaskResult>>>,
    places: Arc<Places>,
    config: Config,
}

/// Settings of a [`Bus`].
///
/// | setting | default | at the bound |
/// |---|---|---|
/// | `max_tasks` | 1,024 | `try_send` gives a Nack `RATE_LIMIT`; `send` waits until the deadline of its task |
/// | `patience`: how long nothing may be said about a task, and how long after its deadline something may be | any time, and 300 s | the task is sent again, or [`SendError::NoAnswer`] |
/// | `resends` of a task for which nothing came in time | 0 | [`SendError::NoAnswer`] |
/// | `default_time` of a task that names no deadline | any: the processor has one, and is in the same process | as a deadline |
///
/// Giving up ends the run, which is in the same future.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    max_tasks: usize,
    waits: producer::Config,
    /// Whether silence is judged, beside the time of the task.
    has_patience: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_tasks: 1_024,
            waits: producer::Config::default()
                .with_patience(Duration::MAX, Duration::MAX)
                .with_default_time(Duration::MAX),
            has_patience: false,
        }
    }
}

impl Config {
    /// Sets how many tasks are on the bus at the same time; at least 1.
    #[must_use]
    pub const fn with_max_tasks(mut self, tasks: usize) -> Self {
        self.max_tasks = tasks;
        self
    }

    /// Sets how long nothing may be said about a task, and how long after its deadline something may be. Of one whose results go
    /// to an endpoint the bus hears nothing, and its time is judged alone.
    #[must_use]
    pub const fn with_patience(mut self, patience: Duration) -> Self {
        self.waits = self
            .waits
            .with_patience(patience, patience)
            .with_deadline_patience(patience);
        self.has_patience = true;
        self
    }

    /// Sets how often a task is sent again for which nothing came in time, where there is a [patience](Self::with_patience): it
    /// goes to its agent once more, which knows the copy, while the first goes on.
    #[must_use]
    pub const fn with_resends(mut self, resends: u32) -> Self {
        self.waits = self.waits.with_resends(resends);
        self
    }

    /// Sets the time of a task that names no deadline. The processor may have a shorter one for it.
    #[must_use]
    pub const fn with_default_time(mut self, time: Duration) -> Self {
        self.waits = self.waits.with_default_time(time);
        self
    }
}

impl Bus {
    /// A bus without agents. What it turns away itself is noted in the log `refusals`, as a processor's Nacks are:
    /// at most 100 at once, and 10 a second after that.
    ///
    /// # Errors
    ///
    /// A setting is out of its range.
    pub fn new(
        clock: Arc<dyn Sleep + Send + Sync>,
        refusals: Arc<dyn Transcript>,
        config: Config,
    ) -> Result<Self, ConfigError> {
        ConfigError::require(
            config.max_tasks > 0,
            "max_tasks",
            config.max_tasks,
            "a bus needs room for at least 1 task",
        )?;
        Ok(Self(Arc::new(Inner {
            clock,
            refusals: Refusals::new(refusals),
            places: Places::new(config.max_tasks),
            agents: Agents::default(),
            mailboxes: Mutex::default(),
            config,
        })))
    }

    /// Puts an agent on the bus, in the place of one of the same id, which keeps the tasks that it was given. Its warnings
    /// go to `on_warning`.
    ///
    /// Several agents may do the same. A task that names none goes to the one that knows it, else to the next in turn.
    pub fn attach(
        &self,
        processor: Processor,
        on_warning: impl Fn(&Warning) + Send + Sync + 'static,
    ) -> Arc<Processor> {
        let processor = Arc::new(processor);
        let service = Service::new(Arc::clone(&processor), Arc::clone(&self.0.clock))
            .replies(Arc::new(Mailboxes(Arc::downgrade(&self.0))))
            .on_warning(on_warning);
        let agent = processor.producer().agent_id.to_string();
        self.0.agents.attach(agent, service);
        processor
    }

    /// Opens a mailbox: results of tasks that name this endpoint go there, for as long as it is held. One of the
    /// same name that was opened before gets nothing more.
    pub fn mailbox<E: Into<String>>(
        &self,
        endpoint: E,
    ) -> impl Stream<Item = TaskResult> + fmt::Debug + Send + Unpin + use<E> {
        let (sender, receiver) = mpsc::channel(MAX_RESULTS);
        lock(&self.0.mailboxes).insert(endpoint.into(), sender);
        receiver
    }

    /// Sends a task and gives the last that the caller is told: a result, a Nack, or the Ack where results go to
    /// an endpoint; nothing where no Ack is wanted then. Everything is told on the way. It gives up 300 s after the
    /// task's deadline, or as the [settings](Config::with_patience) say, and the run with it. A task that is given away is not
    /// copied.
    ///
    /// At the bound it waits for a place. A task that has none when its deadline is over is turned away, as
    /// [`try_send`](Self::try_send) does at once; one without a deadline waits as long as it takes.
    ///
    /// A panic of the agent's clock, or of other code beside its handlers and hooks, is an error of this task alone; one
    /// of `on_message` is passed on.
    ///
    /// # Errors
    ///
    /// [`SendError`]. Spec: SAP 10
    pub async fn send(
        &self,
        task: impl Into<Arc<Task>>,
        on_message: &mut (dyn FnMut(&Message) + Send),
    ) -> Result<Option<Message>, SendError> {
        let task = task.into();
        let bytes = dispatch_apart(&task).await?;
        let place = guarded(self.place(&task)).await;
        let Some(_place) = place.map_err(|_| panicked())? else {
            return Ok(Some(self.is_full(&task, &bytes, on_message).await));
        };
        self.exchange(task, &bytes, on_message).await
    }

    /// As [`send`](Self::send); at the bound the task is turned away.
    ///
    /// # Errors
    ///
    /// [`SendError`].
    // impl: SAP-10-1
    pub async fn try_send(
        &self,
        task: impl Into<Arc<Task>>,
        on_message: &mut (dyn FnMut(&Message) + Send),
    ) -> Result<Option<Message>, SendError> {
        let task = task.into();
        let bytes = dispatch_apart(&task).await?;
        let Some(_place) = self.0.places.try_take() else {
            return Ok(Some(self.is_full(&task, &bytes, on_message).await));
        };
        self.exchange(task, &bytes, on_message).await
    }

    /// How far a task is that was sent before: its latest result, or the Ack where it has none yet. A Nack
    /// `NOT_FOUND` where no agent here knows it, and `RATE_LIMIT` where too many ask.
    pub async fn status(&self, task: &Task) -> Message {
        match self.about(task).await {
            Ok(about) => about.latest().await,
            Err(why) => self.unanswered(task, why).await,
        }
    }

    /// Has a task stopped that was sent before, and gives how far it is. Its end is CANCELLED where it had not
    /// ended by itself, and comes to those who wait for it.
    pub async fn cancel(&self, task: &Task) -> Message {
        match self.about(task).await {
            Ok(about) => about.cancel().await,
            Err(why) => self.unanswered(task, why).await,
        }
    }

    /// Follows a task that was sent before: tells how far it is and all that is said from now on, and gives the
    /// last. Between results that come faster than they are taken, some are left out.
    pub async fn follow(
        &self,
        task: &Task,
        on_message: &mut (dyn FnMut(&Message) + Send),
    ) -> Message {
        let mut about = match self.about(task).await {
            Ok(about) => about,
            Err(why) => {
                let unanswered = self.unanswered(task, why).await;
                on_message(&unanswered);
                return unanswered;
            }
        };
        let mut last = about.latest().await;
        while let Some(message) = about.next().await {
            on_message(&message);
            last = message;
        }
        last
    }

    /// The task, at the first agent that knows it.
    async fn about(&self, task: &Task) -> Result<About, Unanswered> {
        let (issuer, peer) = (&task.issuer.agent_id, Peer::same_process());
        let mut why = Unanswered::Unknown;
        for agent in self.0.agents.of(task) {
            match About::find(&agent, &peer, issuer, &task.task_id).await {
                Err(Unanswered::Unknown) => {}
                Err(Unanswered::Busy) => why = Unanswered::Busy,
                found => return found,
            }
        }
        Err(why)
    }

    async fn unanswered(&self, task: &Task, why: Unanswered) -> Message {
        self.turn_away(unanswered(&task.task_id, why), b"").await
    }

    /// Serves bytes that somebody else brought, as other transports do. At the bound it waits as [`send`](Self::send)
    /// does. A panic beside the handlers and hooks is passed on.
    ///
    /// # Errors
    ///
    /// [`ProcessError`].
    pub async fn serve(&self, bytes: &[u8], caller: &mut dyn Caller) -> Result<(), ProcessError> {
        let nack = match processor::read_apart(bytes, Options::default()).await {
            Ok(task) => match self.place(&task).await {
                Some(_place) => return self.pass(task, Given::Wire(bytes), caller).await,
                None => full(&task),
            },
            Err(nack) => *nack,
        };
        caller.tell(self.turn_away(nack, bytes).await).await;
        Ok(())
    }

    /// A place for a task, where one is free before its deadline is over.
    // impl: SAP-5-8
    async fn place(&self, task: &Task) -> Option<Place> {
        if let Some(place) = self.0.places.try_take() {
            return Some(place);
        }
        let clock = self.0.clock.as_ref();
        // Past its deadline it could only end as one that came too late.
        let patient = self
            .0
            .config
            .waits
            .with_patience(Duration::MAX, Duration::MAX)
            .with_deadline_patience(Duration::ZERO);
        let mut waiting = Sent::new(task, clock.now(), patient).ok()?;
        match waiting.hear(clock, self.0.places.take()).await {
            Ok(Heard::Said(place)) => place,
            Ok(Heard::SendAgain) | Err(_) => None,
        }
    }

    async fn is_full(
        &self,
        task: &Task,
        bytes: &[u8],
        on_message: &mut (dyn FnMut(&Message) + Send),
    ) -> Message {
        let message = self.turn_away(full(task), bytes).await;
        on_message(&message);
        message
    }

    async fn exchange(
        &self,
        task: Arc<Task>,
        bytes: &[u8],
        on_message: &mut (dyn FnMut(&Message) + Send),
    ) -> Result<Option<Message>, SendError> {
        let mut is_told = false;
        let mut tell = |message: &Message| {
            is_told = true;
            on_message(message);
            is_told = false;
        };
        let Config {
            waits,
            has_patience,
            ..
        } = self.0.config;
        // Results that go to an endpoint are not heard here.
        let is_heard = task
            .reply_to
            .as_ref()
            .is_none_or(|to| to.endpoint.is_none());
        let answered = async {
            match has_patience && is_heard {
                true => self.exchange_watched((task, bytes), waits, &mut tell).await,
                false => self.exchange_timed((task, bytes), waits, &mut tell).await,
            }
        };
        let answered = AssertUnwindSafe(answered).catch_unwind().await;
        match answered {
            Ok(answer) => answer,
            // The caller's own.
            Err(panic) if is_told => resume_unwind(panic),
            Err(_) => Err(panicked()),
        }
    }

    /// Has a task answered. The machine judges the time of the task alone: what is said in one process comes in order and once.
    async fn exchange_timed(
        &self,
        (task, bytes): (Arc<Task>, &[u8]),
        config: producer::Config,
        on_message: &mut (dyn FnMut(&Message) + Send),
    ) -> Result<Option<Message>, SendError> {
        let mut caller = OneCaller {
            on_message,
            last: None,
        };
        let clock = self.0.clock.as_ref();
        let config = config.with_patience(Duration::MAX, Duration::MAX);
        let mut sent = Sent::new(&task, clock.now(), config)?;
        // What was dispatched is valid, and need not be read again.
        // On the heap, for it is large and is moved on the way to where it waits.
        let pass = Box::pin(self.pass(task, Given::Encoded(bytes), &mut caller));
        match sent.hear(clock, pass).await? {
            Heard::Said(passed) => passed?,
            Heard::SendAgain => {
                let what = "nothing in time".into();
                return Err(SendError::NoAnswer { what });
            }
        }
        Ok(caller.last)
    }

    async fn pass(
        &self,
        task: Arc<Task>,
        given: Given<'_>,
        caller: &mut dyn Caller,
    ) -> Result<(), ProcessError> {
        let Some(at) = self.0.agents.give(&task) else {
            let nack = Nack::not_here(&task);
            caller.tell(self.turn_away(nack, given.bytes()).await).await;
            return Ok(());
        };
        let span = trace::carry("bus", Some(&task.correlation_id));
        trace::within(span, at.agent.serve_task(task, given, caller)).await
    }

    async fn turn_away(&self, nack: Nack, bytes: &[u8]) -> Message {
        let now = self.0.clock.now();
        self.0.refusals.note(now, &nack, bytes).await;
        Message::Nack(nack)
    }
}

impl fmt::Debug for Bus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bus")
            .field("agents", &self.0.agents.ids())
            .finish_non_exhaustive()
    }
}

struct Mailboxes(Weak<Inner>);

impl fmt::Debug for Mailboxes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mailboxes")
    }
}

impl Replies for Mailboxes {
    fn send<'a>(&'a self, sent: ToEndpoint<'a>) -> BoxFuture<'a, Result<(), Unreachable>> {
        Box::pin(core::future::ready(self.put(sent.endpoint, sent.result)))
    }
}

impl Mailboxes {
    fn put(&self, endpoint: &str, result: &TaskResult) -> Result<(), Unreachable> {
        let inner = self.0.upgrade().ok_or(Unreachable::NoWay)?;
        let mut mailboxes = lock(&inner.mailboxes);
        let mailbox = mailboxes.get_mut(endpoint).ok_or(Unreachable::NoWay)?;
        let put = mailbox.try_send(result.clone());
        if put.as_ref().is_err_and(mpsc::TrySendError::is_disconnected) {
            mailboxes.remove(endpoint);
        }
        put.map_err(|_| Unreachable::Refused)
    }
}

/// The caller's side: in one process, what is said is of its task, in order and once.
struct OneCaller<'a> {
    on_message: &'a mut (dyn FnMut(&Message) + Send),
    last: Option<Message>,
}

impl Caller for OneCaller<'_> {
    fn peer(&self) -> Peer {
        Peer::same_process()
    }

    fn tell(&mut self, message: Message) -> BoxFuture<'_, ()> {
        (self.on_message)(&message);
        self.last = Some(message);
        Box::pin(core::future::ready(()))
    }
}

fn panicked() -> SendError {
    SendError::NoAnswer {
        what: "a panic beside the handlers and hooks".into(),
    }
}

fn full(task: &Task) -> Nack {
    processor::nack(task, ErrorCode::RateLimit, "the bus is full")
}

/// Results that wait in one mailbox.
const MAX_RESULTS: usize = 1_024;
