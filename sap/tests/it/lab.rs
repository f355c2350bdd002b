//! Both sides of SAP in the lab, over a network that loses, doubles and reorders messages.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sap::alignment::Assessment;
use sap::cache::{CacheRecord, Keys, WholePayload};
use sap::learning::{Signal, SignalId};
use sap::role::consumer::{
    self, Access, Admission, End, Ended, Outcome, Progress, ReceivedTask, Record, Reply, Request,
    Stage,
};
use sap::role::producer::{self, SentTasks};
use sap::validate::{Options, decode_result, decode_task};
use sap::{
    Ack, AgentKind, ConstitutionalContext, Issuer, Lifecycle, PressureLevel, Producer,
    ProducerKind, Status, Target, Task, TaskId, TaskResult,
};
use sap::{Amount, Budget, CacheKey, CacheMode, CachePolicy, ReplyTo, Telemetry};
use ubos_common::id::IdSource;
use ubos_common::json::{self, Limits, RawObject};
use ubos_common::machine::{Machine, Outbox};
use ubos_common::testing::{
    Actions, Arrival, CrashPoint, Faults, Lab, LinkId, LinkKind, NodeId, Wiring,
};
use ubos_common::time::{Mono, Now, Timestamp};
use ubos_common::violation::Profile;

const TASKS: usize = 5;

/// What a run is judged by.
#[derive(Debug)]
enum Seen {
    /// The consumer starts the handler of a task.
    HandlerRuns(TaskId),
    /// The consumer's machine ends a task.
    Decided(TaskId, Status),
    /// The producer's machine hands a terminal result to its application.
    Ended(TaskId, Status),
    /// The consumer's transcript has a result that says something to those who learn.
    Recorded(SignalId),
    /// Its log of signals has what that says.
    Learned(SignalId),
}

struct ProducerWire {
    link: Link,
    tasks: BTreeMap<TaskId, Task>,
}

impl Wiring<SentTasks> for ProducerWire {
    type Event = Seen;
    type Answer = ();

    fn deliver(&mut self, producer: &mut SentTasks, now: Now, arrival: Arrival<'_, ()>) {
        let Arrival::Bytes(_, bytes) = arrival else {
            return;
        };
        if let Ok((result, _)) = decode_result(bytes, &Options::default()) {
            // A result that was overtaken by its successor is refused.
            drop(producer.handle_input(now, producer::Input::Result(&result)));
        } else {
            let (ack, _) = json::decode::<Ack>(bytes, &Limits::default(), Profile::Strict).unwrap();
            producer
                .handle_input(now, producer::Input::Ack(&ack))
                .unwrap();
        }
    }

    fn perform(
        &mut self,
        producer: &mut SentTasks,
        now: Now,
        output: producer::Output,
        actions: &mut Actions<Seen, ()>,
    ) {
        match output {
            producer::Output::Transmit(id) => {
                actions.send(self.link.get(), self.tasks[&id].encode())
            }
            producer::Output::Overdue(id, _) => producer
                .handle_input(now, producer::Input::Dispatch(&self.tasks[&id]))
                .unwrap(),
            producer::Output::Result(result) if result.status.is_terminal() => {
                actions.event(Seen::Ended(result.task_id, result.status));
            }
            producer::Output::Refused(id, code) => panic!("task {id} is refused as {code}"),
            _ => {}
        }
    }
}

/// The link between both, another one after a crash.
#[derive(Clone)]
struct Link(Arc<Mutex<(LinkId, bool)>>);

impl Link {
    fn get(&self) -> LinkId {
        self.0.lock().unwrap().0
    }

    /// Runs the lab, and connects both sides again after a crash.
    fn run(
        &self,
        lab: &mut Lab<Seen>,
        (producer, consumer): (NodeId<SentTasks>, NodeId<Consumer>),
        span: Duration,
    ) {
        let slice = Duration::from_millis(20);
        let end = lab.now().mono.saturating_add(span);
        while lab.now().mono < end {
            lab.run_for(slice, 10_000);
            let mut link = self.0.lock().unwrap();
            if link.1 && lab.is_up(consumer) {
                *link = (
                    lab.connect(producer, consumer, LinkKind::Messages, faults()),
                    false,
                );
            }
        }
    }
}

