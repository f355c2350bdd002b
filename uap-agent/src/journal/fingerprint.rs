//! Fingerprints of requests: they show whether a program still makes the requests that were recorded.

use core::panic::AssertUnwindSafe;
use std::sync::Arc;

use ubos_common::canon::Digest;
use ubos_common::json::{MemberWriter, Write, to_vec};
use upp::{List, LlmInstance, LlmRequest, Message, Tool, Turn};

use super::answer::{ErrorJson, object};
use super::entry::{EffectEntry, Fingerprint, Kind};
use crate::engine::Output;
use crate::hooks::HookCall;
use crate::result::{AgentError, GenerateResult};
use crate::state::{AgentState, PlanSteps};

/// Takes the fingerprints of a run's requests, in order.
///
/// A fingerprint covers the messages from the first on that no earlier request or state has in its place, and the steps of a
/// plan that have changed; earlier fingerprints cover the rest. Where the history only grows, the cost is linear in the length
/// of the run, because lists of messages and plans share what they have in common.
#[derive(Clone, Debug)]
pub(super) struct Fingerprinter {
    known: Known,
    /// The memory of the last fingerprint, for the next one.
    parts: Parts,
}

/// What a fingerprint covers.
#[derive(Clone, Debug, Default)]
struct Parts {
    content: Vec<u8>,
    /// Ids and times.
    rest: Vec<u8>,
}

/// What earlier fingerprints cover.
#[derive(Clone, Debug)]
struct Known {
    /// The version of the journal. Version 1 covered what stands behind the last message that was known; up to version 2,
    /// states had the number of their messages, and their whole plan.
    version: u64,
    /// The messages of the last request to the model.
    request: List<Message>,
    /// Those of the last state.
    state: List<Message>,
    plan: Option<PlanSteps>,
}

impl Known {
    fn of_version(version: u64) -> Self {
        Self {
            version,
            request: List::default(),
            state: List::default(),
            plan: None,
        }
    }

    /// The first message that is not covered.
    fn first_new(&self, messages: &List<Message>) -> usize {
        let of_request = self.request.common_prefix(messages);
        match self.version {
            // The last message that was known may have been a prompt that did not stay.
            1 => self.request.len().min(messages.len()).saturating_sub(1),
            2 => of_request,
            _ => of_request.max(self.state.common_prefix(messages)),
        }
    }
}

impl Fingerprinter {
    pub(super) fn of_version(version: u64) -> Self {
        Self {
            known: Known::of_version(version),
            parts: Parts::default(),
        }
    }

