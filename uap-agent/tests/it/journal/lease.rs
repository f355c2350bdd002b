//! Leases, and calls whose outcome is unknown.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use futures::channel::oneshot;
use futures::executor::block_on;
use futures::future::{BoxFuture, FutureExt};
use uap_agent::engine::{self, EngineConfig};
use uap_agent::journal::recorder::{Input, Output};
use uap_agent::journal::{
    Journal, JournalError, JournalFuture, MemoryJournal, Ownership, Recording, UnknownOutcome,
};
use uap_agent::{
    Agent, AgentOptions, AgentStreamResult, LoopOptions, RunScope, Runtime, agent, tool_loop,
};
use ubos_common::driver::Sleep;
use ubos_common::id::IdSource;
use ubos_common::json::RawObject;
use ubos_common::time::{Mono, Now, Timestamp};
use upp::{ErrorCode, FnTool, LlmRequest, Message, Reply, ScriptedModel, Tool, json_text, object};

/// A clock that is set by hand. Its sleepers wake at once when it is past their deadline.
#[derive(Clone, Default)]
pub(crate) struct Hand(Arc<AtomicU64>);

impl Hand {
    pub(crate) fn advance(&self, span: Duration) {
        self.0
            .fetch_add(u64::try_from(span.as_nanos()).unwrap(), Ordering::Relaxed);
    }
}

