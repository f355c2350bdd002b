//! Runs a machine whose effects are asynchronous, on any runtime.
//!
//! Where user code is asynchronous (handlers, tools, hooks, models), a machine asks for it as an output and
//! takes the answer as an input. [`drive`] is the loop between: it needs no executor of its own, spawns
//! nothing, and reads no clock but the one it is given, so that it runs under tokio, smol, an embedded
//! executor, or `futures::executor::block_on` in a test.
//!
//! Dropping the future of [`drive`] drops every effect that is under way: that is how a run is cancelled
//! from outside. A machine cancels one effect by an output that the [`World`] turns into
//! [`Step::Cancel`].
//!
//! ```
//! use ubos_common::driver::{drive, Sleep, Step, World};
//! use ubos_common::machine::{Machine, Outbox};
//! use ubos_common::time::{Mono, Now, Timestamp};
//!
//! /// Asks the world to double a number until it is over a hundred.
//! struct Doubler { out: Outbox<Asked>, last: Option<u64> }
//! enum Asked { Double(u64), Done }
//!
//! impl Machine for Doubler {
//!     type Input<'a> = u64;
//!     type Output = Asked;
//!     type Error = core::convert::Infallible;
//!     fn handle_input(&mut self, _: Now, n: u64) -> Result<(), Self::Error> {
//!         self.last = Some(n);
//!         self.out.push(if n > 100 { Asked::Done } else { Asked::Double(n) });
//!         Ok(())
//!     }
//!     fn handle_timeout(&mut self, _: Now) {}
//!     fn poll_output(&mut self) -> Option<Asked> { self.out.pop() }
//!     fn poll_timeout(&self) -> Option<Mono> { None }
//!     fn accepts_input(&self) -> bool { true }
//!     fn is_closed(&self) -> bool { self.last.is_some_and(|n| n > 100) && self.out.is_empty() }
//! }
//!
//! struct Arithmetic;
//! impl World<Doubler> for Arithmetic {
//!     type Answer = u64;
//!     fn perform(&mut self, output: Asked) -> Step<u64> {
//!         match output {
//!             Asked::Double(n) => Step::start(n, async move { n * 2 }),
//!             Asked::Done => Step::Done,
//!         }
//!     }
//!     fn input(&mut self, answer: u64) -> u64 { answer }
//! }
//!
//! struct Still;
//! impl Sleep for Still {
//!     fn now(&self) -> Now { Now::new(Mono::ZERO, Timestamp::EPOCH) }
//!     fn sleep_until(&self, _: Mono) -> futures::future::BoxFuture<'static, ()> { Box::pin(std::future::pending()) }
//! }
//!
//! let mut machine = Doubler { out: Outbox::new(4), last: None };
//! machine.handle_input(Still.now(), 7).unwrap();
//! futures::executor::block_on(drive(&mut machine, &mut Arithmetic, &Still)).unwrap();
//! assert_eq!(machine.last, Some(112));
//! ```

use core::future::{Future, poll_fn};
use core::pin::Pin;
use core::task::{Context, Poll};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::{AbortHandle, Abortable, BoxFuture};
use futures::stream::{FuturesUnordered, Stream};

use crate::machine::Machine;
use crate::time::{Mono, Now};
use crate::trace::{debug, trace};

/// The runtime's clock and timer.
pub trait Sleep {
    /// Both clocks, now.
    fn now(&self) -> Now;

    /// Ready once the monotonic clock has reached `deadline`.
    fn sleep_until(&self, deadline: Mono) -> BoxFuture<'static, ()>;
}

impl<S: Sleep + ?Sized> Sleep for Arc<S> {
    fn now(&self) -> Now {
        S::now(self)
    }

    fn sleep_until(&self, deadline: Mono) -> BoxFuture<'static, ()> {
        S::sleep_until(self, deadline)
    }
}

/// What a machine's outputs mean outside: the caller's side of [`drive`].
pub trait World<M: Machine> {
    /// What an effect comes to.
    type Answer: 'static;

    /// Takes one output: does what is done at once, or says which effect to start.
    fn perform(&mut self, output: M::Output) -> Step<Self::Answer>;

    /// The input that tells the machine of an answer.
    fn input(&mut self, answer: Self::Answer) -> M::Input<'static>;