    /// The entry of an output that has a result; `None` for others.
    pub(super) fn request(&mut self, effect: &Output) -> Option<EffectEntry> {
        let mut sum = FingerprintBuilder::new(&mut self.known, &mut self.parts);
        let (id, kind) = match effect {
            Output::Infer(id, request) => {
                inference(request, &mut sum);
                (*id, Kind::Infer)
            }
            Output::Tool(id, call, scope) => {
                sum.part("call", call);
                sum.part("step", &scope.step);
                sum.rest(&scope.state_id);
                (*id, Kind::Tool)
            }
            Output::Hook(id, call) => {
                hook(call, &mut sum);
                (*id, Kind::Hook)
            }
            Output::Sleep(id, span) => {
                sum.value(&u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
                (*id, Kind::Sleep)
            }
            Output::Save(id, metadata, state) => {
                sum.state(state);
                sum.rest(metadata);
                (*id, Kind::Save)
            }
            _ => return None,
        };
        let fingerprint = sum.finish();
        Some(EffectEntry {
            id,
            kind,
            fingerprint,
        })
    }
}

fn inference(request: &LlmRequest, sum: &mut FingerprintBuilder<'_>) {
    let count = request.messages.len();
    let from = sum.known.first_new(&request.messages);
    if sum.known.version > 1 {
        sum.value(&from).value(&request.offers_tools());
    }
    sum.known.request = request.messages.clone();
    for message in request.messages.iter_from(from) {
        sum.message(message);
    }
    sum.part("messages", &count);
    sum.part("system", &request.system);
    sum.part("params", &request.params);
    sum.part("structure", &request.structure);
    let tools = request
        .tools
        .iter()
        .map(|tool| said(|| tool.name().to_owned()));
    sum.part("tools", &tools.collect::<Vec<_>>());
    let stamp = (&*request.stamp.id, request.stamp.timestamp.as_str());
    sum.rest(stamp.0).rest(stamp.1);
}

fn hook(call: &HookCall, sum: &mut FingerprintBuilder<'_>) {
    match call {
        HookCall::StopCondition(state) => sum.named("stopCondition").state(state),
        HookCall::StepStart(state) => sum.named("stepStart").state(state),
        HookCall::Reason(step, text) => sum.named("reason").value(step).value(text),
        HookCall::Act(step, message) => sum.named("act").value(step).value(message.calls()),
        HookCall::Observe(step, executions) => {
            sum.named("observe").value(step);
            for execution in executions.iter() {
                let ran = (&execution.tool_name, &execution.result);
                sum.value(ran.0).value(ran.1).value(&execution.is_error);
            }
            sum
        }
        HookCall::StepEnd(step, result) => sum.named("stepEnd").value(step).result(result),
        HookCall::Complete(result) => sum.named("complete").result(result),
        HookCall::Error(error) => sum.named("error").error(error),
        HookCall::MaxIterations(most) => sum.named("maxIterations").value(most),
        HookCall::Attempt(attempt, failure, random) => {
            sum.rest(random);
            let failure = failure.as_deref().map(ErrorJson::of);
            sum.named("attempt").value(attempt).value(&failure)
        }
        HookCall::Before(layer, context) => {
            sum.named("before").value(layer);
            sum.message(&context.input)
                .state(&context.state)
                .value(&context.metadata)
        }
        HookCall::After(layer, context, result) => sum
            .named("after")
            .value(layer)
            .value(&context.metadata)
            .result(result),
        HookCall::Caught(layer, context, error) => sum
            .named("caught")
            .value(layer)
            .value(&context.metadata)
            .error(error),
    };
}

/// Collects the parts of a fingerprint, each a JSON text with a line feed behind it.
struct FingerprintBuilder<'a> {
    parts: &'a mut Parts,
    known: &'a mut Known,
}

impl<'a> FingerprintBuilder<'a> {
    fn new(known: &'a mut Known, parts: &'a mut Parts) -> Self {
        parts.content.clear();
        parts.rest.clear();
        Self { parts, known }
    }

    /// A name has no length of its own that a value could reach into: values are whole JSON texts.
    fn part<T: Write + ?Sized>(&mut self, name: &str, value: &T) -> &mut Self {
        self.parts.content.extend_from_slice(name.as_bytes());
        value.write(&mut self.parts.content);
        self.parts.content.push(b'\n');
        self
    }

    fn rest<T: Write + ?Sized>(&mut self, value: &T) -> &mut Self {
        value.write(&mut self.parts.rest);
        self.parts.rest.push(b'\n');
        self
    }

    fn named(&mut self, name: &str) -> &mut Self {
        self.part("name", name)
    }

    fn value<T: Write + ?Sized>(&mut self, value: &T) -> &mut Self {
        self.part("value", value)
    }

    fn message(&mut self, message: &Message) -> &mut Self {
        self.value(&message.message_type()).value(message.content());
        self.part("metadata", &message.metadata());
        let timestamp = match message {
            Message::User(message) => &message.timestamp,
            Message::Assistant(message) => {
                self.part("calls", &message.tool_calls);
                &message.timestamp
            }
            Message::ToolResult(message) => {
                self.part("results", &message.results);
                &message.timestamp
            }
            _ => return self,
        };
        self.rest(timestamp);
        self.rest(message.id())
    }

