//! Events of driver and log have ids and sizes, and nothing of what these carry.

use core::task::{Context, Poll};

use futures::future::BoxFuture;
use ubos_common::driver::{Sleep, Step, World, drive};
use ubos_common::log::{Config, Log, LogId, SimDisk, SimFault};
use ubos_common::machine::Machine;
use ubos_common::testing::Traces;
use ubos_common::time::{Mono, Now, Timestamp};

/// Stands in every payload.
const CANARY: &str = "canary-5d1f";

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
    let traces = Traces::of("ubos_common");
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
    let seen = traces.text();
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

#[test]
fn events_of_the_log_have_nothing_of_its_records() {
    let traces = Traces::of("ubos_common");
    let (disk, target) = (SimDisk::new(), SimDisk::new());
    let config = Config::default()
        .with_log_id(LogId::from_bytes([7; 16]))
        .with_segment_bytes(1000);
    let log = Log::open_in(disk.dir(), config.clone()).unwrap();
    for n in 0..9 {
        log.append(format!("{CANARY} {n} {}", "x".repeat(300)).as_bytes())
            .unwrap();
    }
    log.archive(5, target.dir().as_ref()).unwrap();
    disk.fail_after(0, SimFault::Write);
    log.append(CANARY.as_bytes()).unwrap_err();
    drop(log);
    Log::repair(disk.dir(), config).unwrap();
    let seen = traces.text();
    for wanted in [
        "message=log opened",
        "message=segment begun",
        "message=segment archived",
        "message=log failed",
        "message=log repaired",
        "segment=1",
    ] {
        assert!(seen.contains(wanted), "{wanted} in {seen}");
    }
    assert!(!seen.contains(CANARY), "{seen}");
}
