//! Calls that wait for a person.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use futures::channel::oneshot;
use futures::executor::block_on;
use futures::future::FutureExt;
use uap_agent::journal::{
    Decision, DecisionError, Journal, JournalError, JournalFuture, MemoryJournal, Ownership,
    Paused, Question, QuestionKind, Recording, UnknownOutcome, Verdict,
};
use uap_agent::{Agent, AgentOptions, ApprovalPolicy, ApprovalRequest, agent};
use ubos_common::driver::Sleep;
use ubos_common::json::{RawBuf, RawObject};
use upp::{FnTool, Reply, ScriptedModel, ToolCall, json_text, object};

use super::lease::{Hand, Seen, pay, paying, resumed};

pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// Payments are approved by Ann or Bob within an hour.
struct Payments;

impl ApprovalPolicy for Payments {
    fn request(&self, call: &ToolCall) -> Option<ApprovalRequest> {
        let request = ApprovalRequest::default()
            .with_expiry(HOUR)
            .with_persons(["ann", "bob"]);
        (&*call.tool_name == "pay").then_some(request)
    }
}

pub(crate) fn careful(clock: &Hand, seen: &Seen) -> AgentOptions {
    paying(clock, pay(seen, None)).with_approvals(Arc::new(Payments))
}

/// A run that has paused, and its question.
pub(super) fn paused(clock: &Hand, seen: &Seen) -> (Arc<MemoryJournal>, Question) {
    let journal = Arc::new(MemoryJournal::default());
    let agent = agent(careful(clock, seen)).unwrap();
    let run = agent.record(journal.clone(), "go", &agent.initial_state());
    let error = block_on(run.result()).unwrap_err();
    assert_eq!(error.error.code.as_str(), Paused::CODE);
    let question = Paused::of(&error.error).unwrap().questions[0].clone();
    (journal, question)
}

pub(super) fn decide(
    journal: &MemoryJournal,
    clock: &Hand,
    decision: &Decision,
) -> Result<(), DecisionError> {
    block_on(Recording::decide(journal, clock.now(), decision))
}

fn pauses(agent: &Agent, journal: &Arc<MemoryJournal>) -> Question {
    let run = block_on(agent.resume(journal.clone())).unwrap();
    let error = block_on(run.result()).unwrap_err();
    Paused::of(&error.error).unwrap().questions[0].clone()
}

