//! How long the bus waits for an agent, and what it gives to it again.

use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use sap::Status;
use sap::processor::{Access, Authorize, Peer};
use sap::transcript::{Entry, Transcript, TranscriptError};

use super::super::world::ByHand;
use super::*;

/// Never decides the first times that it is asked, and lets in then.
#[derive(Debug, Default)]
struct Silent {
    times: usize,
    asked: Arc<AtomicUsize>,
}

impl Authorize for Silent {
    fn authorize<'a>(&'a self, _: &'a Peer, _: &'a Task) -> BoxFuture<'a, Access> {
        match self.asked.fetch_add(1, Ordering::SeqCst) < self.times {
            true => Box::pin(std::future::pending()),
            false => Box::pin(std::future::ready(Access::Allowed)),
        }
    }
}

/// A bus with one agent, whose hook is silent so many times; how often it is asked.
fn silent(config: bus::Config, times: usize) -> (Bus, Seen, ByHand, Arc<AtomicUsize>) {
    let (seen, clock) = (Seen::default(), ByHand::new());
    let bus = Bus::new(Arc::new(clock.clone()), seen.log.clone(), config).unwrap();
    let asked = Arc::<AtomicUsize>::default();
    let hook = Silent {
        times,
        asked: Arc::clone(&asked),
    };
    let processor = seen.processor(Config::default());
    bus.attach(processor.authorize(Arc::new(hook)), |_| {});
    (bus, seen, clock, asked)
}

/// What comes of a task, while the clock goes on.
async fn sent(
    bus: &Bus,
    clock: &ByHand,
    task: &serde_json::Value,
) -> (Vec<Message>, Result<Option<Message>, SendError>) {
    let (task, mut told) = (typed(&task.to_string()), Vec::new());
    let mut note = |message: &Message| told.push(message.clone());
    let answer = tokio::select! {
        biased;
        answer = bus.send(&task, &mut note) => answer,
        _ = clock.run() => panic!("never"),
    };
    (told, answer)
}

fn with_deadline(number: u16) -> serde_json::Value {
    let deadline = json!({"deadline": "2025-09-28T10:15:24Z"});
    with(ask(number, "test.echo"), "/telemetry", Some(deadline))
}

fn no_answer<T: std::fmt::Debug>(answer: Result<T, SendError>) -> String {
    match answer {
        Err(SendError::NoAnswer { what }) => what,
        answer => panic!("{answer:?}"),
    }
}

// spec: SAP-5-8, SAP-10-1
#[tokio::test]
async fn a_silent_agent_is_given_up_when_the_patience_of_the_bus_is_over() {
    let config = bus::Config::default().with_patience(Duration::from_secs(20));
    let (bus, seen, clock, asked) = silent(config, usize::MAX);
    let (told, answer) = sent(&bus, &clock, &ask(1, "test.echo")).await;
    assert!(no_answer(answer).contains("longer than the patience"));
    let asked = asked.load(Ordering::SeqCst);
    assert_eq!((told.len(), clock.gone().as_secs(), asked), (0, 20, 1));
    // Its place is free again, and nothing of it goes on.
    assert_eq!((seen.calls(), seen.entries()), (0, 0));
}

// spec: SAP-4.3-3, SAP-5-10, SAP-10-1
#[tokio::test]
async fn a_task_for_which_nothing_comes_is_given_to_its_agent_again() {
    let config = bus::Config::default()
        .with_patience(Duration::from_secs(20))
        .with_resends(2);
    for (silent_times, answers, passed) in
        [(0, true, 0), (1, true, 20), (2, true, 40), (3, false, 60)]
    {
        let (bus, seen, clock, asked) = silent(config, silent_times);
        let (told, answer) = sent(&bus, &clock, &ask(1, "test.echo")).await;
        if answers {
            let Ok(Some(Message::Result(result))) = &answer else {
                panic!("{answer:?}")
            };
            assert_eq!(result.status, Status::Succeeded);
            assert_eq!(told.last(), answer.unwrap().as_ref());
            // Everything is told once: Ack, RUNNING and the end.
            assert_eq!((told.len(), seen.calls()), (3, 1));
        } else {
            no_answer(answer);
            assert_eq!((told.len(), seen.calls()), (0, 0));
        }
        let asked = asked.load(Ordering::SeqCst);
        assert_eq!(
            (clock.gone().as_secs(), asked),
            (passed, silent_times + usize::from(answers))
        );
    }
}

