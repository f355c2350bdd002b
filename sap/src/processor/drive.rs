//! Runs the machine of one task: performs what it asks for, and gives it what comes back.

use core::future::poll_fn;
use core::panic::AssertUnwindSafe;
use core::pin::{Pin, pin};
use core::task::{Context as Waking, Poll};
use std::sync::{Arc, MutexGuard};

use futures::FutureExt as _;
use futures::StreamExt as _;
use futures::channel::mpsc;
use futures::future::{BoxFuture, Fuse, FusedFuture};
use ubos_common::driver::Sleep;
use ubos_common::json::RawBuf;
use ubos_common::time::Mono;
use ubos_common::trace_context::TraceContext;

use super::answer::{Answer, Delivery, ProcessError};
use super::config::MAX_REPORTS;
use super::effects::{Done, Effects, Gain};
use super::flight::LeaderGuard;
use super::guard::Panicked;
use super::handler::{Context, Handler, Spending};
use super::left::{Left, SharedMachine};
use super::stop::Stop;
use crate::future::{LARGE, yield_once};
use crate::role::consumer::{
    Admission, End, Ended, Input, Message, Output, Progress, ReceivedTask, Reply, Request,
    StopReason, Written,
};
use crate::task::Task;
use crate::transcript::TranscriptError;
use crate::work;

/// Who is told on the way.
pub(super) type Sink<'a> = &'a mut (dyn FnMut(Delivery<'_>) + Send);

/// One task under way.
pub(super) struct Driver<'p, S: Sleep + Sync + ?Sized> {
    clock: &'p S,
    effects: &'p Effects<'p>,
    machine: Arc<SharedMachine>,
    stop: Option<Stop>,
    /// Until somebody has stopped the task.
    stopped: Option<BoxFuture<'static, StopReason>>,
    /// Until the one who asks wants the task no more.
    cancelled: Option<BoxFuture<'static, ()>>,
    handler: Option<Running<'p>>,
    /// Others wait while it is held.
    leads: Option<LeaderGuard>,
    timer: Option<(Mono, BoxFuture<'static, ()>)>,
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
    Done(Done),
    Report(Progress),
    Ran(u64, Ended),
    Cancel,
    Timeout,
}

impl<'p, S: Sleep + Sync + ?Sized> Driver<'p, S> {
    pub(super) fn new(clock: &'p S, effects: &'p Effects<'p>) -> Self {
        let config = effects.processor.consumer.clone();
        let task = Arc::clone(&effects.task);
        Self {
            clock,
            effects,
            machine: Arc::new(SharedMachine::new(ReceivedTask::new(
                clock.now(),
                task,
                config,
            ))),
            stop: None,
            stopped: None,
            cancelled: None,
            handler: None,
            leads: None,
            timer: None,
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
            let mut recorded = None;
            while let Some(output) = self.next_output() {
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
                            recorded =
                                poll_fn(|cx| Poll::Ready(ready(effect.as_mut().poll(cx)))).await;
                        }
                    }
                    Output::Remember(written) => {
                        self.remember(&written);
                        if let Some(warning) = effects.books.signal(&written).await {
                            sink(Delivery::Warning(warning));
                        }
                    }
                    other => self.apply(other),
                }
            }
            if self.is_large || wakes.is_multiple_of(YIELD_AFTER) {
                yield_once().await;
            }
            let wake = match recorded {
                Some(done) => Wake::Done(done),
                None => poll_fn(|cx| self.poll_wake(effect.as_mut(), cx)).await,
            };
            self.woken(wake, under_way, sink).await;
        }
        Err(self.why_lost())
    }

    async fn woken(&mut self, wake: Wake, under_way: u64, sink: Sink<'_>) {
        match wake {
            Wake::Done(done) => self.done(under_way, done, sink).await,
            Wake::Report(progress) => {
                self.grows(progress.output.as_ref());
                self.work(Input::Report(progress)).await;
            }
            Wake::Ran(id, ended) => {
                if let Ended::Outcome(outcome) = &ended {
                    self.grows(outcome.output.as_ref());
                }
                self.reply(id, Reply::Ran(ended));
            }
            Wake::Cancel => self.input(Input::Cancel),
            Wake::Timeout => self.machine().handle_timeout(self.clock.now()),
        }
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> Arc<SharedMachine> {
        Arc::clone(&self.machine)
    }

    fn machine(&self) -> MutexGuard<'_, ReceivedTask> {
        self.machine.machine()
    }

    fn next_output(&self) -> Option<Output> {
        self.machine().poll_output()
    }

    /// Notes how long a thing is that the machine will work on.
    fn grows(&mut self, output: Option<&RawBuf>) {
        let bytes = output.map_or(0, |output| output.as_str().len());
        self.bytes = self.bytes.max(bytes);
        self.is_large |= bytes > LARGE;
    }

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
        let is_heard = self.machine().accepts_report();
        if let Some(handler) = &mut self.handler
            && let Poll::Ready(wake) = handler.poll_wake(is_heard, cx)
        {
            return Poll::Ready(wake);
        }
        self.poll_timer(cx).map(|()| Wake::Timeout)
    }

    fn poll_timer(&mut self, cx: &mut Waking<'_>) -> Poll<()> {
        let due = self.machine().poll_timeout();
        let Some(at) = due else {
            self.timer = None;
            return Poll::Pending;
        };
        if self.timer.as_ref().is_none_or(|(set, _)| *set != at) {
            self.timer = Some((at, self.clock.sleep_until(at)));
        }
        let is_due = self
            .timer
            .as_mut()
            .is_some_and(|(_, timer)| timer.poll_unpin(cx).is_ready());
        if !is_due {
            return Poll::Pending;
        }
        self.timer = None;
        Poll::Ready(())
    }

    async fn done(&mut self, id: u64, done: Done, sink: Sink<'_>) {
        let Done {
            reply,
            gain,
            warning,
        } = done;
        if let Some(warning) = warning {
            sink(Delivery::Warning(warning));
        }
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
            Reply::Recorded | Reply::Admission(Admission::Interrupted(_))
        );
        match reply {
            // What they lead to may be made of a whole output.
            Reply::Assessed(_) | Reply::Kept => self.work(Input::Reply { id, reply }).await,
            Reply::Found { ref record, .. } => {
                self.grows(record.as_ref().map(|record| &record.output));
                self.work(Input::Reply { id, reply }).await;
            }
            reply => self.reply(id, reply),
        }
        if has_place && self.effects.abandons {
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

    /// The same, on another thread where it takes its time. A panic comes back here.
    async fn work(&mut self, input: Input) {
        let (machine, now) = (Arc::clone(&self.machine), self.clock.now());
        work::done(self.bytes, move || {
            machine.work(|machine| drop(machine.handle_input(now, input)));
        })
        .await;
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

impl<S: Sleep + Sync + ?Sized> Drop for Driver<'_, S> {
    /// A task whose processing was given up ends, and nobody waits for it. What the machine has not begun comes too
    /// late.
    fn drop(&mut self) {
        self.machine.leave(self.clock.now(), || Left {
            books: self.effects.books.clone(),
        });
    }
}

fn ready<T>(polled: Poll<T>) -> Option<T> {
    match polled {
        Poll::Ready(there) => Some(there),
        Poll::Pending => None,
    }
}

/// A handler at work.
struct Running<'p> {
    id: u64,
    reports: mpsc::Receiver<Progress>,
    work: Option<BoxFuture<'p, Ended>>,
    ended: Option<Ended>,
    spending: Arc<Spending>,
}

