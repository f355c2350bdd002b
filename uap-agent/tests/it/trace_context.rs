//! The place of a run in a distributed trace: in the metadata of its states, in requests, tools, sub-agents and the journal.

use std::sync::{Arc, Mutex};

use futures::executor::block_on;
use uap_agent::{
    AgentInput, AgentOptions, AgentState, CheckpointStore, ExecutionStrategy, HookFuture,
    LoopOptions, MemoryCheckpoints, Middleware, MiddlewareContext, PlanOptions, ReactOptions,
    RunScope, Runtime, SubagentTool, agent, plan, react, tool_loop,
};
use ubos_common::id::IdSource;
use ubos_common::json::{Limits, RawBuf, RawObject};
use ubos_common::trace_context::TraceContext;
use upp::{
    CancelToken, FnTool, LlmRequest, Message, Reply, ScriptedModel, Tool, ToolContext, json_text,
    object,
};

use crate::support::Still;

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn place() -> TraceContext {
    TraceContext::read(PARENT, ["a=1,b=2"]).unwrap()
}

fn other() -> TraceContext {
    TraceContext::new([9; 16], [8; 8]).unwrap()
}

type Seen<T> = Arc<Mutex<Vec<T>>>;

/// The places of requests and of tools.
#[derive(Clone, Default)]
struct Places {
    requests: Seen<Option<TraceContext>>,
    tools: Seen<Option<TraceContext>>,
}

impl Places {
    /// All of a run so far, of which there is one at least.
    fn take(&self) -> (Option<TraceContext>, Option<TraceContext>) {
        (only(&self.requests), only(&self.tools))
    }
}

/// The one value that was seen, however often.
fn only<T: Clone + PartialEq + std::fmt::Debug>(seen: &Seen<T>) -> T {
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    let first = seen.first().expect("something was seen").clone();
    assert!(seen.iter().all(|place| *place == first), "{seen:?}");
    first
}

fn strategies() -> [Arc<dyn ExecutionStrategy>; 3] {
    [
        tool_loop(LoopOptions::default()).unwrap(),
        react(ReactOptions::default()).unwrap(),
        plan(PlanOptions::default()).unwrap(),
    ]
}

