//! Runs the machine of one task: performs what it asks for, and gives it what comes back.

use core::future::poll_fn;
use core::pin::{Pin, pin};
use core::task::{Context as Waking, Poll};
use std::sync::{Arc, MutexGuard};

use futures::FutureExt as _;
use futures::future::{BoxFuture, Fuse, FusedFuture};
use ubos_common::driver::Sleep;
use ubos_common::time::Mono;

use super::answer::{Answer, Delivery, ProcessError, Warning};
use super::apart::Workbench;
use super::effects::{Done, Effects, Gain};
use super::flight::LeaderGuard;
use super::guard::Panicked;
use super::left::Left;
use super::running::{Running, Said};
use super::stop::Stop;
use crate::future::{LARGE, yield_once};
use crate::role::consumer::{
    Admission, End, Ended, Input, Message, Output, Progress, ReceivedTask, Reply, Request, Stage,
    StopReason, Written,
};
use crate::transcript::TranscriptError;
use crate::work::HEAVY;

/// Who is told on the way.
pub(super) type Sink<'a> = &'a mut (dyn FnMut(Delivery<'_>) + Send);

/// One task under way.
pub(super) struct Driver<'p, S: Sleep + Clone + Send + Sync + 'static> {
    clock: &'p S,
    effects: &'p Effects<'p>,
    bench: Workbench,
    stop: Option<Stop>,
    /// Until somebody has stopped the task.
    stopped: Option<BoxFuture<'static, StopReason>>,
    /// Until the one who asks wants the task no more.
    cancelled: Option<BoxFuture<'static, ()>>,
    handler: Option<Running<'p>>,
    /// Others wait while it is held.
    leads: Option<LeaderGuard>,
    timer: Option<(Mono, BoxFuture<'static, ()>)>,
    /// What the machine is to hear when its work is over.
    stashed: Option<Wake>,
    /// The end of a task that is abandoned.
    abandoned: Option<Arc<Written>>,
    /// Whether each step takes its time, so that others run between two.
    is_large: bool,
    /// Bytes of the longest thing that the machine works on.
    bytes: usize,
    /// Why a record failed first.
    lost: Option<TranscriptError>,
}

/// What wakes a driver.
enum Wake {
    /// The machine was given what it was given apart.
    Given,
    Done(Done),
    Report(Progress),
    Ran(u64, Ended),
    Cancel,
    Timeout,
}

impl<'p, S: Sleep + Clone + Send + Sync + 'static> Driver<'p, S> {
    pub(super) fn new(clock: &'p S, effects: &'p Effects<'p>) -> Self {
        let config = effects.processor.consumer.clone();
        let task = Arc::clone(&effects.task);
        Self {
            clock,
            effects,
            bench: Workbench::new(ReceivedTask::new(clock.now(), task, config), clock.clone()),
            stop: None,
            stopped: None,
            cancelled: None,
            handler: None,
            leads: None,
            timer: None,
            stashed: None,
            abandoned: None,
            is_large: effects.is_large(),
            bytes: effects.bytes(),
            lost: None,
        }
    }

    /// Cancels the task when this is ready. A task without a place has its turn first.
    pub(super) fn cancelled_by(mut self, cancelled: Option<BoxFuture<'static, ()>>) -> Self {
        self.cancelled = cancelled;
        self
    }

    /// Runs the task to its end.
    pub(super) async fn run(mut self, sink: Sink<'_>) -> Result<Answer, ProcessError> {
        let mut under_way = 0;
        let mut effect = pin!(Fuse::terminated());
        let effects = self.effects;
        for wakes in 1_u32.. {
            if let Some(wake) = self.unstashed() {
                self.woken(wake, under_way, sink);
            }
            while self.bench.hold()
                && let Some(output) = self.next_output()
            {
                match output {
                    Output::Close(end) => return self.answer(end),
                    Output::Request {
                        id,
                        request: Request::Run,
                    } => self.start(id),
                    Output::Request {
                        id,
                        request: Request::Deliver(message),
                    } => {
                        match message {
                            Message::Ack(ack) => sink(Delivery::Ack(ack)),
                            Message::Result(written) => sink(Delivery::Result(&written.result)),
                        }
                        self.reply(id, Reply::Delivered);
                    }
                    Output::Request { id, request } => {
                        under_way = id;
                        let is_record = matches!(request, Request::Record(_));
                        effect.set(effects.perform(self.clock.now(), request).fuse());
                        if is_record {
                            // Handed over before others run: who drops the task then finds it in the transcript.
                            let recorded =
                                poll_fn(|cx| Poll::Ready(ready(effect.as_mut().poll(cx)))).await;
                            self.stashed = recorded.map(Wake::Done);
                        }
                    }
                    Output::Remember(written) => {
                        self.remember(&written);
                        warn(sink, effects.books.signal(&written));
                    }
                    other => self.apply(other),
                }
            }
            self.release();
            if self.is_large || wakes.is_multiple_of(YIELD_AFTER) {
                yield_once().await;
            }
            let wake = poll_fn(|cx| self.poll_wake(effect.as_mut(), cx)).await;
            self.woken(wake, under_way, sink);
        }
        Err(self.why_lost())
    }

    /// What came while the machine was at work. It is heard before the machine goes on: there is one place to keep it in.
    fn unstashed(&mut self) -> Option<Wake> {
        let is_heard = self.stashed.is_some() && self.bench.hold();
        is_heard.then(|| self.stashed.take()).flatten()
    }

    fn woken(&mut self, wake: Wake, under_way: u64, sink: Sink<'_>) {
        match wake {
            Wake::Done(done) => self.done(under_way, done, sink),
            Wake::Given => {}
            Wake::Report(progress) => {
                self.grows(progress.bytes());
                self.work(Input::Report(progress));
            }
            Wake::Ran(id, ended) => {
                self.grows(ended.bytes());
                let is_outcome = matches!(ended, Ended::Outcome(_));
                let reply = Reply::Ran(ended);
                match is_outcome {
                    // It is looked at first, and nothing is made of it yet.
                    true => self.reply(id, reply),
                    false => self.work(Input::Reply { id, reply }),
                }
            }
            Wake::Cancel => self.input(Input::Cancel),
            Wake::Timeout => self.machine().handle_timeout(self.clock.now()),
        }
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> Arc<super::left::SharedMachine> {
        self.bench.shared()
    }

    /// For when nothing is at work on it.
    fn machine(&self) -> MutexGuard<'_, ReceivedTask> {
        self.bench.machine()
    }

    fn next_output(&self) -> Option<Output> {
        self.machine().poll_output()
    }

    /// Notes how long a thing is that the machine will work on.
    fn grows(&mut self, bytes: usize) {
        self.bytes = self.bytes.max(bytes);
        self.is_large |= bytes > LARGE;
    }

    /// What wakes the driver. Whatever concerns the machine comes only while nothing is at work on it.
    fn poll_wake<E>(&mut self, effect: Pin<&mut E>, cx: &mut Waking<'_>) -> Poll<Wake>
    where
        E: FusedFuture<Output = Done>,
    {
        if let (Some(cancelled), Some(stop)) = (&mut self.cancelled, &self.stop)
            && cancelled.poll_unpin(cx).is_ready()
        {
            stop.fire(StopReason::Cancelled);
            self.cancelled = None;
        }
        if self.bench.poll_given(cx).is_ready() {
            return Poll::Ready(Wake::Given);
        }
        let is_at_work = self.bench.is_at_work();
        if self.stashed.is_none() {
            self.stashed = ready(self.poll_outside(effect, is_at_work, cx));
        }
        // While the machine is at work it hears nothing; its work wakes this when it is over. It is taken from its work
        // for nothing less than what it must hear.
        if let Some(wake) = self.unstashed() {
            return Poll::Ready(wake);
        }
        let is_heard = !is_at_work && self.machine().accepts_report();
        if let Some(handler) = &mut self.handler
            && let Poll::Ready(said) = handler.poll_said(is_heard, cx)
        {
            return Poll::Ready(match said {
                Said::Report(progress) => Wake::Report(progress),
                Said::Ended(ended) => Wake::Ran(handler.id, ended),
            });
        }
        if is_at_work {
            return Poll::Pending;
        }
        self.arm();
        self.poll_timer(cx).map(|()| Wake::Timeout)
    }

    /// One who wants the task no more, and an effect that is over; and while the machine is at work, that a time is over.
    fn poll_outside<E>(
        &mut self,
        effect: Pin<&mut E>,
        is_at_work: bool,
        cx: &mut Waking<'_>,
    ) -> Poll<Wake>
    where
        E: FusedFuture<Output = Done>,
    {
        if let Some(stopped) = &mut self.stopped
            && let Poll::Ready(reason) = stopped.poll_unpin(cx)
        {
            self.stopped = None;
            if reason == StopReason::Cancelled {
                return Poll::Ready(Wake::Cancel);
            }
        }
        if let Poll::Ready(done) = effect.poll(cx) {
            return Poll::Ready(Wake::Done(done));
        }
        if is_at_work {
            return self.poll_timer(cx).map(|()| Wake::Timeout);
        }
        Poll::Pending
    }

    /// Gives the machine back to the one that works on it.
    fn release(&mut self) {
        if self.bench.is_at_work() && self.bench.hold() {
            self.arm();
            self.bench.release();
        }
    }

    /// Sets the timer to when the machine wants to be woken.
    fn arm(&mut self) {
        let Some(at) = self.machine().poll_timeout() else {
            self.timer = None;
            return;
        };
        if self.timer.as_ref().is_none_or(|(set, _)| *set != at) {
            self.timer = Some((at, self.clock.sleep_until(at)));
        }
    }

    fn poll_timer(&mut self, cx: &mut Waking<'_>) -> Poll<()> {
        let Some((_, timer)) = &mut self.timer else {
            return Poll::Pending;
        };
        if timer.poll_unpin(cx).is_pending() {
            return Poll::Pending;
        }
        self.timer = None;
        Poll::Ready(())
    }

    fn done(&mut self, id: u64, done: Done, sink: Sink<'_>) {
        let Done {
            reply,
            gain,
            warning,
        } = done;
        warn(sink, warning);
        match gain {
            Gain::Nothing => {}
            Gain::Place(stop) => {
                self.stopped = Some(stop.stopped().boxed());
                self.stop = Some(stop);
            }
            Gain::Lead(guard) => self.leads = Some(guard),
            Gain::Lost(why) => {
                self.lost.get_or_insert(why);
            }
        }
        let has_place = matches!(
            reply,
            Reply::Recorded | Reply::Admission(Admission::Interrupted { .. })
        );
        match reply {
            // What they lead to may be made of a whole output.
            Reply::Assessed(_) | Reply::Kept => self.work(Input::Reply { id, reply }),
            Reply::Found { ref record, .. } => {
                let record = record.as_ref();
                self.grows(record.map_or(0, |record| record.bytes()));
                self.work(Input::Reply { id, reply });
            }
            reply => self.reply(id, reply),
        }
        // One whose time is over ends for that. What is being recorded is waited for: nobody says yet that it is.
        if has_place && self.effects.abandons && !matches!(self.machine().stage(), Stage::Ended(_))
        {
            self.input(Input::Shutdown);
        }
    }

    fn reply(&mut self, id: u64, reply: Reply) {
        self.input(Input::Reply { id, reply });
    }

    fn input(&mut self, input: Input) {
        // What the machine refuses comes too late: it has decided otherwise, and says so in its outputs.
        drop(self.machine().handle_input(self.clock.now(), input));
    }

    /// The same, on another thread where it takes its time.
    fn work(&mut self, input: Input) {
        if self.bytes <= HEAVY {
            self.input(input);
        } else {
            self.bench.give(input);
        }
    }

    fn start(&mut self, id: u64) {
        let Some((route, stop)) = self.effects.route.zip(self.stop.clone()) else {
            return;
        };
        self.handler = Some(Running::new(
            id,
            route.handler.as_ref(),
            (&self.effects.task, self.effects.trace()),
            stop,
        ));
    }

    /// What is done at once. An effect that is cancelled gives way to the next, or to the end.
    fn apply(&mut self, output: Output) {
        match output {
            Output::Cancel(id) => {
                if self
                    .handler
                    .as_ref()
                    .is_some_and(|handler| handler.id == id)
                {
                    self.handler = None;
                }
            }
            Output::Stop(reason) => {
                if let Some(stop) = &self.stop {
                    stop.fire(reason);
                }
            }
            Output::Forget => self.effects.books.forget(),
            // The loop does these itself.
            Output::Request { .. } | Output::Remember(_) | Output::Close(_) => {}
        }
    }

    fn remember(&mut self, written: &Arc<Written>) {
        if self.effects.abandons {
            self.abandoned = Some(Arc::clone(written));
        }
        self.effects.books.remember(written);
    }

    fn answer(&mut self, end: End) -> Result<Answer, ProcessError> {
        match end {
            End::Nack(nack) => Ok(Answer::Nack(nack)),
            End::Answer(written) => {
                let written = Arc::unwrap_or_clone(written);
                Ok(Answer::Result(Box::new(written.result)))
            }
            End::Again(result) => Ok(Answer::Result(result)),
            End::Taken(ack) => Ok(Answer::Ack(ack)),
            End::Lost => match self.abandoned.take() {
                Some(written) => self.answer(End::Answer(written)),
                None => Err(self.why_lost()),
            },
        }
    }

    fn why_lost(&mut self) -> ProcessError {
        let why = self.lost.take();
        why.unwrap_or_else(|| TranscriptError::Store(Box::new(Panicked)))
            .into()
    }
}

impl<S: Sleep + Clone + Send + Sync + 'static> Drop for Driver<'_, S> {
    /// A task whose processing was given up ends, and nobody waits for it. What the machine has not begun comes too
    /// late.
    fn drop(&mut self) {
        self.bench.leave(self.clock.now(), || Left {
            books: self.effects.books.clone(),
        });
    }
}

fn warn(sink: Sink<'_>, warning: Option<Warning>) {
    if let Some(warning) = warning {
        sink(Delivery::Warning(warning));
    }
}

fn ready<T>(polled: Poll<T>) -> Option<T> {
    match polled {
        Poll::Ready(there) => Some(there),
        Poll::Pending => None,
    }
}

/// Wakes after which a driver yields, whatever is ready.
const YIELD_AFTER: u32 = 32;
