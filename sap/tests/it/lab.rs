//! Both sides of SAP in the lab, over a network that loses, doubles and reorders messages.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use sap::role::consumer::{self, ReceivedTask};
use sap::role::producer::{self, SentTasks};
use sap::validate::{Options, decode_result, decode_task};
use sap::{
    Ack, AgentKind, Alignment, ConstitutionalContext, ConstitutionalEvidence, Issuer,
    PressureLevel, Producer, ProducerKind, Status, Target, Task, TaskId, TaskResult,
};
use sap::{Amount, ErrorObject};
use sap::{Budget, ReplyTo, Telemetry};
use ubos_common::id::IdSource;
use ubos_common::json::{self, Limits, RawObject};
use ubos_common::machine::{Machine, Outbox};
use ubos_common::testing::{Actions, Arrival, Faults, Lab, LinkId, LinkKind, NodeId, Wiring};
use ubos_common::time::{Mono, Now};
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
}

struct ProducerWire {
    link: LinkId,
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
            producer::Output::Transmit(id) => actions.send(self.link, self.tasks[&id].encode()),
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

/// A consumer's process: a machine and the last result of each task.
struct Consumer {
    tasks: BTreeMap<TaskId, Work>,
    out: Outbox<Out>,
}

struct Work {
    task: Task,
    machine: ReceivedTask,
    latest: Option<Vec<u8>>,
}

enum In<'a> {
    Message(&'a [u8]),
    Handler(TaskId, HandlerStep),
}

/// What a handler reports.
#[derive(Clone)]
enum HandlerStep {
    Part,
    Finish(Status),
}

enum Out {
    Send(Vec<u8>),
    Run(TaskId),
    Record(Seen),
}

impl Consumer {
    fn receive(&mut self, now: Now, bytes: &[u8]) {
        let (task, _) = decode_task(bytes, &Options::default()).unwrap();
        let id = task.task_id;
        let work = self.tasks.entry(id).or_insert_with(|| Work {
            machine: ReceivedTask::new(&task),
            task,
            latest: None,
        });
        // The machine accepts a task once. A copy is answered with the latest result.
        if work
            .machine
            .handle_input(now, consumer::Input::Accept)
            .is_ok()
        {
            work.machine
                .handle_input(now, consumer::Input::Run)
                .unwrap();
            self.out.push(Out::Record(Seen::HandlerRuns(id)));
            self.out.push(Out::Run(id));
        } else if let Some(latest) = work.latest.clone() {
            self.out.push(Out::Send(latest));
        }
        self.drain(now, id);
    }

    fn handler(&mut self, now: Now, id: TaskId, step: HandlerStep) {
        let work = self.tasks.get_mut(&id).unwrap();
        let input = match step {
            HandlerStep::Part => consumer::Input::Part,
            HandlerStep::Finish(status) => consumer::Input::Finish(status),
        };
        // A handler that reports after the end of its time is refused.
        drop(work.machine.handle_input(now, input));
        self.drain(now, id);
    }

    fn drain(&mut self, now: Now, id: TaskId) {
        let work = self.tasks.get_mut(&id).unwrap();
        while let Some(output) = work.machine.poll_output() {
            match output {
                consumer::Output::Ack => {
                    self.out
                        .push(Out::Send(json::to_vec(&Ack::from(&work.task))));
                }
                consumer::Output::Report(status, code) => {
                    let producer = Producer::new("worker".parse().unwrap(), ProducerKind::Agent);
                    let evidence = ConstitutionalEvidence::new(Alignment::Valid);
                    let mut result =
                        TaskResult::of(&work.task, now.wall, producer, status.clone(), evidence);
                    if status == Status::Failed {
                        let mut error = ErrorObject::new();
                        error.code = code;
                        error.message = Some("the time is over".into());
                        result.error = Some(error);
                    }
                    if status == Status::Succeeded {
                        result.output = Some(json::RawBuf::parse("true").unwrap());
                    }
                    if status.is_terminal() {
                        self.out.push(Out::Record(Seen::Decided(id, status)));
                    }
                    let encoded = result.encode();
                    work.latest = Some(encoded.clone());
                    self.out.push(Out::Send(encoded));
                }
                _ => {}
            }
        }
    }
}

impl Machine for Consumer {
    type Input<'a> = In<'a>;
    type Output = Out;
    type Error = Infallible;

    fn handle_input(&mut self, now: Now, input: In<'_>) -> Result<(), Infallible> {
        match input {
            In::Message(bytes) => self.receive(now, bytes),
            In::Handler(id, step) => self.handler(now, id, step),
        }
        Ok(())
    }

    fn handle_timeout(&mut self, now: Now) {
        let ids: Vec<_> = self.tasks.keys().copied().collect();
        for id in ids {
            self.tasks.get_mut(&id).unwrap().machine.handle_timeout(now);
            self.drain(now, id);
        }
    }

    fn poll_output(&mut self) -> Option<Out> {
        self.out.pop()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        let tasks = self.tasks.values();
        tasks.filter_map(|work| work.machine.poll_timeout()).min()
    }

    fn accepts_input(&self) -> bool {
        !self.out.is_full()
    }

