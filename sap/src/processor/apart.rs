//! The machine of a run, and what it works on apart.

use core::task::{Context as Waking, Poll};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use ubos_common::driver::Sleep;
use ubos_common::time::Now;

use super::left::{Left, SharedMachine};
use crate::role::consumer::{Input, ReceivedTask};
use crate::work::{self, For};

/// A machine to which some inputs are given on another thread, when it is their turn there. Until one is, its run may take
/// the machine back and go on.
pub(super) struct Workbench {
    machine: Arc<SharedMachine>,
    clock: Arc<dyn Fn() -> Now + Send + Sync>,
    work: Option<Work>,
    /// What is given after that, in order: of a run that goes on there is one at most.
    next: VecDeque<Input>,
}

/// An input that is given on another thread.
struct Work {
    done: BoxFuture<'static, ()>,
    /// `None` once it is given, and while the run has it.
    input: Arc<Mutex<Option<Input>>>,
    /// While the run has the machine.
    held: Option<Input>,
}

impl Workbench {
    pub(super) fn new(machine: ReceivedTask, clock: impl Sleep + Send + Sync + 'static) -> Self {
        Self {
            machine: Arc::new(SharedMachine::new(machine)),
            clock: Arc::new(move || clock.now()),
            work: None,
            next: VecDeque::new(),
        }
    }

    /// Gives the machine an input on another thread. It may have to wait for its turn, so what time it is is seen then.
    // impl: SAP-5-8
    pub(super) fn give(&mut self, input: Input) {
        if self.work.is_some() {
            return self.next.push_back(input);
        }
        let input = Arc::new(Mutex::new(Some(input)));
        let given = Arc::clone(&input);
        let (machine, clock) = (Arc::clone(&self.machine), Arc::clone(&self.clock));
        let work = work::apart(For::Task, move || {
            if let Some(input) = taken(&given) {
                machine.work(|machine| drop(machine.handle_input(clock(), input)));
            }
        });
        self.work = Some(Work {
            done: work.boxed(),
            input,
            held: None,
        });
    }

    /// Ready when an input has been given. A panic of the machine comes back here.
    pub(super) fn poll_given(&mut self, cx: &mut Waking<'_>) -> Poll<()> {
        loop {
            let Some(work) = &mut self.work else {
                return Poll::Pending;
            };
            if work.done.poll_unpin(cx).is_pending() {
                return Poll::Pending;
            }
            // Its turn came while the run had the machine, so it waits for another.
            let missed = work.held.take().or_else(|| taken(&work.input));
            let was_given = missed.is_none();
            self.work = None;
            if let Some(input) = missed.or_else(|| self.next.pop_front()) {
                self.give(input);
            }
            if was_given {
                return Poll::Ready(());
            }
        }
    }

    /// Whether something is given, or waits for its turn.
    pub(super) const fn is_at_work(&self) -> bool {
        self.work.is_some()
    }

    /// Takes the machine; false where it is at work.
    pub(super) fn hold(&mut self) -> bool {
        let Some(work) = &mut self.work else {
            return true;
        };
        if work.held.is_none() {
            work.held = taken(&work.input);
        }
        work.held.is_some()
    }

    /// Gives the machine back to the one that works on it.
    pub(super) fn release(&mut self) {
        if let Some(work) = &mut self.work
            && let Some(input) = work.held.take()
        {
            *slot(&work.input) = Some(input);
        }
    }

    /// The machine, for one that holds it.
    pub(super) fn machine(&self) -> MutexGuard<'_, ReceivedTask> {
        self.machine.machine()
    }

    /// Ends a run that is dropped.
    pub(super) fn leave(&self, now: Now, left: impl FnOnce() -> Left) {
        self.machine.leave(now, left);
    }

    #[cfg(test)]
    pub(super) fn shared(&self) -> Arc<SharedMachine> {
        Arc::clone(&self.machine)
    }
}

fn slot(input: &Mutex<Option<Input>>) -> MutexGuard<'_, Option<Input>> {
    input.lock().unwrap_or_else(PoisonError::into_inner)
}

fn taken(input: &Mutex<Option<Input>>) -> Option<Input> {
    slot(input).take()
}

#[cfg(test)]
mod tests {
    use core::future::Future as _;
    use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use core::task::Waker;
    use core::time::Duration;

    use futures::executor::block_on;
    use futures::future::poll_fn;
    use ubos_common::json::{RawBuf, RawObject};
    use ubos_common::time::{Mono, Timestamp};