    /// Adds a state.
    fn state(&mut self, state: &AgentState) -> &mut Self {
        self.rest(&state.id());
        self.value(&state.messages().len()).value(&state.step());
        if self.known.version < 3 {
            return self.part("plan", &state.plan());
        }
        let from = self.known.first_new(state.messages());
        self.known.state = state.messages().clone();
        self.part("from", &from);
        for message in state.messages().iter_from(from) {
            self.message(message);
        }
        self.plan(state.plan())
    }

    /// Adds the steps that a plan of the same length did not have, or all.
    fn plan(&mut self, plan: Option<&PlanSteps>) -> &mut Self {
        let before = core::mem::replace(&mut self.known.plan, plan.cloned());
        match (before, plan) {
            (Some(before), Some(plan)) if before.len() == plan.len() => {
                let changed = before.changed_places(plan);
                self.part("changed", &changed.len());
                for place in changed {
                    self.value(&place).part("step", &plan.get(place));
                }
                self
            }
            _ => self.part("plan", &plan),
        }
    }

    fn turn(&mut self, turn: &Turn) -> &mut Self {
        self.value(&turn.messages.len())
            .value(&turn.cycles)
            .value(&turn.usage.total_tokens)
    }

    fn result(&mut self, result: &GenerateResult) -> &mut Self {
        self.turn(&result.turn).state(&result.state)
    }

    fn error(&mut self, error: &AgentError) -> &mut Self {
        if let Some(turn) = &error.turn {
            self.turn(turn);
        }
        self.value(&object(&ErrorJson::of(&error.error)))
            .state(&error.state)
    }

    /// The digests of the content, and of the content with all else behind it.
    fn finish(self) -> Fingerprint {
        let [content, whole] = Digest::of_both(&self.parts.content, &self.parts.rest);
        Fingerprint { whole, content }
    }
}

/// The fingerprint of a run's result.
pub(super) fn end(result: &Result<GenerateResult, Box<AgentError>>) -> Fingerprint {
    // It stands for itself: of the state, the content has what version 2 has, and the whole has everything.
    let mut known = Known::of_version(2);
    let mut parts = Parts::default();
    let mut sum = FingerprintBuilder::new(&mut known, &mut parts);
    let (state, turn) = match result {
        Ok(result) => (&result.state, Some(&result.turn)),
        Err(error) => {
            sum.error(error);
            (&error.state, error.turn.as_ref())
        }
    };
    sum.state(state);
    if let Some(turn) = turn {
        sum.turn(turn);
    }
    // The end is whole: what a sum of parts has overlooked shows here.
    sum.rest(state);
    sum.rest(&turn);
    sum.finish()
}

/// The fingerprints of the options of the model.
pub(super) fn program(llm: &LlmInstance) -> Vec<(&'static str, Digest)> {
    let options = llm.options();
    let tools: Vec<_> = options.tools().tools.iter().map(ToolText).collect();
    let limit = options
        .tools()
        .strategy
        .as_ref()
        .and_then(|strategy| strategy.max_iterations());
    let of = |bytes: Vec<u8>| Digest::of_bytes(&bytes);
    vec![
        (
            "model",
            of(to_vec(&format!(
                "{}/{}",
                options.model().provider(),
                options.model().model_id()
            ))),
        ),
        ("tools", of(to_vec(&tools))),
        ("toolRounds", of(to_vec(&limit))),
        ("system", of(to_vec(&options.system()))),
        ("params", of(to_vec(&options.params()))),
        ("structure", of(to_vec(&options.structure()))),
    ]
}

/// What a tool says of itself; the default where it panics, which is an error once the run asks.
fn said<T: Default>(of: impl FnOnce() -> T) -> T {
    std::panic::catch_unwind(AssertUnwindSafe(of)).unwrap_or_default()
}

/// The parts of a tool that the model and the order of calls depend on.
struct ToolText<'a>(&'a Arc<dyn Tool>);