impl Hand {
    pub(crate) fn passed(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

impl Sleep for Hand {
    fn now(&self) -> Now {
        let nanos = self.0.load(Ordering::Relaxed);
        let wall = Timestamp::EPOCH.saturating_add(Duration::from_nanos(nanos));
        Now::new(Mono::from_nanos(nanos), wall)
    }
    fn sleep_until(&self, deadline: Mono) -> BoxFuture<'static, ()> {
        let clock = self.clone();
        Box::pin(futures::future::poll_fn(move |_| {
            match clock.now().mono >= deadline {
                true => std::task::Poll::Ready(()),
                false => std::task::Poll::Pending,
            }
        }))
    }
}

/// What a tool saw of its calls: the key, and whether the call is repeated.
pub(crate) type Seen = Arc<Mutex<Vec<(String, bool)>>>;

/// Pays; the gate of a call holds it up.
pub(crate) fn pay(seen: &Seen, gate: Option<oneshot::Receiver<()>>) -> Arc<dyn Tool> {
    let (seen, gate) = (seen.clone(), Mutex::new(gate));
    let run = move |_, context: upp::ToolContext| {
        let scope = context.extensions.get::<RunScope>().unwrap();
        let call = (scope.idempotency_key(), scope.call().is_repeated);
        seen.lock().unwrap().push(call);
        let gate = gate.lock().unwrap().take();
        async move {
            if let Some(gate) = gate {
                let _ = gate.await;
            }
            Ok(json_text("paid"))
        }
    };
    Arc::new(FnTool::new("pay", "", object("{}").unwrap(), run))
}

/// Calls the tool twice, one call after the other, and repeats what it was told.
fn reply(request: &LlmRequest) -> Option<Reply> {
    let results: Vec<_> = request
        .messages
        .iter()
        .filter_map(|message| match message {
            Message::ToolResult(result) => Some(result.results[0].text().to_string()),
            _ => None,
        })
        .collect();
    Some(match results.len() {
        n @ 0..2 => Reply::default().calling(format!("c{n}"), "pay", object(r#"{"sum":5}"#).ok()?),
        _ => Reply::text(results.join(", ")),
    })
}

pub(crate) fn paying(clock: &Hand, tool: Arc<dyn Tool>) -> AgentOptions {
    AgentOptions::new(Arc::new(ScriptedModel::with(reply)))
        .with_tools([tool])
        .with_runtime(Runtime::new(Arc::new(clock.clone()), IdSource::seeded(5)))
}

/// A run whose first call never ends, and whose process is gone.
fn killed(options: AgentOptions) -> Arc<MemoryJournal> {
    let journal = Arc::new(MemoryJournal::default());
    let agent = agent(options).unwrap();
    let mut run = agent.record(journal.clone(), "go", &agent.initial_state());
    while run.next().now_or_never().flatten().is_some() {}
    drop(run);
    journal
}

fn stuck(seen: &Seen) -> (Arc<dyn Tool>, oneshot::Sender<()>) {
    let (open, gate) = oneshot::channel();
    (pay(seen, Some(gate)), open)
}

pub(crate) fn resumed(agent: &Agent, journal: &Arc<MemoryJournal>) -> String {
    let run = block_on(agent.resume(journal.clone())).unwrap();
    block_on(run.result()).unwrap().turn.response.text()
}

// spec: UAP-12-5
#[test]
fn a_run_whose_lease_has_not_ended_is_not_taken_over() {
    let (clock, seen) = (Hand::default(), Seen::default());
    let term = Duration::from_secs(30);
    let (tool, _open) = stuck(&seen);
    let first = paying(&clock, tool).with_ownership(Ownership::new("first").with_term(term));
    let journal = killed(first);
    let before = block_on(journal.read()).unwrap();
    let lease = block_on(Recording::load(journal.as_ref())).unwrap().lease();
    assert_eq!((lease.epoch, &*lease.owner), (1, "first"));
    assert_eq!(lease.until, Some(Timestamp::EPOCH.saturating_add(term)));

    let owner = Ownership::new("second").with_term(term);
    let second = agent(paying(&clock, pay(&seen, None)).with_ownership(owner.clone())).unwrap();
    clock.advance(term - Duration::from_nanos(1));
    let refused = block_on(second.resume(journal.clone())).unwrap_err();
    assert_eq!(refused, JournalError::Leased { lease });
    assert!(
        refused
            .to_string()
            .contains("\"first\" (epoch 1) until 1970-01-01T00:00:30"),
        "{refused}"
    );
    assert_eq!(block_on(journal.read()).unwrap(), before);

    // By force, or once it has ended.
    let forced = paying(&clock, pay(&seen, None)).with_ownership(owner.with_force(true));
    assert!(block_on(agent(forced).unwrap().resume(journal.clone())).is_ok());
    clock.advance(Duration::from_nanos(1));
    assert_eq!(resumed(&second, &journal), "paid, paid");
    let lease = block_on(Recording::load(journal.as_ref())).unwrap().lease();
    assert_eq!((lease.epoch, &*lease.owner), (2, "second"));
}

// spec: UAP-12-5
#[test]
fn nothing_that_the_life_before_writes_is_taken() {
    let (clock, seen) = (Hand::default(), Seen::default());
    let (tool, open) = stuck(&seen);
    let journal = Arc::new(MemoryJournal::default());
    let first = agent(paying(&clock, tool)).unwrap();
    let mut run = first.record(journal.clone(), "go", &first.initial_state());
    while run.next().now_or_never().flatten().is_some() {}

    let second = agent(paying(&clock, pay(&seen, None))).unwrap();
    assert_eq!(resumed(&second, &journal), "paid, paid");
    let whole = block_on(journal.read()).unwrap();
    // The first process goes on as if nothing had happened.
    open.send(()).unwrap();
    let error = block_on(run.result()).unwrap_err();
    let cause = error.error.cause.as_ref().unwrap().downcast_ref();
    let Some(JournalError::Superseded { epoch: 1, by }) = cause else {
        panic!("{error:?}");
    };
    assert_eq!((by.epoch, &*by.owner), (2, second.id()));
    assert_eq!(block_on(journal.read()).unwrap(), whole);
    assert_eq!(seen.lock().unwrap().len(), 3);
}

#[test]
fn a_term_of_nothing_is_refused() {
    let owner = Ownership::new("first").with_term(Duration::ZERO);
    let options = paying(&Hand::default(), pay(&Seen::default(), None)).with_ownership(owner);
    let refused = agent(options).unwrap_err().to_string();
    assert!(refused.contains("term is 0ns"), "{refused}");
}

// spec: UAP-12-5
#[test]
fn a_run_that_waits_renews_its_lease() {
    let (clock, seen) = (Hand::default(), Seen::default());
    let term = Duration::from_secs(30);
    let (tool, open) = stuck(&seen);
    let options = paying(&clock, tool).with_ownership(Ownership::new("first").with_term(term));
    let journal = Arc::new(MemoryJournal::default());
    let agent = agent(options).unwrap();
    let mut run = agent.record(journal.clone(), "go", &agent.initial_state());
    let mut poll = || while run.next().now_or_never().flatten().is_some() {};
    poll();
    let entries = |journal: &MemoryJournal| block_on(journal.read()).unwrap().len();
    let before = entries(&journal);
    for n in 1..=10 {
        clock.advance(term / 3);
        poll();
        poll();
        assert_eq!(entries(&journal), before + n);
        let lease = block_on(Recording::load(journal.as_ref())).unwrap().lease();
        assert_eq!(lease.until, Some(clock.now().wall.saturating_add(term)));
    }
    clock.advance(Duration::from_secs(1));
    open.send(()).unwrap();
    assert_eq!(
        block_on(run.result()).unwrap().turn.response.text(),
        "paid, paid"
    );
    // What a run writes renews its lease, too.
    let recording = block_on(Recording::load(journal.as_ref())).unwrap();
    let until = clock.now().wall.saturating_add(term);
    assert_eq!(recording.lease().until, Some(until));
    // Renewals say nothing of the run.
    assert!(
        recording
            .to_entries()
            .iter()
            .all(|entry| !entry.as_str().contains("lease"))
    );
    assert!(agent.replay(&recording).unwrap().result.is_some());
}

// spec: UAP-12-5
#[test]
fn a_policy_decides_about_a_call_whose_outcome_is_unknown() {
    for (policy, wanted, calls) in [
        (UnknownOutcome::AskAgain, "paid, paid", 3),
        (
            UnknownOutcome::Fail,
            "the outcome of this call is unknown: the process ended while the tool ran, paid",
            2,
        ),
    ] {
        let (clock, seen) = (Hand::default(), Seen::default());
        let (tool, _open) = stuck(&seen);
        let journal = killed(paying(&clock, tool));
        let ownership = Ownership::default().with_unknown_of("pay", policy);
        let options = paying(&clock, pay(&seen, None)).with_ownership(ownership);
        let second = agent(options).unwrap();
        assert_eq!(resumed(&second, &journal), wanted);
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), calls);
        let (first, last) = (&seen[0], &seen[calls - 1]);
        assert!(!first.1 && !last.1 && first.0.len() == 64);
        assert_ne!(first.0, last.0, "the second call is another");
        if calls == 3 {
            assert_eq!(seen[1], (first.0.clone(), true));
        }
        // What the policy decided is recorded as any result.
        let recording = block_on(Recording::load(journal.as_ref())).unwrap();
        assert!(second.replay(&recording).unwrap().result.unwrap().is_ok());
    }
}

/// A journal that others reach beside a living owner, and that may not answer.
#[derive(Default)]
struct Shared {
    kept: MemoryJournal,
    /// From which place on writes are not answered.
    silent_from: AtomicU64,
}

impl Shared {
    fn silent_from(place: u64) -> Arc<Self> {
        let shared = Self::default();
        shared.silent_from.store(place, Ordering::Relaxed);
        Arc::new(shared)
    }
}

impl Journal for Shared {
    fn append(&self, first: u64, entries: Vec<RawObject>) -> JournalFuture<'_, ()> {
        match first >= self.silent_from.load(Ordering::Relaxed) {
            true => Box::pin(core::future::pending()),
            false => self.kept.append(first, entries),
        }
    }
    fn read(&self) -> JournalFuture<'_, Vec<RawObject>> {
        self.kept.read()
    }
}