    use super::super::fixture::{self, Still};
    use super::super::{
        AllowAll, Answer, Config, Context, HandlerError, Outcome, Processor, Progress,
    };
    use super::*;
    use crate::result::{Producer, ProducerKind, TaskResult};
    use crate::role::consumer;
    use crate::status::Status;
    use crate::store::MemoryTranscript;
    use crate::work::HEAVY;
    use crate::work::tests::Busy;

    /// A clock that a test sets. It wakes nobody.
    #[derive(Clone)]
    struct Set(Arc<Mutex<Now>>);

    impl Set {
        fn start() -> Self {
            Self(Arc::new(Mutex::new(Now::new(Mono::ZERO, Timestamp::EPOCH))))
        }

        fn pass(&self, seconds: u64) {
            let mut now = self.0.lock().unwrap();
            *now = now.plus(Duration::from_secs(seconds));
        }
    }

    impl Sleep for Set {
        fn now(&self) -> Now {
            *self.0.lock().unwrap()
        }

        fn sleep_until(&self, deadline: Mono) -> BoxFuture<'static, ()> {
            let clock = self.clone();
            Box::pin(poll_fn(move |_| match clock.now().mono >= deadline {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }))
        }
    }

    const TASK_ID: &str = "00000000-0000-0000-0000-000000000001";
    const TASK: &str = r#"{"protocolVersion":"2.0","taskId":"00000000-0000-0000-0000-000000000001","correlationId":"00000000-0000-0000-0000-000000000002","issuedAt":"1970-01-01T00:00:00Z","issuer":{"agentId":"A-prime","agentKind":"agent"},"target":{"capability":"text.long"},"constitutionalContext":{"pressureLevel":"deliberated","principles":["care"]},"payload":{},"telemetry":{"deadline":"1970-01-01T00:00:10Z"}}"#;

    /// What becomes of a task whose output is long: `meanwhile` all others are at work.
    fn ended(meanwhile: impl FnOnce(&Set, &mut dyn FnMut() -> bool)) -> TaskResult {
        let producer = Producer::new("A-1".parse().unwrap(), ProducerKind::Agent);
        let transcript = Arc::new(MemoryTranscript::default());
        let processor = Processor::new(producer, Arc::new(AllowAll), transcript, Config::default())
            .unwrap()
            .handle("text.long".parse().unwrap(), |_: Context| async {
                let text = format!("\"{}\"", "long ".repeat(HEAVY / 4));
                Ok(Outcome::new(RawBuf::parse(&text).unwrap()))
            });
        let clock = Set::start();
        let mut sink = |_: super::super::Delivery<'_>| {};
        let mut run = Box::pin(processor.process(&clock, TASK.as_bytes(), &mut sink));
        let mut answer = None;
        let mut poll = || {
            let mut waking = Waking::from_waker(Waker::noop());
            if answer.is_none()
                && let Poll::Ready(ended) = run.poll_unpin(&mut waking)
            {
                answer = Some(ended);
            }
            answer.is_some()
        };
        let busy = Busy::all();
        // It gives way to others on its way to where it waits.
        (0..100).for_each(|_| assert!(!poll()));
        meanwhile(&clock, &mut poll);
        drop(busy);
        while !poll() {
            std::thread::yield_now();
        }
        match answer.unwrap().unwrap() {
            Answer::Result(result) => *result,
            other => panic!("{other:?}"),
        }
    }

    // spec: SAP-5-8
    #[test]
    fn a_deadline_that_passes_while_the_threads_are_busy_ends_the_task_at_once() {
        let result = ended(|clock, poll| {
            clock.pass(11);
            while !poll() {
                std::thread::yield_now();
            }
        });
        assert_eq!(result.status, Status::Failed);
        assert_eq!(result.error_code(), Some(&crate::ErrorCode::Timeout));
    }

    // spec: SAP-5-8
    #[test]
    fn a_deadline_that_passes_before_its_turn_is_seen_at_its_turn() {
        let result = ended(|clock, _| clock.pass(11));
        assert_eq!(result.error_code(), Some(&crate::ErrorCode::Timeout));
    }

    // spec: SAP-5-3
    #[test]
    fn reports_are_told_while_their_handler_never_rests() {
        static TOLD: AtomicUsize = AtomicUsize::new(0);
        const REPORTS: usize = 20;
        let producer = Producer::new("A-1".parse().unwrap(), ProducerKind::Agent);
        let transcript = Arc::new(MemoryTranscript::default());
        let processor = Processor::new(producer, Arc::new(AllowAll), transcript, Config::default())
            .unwrap()
            .handle("text.long".parse().unwrap(), |mut cx: Context| async move {
                for told in 0..REPORTS {
                    let output = RawBuf::parse("1").unwrap();
                    cx.report(Progress::running(Some(output))).await;
                    while TOLD.load(Ordering::Relaxed) <= told {
                        std::thread::sleep(Duration::from_millis(1));
                        crate::future::yield_once().await;
                    }
                }
                Ok(Outcome::new(RawBuf::parse("2").unwrap()))
            });
        let text = format!(r#""payload":{{"text":"{}"}}"#, "long ".repeat(HEAVY / 4));
        let task = TASK.replace(r#""payload":{}"#, &text);
        let mut sink = |delivery: super::super::Delivery<'_>| {
            if let super::super::Delivery::Result(result) = delivery
                && result.output.is_some()
            {
                TOLD.fetch_add(1, Ordering::Relaxed);
            }
        };
        let clock = Set::start();
        let run = || block_on(processor.process(&clock, task.as_bytes(), &mut sink)).unwrap();
        let (answer, handed_over) = work::handed_over(run);
        assert!(matches!(answer, Answer::Result(result) if result.status == Status::Succeeded));
        // Each has one turn when it comes and one when it is judged. So has the outcome, and the task when it is read.
        assert_eq!(handed_over, 2 * REPORTS + 3);
    }

    /// What a handler reports and says, of which one part is long.
    type Says = fn(RawObject) -> (Option<Progress>, Result<Outcome, HandlerError>);

    /// How often work is handed over while a handler says something long in one of its parts.
    fn handed_over(says: Says) -> usize {
        handed_over_with(HEAVY + 1, says)
    }

    /// The same for so many bytes of it.
    fn handed_over_with(bytes: usize, says: Says) -> usize {
        let transcript = Arc::new(MemoryTranscript::default());
        let handler = move |mut cx: Context| async move {
            let text = format!(r#"{{"long":"{}"}}"#, "x".repeat(bytes - 11));
            let (part, said) = says(RawObject::new(RawBuf::parse(&text)?).ok_or("no object")?);
            if let Some(part) = part {
                cx.report(part).await;
            }
            said
        };
        let processor = fixture::processor(transcript, Config::default());
        let processor = processor.handle("text.echo".parse().unwrap(), handler);
        let mut sink = |_: super::super::Delivery<'_>| {};
        let run = || block_on(processor.process(&Still, fixture::TASK.as_bytes(), &mut sink));
        let (answer, times) = work::handed_over(run);
        assert!(matches!(answer, Ok(Answer::Result(result)) if result.status.is_terminal()));
        times
    }

    // spec: SAP-5-8
    #[test]
    fn whatever_part_of_what_a_handler_says_is_long_it_is_written_on_another_thread() {
        assert_eq!(handed_over(|_| (None, Ok(Outcome::default()))), 0);
        // The end of a task that has said something long is made there, too.
        for says in [
            |long| {
                let mut part = Progress::running(None);
                part.metrics = Some(long);
                (Some(part), Ok(Outcome::new(RawBuf::parse("1").unwrap())))
            },
            |long| {
                let part = Progress::partial(RawBuf::parse("1").unwrap(), vec![long]);
                (Some(part), Err(HandlerError::unprocessable("why")))
            },
        ] as [Says; 2]
        {
            assert!(handed_over(says) >= 2);
        }
        for says in [
            |long| {
                let mut outcome = Outcome::new(RawBuf::parse("1").unwrap());
                outcome.meta = Some(long);
                (None, Ok(outcome))
            },
            |long| {
                let mut outcome = Outcome::new(RawBuf::parse("1").unwrap());
                outcome.artifacts = Some(vec![long]);
                (None, Ok(outcome))
            },
            |long| {
                let citing = vec![long.as_str().to_owned()];
                (
                    None,
                    Ok(Outcome::new(RawBuf::parse("1").unwrap()).citing(citing)),
                )
            },
            |long| {
                let error = HandlerError::Failed {
                    code: crate::ErrorCode::Unprocessable,
                    message: "why".into(),
                    details: Some(long),
                };
                (None, Err(error))
            },
            |long| (None, Err(HandlerError::unprocessable(long.as_str()))),
            |long| {
                let error = HandlerError::Escalated {
                    message: "why".into(),
                    next_actions: vec![long],
                };
                (None, Err(error))
            },
        ] as [Says; 6]
        {
            assert_eq!(handed_over(says), 1);
        }
    }

    #[test]
    fn what_is_as_long_as_may_be_is_written_at_once() {
        let says: Says = |long| {
            let metrics = Some(long);
            let outcome = Outcome::default();
            (None, Ok(Outcome { metrics, ..outcome }))
        };
        let times = [HEAVY, HEAVY + 1].map(|bytes| handed_over_with(bytes, says));
        assert_eq!(times, [0, 1]);
    }

    /// A clock at which a thread that works apart stops the second time, until it may go on.
    #[derive(Clone, Default)]
    struct Gate(Arc<(AtomicUsize, AtomicBool)>);

    impl Sleep for Gate {
        fn now(&self) -> Now {
            let (works, may_go_on) = &*self.0;
            if std::thread::current().name() == Some("sap-work")
                && works.fetch_add(1, Ordering::SeqCst) == 1
            {
                while !may_go_on.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
            }
            Still.now()
        }

        fn sleep_until(&self, deadline: Mono) -> BoxFuture<'static, ()> {
            Still.sleep_until(deadline)
        }
    }

    // spec: SAP-5-8
    #[test]
    fn a_cancel_that_comes_while_the_machine_is_at_work_is_heard() {
        let transcript = Arc::new(MemoryTranscript::default());
        let reports = |mut cx: Context| async move {
            let text = format!("\"{}\"", "long ".repeat(HEAVY / 4));
            let long = RawBuf::parse(&text).ok();
            cx.report(Progress::running(long)).await;
            cx.stopped().await;
            Err::<Outcome, _>(HandlerError::unprocessable("stopped"))
        };
        let processor = fixture::processor(transcript, Config::default());
        let processor = processor.handle("text.echo".parse().unwrap(), reports);
        let clock = Gate::default();
        let (works, may_go_on) = &*clock.0;
        let mut sink = |_: super::super::Delivery<'_>| {};
        let mut run = Box::pin(processor.process(&clock, fixture::TASK.as_bytes(), &mut sink));
        let mut poll = || {
            std::thread::yield_now();
            run.as_mut().poll(&mut Waking::from_waker(Waker::noop()))
        };
        // The report is at work, and then its verdict.
        while works.load(Ordering::SeqCst) < 2 {
            assert!(poll().is_pending());
        }
        let (issuer, task_id) = ("A-prime".parse().unwrap(), TASK_ID.parse().unwrap());
        assert!(processor.cancel(&issuer, &task_id));
        assert!(poll().is_pending());
        may_go_on.store(true, Ordering::SeqCst);
        // Far more often than it takes; a cancel that was lost would never end it.
        let ended = (0..30_000).find_map(|_| match poll() {
            Poll::Ready(ended) => Some(ended),
            Poll::Pending => {
                std::thread::sleep(Duration::from_millis(1));
                None
            }
        });
        let Answer::Result(result) = ended.expect("it is cancelled").unwrap() else {
            panic!("it was turned away");
        };
        assert_eq!(result.status, Status::Cancelled);
    }

    // spec: SAP-5-8
    #[test]
    fn what_had_its_turn_while_the_run_had_the_machine_has_another() {
        let producer = Producer::new("A-1".parse().unwrap(), ProducerKind::Agent);
        let config = consumer::Config::new(producer);
        let task = Arc::new(crate::samples::task());
        let mut bench = Workbench::new(ReceivedTask::new(Still.now(), task, config), Still);
        let busy = Busy::all();
        bench.give(Input::Shutdown);
        assert!(bench.hold());
        drop(busy);
        while bench.is_at_work() {
            let _ = bench.poll_given(&mut Waking::from_waker(Waker::noop()));
        }
        assert_eq!(bench.machine().stage(), consumer::Stage::Dismissed);
    }

    // spec: SAP-5-8
    #[test]
    fn a_result_is_dated_when_it_is_made() {
        let result = ended(|clock, poll| {
            clock.pass(4);
            assert!(!poll());
            clock.pass(5);
        });
        assert_eq!(result.status, Status::Succeeded);
        let made: Timestamp = "1970-01-01T00:00:09Z".parse().unwrap();
        assert_eq!(result.reported_at, made.into());
    }
}
