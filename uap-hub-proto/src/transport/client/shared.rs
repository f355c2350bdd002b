//! The machine behind a lock, and the loop that acts on its outputs.

use std::{
    collections::HashMap,
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
    task::Poll,
    time::Duration,
};

use tokio::{
    sync::{Notify, OwnedSemaphorePermit, broadcast, watch},
    task::{AbortHandle, JoinSet},
};
use tonic::transport::Channel;
use ubos_common::{
    id::IdSource,
    time::{Mono, Now},
    trace_context::TraceContext,
};

use super::{
    call::{Call, Opening},
    handler::{Cancel, Context, Failures, Handler, HandlerError, Report, ReportSink},
    route::Route,
};
use crate::{
    ConfigError,
    capability::{Kind, Skill},
    hash::ById,
    id::{ClientId, SessionId, StreamId},
    message::JobResult,
    role::{
        Resume, Rpc,
        agent::{CommandError, Config, Event, FleetAgent, Input, Outbound, Output},
    },
    state::State,
    status::{Code, Status},
    transport::{clock::Clock, lock, spawn, trace},
    wire::{AgentRegistration, Payload, agent_hub_client::AgentHubClient},
};

/// Events that wait for a slow subscriber; the oldest are dropped for it.
const MAX_NEWS: usize = 1024;

/// Messages that may wait on the control stream; a hub that reads more slowly is disconnected. Each answers a proposal, and has at
/// most the 1,024 bytes of its id and a reason of this crate.
const MAX_ANSWERS: usize = 1024;

/// Messages of a session that are the machine's own: two statuses and the result.
const OWN_MESSAGES: usize = 4;

/// How long a handler that listens for it may take to end when its session is over.
const ENDING: Duration = Duration::from_secs(5);
/// How often it is looked at meanwhile.
const ENDING_POLL: Duration = Duration::from_millis(50);
/// Handlers that end by themselves at the same time; beyond it they are stopped at once.
const MAX_ENDING: usize = 256;

/// The state that all tasks of an agent share.
#[derive(Debug)]
pub(super) struct Shared {
    core: Mutex<Core>,
    earlier: Notify,
    route: Route,
    handlers: HashMap<Skill, Handler>,
    failures: Failures,
    /// Reports of one session that may wait to be sent.
    max_waiting: usize,
    max_message_bytes: usize,
    pub(super) closed: watch::Sender<bool>,
    /// The client id while it listens.
    pub(super) listening: watch::Sender<Option<ClientId>>,
    pub(super) news: broadcast::Sender<Event>,
}

#[derive(Debug)]
struct Core {
    agent: FleetAgent,
    clock: Clock,
    hub: Option<AgentHubClient<Channel>>,
    registering: Option<AbortHandle>,
    calls: ById<StreamId, Call>,
    handlers: HashMap<SessionId, Running>,
    /// Handlers of sessions that are over, which end by themselves, until their time is over.
    ending: JoinSet<()>,
    /// The permit for the next report.
    permit: Option<OwnedSemaphorePermit>,
    armed: Mono,
    is_stopped: bool,
}

/// A handler that runs.
#[derive(Debug)]
struct Running {
    task: AbortHandle,
    cancel: Cancel,
    /// The permits of reports that wait for a cut call to be opened again.
    permits: Vec<OwnedSemaphorePermit>,
}

impl Shared {
    pub(super) fn new(
        config: Config,
        route: Route,
        (handlers, failures): (HashMap<Skill, Handler>, Failures),
        max_waiting: usize,
        ids: IdSource,
    ) -> Result<(Arc<Self>, broadcast::Receiver<Event>), ConfigError> {
        let max_message_bytes = config.max_message_bytes;
        let core = Core {
            agent: FleetAgent::new(config, ids)?,
            clock: Clock::start(),
            hub: None,
            registering: None,
            calls: ById::default(),
            handlers: HashMap::new(),
            ending: JoinSet::new(),
            permit: None,
            armed: Mono::ZERO,
            is_stopped: false,
        };
        let (news, first) = broadcast::channel(MAX_NEWS);
        let shared = Arc::new(Self {
            core: Mutex::new(core),
            earlier: Notify::new(),
            route,
            handlers,
            failures,
            max_waiting,
            max_message_bytes,
            closed: watch::Sender::new(false),
            listening: watch::Sender::new(None),
            news,
        });
        shared.act(FleetAgent::start);
        Ok((shared, first))
    }

