//! A service, without a transport.

use std::sync::{Arc, Mutex};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use sap::processor::{AllowAll, Config, Context, Outcome, Processor, Progress, Unreachable};
use sap::transport::{Caller, Message, Replies, Service, ToEndpoint};
use sap::{Producer, ProducerKind, Status};
use serde_json::json;

use super::world::{Seen, ask, text};
use crate::processor::Jumping;
use crate::samples::with;

/// One who never takes the first message.
struct Stuck;

impl Caller for Stuck {
    fn tell(&mut self, _: Message) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn a_task_waits_for_a_caller_that_takes_nothing() {
    let seen = Seen::default();
    // Long enough that others have their turn after each message.
    let long = Some(json!({"text": "x".repeat(20_000)}));
    let task = with(ask(1, "test.many"), "/payload", long).to_string();
    let service = seen.service_of(Config::default());
    let mut stuck = Stuck;
    let mut serving = Box::pin(service.serve(task.as_bytes(), &mut stuck));
    for _ in 0..10_000 {
        assert!((&mut serving).now_or_never().is_none());
    }
    // The task itself, and 64 messages that wait; the first is an Ack, which is not written down.
    let written = seen.written(0);
    assert_eq!((written.len(), &*written[0]), (64, "task"));
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
    let service = Service::new(Arc::new(processor), Arc::new(Jumping::new()))
        .replies(Arc::new(silent.clone()))
        .on_warning(move |warning| warnings.lock().unwrap().push(warning.to_string()));
    let task = with(
        ask(1, "test.talk"),
        "/replyTo",
        Some(json!({"endpoint": "test:silent"})),
    );
    let time = Some(json!({"budget": {"seconds": 100}}));
    let task = with(task, "/telemetry", time).to_string();
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
    assert!(given.len() < written.len() - 1, "{given:?}");
}
