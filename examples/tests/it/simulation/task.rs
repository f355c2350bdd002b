//! The governed task: both sides of SAP over a network that loses, doubles and reorders.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sap::alignment::Assessment;
use sap::role::consumer::{self, Access, Admission, Ended, Outcome, ReceivedTask, Reply, Request};
use sap::role::producer::{self, SentTasks};
use sap::validate::{Options, decode_result, decode_task};
use sap::{
    Ack, AgentKind, ConstitutionalContext, Issuer, PressureLevel, Producer, ProducerKind, Status,
    Target, Task, TaskId,
};
use ubos_common::id::IdSource;
use ubos_common::json::{self, Limits, RawBuf, RawObject};
use ubos_common::machine::{Machine, Outbox};
use ubos_common::testing::{Actions, Arrival, Faults, Lab, LinkId, LinkKind, NodeId, Wiring};
use ubos_common::time::{Mono, Now};
use ubos_common::violation::Profile;

use super::{Event, Ledger};

pub(super) struct Ends {
    producer: NodeId<SentTasks>,
    task: Task,
}

pub(super) fn add(lab: &mut Lab<Event>, ledger: &Ledger) -> Ends {
    let task = Task::draft(
        &mut IdSource::seeded(3),
        lab.now().wall,
        Issuer::new("planner".parse().unwrap(), AgentKind::Agent),
        Target::new("notes.write".parse().unwrap()),
        ConstitutionalContext::new(PressureLevel::Instant),
        RawObject::empty(),
    );
    let patience = Duration::from_millis(300);
    let config = producer::Config::default().with_patience(patience, patience);
    let link = lab.next_link();
    let wire = ProducerWire {
        link,
        task: task.clone(),
    };
    let producer = lab.add(SentTasks::new(config).unwrap(), wire);
    let consumer = Consumer {
        tasks: BTreeMap::new(),
        out: Outbox::new(64),
        ledger: ledger.clone(),
    };
    let consumer = lab.add(consumer, ConsumerWire { link });
    let faults = Faults::rough().with_losses(250, 250, 250);
    lab.connect(producer, consumer, LinkKind::Messages, faults);
    Ends { producer, task }
}

/// Sends the task; sent again it is the same task.
pub(super) fn send(lab: &mut Lab<Event>, ends: &Ends) {
    lab.with(ends.producer, |producer, now| {
        // A task that has ended already may not be sent again; its result is on the way to the plan.
        let _ = producer.handle_input(now, producer::Input::Dispatch(&ends.task));
    });
}

struct ProducerWire {
    link: LinkId,
    task: Task,
}

impl Wiring<SentTasks> for ProducerWire {
    type Event = Event;
    type Answer = ();

    fn deliver(&mut self, producer: &mut SentTasks, now: Now, arrival: Arrival<'_, ()>) {
        let Arrival::Bytes(_, bytes) = arrival else {
            return;
        };
        let options = Options::default();
        if let Ok((result, _)) = decode_result(bytes, &options) {
            // A doubled or late result changes nothing.
            let _ = producer.handle_input(now, producer::Input::Result(&result));
        } else {
            let (ack, _) = json::decode::<Ack>(bytes, &Limits::default(), Profile::Strict).unwrap();
            let _ = producer.handle_input(now, producer::Input::Ack(&ack));
        }
    }

    fn perform(
        &mut self,
        producer: &mut SentTasks,
        now: Now,
        output: producer::Output,
        actions: &mut Actions<Event, ()>,
    ) {
        match output {
            producer::Output::Transmit(_) => actions.send(self.link, json::to_vec(&self.task)),
            producer::Output::Overdue(..) => {
                let again = producer::Input::Dispatch(&self.task);
                producer.handle_input(now, again).unwrap();
            }
            producer::Output::Result(result) if result.status == Status::Succeeded => {
                let output = result.output.unwrap();
                actions.event(Event::Done("TASK", output.as_str().to_owned()));
            }
            _ => {}
        }
    }
}

/// The consumer's process: a machine for each task, and the results that it has sent.
struct Consumer {
    tasks: BTreeMap<TaskId, Work>,
    out: Outbox<Out>,
    ledger: Ledger,
}

struct Work {
    task: Arc<Task>,
    machine: ReceivedTask,
    /// The request that the handler answers.
    run: u64,
    latest: Option<Vec<u8>>,
}

