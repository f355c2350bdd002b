//! Budgets of runs that are resumed.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::executor::block_on;
use futures::future::FutureExt;
use uap_agent::journal::{Journal, MemoryJournal, Ownership, Recording};
use uap_agent::middleware::{Budget, Price, RecordedSpending};
use uap_agent::{AgentOptions, Middleware, Runtime, SubagentTool, agent};
use ubos_common::driver::Sleep;
use ubos_common::id::IdSource;
use ubos_common::json::RawObject;
use upp::{
    CycleUsage, ErrorCode, FnTool, LlmRequest, Message, Reply, ScriptedModel, Tool, json_text,
    object,
};

use super::lease::Hand;

const PRICE: Price = Price {
    input: 1_000_000,
    output: 1_000_000,
    cache_read: 0,
    cache_write: 0,
};

/// Calls a tool for ever; each response costs 100 tokens in and 10 out.
fn endless(request: &LlmRequest) -> Option<Reply> {
    let results = request
        .messages
        .iter()
        .filter(|message| matches!(message, Message::ToolResult(_)));
    let id = format!("c{}", results.count());
    Some(
        Reply::default()
            .calling(id, "work", object("{}").ok()?)
            .costing(100, 10),
    )
}

/// A tool that takes a second.
fn working(clock: &Hand, budget: &Budget) -> AgentOptions {
    working_until(clock, budget, Duration::MAX)
}

/// A tool that takes a second, and from some time on does not end.
fn working_until(clock: &Hand, budget: &Budget, hangs: Duration) -> AgentOptions {
    let time = clock.clone();
    let run = move |_: RawObject, _| {
        let is_over = time.passed() >= hangs;
        if !is_over {
            time.advance(Duration::from_secs(1));
        }
        async move {
            match is_over {
                true => core::future::pending().await,
                false => Ok(json_text("done")),
            }
        }
    };
    let tool: Arc<dyn Tool> = Arc::new(FnTool::new("work", "", object("{}").unwrap(), run));
    AgentOptions::new(Arc::new(ScriptedModel::with(endless)))
        .with_tools([tool])
        .with_middleware([Arc::new(budget.clone()) as Arc<dyn Middleware>])
        .with_runtime(Runtime::new(Arc::new(clock.clone()), IdSource::seeded(5)))
}

fn tokens(tokens: u64) -> Budget {
    Budget::default().with_max_tokens(tokens)
}

/// The journal of a run up to its end, with the budget that ended it.
fn whole(clock: &Hand, budget: &Budget) -> Vec<RawObject> {
    let journal = Arc::new(MemoryJournal::default());
    let agent = agent(working(clock, budget)).unwrap();
    block_on(
        agent
            .record(journal.clone(), "go", &agent.initial_state())
            .result(),
    )
    .unwrap();
    block_on(journal.read()).unwrap()
}

/// A life of a run that makes some calls, each of which takes a second, and whose process is gone then.
fn works(journal: &Arc<MemoryJournal>, clock: &Hand, budget: &Budget, calls: u64) {
    let until = clock.passed() + Duration::from_secs(calls);
    let agent = agent(working_until(clock, budget, until)).unwrap();
    let mut run = match block_on(journal.read()).unwrap().len() {
        0 => agent.record(journal.clone(), "go", &agent.initial_state()),
        _ => block_on(agent.resume(journal.clone())).unwrap(),
    };
    while let Some(event) = run.next().now_or_never() {
        assert!(event.is_some(), "it has ended too early");
    }
    assert_eq!(clock.passed(), until);
}

fn kept(entries: &[RawObject]) -> Arc<MemoryJournal> {
    let journal = Arc::new(MemoryJournal::default());
    block_on(journal.append(0, entries.to_vec())).unwrap();
    journal
}

// spec: UAP-16-1
#[test]
fn what_was_spent_before_a_kill_counts_after_it() {
    let clock = Hand::default();
    let budget = tokens(550).with_max_cost(u64::MAX, PRICE);
    let entries = whole(&clock, &budget);
    assert_eq!((budget.tokens(), budget.cost()), (550, 550));
    for count in 1..=entries.len() {
        // Another process: it begins with a budget of nothing.
        let fresh = tokens(550).with_max_cost(u64::MAX, PRICE);
        let journal = kept(&entries[..count]);
        let agent = agent(working(&Hand::default(), &fresh)).unwrap();
        let result =
            block_on(async { agent.resume(journal.clone()).await.unwrap().result().await });
        assert_eq!(result.unwrap().turn.cycles, 5, "cut at {count}");
        assert_eq!((fresh.tokens(), fresh.cost()), (550, 550), "cut at {count}");
    }
    // A replay comes to the same sum.
    let fresh = tokens(550);
    let recording = Recording::from_entries(&entries).unwrap();
    let agent = agent(working(&clock, &fresh)).unwrap();
    agent.replay(&recording).unwrap();
    assert_eq!(fresh.tokens(), 550);
    agent.replay(&recording).unwrap();
    assert_eq!(fresh.tokens(), 550, "once");
}