/// A journal that refuses one write.
struct RefusesOne(MemoryJournal, AtomicU64);

impl Journal for RefusesOne {
    fn append(&self, first: u64, entries: Vec<RawObject>) -> JournalFuture<'_, ()> {
        match self.1.fetch_sub(1, Ordering::Relaxed) {
            1 => Box::pin(core::future::ready(Err(JournalError::Failed(
                "full".into(),
            )))),
            _ => self.0.append(first, entries),
        }
    }
    fn read(&self) -> JournalFuture<'_, Vec<RawObject>> {
        self.0.read()
    }
}

// spec: UAP-12-5
#[test]
fn what_could_not_be_written_is_not_done() {
    let mut writes = 1;
    loop {
        let (clock, seen) = (Hand::default(), Seen::default());
        let journal = Arc::new(RefusesOne(MemoryJournal::default(), AtomicU64::new(writes)));
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let model = ScriptedModel::with(move |request| {
            counted.fetch_add(1, Ordering::Relaxed);
            reply(request)
        });
        let options = paying(&clock, pay(&seen, None));
        let options = options.map_llm(|llm| llm.with_model(Arc::new(model)));
        let agent = agent(options).unwrap();
        let run = agent.record(journal.clone(), "go", &agent.initial_state());
        let ended = block_on(run.result());
        let entries = block_on(journal.read()).unwrap();
        let recorded = |kind: &str| {
            let kind = format!(r#""kind":"{kind}""#);
            let is = |entry: &&RawObject| entry.as_str().contains(&kind);
            entries.iter().filter(is).count()
        };
        let asked = asked.load(Ordering::Relaxed);
        assert!(
            asked <= recorded("infer"),
            "write {writes}: {asked} requests"
        );
        let paid = seen.lock().unwrap().len();
        assert!(paid <= recorded("tool"), "write {writes}: {paid} payments");
        // The last of all writes is that of the end.
        if ended.is_ok() {
            break;
        }
        writes += 1;
    }
    assert!(writes > 5, "{writes}");
}

// spec: UAP-12-5
#[test]
fn a_living_run_is_not_taken_over_by_default() {
    let (clock, seen) = (Hand::default(), Seen::default());
    let (tool, open) = stuck(&seen);
    let journal = Shared::silent_from(u64::MAX);
    let first = agent(paying(&clock, tool)).unwrap();
    let mut run = first.record(journal.clone(), "go", &first.initial_state());
    let mut poll = || while run.next().now_or_never().flatten().is_some() {};
    poll();
    let second = agent(paying(&clock, pay(&seen, None))).unwrap();
    // It lives, and says so.
    for _ in 0..10 {
        clock.advance(Duration::from_secs(20));
        poll();
        poll();
        let refused = block_on(second.resume(journal.clone())).unwrap_err();
        assert!(matches!(refused, JournalError::Leased { .. }), "{refused}");
    }
    assert_eq!(seen.lock().unwrap().len(), 1);
    // Who says so takes it over all the same.
    let owner = Ownership::default().with_force(true);
    let forced = agent(paying(&clock, pay(&seen, None)).with_ownership(owner)).unwrap();
    assert!(block_on(forced.resume(journal.clone())).is_ok());
    // Its process is gone.
    drop((run, open));
    clock.advance(Duration::from_secs(60));
    let run = block_on(second.resume(journal)).unwrap();
    assert!(block_on(run.result()).is_ok());

    // Where there shall be no term, there is none.
    let (tool, _open) = stuck(&seen);
    let journal = Shared::silent_from(u64::MAX);
    let options = paying(&clock, tool).with_ownership(Ownership::default().without_term());
    let first = agent(options).unwrap();
    let mut run = first.record(journal.clone(), "go", &first.initial_state());
    while run.next().now_or_never().flatten().is_some() {}
    let lease = block_on(Recording::load(journal.as_ref())).unwrap().lease();
    assert_eq!(lease.until, None);
}

// spec: UAP-12-5
#[test]
fn of_two_that_take_a_run_over_at_once_one_is_told_of_the_other() {
    let (clock, seen) = (Hand::default(), Seen::default());
    let (tool, _open) = stuck(&seen);
    let journal = killed(paying(&clock, tool));
    let take = |name: &str| {
        let options = paying(&clock, pay(&seen, None));
        let agent = agent(options.with_ownership(Ownership::new(name))).unwrap();
        block_on(agent.resume(journal.clone())).unwrap()
    };
    let (one, other) = (take("one"), take("other"));
    assert!(block_on(one.result()).is_ok());
    let calls = seen.lock().unwrap().len();
    let error = block_on(other.result()).unwrap_err();
    let cause = error.error.cause.as_ref().unwrap().downcast_ref();
    let Some(JournalError::Superseded { epoch: 2, by }) = cause else {
        panic!("{error:?}");
    };
    assert_eq!((by.epoch, &*by.owner), (2, "one"));
    assert_eq!(seen.lock().unwrap().len(), calls);
}

/// Whether a run has ended, as far as it comes by itself.
fn has_ended(run: &mut AgentStreamResult) -> bool {
    while let Some(event) = run.next().now_or_never() {
        if event.is_none() {
            return true;
        }
    }
    false
}

// spec: UAP-12-5
#[test]
fn a_run_whose_journal_does_not_answer_is_ended_by_an_abort() {
    let (clock, seen) = (Hand::default(), Seen::default());
    let grace = Duration::from_secs(10);
    // How many writes a whole run has.
    let whole = Shared::silent_from(u64::MAX);
    let agent =
        agent(paying(&clock, pay(&seen, None)).with_max_time(Duration::from_secs(60))).unwrap();
    block_on(
        agent
            .record(whole.clone(), "go", &agent.initial_state())
            .result(),
    )
    .unwrap();
    let places = block_on(whole.read()).unwrap().len() as u64;
    for place in 0..places {
        for code in [ErrorCode::Cancelled, ErrorCode::Timeout] {
            let journal = Shared::silent_from(place);
            let mut run = agent.record(journal.clone(), "go", &agent.initial_state());
            if has_ended(&mut run) {
                // The place is in the middle of the last write.
                continue;
            }
            match code {
                ErrorCode::Timeout => clock.advance(Duration::from_secs(60)),
                _ => run.abort(),
            }
            assert!(!has_ended(&mut run));
            clock.advance(grace - Duration::from_nanos(1));
            assert!(!has_ended(&mut run), "{place}");
            clock.advance(Duration::from_nanos(1));
            assert!(has_ended(&mut run), "{place}: it waits for the journal");
            let error = block_on(run.result()).unwrap_err().error;
            assert_eq!(error.code, code);
            let cause = error.cause.as_ref().unwrap().downcast_ref();
            assert_eq!(cause, Some(&JournalError::NoAnswer));
        }
    }
}

// spec: UAP-12-5
#[test]
fn an_abort_while_the_end_is_written_leaves_a_journal_that_can_be_read() {
    let (clock, seen) = (Hand::default(), Seen::default());
    let agent = agent(paying(&clock, pay(&seen, None))).unwrap();
    let whole = Shared::silent_from(u64::MAX);
    let run = agent.record(whole.clone(), "go", &agent.initial_state());
    let wanted = block_on(run.result()).unwrap();
    let entries = block_on(whole.read()).unwrap();
    let (now, config) = (
        clock.now(),
        EngineConfig::new(
            agent.llm().clone(),
            tool_loop(LoopOptions::default()).unwrap(),
        ),
    );
    // Everything but the end is recorded, which is written once the run is taken over.
    let cut = Recording::from_entries(&entries[..entries.len() - 1]).unwrap();
    let owner = Ownership::default().with_force(true);
    let mut recorder = cut.resume(now, &config, &owner).unwrap();
    let Some(Output::Write(first, written)) = recorder.poll_output() else {
        panic!("it takes the run over");
    };
    assert!(written.last().unwrap().as_str().contains(r#""end""#));
    recorder
        .handle_input(now, Input::Engine(engine::Input::Abort))
        .unwrap();
    recorder.handle_input(now, Input::Written(Ok(()))).unwrap();
    let mut result = None;
    while let Some(output) = recorder.poll_output() {
        match output {
            Output::Write(first, _) => panic!("written behind the end, at {first}"),
            Output::Engine(output) => {
                if let engine::Output::Finished(finished) = *output {
                    result = Some(finished);
                }
            }
            _ => {}
        }
    }
    assert_eq!(first, entries.len() as u64 - 1);
    assert_eq!(result.unwrap().unwrap(), wanted);
}

// spec: UAP-12-5
#[test]
fn two_calls_that_a_model_numbers_alike_have_keys_of_their_own() {
    let (clock, seen) = (Hand::default(), Seen::default());
    let twice = |request: &LlmRequest| {
        let call = |reply: Reply| Some(reply.calling("c", "pay", object(r#"{"sum":5}"#).ok()?));
        match request.messages.len() {
            1 => call(call(Reply::default())?),
            _ => Some(Reply::text("done")),
        }
    };
    let options = || {
        let options = paying(&clock, pay(&seen, None));
        options.map_llm(|llm| llm.with_model(Arc::new(ScriptedModel::with(twice))))
    };
    let journal = Arc::new(MemoryJournal::default());
    let first = agent(options()).unwrap();
    let run = first.record(journal.clone(), "go", &first.initial_state());
    block_on(run.result()).unwrap();
    let keys = core::mem::take(&mut *seen.lock().unwrap());
    assert_eq!(keys.len(), 2);
    assert_ne!(keys[0].0, keys[1].0);
    // Called again, each has the key that it had.
    let entries = block_on(journal.read()).unwrap();
    let calls = entries
        .iter()
        .position(|entry| entry.as_str().contains(r#""tool":{"#))
        .unwrap();
    let cut = Arc::new(MemoryJournal::default());
    block_on(cut.append(0, entries[..calls].to_vec())).unwrap();
    assert_eq!(resumed(&agent(options()).unwrap(), &cut), "done");
    let again = seen.lock().unwrap();
    let of =
        |calls: &[(String, bool)]| calls.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>();
    assert_eq!(of(&again), of(&keys));
}

// spec: UAP-12-5
#[test]
fn a_call_that_a_model_makes_again_later_has_a_key_of_its_own() {
    let seen = Seen::default();
    let again = || Reply::default().calling("c", "pay", object("{}").unwrap());
    let model = ScriptedModel::new([again(), again(), Reply::text("done")]);
    let options =
        paying(&Hand::default(), pay(&seen, None)).map_llm(|llm| llm.with_model(Arc::new(model)));
    block_on(agent(options).unwrap().query("go")).unwrap();
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 2);
    assert_ne!(seen[0].0, seen[1].0);
}
