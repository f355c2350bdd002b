//! The steps of a plan, of which one changes at a time.

use core::fmt;
use std::sync::Arc;

use ubos_common::json::Write;

use super::PlanStep;

/// Children of a node.
const WIDTH: usize = 32;

/// The steps of a plan, in order. Plans share what they have in common: a clone is cheap, and a plan with another step in one
/// place costs about as much as 32 steps, however long it is.
///
/// ```
/// use uap_agent::{PlanStep, PlanStepStatus, PlanSteps};
///
/// let step = |id: &str| PlanStep::new(id.into(), "do it".into(), vec![], PlanStepStatus::Pending);
/// let plan: PlanSteps = [step("a"), step("b")].into_iter().collect();
/// let mut done = step("b");
/// done.status = PlanStepStatus::Completed;
/// let after = plan.with(1, done).expect("there are two");
/// assert_eq!(plan.get(1).map(|step| &step.status), Some(&PlanStepStatus::Pending));
/// assert_eq!(after.iter().map(|step| &*step.id).collect::<Vec<_>>(), ["a", "b"]);
/// assert_ne!(plan, after);
/// ```
#[derive(Clone)]
pub struct PlanSteps {
    root: Node,
    len: usize,
    /// Branches above a leaf.
    height: u32,
}

#[derive(Clone)]
enum Node {
    Branch(Arc<[Self]>),
    Leaf(Arc<[PlanStep]>),
}

impl PlanSteps {
    /// The number of steps.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no step.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The step in a place, from 0.
    #[must_use]
    pub fn get(&self, place: usize) -> Option<&PlanStep> {
        self.leaf(place)?.get(place % WIDTH)
    }

    /// The steps in order.
    pub fn iter(&self) -> impl Iterator<Item = &PlanStep> {
        let leaves = (0..self.len.div_ceil(WIDTH)).filter_map(|leaf| self.leaf(leaf * WIDTH));
        leaves.flatten()
    }

    /// The plan with another step in a place; `None` where it has no such place.
    #[must_use]
    pub fn with(&self, place: usize, step: PlanStep) -> Option<Self> {
        (place < self.len).then(|| Self {
            root: self.root.with(self.height, place, step),
            ..*self
        })
    }

    /// The places in which a plan of the same length has other steps. What both share is not looked at.
    #[cfg(feature = "canon")]
    pub(crate) fn changed_places(&self, other: &Self) -> Vec<usize> {
        let mut places = Vec::new();
        self.root
            .compare(&other.root, self.height, 0, &mut |place| {
                places.push(place);
                true
            });
        places
    }

    fn leaf(&self, place: usize) -> Option<&[PlanStep]> {
        let (mut node, mut height) = (&self.root, self.height);
        loop {
            match node {
                Node::Leaf(steps) => return (place < self.len).then_some(steps),
                Node::Branch(children) => node = children.get(child(place, height))?,
            }
            height = height.checked_sub(1)?;
        }
    }
}

/// The child of a branch of some height in which a place lies.
const fn child(place: usize, height: u32) -> usize {
    place / WIDTH.pow(height) % WIDTH
}

impl Node {
    fn with(&self, height: u32, place: usize, step: PlanStep) -> Self {
        match self {
            Self::Leaf(steps) => {
                let mut steps = steps.to_vec();
                if let Some(there) = steps.get_mut(place % WIDTH) {
                    *there = step;
                }
                Self::Leaf(steps.into())
            }
            Self::Branch(children) => {
                let mut children = children.to_vec();
                if let Some(node) = children.get_mut(child(place, height)) {
                    *node = node.with(height.saturating_sub(1), place, step);
                }
                Self::Branch(children.into())
            }
        }
    }

