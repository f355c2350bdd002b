use core::future::Future;
use core::task::{Context, Poll};
use core::time::Duration;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::executor::block_on;
use futures::future::{BoxFuture, FutureExt as _};

use ubos_common::driver::*;
use ubos_common::machine::{Machine, Outbox};
use ubos_common::time::{Mono, Now, Timestamp};

/// A clock that jumps to whatever is slept for.
#[derive(Clone, Default)]
struct Jumping(Arc<std::sync::atomic::AtomicU64>);

impl Sleep for Jumping {
    fn now(&self) -> Now {
        Now::new(
            Mono::from_nanos(self.0.load(Ordering::SeqCst)),
            Timestamp::EPOCH,
        )
    }

    fn sleep_until(&self, deadline: Mono) -> BoxFuture<'static, ()> {
        let clock = self.0.clone();
        Box::pin(async move { clock.store(deadline.as_nanos(), Ordering::SeqCst) })
    }
}

/// Starts two effects; cancels the other one when the first answers, or both at a timeout.
#[derive(Default)]
struct Race {
    out: Vec<Asked>,
    answers: Vec<u64>,
    deadline: Option<Mono>,
    closed: bool,
}

enum Asked {
    Start(u64),
    Cancel(u64),
}

impl Race {
    fn new(deadline: Option<Mono>) -> Self {
        Self {
            out: vec![Asked::Start(2), Asked::Start(1)],
            deadline,
            ..Self::default()
        }
    }
}

impl Machine for Race {
    type Input<'a> = u64;
    type Output = Asked;
    type Error = &'static str;

    fn handle_input(&mut self, _: Now, answer: u64) -> Result<(), Self::Error> {
        if self.closed {
            return Err("closed");
        }
        self.answers.push(answer);
        self.out.push(Asked::Cancel(3 - answer));
        self.closed = true;
        Ok(())
    }

    fn handle_timeout(&mut self, now: Now) {
        if self.deadline.is_some_and(|at| at <= now.mono) {
            self.deadline = None;
            self.out.extend([Asked::Cancel(1), Asked::Cancel(2)]);
            self.closed = true;
        }
    }

    fn poll_output(&mut self) -> Option<Asked> {
        self.out.pop()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        self.deadline
    }

    fn accepts_input(&self) -> bool {
        true
    }

    fn is_closed(&self) -> bool {
        self.closed && self.out.is_empty()
    }
}

/// Counts effects that are dropped before their end.
struct Guard(Arc<AtomicUsize>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

struct Runner {
    ready: u64,
    dropped: Arc<AtomicUsize>,
}

impl World<Race> for Runner {
    type Answer = u64;

    fn perform(&mut self, output: Asked) -> Step<u64> {
        match output {
            Asked::Start(id) if id == self.ready => Step::start(id, async move { id }),
            Asked::Start(id) => {
                let guard = Guard(self.dropped.clone());
                Step::start(id, async move {
                    let _guard = guard;
                    core::future::pending::<()>().await;
                    id
                })
            }
            Asked::Cancel(id) => Step::Cancel(id),
        }
    }

    fn input(&mut self, answer: u64) -> u64 {
        answer
    }
}

#[test]
fn the_first_answer_wins_and_the_other_effect_is_dropped() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let mut machine = Race::new(None);
    let mut world = Runner {
        ready: 1,
        dropped: dropped.clone(),
    };
    block_on(drive(&mut machine, &mut world, &Jumping::default())).unwrap();
    assert_eq!(
        (machine.answers, dropped.load(Ordering::SeqCst)),
        (vec![1], 1)
    );
}

#[test]
fn a_timeout_ends_what_never_answers() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let deadline = Mono::ZERO.saturating_add(Duration::from_secs(9));
    let mut machine = Race::new(Some(deadline));
    let clock = Jumping::default();
    block_on(drive(
        &mut machine,
        &mut Runner {
            ready: 0,
            dropped: dropped.clone(),
        },
        &clock,
    ))
    .unwrap();
    assert_eq!(
        (
            machine.answers.len(),
            dropped.load(Ordering::SeqCst),
            clock.now().mono
        ),
        (0, 2, deadline)
    );
}