impl<'p> Running<'p> {
    fn new(
        id: u64,
        handler: &'p dyn Handler,
        (task, trace): (&Arc<Task>, Option<TraceContext>),
        stop: Stop,
    ) -> Self {
        let (sender, reports) = mpsc::channel(MAX_REPORTS);
        let spending = Arc::new(Spending::default());
        let context = Context {
            task: Arc::clone(task),
            trace,
            reports: sender,
            stop,
            spending: Arc::clone(&spending),
        };
        // The call itself may panic too, so it is made inside.
        let run = AssertUnwindSafe(async move { handler.run(context).await });
        let ended = run.catch_unwind().map(|answer| match answer {
            Ok(Ok(outcome)) => Ended::Outcome(Box::new(outcome)),
            Ok(Err(error)) => Ended::Error(error),
            Err(_panic) => Ended::Panicked,
        });
        Self {
            id,
            reports,
            work: Some(ended.boxed()),
            ended: None,
            spending,
        }
    }

    /// Its next report, or its end. Reports that were made before the end come before it.
    fn poll_wake(&mut self, is_heard: bool, cx: &mut Waking<'_>) -> Poll<Wake> {
        loop {
            if is_heard {
                if let Poll::Ready(Some(progress)) = self.reports.poll_next_unpin(cx) {
                    return Poll::Ready(Wake::Report(progress));
                }
                if let Some(ended) = self.ended.take() {
                    let over = self.spending.over();
                    let ended = over.map_or(ended, Ended::OverBudget);
                    return Poll::Ready(Wake::Ran(self.id, ended));
                }
            }
            let Some(work) = &mut self.work else {
                return Poll::Pending;
            };
            match work.poll_unpin(cx) {
                Poll::Ready(ended) => {
                    self.work = None;
                    self.ended = Some(ended);
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

/// Wakes after which a driver yields, whatever is ready.
const YIELD_AFTER: u32 = 32;