fn faults() -> Faults {
    Faults::rough().with_losses(300, 300, 300)
}

/// A consumer's process: a machine for each task that came, copies too.
struct Consumer {
    jobs: BTreeMap<u64, ReceivedTask>,
    /// What handlers say while they are not listened to.
    held: VecDeque<(u64, consumer::Input)>,
    /// Tasks that have their place.
    places: BTreeMap<TaskId, u64>,
    last_job: u64,
    out: Outbox<(u64, consumer::Output)>,
}

enum In<'a> {
    Message(&'a [u8]),
    Job(u64, consumer::Input),
}

impl Consumer {
    fn new(last_job: u64) -> Self {
        Self {
            jobs: BTreeMap::new(),
            held: VecDeque::new(),
            places: BTreeMap::new(),
            last_job,
            out: Outbox::new(64),
        }
    }

    fn drain(&mut self) {
        for (job, machine) in &mut self.jobs {
            while let Some(output) = machine.poll_output() {
                self.out.push((*job, output));
            }
        }
        self.jobs.retain(|_, machine| !machine.is_closed());
        let jobs = &self.jobs;
        self.places.retain(|_, job| jobs.contains_key(job));
    }
}

impl Machine for Consumer {
    type Input<'a> = In<'a>;
    type Output = (u64, consumer::Output);
    type Error = Infallible;

    fn handle_input(&mut self, now: Now, input: In<'_>) -> Result<(), Infallible> {
        match input {
            In::Message(bytes) => {
                let (task, _) = decode_task(bytes, &Options::default()).unwrap();
                let producer = Producer::new("worker".parse().unwrap(), ProducerKind::Agent);
                let config = consumer::Config::new(producer);
                self.last_job += 1;
                let machine = ReceivedTask::new(now, Arc::new(task), config);
                self.jobs.insert(self.last_job, machine);
            }
            In::Job(job, input) => self.held.push_back((job, input)),
        }
        let held = std::mem::take(&mut self.held);
        for (job, input) in held {
            let Some(machine) = self.jobs.get_mut(&job) else {
                continue;
            };
            let waits = match &input {
                consumer::Input::Report(_) => true,
                consumer::Input::Reply { reply, .. } => matches!(reply, Reply::Ran(_)),
                _ => false,
            };
            if waits && !machine.accepts_report() && machine.stage() == Stage::Running {
                self.held.push_back((job, input));
            } else {
                // What comes after the end of its time is refused.
                drop(machine.handle_input(now, input));
            }
        }
        self.drain();
        Ok(())
    }

    fn handle_timeout(&mut self, now: Now) {
        for machine in self.jobs.values_mut() {
            machine.handle_timeout(now);
        }
        self.drain();
    }

    fn poll_output(&mut self) -> Option<(u64, consumer::Output)> {
        self.out.pop()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        let jobs = self.jobs.values();
        jobs.filter_map(ReceivedTask::poll_timeout).min()
    }

    fn accepts_input(&self) -> bool {
        !self.out.is_full()
    }

    fn is_closed(&self) -> bool {
        false
    }
}

/// The world of a consumer: its transcript, its cache and its log of signals, which survive a crash, and handlers that report
/// parts at moments drawn by chance, then their end.
struct ConsumerWire {
    link: Link,
    chance: IdSource,
    /// The results of each task that was recorded.
    transcript: BTreeMap<TaskId, (Lifecycle, Option<TaskResult>)>,
    cache: BTreeMap<CacheKey, Arc<CacheRecord>>,
    tasks: BTreeMap<u64, Task>,
    crash: CrashPoint,
    /// Whether the process dies after the effect, or before it.
    is_kept: bool,
}

impl ConsumerWire {
    /// Has a durable effect, unless the process dies before it; true where it lives on.
    fn lasts(
        &mut self,
        actions: &mut Actions<Seen, Answer>,
        effect: impl FnOnce(&mut Self, &mut Actions<Seen, Answer>),
    ) -> bool {
        let dies = self.crash.is_now();
        if !dies || self.is_kept {
            effect(self, actions);
        }
        if dies {
            self.link.0.lock().unwrap().1 = true;
            actions.crash(Duration::from_millis(100));
        }
        !dies
    }