enum Out {
    Send(Vec<u8>),
    /// The handler runs, and answers after a while.
    Run(TaskId),
}

enum In<'a> {
    Bytes(&'a [u8]),
    Finished(TaskId),
}

impl Consumer {
    fn receive(&mut self, now: Now, bytes: &[u8]) {
        let (task, _) = decode_task(bytes, &Options::default()).unwrap();
        let id = task.task_id;
        if let Some(work) = self.tasks.get(&id) {
            // The same task again: its latest result again, once there is one.
            let latest = work.latest.clone().map(Out::Send);
            return latest.into_iter().for_each(|out| self.out.push(out));
        }
        let producer = Producer::new("writer".parse().unwrap(), ProducerKind::Agent);
        let task = Arc::new(task);
        let config = consumer::Config::new(producer);
        let work = Work {
            machine: ReceivedTask::new(now, Arc::clone(&task), config),
            task,
            run: 0,
            latest: None,
        };
        self.tasks.insert(id, work);
        self.drain(now, id);
    }

    fn finish(&mut self, now: Now, id: TaskId) {
        let work = self.tasks.get_mut(&id).unwrap();
        let made = Outcome::new(RawBuf::parse(r#"{"governed":true}"#).unwrap());
        let reply = Reply::Ran(Ended::Outcome(Box::new(made)));
        let input = consumer::Input::Reply {
            id: work.run,
            reply,
        };
        work.machine.handle_input(now, input).unwrap();
        self.drain(now, id);
    }

    fn drain(&mut self, now: Now, task_id: TaskId) {
        let work = self.tasks.get_mut(&task_id).unwrap();
        while let Some(output) = work.machine.poll_output() {
            let (id, request) = match output {
                consumer::Output::Request { id, request } => (id, request),
                consumer::Output::Remember(written) => {
                    let encoded = written.encoded.to_vec();
                    self.out.push(Out::Send(encoded.clone()));
                    work.latest = Some(encoded);
                    continue;
                }
                _ => continue,
            };
            let reply = match request {
                Request::Authorize => Reply::Access(Access::Allowed),
                Request::Enter => Reply::Admission(Admission::New),
                Request::Record(_) => Reply::Recorded,
                Request::Deliver(consumer::Message::Ack(ack)) => {
                    self.out.push(Out::Send(json::to_vec(&ack)));
                    Reply::Delivered
                }
                Request::Deliver(_) => Reply::Delivered,
                Request::Assess(_) => {
                    Reply::Assessed(Assessment::valid(&work.task.constitutional_context))
                }
                Request::Run => {
                    work.run = id;
                    self.ledger.borrow_mut().task_runs += 1;
                    self.out.push(Out::Run(task_id));
                    continue;
                }
                other => panic!("{other:?} is not needed here"),
            };
            let input = consumer::Input::Reply { id, reply };
            work.machine.handle_input(now, input).unwrap();
        }
    }
}

impl Machine for Consumer {
    type Input<'a> = In<'a>;
    type Output = Out;
    type Error = std::convert::Infallible;

    fn handle_input(&mut self, now: Now, input: In<'_>) -> Result<(), Self::Error> {
        match input {
            In::Bytes(bytes) => self.receive(now, bytes),
            In::Finished(id) => self.finish(now, id),
        }
        Ok(())
    }

    fn handle_timeout(&mut self, now: Now) {
        let ids: Vec<_> = self.tasks.keys().copied().collect();
        for id in ids {
            if let Some(work) = self.tasks.get_mut(&id) {
                work.machine.handle_timeout(now);
            }
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

struct ConsumerWire {
    link: LinkId,
}

impl Wiring<Consumer> for ConsumerWire {
    type Event = Event;
    type Answer = TaskId;

    fn deliver(&mut self, consumer: &mut Consumer, now: Now, arrival: Arrival<'_, TaskId>) {
        let input = match arrival {
            Arrival::Bytes(_, bytes) => In::Bytes(bytes),
            Arrival::Answer(id) => In::Finished(id),
            _ => return,
        };
        let Ok(()) = consumer.handle_input(now, input);
    }

    fn perform(
        &mut self,
        _: &mut Consumer,
        _: Now,
        out: Out,
        actions: &mut Actions<Event, TaskId>,
    ) {
        match out {
            Out::Send(bytes) => actions.send(self.link, bytes),
            Out::Run(id) => actions.answer(Duration::from_millis(80), id),
        }
    }
}