// spec: UAP-16-1
#[test]
fn a_run_that_is_resumed_where_it_was_recorded_counts_once() {
    let (clock, budget) = (Hand::default(), tokens(550));
    let journal = Arc::new(MemoryJournal::default());
    let agent = agent(working(&clock, &budget)).unwrap();
    let mut run = agent.record(journal.clone(), "go", &agent.initial_state());
    while budget.tokens() < 330 {
        let _ = run.next().now_or_never();
    }
    drop(run);
    for _ in 0..2 {
        let run = block_on(agent.resume(journal.clone())).unwrap();
        assert!(block_on(run.result()).is_ok());
    }
    assert!(
        [550, 660].contains(&budget.tokens()),
        "{budget:?}: the one that was cut may be asked for again"
    );
}

#[test]
fn a_budget_remembers_the_last_1024_runs() {
    let budget = tokens(u64::MAX);
    for run in 0..=1024 {
        budget.responded(run, 1);
    }
    let mut spent = RecordedSpending::default();
    spent.responses = vec![(1, CycleUsage::new(100, 10, 0, 0))];
    for (run, counted) in [(1024, 0), (1, 0), (0, 110)] {
        spent.run = run;
        budget.resumed(Hand::default().now(), &spent);
        assert_eq!(budget.tokens(), counted, "run {run}");
    }
}

// spec: UAP-16-1
#[test]
fn runs_that_are_resumed_in_turn_count_once_each() {
    let (clock, budget) = (Hand::default(), tokens(u64::MAX));
    // Each run has an id of its own.
    let new = |budget: &Budget, seed: u64, until: Duration| {
        let runtime = Runtime::new(Arc::new(clock.clone()), IdSource::seeded(seed));
        agent(working_until(&clock, budget, until).with_runtime(runtime)).unwrap()
    };
    let journals = [0, 1].map(|_| Arc::new(MemoryJournal::default()));
    for life in 0..3 {
        for (seed, journal) in (0..).zip(&journals) {
            let agent = new(&budget, seed, clock.passed() + Duration::from_secs(1));
            let mut run = match life {
                0 => agent.record(journal.clone(), "go", &agent.initial_state()),
                _ => block_on(agent.resume(journal.clone())).unwrap(),
            };
            while run.next().now_or_never().is_some() {}
        }
    }
    let fresh = tokens(u64::MAX);
    for (seed, journal) in (0..).zip(&journals) {
        let recording = block_on(Recording::load(journal.as_ref())).unwrap();
        new(&fresh, seed, Duration::MAX).replay(&recording).unwrap();
    }
    assert_eq!((budget.tokens(), fresh.tokens()), (880, 880));
}

