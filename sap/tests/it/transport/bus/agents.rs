//! Several agents on one bus that do the same.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use sap::processor::{Access, AllowAll, Authorize, Context, Delivery, Outcome, Peer, Processor};
use sap::{ErrorCode, Producer, ProducerKind, Status};

use super::super::world::{ByHand, text};
use super::*;

/// What its agents do: `test.gate` waits for the gate, and `test.hang` for ever.
#[derive(Clone, Default)]
struct Team {
    calls: Arc<AtomicUsize>,
    gate: Arc<AtomicBool>,
}

impl Team {
    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    fn agent(&self, id: &str, authorize: Arc<dyn Authorize>) -> Processor {
        let producer = Producer::new(id.parse().unwrap(), ProducerKind::Agent);
        let log = Arc::new(MemoryTranscript::default());
        let (team, calls) = (self.clone(), Arc::clone(&self.calls));
        Processor::new(producer, authorize, log, Config::default())
            .unwrap()
            .handle("test.gate".parse().unwrap(), move |_: Context| {
                team.calls.fetch_add(1, Ordering::SeqCst);
                let gate = Arc::clone(&team.gate);
                async move {
                    until(|| gate.load(Ordering::SeqCst)).await;
                    Ok(Outcome::new(text("1")))
                }
            })
            .handle("test.hang".parse().unwrap(), move |_: Context| {
                calls.fetch_add(1, Ordering::SeqCst);
                std::future::pending()
            })
    }

    fn attach(&self, bus: &Bus, id: &str) {
        bus.attach(self.agent(id, Arc::new(AllowAll)), |_| {});
    }
}

fn a_bus() -> Bus {
    new_bus(&Seen::default(), bus::Config::default())
}

/// A task for any agent.
fn any(number: u16, capability: &str) -> Task {
    let task = with(ask(number, capability), "/target/agentId", None);
    typed(&task.to_string())
}

async fn send(bus: &Bus, task: &Task) -> Option<Message> {
    let mut ignored = |_: &Message| {};
    bus.send(task, &mut ignored).await.unwrap()
}

fn status(message: Option<Message>) -> Status {
    match message {
        Some(Message::Result(result)) => result.status,
        other => panic!("{other:?}"),
    }
}

// spec: SAP-5-10, SAP-4.1-16
#[tokio::test]
async fn a_task_that_is_sent_again_goes_to_the_agent_that_has_it() {
    let (bus, team) = (a_bus(), Team::default());
    for agent in ["A-1", "A-2", "A-3"] {
        team.attach(&bus, agent);
    }
    for number in 1..=3 {
        let task = any(number, "test.gate");
        team.gate.store(false, Ordering::SeqCst);
        let before = team.calls();
        let again = async {
            until(|| team.calls() > before).await;
            // It runs: how far it is, is the answer.
            assert!(!status(send(&bus, &task).await).is_terminal());
            team.gate.store(true, Ordering::SeqCst);
        };
        let (ended, ()) = join(send(&bus, &task), again).await;
        let ended = ended.unwrap();
        for _ in 0..3 {
            assert_eq!(send(&bus, &task).await.as_ref(), Some(&ended));
        }
        assert_eq!(bus.status(&task).await, ended);
        assert_eq!(team.calls(), before + 1);
    }
}

// spec: SAP-4.1-16
#[tokio::test]
async fn a_task_that_has_ended_keeps_no_agent_whose_place_another_took() {
    let (bus, old, new) = (a_bus(), Team::default(), Team::default());
    old.attach(&bus, "A-1");
    let task = any(1, "test.gate");
    for team in [&old, &new] {
        team.gate.store(true, Ordering::SeqCst);
        team.attach(&bus, "A-1");
        assert_eq!(status(send(&bus, &task).await), Status::Succeeded);
        assert_eq!(team.calls(), 1);
    }
}