/// What goes on while a copy is answered with how far it is.
// spec: SAP-5-10, SAP-10-1
#[tokio::test]
async fn a_copy_of_a_task_that_runs_tells_nothing_twice_and_ends_nothing() {
    let config = bus::Config::default()
        .with_patience(Duration::from_secs(20))
        .with_resends(1);
    let (bus, seen, clock, _) = silent(config, 0);
    let task = typed(&ask(1, "test.gate").to_string());
    let mut told = Vec::new();
    let mut note = |message: &Message| told.push(message.clone());
    let opening = async {
        until(|| seen.entries() == 3).await;
        clock.go_on(Duration::from_secs(20));
        // The copy has its turn, and is answered.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        seen.gate.store(true, Ordering::SeqCst);
    };
    let (answer, ()) = join(bus.send(&task, &mut note), opening).await;
    let Some(Message::Result(result)) = answer.unwrap() else {
        panic!("a result")
    };
    // Ack, RUNNING, how far it is, and the end.
    assert_eq!((result.status, told.len()), (Status::Succeeded, 4));
    assert_eq!(seen.written(0), ["task", "RUNNING", "RUNNING", "SUCCEEDED"]);
}

/// How far it is comes first, and there was nothing else to say.
// spec: SAP-5-10, SAP-10-1
#[tokio::test]
async fn who_sends_a_task_that_runs_already_asks_again_when_the_patience_is_over() {
    let config = bus::Config::default()
        .with_patience(Duration::from_secs(20))
        .with_resends(1);
    let (bus, seen, clock, asked) = silent(config, 0);
    let task = typed(&ask(1, "test.gate").to_string());
    let told = AtomicUsize::new(0);
    let mut note = |_: &Message| _ = told.fetch_add(1, Ordering::SeqCst);
    let mut ignored = |_: &Message| {};
    let again = async {
        until(|| seen.entries() == 3).await;
        bus.send(&task, &mut note).await
    };
    let opening = async {
        until(|| told.load(Ordering::SeqCst) == 1).await;
        seen.gate.store(true, Ordering::SeqCst);
        until(|| seen.entries() == 4).await;
        clock.go_on(Duration::from_secs(20));
    };
    let (first, again, ()) = tokio::join!(bus.send(&task, &mut ignored), again, opening);
    assert_eq!(again.unwrap(), first.unwrap());
    assert_eq!(told.into_inner(), 2);
    // The first, the one that is told how far it is, and that one again.
    assert_eq!(asked.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn who_sends_a_task_that_runs_already_is_told_how_far_it_is_where_nothing_is_sent_again() {
    let config = bus::Config::default()
        .with_patience(Duration::from_secs(20))
        .with_resends(0);
    let (bus, seen, _clock, _) = silent(config, 0);
    let task = typed(&ask(1, "test.gate").to_string());
    let again = async {
        until(|| seen.entries() == 3).await;
        let mut ignored = |_: &Message| {};
        let again = bus.send(&task, &mut ignored);
        // Far more turns than it takes.
        let turns = async {
            for _ in 0..1_000 {
                tokio::task::yield_now().await;
            }
        };
        let again = tokio::select! {
            biased;
            again = again => again,
            () = turns => panic!("it does not come to an end"),
        };
        seen.gate.store(true, Ordering::SeqCst);
        again.unwrap()
    };
    let mut ignored = |_: &Message| {};
    let (ended, again) = join(bus.send(&task, &mut ignored), again).await;
    let status = |message| match message {
        Some(Message::Result(result)) => result.status,
        other => panic!("{other:?}"),
    };
    assert_eq!(status(again), Status::Running);
    assert_eq!(status(ended.unwrap()), Status::Succeeded);
}

/// The bus does not hear what goes to an endpoint, and takes that for no silence.
// spec: SAP-4.1-17, SAP-10-1
#[tokio::test]
async fn a_task_whose_results_go_elsewhere_is_not_given_up_for_silence() {
    let config = bus::Config::default().with_patience(Duration::from_secs(20));
    let (bus, seen, clock, _) = silent(config, 0);
    let mailbox = bus.mailbox(INBOX);
    let reply = Some(json!({"endpoint": INBOX}));
    let task = typed(&with(ask(1, "test.gate"), "/replyTo", reply).to_string());
    let mut ignored = |_: &Message| {};
    let opening = async {
        until(|| seen.entries() == 3).await;
        for _ in 0..3 {
            clock.go_on(Duration::from_secs(20));
            tokio::task::yield_now().await;
        }
        seen.gate.store(true, Ordering::SeqCst);
    };
    let (answer, ()) = join(bus.send(&task, &mut ignored), opening).await;
    assert!(matches!(answer, Ok(Some(Message::Ack(_)))), "{answer:?}");
    let last = mailbox.take(3).collect::<Vec<_>>().await.pop();
    assert_eq!(last.unwrap().status, Status::Succeeded);
}

// spec: SAP-10-1
#[tokio::test]
async fn a_panic_beside_the_hooks_is_an_error_though_the_bus_has_patience() {
    let clock = Arc::new(Faulty::default());
    let seen = Seen::default();
    let config = bus::Config::default().with_patience(Duration::from_secs(20));
    let bus = Bus::new(clock.clone(), seen.log.clone(), config).unwrap();
    bus.attach(seen.processor(Config::default()), |_| {});
    let task = typed(&ask(1, "test.echo").to_string());
    let mut tell = |_: &Message| panic!("a caller's own fault");
    let sending = std::panic::AssertUnwindSafe(bus.send(&task, &mut tell));
    assert!(sending.catch_unwind().await.is_err());
    clock.is_broken.store(true, Ordering::SeqCst);
    let task = typed(&ask(2, "test.echo").to_string());
    let failed = bus.send(&task, &mut |_| {}).await;
    assert!(
        matches!(failed, Err(SendError::NoAnswer { .. })),
        "{failed:?}"
    );
}

/// A transcript that never takes anything.
#[derive(Debug)]
struct Stuck;

impl Transcript for Stuck {
    fn record(&self, _: &Entry) -> BoxFuture<'_, Result<u64, TranscriptError>> {
        Box::pin(std::future::pending())
    }

    fn read(&self, _: u64, _: usize) -> BoxFuture<'_, Result<Vec<Entry>, TranscriptError>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn verify(
        &self,
        _: Option<&sap::transcript::Head>,
    ) -> Result<sap::transcript::Proof, TranscriptError> {
        unreachable!("nobody audits it")
    }
}

