//! The driver under every order of wake-ups that a scheduler finds: nothing is lost, nothing starves.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::sync::Arc;

use futures::future::BoxFuture;
use shuttle::sync::Mutex;

use ubos_common::driver::{Sleep, Step, World, drive};
use ubos_common::machine::Machine;
use ubos_common::time::{Mono, Now, Timestamp};

/// A place that one thread fills and a future waits for.
#[derive(Clone, Default)]
struct Place(Arc<Mutex<(Vec<u64>, Option<Waker>)>>);

impl Place {
    fn fill(&self, value: u64) {
        let mut held = self.0.lock().unwrap();
        held.0.push(value);
        let waker = held.1.take();
        drop(held);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<u64> {
        let mut held = self.0.lock().unwrap();
        if held.0.is_empty() {
            held.1 = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(held.0.remove(0))
    }
}

impl Future for Place {
    type Output = u64;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<u64> {
        Self::poll(&self, cx)
    }
}

/// Starts every effect at once and ends when it has so many inputs.
struct Gather {
    starts: Vec<u64>,
    wanted: usize,
    taken: Vec<u64>,
}

impl Machine for Gather {
    type Input<'a> = u64;
    type Output = u64;
    type Error = ();

    fn handle_input(&mut self, _: Now, input: u64) -> Result<(), ()> {
        self.taken.push(input);
        Ok(())
    }

    fn handle_timeout(&mut self, _: Now) {}

    fn poll_output(&mut self) -> Option<u64> {
        self.starts.pop()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        None
    }

    fn accepts_input(&self) -> bool {
        true
    }

    fn is_closed(&self) -> bool {
        self.taken.len() == self.wanted
    }
}

struct Places {
    effects: Vec<Place>,
    external: Place,
}

impl World<Gather> for Places {
    type Answer = u64;

    fn perform(&mut self, effect: u64) -> Step<u64> {
        let place = self.effects[usize::try_from(effect).unwrap()].clone();
        Step::start(effect, place)
    }

    fn input(&mut self, answer: u64) -> u64 {
        answer
    }

    fn poll_external(&mut self, cx: &mut Context<'_>) -> Poll<u64> {
        self.external.poll(cx)
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

const EFFECTS: u64 = 3;
const EXTERNAL: u64 = 2;

fn run(starts: Vec<u64>, wanted: usize, fill: impl Fn(&Places) -> Vec<(Place, u64)>) -> Vec<u64> {
    let mut world = Places {
        effects: (0..EFFECTS).map(|_| Place::default()).collect(),
        external: Place::default(),
    };
    let threads: Vec<_> = fill(&world)
        .into_iter()
        .map(|(place, value)| shuttle::thread::spawn(move || place.fill(value)))
        .collect();
    let mut machine = Gather {
        starts,
        wanted,
        taken: Vec::new(),
    };
    shuttle::future::block_on(drive(&mut machine, &mut world, &Still)).unwrap();
    for thread in threads {
        thread.join().unwrap();
    }
    machine.taken.sort_unstable();
    machine.taken
}

#[test]
fn every_answer_and_every_external_input_is_taken_once() {
    shuttle::check_random(
        || {
            let all = (EFFECTS + EXTERNAL) as usize;
            let taken = run((0..EFFECTS).collect(), all, |world| {
                let answers = world.effects.iter().cloned().zip(0..EFFECTS);
                let outside = (0..EXTERNAL).map(|n| (world.external.clone(), EFFECTS + n));
                answers.chain(outside).collect()
            });
            assert_eq!(taken, (0..EFFECTS + EXTERNAL).collect::<Vec<_>>());
        },
        2_000,
    );
}

/// Polls a future a few times, and is then done with it.
struct Impatient<'a>(Pin<Box<dyn Future<Output = ()> + 'a>>, u32);

impl Future for Impatient<'_> {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        if self.0.as_mut().poll(cx).is_ready() {
            return Poll::Ready(true);
        }
        self.1 -= 1;
        if self.1 == 0 {
            return Poll::Ready(false);
        }
        Poll::Pending
    }
}

#[test]
fn dropped_and_driven_again_it_loses_no_external_input() {
    const INPUTS: u64 = 200;
    shuttle::check_random(
        || {
            let external = Place::default();
            let filled = external.clone();
            let thread = shuttle::thread::spawn(move || (0..INPUTS).for_each(|n| filled.fill(n)));
            let mut world = Places {
                effects: Vec::new(),
                external,
            };
            let mut machine = Gather {
                starts: Vec::new(),
                wanted: INPUTS as usize,
                taken: Vec::new(),
            };
            shuttle::future::block_on(async {
                loop {
                    let run = async { drive(&mut machine, &mut world, &Still).await.unwrap() };
                    if Impatient(Box::pin(run), 1).await {
                        break;
                    }
                    shuttle::future::yield_now().await;
                }
            });
            thread.join().unwrap();
            assert_eq!(machine.taken, (0..INPUTS).collect::<Vec<_>>());
        },
        100,
    );
}

/// Answers at once, for ever, until it is told to stop from outside.
#[derive(Default)]
struct Chain {
    answers: u64,
    starts: bool,
    stopped: bool,
}

impl Machine for Chain {
    type Input<'a> = Option<u64>;
    type Output = ();
    type Error = ();

    fn handle_input(&mut self, _: Now, input: Option<u64>) -> Result<(), ()> {
        self.answers += u64::from(input.is_some());
        self.starts = input.is_some();
        self.stopped |= input.is_none();
        Ok(())
    }

    fn handle_timeout(&mut self, _: Now) {}

    fn poll_output(&mut self) -> Option<()> {
        core::mem::take(&mut self.starts).then_some(())
    }

    fn poll_timeout(&self) -> Option<Mono> {
        None
    }

    fn accepts_input(&self) -> bool {
        true
    }

    fn is_closed(&self) -> bool {
        self.stopped
    }
}

/// Every effect is ready when it is started; a stop is there from the third look on.
struct Ready(u64);

impl World<Chain> for Ready {
    type Answer = u64;

    fn perform(&mut self, (): ()) -> Step<u64> {
        Step::start(0, async { 0 })
    }

    fn input(&mut self, answer: u64) -> Option<u64> {
        Some(answer)
    }

    fn poll_external(&mut self, _: &mut Context<'_>) -> Poll<Option<u64>> {
        self.0 += 1;
        if self.0 < 3 {
            return Poll::Pending;
        }
        Poll::Ready(None)
    }

    fn expects_external(&self) -> bool {
        true
    }
}

#[test]
fn a_stop_is_taken_among_answers_that_are_always_ready() {
    let mut machine = Chain {
        starts: true,
        ..Chain::default()
    };
    futures::executor::block_on(drive(&mut machine, &mut Ready(0), &Still)).unwrap();
    assert!(machine.answers < 10, "{} answers first", machine.answers);
}