    fn is_closed(&self) -> bool {
        false
    }
}

/// Handlers report parts at moments drawn by chance, then their end.
struct ConsumerWire {
    link: LinkId,
    chance: IdSource,
}

impl Wiring<Consumer> for ConsumerWire {
    type Event = Seen;
    type Answer = (TaskId, HandlerStep);

    fn deliver(
        &mut self,
        consumer: &mut Consumer,
        now: Now,
        arrival: Arrival<'_, (TaskId, HandlerStep)>,
    ) {
        let input = match arrival {
            Arrival::Bytes(_, bytes) => In::Message(bytes),
            Arrival::Answer((id, step)) => In::Handler(id, step),
            _ => return,
        };
        let Ok(()) = consumer.handle_input(now, input);
    }

    fn perform(
        &mut self,
        _: &mut Consumer,
        _: Now,
        out: Out,
        actions: &mut Actions<Seen, (TaskId, HandlerStep)>,
    ) {
        match out {
            Out::Send(bytes) => actions.send(self.link, bytes),
            Out::Record(seen) => actions.event(seen),
            Out::Run(id) => {
                let mut after = Duration::ZERO;
                for _ in 0..self.chance.bits() % 3 {
                    after += Duration::from_millis(self.chance.bits() % 300);
                    actions.answer(after, (id, HandlerStep::Part));
                }
                after += Duration::from_millis(self.chance.bits() % 300);
                let end = if self.chance.bits().is_multiple_of(4) {
                    Status::Cancelled
                } else {
                    Status::Succeeded
                };
                actions.answer(after, (id, HandlerStep::Finish(end)));
            }
        }
    }
}

/// A task whose handler has at most 250 ms where `is_short`.
fn task(ids: &mut IdSource, now: Now, expects_ack: bool, is_short: bool) -> Task {
    let mut task = Task::draft(
        ids,
        now.wall,
        Issuer::new("planner".parse().unwrap(), AgentKind::Agent),
        Target::new("notes.write".parse().unwrap()),
        ConstitutionalContext::new(PressureLevel::Instant),
        RawObject::empty(),
    );
    let mut reply_to = ReplyTo::new();
    reply_to.expect_ack = Some(expects_ack);
    task.reply_to = Some(reply_to);
    if is_short {
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
}

fn ends(lab: &mut Lab<Seen>) -> Ends {
    let mut ends = Ends::default();
    for (_, _, seen) in lab.take_events() {
        match seen {
            Seen::HandlerRuns(id) => *ends.runs.entry(id).or_default() += 1,
            Seen::Decided(id, status) => ends.decided.entry(id).or_default().push(status),
            Seen::Ended(id, status) => ends.ended.entry(id).or_default().push(status),
        }
    }
    ends
}

/// Sends some tasks over a lossy network until each has ended; gives how they ended.
fn run(seed: u64) -> Vec<Status> {
    let mut lab = Lab::new(seed);
    let mut chance = IdSource::seeded(seed);
    let now = lab.now();
    let tasks: Vec<Task> = (0..TASKS)
        .map(|n| task(&mut chance, now, n % 2 == 0, n % 3 == 0))
        .collect();
    let link = lab.next_link();
    let patience = Duration::from_millis(200);
    let config = producer::Config::default().with_patience(patience, patience);
    let wire = ProducerWire {
        link,
        tasks: tasks
            .iter()
            .map(|task| (task.task_id, task.clone()))
            .collect(),
    };
    let producer: NodeId<SentTasks> = lab.add(SentTasks::new(config).unwrap(), wire);
    let consumer = Consumer {
        tasks: BTreeMap::new(),
        out: Outbox::new(64),
    };
    let wire = ConsumerWire {
        link,
        chance: IdSource::seeded(seed ^ 7),
    };
    let consumer = lab.add(consumer, wire);
    let faults = Faults::rough().with_losses(300, 300, 300);
    lab.connect(producer, consumer, LinkKind::Messages, faults);
    for task in &tasks {
        lab.with(producer, |producer, now| {
            producer
                .handle_input(now, producer::Input::Dispatch(task))
                .unwrap();
        });
        lab.run_for(Duration::from_millis(chance.bits() % 200), 10_000);
    }
    lab.run_for(Duration::from_secs(60), 100_000);
    let ends = ends(&mut lab);
    for task in &tasks {
        let id = task.task_id;
        assert_eq!(ends.runs.get(&id), Some(&1), "seed {seed}: handler runs");
        let decided = &ends.decided[&id];
        assert_eq!(decided.len(), 1, "seed {seed}: decided as {decided:?}");
        assert_eq!(ends.ended.get(&id), Some(decided), "seed {seed}");
        let stage = lab.machine(producer).stage(&id).cloned();
        assert_eq!(stage, Some(producer::Stage::Ended(decided[0].clone())));
    }
    assert_eq!(lab.machine(producer).open(), 0);
    ends.ended.into_values().flatten().collect()
}

// spec: SAP-4.3-3, SAP-5-3, SAP-5-5, SAP-5-10
#[test]
fn each_task_runs_once_and_ends_once_over_a_lossy_network() {
    let ends: Vec<Status> = (0..400).flat_map(run).collect();
    for status in [Status::Succeeded, Status::Cancelled, Status::Failed] {
        assert!(ends.contains(&status), "no task ended as {status}");
    }
}
