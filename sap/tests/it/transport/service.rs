//! A service, without a transport.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use sap::processor::{AllowAll, Config, Context, Outcome, Peer, Processor, Progress, Unreachable};
use sap::transport::{Caller, Message, Replies, Service, ToEndpoint};
use sap::{Producer, ProducerKind, Status};
use serde_json::{Value, json};
use ubos_common::driver::Sleep;

use super::world::{ByHand, Seen, ask, text, typed};
use crate::processor::Jumping;
use crate::samples::with;

/// One who never takes the first message.
struct Stuck;

impl Caller for Stuck {
    fn tell(&mut self, _: Message) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}

/// Says 200 times how far it is, and then hangs.
fn talking(seen: &Seen, clock: Arc<dyn Sleep + Send + Sync>) -> Service {
    let producer = Producer::new("A-ml-001".parse().unwrap(), ProducerKind::Agent);
    let log = seen.log.clone();
    let processor = Processor::new(producer, Arc::new(AllowAll), log, Config::default())
        .unwrap()
        .handle("test.talk".parse().unwrap(), |mut cx: Context| async move {
            for _ in 0..200 {
                cx.report(Progress::running(Some(text("1")))).await;
            }
            std::future::pending::<()>().await;
            Ok(Outcome::new(text("1")))
        });
    let warnings = Arc::clone(&seen.warnings);
    Service::new(Arc::new(processor), clock)
        .on_warning(move |warning| warnings.lock().unwrap().push(warning.to_string()))
}

/// A task for it that has so many seconds.
fn talk(seconds: u32) -> Value {
    let time = json!({"budget": {"seconds": seconds}});
    with(ask(1, "test.talk"), "/telemetry", Some(time))
}

// spec: SAP-5-8
#[test]
fn a_task_waits_for_a_caller_that_takes_nothing_and_its_end_does_not() {
    for (is_cancelled, passes, end) in [
        (false, 100, "FAILED"),
        (true, 1, "CANCELLED"),
        (false, 1, "RUNNING"),
    ] {
        let (seen, clock) = (Seen::default(), ByHand::new());
        let service = talking(&seen, Arc::new(clock.clone()));
        let (task, mut stuck) = (talk(50).to_string(), Stuck);
        let mut serving = Box::pin(service.serve(task.as_bytes(), &mut stuck));
        let mut rest = || {
            for _ in 0..10_000 {
                assert!((&mut serving).now_or_never().is_none());
            }
        };
        rest();
        // The task itself, and 64 messages that wait; the first is an Ack, which is not written down.
        let written = seen.written(0);
        assert_eq!((written.len(), &*written[0]), (64, "task"));
        if is_cancelled {
            let (peer, task) = (Peer::default(), typed(&task));
            let about = service.about(&peer, &task.issuer.agent_id, &task.task_id);
            let about = about.now_or_never().unwrap().unwrap();
            assert!(about.cancel().now_or_never().is_some());
        }
        clock.go_on(Duration::from_secs(passes));
        rest();
        // A handler that is stopped has so long to end by itself.
        clock.go_on(Duration::from_millis(100));
        rest();
        let written = seen.written(64);
        assert_eq!(written.last().map(String::as_str), Some(end));
        let warned = seen.warnings.lock().unwrap().len();
        assert!(warned <= 1);
        if end == "RUNNING" {
            // All of it is written down; of what was left out the operator is told once.
            assert_eq!((64 + written.len(), warned), (202, 1));
        }
    }
}

/// One who takes everything.
struct Gone;

impl Caller for Gone {
    fn tell(&mut self, _: Message) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// A way to an endpoint that never answers; what it was given.
#[derive(Clone, Debug, Default)]
struct Silent(Arc<Mutex<Vec<Status>>>);

impl Replies for Silent {
    fn send<'a>(&'a self, sent: ToEndpoint<'a>) -> BoxFuture<'a, Result<(), Unreachable>> {
        self.0.lock().unwrap().push(sent.result.status.clone());
        Box::pin(std::future::pending())
    }
}

// spec: SAP-4.1-17, SAP-5-8
#[test]
fn an_endpoint_that_takes_nothing_keeps_no_task_from_its_end() {
    let (seen, silent) = (Seen::default(), Silent::default());
    let service = talking(&seen, Arc::new(Jumping::new())).replies(Arc::new(silent.clone()));
    let silent_end = json!({"endpoint": "test:silent"});
    let task = with(talk(100), "/replyTo", Some(silent_end)).to_string();
    let mut gone = Gone;
    let mut serving = Box::pin(service.serve(task.as_bytes(), &mut gone));
    let served = (0..100_000).find_map(|_| (&mut serving).now_or_never());
    served.expect("it ends").unwrap();
    let written = seen.written(0);
    assert_eq!(written.last().map(String::as_str), Some("FAILED"));
    // Of those on the way some are left out, each with a word; the end is not. The first entry is the task.
    let given = silent.0.lock().unwrap().clone();
    assert_eq!(given.last(), Some(&Status::Failed));
    assert_eq!(seen.warnings.lock().unwrap().len(), written.len() - 1);
    assert!(given.len() < 10 && written.len() > 100, "{given:?}");
}