    fn admission(&self, consumer: &mut Consumer, job: u64, id: TaskId) -> Admission {
        let Some((lifecycle, latest)) = self.transcript.get(&id) else {
            if consumer.places.contains_key(&id) {
                return Admission::Known(None);
            }
            consumer.places.insert(id, job);
            return Admission::New;
        };
        let ended = lifecycle.status().is_some_and(Status::is_terminal);
        if ended || consumer.places.contains_key(&id) {
            return Admission::Known(latest.clone().map(Box::new));
        }
        consumer.places.insert(id, job);
        Admission::Interrupted {
            status: lifecycle.status().cloned(),
            ends: Timestamp::MAX,
        }
    }

    fn record(&mut self, task: &Task, record: &Record, actions: &mut Actions<Seen, Answer>) {
        let entry = self.transcript.entry(task.task_id);
        let (lifecycle, latest) =
            entry.or_insert_with(|| (Lifecycle::new(task, Profile::Strict), None));
        let Record::Result(written) = record else {
            return;
        };
        lifecycle.accept(&written.result).unwrap();
        *latest = Some(written.result.clone());
        if let Some(signal) = Signal::of_result(task, None, &written.result) {
            actions.event(Seen::Recorded(signal.id));
        }
        if written.result.status.is_terminal() {
            let status = written.result.status.clone();
            actions.event(Seen::Decided(task.task_id, status));
        }
    }

    fn run(&mut self, job: u64, id: u64, actions: &mut Actions<Seen, Answer>) {
        let mut after = Duration::ZERO;
        for _ in 0..self.chance.bits() % 3 {
            after += Duration::from_millis(self.chance.bits() % 300);
            // Two that say the same in one second are one signal.
            let part = self.chance.bits() % 1_000_000_000;
            let part = json::RawBuf::parse(&part.to_string()).unwrap();
            let part = Progress::partial(part, vec![RawObject::empty()]);
            actions.answer(after, (job, consumer::Input::Report(part)));
        }
        after += Duration::from_millis(self.chance.bits() % 300);
        if self.chance.bits().is_multiple_of(4) {
            actions.answer(after / 2, (job, consumer::Input::Cancel));
        }
        let made = Outcome::new(json::RawBuf::parse("true").unwrap());
        let reply = Reply::Ran(Ended::Outcome(Box::new(made)));
        actions.answer(after, (job, consumer::Input::Reply { id, reply }));
    }
}

type Answer = (u64, consumer::Input);

impl Wiring<Consumer> for ConsumerWire {
    type Event = Seen;
    type Answer = Answer;

    fn deliver(&mut self, consumer: &mut Consumer, now: Now, arrival: Arrival<'_, Answer>) {
        let input = match arrival {
            Arrival::Bytes(_, bytes) => {
                let (task, _) = decode_task(bytes, &Options::default()).unwrap();
                self.tasks.insert(consumer.last_job + 1, task);
                In::Message(bytes)
            }
            Arrival::Answer((job, input)) => In::Job(job, input),
            _ => return,
        };
        let Ok(()) = consumer.handle_input(now, input);
    }