/// Decides when it is let.
#[derive(Debug, Default)]
struct Slow {
    asked: AtomicUsize,
    decides: AtomicBool,
}

#[derive(Debug)]
struct Shared(Arc<Slow>);

impl Authorize for Shared {
    fn authorize<'a>(&'a self, _: &'a Peer, _: &'a Task) -> BoxFuture<'a, Access> {
        let slow = Arc::clone(&self.0);
        slow.asked.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            until(|| slow.decides.load(Ordering::SeqCst)).await;
            Access::Allowed
        })
    }
}

// spec: SAP-5-10, SAP-4.1-16
#[tokio::test]
async fn a_task_that_no_agent_knows_yet_has_its_agent_too() {
    let (bus, team, slow) = (a_bus(), Team::default(), Arc::<Slow>::default());
    let one = team.agent("A-1", Arc::new(Shared(Arc::clone(&slow))));
    bus.attach(one, |_| {});
    let task = any(1, "test.gate");
    team.gate.store(true, Ordering::SeqCst);
    let again = async {
        until(|| slow.asked.load(Ordering::SeqCst) == 1).await;
        for agent in ["A-2", "A-3"] {
            team.attach(&bus, agent);
        }
        let ended = send(&bus, &task);
        let open = async {
            until(|| slow.asked.load(Ordering::SeqCst) == 2).await;
            slow.decides.store(true, Ordering::SeqCst);
        };
        join(ended, open).await.0
    };
    let (first, _) = join(send(&bus, &task), again).await;
    assert_eq!((status(first), team.calls()), (Status::Succeeded, 1));
}

/// Lets the first in, and is busy then.
#[derive(Debug, Default)]
struct Once(AtomicBool);

impl Authorize for Once {
    fn authorize<'a>(&'a self, _: &'a Peer, _: &'a Task) -> BoxFuture<'a, Access> {
        let is_busy = self.0.swap(true, Ordering::SeqCst);
        let access = if is_busy {
            Access::Busy
        } else {
            Access::Allowed
        };
        Box::pin(std::future::ready(access))
    }
}

#[tokio::test]
async fn an_agent_that_is_busy_hides_no_task_of_another() {
    let (bus, team) = (a_bus(), Team::default());
    team.gate.store(true, Ordering::SeqCst);
    bus.attach(team.agent("A-1", Arc::new(Once::default())), |_| {});
    let task = any(1, "test.gate");
    send(&bus, &task).await;
    let busy = bus.status(&task).await;
    assert!(matches!(busy, Message::Nack(nack) if nack.code == ErrorCode::RateLimit));
    let other = bus.attach(team.agent("A-2", Arc::new(AllowAll)), |_| {});
    let (clock, given, mut sink) = (ByHand::new(), task.encode(), |_: Delivery<'_>| {});
    let ended = other.process(&clock, &given, &mut sink).await;
    assert!(ended.is_ok());
    assert_eq!(status(Some(bus.status(&task).await)), Status::Succeeded);
}

// spec: SAP-5-8
#[tokio::test]
async fn a_task_is_stopped_at_the_agent_that_has_it() {
    let (bus, team) = (a_bus(), Team::default());
    for agent in ["A-1", "A-2"] {
        team.attach(&bus, agent);
    }
    let tasks = [1, 2].map(|number| any(number, "test.hang"));
    let stop = async {
        until(|| team.calls() == 2).await;
        // Those that take the places of the agents have nothing of theirs.
        for agent in ["A-1", "A-2"] {
            team.attach(&bus, agent);
        }
        for task in &tasks {
            assert_eq!(status(Some(bus.status(task).await)), Status::Running);
            bus.cancel(task).await;
        }
    };
    let [one, two] = &tasks;
    let (one, two, ()) = tokio::join!(send(&bus, one), send(&bus, two), stop);
    for ended in [one, two] {
        assert_eq!(status(ended), Status::Cancelled);
    }
    assert_eq!(team.calls(), 2);
}