// spec: UAP-12-5
#[test]
fn a_call_waits_for_its_approval_in_the_journal() {
    let (clock, seen) = (Hand::default(), Seen::default());
    let (journal, question) = paused(&clock, &seen);
    assert_eq!(
        (&*question.tool, &*question.call_id, question.kind),
        ("pay", "c0", QuestionKind::Approval)
    );
    assert_eq!(question.arguments, object(r#"{"sum":5}"#).unwrap());
    assert_eq!(
        question.expires,
        Some(clock.now().wall.saturating_add(HOUR))
    );
    assert_eq!(question.may_answer, ["ann", "bob"]);
    let recording = block_on(Recording::load(journal.as_ref())).unwrap();
    assert_eq!(recording.questions().first(), Some(&question));
    assert_eq!(recording.lease().until, None, "the lease is released");

    // Who resumes too early is told, and nothing changes.
    let other = agent(careful(&clock, &seen)).unwrap();
    let before = block_on(journal.read()).unwrap();
    let refused = block_on(other.resume(journal.clone())).unwrap_err();
    let JournalError::Paused(waiting) = &refused else {
        panic!("{refused}");
    };
    assert_eq!(waiting.questions.first(), Some(&question));
    assert_eq!(block_on(journal.read()).unwrap(), before);

    let approve = Decision::new(&question, "ann", Verdict::Approve);
    decide(&journal, &clock, &approve).unwrap();
    assert!(seen.lock().unwrap().is_empty());
    // The second call is another, and waits again.
    let second = pauses(&other, &journal);
    assert_eq!(&*second.call_id, "c1");
    assert_eq!(seen.lock().unwrap().len(), 1);
    let reject = Decision::new(&second, "bob", Verdict::Reject("too much".into()));
    decide(&journal, &clock, &reject).unwrap();
    assert_eq!(resumed(&other, &journal), "paid, rejected: too much");
    assert_eq!(seen.lock().unwrap().len(), 1);

    // The whole is in the journal: it replays, and is read back as it was written.
    let entries = block_on(journal.read()).unwrap();
    let recording = Recording::from_entries(&entries).unwrap();
    assert!(other.replay(&recording).unwrap().result.unwrap().is_ok());
    assert!(matches!(
        decide(&journal, &clock, &approve).unwrap_err(),
        DecisionError::Over { effect } if effect == question.effect
    ));
}

// spec: UAP-12-5
#[test]
fn nobody_has_a_lease_with_a_term_in_a_copy() {
    let (clock, seen) = (Hand::default(), Seen::default());
    let term = Ownership::new("first").with_term(HOUR);
    let first = agent(careful(&clock, &seen).with_ownership(term)).unwrap();
    let journal = Arc::new(MemoryJournal::default());
    let run = first.record(journal.clone(), "go", &first.initial_state());
    let question = Paused::of(&block_on(run.result()).unwrap_err().error)
        .unwrap()
        .questions[0]
        .clone();
    decide(
        &journal,
        &clock,
        &Decision::new(&question, "ann", Verdict::Approve),
    )
    .unwrap();
    pauses(&first, &journal);
    let entries = block_on(journal.read()).unwrap();
    let leases = entries
        .iter()
        .enumerate()
        .filter(|(_, entry)| entry.as_str().contains(r#""lease""#));
    let places: Vec<_> = leases.map(|(place, _)| place).collect();
    // The release, that of who took it over, and that behind the approval, which says that the call may have started.
    assert!(places.len() >= 3);
    for place in places {
        let recording = Recording::from_entries(&entries[..=place]).unwrap();
        let copied = recording.to_entries();
        assert!(
            copied
                .iter()
                .all(|entry| !entry.as_str().contains("termMs")),
            "{copied:?}"
        );
        assert_eq!(
            Recording::from_entries(&copied).unwrap().lease().until,
            None
        );
    }
}

// spec: UAP-12-5
#[test]
fn a_lease_that_is_released_while_nobody_has_decided_is_not_copied() {
    let (journal, _) = paused(&Hand::default(), &Seen::default());
    let entries = block_on(journal.read()).unwrap();
    assert!(entries.last().unwrap().as_str().contains(r#""lease""#));
    let copied = Recording::from_entries(&entries).unwrap().to_entries();
    assert_eq!(copied, entries[..entries.len() - 1]);
}

// spec: UAP-12-5
#[test]
fn an_answer_of_a_person_takes_the_place_of_the_tool() {
    let (clock, seen) = (Hand::default(), Seen::default());
    let (journal, question) = paused(&clock, &seen);
    let answer = Verdict::Answer(json_text("paid in cash"));
    decide(&journal, &clock, &Decision::new(&question, "ann", answer)).unwrap();
    let agent = agent(careful(&clock, &seen)).unwrap();
    let second = pauses(&agent, &journal);
    decide(
        &journal,
        &clock,
        &Decision::new(&second, "ann", Verdict::Approve),
    )
    .unwrap();
    assert_eq!(resumed(&agent, &journal), "paid in cash, paid");
    assert_eq!(seen.lock().unwrap().len(), 1);
}

// spec: UAP-12-5
#[test]
fn a_decision_is_recorded_once_in_time_by_those_who_may_for_what_they_saw() {
    let (clock, seen) = (Hand::default(), Seen::default());
    let (journal, question) = paused(&clock, &seen);
    let effect = question.effect;
    let before = block_on(journal.read()).unwrap();
    let approve = Decision::new(&question, "ann", Verdict::Approve);

    let mut other = approve.clone();
    other.digest = ubos_common::canon::Digest::of_bytes(b"other arguments");
    let refused = decide(&journal, &clock, &other).unwrap_err();
    let (wanted, told) = (question.digest, other.digest);
    assert_eq!(
        refused,
        DecisionError::Digest {
            effect,
            wanted,
            seen: told
        }
    );
    let mut unknown = approve.clone();
    unknown.effect = 99;
    assert_eq!(
        decide(&journal, &clock, &unknown).unwrap_err(),
        DecisionError::NoQuestion { effect: 99 }
    );
    let stranger = Decision::new(&question, "eve", Verdict::Approve);
    let refused = decide(&journal, &clock, &stranger).unwrap_err();
    assert_eq!(
        refused,
        DecisionError::NotAllowed {
            effect,
            by: "eve".into()
        }
    );
    clock.advance(HOUR);
    let until = question.expires.unwrap();
    assert_eq!(
        decide(&journal, &clock, &approve).unwrap_err(),
        DecisionError::Expired { effect, until }
    );
    assert_eq!(
        block_on(journal.read()).unwrap(),
        before,
        "what is refused leaves nothing"
    );

    // The run itself counts an expired question as rejected.
    let agent = agent(careful(&clock, &seen)).unwrap();
    let second = pauses(&agent, &journal);
    decide(
        &journal,
        &clock,
        &Decision::new(&second, "bob", Verdict::Approve),
    )
    .unwrap();
    let reject = Decision::new(&second, "ann", Verdict::Reject("no".into()));
    let refused = decide(&journal, &clock, &reject).unwrap_err();
    assert_eq!(
        refused,
        DecisionError::Decided {
            effect: second.effect,
            by: "bob".into()
        }
    );
    assert_eq!(
        resumed(&agent, &journal),
        "rejected: nobody has decided in time, paid"
    );
}

// spec: UAP-12-5
#[test]
fn a_decision_while_the_run_is_under_way_is_taken_by_it() {
    // Two calls side by side: one needs an approval, the other runs.
    let (clock, seen) = (Hand::default(), Seen::default());
    let (open, gate) = oneshot::channel();
    let gate = std::sync::Mutex::new(Some(gate));
    let run = move |_: RawObject, _| {
        let gate = gate.lock().unwrap().take();
        async move {
            let _ = gate.unwrap().await;
            Ok(json_text("looked"))
        }
    };
    let look: Arc<dyn upp::Tool> = Arc::new(FnTool::new("look", "", object("{}").unwrap(), run));
    let model = ScriptedModel::new([
        Reply::default()
            .calling("a", "pay", object("{}").unwrap())
            .calling("b", "look", object("{}").unwrap()),
        Reply::text("done"),
    ]);
    let options = careful(&clock, &seen)
        .with_tools([pay(&seen, None), look])
        .map_llm(|llm| llm.with_model(Arc::new(model)));
    let journal = Arc::new(MemoryJournal::default());
    let agent = agent(options).unwrap();
    let mut run = agent.record(journal.clone(), "go", &agent.initial_state());
    while run.next().now_or_never().flatten().is_some() {}
    let question = block_on(Recording::load(journal.as_ref()))
        .unwrap()
        .questions()
        .remove(0);
    decide(
        &journal,
        &clock,
        &Decision::new(&question, "ann", Verdict::Approve),
    )
    .unwrap();
    assert!(seen.lock().unwrap().is_empty());
    open.send(()).unwrap();
    assert_eq!(block_on(run.result()).unwrap().turn.response.text(), "done");
    assert_eq!(seen.lock().unwrap().len(), 1);
    // That the call may have run stands in the journal before it runs: killed there, its outcome is unknown.
    let entries = block_on(journal.read()).unwrap();
    let cut = entries
        .iter()
        .position(|entry| entry.as_str().contains(r#""lease""#))
        .unwrap();
    let recording = Recording::from_entries(&entries[..=cut]).unwrap();
    let copied = Recording::from_entries(&recording.to_entries()).unwrap();
    let careful_one = careful(&clock, &seen)
        .with_ownership(Ownership::default().with_unknown(UnknownOutcome::Fail))
        .map_llm(|llm| llm.with_tools(agent.llm().options().tools().tools.iter().cloned()));
    let careful_one = self::agent(careful_one).unwrap();
    for recording in [recording, copied] {
        let copy = Arc::new(MemoryJournal::default());
        block_on(copy.append(0, recording.to_entries())).unwrap();
        let run = block_on(careful_one.resume(copy.clone())).unwrap();
        assert!(
            block_on(run.result()).is_err(),
            "the script has no more replies"
        );
        let entries = block_on(copy.read()).unwrap();
        assert!(
            entries
                .iter()
                .any(|entry| entry.as_str().contains("outcome of this call is unknown"))
        );
    }
    assert_eq!(seen.lock().unwrap().len(), 1);
}

// spec: UAP-12-5
#[test]
fn a_person_decides_about_a_call_whose_outcome_is_unknown() {
    for (verdict, wanted, calls) in [
        (Verdict::Approve, "paid, paid", 3),
        (
            Verdict::Reject("it is done".into()),
            "rejected: it is done, paid",
            2,
        ),
        (
            Verdict::Answer(json_text("it was paid")),
            "it was paid, paid",
            2,
        ),
    ] {
        let (clock, seen) = (Hand::default(), Seen::default());
        let (_open, gate) = oneshot::channel();
        let journal = Arc::new(MemoryJournal::default());
        let first = agent(paying(&clock, pay(&seen, Some(gate)))).unwrap();
        let mut run = first.record(journal.clone(), "go", &first.initial_state());
        while run.next().now_or_never().flatten().is_some() {}
        drop(run);
        let ownership = Ownership::default().with_unknown(UnknownOutcome::Wait);
        let second = agent(paying(&clock, pay(&seen, None)).with_ownership(ownership)).unwrap();
        let question = pauses(&second, &journal);
        assert_eq!(
            (question.kind, &*question.call_id),
            (QuestionKind::Outcome, "c0")
        );
        decide(&journal, &clock, &Decision::new(&question, "ann", verdict)).unwrap();
        assert_eq!(resumed(&second, &journal), wanted);
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), calls);
        if calls == 3 {
            assert_eq!(seen[1], (seen[0].0.clone(), true), "the same key");
        }
    }
}

// spec: UAP-12-5
#[test]
fn a_run_that_is_not_recorded_refuses_what_needs_an_approval() {
    let (clock, seen) = (Hand::default(), Seen::default());
    let agent = agent(careful(&clock, &seen)).unwrap();
    let result = block_on(agent.ask("go", &agent.initial_state())).unwrap();
    let text = result.turn.response.text();
    assert!(
        text.starts_with("the call needs a person's approval"),
        "{text}"
    );
    assert!(seen.lock().unwrap().is_empty());
}

/// Takes a moment to hear of an error.
struct SlowHook;

impl uap_agent::AgentStrategy for SlowHook {
    fn on_error<'a>(
        &'a self,
        _: &'a uap_agent::AgentError,
    ) -> uap_agent::HookFuture<'a, Option<uap_agent::GenerateResult>> {
        let mut was_asked = false;
        Box::pin(futures::future::poll_fn(move |context| {
            if std::mem::replace(&mut was_asked, true) {
                return std::task::Poll::Ready(Ok(None));
            }
            context.waker().wake_by_ref();
            std::task::Poll::Pending
        }))
    }
}

/// Pays, where a person approves, and looks at the same time; with how often it has looked.
fn paying_and_looking(
    seen: &Seen,
    look: impl Fn() -> upp::HookFuture<'static, RawBuf> + Send + Sync + 'static,
) -> (AgentOptions, Arc<AtomicUsize>) {
    let looks = Arc::new(AtomicUsize::new(0));
    let looked = Arc::clone(&looks);
    let look = FnTool::new("look", "", object("{}").unwrap(), move |_, _| {
        looked.fetch_add(1, Ordering::Relaxed);
        look()
    });
    let options = careful(&Hand::default(), seen).with_tool(look);
    let options = options.map_llm(|llm| {
        let both = Reply::default()
            .calling("a", "pay", object("{}").unwrap())
            .calling("b", "look", object("{}").unwrap());
        llm.with_model(Arc::new(ScriptedModel::new([both])))
    });
    (options, looks)
}

// spec: UAP-12-5
#[test]
fn a_run_that_is_aborted_waits_for_nobody() {
    let (seen, journal) = (Seen::default(), Arc::new(MemoryJournal::default()));
    let (options, looks) = paying_and_looking(&seen, || Box::pin(std::future::pending()));
    let agent = agent(options.with_strategy(Arc::new(SlowHook))).unwrap();
    let mut run = agent.record(journal.clone(), "go", &agent.initial_state());
    while run.next().now_or_never().flatten().is_some() {}
    let questions = |journal: &MemoryJournal| {
        let recording = block_on(Recording::load(journal)).unwrap();
        recording.questions().len()
    };
    assert_eq!(questions(&journal), 1);
    run.abort();
    let error = block_on(run.result()).unwrap_err();
    assert_eq!(error.error.code, upp::ErrorCode::Cancelled);
    let recording = block_on(Recording::load(journal.as_ref())).unwrap();
    assert!(recording.has_ended());
    assert_eq!(questions(&journal), 0);
    // Killed behind the abort, it is ended: nothing that it waited for is done again.
    let entries = block_on(journal.read()).unwrap();
    let is_abort = |entry: &RawObject| entry.as_str().contains(r#""abort":true"#);
    let abort = entries.iter().position(is_abort).unwrap();
    for count in abort + 1..entries.len() {
        let kept = super::cut(&journal, count);
        let resumed = block_on(agent.resume(kept)).unwrap();
        let error = block_on(resumed.result()).unwrap_err();
        assert_eq!(error.error.code, upp::ErrorCode::Cancelled, "{count}");
    }
    assert_eq!(looks.load(Ordering::Relaxed), 1);
}

// spec: UAP-12-5
#[test]
fn what_was_not_asked_for_yet_does_not_wait_for_a_person() {
    let (seen, journal) = (Seen::default(), Arc::new(MemoryJournal::default()));
    let sees = || -> upp::HookFuture<'static, RawBuf> {
        Box::pin(std::future::ready(Ok(json_text("seen"))))
    };
    let (options, looks) = paying_and_looking(&seen, sees);
    let agent = agent(options).unwrap();
    let run = agent.record(journal.clone(), "go", &agent.initial_state());
    block_on(run.result()).unwrap_err();
    // Killed when the question was written, and not yet the other call.
    let entries = block_on(journal.read()).unwrap();
    let is_question = |entry: &RawObject| entry.as_str().contains(r#""question""#);
    let question = entries.iter().position(is_question).unwrap();
    let is_look = |entry: &RawObject| entry.as_str().contains(r#""look""#);
    let kept = super::cut(&journal, question + 1);
    let calls = block_on(kept.read()).unwrap();
    assert!(
        !calls
            .iter()
            .any(|entry| is_look(entry) && entry.as_str().contains(r#""kind":"tool""#)),
        "{calls:#?}"
    );
    assert_eq!(&*pauses(&agent, &kept).call_id, "a");
    assert_eq!(looks.load(Ordering::Relaxed), 2);
    assert_eq!(*seen.lock().unwrap(), []);
}

// spec: UAP-12-5
#[test]
fn two_runs_that_asked_and_heard_the_same_do_not_differ() {
    let [one, other, rejected] = [
        Verdict::Approve,
        Verdict::Approve,
        Verdict::Reject("no".into()),
    ]
    .map(|verdict| {
        let (clock, seen) = (Hand::default(), Seen::default());
        let (journal, question) = paused(&clock, &seen);
        decide(&journal, &clock, &Decision::new(&question, "ann", verdict)).unwrap();
        block_on(Recording::load(journal.as_ref())).unwrap()
    });
    assert_eq!(one.diff(&other).first, None);
    assert!(one.diff(&rejected).first.is_some());
}

// spec: UAP-12-5
#[test]
fn a_decision_behind_the_answer_is_out_of_order() {
    let (clock, seen) = (Hand::default(), Seen::default());
    let (journal, question) = paused(&clock, &seen);
    let approve = Decision::new(&question, "ann", Verdict::Approve);
    let copy = Arc::new(MemoryJournal::default());
    block_on(copy.append(0, block_on(journal.read()).unwrap())).unwrap();
    decide(&copy, &clock, &approve).unwrap();
    let decision = block_on(copy.read()).unwrap().pop().unwrap();

    clock.advance(HOUR);
    let _ = pauses(&agent(careful(&clock, &seen)).unwrap(), &journal);
    let mut entries = block_on(journal.read()).unwrap();
    let answered = entries
        .iter()
        .position(|entry| entry.as_str().contains("nobody has decided"));
    entries.truncate(answered.unwrap() + 1);
    assert!(Recording::from_entries(&entries).is_ok());
    let (_, rest) = decision.as_str().split_once(',').unwrap();
    let late = format!(r#"{{"n":{},{rest}"#, entries.len());
    entries.push(object(&late).unwrap());
    let refused = Recording::from_entries(&entries).unwrap_err();
    assert!(
        matches!(refused, JournalError::Order { what, .. } if what.contains("question that is open")),
        "{refused}"
    );
}

// spec: UAP-12-5
#[test]
fn a_call_that_needs_an_approval_by_now_is_not_repeated_without_it() {
    struct Nothing;
    impl ApprovalPolicy for Nothing {
        fn request(&self, _: &ToolCall) -> Option<ApprovalRequest> {
            None
        }
    }
    for unknown in [UnknownOutcome::AskAgain, UnknownOutcome::Wait] {
        let (clock, seen) = (Hand::default(), Seen::default());
        let (_open, gate) = oneshot::channel();
        let journal = Arc::new(MemoryJournal::default());
        let options = paying(&clock, pay(&seen, Some(gate))).with_approvals(Arc::new(Nothing));
        let first = agent(options).unwrap();
        let mut run = first.record(journal.clone(), "go", &first.initial_state());
        while run.next().now_or_never().flatten().is_some() {}
        drop(run);
        assert_eq!(seen.lock().unwrap().len(), 1);
        let ownership = Ownership::default().with_unknown(unknown);
        let second = agent(careful(&clock, &seen).with_ownership(ownership)).unwrap();
        let question = pauses(&second, &journal);
        assert_eq!(seen.lock().unwrap().len(), 1, "nobody has approved it");
        assert_eq!(question.kind, QuestionKind::Outcome);
        assert_eq!(question.may_answer, ["ann", "bob"]);
        decide(
            &journal,
            &clock,
            &Decision::new(&question, "ann", Verdict::Approve),
        )
        .unwrap();
        assert_eq!(&*pauses(&second, &journal).call_id, "c1");
        assert!(seen.lock().unwrap()[1].1, "it is repeated");
    }
}

/// Two payments side by side, and what came of them.
fn side_by_side(request: &upp::LlmRequest) -> Option<Reply> {
    let results = request.messages.iter().find_map(|message| match message {
        upp::Message::ToolResult(result) => Some(result),
        _ => None,
    });
    Some(match results {
        None => Reply::default()
            .calling("a", "pay", object("{}").ok()?)
            .calling("b", "pay", object("{}").ok()?),
        Some(results) => {
            let texts = results.results.iter().map(|result| result.text());
            Reply::text(texts.collect::<Vec<_>>().join(", "))
        }
    })
}

// spec: UAP-12-5
#[test]
fn of_two_calls_the_one_that_nobody_has_decided_about_waits_on_until_it_expires() {
    let (clock, seen) = (Hand::default(), Seen::default());
    let new = || {
        let model = Arc::new(ScriptedModel::with(side_by_side));
        agent(careful(&clock, &seen).map_llm(|llm| llm.with_model(model))).unwrap()
    };
    let journal = Arc::new(MemoryJournal::default());
    let first = new();
    let run = first.record(journal.clone(), "go", &first.initial_state());
    let error = block_on(run.result()).unwrap_err();
    let questions = Paused::of(&error.error).unwrap().questions.clone();
    assert_eq!(questions.len(), 2);
    let approve = |question: &Question| Decision::new(question, "ann", Verdict::Approve);
    decide(&journal, &clock, &approve(&questions[0])).unwrap();
    // The first is paid, and the other goes on waiting.
    assert_eq!(pauses(&new(), &journal), questions[1]);
    assert_eq!(seen.lock().unwrap().len(), 1);

    let later = Arc::new(MemoryJournal::default());
    let entries = block_on(journal.read()).unwrap();
    block_on(later.append(0, entries)).unwrap();
    decide(&journal, &clock, &approve(&questions[1])).unwrap();
    assert_eq!(resumed(&new(), &journal), "paid, paid");
    let paid: Vec<bool> = seen
        .lock()
        .unwrap()
        .iter()
        .map(|(_, again)| *again)
        .collect();
    assert_eq!(paid, [false, false], "neither is called again");

    clock.advance(HOUR);
    let said = resumed(&new(), &later);
    assert!(said.starts_with("paid, ") && said != "paid, paid", "{said}");
    assert_eq!(seen.lock().unwrap().len(), 2);
}

/// A journal that somebody else writes to before each of the first decisions.
struct Crowded(MemoryJournal, std::sync::atomic::AtomicU64);

impl Journal for Crowded {
    fn append(&self, first: u64, entries: Vec<RawObject>) -> JournalFuture<'_, ()> {
        let left = self.1.load(Ordering::Relaxed);
        if left > 0 {
            self.1.store(left - 1, Ordering::Relaxed);
            let (wanted, seen) = (first, first + 1);
            return Box::pin(core::future::ready(Err(JournalError::Conflict {
                wanted,
                seen,
            })));
        }
        self.0.append(first, entries)
    }
    fn read(&self) -> JournalFuture<'_, Vec<RawObject>> {
        self.0.read()
    }
}

// spec: UAP-12-5
#[test]
fn a_decision_is_tried_again_where_another_writer_was_first() {
    for (others, is_taken) in [(1, true), (u64::MAX, false)] {
        let (clock, seen) = (Hand::default(), Seen::default());
        let (journal, question) = paused(&clock, &seen);
        let crowded = Crowded(MemoryJournal::default(), others.into());
        let entries = block_on(journal.read()).unwrap();
        block_on(crowded.0.append(0, entries)).unwrap();
        let approve = Decision::new(&question, "ann", Verdict::Approve);
        let decided = block_on(Recording::decide(&crowded, clock.now(), &approve));
        match is_taken {
            true => decided.unwrap(),
            false => assert!(matches!(
                decided,
                Err(DecisionError::Journal(JournalError::Conflict { .. }))
            )),
        }
    }
}

// spec: UAP-12-5
#[test]
fn a_question_of_another_kind_or_about_another_call_is_refused() {
    let (journal, _) = paused(&Hand::default(), &Seen::default());
    let entries = block_on(journal.read()).unwrap();
    let question = entries
        .iter()
        .position(|entry| entry.as_str().contains(r#""question":{"#))
        .unwrap();
    for (from, to, told) in [
        (
            r#""kind":"approval""#,
            r#""kind":"dance""#,
            "/question/kind",
        ),
        (r#"{"sum":5}"#, r#"{"sum":6}"#, "/question/digest"),
    ] {
        let mut changed = entries.clone();
        let text = changed[question].as_str().replacen(from, to, 1);
        assert_ne!(text, changed[question].as_str());
        changed[question] = object(&text).unwrap();
        let refused = Recording::from_entries(&changed).unwrap_err().to_string();
        assert!(refused.contains(told), "{refused}");
    }
}

// spec: UAP-12-5
#[test]
fn a_question_that_expires_while_the_run_is_under_way_is_rejected() {
    let (clock, seen) = (Hand::default(), Seen::default());
    let (open, gate) = oneshot::channel::<()>();
    let gate = std::sync::Mutex::new(Some(gate));
    let look = FnTool::new("look", "", object("{}").unwrap(), move |_: RawObject, _| {
        let gate = gate.lock().unwrap().take();
        async move {
            let _ = gate.unwrap().await;
            Ok(json_text("looked"))
        }
    });
    let look: Arc<dyn upp::Tool> = Arc::new(look);
    let model = ScriptedModel::with(|request| match request.messages.len() {
        1 => Some(
            Reply::default()
                .calling("a", "pay", object("{}").ok()?)
                .calling("b", "look", object("{}").ok()?),
        ),
        _ => side_by_side(request),
    });
    let options = careful(&clock, &seen)
        .with_tools([pay(&seen, None), look])
        .map_llm(|llm| llm.with_model(Arc::new(model)));
    let journal = Arc::new(MemoryJournal::default());
    let agent = agent(options).unwrap();
    let mut run = agent.record(journal.clone(), "go", &agent.initial_state());
    while run.next().now_or_never().flatten().is_some() {}
    clock.advance(HOUR);
    open.send(()).unwrap();
    let said = block_on(run.result()).unwrap().turn.response.text();
    assert_eq!(said, "rejected: nobody has decided in time, looked");
    assert!(seen.lock().unwrap().is_empty());
}
