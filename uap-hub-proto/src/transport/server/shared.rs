//! The machine behind a lock, and the loop that carries out what it says.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::{Notify, broadcast, mpsc, watch};
use ubos_common::{
    os::Clock,
    time::{Mono, Now},
};

use super::{Prepare, ServerConfig};
use crate::{
    id::{JobId, SessionId, StreamId},
    role::hub::{Event, Hub, Input, JobEvent, Outbound, Output},
    status::{Code, Status},
    transport::{inbox::Inbox, lock, spawn, trace},
    wire::{ListenResponse, TestInit, TranslationInit},
};

/// Hub news that wait for a slow subscriber; older news is dropped for it.
const MAX_NEWS: usize = 1024;

/// What all calls of a hub share.
#[derive(Debug)]
pub(super) struct Shared {
    core: Mutex<Core>,
    clock: Clock,
    /// An earlier timeout is due than the timer sleeps for.
    earlier: Notify,
    next_stream: AtomicU64,
    prepare: Option<Prepare>,
    pub(super) available: watch::Sender<usize>,
    pub(super) closed: watch::Sender<bool>,
    pub(super) news: broadcast::Sender<Event>,
    max_waiting: (usize, usize),
    pub(super) max_control_messages: usize,
}

#[derive(Debug)]
struct Core {
    hub: Hub,
    sinks: HashMap<StreamId, Sink>,
    inboxes: HashMap<JobId, Arc<Inbox>>,
    /// What the timer sleeps for.
    armed: Mono,
}

/// The sending half of a call.
#[derive(Debug)]
pub(super) struct Sink {
    pub(super) messages: SinkSender,
    /// How the call ends once `messages` is dropped.
    pub(super) end: Arc<Mutex<Option<Status>>>,
}

#[derive(Debug)]
pub(super) enum SinkSender {
    Listen(mpsc::Sender<ListenResponse>),
    Test(mpsc::Sender<TestInit>),
    Translation(mpsc::Sender<TranslationInit>),
}

impl Shared {
    pub(super) fn new(config: ServerConfig) -> Arc<Self> {
        Arc::new(Self {
            clock: Clock::start(),
            earlier: Notify::new(),
            next_stream: AtomicU64::new(1),
            prepare: config.prepare,
            available: watch::Sender::new(0),
            closed: watch::Sender::new(false),
            news: broadcast::Sender::new(MAX_NEWS),
            max_waiting: (config.max_waiting_events, config.max_waiting_bytes),
            max_control_messages: config.max_control_messages.max(1),
            core: Mutex::new(Core {
                hub: Hub::new(config.hub),
                sinks: HashMap::new(),
                inboxes: HashMap::new(),
                armed: Mono::ZERO,
            }),
        })
    }

    /// Does something with the machine and carries out what it says.
    pub(super) fn act<T>(self: &Arc<Self>, act: impl FnOnce(&mut Hub, Now) -> T) -> T {
        let mut core = lock(&self.core);
        let made = act(&mut core.hub, self.clock.now());
        self.carry_out(&mut core);
        made
    }

    /// Submits a job under the lock, so that its first event finds its inbox.
    pub(super) fn submit<E>(
        self: &Arc<Self>,
        submit: impl FnOnce(&mut Hub, Now) -> Result<JobId, E>,
    ) -> Result<(JobId, Arc<Inbox>), E> {
        let mut core = lock(&self.core);
        let job = submit(&mut core.hub, self.clock.now())?;
        let inbox = Arc::new(Inbox::new(self.max_waiting.0, self.max_waiting.1));
        core.inboxes.insert(job, inbox.clone());
        self.carry_out(&mut core);
        Ok((job, inbox))
    }

    /// Opens a call: its name, and the inbox of its job if it has one. The machine says whether it did.
    pub(super) fn open(
        self: &Arc<Self>,
        sink: Sink,
        open: impl FnOnce(&mut Hub, Now, StreamId) -> bool,
    ) -> (StreamId, Option<Arc<Inbox>>) {
        let stream = StreamId(self.next_stream.fetch_add(1, Ordering::Relaxed));
        let mut core = lock(&self.core);
        core.sinks.insert(stream, sink);
        if !open(&mut core.hub, self.clock.now(), stream) {
            core.end(
                stream,
                Status::new(Code::Unavailable, "the hub is shut down"),
            );
        }
        let inbox = core
            .hub
            .job_of(stream)
            .and_then(|job| core.inboxes.get(&job).cloned());
        self.carry_out(&mut core);
        (stream, inbox)
    }

    /// A call broke: nobody hears its end, unless it broke for a message that cannot be read.
    pub(super) fn broke(self: &Arc<Self>, stream: StreamId, status: Status) {
        let mut core = lock(&self.core);
        let reason = status.message.clone();
        // A closed hub has no streams left to reset.
        let _ = core
            .hub
            .handle_input(self.clock.now(), Input::Reset { stream, reason });
        self.carry_out(&mut core);
        core.end(stream, status);
    }

    /// Wakes the machine when it wants to be.
    pub(super) async fn tick(self: Arc<Self>) {
        let mut closed = self.closed.subscribe();
        loop {
            let wait = {
                let mut core = lock(&self.core);
                let now = self.clock.now();
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
        while let Some(output) = core.hub.poll_output() {
            match output {
                Output::Send { stream, message } => self.send(core, stream, message),
                Output::End { stream, status } => core.end(stream, status),
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

    /// A call whose agent does not read is ended: nothing here waits for a peer.
    fn send(&self, core: &mut Core, stream: StreamId, message: Outbound) {
        let Some(sink) = core.sinks.get(&stream) else {
            return;
        };
        let is_sent = match (&sink.messages, message) {
            (SinkSender::Listen(to), Outbound::Listen(message)) => to.try_send(message).is_ok(),
            (SinkSender::Test(to), Outbound::Test(message)) => to.try_send(message).is_ok(),
            (SinkSender::Translation(to), Outbound::Translation(message)) => {
                to.try_send(message).is_ok()
            }
            _ => false,
        };
        if !is_sent {
            let reason = "the agent does not read";
            core.end(stream, Status::new(Code::ResourceExhausted, reason));
            let reset = Input::Reset {
                stream,
                reason: reason.to_owned(),
            };
            // A closed hub has no streams left to reset.
            let _ = core.hub.handle_input(self.clock.now(), reset);
        }
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
                if let Some(inbox) = inbox {
                    inbox.push(event);
                }
                return;
            }
            Event::AgentAvailable { .. } | Event::AgentGone { .. } => {
                self.available.send_replace(core.hub.available_count());
            }
            Event::Closed => {
                self.closed.send_replace(true);
            }
            Event::Audit(_) => {}
        }
        // Nobody need listen.
        let _ = self.news.send(event);
    }
}

impl Core {
    fn end(&mut self, stream: StreamId, status: Status) {
        if let Some(sink) = self.sinks.remove(&stream) {
            trace::ended("hub", stream, status.code);
            *lock(&sink.end) = Some(status);
        }
    }
}
