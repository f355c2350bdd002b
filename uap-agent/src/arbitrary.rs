//! States and thread trees of any shape, for fuzzing and property tests: valid ones, their corners included.
//!
//! ```
//! use arbitrary::{Arbitrary as _, Unstructured};
//! use uap_agent::{AgentState, ThreadTree};
//! use ubos_common::json::Limits;
//!
//! let bytes: Vec<u8> = (0..=255).cycle().take(4_096).collect();
//! let mut source = Unstructured::new(&bytes);
//! let state = AgentState::arbitrary(&mut source)?;
//! assert_eq!(AgentState::from_json(state.to_json().as_bytes(), &Limits::default()), Ok(state));
//! let tree = ThreadTree::arbitrary(&mut source)?;
//! assert_eq!(ThreadTree::from_json(tree.to_json().as_bytes(), &Limits::default()), Ok(tree));
//! # Ok::<(), arbitrary::Error>(())
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ::arbitrary::{Arbitrary, Error, Result, Unstructured};
use ubos_common::id::IdSource;
use ubos_common::json::{Limits, RawBuf, decode};
use ubos_common::violation::Profile;
use upp::{Message, ToolExecution};

use crate::state::{
    AgentState, PlanStep, PlanStepStatus, SubagentExecutionTrace, ToolExecutionTrace,
};
use crate::tree::{NodeId, ThreadTree};

/// Words of the protocol in the form that fuzzers take as a dictionary.
pub const DICTIONARY: &str = include_str!("../vectors/uap.dict");

/// Files to begin with, each with its kind, `uap-state` or `uap-thread-tree`: the published vectors, valid and not.
pub fn seeds() -> impl Iterator<Item = (String, String)> {
    let valid = include_str!("../vectors/valid.jsonl").lines();
    let lines = valid.chain(include_str!("../vectors/invalid.jsonl").lines());
    lines.filter_map(|line| {
        let read = decode(line.as_bytes(), &Limits::default(), Profile::Strict);
        let members: BTreeMap<String, RawBuf> = read.ok()?.0;
        let text = |name: &str| members.get(name)?.deserialize().ok();
        Some((text("kind")?, text("text")?))
    })
}

impl<'a> Arbitrary<'a> for AgentState {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let mut ids = IdSource::seeded(u.arbitrary()?);
        state(u, &mut ids)
    }
}

impl<'a> Arbitrary<'a> for ThreadTree {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let mut ids = IdSource::seeded(u.arbitrary()?);
        let root = state(u, &mut ids)?;
        let mut tree = Self::new(&mut ids, root);
        for _ in 0..u.int_in_range(0..=4)? {
            let nodes: Vec<NodeId> = tree.nodes().iter().map(|node| node.id).collect();
            let (from, name) = (*u.choose(&nodes)?, <Option<&str>>::arbitrary(u)?);
            let made = tree
                .branch(&mut ids, from, name)
                .map_err(|_| Error::IncorrectFormat)?;
            if u.arbitrary()? {
                tree.checkout(made).map_err(|_| Error::IncorrectFormat)?;
                tree.set_state(state(u, &mut ids)?);
            }
        }
        Ok(tree)
    }
}

fn state(u: &mut Unstructured<'_>, ids: &mut IdSource) -> Result<AgentState> {
    let mut state = AgentState::initial(ids).with_step(ids, u.arbitrary()?);
    let mut taken = BTreeSet::new();
    for _ in 0..u.int_in_range(0..=4)? {
        let message = Message::arbitrary(u)?;
        if taken.insert(message.id().to_owned()) {
            state = state.with_message(ids, message);
        }
    }
    for _ in 0..u.int_in_range(0..=2)? {
        let value = u.arbitrary::<i64>()?.to_string();
        let value = RawBuf::parse(&value).map_err(|_| Error::IncorrectFormat)?;
        state = state
            .with_metadata(ids, text(u)?, value)
            .with_reasoning(ids, text(u)?);
    }
    if u.arbitrary()? {
        state = state.with_plan(ids, plan(u)?);
    }
    for _ in 0..u.int_in_range(0..=2)? {
        state = state.with_subagent_trace(ids, trace(u)?);
    }
    Ok(state)
}

fn plan(u: &mut Unstructured<'_>) -> Result<Vec<PlanStep>> {
    let mut steps: Vec<PlanStep> = Vec::new();
    for n in 0..u.int_in_range(0..=3)? {
        let before: Vec<Arc<str>> = steps.iter().map(|step| Arc::clone(&step.id)).collect();
        let status: PlanStepStatus = u.choose(PlanStepStatus::WORDS).map(|word| (*word).into())?;
        let mut step = PlanStep::new(format!("{n}").into(), text(u)?.into(), before, status);
        step.tool = <Option<&str>>::arbitrary(u)?.map(Into::into);
        steps.push(step);
    }
    Ok(steps)
}

fn trace(u: &mut Unstructured<'_>) -> Result<SubagentExecutionTrace> {
    let mut word = || text(u).map(Arc::from);
    let (id, kind, call, prompt) = (word()?, word()?, word()?, word()?);
    let (from, to, success) = (u.arbitrary()?, u.arbitrary()?, u.arbitrary()?);
    let mut trace = SubagentExecutionTrace::new(id, kind, call, prompt, from, to, success);
    trace.result = <Option<&str>>::arbitrary(u)?.map(Into::into);
    trace.error = <Option<&str>>::arbitrary(u)?.map(Into::into);
    if u.arbitrary()? {
        let done = ToolExecution::arbitrary(u)?;
        let result = upp::ToolResult::from(&done).text().as_ref().into();
        let mut tool = ToolExecutionTrace::new(done.tool_name, done.arguments, result);
        tool.tool_call_id = Some(done.tool_call_id);
        tool.duration = Some(done.duration);
        trace.tool_executions = Some(vec![tool]);
    }
    Ok(trace)
}

fn text(u: &mut Unstructured<'_>) -> Result<String> {
    Ok(<&str>::arbitrary(u)?.chars().take(24).collect())
}
