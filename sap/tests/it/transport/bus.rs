//! The bus.

mod agents;
mod waits;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use futures::future::{BoxFuture, join};
use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use sap::processor::Config;
use sap::store::MemoryTranscript;
use sap::transport::bus::{self, Bus};
use sap::transport::{Caller, Message, SendError};
use sap::{ErrorCode, Task, TaskResult};
use serde_json::json;
use ubos_common::driver::Sleep as _;

use super::suite::{self, Harness, until};
use super::world::{ByHand, Faulty, INBOX, Real, Seen, ask, typed};
use crate::processor::Jumping;
use crate::samples::with;

struct OnBus {
    bus: Bus,
    inbox: Mutex<BoxStream<'static, TaskResult>>,
    seen: Seen,
}

impl Harness for OnBus {
    const TALKS: bool = true;

    async fn start(seen: &Seen, config: Config) -> Self {
        let bus = new_bus(seen, bus::Config::default());
        let warnings = Arc::clone(&seen.warnings);
        bus.attach(seen.processor(config), move |warning| {
            warnings.lock().unwrap().push(warning.to_string());
        });
        let inbox = Mutex::new(bus.mailbox(INBOX).boxed());
        let seen = seen.clone();
        Self { bus, inbox, seen }
    }

    async fn send(&self, task: &Task) -> (Vec<Message>, Result<Option<Message>, SendError>) {
        let mut told = Vec::new();
        let answer = self
            .bus
            .send(task, &mut |message| told.push(message.clone()))
            .await;
        let mut inbox = self.inbox.lock().unwrap();
        while let Some(result) = inbox.next().now_or_never().flatten() {
            self.seen.inbox.lock().unwrap().push(result);
        }
        (told, answer)
    }

    async fn status(&self, task: &Task) -> Option<Message> {
        Some(self.bus.status(task).await)
    }

    async fn cancel(&self, task: &Task) -> Option<Message> {
        Some(self.bus.cancel(task).await)
    }

    async fn follow(
        &self,
        task: &Task,
        told: &mut (dyn FnMut(&Message) + Send),
    ) -> Option<Message> {
        Some(self.bus.follow(task, told).await)
    }

    async fn raw(&self, bytes: &str) -> Message {
        let mut last = Last(None);
        self.bus.serve(bytes.as_bytes(), &mut last).await.unwrap();
        last.0.unwrap()
    }
}

fn new_bus(seen: &Seen, config: bus::Config) -> Bus {
    Bus::new(Arc::new(Real::default()), seen.log.clone(), config).unwrap()
}

struct Last(Option<Message>);

impl Caller for Last {
    fn tell(&mut self, message: Message) -> BoxFuture<'_, ()> {
        self.0 = Some(message);
        Box::pin(std::future::ready(()))
    }
}

// spec: SAP-1-1, SAP-4.1-16, SAP-4.1-17, SAP-4.3-1, SAP-4.3-2, SAP-4.3-3, SAP-5-1, SAP-5-2, SAP-5-9, SAP-5-10
#[tokio::test]
async fn the_suite_holds() {
    suite::run::<OnBus>().await;
}

// spec: SAP-10-1
#[tokio::test]
async fn at_the_bound_one_is_turned_away_and_one_waits() {
    let (seen, clock) = (Seen::default(), ByHand::new());
    let config = bus::Config::default().with_max_tasks(1);
    let bus = Bus::new(Arc::new(clock.clone()), seen.log.clone(), config).unwrap();
    bus.attach(seen.processor(Config::default()), |_| {});
    let short = with(
        ask(1, "test.hang"),
        "/telemetry",
        Some(json!({"budget": {"seconds": 10}})),
    );
    let (hanging, waiting) = (
        typed(&short.to_string()),
        typed(&ask(2, "test.echo").to_string()),
    );
    let (mut nobody, mut no_one) = (|_: &Message| {}, |_: &Message| {});
    let tried = async {
        until(|| seen.entries() > 0).await;
        // One who waits and goes gives its turn away.
        let gone = bus.send(&waiting, &mut no_one).now_or_never();
        assert!(gone.is_none());
        let (task, mut told) = (typed(&ask(3, "test.echo").to_string()), Vec::new());
        let mut tell = |message: &Message| told.push(message.clone());
        let turned = bus.try_send(&task, &mut tell).await.unwrap();
        assert_eq!(told.as_slice(), turned.as_slice());
        let Some(Message::Nack(nack)) = turned else {
            panic!("turned away")
        };
        assert_eq!((nack.code, seen.calls()), (ErrorCode::RateLimit, 0));
        let mut told = |_: &Message| {};
        let mut sending = Box::pin(bus.send(&waiting, &mut told));
        assert!((&mut sending).now_or_never().is_none());
        clock.go_on(std::time::Duration::from_secs(11));
        sending.await.unwrap()
    };
    let (first, second) = join(bus.send(&hanging, &mut nobody), tried).await;
    let has_ended = |message: Message| match message {
        Message::Result(result) => result.status.is_terminal(),
        _ => false,
    };
    assert!(has_ended(first.unwrap().unwrap()) && has_ended(second.unwrap()));
    assert_eq!(seen.calls.load(Ordering::SeqCst), 1);
    let written = seen.written(0);
    assert_eq!(
        written,
        [
            "task",
            "RUNNING",
            "nack",
            "FAILED",
            "task",
            "RUNNING",
            "SUCCEEDED"
        ]
    );
}

