//! The steps of a message, and the check that they form a graph.

use std::collections::BTreeMap;

use ubos_common::json::{Fault, Read, Reader, Write};
use ubos_common::violation::Level;

use super::step::{OnError, Step};
use crate::limits::MAX_ACTS;

/// The steps of a plan: at least one, and at most 10,000.
#[derive(Clone, Debug, PartialEq)]
pub struct Steps(Vec<Step>);

impl Steps {
    /// The steps; `None` if there is none.
    pub(crate) fn new(steps: Vec<Step>) -> Option<Self> {
        (!steps.is_empty()).then_some(Self(steps))
    }
}

impl core::ops::Deref for Steps {
    type Target = [Step];

    fn deref(&self) -> &[Step] {
        &self.0
    }
}

impl Read<'_> for Steps {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let at = reader.offset();
        let (mut steps, mut offsets, mut refused) = (Vec::new(), Vec::new(), false);
        reader.array(|reader, index| {
            let step_at = reader.offset();
            if index >= MAX_ACTS {
                if index == MAX_ACTS {
                    reader.reject(step_at, "too_many_steps", "at most 10000 steps");
                    refused = true;
                }
                return reader.skip();
            }
            match reader.under("SACP1-6-1", false, Step::read)? {
                Some(step) => {
                    steps.push(step);
                    offsets.push(step_at);
                }
                None => refused = true,
            }
            Ok(())
        })?;
        if steps.is_empty() && !refused {
            return Err(reader.bad_value(at, "at least one step"));
        }
        // If a step was refused, references to it cannot be checked.
        if !refused {
            for fault in faults(&steps) {
                let step_at = offsets.get(fault.step).copied().unwrap_or(at);
                let member = Some(fault.member.into());
                reader.note(step_at, member, fault.code, Level::Must, fault.what);
                refused = true;
            }
        }
        if refused {
            return Err(reader.noted());
        }
        Ok(Self(steps))
    }
}

impl Write for Steps {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }
}

/// A fault of the graph.
struct GraphFault {
    step: usize,
    member: &'static str,
    code: &'static str,
    what: String,
}

/// Every fault of the graph.
// impl: SACP1-6-2
fn faults(steps: &[Step]) -> Vec<GraphFault> {
    let mut found = Vec::new();
    let mut places = BTreeMap::new();
    for (n, step) in steps.iter().enumerate() {
        if places.insert(step.id.as_str(), n).is_some() {
            let what = format!("another step is called {}", step.id);
            found.push(fault(n, "id", "duplicate_id", what));
        }
    }
    let mut replaces: BTreeMap<usize, usize> = BTreeMap::new();
    for (n, step) in steps.iter().enumerate() {
        refuse_dependencies(n, step, &places, &mut found);
        let Some(name) = &step.fallback_step else {
            continue;
        };
        match places.get(name.as_str()) {
            None => {
                let what = format!("no step is called {name}");
                found.push(fault(n, "fallback_step", "unknown_step", what));
            }
            Some(&other) if other == n => {
                let what = "a step is no fallback of itself".to_owned();
                found.push(fault(n, "fallback_step", "self_fallback", what));
            }
            Some(_) if step.on_error != Some(OnError::Fallback) => {}
            // choice: SACP1-6-3 one step takes the place of one other: it runs once, and has one output.
            Some(&other) if replaces.contains_key(&other) => {
                let what = format!("{name} is the fallback of another step already");
                found.push(fault(n, "fallback_step", "shared_fallback", what));
            }
            Some(&other) => drop(replaces.insert(other, n)),
        }
    }
    if found.is_empty() {
        found.extend(refuse_cycle(steps, &places, &replaces));
    }
    if found.is_empty() {
        refuse_output_keys(steps, &replaces, &mut found);
    }
    found
}

const fn fault(step: usize, member: &'static str, code: &'static str, what: String) -> GraphFault {
    GraphFault {
        step,
        member,
        code,
        what,
    }
}

fn refuse_dependencies(
    n: usize,
    step: &Step,
    places: &BTreeMap<&str, usize>,
    found: &mut Vec<GraphFault>,
) {
    for name in step.depends_on.iter().flatten() {
        match places.get(name.as_str()) {
            None => {
                let what = format!("no step is called {name}");
                found.push(fault(n, "depends_on", "unknown_step", what));
            }
            Some(_) if *name == step.id => {
                let what = "a step does not wait for itself".to_owned();
                found.push(fault(n, "depends_on", "self_dependency", what));
            }
            Some(_) => {}
        }
    }
}