    fn perform(
        &mut self,
        consumer: &mut Consumer,
        _: Now,
        (job, output): (u64, consumer::Output),
        actions: &mut Actions<Seen, Answer>,
    ) {
        let task = self.tasks[&job].clone();
        let (id, request) = match output {
            consumer::Output::Request { id, request } => (id, request),
            consumer::Output::Remember(written) => {
                if let Some(signal) = Signal::of_result(&task, None, &written.result) {
                    self.lasts(actions, |_, actions| {
                        actions.event(Seen::Learned(signal.id))
                    });
                }
                return;
            }
            consumer::Output::Close(End::Answer(written)) => {
                return actions.send(self.link.get(), &written.encoded[..]);
            }
            consumer::Output::Close(End::Again(result)) => {
                return actions.send(self.link.get(), result.encode());
            }
            _ => return,
        };
        let reply = match request {
            Request::Authorize => Reply::Access(Access::Allowed),
            Request::Enter => Reply::Admission(self.admission(consumer, job, task.task_id)),
            Request::Record(record) => {
                if !self.lasts(actions, |wire, actions| {
                    wire.record(&task, &record, actions)
                }) {
                    return;
                }
                Reply::Recorded
            }
            Request::LookUp => {
                let keys = Keys::of(&task, &WholePayload).unwrap();
                Reply::Found {
                    keys: Some(keys),
                    record: self.cache.get(&keys.key).cloned(),
                    keeps: true,
                }
            }
            // Each payload is another.
            Request::Join(_) => Reply::Lead,
            Request::Keep(record) => {
                let keep = |wire: &mut Self, _: &mut _| {
                    wire.cache.insert(record.cache_key, record);
                };
                if !self.lasts(actions, keep) {
                    return;
                }
                Reply::Kept
            }
            Request::Deliver(consumer::Message::Ack(ack)) => {
                actions.send(self.link.get(), json::to_vec(&ack));
                Reply::Delivered
            }
            Request::Deliver(consumer::Message::Result(written)) => {
                actions.send(self.link.get(), &written.encoded[..]);
                Reply::Delivered
            }
            Request::Assess(_) => Reply::Assessed(Assessment::valid(&task.constitutional_context)),
            Request::Run => {
                actions.event(Seen::HandlerRuns(task.task_id));
                return self.run(job, id, actions);
            }
            other => panic!("{other:?} is not needed here"),
        };
        let after = Duration::from_millis(self.chance.bits() % 5);
        actions.answer(after, (job, consumer::Input::Reply { id, reply }));
    }

    fn restart(&mut self, _: Now, _: &mut Actions<Seen, Answer>) -> Option<Consumer> {
        Some(Consumer::new(self.tasks.keys().max().copied().unwrap_or(0)))
    }
}

