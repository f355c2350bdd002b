//! The plan of 0.1: acts, and groups of acts that run in parallel.

use std::sync::Arc;

use ubos_common::json::{self, Fault, RawObject, Read, Reader, Write};

use crate::view::{ActView, ItemView, PlanView};

/// The plan.
///
/// ```
/// use sacp::{Act, Group, Item, Plan};
///
/// let mut plan = Plan::default();
/// plan.push(Group::of([Act::new("fetch", "WEATHER"), Act::new("fetch", "TRAINS")]));
/// plan.push(Act::join("MERGE"));
/// let steps = plan.steps();
/// assert_eq!(steps[2].after[..], [1, 2]);
/// # let _: &Item = &plan.items()[0];
/// ```
///
/// Spec: SACP 2
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    items: Vec<Item>,
}

/// One entry of a plan or a group.
#[derive(Clone, Debug, PartialEq)]
// exhaustive: the two forms of 0.1
pub enum Item {
    /// One act.
    Act(Act),
    /// Entries that run in parallel.
    Group(Group),
}

/// One act: `[verb, tool, params]`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Act {
    /// The verb.
    pub verb: String,
    /// The tool.
    pub tool: String,
    /// The parameters.
    pub params: RawObject,
}

/// Entries that run in parallel; never empty.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    members: Vec<Item>,
}

/// An act of the plan with its dependencies.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PlanStep<'a> {
    /// Its number in document order, from 1.
    pub number: usize,
    /// Its pointer in the message.
    pub pointer: String,
    /// The act.
    pub act: &'a Act,
    /// The numbers of its dependencies. Members of a group share one list.
    pub after: Arc<[usize]>,
}

impl Plan {
    /// The entries.
    #[must_use]
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// Whether the plan is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Adds an entry at the end.
    pub fn push(&mut self, item: impl Into<Item>) {
        self.items.push(item.into());
    }

    /// The acts with their dependencies: the entry after a group waits for the whole group.
    ///
    /// Spec: SACP 3
    #[must_use]
    pub fn steps(&self) -> Vec<PlanStep<'_>> {
        let mut steps = Vec::new();
        let mut before = Arc::default();
        for (n, item) in self.items.iter().enumerate() {
            before = add_steps(&mut steps, item, format!("/plan/{n}"), &before);
        }
        steps
    }
}

/// Adds the steps of an entry that starts after `before`; returns the numbers that the next entry waits for.
fn add_steps<'a>(
    steps: &mut Vec<PlanStep<'a>>,
    item: &'a Item,
    pointer: String,
    before: &Arc<[usize]>,
) -> Arc<[usize]> {
    match item {
        Item::Act(act) => {
            let number = steps.len() + 1;
            steps.push(PlanStep {
                number,
                pointer,
                act,
                after: Arc::clone(before),
            });
            Arc::from([number])
        }
        Item::Group(group) => {
            let mut ends = Vec::new();
            for (n, member) in group.members.iter().enumerate() {
                ends.extend(
                    add_steps(steps, member, format!("{pointer}/parallel/{n}"), before).iter(),
                );
            }
            ends.into()
        }
    }
}

impl Act {
    /// An act without parameters.
    #[must_use]
    pub fn new(verb: &str, tool: &str) -> Self {
        Self {
            verb: verb.to_owned(),
            tool: tool.to_owned(),
            params: RawObject::empty(),
        }
    }

    /// An act that joins the outputs of the group before it.
    #[must_use]
    pub fn join(tool: &str) -> Self {
        Self::new("join", tool)
    }

    /// Sets the parameters.
    #[must_use]
    pub fn with_params(mut self, params: RawObject) -> Self {
        self.params = params;
        self
    }

    /// Whether it joins the outputs of the group before it.
    #[must_use]
    pub fn is_join(&self) -> bool {
        self.verb == "join"
    }
}

impl Group {
    /// A group of acts.
    #[must_use]
    pub fn of(acts: impl IntoIterator<Item = Act>) -> Self {
        Self {
            members: acts.into_iter().map(Item::Act).collect(),
        }
    }

    /// A group of acts and groups; `None` if there is none.
    #[must_use]
    pub fn from_items(items: impl IntoIterator<Item = Item>) -> Option<Self> {
        let members: Vec<Item> = items.into_iter().collect();
        (!members.is_empty()).then_some(Self { members })
    }

    /// The entries.
    #[must_use]
    pub fn members(&self) -> &[Item] {
        &self.members
    }
}

impl From<Act> for Item {
    fn from(act: Act) -> Self {
        Self::Act(act)
    }
}

impl From<Group> for Item {
    fn from(group: Group) -> Self {
        Self::Group(group)
    }
}

impl Read<'_> for Plan {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        PlanView::read(reader).map(Self::from)
    }
}

impl From<PlanView<'_>> for Plan {
    fn from(plan: PlanView<'_>) -> Self {
        Self {
            items: plan.items.into_iter().map(Item::from).collect(),
        }
    }
}

impl From<ItemView<'_>> for Item {
    fn from(item: ItemView<'_>) -> Self {
        match item {
            ItemView::Act(act) => Self::Act(act.into()),
            ItemView::Group(members) => Self::Group(Group {
                members: members.into_iter().map(Self::from).collect(),
            }),
        }
    }
}

impl From<ActView<'_>> for Act {
    fn from(act: ActView<'_>) -> Self {
        Self {
            verb: act.verb.into_owned(),
            tool: act.tool.into_owned(),
            params: RawObject::new(act.params.to_owned()).unwrap_or_default(),
        }
    }
}

impl Write for Plan {
    fn write(&self, out: &mut Vec<u8>) {
        self.items.write(out);
    }
}

impl Write for Item {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Act(act) => act.write(out),
            Self::Group(group) => {
                let mut object = json::MemberWriter::begin(out);
                object.member("parallel", &group.members);
                object.end();
            }
        }
    }
}

impl Write for Act {
    fn write(&self, out: &mut Vec<u8>) {
        out.push(b'[');
        self.verb.write(out);
        out.push(b',');
        self.tool.write(out);
        out.push(b',');
        self.params.write(out);
        out.push(b']');
    }
}