    /// Calls the machine and acts on its outputs.
    pub(super) fn act<T>(self: &Arc<Self>, act: impl FnOnce(&mut FleetAgent, Now) -> T) -> T {
        let mut core = lock(&self.core);
        let now = core.clock.now();
        let made = act(&mut core.agent, now);
        self.carry_out(&mut core);
        made
    }

    /// Takes an input from the reader of a call.
    fn receive(self: &Arc<Self>, input: Input) {
        let mut core = lock(&self.core);
        if let Input::Ended { stream, status } | Input::Broken { stream, status } = &input {
            trace::ended("agent", *stream, status.code);
            core.calls.remove(stream);
        }
        let now = core.clock.now();
        // An agent that has left refuses inputs.
        let _ = core.agent.handle_input(now, input);
        self.carry_out(&mut core);
    }

    /// Wakes the machine at its timeouts.
    pub(super) async fn tick(self: Arc<Self>) {
        loop {
            let wait = {
                let mut core = lock(&self.core);
                let now = core.clock.now();
                core.agent.handle_timeout(now);
                self.carry_out(&mut core);
                core.armed = core.agent.poll_timeout().unwrap_or(Mono::MAX);
                core.armed.saturating_since(now.mono)
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.earlier.notified() => {}
            }
        }
    }

    /// Stops everything at once.
    pub(super) fn stop(&self) {
        let mut core = lock(&self.core);
        core.is_stopped = true;
        core.hub = None;
        core.calls.clear();
        core.registering.take().inspect(AbortHandle::abort);
        core.handlers
            .drain()
            .for_each(|(_, handler)| handler.task.abort());
        // Their tasks end with the handlers that they wait for.
        core.ending.abort_all();
    }

    fn carry_out(self: &Arc<Self>, core: &mut Core) {
        while let Some(output) = core.agent.poll_output() {
            if core.is_stopped {
                continue;
            }
            match output {
                Output::Register {
                    attempt,
                    registration,
                } => self.register(core, attempt, registration),
                Output::Open {
                    stream,
                    rpc,
                    key,
                    resume,
                    trace,
                } => {
                    let opening = Opening {
                        stream,
                        rpc,
                        key: &key,
                        resume,
                        trace: trace.as_ref(),
                        most: self.most(core, rpc, &key, resume),
                    };
                    self.open(core, opening);
                }
                Output::Send { stream, message } => self.send(core, stream, message),
                Output::HalfClose { stream } => {
                    core.calls
                        .get_mut(&stream)
                        .into_iter()
                        .for_each(Call::half_close);
                }
                Output::Drop { stream } => drop(core.calls.remove(&stream)),
                Output::Run {
                    session,
                    skill,
                    payloads,
                    trace,
                } => self.run(core, (session, trace), &skill, payloads),
                Output::Stop { session } => core.stop(&session),
                Output::Event(event) => self.event(event),
            }
        }
        if core
            .agent
            .poll_timeout()
            .is_some_and(|next| next < core.armed)
        {
            self.earlier.notify_one();
        }
    }

    fn event(&self, event: Event) {
        trace::agent(&event);
        match &event {
            Event::Listening { client_id } => {
                self.listening.send_replace(Some(client_id.clone()));
            }
            Event::Retrying { .. } => drop(self.listening.send_replace(None)),
            Event::Closed => _ = self.closed.send_replace(true),
            _ => {}
        }
        // There may be no subscriber.
        let _ = self.news.send(event);
    }

    fn register(self: &Arc<Self>, core: &mut Core, attempt: u64, registration: AgentRegistration) {
        let shared = self.clone();
        let task = spawn(async move {
            let answer = shared.connect_and_register(registration).await;
            let mut core = lock(&shared.core);
            let input = match answer {
                Ok((hub, client_id)) => {
                    core.hub = Some(hub);
                    Input::Registered { attempt, client_id }
                }
                Err(reason) => Input::RegisterFailed { attempt, reason },
            };
            let now = core.clock.now();
            // An agent that has left refuses inputs.
            let _ = core.agent.handle_input(now, input);
            shared.carry_out(&mut core);
        });
        if let Some(old) = core.registering.replace(task.abort_handle()) {
            old.abort();
        }
    }

