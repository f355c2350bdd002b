//! Which steps come before which.

use std::rc::Rc;

use crate::graph::Graph;

/// The steps before each step, of its own message.
pub(super) struct Order {
    before: Vec<Rc<[u64]>>,
}

impl Order {
    pub(super) fn of(graph: &Graph) -> Self {
        let steps = graph.steps();
        let words = steps.len() / 64 + 1;
        let none: Rc<[u64]> = vec![0; words].into();
        let mut before: Vec<Option<Rc<[u64]>>> = vec![None; steps.len() + 1];
        // A step of 1.0 may be listed before those it waits for: each is done when all of those are.
        let mut stack: Vec<usize> = (1..=steps.len()).rev().collect();
        let mut shared: Option<(*const usize, Rc<[u64]>)> = None;
        while let Some(number) = stack.last().copied() {
            let Some(step) = graph
                .step(number)
                .filter(|_| slot(&before, number).is_none())
            else {
                // Its steps before are known.
                stack.pop();
                continue;
            };
            let waits = step.after.iter().copied();
            let list = step.after.as_ptr();
            // Members of a group share one list, and so one set.
            if let Some((known, set)) = &shared
                && *known == list
                && !step.after.is_empty()
            {
                if let Some(slot) = before.get_mut(number) {
                    *slot = Some(Rc::clone(set));
                }
                continue;
            }
            let open: Vec<usize> = waits
                .clone()
                .filter(|n| slot(&before, *n).is_none())
                .collect();
            if !open.is_empty() && open.iter().all(|n| *n != number) {
                stack.extend(open);
                continue;
            }
            let set = if step.after.is_empty() {
                Rc::clone(&none)
            } else {
                union(waits, &before, words)
            };
            shared = Some((list, Rc::clone(&set)));
            if let Some(slot) = before.get_mut(number) {
                *slot = Some(set);
            }
        }
        let before = before
            .into_iter()
            .map(|set| set.unwrap_or_else(|| Rc::clone(&none)));
        Self {
            before: before.collect(),
        }
    }

    /// Whether one step ends before another begins.
    pub(super) fn is_before(&self, first: usize, second: usize) -> bool {
        let set = self.before.get(second);
        let word = set
            .and_then(|set| set.get(first / 64))
            .copied()
            .unwrap_or(0);
        word >> (first % 64) & 1 == 1
    }
}

fn slot(before: &[Option<Rc<[u64]>>], number: usize) -> Option<&Rc<[u64]>> {
    before.get(number)?.as_ref()
}

fn union(
    waits: impl Iterator<Item = usize>,
    before: &[Option<Rc<[u64]>>],
    words: usize,
) -> Rc<[u64]> {
    let mut set = vec![0; words];
    for number in waits {
        for (word, more) in set
            .iter_mut()
            .zip(slot(before, number).into_iter().flat_map(|s| s.iter()))
        {
            *word |= more;
        }
        if let Some(word) = set.get_mut(number / 64) {
            *word |= 1 << (number % 64);
        }
    }
    set.into()
}
