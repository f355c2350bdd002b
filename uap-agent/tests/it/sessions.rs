//! Sessions, and what makes an agent easy to use.

use std::sync::{Arc, Mutex};

use futures::StreamExt;
use futures::channel::oneshot;
use futures::executor::block_on;
use futures::future::{BoxFuture, join};
use uap_agent::middleware::Budget;
use uap_agent::{
    AgentState, CheckpointError, CheckpointStore, FileCheckpoints, LogCheckpoints,
    MemoryCheckpoints, Middleware, MiddlewareContext, NodeId, Runtime, ThreadNode, ThreadTree,
    agent,
};
use ubos_common::driver::Sleep;
use ubos_common::id::IdSource;
use ubos_common::json::Limits;
use ubos_common::time::Timestamp;
use upp::{
    ErrorCode, LlmCapabilities, LlmModel, LlmRequest, LlmResponse, Message, ModelStream, Reply,
    ScriptedModel, Stamp, UppError,
};

use crate::support::{Still, calling, options, script};

fn counting() -> Arc<ScriptedModel> {
    Arc::new(ScriptedModel::with(|request| {
        Some(Reply::text(format!("{} messages", request.messages.len())))
    }))
}

// spec: UAP-12-2
#[test]
fn a_session_continues_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Arc::new(FileCheckpoints::open(folder.path()).unwrap());
    let texts = |n: usize| format!("{n} messages");
    {
        let (agent, store) = (agent(options(&counting())).unwrap(), open());
        let (ann, bob) = (
            agent.session(store.clone(), "ann"),
            agent.session(store, "bob"),
        );
        assert_eq!(
            block_on(ann.ask("1")).unwrap().turn.response.text(),
            texts(1)
        );
        assert_eq!(
            block_on(bob.ask("1")).unwrap().turn.response.text(),
            texts(1)
        );
        assert_eq!(
            block_on(ann.ask("2")).unwrap().turn.response.text(),
            texts(3)
        );
        let mut run = block_on(ann.stream("3")).unwrap();
        let events = block_on(async { run.by_ref().count().await });
        assert!(events > 3);
        assert_eq!(
            block_on(run.result()).unwrap().turn.response.text(),
            texts(5)
        );
        // What is aborted or dropped leaves the session where it was.
        let run = block_on(ann.stream("4")).unwrap();
        run.abort();
        assert_eq!(
            block_on(run.result()).unwrap_err().error.code,
            ErrorCode::Cancelled
        );
        drop(block_on(ann.stream("5")).unwrap());
        assert_eq!(block_on(ann.state()).unwrap().messages().len(), 6);
        block_on(ann.close()).unwrap();
        // Closed, another store saves it while the first is open.
        let other = open();
        let ann = agent.session(other, "ann");
        assert_eq!(
            block_on(ann.ask("6")).unwrap().turn.response.text(),
            texts(7)
        );
    }
    let agent = agent(options(&counting())).unwrap();
    let ann = agent.session(open(), "ann");
    assert_eq!(
        block_on(ann.ask("7")).unwrap().turn.response.text(),
        texts(9)
    );
    assert_eq!(ann.id(), "ann");
    let bad = agent.session(open(), "..");
    let error: UppError = block_on(bad.ask("x")).unwrap_err().into();
    let cause = error.cause.unwrap();
    assert!(
        matches!(cause.downcast_ref(), Some(CheckpointError::Session { .. })),
        "{cause}"
    );
}

// spec: UAP-12-2
#[test]
fn a_session_that_was_not_saved_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Arc::new(FileCheckpoints::open(folder.path()).unwrap());
    let agent = agent(options(&counting())).unwrap();
    let ann = agent.session(open(), "ann");
    block_on(ann.ask("1")).unwrap();
    // Another store, which the first has locked out.
    let locked_out = agent.session(open(), "ann");
    let error = block_on(locked_out.ask("2")).unwrap_err();
    let cause = error.error.cause.as_ref().unwrap().downcast_ref();
    assert_eq!(cause, Some(&CheckpointError::InUse));
    // Nothing of the run is lost.
    assert_eq!(error.turn.unwrap().response.text(), "3 messages");
    assert_eq!(error.state.messages().len(), 4);
    assert_eq!(block_on(ann.state()).unwrap().messages().len(), 2);
    block_on(ann.close()).unwrap();
    block_on(locked_out.ask("2")).unwrap();
}