    /// An input from outside (a command, a message), when one is there. The default never has one.
    ///
    /// Not polled while the machine accepts no input.
    fn poll_external(&mut self, _cx: &mut Context<'_>) -> Poll<M::Input<'static>> {
        Poll::Pending
    }

    /// Whether [`World::poll_external`] may ever give an input. While it may, the driver waits for it.
    fn expects_external(&self) -> bool {
        false
    }

    /// The machine refused an input; it goes on, or says in its outputs that it ends. The default drops it.
    fn refused(&mut self, _error: M::Error) {}
}

/// What an output asks of the driver.
#[non_exhaustive]
pub enum Step<A> {
    /// Nothing: the world has done it.
    Done,
    /// Run an effect; its answer becomes an input. The id is for [`Step::Cancel`].
    Start(u64, BoxFuture<'static, A>),
    /// Drop the effect with this id, if it still runs: it gives no answer any more.
    Cancel(u64),
}

impl<A> Step<A> {
    /// Starts an effect under an id. Starting a second under the id of one that runs drops the first.
    pub fn start(id: u64, effect: impl Future<Output = A> + Send + 'static) -> Self {
        Self::Start(id, Box::pin(effect))
    }
}

impl<A> core::fmt::Debug for Step<A> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Done => f.write_str("Done"),
            Self::Start(id, _) => write!(f, "Start({id})"),
            Self::Cancel(id) => write!(f, "Cancel({id})"),
        }
    }
}

/// Why [`drive`] stopped before the machine's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DriveError {
    /// No timeout is set, and no input can come: waiting would never end.
    #[error("the machine waits for nothing and has not ended")]
    Stalled,
}

/// Drives a machine to its end.
///
/// Outputs are performed in order. Effects run at the same time, in the caller's task; answers are taken in
/// the order in which they come, as long as the machine accepts input. A timeout that is due is handled
/// before anything that comes with it. Answers and external inputs that are ready together take turns, and
/// every so often the driver yields to the runtime's other tasks, so that nothing that is always ready
/// starves the rest.
///
/// Dropped and called again, it goes on where the machine is: every input that was taken has been handled.
/// Only the effects that ran are gone; their answers do not come.
///
/// # Errors
///
/// [`DriveError::Stalled`] where waiting would never end.
pub async fn drive<M, W, S>(machine: &mut M, world: &mut W, sleep: &S) -> Result<(), DriveError>
where
    M: Machine,
    W: World<M>,
    S: Sleep + ?Sized,
{
    let mut effects = Effects::default();
    let mut wakes = 0_u32;
    let mut first = Turn::Effects;
    loop {
        while let Some(output) = machine.poll_output() {
            match world.perform(output) {
                Step::Done => {}
                Step::Start(id, effect) => {
                    trace!(id, "effect started");
                    effects.start(id, effect);
                }
                Step::Cancel(id) => {
                    trace!(id, "effect cancelled");
                    effects.cancel(id);
                }
            }
        }
        if machine.is_closed() {
            debug!(wakes, "machine ended");
            return Ok(());
        }
        wakes = wakes.wrapping_add(1);
        if wakes.is_multiple_of(YIELD_AFTER) {
            yield_once().await;
        }
        // Between this wait and the machine's handling there is no other: an input that was taken is not lost
        // where the caller drops this future.
        let wake = wait(machine, world, &mut effects, sleep, first).await?;
        first = match wake {
            Wake::Answer(_) => Turn::External,
            Wake::External(_) | Wake::Timeout => Turn::Effects,
        };
        let now = sleep.now();
        let taken = match wake {
            Wake::Timeout => {
                trace!("timer ran out");
                machine.handle_timeout(now);
                Ok(())
            }
            Wake::Answer(answer) => {
                trace!("effect answered");
                machine.handle_input(now, world.input(answer))
            }
            Wake::External(input) => {
                trace!("external input");
                machine.handle_input(now, input)
            }
        };
        if let Err(error) = taken {
            debug!(wakes, "machine refused an input");
            world.refused(error);
        }
    }
}

/// Wakes after which other tasks of the runtime get their turn, however much there is to do here.
const YIELD_AFTER: u32 = 64;

/// Who is asked first for the next input.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Effects,
    External,
}