impl Write for ToolText<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        object.member("name", &said(|| self.0.name().to_owned()));
        object.member("description", &said(|| self.0.description().to_owned()));
        object.member("parameters", &said(|| Some(self.0.parameters())));
        object.optional("metadata", said(|| self.0.metadata()));
        object.end();
    }
}

#[cfg(test)]
mod tests {
    use ubos_common::id::IdSource;
    use ubos_common::time::Timestamp;
    use upp::Stamp;

    use super::*;
    use crate::state::{PlanStep, PlanStepStatus};

    fn message(ids: &mut IdSource, text: &str) -> Message {
        Message::user(Stamp::new(ids, Timestamp::EPOCH), text)
    }

    /// The contents of the fingerprints of requests with these histories.
    fn prints(version: u64, histories: &[List<Message>]) -> Vec<Digest> {
        let mut fingerprinter = Fingerprinter::of_version(version);
        let print = |history: &List<Message>| {
            let stamp = Stamp::new(&mut IdSource::seeded(1), Timestamp::EPOCH);
            let output = Output::Infer(1, LlmRequest::new(history.clone(), stamp));
            fingerprinter
                .request(&output)
                .map(|it| it.fingerprint.content)
        };
        histories.iter().filter_map(print).collect()
    }

    // spec: UAP-12-5
    #[test]
    fn states_cover_messages_from_version_3_on() {
        let ids = &mut IdSource::seeded(2);
        let messages: List<Message> = ["a", "b"]
            .map(|text| message(ids, text))
            .into_iter()
            .collect();
        let first_new = |version| {
            let mut known = Known::of_version(version);
            known.state = messages.clone();
            known.first_new(&messages)
        };
        assert_eq!([1, 2, 3].map(first_new), [0, 0, 2]);
    }

    // spec: UAP-12-5
    #[test]
    fn the_end_of_a_run_that_failed_covers_its_error() {
        let state = AgentState::initial(&mut IdSource::seeded(1));
        let of = |code| {
            let error = upp::UppError::new(code, "uap", "why");
            end(&Err(AgentError::new(error, state.clone(), None))).content
        };
        let (one, other) = (upp::ErrorCode::Timeout, upp::ErrorCode::Cancelled);
        assert_eq!(of(one.clone()), of(one.clone()));
        assert_ne!(of(one), of(other));
    }

    // spec: UAP-12-5
    #[test]
    fn the_randomness_of_an_attempt_is_no_content() {
        let of = |random| {
            let hook = Output::Hook(1, HookCall::Attempt(1, None, random));
            let entry = Fingerprinter::of_version(3).request(&hook).unwrap();
            entry.fingerprint
        };
        assert_eq!(of(1).content, of(2).content);
        assert_ne!(of(1).whole, of(2).whole);
    }

    // spec: UAP-12-5
    #[test]
    fn how_long_a_run_waits_is_covered() {
        let of = |millis| {
            let sleep = Output::Sleep(1, core::time::Duration::from_millis(millis));
            let entry = Fingerprinter::of_version(3).request(&sleep).unwrap();
            entry.fingerprint.content
        };
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }

    // spec: UAP-12-5
    #[test]
    #[cfg_attr(miri, ignore = "too slow in an interpreter")]
    fn a_history_that_is_rewritten_shows_in_the_next_request() {
        let mut ids = IdSource::seeded(2);
        let first: List<Message> = (0..100)
            .map(|n| message(&mut ids, &n.to_string()))
            .collect();
        let more = message(&mut ids, "more");
        let mut grown = first.clone();
        grown.push(more.clone());
        for place in [0, 31, 50, 98] {
            let rewritten = grown.iter().enumerate().map(|(n, old)| match n == place {
                true => message(&mut IdSource::seeded(9), "something else"),
                false => old.clone(),
            });
            let rewritten: List<Message> = rewritten.collect();
            let wanted = prints(2, &[first.clone(), grown.clone()]);
            let seen = prints(2, &[first.clone(), rewritten.clone()]);
            assert_eq!(wanted[0], seen[0]);
            assert_ne!(wanted[1], seen[1], "message {place}");
            // So it was with version 1.
            let seen = prints(1, &[first.clone(), rewritten]);
            assert_eq!(prints(1, &[first.clone(), grown.clone()])[1], seen[1]);
        }
        // A history with the same content in other memory is the same.
        let copied = grown.iter().cloned().collect();
        assert_eq!(
            prints(2, &[first.clone(), grown]),
            prints(2, &[first, copied])
        );
    }

