//! Budgets of runs that are resumed.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::executor::block_on;
use futures::future::FutureExt;
use uap_agent::journal::{Journal, MemoryJournal, Recording};
use uap_agent::middleware::{Budget, Price};
use uap_agent::{AgentOptions, Middleware, Runtime, agent};
use ubos_common::driver::Sleep;
use ubos_common::id::IdSource;
use ubos_common::json::RawObject;
use upp::{ErrorCode, FnTool, LlmRequest, Message, Reply, ScriptedModel, Tool, json_text, object};

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
    let time = clock.clone();
    let run = move |_: RawObject, _| {
        time.advance(Duration::from_secs(1));
        std::future::ready(Ok(json_text("done")))
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
    // Its clock has begun anew, and a day has passed.
    for later in [Duration::from_secs(86_400), Duration::from_secs(10)] {
        let clock = Hand::default();
        clock.advance(later);
        assert_eq!(cycles(budget(), &clock, third + 1), 5);
        assert_eq!(cycles(budget(), &clock, entries.len()), 5);
    }
    assert_eq!(clock.now().mono.as_nanos(), 5_000_000_000);
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