    /// Tells the places below `first` in which two nodes of one shape differ, until it is enough; whether it went on.
    fn compare(
        &self,
        other: &Self,
        height: u32,
        first: usize,
        differs: &mut dyn FnMut(usize) -> bool,
    ) -> bool {
        match (self, other) {
            (Self::Leaf(one), Self::Leaf(two)) => {
                let mut pairs = one.iter().zip(two.iter()).enumerate();
                Arc::ptr_eq(one, two)
                    || pairs.all(|(n, (one, two))| one == two || differs(first + n))
            }
            (Self::Branch(one), Self::Branch(two)) => {
                let span = WIDTH.pow(height);
                let mut pairs = one.iter().zip(two.iter()).enumerate();
                Arc::ptr_eq(one, two)
                    || pairs.all(|(n, (one, two))| {
                        one.compare(two, height.saturating_sub(1), first + n * span, differs)
                    })
            }
            _ => false,
        }
    }
}

impl From<Vec<PlanStep>> for PlanSteps {
    fn from(steps: Vec<PlanStep>) -> Self {
        steps.into_iter().collect()
    }
}

impl FromIterator<PlanStep> for PlanSteps {
    fn from_iter<I: IntoIterator<Item = PlanStep>>(steps: I) -> Self {
        let steps: Vec<PlanStep> = steps.into_iter().collect();
        let mut nodes: Vec<Node> = steps
            .chunks(WIDTH)
            .map(|leaf| Node::Leaf(leaf.into()))
            .collect();
        let mut height = 0;
        while nodes.len() > 1 {
            let branches = nodes.chunks(WIDTH).map(|node| Node::Branch(node.into()));
            (nodes, height) = (branches.collect(), height + 1);
        }
        let root = nodes.pop().unwrap_or_else(|| Node::Leaf(Arc::default()));
        Self {
            root,
            len: steps.len(),
            height,
        }
    }
}

impl Default for PlanSteps {
    fn default() -> Self {
        Self::from_iter([])
    }
}

impl PartialEq for PlanSteps {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len
            && self
                .root
                .compare(&other.root, self.height, 0, &mut |_| false)
    }
}

impl fmt::Debug for PlanSteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Write for PlanSteps {
    fn write(&self, out: &mut Vec<u8>) {
        out.push(b'[');
        for (n, step) in self.iter().enumerate() {
            if n > 0 {
                out.push(b',');
            }
            step.write(out);
        }
        out.push(b']');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::PlanStepStatus;
    use ubos_common::json::to_string;

    fn step(n: usize) -> PlanStep {
        PlanStep::new(
            n.to_string().into(),
            "do".into(),
            vec![],
            PlanStepStatus::Pending,
        )
    }

    #[test]
    #[cfg_attr(miri, ignore = "too slow in an interpreter")]
    fn a_plan_is_its_list_of_steps() {
        for len in [0, 1, 31, 32, 33, 1023, 1024, 1025, 33_000] {
            let mut list: Vec<_> = (0..len).map(step).collect();
            let mut plan = PlanSteps::from(list.clone());
            let before = (plan.clone(), list.clone());
            for place in [0, 1, 31, 32, 500, 1023, 1024, len.saturating_sub(1), len] {
                let mut marked = step(place);
                marked.status = PlanStepStatus::Completed;
                let next = plan.with(place, marked.clone());
                assert_eq!(next.is_some(), place < len);
                if let Some(next) = next {
                    list[place] = marked;
                    plan = next;
                }
                assert_eq!(plan.get(place), list.get(place));
            }
            assert_eq!((plan.len(), plan.is_empty()), (len, len == 0));
            assert!(plan.iter().eq(&list));
            assert_eq!(to_string(&plan), to_string(&list));
            assert_eq!(plan, PlanSteps::from(list.clone()));
            assert_eq!(plan == before.0, list == before.1);
            assert!(before.0.iter().eq(&before.1));
            assert_ne!(
                plan,
                PlanSteps::from((0..=len).map(step).collect::<Vec<_>>())
            );
            #[cfg(all(feature = "driver", feature = "os", feature = "log"))]
            {
                let places = (0..len).filter(|n| list[*n] != before.1[*n]);
                assert_eq!(plan.changed_places(&before.0), places.collect::<Vec<_>>());
            }
        }
    }
}