    async fn connect_and_register(
        &self,
        registration: AgentRegistration,
    ) -> Result<(AgentHubClient<Channel>, String), String> {
        let connecting = self.route.endpoint.connect().await;
        let channel = connecting.map_err(|error| innermost(&error))?;
        let mut hub = AgentHubClient::new(channel)
            .max_decoding_message_size(self.max_message_bytes)
            .max_encoding_message_size(self.max_message_bytes);
        let answer = hub
            .register(self.route.request(registration))
            .await
            .map_err(|status| status.message().to_owned())?;
        Ok((hub, answer.into_inner().client_id))
    }

    /// How many messages may wait on a call.
    fn most(&self, core: &Core, rpc: Rpc, key: &str, resume: Option<Resume>) -> usize {
        if rpc == Rpc::Listen {
            return MAX_ANSWERS;
        }
        // The reports that wait are sent first.
        let waiting = resume.map_or(0, |_| core.agent.unacknowledged(key));
        self.max_waiting + OWN_MESSAGES + waiting
    }

    fn open(self: &Arc<Self>, core: &mut Core, opening: Opening<'_>) {
        let Some(hub) = core.hub.clone() else { return };
        let stream = opening.stream;
        if opening.resume.is_some()
            && let Some(handler) = core.handlers.get_mut(opening.key)
        {
            handler.permits.clear();
        }
        trace::opened("agent", opening.rpc, stream);
        let shared = self.clone();
        let receive = move |input| shared.receive(input);
        let call = Call::open(&self.route, hub, opening, receive);
        core.calls.insert(stream, call);
    }

    fn send(&self, core: &mut Core, stream: StreamId, message: Outbound) {
        let Some(call) = core.calls.get(&stream) else {
            return;
        };
        let permit = core.permit.take();
        if !call.send(message, permit) {
            core.calls.remove(&stream);
            let status = Status::new(Code::ResourceExhausted, "the hub does not read");
            let now = core.clock.now();
            // The agent has not left, or it would send nothing.
            let _ = core
                .agent
                .handle_input(now, Input::Ended { stream, status });
        }
    }

    fn run(
        self: &Arc<Self>,
        core: &mut Core,
        (session, trace): (SessionId, Option<TraceContext>),
        skill: &Skill,
        payloads: Vec<Payload>,
    ) {
        let Some(handler) = self.handlers.get(skill).cloned() else {
            // The capability has no handler: it was configured separately.
            let result = JobResult::bare(skill.kind(), State::Failed, "the agent has no handler");
            let now = core.clock.now();
            // Small, terminal and of the right kind, for a session that has just begun.
            let _ = core.agent.finish(now, &session, result);
            return;
        };
        let cancel = Cancel::default();
        let context = Context::new(
            (session.clone(), trace),
            self.clone(),
            self.max_waiting,
            cancel.clone(),
        );
        let (shared, kind, id) = (self.clone(), skill.kind(), session.clone());
        let span = trace::session(&session, skill);
        let running = run_handler(handler, payloads, context);
        let task = spawn(async move {
            let done = trace::within(span.clone(), running).await;
            let result = done.unwrap_or_else(|error| {
                shared.failures.tell(&id, &error);
                error.into_result(kind)
            });
            trace::finished(&span, result.state());
            shared.finish(&id, kind, result);
        });
        let task = task.abort_handle();
        let running = Running {
            task,
            cancel,
            permits: Vec::new(),
        };
        core.handlers.insert(session, running);
    }

    /// Sends a handler's result, or why it cannot be sent.
    fn finish(self: &Arc<Self>, session: &SessionId, kind: Kind, result: JobResult) {
        self.act(|agent, now| {
            let refused = match agent.finish(now, session, result) {
                Ok(()) | Err(CommandError::NotRunning) => return,
                Err(refused) => refused.to_string(),
            };
            // Small and terminal, so it is refused only when the session is lost.
            let _ = agent.finish(now, session, JobResult::bare(kind, State::Failed, refused));
        });
        lock(&self.core).handlers.remove(session);
    }
}