/// The task with a number: some want an Ack, some ask the cache, and the handler of some has at most 250 ms.
fn task(ids: &mut IdSource, now: Now, number: usize) -> Task {
    let payload = json::RawBuf::parse(&format!(r#"{{"n":{number}}}"#)).unwrap();
    let mut task = Task::draft(
        ids,
        now.wall,
        Issuer::new("planner".parse().unwrap(), AgentKind::Agent),
        Target::new("notes.write".parse().unwrap()),
        ConstitutionalContext::new(PressureLevel::Instant),
        RawObject::new(payload).unwrap(),
    );
    let mut reply_to = ReplyTo::new();
    reply_to.expect_ack = Some(number.is_multiple_of(2));
    task.reply_to = Some(reply_to);
    let mut policy = CachePolicy::new();
    policy.mode = Some(match number.is_multiple_of(2) {
        true => CacheMode::Prefer,
        false => CacheMode::Bypass,
    });
    task.constitutional_context.cache_policy = Some(policy);
    if number.is_multiple_of(3) {
        let mut budget = Budget::new();
        budget.seconds = Amount::try_from(0.25).ok();
        let mut telemetry = Telemetry::new();
        telemetry.budget = Some(budget);
        task.telemetry = Some(telemetry);
    }
    task
}

/// How tasks ended on both sides.
#[derive(Default)]
struct Ends {
    runs: BTreeMap<TaskId, usize>,
    decided: BTreeMap<TaskId, Vec<Status>>,
    ended: BTreeMap<TaskId, Vec<Status>>,
    recorded: BTreeSet<SignalId>,
    learned: Vec<SignalId>,
}

fn ends(lab: &mut Lab<Seen>) -> Ends {
    let mut ends = Ends::default();
    for (_, _, seen) in lab.take_events() {
        match seen {
            Seen::HandlerRuns(id) => *ends.runs.entry(id).or_default() += 1,
            Seen::Decided(id, status) => ends.decided.entry(id).or_default().push(status),
            Seen::Ended(id, status) => ends.ended.entry(id).or_default().push(status),
            Seen::Recorded(id) => drop(ends.recorded.insert(id)),
            Seen::Learned(id) => ends.learned.push(id),
        }
    }
    ends
}

/// Sends some tasks over a lossy network until each has ended; gives how they ended.
fn run(seed: u64, crash: Option<(&CrashPoint, bool)>) -> Vec<Status> {
    let crashes = crash.is_some();
    let never = CrashPoint::never();
    let (crash, is_kept) = crash.unwrap_or((&never, true));
    let mut lab = Lab::new(seed);
    let mut chance = IdSource::seeded(seed);
    let now = lab.now();
    let tasks: Vec<Task> = (0..TASKS)
        .map(|number| task(&mut chance, now, number))
        .collect();
    let link = Link(Arc::new(Mutex::new((lab.next_link(), false))));
    let patience = Duration::from_millis(200);
    let config = producer::Config::default().with_patience(patience, patience);
    let wire = ProducerWire {
        link: link.clone(),
        tasks: tasks
            .iter()
            .map(|task| (task.task_id, task.clone()))
            .collect(),
    };
    let producer: NodeId<SentTasks> = lab.add(SentTasks::new(config).unwrap(), wire);
    let wire = ConsumerWire {
        link: link.clone(),
        chance: IdSource::seeded(seed ^ 7),
        transcript: BTreeMap::new(),
        cache: BTreeMap::new(),
        tasks: BTreeMap::new(),
        crash: crash.clone(),
        is_kept,
    };
    let consumer = lab.add(Consumer::new(0), wire);
    lab.connect(producer, consumer, LinkKind::Messages, faults());
    for task in &tasks {
        lab.with(producer, |producer, now| {
            producer
                .handle_input(now, producer::Input::Dispatch(task))
                .unwrap();
        });
        let span = Duration::from_millis(chance.bits() % 200);
        link.run(&mut lab, (producer, consumer), span);
    }
    link.run(&mut lab, (producer, consumer), Duration::from_secs(60));
    let ends = ends(&mut lab);
    let mut runs = 0;
    for task in &tasks {
        let id = task.task_id;
        runs += ends.runs.get(&id).copied().unwrap_or_default();
        let decided = &ends.decided[&id];
        assert_eq!(decided.len(), 1, "seed {seed}: decided as {decided:?}");
        assert_eq!(ends.ended.get(&id), Some(decided), "seed {seed}");
        let stage = lab.machine(producer).stage(&id).cloned();
        assert_eq!(stage, Some(producer::Stage::Ended(decided[0].clone())));
    }
    // A crash makes those run again that were running.
    let bound = if crashes { 2 * TASKS } else { TASKS };
    assert!(runs <= bound, "seed {seed}: {runs} handlers ran");
    assert_eq!(lab.machine(producer).open(), 0);
    // Nothing is learned that is not in the transcript, and nothing twice. What the process dies at may be missing: one result
    // of each task that ran then.
    let learned: BTreeSet<SignalId> = ends.learned.iter().copied().collect();
    assert_eq!(learned.len(), ends.learned.len(), "seed {seed}");
    assert!(learned.is_subset(&ends.recorded), "seed {seed}");
    let missing = ends.recorded.len() - learned.len();
    let bound = if crashes { TASKS } else { 0 };
    assert!(missing <= bound, "seed {seed}: {missing} are not learned");
    ends.ended.into_values().flatten().collect()
}

// spec: SAP-4.3-3, SAP-5-3, SAP-5-5, SAP-5-10
#[test]
fn each_task_runs_once_and_ends_once_over_a_lossy_network() {
    let ends: Vec<Status> = (0..300).flat_map(|seed| run(seed, None)).collect();
    for status in [Status::Succeeded, Status::Cancelled, Status::Failed] {
        assert!(ends.contains(&status), "no task ended as {status}");
    }
}

// spec: SAP-5-3, SAP-5-10, SAP-10-1, SAP-7-6, SAP-6-3
#[test]
fn each_task_ends_once_at_whichever_durable_effect_the_process_dies() {
    for seed in 0..2 {
        for is_kept in [true, false] {
            CrashPoint::at_each(|crash| drop(run(seed, Some((crash, is_kept)))));
        }
    }
}