async fn yield_once() {
    let mut yielded = false;
    poll_fn(|cx| {
        if core::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// What ends a wait.
enum Wake<A, I> {
    Timeout,
    Answer(A),
    External(I),
}

async fn wait<M, W, S>(
    machine: &M,
    world: &mut W,
    effects: &mut Effects<W::Answer>,
    sleep: &S,
    first: Turn,
) -> Result<Wake<W::Answer, M::Input<'static>>, DriveError>
where
    M: Machine,
    W: World<M>,
    S: Sleep + ?Sized,
{
    let mut timer = match machine.poll_timeout() {
        Some(deadline) if deadline <= sleep.now().mono => return Ok(Wake::Timeout),
        deadline => deadline.map(|at| (at, sleep.sleep_until(at))),
    };
    let accepts = machine.accepts_input();
    if timer.is_none() && !(accepts && (!effects.is_empty() || world.expects_external())) {
        debug!("machine waits for nothing");
        return Err(DriveError::Stalled);
    }
    poll_fn(|cx| {
        if let Some((at, timer)) = &mut timer
            && timer.as_mut().poll(cx).is_ready()
        {
            if sleep.now().mono >= *at {
                return Poll::Ready(Ok(Wake::Timeout));
            }
            // The machine would find nothing due. The timer is asked anew, and meanwhile all else goes on.
            *timer = sleep.sleep_until(*at);
            cx.waker().wake_by_ref();
        }
        if !accepts {
            return Poll::Pending;
        }
        if first == Turn::External
            && let Poll::Ready(input) = world.poll_external(cx)
        {
            return Poll::Ready(Ok(Wake::External(input)));
        }
        if let Poll::Ready(answer) = effects.poll_next(cx) {
            return Poll::Ready(Ok(Wake::Answer(answer)));
        }
        if first == Turn::External {
            return Poll::Pending;
        }
        world
            .poll_external(cx)
            .map(|input| Ok(Wake::External(input)))
    })
    .await
}

/// The effects that run.
struct Effects<A> {
    running: FuturesUnordered<Abortable<Tagged<A>>>,
    handles: BTreeMap<u64, Handle<A>>,
    started: u64,
}

/// Ends one effect: the number of its start, what takes it out of the set, and the effect itself, so that a
/// cancel drops it at once and not when the set is polled next.
struct Handle<A> {
    start: u64,
    abort: AbortHandle,
    effect: Arc<Mutex<Option<BoxFuture<'static, A>>>>,
}

/// An effect whose answer comes with its id and with the number of its start.
type Tagged<A> = BoxFuture<'static, (u64, u64, A)>;

impl<A: 'static> Effects<A> {
    fn start(&mut self, id: u64, effect: BoxFuture<'static, A>) {
        self.cancel(id);
        self.started += 1;
        let start = self.started;
        let (abort, registration) = AbortHandle::new_pair();
        let effect = Arc::new(Mutex::new(Some(effect)));
        let handle = Handle {
            start,
            abort,
            effect: effect.clone(),
        };
        let answer = poll_fn(move |cx| {
            let mut effect = effect.lock().unwrap_or_else(PoisonError::into_inner);
            match effect.as_mut() {
                Some(effect) => effect.as_mut().poll(cx),
                None => Poll::Pending,
            }
        });
        let tagged: Tagged<A> = Box::pin(async move { (id, start, answer.await) });
        self.handles.insert(id, handle);
        self.running.push(Abortable::new(tagged, registration));
    }

    fn cancel(&mut self, id: u64) {
        if let Some(handle) = self.handles.remove(&id) {
            handle.abort.abort();
            let mut effect = handle.effect.lock().unwrap_or_else(PoisonError::into_inner);
            drop(effect.take());
        }
    }

    fn is_empty(&self) -> bool {
        self.handles.is_empty()
    }

    /// The next answer of an effect that was not cancelled.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<A> {
        loop {
            match Pin::new(&mut self.running).poll_next(cx) {
                Poll::Ready(Some(Ok((id, start, answer)))) => {
                    // An answer that was ready before its cancel is void all the same.
                    if self
                        .handles
                        .get(&id)
                        .is_some_and(|current| current.start == start)
                    {
                        self.handles.remove(&id);
                        return Poll::Ready(answer);
                    }
                }
                Poll::Ready(Some(Err(_aborted))) => {}
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl<A> Default for Effects<A> {
    fn default() -> Self {
        Self {
            running: FuturesUnordered::new(),
            handles: BTreeMap::new(),
            started: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_effect_under_an_id_drops_the_first() {
        let held = Arc::new(());
        let guard = held.clone();
        let mut effects = Effects::default();
        let first = async move {
            let _guard = guard;
            core::future::pending::<u64>().await
        };
        effects.start(1, Box::pin(first));
        effects.start(1, Box::pin(async { 2 }));
        assert_eq!(Arc::strong_count(&held), 1);
        let mut cx = Context::from_waker(futures::task::noop_waker_ref());
        assert_eq!(effects.poll_next(&mut cx), Poll::Ready(2));
        assert!(effects.is_empty() && effects.poll_next(&mut cx).is_pending());
        assert!(effects.running.is_empty(), "nothing is left of the first");
    }
}
