//! A service, without a transport.

use futures::FutureExt as _;
use futures::future::BoxFuture;
use sap::processor::Config;
use sap::transport::{Caller, Message};
use serde_json::json;

use super::world::{Seen, ask};
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