// spec: UAP-16-1
#[test]
fn the_time_of_a_run_goes_on_without_the_time_between() {
    let clock = Hand::default();
    let budget = || Budget::default().with_max_time(Duration::from_secs(5));
    let entries = whole(&clock, &budget());
    let cycles = |budget: Budget, clock: &Hand, count: usize| {
        let agent = agent(working(clock, &budget)).unwrap();
        let journal = kept(&entries[..count]);
        let result = block_on(async { agent.resume(journal).await.unwrap().result().await });
        result.unwrap().turn.cycles
    };
    let third = entries
        .iter()
        .position(|entry| entry.as_str().contains(r#""toolCallId":"c2""#))
        .unwrap();
    // Its clock has begun anew: at nothing, as that of a new process does, or after a while.
    for later in [0, 86_400, 10].map(Duration::from_secs) {
        let clock = Hand::default();
        clock.advance(later);
        assert_eq!(cycles(budget(), &clock, third + 1), 5);
        assert_eq!(cycles(budget(), &clock, entries.len()), 5);
    }
    assert_eq!(clock.now().mono.as_nanos(), 5_000_000_000);
}

// spec: UAP-16-1
#[test]
fn the_time_for_which_a_run_waits_in_its_own_process_does_not_count() {
    let (clock, hours) = (Hand::default(), Duration::from_secs(7200));
    let budget = Budget::default().with_max_time(Duration::from_secs(5));
    let journal = Arc::new(MemoryJournal::default());
    works(&journal, &clock, &budget, 2);
    let agent = agent(working(&clock, &budget)).unwrap();
    for _ in 0..2 {
        clock.advance(hours);
        // A replay is no life of the run.
        let recording = block_on(Recording::load(journal.as_ref())).unwrap();
        agent.replay(&recording).unwrap();
        clock.advance(hours);
        works(&journal, &clock, &budget, 1);
    }
    let run = block_on(agent.resume(journal.clone())).unwrap();
    assert_eq!(block_on(run.result()).unwrap().turn.cycles, 5);
    assert_eq!(clock.passed(), 4 * hours + Duration::from_secs(5));
}

// spec: UAP-16-1
#[test]
fn a_run_that_goes_on_elsewhere_brings_its_time_back() {
    let five = || Budget::default().with_max_time(Duration::from_secs(5));
    let (here, elsewhere) = ((Hand::default(), five()), (Hand::default(), five()));
    let journal = Arc::new(MemoryJournal::default());
    works(&journal, &here.0, &here.1, 1);
    works(&journal, &elsewhere.0, &elsewhere.1, 3);
    let agent = agent(working(&here.0, &here.1)).unwrap();
    let run = block_on(agent.resume(journal.clone())).unwrap();
    assert_eq!(block_on(run.result()).unwrap().turn.cycles, 5);
    assert_eq!(here.0.passed(), Duration::from_secs(2));
}

// spec: UAP-12-5
#[test]
fn the_deadline_of_a_run_counts_what_it_has_taken_before() {
    let minute = Duration::from_secs(60);
    let hangs = |clock: &Hand| {
        let hang = |_: &LlmRequest| Some(Reply::default().after(core::future::pending));
        let options = working(clock, &Budget::default()).with_max_time(minute);
        options
            .with_ownership(Ownership::default().with_term(Duration::from_secs(3)))
            .map_llm(|llm| llm.with_model(Arc::new(ScriptedModel::with(hang))))
    };
    let clock = Hand::default();
    let journal = Arc::new(MemoryJournal::default());
    let first = agent(hangs(&clock)).unwrap();
    let mut run = first.record(journal.clone(), "go", &first.initial_state());
    // The lease that is renewed says that the run is under way.
    for _ in 0..50 {
        while run.next().now_or_never().flatten().is_some() {}
        clock.advance(Duration::from_secs(1));
    }
    while run.next().now_or_never().flatten().is_some() {}
    drop(run);

    let clock = Hand::default();
    clock.advance(Duration::from_secs(55));
    let second = agent(hangs(&clock)).unwrap();
    let mut run = block_on(second.resume(journal.clone())).unwrap();
    while run.next().now_or_never().flatten().is_some() {}
    clock.advance(Duration::from_secs(9));
    assert!(
        run.next().now_or_never().is_none(),
        "9 of 10 seconds are over"
    );
    clock.advance(Duration::from_secs(1));
    let error = run
        .result()
        .now_or_never()
        .expect("its time is over")
        .unwrap_err();
    assert_eq!(error.error.code, ErrorCode::Timeout);
}

/// An agent with a sub-agent of a type, which has this budget.
fn delegating(budget: &Budget, inner: &Budget, kind: &str) -> AgentOptions {
    let layers = |budget: &Budget| [Arc::new(budget.clone()) as Arc<dyn Middleware>];
    let model = ScriptedModel::with(|_| Some(Reply::text("looked").costing(1000, 0)));
    let helper = AgentOptions::new(Arc::new(model))
        .with_middleware(layers(inner))
        .with_runtime(Runtime::new(Arc::new(Hand::default()), IdSource::seeded(6)));
    let empty = object("{}").unwrap();
    let tool = SubagentTool::new(agent(helper).unwrap(), "work", "", empty, |_| {
        Ok("look".into())
    })
    .with_subagent_type(kind);
    AgentOptions::new(Arc::new(ScriptedModel::with(endless)))
        .with_tools([Arc::new(tool) as Arc<dyn Tool>])
        .with_middleware(layers(budget))
        .with_runtime(Runtime::new(Arc::new(Hand::default()), IdSource::seeded(5)))
}

// spec: UAP-16-1
#[test]
fn what_a_sub_agent_has_spent_counts_again_where_it_shares_the_budget() {
    for (shares, kind) in [(true, "work"), (true, "helper"), (false, "helper")] {
        let inner = |budget: &Budget| match shares {
            true => budget.clone(),
            false => Budget::default(),
        };
        let budget = tokens(2500);
        let recorded = agent(delegating(&budget, &inner(&budget), kind)).unwrap();
        let journal = Arc::new(MemoryJournal::default());
        let state = recorded.initial_state();
        let run = recorded.record(journal.clone(), "go", &state);
        let wanted = block_on(run.result()).unwrap().turn.cycles;
        assert_eq!(wanted, if shares { 3 } else { 23 });
        let entries = block_on(journal.read()).unwrap();
        for count in 1..=entries.len().min(40) {
            let fresh = tokens(2500);
            let agent = agent(delegating(&fresh, &inner(&fresh), kind)).unwrap();
            let journal = kept(&entries[..count]);
            let run = block_on(agent.resume(journal)).unwrap();
            assert_eq!(
                block_on(run.result()).unwrap().turn.cycles,
                wanted,
                "cut at {count}"
            );
            assert_eq!(fresh.tokens(), budget.tokens(), "cut at {count}");
        }
        // In the process that recorded it, nothing counts twice.
        let before = budget.tokens();
        let recording = Recording::from_entries(&entries).unwrap();
        recorded.replay(&recording).unwrap();
        assert_eq!(budget.tokens(), before);
    }
}

// spec: UAP-12-5
#[test]
fn a_run_whose_time_was_over_ends_so_from_its_journal() {
    let clock = Hand::default();
    let hangs = || {
        let hang = |request: &LlmRequest| match request.messages.len() {
            0..3 => endless(request),
            _ => Some(Reply::default().after(core::future::pending)),
        };
        let options = working(&clock, &Budget::default()).with_max_time(Duration::from_secs(60));
        options.map_llm(|llm| llm.with_model(Arc::new(ScriptedModel::with(hang))))
    };
    let journal = Arc::new(MemoryJournal::default());
    let recorded = agent(hangs()).unwrap();
    let mut run = recorded.record(journal.clone(), "go", &recorded.initial_state());
    while run.next().now_or_never().flatten().is_some() {}
    clock.advance(Duration::from_secs(60));
    let wanted = block_on(run.result()).unwrap_err();
    assert_eq!(wanted.error.code, ErrorCode::Timeout);
    let entries = block_on(journal.read()).unwrap();
    let expired = entries
        .iter()
        .position(|entry| entry.as_str().contains(r#""expired":true"#))
        .unwrap();
    for count in expired + 1..=entries.len() {
        let journal = kept(&entries[..count]);
        let agent = agent(hangs()).unwrap();
        let error = block_on(async { agent.resume(journal.clone()).await.unwrap().result().await });
        let error = error.unwrap_err();
        assert_eq!(
            (error.error.code.clone(), &error.state),
            (ErrorCode::Timeout, &wanted.state)
        );
        let recording = block_on(Recording::load(journal.as_ref())).unwrap();
        assert!(recording.has_ended() && recording.outstanding().is_empty());
        let replayed = agent
            .replay(&recording)
            .unwrap()
            .result
            .unwrap()
            .unwrap_err();
        assert_eq!(replayed.error.code, ErrorCode::Timeout);
    }
}

// spec: UAP-16-1
#[test]
fn a_fork_has_taken_the_time_up_to_its_place() {
    let five = || Budget::default().with_max_time(Duration::from_secs(5));
    let journal = Arc::new(MemoryJournal::default());
    // What its clock says when the run begins is nothing that the run has taken.
    let late = Hand::default();
    late.advance(Duration::from_secs(60));
    works(&journal, &late, &five(), 2);
    // Another process, whose clock is far ahead, ends it.
    let other = Hand::default();
    other.advance(Duration::from_secs(3600));
    let second = agent(working(&other, &five())).unwrap();
    let run = block_on(second.resume(journal.clone())).unwrap();
    block_on(run.result()).unwrap();
    let recording = block_on(Recording::load(journal.as_ref())).unwrap();
    let whole = recording.spending().time;
    assert_eq!(whole, Duration::from_secs(5));
    assert_eq!(
        Recording::from_entries(&recording.to_entries())
            .unwrap()
            .spending()
            .time,
        whole
    );

    let calls = recording.effects().filter(|effect| effect.kind == "tool");
    let mut before = Duration::ZERO;
    for call in calls {
        let fork = recording
            .fork(&recording.answer(call.effect).unwrap())
            .unwrap();
        let time = fork.spending().time;
        assert!(before < time && time <= whole, "{before:?} {time:?}");
        let copied = Recording::from_entries(&fork.to_entries()).unwrap();
        assert_eq!(copied.spending(), fork.spending());
        before = time;
    }
    assert_eq!(before, whole);
}