/// The dependencies of each step, fallbacks included: a fallback step waits for the step that it replaces, and the
/// dependents of a step wait for its fallback as well.
fn waits(
    steps: &[Step],
    places: &BTreeMap<&str, usize>,
    replaces: &BTreeMap<usize, usize>,
) -> Vec<Vec<usize>> {
    let fallback_of: BTreeMap<usize, usize> = replaces.iter().map(|(f, s)| (*s, *f)).collect();
    let names = |step: &Step| -> Vec<usize> {
        let names = step.depends_on.iter().flatten();
        names
            .filter_map(|name| places.get(name.as_str()).copied())
            .collect()
    };
    let mut waits: Vec<Vec<usize>> = steps.iter().map(names).collect();
    for (n, list) in waits.iter_mut().enumerate() {
        let fallbacks: Vec<usize> = list
            .iter()
            .filter_map(|before| fallback_of.get(before).copied())
            .filter(|fallback| *fallback != n)
            .collect();
        list.extend(fallbacks);
        list.extend(replaces.get(&n));
    }
    waits
}

fn refuse_cycle(
    steps: &[Step],
    places: &BTreeMap<&str, usize>,
    replaces: &BTreeMap<usize, usize>,
) -> Option<GraphFault> {
    /// The names of a cycle that an error shows.
    const SHOWN: usize = 16;
    let cycle = cycle_in(&waits(steps, places, replaces))?;
    let first = cycle.first().copied()?;
    let name = |n: &usize| steps.get(*n).map_or("", |step| step.id.as_str());
    let mut names: Vec<&str> = cycle.iter().take(SHOWN).map(name).collect();
    names.push(if cycle.len() > SHOWN {
        "..."
    } else {
        name(&first)
    });
    let what = format!("a cycle: {}", names.join(" waits for "));
    Some(fault(first, "depends_on", "cycle", what))
}

/// The nodes of a cycle, the first in document order first.
fn cycle_in(waits: &[Vec<usize>]) -> Option<Vec<usize>> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        Open,
        Closed,
    }
    let mut marks = vec![Mark::New; waits.len()];
    for start in 0..waits.len() {
        if marks.get(start) == Some(&Mark::Closed) {
            continue;
        }
        // The path from `start`, each with the next of its edges to follow.
        let mut path = vec![(start, 0)];
        while let Some((node, edge)) = path.pop() {
            let next = waits.get(node).and_then(|list| list.get(edge)).copied();
            let mark = if next.is_some() {
                Mark::Open
            } else {
                Mark::Closed
            };
            if let Some(slot) = marks.get_mut(node) {
                *slot = mark;
            }
            let Some(next) = next else { continue };
            path.push((node, edge + 1));
            match marks.get(next) {
                Some(Mark::Open) => {
                    let from = path.iter().position(|(n, _)| *n == next).unwrap_or(0);
                    let mut cycle: Vec<usize> = path.iter().skip(from).map(|(n, _)| *n).collect();
                    let least = (0..cycle.len()).min_by_key(|i| cycle.get(*i)).unwrap_or(0);
                    cycle.rotate_left(least);
                    return Some(cycle);
                }
                Some(Mark::New) => path.push((next, 0)),
                _ => {}
            }
        }
    }
    None
}

fn refuse_output_keys(
    steps: &[Step],
    replaces: &BTreeMap<usize, usize>,
    found: &mut Vec<GraphFault>,
) {
    // There is no cycle, so the chain of fallbacks ends.
    let stands_for = |mut n: usize| {
        while let Some(replaced) = replaces.get(&n) {
            n = *replaced;
        }
        n
    };
    let mut keys = BTreeMap::new();
    for (n, step) in steps.iter().enumerate() {
        let Some(key) = &step.output_key else {
            continue;
        };
        let root = stands_for(n);
        if *keys.entry(key.as_str()).or_insert(root) != root {
            let what = format!("the output of another step is called {key}");
            found.push(fault(n, "output_key", "duplicate_output_key", what));
        }
    }
}
