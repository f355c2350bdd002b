//! Events of the driver have ids and sizes, and nothing of what it carries.

use core::fmt::Debug;
use core::task::{Context, Poll};
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Metadata, Subscriber};
use ubos_common::driver::{Sleep, Step, World, drive};
use ubos_common::machine::Machine;
use ubos_common::time::{Mono, Now, Timestamp};

/// Stands in every payload.
const CANARY: &str = "canary-5d1f";

/// Keeps every field of every event as a line.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Visit for Lines {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.lock().unwrap().push(format!("{field}={value:?}"));
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "ubos_common"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Starts two effects, cancels one, refuses what comes from outside, and ends at a timeout.
struct Talk {
    out: Vec<Step<String>>,
    answers: usize,
    ended: bool,
}

impl Machine for Talk {
    type Input<'a> = String;
    type Output = Step<String>;
    type Error = String;

    fn handle_input(&mut self, _: Now, input: String) -> Result<(), String> {
        self.answers += 1;
        if self.answers == 1 {
            Ok(())
        } else {
            Err(input)
        }
    }

    fn handle_timeout(&mut self, _: Now) {
        self.ended = true;
    }

    fn poll_output(&mut self) -> Option<Step<String>> {
        self.out.pop()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        (self.answers == 2).then_some(Mono::ZERO)
    }

    fn accepts_input(&self) -> bool {
        true
    }

    fn is_closed(&self) -> bool {
        self.ended
    }
}

struct Outside;

impl World<Talk> for Outside {
    type Answer = String;

    fn perform(&mut self, output: Step<String>) -> Step<String> {
        output
    }

    fn input(&mut self, answer: String) -> String {
        answer
    }

    fn poll_external(&mut self, _: &mut Context<'_>) -> Poll<String> {
        Poll::Ready(CANARY.to_owned())
    }

    fn expects_external(&self) -> bool {
        true
    }
}

struct Still;

impl Sleep for Still {
    fn now(&self) -> Now {
        Now::new(Mono::ZERO, Timestamp::EPOCH)
    }

    fn sleep_until(&self, _: Mono) -> BoxFuture<'static, ()> {
        Box::pin(core::future::pending())
    }
}

#[test]
fn events_of_the_driver_have_nothing_of_what_it_carries() {
    let lines = Lines::default();
    // With one dispatcher alone, an event that another test's thread reaches first is off for good.
    let _second = Dispatch::new(Lines::default());
    tracing::subscriber::with_default(lines.clone(), || {
        let mut machine = Talk {
            out: vec![
                Step::Cancel(2),
                Step::start(2, async { CANARY.to_owned() }),
                Step::start(1, async { CANARY.to_owned() }),
            ],
            answers: 0,
            ended: false,
        };
        futures::executor::block_on(drive(&mut machine, &mut Outside, &Still)).unwrap();
    });
    let seen = lines.0.lock().unwrap().join("\n");
    for wanted in [
        "message=effect started",
        "message=effect cancelled",
        "message=effect answered",
        "message=external input",
        "message=machine refused an input",
        "message=timer ran out",
        "message=machine ended",
        "id=2",
    ] {
        assert!(seen.contains(wanted), "{wanted} in {seen}");
    }
    assert!(!seen.contains(CANARY), "{seen}");
}