// spec: UAP-12-2, UAP-12-4
#[test]
fn of_two_runs_that_began_at_once_the_later_one_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let memory = Arc::new(MemoryCheckpoints::default());
    of_two_runs_one_is_refused(&|| memory.clone());
    of_two_runs_one_is_refused(&|| {
        Arc::new(FileCheckpoints::open(folder.path().join("files")).unwrap())
    });
    of_two_runs_one_is_refused(&|| {
        Arc::new(LogCheckpoints::open(folder.path().join("log")).unwrap())
    });
}

/// Two runs of one session, both of which have loaded it before one of them saves: of a new session and of one that is there,
/// through a store of their own each and through one.
pub(crate) fn of_two_runs_one_is_refused(open: &dyn Fn() -> Arc<dyn CheckpointStore>) {
    for (name, begun, shared) in [
        ("new", false, false),
        ("begun", true, false),
        ("new and shared", false, true),
        ("begun and shared", true, true),
    ] {
        let (asked, is_asked) = oneshot::channel();
        let (answer, may_answer) = oneshot::channel();
        let wait = Arc::new(Mutex::new(Some((asked, may_answer))));
        let late = Arc::new(ScriptedModel::with(move |_| {
            let wait = Arc::clone(&wait);
            Some(Reply::text("late").after(move || {
                let wait = wait.lock().unwrap().take();
                async move {
                    if let Some((asked, may_answer)) = wait {
                        asked.send(()).unwrap();
                        may_answer.await.unwrap();
                    }
                }
            }))
        }));
        let seeded = |model: &Arc<ScriptedModel>, seed| {
            let runtime = Runtime::new(Arc::new(Still), IdSource::seeded(seed));
            agent(options(model).with_runtime(runtime)).unwrap()
        };
        let agents = (seeded(&counting(), 1), seeded(&late, 2));
        let first = open();
        let second = if shared { first.clone() } else { open() };
        let one = agents.0.session(first, name);
        let other = agents.1.session(second, name);
        if begun {
            block_on(one.ask("before")).unwrap();
            block_on(one.clone().close()).unwrap();
        }
        let overtaking = async {
            is_asked.await.unwrap();
            one.ask("one").await.unwrap();
            one.clone().close().await.unwrap();
            answer.send(()).unwrap();
        };
        let ((), refused) = block_on(join(overtaking, other.ask("other")));
        let saved = block_on(one.state()).unwrap();
        let said: Vec<_> = saved.messages().iter().map(Message::text).collect();
        assert!(said.contains(&"one".to_owned()), "{name}: {said:?}");
        let refused = refused.expect_err(name);
        let cause = refused.error.cause.as_ref().unwrap().downcast_ref();
        assert!(
            matches!(cause, Some(CheckpointError::Conflict { .. })),
            "{name}: {cause:?}"
        );
        assert_eq!(refused.turn.unwrap().response.text(), "late");
        // The one that was refused locks nobody out, and goes on behind what it has loaded.
        block_on(one.ask("more")).unwrap();
        block_on(one.close()).unwrap();
        block_on(other.ask("and more")).unwrap();
        block_on(other.close()).unwrap();
    }
}

/// A model that cannot stream.
struct Whole;