// spec: SAP-5-8, SAP-10-1
#[tokio::test]
async fn an_agent_that_does_not_end_is_given_up_after_the_deadline() {
    let default = bus::Config::default();
    // The deadline's own second is in time.
    for (config, task, passed) in [
        (default, with_deadline(1), 2 + 300),
        (
            default.with_default_time(Duration::from_secs(10)),
            ask(1, "test.echo"),
            10 + 300,
        ),
        (
            default.with_default_time(Duration::from_secs(10)),
            with_deadline(1),
            2 + 300,
        ),
    ] {
        let clock = ByHand::new();
        let log = Arc::new(MemoryTranscript::default());
        let bus = Bus::new(Arc::new(clock.clone()), log, config).unwrap();
        let producer = sap::Producer::new("A-ml-001".parse().unwrap(), sap::ProducerKind::Agent);
        let all = Arc::new(sap::processor::AllowAll);
        let processor =
            sap::processor::Processor::new(producer, all, Arc::new(Stuck), Config::default());
        let echo = |_: sap::processor::Context| async {
            Ok(sap::processor::Outcome::new(super::super::world::text("1")))
        };
        let processor = processor
            .unwrap()
            .handle("test.echo".parse().unwrap(), echo);
        bus.attach(processor, |_| {});
        let (_, answer) = sent(&bus, &clock, &task).await;
        no_answer(answer);
        assert_eq!(clock.gone().as_secs(), passed);
    }
}
