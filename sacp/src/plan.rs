//! The plan: acts in order, groups of acts side by side, and the order that they make.

use std::sync::Arc;

use ubos_common::json::{self, Fault, Kind, RawObject, Read, Reader, Write};
use ubos_common::violation::Level;

use crate::limits::{MAX_ACTS, MAX_GROUP_DEPTH};

/// What is to be done, in order.
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
#[expect(clippy::exhaustive_enums, reason = "the two forms of 0.1")]
pub enum Item {
    /// One act.
    Act(Act),
    /// Entries that run side by side.
    Group(Group),
}

/// One act: `[verb, tool, params]`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Act {
    /// What is done.
    pub verb: String,
    /// With which tool.
    pub tool: String,
    /// With which parameters.
    pub params: RawObject,
}

/// Entries that run side by side; never empty.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    members: Vec<Item>,
}

/// An act of the plan with its place in the order.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Step<'a> {
    /// Its number: every act counted in document order, from 1.
    pub number: usize,
    /// Its pointer in the message.
    pub pointer: String,
    /// The act.
    pub act: &'a Act,
    /// The numbers of the steps that must have ended well before. Members of a group share one list.
    pub after: Arc<[usize]>,
}

impl Plan {
    /// The entries.
    #[must_use]
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// Whether nothing is to be done.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Adds an entry at the end.
    pub fn push(&mut self, item: impl Into<Item>) {
        self.items.push(item.into());
    }

    /// The acts as a graph: what follows a group waits for all of it.
    ///
    /// Spec: SACP 3
    #[must_use]
    pub fn steps(&self) -> Vec<Step<'_>> {
        let mut steps = Vec::new();
        let mut before = Arc::default();
        for (n, item) in self.items.iter().enumerate() {
            before = add_steps(&mut steps, item, format!("/plan/{n}"), &before);
        }
        steps
    }
}

/// Adds the steps of an entry that starts after `before`; gives the numbers that what follows waits for.
fn add_steps<'a>(
    steps: &mut Vec<Step<'a>>,
    item: &'a Item,
    pointer: String,
    before: &Arc<[usize]>,
) -> Arc<[usize]> {
    match item {
        Item::Act(act) => {
            let number = steps.len() + 1;
            steps.push(Step {
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

    /// The act that takes the outputs of the group before it.
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

    /// Whether it takes the outputs of the group before it.
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
        let mut items: Vec<Item> = Vec::new();
        let mut refused = false;
        let mut acts = 0;
        reader.array(|reader, _| {
            let mark = reader.mark();
            let at = reader.offset();
            let item = read_item(reader, 0, &mut acts);
            match reader.settle(mark, item)? {
                Some(Item::Act(act))
                    if act.is_join() && !matches!(items.last(), Some(Item::Group(_))) =>
                {
                    reader.reject(
                        at,
                        "join_without_group",
                        "a join where no group stands directly before it",
                    );
                    refused = true;
                }
                Some(item) => items.push(item),
                None => refused = true,
            }
            Ok(())
        })?;
        if refused {
            Err(reader.noted())
        } else {
            Ok(Self { items })
        }
    }
}

fn read_item(reader: &mut Reader<'_>, depth: usize, acts: &mut usize) -> Result<Item, Fault> {
    let mark = reader.mark();
    match reader.peek()? {
        Kind::Array => {
            *acts += 1;
            if *acts > MAX_ACTS {
                return Err(reader.bad_value(reader.offset_here(), "at most 10000 acts"));
            }
            read_act(reader, *acts).map(Item::Act)
        }
        Kind::Object => read_group(reader, depth, acts).map(Item::Group),
        seen => Err(reader.wrong_type(mark, "an act or a group", seen)),
    }
}

fn read_act(reader: &mut Reader<'_>, number: usize) -> Result<Act, Fault> {
    let at = reader.offset();
    let (mut verb, mut tool, mut params, mut parts, mut refused) = (None, None, None, 0, false);
    reader.array(|reader, index| {
        parts += 1;
        let mark = reader.mark();
        let read = match index {
            0 => read_word(reader).map(|word| verb = Some(word)),
            1 => read_word(reader).map(|word| tool = Some(word)),
            2 => RawObject::read(reader).map(|object| params = Some(object)),
            _ => reader.skip(),
        };
        refused |= reader.settle(mark, read)?.is_none();
        Ok(())
    })?;
    if parts != 3 {
        reader.note(
            at,
            None,
            "act_parts",
            Level::Must,
            format!("act {number} has {parts} parts where 3 are wanted"),
        );
        return Err(reader.noted());
    }
    match (verb, tool, params) {
        (Some(verb), Some(tool), Some(params)) if !refused => Ok(Act { verb, tool, params }),
        _ => Err(reader.noted()),
    }
}

fn read_word(reader: &mut Reader<'_>) -> Result<String, Fault> {
    let at = reader.offset();
    let word = reader.str()?;
    if word.is_empty() {
        Err(reader.bad_value(at, "a word that is not empty"))
    } else {
        Ok(word.into_owned())
    }
}

fn read_group(reader: &mut Reader<'_>, depth: usize, acts: &mut usize) -> Result<Group, Fault> {
    let at = reader.offset();
    if depth >= MAX_GROUP_DEPTH {
        return Err(reader.bad_value(at, "at most 8 groups inside one another"));
    }
    let (mut members, mut refused, mut seen) = (Vec::new(), false, false);
    reader.object(|reader, name| {
        if name != "parallel" {
            let here = reader.offset();
            reader.reject(here, "group_member", "a group has no member but `parallel`");
            refused = true;
            return reader.skip();
        }
        seen = true;
        let mark = reader.mark();
        let list = reader.array(|reader, _| {
            let mark = reader.mark();
            let here = reader.offset();
            let item = read_item(reader, depth + 1, acts);
            match reader.settle(mark, item)? {
                Some(Item::Act(act)) if act.is_join() => {
                    reader.reject(
                        here,
                        "join_in_group",
                        "a join stands behind a group, not in it",
                    );
                    refused = true;
                }
                Some(item) => members.push(item),
                None => refused = true,
            }
            Ok(())
        });
        refused |= reader.settle(mark, list)?.is_none();
        Ok(())
    })?;
    if !refused && members.is_empty() {
        let message = if seen {
            "a group without acts"
        } else {
            "a group without `parallel`"
        };
        reader.note(at, None, "empty_group", Level::Must, message);
        refused = true;
    }
    if refused {
        Err(reader.noted())
    } else {
        Ok(Group { members })
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