impl Core {
    /// Stops the handler of a session that is over, at once unless it listens for that.
    fn stop(&mut self, session: &SessionId) {
        let Some(Running { task, cancel, .. }) = self.handlers.remove(session) else {
            return;
        };
        while self.ending.try_join_next().is_some() {}
        if !cancel.tell() || self.ending.len() >= MAX_ENDING {
            return task.abort();
        }
        // Made here: it may be dropped before it is polled.
        let task = AbortOnDrop(task);
        self.ending.spawn(async move {
            let end = async {
                while !task.0.is_finished() {
                    tokio::time::sleep(ENDING_POLL).await;
                }
            };
            let _ = tokio::time::timeout(ENDING, end).await;
        });
    }
}

impl ReportSink for Shared {
    fn report(
        self: Arc<Self>,
        session: &SessionId,
        report: Report,
        permit: OwnedSemaphorePermit,
    ) -> Result<(), CommandError> {
        let mut core = lock(&self.core);
        let now = core.clock.now();
        let agent = &mut core.agent;
        match report {
            Report::Running(message) => agent.status(now, session, State::Running, message)?,
            Report::Telemetry(telemetry) => agent.telemetry(now, session, telemetry)?,
        }
        core.permit = Some(permit);
        self.carry_out(&mut core);
        if let Some(permit) = core.permit.take()
            && core.agent.is_cut(session)
            && let Some(handler) = core.handlers.get_mut(session)
        {
            // The report waits in the agent.
            handler.permits.push(permit);
        }
        Ok(())
    }
}

/// A task that ends with this.
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The innermost cause of an error: the outer ones of the library carry no information.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// Runs a handler, and keeps its panics to itself: what it holds is dropped with it.
#[expect(
    clippy::manual_async_fn,
    reason = "an async fn holds what it was given twice"
)]
fn run_handler(
    handler: Handler,
    payloads: Vec<Payload>,
    context: Context,
) -> impl Future<Output = Result<JobResult, HandlerError>> {
    async move {
        let started = catch_unwind(AssertUnwindSafe(|| handler.run(payloads, context)));
        let done = match started {
            Err(_) => None,
            Ok(mut running) => {
                poll_fn(|cx| {
                    let polled = catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(cx)));
                    polled.map_or(Poll::Ready(None), |polled| polled.map(Some))
                })
                .await
            }
        };
        done.unwrap_or_else(|| Err(HandlerError::new("the handler panicked")))
    }
}

#[cfg(test)]
#[cfg(feature = "server")]
mod tests {
    use super::super::AgentBuilder;
    use super::*;
    use crate::{
        role::{agent::Inbound, hub::Job},
        transport::server::{ServerConfig, serve},
        wire::{
            ListenResponse, SessionProposal, TestResult,
            listen_response::Event::SessionProposal as Proposal,
        },
    };

    // spec: HUB-4-1
    #[tokio::test]
    async fn nothing_is_kept_of_handlers_and_calls_that_ended() {
        let hub = serve(([127, 0, 0, 1], 0).into(), ServerConfig::default());
        let hub = hub.await.unwrap();
        let agent = AgentBuilder::new("a")
            .on_test("ends", |_, _| async { Ok(TestResult::completed("")) })
            .on_test("fails", |_, _| async { Err(HandlerError::new("")) })
            .on_test("hangs", |_, context| async move {
                context.status("there").await?;
                std::future::pending().await
            })
            .start(&hub.url())
            .unwrap();
        for skill in ["ends", "fails", "hangs"] {
            let mut job = hub.submit(Job::test(skill, vec![])).unwrap();
            if skill == "hangs" {
                while !lock(&agent.shared.core)
                    .handlers
                    .contains_key(&session(&hub))
                {
                    job.next_event().await;
                }
                job.cancel().unwrap();
            }
            job.outcome().await;
        }
        let kept = || {
            let core = lock(&agent.shared.core);
            (core.handlers.len(), core.calls.len())
        };
        let forgotten = async {
            // The control stream is left.
            while kept() != (0, 1) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(30), forgotten).await;
        assert!(waited.is_ok(), "{:?}", kept());
    }