// spec: SAP-10-1, SAP-5-8
#[test]
fn a_task_without_a_place_waits_no_longer_than_it_has_time() {
    let (seen, clock) = (Seen::default(), Arc::new(Jumping::new()));
    let config = bus::Config::default().with_max_tasks(1);
    let bus = Bus::new(clock.clone(), seen.log.clone(), config).unwrap();
    bus.attach(seen.processor(Config::default()), |_| {});
    let hanging = typed(&ask(1, "test.hang").to_string());
    let mut nobody = |_: &Message| {};
    let mut hanging = Box::pin(bus.send(&hanging, &mut nobody));
    assert!((&mut hanging).now_or_never().is_none());
    let deadline = |deadline: &str| Some(json!({ "deadline": deadline }));
    let soon = deadline("2025-09-28T10:15:24Z");
    let late = with(ask(2, "test.echo"), "/telemetry", soon).to_string();
    let has_no_place = |message: Option<Message>| match message {
        Some(Message::Nack(nack)) => nack.code == ErrorCode::RateLimit,
        _ => false,
    };
    let (sent, mut told) = (typed(&late), Vec::new());
    let mut tell = |message: &Message| told.push(message.clone());
    let mut waiting = Box::pin(bus.send(&sent, &mut tell));
    let answer = (0..1_000).find_map(|_| (&mut waiting).now_or_never());
    drop(waiting);
    let answer = answer.expect("it is answered").unwrap();
    assert_eq!(told.as_slice(), answer.as_slice());
    assert!(has_no_place(answer));
    // All of the deadline's second is in time.
    assert_eq!(clock.now().wall, "2025-09-28T10:15:25Z".parse().unwrap());
    let mut last = Last(None);
    let served = bus.serve(late.as_bytes(), &mut last);
    served.now_or_never().expect("it is over").unwrap();
    assert!(has_no_place(last.0));
    // The first has no deadline, and waits for its end with its place.
    assert_eq!(
        (seen.calls(), seen.written(0)),
        (
            0,
            ["task", "RUNNING", "nack", "nack"]
                .map(str::to_owned)
                .to_vec()
        )
    );
}

// spec: SAP-10-1
#[tokio::test]
async fn a_panic_beside_the_hooks_is_the_error_of_its_own_task() {
    let (seen, clock) = (Seen::default(), Arc::new(Faulty::default()));
    let config = bus::Config::default().with_max_tasks(1);
    let bus = Bus::new(clock.clone(), seen.log.clone(), config).unwrap();
    bus.attach(seen.processor(Config::default()), |_| {});
    assert!(format!("{bus:?}").contains("A-ml-001"));
    let send = async |number| {
        let task = typed(&ask(number, "test.echo").to_string());
        bus.send(&task, &mut |_| {}).await
    };
    clock.is_broken.store(true, Ordering::SeqCst);
    let failed = send(1).await;
    assert!(
        matches!(failed, Err(SendError::NoAnswer { .. })),
        "{failed:?}"
    );
    clock.is_broken.store(false, Ordering::SeqCst);
    let answer = send(2).await;
    assert!(matches!(answer, Ok(Some(Message::Result(_)))), "{answer:?}");
    // What the caller does itself comes back to it, and its place is free again.
    let task = typed(&ask(3, "test.echo").to_string());
    let mut tell = |_: &Message| panic!("a caller's own fault");
    let sending = std::panic::AssertUnwindSafe(bus.send(&task, &mut tell));
    assert!(sending.catch_unwind().await.is_err());
    let answer = send(4).await;
    assert!(matches!(answer, Ok(Some(Message::Result(_)))), "{answer:?}");
}

