//! Tools inside of agents that are called as tools.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use futures::executor::block_on;
use futures::future::FutureExt;
use uap_agent::journal::{Journal, MemoryJournal, Ownership, UnknownOutcome};
use uap_agent::middleware::retry;
use uap_agent::{AgentOptions, ApprovalPolicy, ApprovalRequest, Runtime, SubagentTool, agent};
use ubos_common::id::IdSource;
use upp::{
    ErrorCode, FnTool, LinearBackoff, LlmRequest, Message, Reply, ScriptedModel, Tool, ToolCall,
    ToolContext, object,
};

use super::lease::{Hand, Seen, pay, resumed};

/// The results that a conversation holds.
fn results(request: &LlmRequest) -> Vec<String> {
    let results = request.messages.iter().filter_map(|message| match message {
        Message::ToolResult(result) => Some(result.results[0].text().to_string()),
        _ => None,
    });
    results.collect()
}

/// Calls a tool as often, one call after the other, with ids that no other response has, and repeats what it was told.
fn caller(tool: &'static str, calls: usize, mut failures: u32) -> Arc<ScriptedModel> {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let reply = move |request: &LlmRequest| {
        if failures > 0 {
            failures -= 1;
            return Some(Reply::error(ErrorCode::RateLimited, "slow"));
        }
        let results = results(request);
        let id = format!("call-{}", CALLS.fetch_add(1, Ordering::Relaxed));
        Some(match results.len() < calls {
            true => Reply::default().calling(id, tool, object(r#"{"sum":5}"#).ok()?),
            false => Reply::text(results.join(", ")),
        })
    };
    Arc::new(ScriptedModel::with(reply))
}

fn runtime(seed: u64) -> Runtime {
    Runtime::new(Arc::new(Hand::default()), IdSource::seeded(seed))
}

/// An agent as the tool of another. Nothing of it is the same in another process.
fn within(inner: AgentOptions, name: &'static str) -> Arc<dyn Tool> {
    static SEED: AtomicU32 = AtomicU32::new(100);
    let seed = SEED.fetch_add(1, Ordering::Relaxed);
    let inner = agent(inner.with_runtime(runtime(seed.into()))).unwrap();
    let schema = object("{}").unwrap();
    Arc::new(SubagentTool::new(inner, name, "", schema, |_| {
        Ok("buy".into())
    }))
}

/// An agent that pays as often.
fn payer(tool: Arc<dyn Tool>, calls: usize) -> AgentOptions {
    AgentOptions::new(caller("pay", calls, 0)).with_tools([tool])
}

/// An agent that calls another as often.
fn lead(tool: Arc<dyn Tool>, calls: usize) -> AgentOptions {
    AgentOptions::new(caller("buyer", calls, 0))
        .with_tools([tool])
        .with_runtime(runtime(5))
}

/// A payment of which that with this number hangs, from 0.
fn hanging(seen: &Seen, nth: usize) -> Arc<dyn Tool> {
    let (tool, calls) = (pay(seen, None), AtomicUsize::new(0));
    let run = move |arguments, context: ToolContext| {
        let (tool, hangs) = (tool.clone(), calls.fetch_add(1, Ordering::Relaxed) == nth);
        async move {
            let paid = tool.run(&arguments, &context).await;
            if hangs {
                std::future::pending::<()>().await;
            }
            paid
        }
    };
    Arc::new(FnTool::new("pay", "", object("{}").unwrap(), run))
}

/// A run that goes as far as it can, and whose process is gone.
fn killed(options: AgentOptions) -> Arc<MemoryJournal> {
    let journal = Arc::new(MemoryJournal::default());
    let agent = agent(options).unwrap();
    let mut run = agent.record(journal.clone(), "go", &agent.initial_state());
    while run.next().now_or_never().flatten().is_some() {}
    drop(run);
    journal
}

fn resume(options: AgentOptions, journal: &Arc<MemoryJournal>) -> String {
    resumed(&agent(options).unwrap(), journal)
}

fn taken(seen: &Seen) -> (Vec<String>, Vec<bool>) {
    core::mem::take(&mut *seen.lock().unwrap())
        .into_iter()
        .unzip()
}

// spec: UAP-12-5
#[test]
fn a_repeated_agent_calls_its_tools_with_the_same_keys() {
    let seen = Seen::default();
    // The first payment is done, and the process ends in the second.
    let journal = killed(lead(within(payer(hanging(&seen, 1), 3), "buyer"), 2));
    let (before, is_repeated) = taken(&seen);
    assert_eq!(is_repeated, [false; 2]);

    // The model fails once more than before: the run inside takes other ids. Calls have other ids, too.
    let at_once = LinearBackoff::default().with_delay(Duration::ZERO);
    let inner = AgentOptions::new(caller("pay", 3, 1))
        .with_tools([pay(&seen, None)])
        .with_middleware([retry(Arc::new(at_once))]);
    let bought = r#""paid, paid, paid""#;
    assert_eq!(
        resume(lead(within(inner, "buyer"), 2), &journal),
        format!("{bought}, {bought}").replace('"', "")
    );
    let (after, is_repeated) = taken(&seen);
    assert_eq!(after[..2], before[..]);
    let keys: BTreeSet<_> = after.iter().collect();
    assert_eq!(keys.len(), 6, "no two payments have one key");
    assert_eq!(is_repeated, [true, true, true, false, false, false]);
}

// spec: UAP-12-5
#[test]
fn keys_are_the_same_however_deep_the_agents_are() {
    let seen = Seen::default();
    let shop = |tool| {
        let inner = AgentOptions::new(caller("till", 1, 0));
        let shop = inner.with_tools([within(payer(tool, 1), "till")]);
        lead(within(shop, "buyer"), 1)
    };
    let journal = killed(shop(hanging(&seen, 0)));
    assert_eq!(resume(shop(pay(&seen, None)), &journal), "paid");
    let (keys, is_repeated) = taken(&seen);
    assert_eq!(keys[0], keys[1]);
    assert_eq!(is_repeated, [false, true]);
}

/// Payments need an approval.
struct Payments;

impl ApprovalPolicy for Payments {
    fn request(&self, call: &ToolCall) -> Option<ApprovalRequest> {
        (&*call.tool_name == "pay").then(ApprovalRequest::default)
    }
}

#[test]
fn an_approval_that_nobody_can_give_inside_an_agent_is_refused() {
    let seen = Seen::default();
    let deep = |approves: bool| {
        let buyer = within(payer(pay(&seen, None), 1), "till");
        let inner = AgentOptions::new(caller("till", 1, 0)).with_tools([buyer]);
        let lead = lead(within(inner, "buyer"), 1);
        agent(match approves {
            true => lead.with_approvals(Arc::new(Payments)),
            false => lead,
        })
        .unwrap()
    };
    let said = |approves| {
        let lead = deep(approves);
        let journal = Arc::new(MemoryJournal::default());
        let recorded = lead.record(journal, "go", &lead.initial_state());
        let recorded = block_on(recorded.result()).unwrap().turn;
        let plain = block_on(lead.query("go")).unwrap();
        [recorded.response.text(), plain.response.text()]
    };
    for text in said(true) {
        assert!(text.contains("needs a person's approval"), "{text}");
    }
    assert!(seen.lock().unwrap().is_empty());
    assert_eq!(said(false), ["paid", "paid"]);
}

// spec: UAP-12-5
#[test]
fn a_call_inside_a_repeated_agent_is_made_only_where_its_policy_repeats_it() {
    let seen = Seen::default();
    let owning = |policy| Ownership::new("w").with_unknown_of("pay", policy);
    for (policy, word) in [
        (UnknownOutcome::Fail, "unknown"),
        (UnknownOutcome::Wait, "person"),
        (UnknownOutcome::AskAgain, "paid"),
    ] {
        let journal = killed(lead(within(payer(hanging(&seen, 0), 1), "buyer"), 1));
        // The policy of the agent that calls, and that of the agent itself.
        for is_outer in [true, false] {
            let copy = MemoryJournal::default();
            block_on(copy.append(0, block_on(journal.read()).unwrap())).unwrap();
            taken(&seen);
            let inner = payer(pay(&seen, None), 1);
            let options = match is_outer {
                true => lead(within(inner, "buyer"), 1).with_ownership(owning(policy)),
                false => lead(within(inner.with_ownership(owning(policy)), "buyer"), 1),
            };
            let text = resume(options, &Arc::new(copy));
            assert!(text.contains(word), "{policy:?}: {text}");
            let paid = usize::from(policy == UnknownOutcome::AskAgain);
            assert_eq!(taken(&seen).0.len(), paid, "{policy:?}");
        }
    }
    // What is not repeated runs.
    let inner = payer(pay(&seen, None), 1).with_ownership(owning(UnknownOutcome::Fail));
    let lead = lead(within(inner, "buyer"), 1).with_ownership(owning(UnknownOutcome::Fail));
    let text = block_on(agent(lead).unwrap().query("go")).unwrap();
    assert_eq!(text.response.text(), "paid");
}