    // spec: HUB-5-3
    #[tokio::test]
    async fn an_agent_that_has_left_has_no_call() {
        let hub = serve(([127, 0, 0, 1], 0).into(), ServerConfig::default());
        let hub = hub.await.unwrap();
        let agent = AgentBuilder::new("a")
            .on_test("hangs", |_, _| std::future::pending())
            .start(&hub.url())
            .unwrap();
        let mut job = hub.submit(Job::test("hangs", vec![])).unwrap();
        while lock(&agent.shared.core).handlers.is_empty() {
            job.next_event().await;
        }
        assert_eq!(lock(&agent.shared.core).calls.len(), 2);
        agent.shutdown(Duration::ZERO).await;
        assert_eq!(lock(&agent.shared.core).calls.len(), 0);
    }

    #[tokio::test]
    async fn so_many_answers_wait_for_the_hub_and_one_more_ends_its_call() {
        let agent = AgentBuilder::new("a").start("http://127.0.0.1:9").unwrap();
        let shared = &agent.shared;
        let hub = AgentHubClient::new(shared.route.endpoint.connect_lazy());
        lock(&shared.core).hub = Some(hub);
        let (attempt, client_id) = (1, "a".to_owned());
        shared.receive(Input::Registered { attempt, client_id });
        let propose = |n: usize| {
            let proposal = SessionProposal {
                session_id: n.to_string(),
                details: None,
            };
            let event = Some(Proposal(proposal));
            let message = Inbound::Listen(ListenResponse { event });
            let stream = StreamId(1);
            shared.receive(Input::Message { stream, message });
        };
        let calls = || lock(&shared.core).calls.len();
        // Nothing is sent while this task does not wait, and the first message says that the agent is ready.
        (1..MAX_ANSWERS).for_each(propose);
        assert_eq!(calls(), 1);
        propose(MAX_ANSWERS);
        assert_eq!(calls(), 0);
    }

    // spec: HUB-2-7
    #[tokio::test]
    async fn nothing_is_left_of_an_agent_that_is_dropped() {
        let hub = serve(([127, 0, 0, 1], 0).into(), ServerConfig::default());
        let hub = hub.await.unwrap();
        let agent = AgentBuilder::new("a").start(&hub.url()).unwrap();
        agent.connected().await.unwrap();
        let shared = Arc::downgrade(&agent.shared);
        drop(agent);
        let forgotten = async {
            while shared.strong_count() > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(30), forgotten).await;
        assert!(waited.is_ok(), "{} are left", shared.strong_count());
    }

    // spec: HUB-4-7
    #[tokio::test(start_paused = true)]
    async fn so_many_handlers_end_by_themselves_and_one_more_is_stopped() {
        let agent = AgentBuilder::new("a").start("http://127.0.0.1:9").unwrap();
        let shared = &agent.shared;
        let of = |n: usize| SessionId::from(n.to_string());
        let tasks: Vec<_> = (0..=MAX_ENDING)
            .map(|n| {
                let cancel = Cancel::default();
                let context = Context::new((of(n), None), shared.clone(), 1, cancel.clone());
                let task = spawn(async move {
                    context.cancelled().await;
                    std::future::pending::<()>().await;
                });
                let task = task.abort_handle();
                let running = Running {
                    task: task.clone(),
                    cancel,
                    permits: Vec::new(),
                };
                lock(&shared.core).handlers.insert(of(n), running);
                task
            })
            .collect();
        let running = || tasks.iter().filter(|task| !task.is_finished()).count();
        // Time passes when nothing else is to be done.
        tokio::time::sleep(ENDING_POLL).await;
        (0..=MAX_ENDING).for_each(|n| lock(&shared.core).stop(&of(n)));
        tokio::time::sleep(ENDING_POLL).await;
        assert_eq!(running(), MAX_ENDING);
        tokio::time::sleep(2 * ENDING).await;
        assert_eq!(running(), 0, "their time is over");
    }

    /// The only session, if there is one.
    fn session(hub: &crate::transport::server::HubHandle) -> SessionId {
        let session = hub.inspect(|view| view.jobs().find_map(|job| job.session));
        session.unwrap_or_else(|| "none".into())
    }
}