impl LlmModel for Whole {
    fn provider(&self) -> &str {
        "whole"
    }
    fn model_id(&self) -> &str {
        "whole"
    }
    fn capabilities(&self) -> LlmCapabilities {
        LlmCapabilities::text()
    }
    fn complete(&self, request: LlmRequest) -> BoxFuture<'static, Result<LlmResponse, UppError>> {
        let replies = [calling("first", "c1", "{}"), Reply::text("done")];
        let n = request.messages.len() / 2;
        ScriptedModel::new(replies.into_iter().skip(n)).complete(request)
    }
    fn stream(&self, _: LlmRequest) -> ModelStream {
        panic!("it was asked for a stream")
    }
}

// spec: UAP-11-3
#[test]
fn a_model_that_cannot_stream_is_asked_for_a_whole_response() {
    let told = |streams: bool| {
        let options = match streams {
            true => options(&script([calling("first", "c1", "{}"), Reply::text("done")])),
            false => options(&script([]))
                .with_streaming(false)
                .map_llm(|llm| llm.with_model(Arc::new(Whole))),
        };
        let budget = Budget::default();
        let layer = Arc::new(budget.clone()) as Arc<dyn Middleware>;
        let agent = agent(options.with_middleware([layer])).unwrap();
        let mut run = agent.stream("go", &agent.initial_state());
        let events = block_on(async { run.by_ref().collect::<Vec<_>>().await });
        assert_eq!(block_on(run.result()).unwrap().turn.response.text(), "done");
        let lines: Vec<_> = events.iter().map(ubos_common::json::to_string).collect();
        (lines, budget.tokens())
    };
    assert_eq!(told(false), told(true));
    let metered = Budget::default().model(Arc::new(Whole));
    assert_eq!(metered.model_id(), "whole");
}

// spec: UAP-9-1
#[test]
fn a_layer_is_tested_with_a_context_of_its_own() {
    struct Polite;
    impl Middleware for Polite {
        fn name(&self) -> &str {
            "polite"
        }
        fn before<'a>(
            &'a self,
            context: &'a mut MiddlewareContext,
        ) -> uap_agent::HookFuture<'a, ()> {
            context
                .metadata
                .insert("said".into(), upp::json_text("please"));
            Box::pin(async { Ok(()) })
        }
    }
    let mut ids = IdSource::seeded(1);
    let input = Message::user(Stamp::new(&mut ids, Timestamp::EPOCH), "hi");
    let state = AgentState::initial(&mut ids);
    let mut context = MiddlewareContext::new(Still.now(), ids, input, state);
    block_on(Polite.before(&mut context)).unwrap();
    assert_eq!(context.metadata["said"].as_str(), "\"please\"");
}

// spec: UAP-7-2
#[test]
fn a_node_is_made_and_read_back_alone() {
    let mut ids = IdSource::seeded(3);
    let id: NodeId = ids.next_id();
    let mut node = ThreadNode::new(id, AgentState::initial(&mut ids));
    node.name = Some("ideas".into());
    let read = ThreadNode::from_json(node.to_json().as_bytes(), &Limits::default()).unwrap();
    assert_eq!(read, node);
    let broken = node.to_json().replace("\"step\":0", "\"step\":-1");
    let error = ThreadNode::from_json(broken.as_bytes(), &Limits::default()).unwrap_err();
    assert!(error.to_string().contains("/state/step"), "{error}");
    // The node of a tree reads alike.
    let tree = ThreadTree::new(&mut ids, AgentState::initial(&mut IdSource::seeded(4)));
    let root = tree.root();
    assert_eq!(
        &ThreadNode::from_json(root.to_json().as_bytes(), &Limits::default()).unwrap(),
        root
    );
}

// spec: UAP-12-3
#[test]
fn the_default_store_is_where_the_specification_has_it() {
    let store = Arc::new(MemoryCheckpoints::default());
    assert!(block_on(store.load("nobody")).unwrap().is_none());
    // Opened by name alone: the present folder is the process's, so the test looks at the path's spelling.
    let made = std::path::Path::new(".checkpoints").exists();
    drop(FileCheckpoints::open_default().unwrap());
    assert!(std::path::Path::new(".checkpoints").is_dir());
    if !made {
        std::fs::remove_dir(".checkpoints").unwrap();
    }
}