#[test]
fn dropping_the_run_drops_its_effects() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let mut machine = Race::new(None);
    let mut world = Runner {
        ready: 0,
        dropped: dropped.clone(),
    };
    let clock = Jumping::default();
    let mut run = Box::pin(drive(&mut machine, &mut world, &clock));
    let waker = futures::task::noop_waker();
    assert!(
        run.as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    drop(run);
    assert_eq!(dropped.load(Ordering::SeqCst), 2);
}

/// Takes no input: starts an effect, cancels it at 1 ns, looks at 2 ns.
struct Busy(u64, Option<Shut>);

enum Shut {
    Start,
    Cancel,
    Look,
}

impl Machine for Busy {
    type Input<'a> = ();
    type Output = Shut;
    type Error = ();

    fn handle_input(&mut self, _: Now, (): ()) -> Result<(), ()> {
        Err(())
    }

    fn handle_timeout(&mut self, now: Now) {
        self.0 += u64::from(now.mono.as_nanos() > self.0);
        self.1 = Some(if self.0 == 1 {
            Shut::Cancel
        } else {
            Shut::Look
        });
    }

    fn poll_output(&mut self) -> Option<Shut> {
        self.1.take()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        Some(Mono::from_nanos(self.0 + 1))
    }

    fn accepts_input(&self) -> bool {
        false
    }

    fn is_closed(&self) -> bool {
        self.0 == 2 && self.1.is_none()
    }
}

struct Watch {
    dropped: Arc<AtomicUsize>,
    seen: usize,
}

impl World<Busy> for Watch {
    type Answer = ();

    fn perform(&mut self, output: Shut) -> Step<()> {
        match output {
            Shut::Start => {
                let guard = Guard(self.dropped.clone());
                Step::start(7, async move {
                    let _guard = guard;
                    core::future::pending().await
                })
            }
            Shut::Cancel => Step::Cancel(7),
            Shut::Look => {
                self.seen = self.dropped.load(Ordering::SeqCst);
                Step::Done
            }
        }
    }

    fn input(&mut self, (): ()) {}

    fn poll_external(&mut self, _: &mut Context<'_>) -> Poll<()> {
        panic!("no input is taken");
    }
}

/// As [`Jumping`], and lets everything else be polled once before its timer is due.
struct Late(Jumping);

impl Sleep for Late {
    fn now(&self) -> Now {
        self.0.now()
    }

    fn sleep_until(&self, deadline: Mono) -> BoxFuture<'static, ()> {
        let timer = self.0.sleep_until(deadline);
        Box::pin(async move {
            futures::pending!();
            timer.await;
        })
    }
}

#[test]
fn nothing_is_taken_while_the_machine_takes_nothing() {
    let mut world = Watch {
        dropped: Arc::default(),
        seen: 0,
    };
    let mut machine = Busy(0, Some(Shut::Start));
    let clock = Late(Jumping::default());
    let mut run = Box::pin(drive(&mut machine, &mut world, &clock));
    let mut cx = Context::from_waker(futures::task::noop_waker_ref());
    let ended = (0..1_000_000).any(|_| run.as_mut().poll(&mut cx).is_ready());
    assert!(ended, "the driver goes on without end");
}

#[test]
fn a_cancelled_effect_is_dropped_even_while_no_input_is_taken() {
    let mut world = Watch {
        dropped: Arc::default(),
        seen: 0,
    };
    let mut machine = Busy(0, Some(Shut::Start));
    block_on(drive(&mut machine, &mut world, &Jumping::default())).unwrap();
    assert_eq!(world.seen, 1);
}

/// Waits for inputs from outside and refuses odd ones.
#[derive(Default)]
struct Even {
    taken: Vec<u64>,
    out: Option<Outbox<()>>,
}

impl Machine for Even {
    type Input<'a> = u64;
    type Output = ();
    type Error = u64;

    fn handle_input(&mut self, _: Now, n: u64) -> Result<(), u64> {
        if n % 2 == 1 {
            return Err(n);
        }
        self.taken.push(n);
        Ok(())
    }

    fn handle_timeout(&mut self, _: Now) {}

    fn poll_output(&mut self) -> Option<()> {
        self.out.as_mut()?.pop()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        None
    }

    fn accepts_input(&self) -> bool {
        true
    }

    fn is_closed(&self) -> bool {
        self.taken.len() == 2
    }
}

struct Commands {
    next: u64,
    live: bool,
    refused: Rc<Cell<u64>>,
}