    /// The contents of the fingerprints of hooks that see these states.
    fn of_states(version: u64, states: &[&AgentState]) -> Vec<Digest> {
        let mut fingerprinter = Fingerprinter::of_version(version);
        let print = |state: &&AgentState| {
            let output = Output::Hook(1, HookCall::StepStart((*state).clone()));
            fingerprinter
                .request(&output)
                .map(|it| it.fingerprint.content)
        };
        states.iter().filter_map(print).collect()
    }

    // spec: UAP-12-5
    #[test]
    fn a_state_that_is_rewritten_shows_in_the_next_hook() {
        let ids = &mut IdSource::seeded(2);
        let with = |ids: &mut IdSource, texts: &[&str]| {
            let messages: Vec<_> = texts
                .iter()
                .map(|text| message(&mut IdSource::seeded(5), text))
                .collect();
            AgentState::initial(ids).with_context(ids, messages)
        };
        let (before, after) = (
            with(ids, &["a", "b", "c"]),
            with(ids, &["a", "b", "c", "d"]),
        );
        let rewritten = with(ids, &["a", "x", "c", "d"]);
        let wanted = of_states(3, &[&before, &after]);
        assert_ne!(of_states(3, &[&before, &rewritten])[1], wanted[1]);
        assert_eq!(
            of_states(3, &[&before, &with(ids, &["a", "b", "c", "d"])]),
            wanted
        );
        assert_ne!(of_states(3, &[&before, &before])[1], wanted[1]);
        // Up to version 2 nobody saw it.
        let [old, unseen] = [&after, &rewritten].map(|last| of_states(2, &[&before, last]));
        assert_eq!(old, unseen);
    }

    // spec: UAP-12-5
    #[test]
    #[cfg_attr(miri, ignore = "too slow in an interpreter")]
    fn a_plan_is_covered_step_by_step() {
        let ids = &mut IdSource::seeded(2);
        let step = |n: usize| {
            let id = n.to_string().into();
            PlanStep::new(id, "do it".into(), vec![], PlanStepStatus::Pending)
        };
        let plan: PlanSteps = (0..1000).map(step).collect();
        let with = |ids: &mut IdSource, plan: &PlanSteps| {
            AgentState::initial(ids).with_plan(ids, plan.clone())
        };
        let done = |place: usize| {
            let mut done = step(place);
            done.status = PlanStepStatus::Completed;
            plan.with(place, done)
        };
        let states: Vec<_> = [Some(plan.clone()), done(7), done(8)]
            .iter()
            .flatten()
            .map(|plan| with(ids, plan))
            .collect();
        let [first, seventh, eighth] = [0, 1, 2].map(|n| &states[n]);
        let prints = |last| of_states(3, &[first, last])[1];
        assert_ne!(prints(seventh), prints(eighth));
        assert_ne!(prints(first), prints(eighth));
        // What is written for a hook behind the first does not grow with the plan.
        let mut known = Known::of_version(3);
        let bytes = |known: &mut Known, state| {
            let mut parts = Parts::default();
            FingerprintBuilder::new(known, &mut parts).state(state);
            parts.content.len()
        };
        assert!(bytes(&mut known, first) > 10_000);
        assert!(bytes(&mut known, seventh) < 300);
        assert!(bytes(&mut known, eighth) < 400);
    }
}
