//! The machine behind a lock, and the loop that acts on its outputs.

use std::{
    cell::RefCell,
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use tokio::sync::{Notify, broadcast, mpsc, watch};
use ubos_common::{
    id::IdSource,
    time::{Mono, Now},
    trace_context::TraceContext,
};

use super::{
    budget::Full,
    call::CallState,
    config::ServerConfig,
    prepare::Prepare,
    unread::{Sent, Unread},
};
use crate::{
    ConfigError,
    hash::ById,
    id::{JobId, SessionId, StreamId},
    role::hub::{CommandError, Event, Hub, Input, JobEvent, Outbound, Output, Record, View},
    status::{Code, Status},
    transport::{clock::Clock, inbox::Inbox, lock, mail, spawn, trace},
    wire::{ListenResponse, TestInit, TranslationInit},
};

/// Events that wait for a slow subscriber; the oldest are dropped for it.
const MAX_NEWS: usize = 1024;

/// The records to store.
pub(super) type Records = mpsc::UnboundedReceiver<(JobId, Record)>;

/// The state that all calls of a hub share.
#[derive(Debug)]
pub(super) struct Shared {
    core: Mutex<Core>,
    /// Notified when a timeout is due earlier than the timer's.
    earlier: Notify,
    next_stream: AtomicU64,
    prepare: Option<Prepare>,
    records: mpsc::UnboundedSender<(JobId, Record)>,
    /// Those of them that the hub waits for, or waited for when it closed. It changes under the lock alone.
    pub(super) unstored: AtomicUsize,
    pub(super) available: watch::Sender<usize>,
    pub(super) closed: watch::Sender<bool>,
    pub(super) news: broadcast::Sender<Event>,
    /// The events since the start, for the first who asks.
    pub(super) first_news: Mutex<Option<broadcast::Receiver<Event>>>,
    /// Jobs whose handles were dropped while the caller inspected the hub.
    dropped: Mutex<Vec<JobId>>,
    max_unread: (usize, usize),
    pub(super) max_control_messages: usize,
}

#[derive(Debug)]
struct Core {
    hub: Hub,
    clock: Clock,
    sinks: ById<StreamId, Sink>,
    inboxes: ById<JobId, Arc<Inbox>>,
    jobs: trace::Jobs,
    /// The deadline of the timer.
    armed: Mono,
}

thread_local! {
    /// The addresses of the hubs that this thread inspects, one inside the other.
    static INSPECTED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// The time in which this thread inspects a hub.
struct Inspection;

impl Inspection {
    fn begin(shared: &Shared) -> Self {
        INSPECTED.with_borrow_mut(|hubs| hubs.push(std::ptr::from_ref(shared).addr()));
        Self
    }
}

impl Drop for Inspection {
    fn drop(&mut self) {
        INSPECTED.with_borrow_mut(Vec::pop);
    }
}

/// The sending half of a call.
#[derive(Debug)]
pub(super) struct Sink {
    /// What the agent has not read.
    pub(super) unread: Unread,
    pub(super) messages: SinkSender,
    pub(super) call: CallState,
}

#[derive(Debug)]
pub(super) enum SinkSender {
    Listen(mail::Sender<Sent<ListenResponse>>),
    Test(mail::Sender<Sent<TestInit>>),
    Translation(mail::Sender<Sent<TranslationInit>>),
}

impl Shared {
    /// A hub, and the queue of its records, for the task that stores them.
    pub(super) fn new(
        config: ServerConfig,
        ids: IdSource,
    ) -> Result<(Arc<Self>, Records), ConfigError> {
        let (records, to_be_stored) = mpsc::unbounded_channel();
        let (news, first) = broadcast::channel(MAX_NEWS);
        let shared = Self {
            records,
            unstored: AtomicUsize::new(0),
            earlier: Notify::new(),
            next_stream: AtomicU64::new(1),
            prepare: config.prepare,
            available: watch::Sender::new(0),
            closed: watch::Sender::new(false),
            news,
            first_news: Mutex::new(Some(first)),
            dropped: Mutex::default(),
            max_unread: (config.hub.max_unread_events, config.hub.max_unread_bytes),
            max_control_messages: config.max_control_messages,
            core: Mutex::new(Core {
                jobs: trace::Jobs::new(config.hub.max_jobs),
                hub: Hub::new(config.hub, ids)?,
                clock: Clock::start(),
                sinks: ById::default(),
                inboxes: ById::default(),
                armed: Mono::ZERO,
            }),
        };
        Ok((Arc::new(shared), to_be_stored))
    }

    /// Reads the machine's state under its lock.
    pub(super) fn inspect<T>(self: &Arc<Self>, look: impl FnOnce(View<'_>) -> T) -> T {
        self.refuse_within_inspection();
        let mut core = lock(&self.core);
        let view = core.hub.view();
        // A panic of the caller's leaves the view as it was, and the handles that were dropped before it count.
        let seen = panic::catch_unwind(AssertUnwindSafe(|| {
            let _inspection = Inspection::begin(self);
            look(view)
        }));
        for job in std::mem::take(&mut *lock(&self.dropped)) {
            let now = core.clock.now();
            // It may have ended.
            let _ = core.hub.mute(now, job);
        }
        self.carry_out(&mut core);
        drop(core);
        seen.unwrap_or_else(|panicked| panic::resume_unwind(panicked))
    }

    /// Whether this thread inspects this hub, so that its lock is taken.
    fn is_inspected(&self) -> bool {
        INSPECTED.with_borrow(|hubs| hubs.contains(&std::ptr::from_ref(self).addr()))
    }

    /// A lock that waits for its own thread would wait for ever.
    fn refuse_within_inspection(&self) {
        assert!(
            !self.is_inspected(),
            "the hub was called inside HubHandle::inspect, which holds its lock: copy what is needed, and call it after"
        );
    }

    /// The handle of a job is gone: nobody reads its events.
    pub(super) fn mute(self: &Arc<Self>, job: JobId) {
        if self.is_inspected() {
            return lock(&self.dropped).push(job);
        }
        // It may have ended.
        let _ = self.act(|hub, now| hub.mute(now, job));
    }

    /// As [`act`](Self::act), for commands, which are refused where they would wait for ever.
    pub(super) fn command<T>(
        self: &Arc<Self>,
        act: impl FnOnce(&mut Hub, Now) -> Result<T, CommandError>,
    ) -> Result<T, CommandError> {
        if self.is_inspected() {
            return Err(CommandError::Inspecting);
        }
        self.act(act)
    }

    /// Calls the machine and acts on its outputs.
    pub(super) fn act<T>(self: &Arc<Self>, act: impl FnOnce(&mut Hub, Now) -> T) -> T {
        self.refuse_within_inspection();
        let mut core = lock(&self.core);
        let now = core.clock.now();
        let made = act(&mut core.hub, now);
        self.carry_out(&mut core);
        made
    }

    /// Submits a job under the lock, so that its first event finds its inbox.
    pub(super) fn submit(
        self: &Arc<Self>,
        submit: impl FnOnce(&mut Hub, Now) -> Result<JobId, CommandError>,
    ) -> Result<(JobId, Arc<Inbox>), CommandError> {
        self.submit_into(submit, Inbox::new)
    }

    /// As [`submit`](Self::submit), with an inbox of the caller's.
    pub(super) fn submit_into(
        self: &Arc<Self>,
        submit: impl FnOnce(&mut Hub, Now) -> Result<JobId, CommandError>,
        inbox: impl FnOnce(usize, usize) -> Inbox,
    ) -> Result<(JobId, Arc<Inbox>), CommandError> {
        if self.is_inspected() {
            return Err(CommandError::Inspecting);
        }
        let mut core = lock(&self.core);
        let now = core.clock.now();
        let job = submit(&mut core.hub, now)?;
        let inbox = Arc::new(inbox(self.max_unread.0, self.max_unread.1));
        core.inboxes.insert(job, inbox.clone());
        self.carry_out(&mut core);
        Ok((job, inbox))
    }

    /// Opens a call and returns its id. The callback returns whether the machine accepted it.
    pub(super) fn open(
        self: &Arc<Self>,
        sink: Sink,
        open: impl FnOnce(&mut Hub, Now, StreamId) -> bool,
    ) -> StreamId {
        let stream = StreamId(self.next_stream.fetch_add(1, Ordering::Relaxed));
        let mut core = lock(&self.core);
        core.sinks.insert(stream, sink);
        let now = core.clock.now();
        if !open(&mut core.hub, now, stream) {
            core.end(
                stream,
                Status::new(Code::Unavailable, "the hub is shut down"),
            );
        }
        self.carry_out(&mut core);
        stream
    }

    /// A call broke. Its status reaches the peer only if the cause was an unreadable message.
    pub(super) fn broke(self: &Arc<Self>, stream: StreamId, status: Status, is_lost: bool) {
        let mut core = lock(&self.core);
        let reason = status.message.clone();
        let input = match is_lost {
            true => Input::Lost { stream, reason },
            false => Input::Reset { stream, reason },
        };
        let now = core.clock.now();
        // A closed hub has no streams left to break.
        let _ = core.hub.handle_input(now, input);
        self.carry_out(&mut core);
        core.end(stream, status);
    }

    /// Wakes the machine at its timeouts.
    pub(super) async fn tick(self: Arc<Self>) {
        let mut closed = self.closed.subscribe();
        loop {
            let wait = {
                let mut core = lock(&self.core);
                let now = core.clock.now();
                core.hub.handle_timeout(now);
                self.carry_out(&mut core);
                core.armed = core.hub.poll_timeout().unwrap_or(Mono::MAX);
                core.armed.saturating_since(now.mono)
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.earlier.notified() => {}
                _ = closed.wait_for(|closed| *closed) => return,
            }
        }
    }

    /// No events will come any more.
    pub(super) fn close_inboxes(&self) {
        for (_, inbox) in lock(&self.core).inboxes.drain() {
            inbox.close();
        }
    }

    fn carry_out(self: &Arc<Self>, core: &mut Core) {
        core.jobs.count(&core.hub);
        while let Some(output) = core.hub.poll_output() {
            match output {
                Output::Trace { stream, trace } => core.trace(stream, trace),
                Output::Send { stream, message } => self.send(core, stream, message),
                Output::End { stream, status } => core.end(stream, status),
                Output::Pause { stream } => core.pause(stream, true),
                Output::Resume { stream } => core.pause(stream, false),
                Output::Store { job, record } => {
                    self.unstored.fetch_add(1, Ordering::Relaxed);
                    // The receiver lives as long as this sender; at most two records of each job wait in it.
                    let _ = self.records.send((job, record));
                }
                Output::Prepare { session, job } => self.prepare(session, job),
                Output::Event(event) => self.event(core, event),
            }
        }
        if core
            .hub
            .poll_timeout()
            .is_some_and(|next| next < core.armed)
        {
            self.earlier.notify_one();
        }
    }

    /// Sends without waiting: what comes after a call was full waits in the hub. What the hub has said by then is sent too.
    fn send(&self, core: &mut Core, stream: StreamId, message: Outbound) {
        let Some(sink) = core.sinks.get(&stream) else {
            return;
        };
        if sink.push(message) == Err(Full) {
            return self.refuse(core, stream);
        }
        if sink.call.block(|| sink.messages.has_room()) {
            let now = core.clock.now();
            // A closed hub refuses inputs.
            let _ = (core.hub).handle_input(now, Input::Blocked { stream });
        }
    }

    /// Ends a call whose agent, with others of its address, has too much that it does not read.
    // impl: HUB-4-6
    fn refuse(&self, core: &mut Core, stream: StreamId) {
        let reason = "agents have too many bytes of messages that they have not read".to_owned();
        let status = Status::new(Code::ResourceExhausted, reason.as_str());
        core.end(stream, status);
        let now = core.clock.now();
        // A closed hub refuses inputs.
        let _ = (core.hub).handle_input(now, Input::Reset { stream, reason });
    }

    fn prepare(self: &Arc<Self>, session: SessionId, job: JobId) {
        let Some(Prepare(hook)) = self.prepare.clone() else {
            return;
        };
        let shared = self.clone();
        spawn(async move {
            let done = spawn(hook(job, session.clone())).await;
            let done = done.unwrap_or_else(|_| Err("the hook panicked".to_owned()));
            // The session may have ended meanwhile.
            let _ = shared.act(|hub, now| hub.prepared(now, &session, done));
        });
    }

    fn event(&self, core: &mut Core, event: Event) {
        match event {
            Event::Job { job, event } => {
                let inbox = match event {
                    JobEvent::Ended(_) => core.inboxes.remove(&job),
                    _ => core.inboxes.get(&job).cloned(),
                };
                if let Some(unread) = inbox.and_then(|inbox| inbox.push(event)) {
                    let now = core.clock.now();
                    core.hub.events_read(now, job, unread.events, unread.bytes);
                }
                return;
            }
            Event::AgentAvailable { .. } | Event::AgentAway { .. } | Event::AgentGone { .. } => {
                self.available
                    .send_replace(core.hub.view().counts().available_agents);
            }
            Event::Closed => {
                self.available
                    .send_replace(core.hub.view().counts().available_agents);
                self.closed.send_replace(true);
            }
            Event::Audit(_) | Event::AgentRegistered { .. } => {}
        }
        // There may be no subscriber.
        let _ = self.news.send(event);
    }
}

impl Sink {
    /// Sends a message to where it belongs.
    fn push(&self, message: Outbound) -> Result<(), Full> {
        let unread = &self.unread;
        match (&self.messages, message) {
            (SinkSender::Listen(to), Outbound::Listen(message)) => to.push(unread.add(message)?),
            (SinkSender::Test(to), Outbound::Test(message)) => to.push(unread.add(message)?),
            (SinkSender::Translation(to), Outbound::Translation(message)) => {
                to.push(unread.add(message)?);
            }
            _ => {}
        }
        Ok(())
    }
}

impl SinkSender {
    fn has_room(&self) -> bool {
        match self {
            Self::Listen(to) => to.has_room(),
            Self::Test(to) => to.has_room(),
            Self::Translation(to) => to.has_room(),
        }
    }
}

impl Core {
    fn pause(&self, stream: StreamId, is_paused: bool) {
        if let Some(sink) = self.sinks.get(&stream) {
            sink.call.set_paused(is_paused);
        }
    }

    /// Comes while the call is opened: its answer has not begun.
    fn trace(&self, stream: StreamId, trace: TraceContext) {
        if let Some(sink) = self.sinks.get(&stream) {
            sink.call.set_trace(trace);
        }
    }

    fn end(&mut self, stream: StreamId, status: Status) {
        if let Some(sink) = self.sinks.remove(&stream) {
            trace::ended("hub", stream, status.code);
            sink.call.set_end(status);
        }
    }
}