impl World<Even> for Commands {
    type Answer = u64;

    fn perform(&mut self, (): ()) -> Step<u64> {
        Step::Done
    }

    fn input(&mut self, answer: u64) -> u64 {
        answer
    }

    fn poll_external(&mut self, _: &mut Context<'_>) -> Poll<u64> {
        self.next += 1;
        Poll::Ready(self.next)
    }

    fn expects_external(&self) -> bool {
        self.live
    }

    fn refused(&mut self, error: u64) {
        self.refused.set(self.refused.get() + error);
    }
}

#[test]
fn external_inputs_are_taken_and_refusals_are_told() {
    let refused = Rc::new(Cell::new(0));
    let mut machine = Even::default();
    let mut world = Commands {
        next: 0,
        live: true,
        refused: refused.clone(),
    };
    block_on(drive(&mut machine, &mut world, &Jumping::default())).unwrap();
    assert_eq!((machine.taken, refused.get()), (vec![2, 4], 4));
}

#[test]
fn waiting_for_nothing_is_an_error_and_not_a_hang() {
    let mut world = Commands {
        next: 0,
        live: false,
        refused: Rc::default(),
    };
    let result = block_on(drive(&mut Even::default(), &mut world, &Jumping::default()));
    assert_eq!(result, Err(DriveError::Stalled));
    // A world that says nothing of inputs has none.
    let mut world = Runner {
        ready: 0,
        dropped: Arc::default(),
    };
    let result = drive(&mut Race::default(), &mut world, &Jumping::default()).now_or_never();
    assert_eq!(result, Some(Err(DriveError::Stalled)));
}

#[test]
fn a_world_with_always_an_input_does_not_starve_the_others() {
    let mut machine = Even::default();
    let mut world = Commands {
        next: u64::MAX / 2,
        live: true,
        refused: Rc::default(),
    };
    // Odd numbers only, so that the run has no end.
    world.next |= 1;
    let clock = Jumping::default();
    let mut odd = OddOnly(&mut world);
    assert_eq!(wakes_of_a_poll(drive(&mut machine, &mut odd, &clock)), 1);
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl std::task::Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// How often a future that is pending has its task woken by its first poll.
fn wakes_of_a_poll(run: impl Future) -> usize {
    let wakes = Arc::new(Wakes::default());
    let waker = wakes.clone().into();
    let polled = Box::pin(run)
        .as_mut()
        .poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    wakes.0.load(Ordering::SeqCst)
}

struct OddOnly<'a>(&'a mut Commands);

impl World<Even> for OddOnly<'_> {
    type Answer = u64;

    fn perform(&mut self, (): ()) -> Step<u64> {
        Step::Done
    }

    fn input(&mut self, answer: u64) -> u64 {
        answer
    }

    fn poll_external(&mut self, _: &mut Context<'_>) -> Poll<u64> {
        Poll::Ready(self.0.next)
    }

    fn expects_external(&self) -> bool {
        self.0.live
    }
}

/// A clock that stands still, and whose timers are over at once.
struct Early;

impl Sleep for Early {
    fn now(&self) -> Now {
        Now::new(Mono::ZERO, Timestamp::EPOCH)
    }

    fn sleep_until(&self, _: Mono) -> BoxFuture<'static, ()> {
        Box::pin(async {})
    }
}

#[test]
fn a_timer_that_is_over_early_is_asked_again() {
    let mut world = Watch {
        dropped: Arc::default(),
        seen: 0,
    };
    // No effect runs whose waiting would wake the task.
    let mut machine = Busy(0, None);
    assert_eq!(wakes_of_a_poll(drive(&mut machine, &mut world, &Early)), 1);
}

#[test]
fn a_timer_that_is_over_early_holds_nothing_up() {
    let mut machine = Race::new(Some(Mono::MAX));
    let mut world = Runner {
        ready: 1,
        dropped: Arc::default(),
    };
    let mut run = Box::pin(drive(&mut machine, &mut world, &Early));
    let mut cx = Context::from_waker(futures::task::noop_waker_ref());
    let mut polls = 0;
    while run.as_mut().poll(&mut cx).is_pending() {
        polls += 1;
        assert!(
            polls < 100,
            "the driver has looked at nothing but its timer"
        );
    }
    drop(run);
    assert_eq!(machine.answers, [1]);
}