// spec: SAP-10-1
#[tokio::test]
async fn what_cannot_be_written_down_is_not_delivered() {
    // Room for the task and for RUNNING, then for nothing.
    for (entries, told_before) in [(0, 0), (1, 1), (2, 2)] {
        let seen = Seen {
            log: Arc::new(MemoryTranscript::new(entries)),
            ..Seen::default()
        };
        let bus = new_bus(&seen, bus::Config::default());
        bus.attach(seen.processor(Config::default()), |_| {});
        let mut told = 0;
        let answer = bus
            .send(&typed(&ask(1, "test.echo").to_string()), &mut |_| told += 1)
            .await;
        assert!(matches!(answer, Err(SendError::Process(_))), "{answer:?}");
        assert_eq!(
            (told, seen.calls()),
            (told_before, usize::from(entries == 2))
        );
    }
}

// spec: SAP-4.1-16
#[tokio::test]
async fn a_task_goes_to_the_agent_it_names_or_to_any_that_can() {
    let (one, two) = (Seen::default(), Seen::default());
    let bus = new_bus(&one, bus::Config::default());
    let other = sap::Producer::new("A-other".parse().unwrap(), sap::ProducerKind::Agent);
    let counter = Arc::clone(&two.calls);
    bus.attach(one.processor(Config::default()), |_| {});
    bus.attach(
        sap::processor::Processor::new(
            other,
            Arc::new(sap::processor::AllowAll),
            two.log.clone(),
            Config::default(),
        )
        .unwrap()
        .handle(
            "test.echo".parse().unwrap(),
            move |_: sap::processor::Context| {
                counter.fetch_add(1, Ordering::SeqCst);
                async { Ok(sap::processor::Outcome::new(super::world::text("1"))) }
            },
        ),
        |_| {},
    );
    for number in 0..10 {
        let task = with(ask(number, "test.echo"), "/target/agentId", None);
        bus.send(&typed(&task.to_string()), &mut |_| {})
            .await
            .unwrap();
    }
    assert_eq!((one.calls(), two.calls()), (5, 5));
    // Only one of them does this.
    for number in 20..24 {
        let task = with(ask(number, "test.fail"), "/target/agentId", None);
        let answer = bus.send(&typed(&task.to_string()), &mut |_| {}).await;
        assert!(matches!(answer, Ok(Some(Message::Result(_)))));
    }
    for number in 10..14 {
        let task = with(
            ask(number, "test.echo"),
            "/target/agentId",
            Some(json!("A-other")),
        );
        bus.send(&typed(&task.to_string()), &mut |_| {})
            .await
            .unwrap();
    }
    assert_eq!((one.calls(), two.calls()), (5, 9));
}

// spec: SAP-4.1-17
#[tokio::test]
async fn a_mailbox_that_nobody_holds_is_no_endpoint() {
    use sap::processor::{Unreachable, Warning};
    let seen = Seen::default();
    let bus = new_bus(&seen, bus::Config::default());
    let (warned, warnings) = std::sync::mpsc::channel();
    bus.attach(seen.processor(Config::default()), move |warning| {
        let word = match warning {
            Warning::Unreachable(Unreachable::Refused) => "refused",
            Warning::Unreachable(Unreachable::NoWay) => "no way",
            _ => "another warning",
        };
        warned.send(word).unwrap();
    });
    let task = with(
        ask(1, "test.echo"),
        "/replyTo",
        Some(json!({"endpoint": INBOX})),
    );
    drop(bus.mailbox(INBOX));
    bus.send(&typed(&task.to_string()), &mut |_| {})
        .await
        .unwrap();
    // Of RUNNING and of SUCCEEDED: the first finds that its holder is gone.
    assert_eq!(
        warnings.try_iter().collect::<Vec<_>>(),
        ["refused", "no way"]
    );
}

#[test]
fn a_bus_refuses_settings_out_of_range() {
    let config = bus::Config::default().with_max_tasks(0);
    let log = Arc::new(MemoryTranscript::default());
    let refused = Bus::new(Arc::new(Real::default()), log, config).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "max_tasks is 0, but a bus needs room for at least 1 task"
    );
}