/// A plan to who asks for one, one call of `look` for each input, words to the rest.
fn answer(request: &LlmRequest) -> Option<Reply> {
    let last = request.messages.last()?;
    if last.text().starts_with("Make a plan") {
        return Some(Reply::text(r#"{"steps":[{"id":"a","description":"x"}]}"#));
    }
    let inputs = ["go", "and again", "look"];
    let messages: Vec<_> = request.messages.iter().collect();
    let input = messages
        .iter()
        .rposition(|it| inputs.contains(&&*it.text()));
    let mut since = messages.iter().skip(input?);
    if !request.offers_tools() || since.any(|it| matches!(it, Message::ToolResult(_))) {
        return Some(Reply::text("done"));
    }
    Some(Reply::default().calling("c", "look", RawObject::empty()))
}

/// An agent's options whose model and tool note the places that they see.
fn noting(places: &Places) -> AgentOptions {
    let requests = Arc::clone(&places.requests);
    let model = ScriptedModel::with(move |request| {
        requests.lock().unwrap().push(request.trace.clone());
        answer(request)
    });
    let tools = Arc::clone(&places.tools);
    let look = FnTool::new("look", "", RawObject::empty(), move |_, context| {
        let scope = context.extensions.get::<RunScope>().unwrap();
        assert_eq!(scope.call().trace, context.trace);
        tools.lock().unwrap().push(context.trace);
        async { Ok(json_text("seen")) }
    });
    AgentOptions::new(Arc::new(model))
        .with_tool(look)
        .with_runtime(Runtime::new(Arc::new(Still), IdSource::seeded(7)))
}

fn with_text(state: &AgentState, name: &str, text: &str) -> AgentState {
    let value = RawBuf::parse(text).unwrap();
    state.with_metadata(&mut IdSource::seeded(5), name, value)
}

// spec: UAP-6-1
#[test]
fn of_two_places_of_an_input_the_last_one_stays() {
    let input = AgentInput::from("go").with_trace(other());
    let AgentInput::Traced(input, stays) = input.with_trace(place()) else {
        panic!("an input with a place");
    };
    assert_eq!(stays, place());
    assert!(matches!(*input, AgentInput::Text(text) if text == "go"));
}

// spec: UAP-6-1, UAP-12-6
#[test]
fn a_state_keeps_a_place_among_its_metadata() {
    let ids = &mut IdSource::seeded(1);
    let empty = AgentState::initial(ids);
    let mine = empty.with_metadata(ids, "mine", json_text("kept"));
    assert_eq!(mine.trace_context(), None);
    let placed = mine.with_trace_context(ids, Some(&place()));
    assert_ne!(placed.id(), mine.id());
    assert_eq!(mine.trace_context(), None);
    let json = placed.to_json();
    let metadata =
        format!(r#""metadata":{{"mine":"kept","traceparent":"{PARENT}","tracestate":"a=1,b=2"}}"#);
    assert!(json.contains(&metadata), "{json}");
    let read = AgentState::from_json(json.as_bytes(), &Limits::default()).unwrap();
    assert_eq!(read.trace_context(), Some(place()));
    // Another place takes its place, and leaves no state behind.
    let moved = read.with_trace_context(ids, Some(&other()));
    assert_eq!(moved.trace_context(), Some(other()));
    assert_eq!(moved.metadata().len(), 2);
    assert_eq!(
        moved.with_trace_context(ids, None).metadata(),
        mine.metadata()
    );
    // A name that stands twice is refused, as in any object.
    let again = format!(r#""traceparent":"{PARENT}","tracestate""#);
    let twice = json.replace(r#""tracestate""#, &again);
    assert!(AgentState::from_json(twice.as_bytes(), &Limits::default()).is_err());
}

/// What is no place is none, and is left as it stands.
#[test]
fn a_place_that_is_not_valid_is_dropped_and_the_run_goes_on() {
    let parent = json_text(PARENT);
    let wrong = [
        "null".to_owned(),
        "7".to_owned(),
        format!("[{}]", parent.as_str()),
        r#""""#.to_owned(),
        format!(r#""{}""#, PARENT.to_uppercase()),
        format!(
            r#""{}""#,
            PARENT.replace("b7ad6b7169203331", &"0".repeat(16))
        ),
        format!(r#""{PARENT}\n""#),
    ];
    let places = Places::default();
    let agent = agent(noting(&places)).unwrap();
    for text in wrong {
        let state = with_text(&agent.initial_state(), "traceparent", &text);
        let state = with_text(&state, "tracestate", r#""a=1""#);
        let result = block_on(agent.generate("go", &state)).unwrap();
        assert_eq!(places.take(), (None, None), "{text}");
        for name in ["traceparent", "tracestate"] {
            let left = |state: &AgentState| Some(state.metadata().value(name)?.to_owned());
            assert_eq!(left(&result.state), left(&state));
        }
        assert_eq!(result.turn.response.text(), "done");
    }
    // A state that is not valid is dropped alone.
    for text in ["7", r#""A=1""#, r#""a=1,a=2""#] {
        let state = with_text(&agent.initial_state(), "traceparent", parent.as_str());
        let state = with_text(&state, "tracestate", text);
        block_on(agent.generate("go", &state)).unwrap();
        let wanted = TraceContext::read(PARENT, []);
        assert_eq!(places.take(), (wanted.clone(), wanted), "{text}");
    }
}

#[test]
fn requests_and_tools_of_every_strategy_have_the_place_of_their_run() {
    for execution in strategies() {
        let places = Places::default();
        let store = Arc::new(MemoryCheckpoints::default());
        let options = noting(&places)
            .with_execution(execution)
            .with_checkpoints(store.clone())
            .with_session_id("s");
        let agent = agent(options).unwrap();
        let state = agent.initial_state();
        block_on(agent.generate("go", &state)).unwrap();
        assert_eq!(places.take(), (None, None));
        // Of two places the last counts.
        let input = AgentInput::from("go").with_trace(other());
        let input = input.with_trace(place());
        let result = block_on(agent.generate(input, &state)).unwrap();
        assert_eq!(places.take(), (Some(place()), Some(place())));
        assert_eq!(state.trace_context(), None);
        assert_eq!(result.state.trace_context(), Some(place()));
        let saved = block_on(store.load("s")).unwrap().unwrap();
        assert_eq!(saved.trace_context(), Some(place()));
        // A state that goes on elsewhere keeps its place, until another is given.
        block_on(agent.generate("and again", &saved)).unwrap();
        assert_eq!(places.take(), (Some(place()), Some(place())));
        let input = AgentInput::from("and again").with_trace(other());
        let result = block_on(agent.generate(input, &saved)).unwrap();
        assert_eq!(places.take(), (Some(other()), Some(other())));
        assert_eq!(result.state.trace_context(), Some(other()));
    }
}

#[test]
fn every_way_to_run_takes_a_place() {
    let places = Places::default();
    let agent = agent(noting(&places)).unwrap();
    let placed = || AgentInput::from("go").with_trace(place());
    let seen = || assert_eq!(places.take(), (Some(place()), Some(place())));
    block_on(agent.query(placed())).unwrap();
    seen();
    block_on(agent.ask(placed(), &agent.initial_state())).unwrap();
    seen();
    let message = Message::user(
        upp::Stamp::new(
            &mut IdSource::seeded(3),
            ubos_common::time::Timestamp::EPOCH,
        ),
        "go",
    );
    let input = AgentInput::from(message.clone()).with_trace(place());
    let result = block_on(agent.generate(input, &agent.initial_state()));
    assert_eq!(result.unwrap().state.messages().get(0), Some(&message));
    seen();
}

#[test]
fn a_session_has_a_place_and_an_input_another() {
    let places = Places::default();
    let agent = agent(noting(&places)).unwrap();
    let store: Arc<dyn CheckpointStore> = Arc::new(MemoryCheckpoints::default());
    let session = agent.session(Arc::clone(&store), "s");
    let placed = session.clone().with_trace(other()).with_trace(place());
    for _ in 0..2 {
        block_on(placed.ask("go")).unwrap();
        assert_eq!(places.take(), (Some(place()), Some(place())));
    }
    let input = AgentInput::from("go").with_trace(other());
    block_on(placed.ask(input)).unwrap();
    assert_eq!(places.take(), (Some(other()), Some(other())));
    // The session's place comes before that of its last state; a session without one goes on from there.
    block_on(placed.ask("go")).unwrap();
    assert_eq!(places.take(), (Some(place()), Some(place())));
    block_on(session.ask("go")).unwrap();
    assert_eq!(places.take(), (Some(place()), Some(place())));
    block_on(agent.session(store, "t").ask("go")).unwrap();
    assert_eq!(places.take(), (None, None));
}

/// Puts the run below the place that it has.
struct Below;

impl Middleware for Below {
    fn name(&self) -> &str {
        "below"
    }
    fn before<'a>(&'a self, context: &'a mut MiddlewareContext) -> HookFuture<'a, ()> {
        let below = context
            .state
            .trace_context()
            .and_then(|it| it.child([3; 8]));
        let state = &context.state;
        context.state = state.with_trace_context(&mut context.ids, below.as_ref());
        Box::pin(async { Ok(()) })
    }
}

#[test]
fn middleware_may_change_the_place() {
    let places = Places::default();
    let options = noting(&places).with_middleware([Arc::new(Below) as Arc<dyn Middleware>]);
    let agent = agent(options).unwrap();
    block_on(agent.query(AgentInput::from("go").with_trace(place()))).unwrap();
    let below = place().child([3; 8]);
    assert_eq!(places.take(), (below.clone(), below));
    block_on(agent.query("go")).unwrap();
    assert_eq!(places.take(), (None, None));
}

/// A sub-agent whose places are noted, as the tool `look`.
fn sub(places: &Places) -> SubagentTool {
    let agent = agent(noting(places)).unwrap();
    SubagentTool::new(agent, "look", "", RawObject::empty(), |_| Ok("look".into()))
}

/// The place of the sub-agent that left a trace.
fn of_trace(above: &TraceContext, subagent_id: &str) -> TraceContext {
    let half: String = subagent_id
        .chars()
        .filter(|it| *it != '-')
        .skip(16)
        .collect();
    let parent = above.traceparent();
    let span = parent.split('-').nth(2).unwrap();
    TraceContext::read(&parent.replace(span, &half), above.tracestate()).unwrap()
}

// spec: UAP-8-5
#[test]
fn a_sub_agent_is_below_the_call_that_it_serves() {
    let (above, inside) = (Places::default(), Places::default());
    let lead = noting(&above).with_tools([Arc::new(sub(&inside)) as Arc<dyn Tool>]);
    let lead = agent(lead).unwrap();
    let mut state = lead.initial_state();
    let mut spans = Vec::new();
    for n in 0..2 {
        let input = AgentInput::from("go").with_trace(place());
        state = block_on(lead.generate(input, &state)).unwrap().state;
        let traces = state.subagent_traces();
        let id = &traces.get(n).unwrap().subagent_id;
        let wanted = of_trace(&place(), id);
        let seen = Some(wanted.clone());
        assert_eq!(inside.take(), (seen.clone(), seen));
        assert_eq!(only(&above.requests), Some(place()));
        spans.push(wanted.span_id());
    }
    assert_ne!(spans[0], spans[1]);
    // Without a place the sub-agent has none.
    block_on(lead.query("go")).unwrap();
    assert_eq!(inside.take(), (None, None));
    // The tool works outside of an agent, too.
    let mut context = ToolContext::new("c", CancelToken::default());
    context.trace = Some(place());
    let tool = sub(&inside);
    block_on(tool.run(&RawObject::empty(), &context)).unwrap();
    let below = inside.take().0.unwrap();
    assert_eq!(below.trace_id(), place().trace_id());
    assert_ne!(below.span_id(), place().span_id());
    assert_eq!(
        (below.tracestate(), below.is_sampled()),
        (Some("a=1,b=2"), true)
    );
}

#[cfg(feature = "canon")]
mod recorded {
    use uap_agent::journal::{Journal, MemoryJournal, Recording};

    use super::*;

    /// The entries of a run from a place.
    fn run(trace: Option<TraceContext>, execution: &Arc<dyn ExecutionStrategy>) -> Vec<RawObject> {
        let options = noting(&Places::default()).with_execution(Arc::clone(execution));
        let agent = agent(options).unwrap();
        let journal = Arc::new(MemoryJournal::default());
        let input = AgentInput::from("go");
        let input = match trace {
            Some(trace) => input.with_trace(trace),
            None => input,
        };
        let run = agent.record(journal.clone(), input, &agent.initial_state());
        block_on(run.result()).unwrap();
        block_on(journal.read()).unwrap()
    }

    /// Resumes a run at the beginning of these entries, with an agent of another machine; gives its end and its places.
    fn resumed(
        entries: &[RawObject],
        execution: &Arc<dyn ExecutionStrategy>,
    ) -> (Option<TraceContext>, Places) {
        let journal = Arc::new(MemoryJournal::default());
        block_on(journal.append(0, entries.to_vec())).unwrap();
        let places = Places::default();
        let options = noting(&places)
            .with_execution(Arc::clone(execution))
            .with_runtime(Runtime::new(Arc::new(Still), IdSource::seeded(99)));
        let agent = agent(options).unwrap();
        let result = block_on(async { agent.resume(journal).await.unwrap().result().await });
        (result.unwrap().state.trace_context(), places)
    }

    // spec: UAP-12-5
    #[test]
    fn a_run_that_is_resumed_anywhere_keeps_its_place() {
        for execution in strategies() {
            for trace in [Some(place()), None] {
                let entries = run(trace.clone(), &execution);
                let mut seen = 0;
                for cut in 1..=entries.len() {
                    let (end, places) = resumed(&entries[..cut], &execution);
                    assert_eq!(end, trace, "cut at {cut}");
                    for of in [places.requests, places.tools] {
                        let of = of.lock().unwrap();
                        assert!(of.iter().all(|it| *it == trace), "cut at {cut}: {of:?}");
                        seen += of.len();
                    }
                }
                assert!(seen > 5, "{seen}");
            }
        }
    }

    // spec: UAP-12-5
    #[test]
    fn a_run_from_another_place_is_the_same_program_and_the_same_run() {
        for execution in strategies() {
            let [here, there, nowhere] =
                [Some(place()), Some(other()), None].map(|trace| run(trace, &execution));
            let read = |entries: &[RawObject]| Recording::from_entries(entries).unwrap();
            for another in [&there, &nowhere] {
                assert_eq!(read(&here).diff(&read(another)).first, None);
            }
            // Whatever the beginning says: the requests are those that were recorded. The last entry holds the whole state.
            for text in [
                "00-00000000000000000000000000000001-0000000000000001-00",
                "no place",
            ] {
                let mut entries = here.clone();
                entries.pop();
                let begin = entries[0].as_str().replace(PARENT, text);
                assert_ne!(begin, entries[0].as_str());
                entries[0] = object(&begin).unwrap();
                let wanted = TraceContext::read(text, ["a=1,b=2"]);
                assert_eq!(resumed(&entries[..4], &execution).0, wanted);
                assert_eq!(resumed(&entries, &execution).0, wanted);
                let agent =
                    agent(noting(&Places::default()).with_execution(Arc::clone(&execution)));
                let replay = agent.unwrap().replay(&read(&entries)).unwrap();
                assert_eq!(replay.states[0].trace_context(), wanted);
            }
        }
    }

    // spec: UAP-8-5, UAP-12-5
    #[test]
    fn sub_agents_of_a_run_that_is_resumed_are_below_it() {
        let inside = Places::default();
        let options = || {
            let tools = [Arc::new(sub(&inside)) as Arc<dyn Tool>];
            noting(&Places::default()).with_tools(tools)
        };
        let lead = agent(options()).unwrap();
        let journal = Arc::new(MemoryJournal::default());
        let input = AgentInput::from("go").with_trace(place());
        let run = lead.record(journal.clone(), input, &lead.initial_state());
        block_on(run.result()).unwrap();
        inside.take();
        // Up to the request of the tool, which has no result.
        let entries = block_on(journal.read()).unwrap();
        let asks = |entry: &RawObject| entry.as_str().contains(r#""kind":"tool""#);
        let cut = entries.iter().position(asks).unwrap() + 1;
        let half = Arc::new(MemoryJournal::default());
        block_on(half.append(0, entries[..cut].to_vec())).unwrap();
        let other = agent(options()).unwrap();
        let result = block_on(async { other.resume(half).await.unwrap().result().await });
        let state = result.unwrap().state;
        let id = &state.subagent_traces().get(0).unwrap().subagent_id;
        let wanted = Some(of_trace(&place(), id));
        assert_eq!(inside.take(), (wanted.clone(), wanted));
    }
}
