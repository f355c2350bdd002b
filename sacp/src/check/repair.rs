//! Changes that mend a plan: as data for programs and models, and applied to a message.

use std::collections::BTreeSet;

use ubos_common::json::{
    self, DecodeError, Fault, Limits, MemberWriter, RawBuf, Read, Reader, Write,
};
use ubos_common::violation::{Level, Profile};

use crate::any::AnyMessage;
use crate::tree::Node;

macro_rules! repairs {
    ($($(#[$doc:meta])* $name:ident = $word:literal { $($field:ident: $ty:ty),* })*) => {
        /// One change to a message. `at` is the pointer of the step, group or message that changes.
        ///
        /// As JSON it is an object with `repair`, `at` and the other fields under their names:
        /// `{"repair":"set_tool","at":"/plan/0","tool":"H_API"}`.
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        #[expect(missing_docs, reason = "each field is what its variant says")]
        pub enum Repair {
            $($(#[$doc])* $name { at: String, $($field: $ty),* },)*
        }

        impl Repair {
            /// The pointer of what changes.
            pub(super) fn at(&self) -> &str {
                match self {
                    $(Self::$name { at, .. } => at,)*
                }
            }
        }

        impl Write for Repair {
            fn write(&self, out: &mut Vec<u8>) {
                let mut object = MemberWriter::begin(out);
                match self {
                    $(Self::$name { at, $($field),* } => {
                        object.member("repair", $word);
                        object.member("at", at);
                        $(object.member(stringify!($field), $field);)*
                    })*
                }
                object.end();
            }
        }

        impl AnyRepair {
            fn into_repair(self) -> Option<Repair> {
                let at = self.at;
                Some(match self.repair.as_str() {
                    $($word => Repair::$name { at, $($field: self.$field?),* },)*
                    _ => return None,
                })
            }
        }
    };
}

repairs! {
    /// Another verb for a step.
    SetVerb = "set_verb" { verb: String }
    /// Another tool for a step.
    SetTool = "set_tool" { tool: String }
    /// A parameter of a step.
    SetParam = "set_param" { name: String, value: RawBuf }
    /// Another name for a parameter.
    RenameParam = "rename_param" { from: String, to: String }
    /// A parameter less.
    RemoveParam = "remove_param" { name: String }
    /// A step less; what only stood for it goes with it.
    RemoveStep = "remove_step" {}
    /// A join behind a group.
    Join = "join" { tool: String }
    /// The members of a group one after another.
    InSequence = "in_sequence" {}
    /// Groups of at most so many acts, one after another; a join behind them sees the last one.
    Split = "split" { most: usize }
    /// Of steps that wait for the same, at most so many at a time: each further one waits for an earlier one.
    Stagger = "stagger" { most: usize }
    /// A step that waits for one more.
    DependOn = "depend_on" { id: String }
    /// A step that waits for one less.
    Release = "release" { id: String }
    /// A name for a step's output.
    SetOutputKey = "set_output_key" { key: String }
    /// A member of a message's `ctx`.
    SetContext = "set_context" { name: String, value: RawBuf }
    /// Raw answers of a message.
    SetRaw = "set_raw" {}
}

/// Why a repair cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RepairError {
    /// Nothing of the wanted form stands at the pointer.
    #[error("nothing to repair at {at:?}")]
    NoPlace {
        /// The pointer.
        at: String,
    },
    /// The message would no longer be valid.
    #[error("the message would be refused: {0}")]
    Refused(#[from] DecodeError),
}

/// The message with a repair applied. It is read again and so is valid.
///
/// ```
/// use sacp::AnyMessage;
/// use sacp::check::{Repair, repair};
///
/// let (message, _) = AnyMessage::decode(br#"{"g":"X","plan":[["serch","H_API",{}]]}"#)?;
/// let change = Repair::SetVerb { at: "/plan/0".into(), verb: "search".into() };
/// assert_eq!(repair(&message, &change)?.encode(), br#"{"g":"X","plan":[["search","H_API",{}]]}"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// Nothing stands where the repair applies, or the message would be refused.
pub fn repair(message: &AnyMessage, change: &Repair) -> Result<AnyMessage, RepairError> {
    repair_all(message, core::slice::from_ref(change))
}

/// The message with all of these applied, one after another.
pub(super) fn repair_all(
    message: &AnyMessage,
    changes: &[Repair],
) -> Result<AnyMessage, RepairError> {
    let mut tree = Node::of(message)?;
    for change in changes {
        apply(&mut tree, change).ok_or_else(|| RepairError::NoPlace {
            at: change.at().to_owned(),
        })?;
    }
    let (mended, _) = AnyMessage::decode(&json::to_vec(&tree))?;
    Ok(mended)
}

fn apply(tree: &mut Node, change: &Repair) -> Option<()> {
    match change {
        Repair::SetVerb { at, verb } => set_part(tree.at_mut(at)?, 0, "verb", verb),
        Repair::SetTool { at, tool } => set_part(tree.at_mut(at)?, 1, "tool", tool),
        Repair::SetParam { at, name, value } => {
            let value = Node::of_raw(value.as_raw()).ok()?;
            params(tree.at_mut(at)?)?.set(name, value)
        }
        Repair::RenameParam { at, from, to } => {
            let params = params(tree.at_mut(at)?)?;
            params.member(to).is_none().then_some(())?;
            let members = params.as_object_mut()?;
            to.clone_into(&mut members.iter_mut().find(|(n, _)| n == from)?.0);
            Some(())
        }
        Repair::RemoveParam { at, name } => params(tree.at_mut(at)?)?.remove(name).map(drop),
        Repair::RemoveStep { at } => remove_step(tree, at),
        Repair::Join { at, tool } => {
            let (items, place) = list_and_place(tree, at)?;
            items.get(place)?.member("parallel")?;
            let join = [
                Node::text("join"),
                Node::text(tool),
                Node::Object(Vec::new()),
            ];
            items.insert(place + 1, Node::List(join.into()));
            Some(())
        }
        Repair::InSequence { at } => regroup(tree, at, |members| {
            members.into_iter().map(|member| vec![member]).collect()
        }),
        Repair::Split { at, most } => regroup(tree, at, |members| split(members, (*most).max(1))),
        Repair::DependOn { at, id } => depend_on(tree.at_mut(at)?, id),
        Repair::Stagger { at, most } => stagger(tree, at, (*most).max(1)),
        Repair::Release { at, id } => {
            let list = tree.at_mut(at)?.member_mut("depends_on")?.as_list_mut()?;
            list.retain(|other| other.as_text() != Some(id));
            Some(())
        }
        Repair::SetOutputKey { at, key } => tree.at_mut(at)?.set("output_key", Node::text(key)),
        Repair::SetContext { at, name, value } => {
            let value = Node::of_raw(value.as_raw()).ok()?;
            let message = tree.at_mut(at)?;
            if message.member("ctx").is_none() {
                message.set("ctx", Node::Object(Vec::new()))?;
            }
            message.member_mut("ctx")?.set(name, value)
        }
        Repair::SetRaw { at } => tree.at_mut(at)?.set("out_fmt", Node::text("raw")),
    }
}

/// The acts of a group, divided into groups of at most `most`.
fn split(members: Vec<Node>, most: usize) -> Vec<Vec<Node>> {
    let mut acts = Vec::new();
    members
        .into_iter()
        .for_each(|member| flatten(member, &mut acts));
    let mut groups = Vec::new();
    while !acts.is_empty() {
        let rest = acts.split_off(most.min(acts.len()));
        groups.push(core::mem::replace(&mut acts, rest));
    }
    groups
}

/// Sets a part of an act, or a member of a step.
fn set_part(step: &mut Node, place: usize, name: &str, word: &str) -> Option<()> {
    match step {
        Node::List(parts) => *parts.get_mut(place)? = Node::text(word),
        _ => return step.set(name, Node::text(word)),
    }
    Some(())
}

fn params(step: &mut Node) -> Option<&mut Node> {
    match step {
        Node::List(parts) => parts.get_mut(2),
        other => other.member_mut("params"),
    }
}

/// The list that a pointer's value stands in, and its place there.
fn list_and_place<'a>(tree: &'a mut Node, at: &str) -> Option<(&'a mut Vec<Node>, usize)> {
    let (list, place) = at.rsplit_once('/')?;
    let place = place.parse().ok()?;
    Some((tree.at_mut(list)?.as_list_mut()?, place))
}

fn is_join(item: &Node) -> bool {
    matches!(item, Node::List(parts) if parts.first().and_then(Node::as_text) == Some("join"))
}

fn flatten(item: Node, acts: &mut Vec<Node>) {
    match item {
        Node::Object(members) => {
            let lists = members.into_iter().filter_map(|(_, list)| match list {
                Node::List(items) => Some(items),
                _ => None,
            });
            lists.flatten().for_each(|member| flatten(member, acts));
        }
        act => acts.push(act),
    }
}

/// Puts other groups into a group's place. One of one act is that act, unless a join follows.
fn regroup(
    tree: &mut Node,
    at: &str,
    divide: impl FnOnce(Vec<Node>) -> Vec<Vec<Node>>,
) -> Option<()> {
    let (items, place) = list_and_place(tree, at)?;
    let joined = items.get(place + 1).is_some_and(is_join);
    let members = core::mem::take(
        items
            .get_mut(place)?
            .member_mut("parallel")?
            .as_list_mut()?,
    );
    let groups = divide(members);
    let last = groups.len().checked_sub(1)?;
    let item = |(n, mut group): (usize, Vec<Node>)| {
        let alone = group.len() == 1 && !(joined && n == last);
        match group.pop() {
            Some(one) if alone => one,
            one => {
                group.extend(one);
                Node::Object(vec![("parallel".to_owned(), Node::List(group))])
            }
        }
    };
    items.splice(place..=place, groups.into_iter().enumerate().map(item));
    Some(())
}

fn remove_step(tree: &mut Node, at: &str) -> Option<()> {
    let (items, place) = list_and_place(tree, at)?;
    if place >= items.len() {
        return None;
    }
    let removed = items.remove(place);
    if let Some(id) = removed.member("id").and_then(Node::as_text) {
        forget(items, id, &removed);
        return Some(());
    }
    if !items.is_empty() || !at.contains("/parallel/") {
        return Some(());
    }
    // A group is never empty, and a join stands behind one.
    let group = at.rsplit_once("/parallel/")?.0;
    let (items, place) = list_and_place(tree, group)?;
    if items.get(place + 1).is_some_and(is_join) {
        items.remove(place + 1);
    }
    remove_step(tree, group)
}

fn depend_on(step: &mut Node, id: &str) -> Option<()> {
    if step.member("depends_on").is_none() {
        step.set("depends_on", Node::List(Vec::new()))?;
    }
    let list = step.member_mut("depends_on")?.as_list_mut()?;
    // A step that is named twice is refused.
    if !list.iter().any(|other| other.as_text() == Some(id)) {
        list.push(Node::text(id));
    }
    Some(())
}

fn stagger(tree: &mut Node, at: &str, most: usize) -> Option<()> {
    let waits = |step: &Node| -> BTreeSet<String> {
        match step.member("depends_on") {
            Some(Node::List(ids)) => ids
                .iter()
                .filter_map(Node::as_text)
                .map(str::to_owned)
                .collect(),
            _ => BTreeSet::new(),
        }
    };
    let (steps, place) = list_and_place(tree, at)?;
    let stands_in: BTreeSet<String> = steps
        .iter()
        .filter_map(|step| step.member("fallback_step")?.as_text().map(str::to_owned))
        .collect();
    let wanted = waits(steps.get(place)?);
    let id = |step: &Node| step.member("id").and_then(Node::as_text).map(str::to_owned);
    let mut started: Vec<String> = Vec::new();
    for step in steps.iter_mut() {
        let own = id(step)?;
        if waits(step) != wanted || stands_in.contains(&own) {
            continue;
        }
        if let Some(earlier) = started.len().checked_sub(most).and_then(|n| started.get(n)) {
            depend_on(step, earlier)?;
        }
        started.push(own);
    }
    Some(())
}

/// Lets those that waited for a step wait for what it waited for, and takes it from those it stood in for.
fn forget(steps: &mut [Node], id: &str, removed: &Node) {
    let before = match removed.member("depends_on") {
        Some(Node::List(ids)) => ids.clone(),
        _ => Vec::new(),
    };
    for step in steps {
        if step.member("fallback_step").and_then(Node::as_text) == Some(id) {
            step.remove("fallback_step");
            step.remove("on_error");
        }
        let Some(list) = step.member_mut("depends_on").and_then(Node::as_list_mut) else {
            continue;
        };
        if list.iter().any(|other| other.as_text() == Some(id)) {
            list.retain(|other| other.as_text() != Some(id));
            for other in &before {
                if !list.iter().any(|known| known.as_text() == other.as_text()) {
                    list.push(other.clone());
                }
            }
        }
    }
}

impl Repair {
    /// Whether it changes where other steps stand, or what they wait for.
    pub(super) const fn moves_others(&self) -> bool {
        matches!(
            self,
            Self::RemoveStep { .. }
                | Self::Join { .. }
                | Self::InSequence { .. }
                | Self::Split { .. }
                | Self::Stagger { .. }
                | Self::DependOn { .. }
                | Self::Release { .. }
        )
    }
}

impl core::str::FromStr for Repair {
    type Err = DecodeError;

    /// Reads the JSON that a program or model chose: an unknown repair, or one without a member, is refused.
    fn from_str(text: &str) -> Result<Self, DecodeError> {
        let limits = Limits::default();
        json::decode(text.as_bytes(), &limits, Profile::Strict).map(|(repair, _)| repair)
    }
}

impl core::fmt::Display for Repair {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let at = self.at();
        match self {
            Self::SetVerb { verb, .. } => write!(f, "use the verb {verb:?} at {at}"),
            Self::SetTool { tool, .. } => write!(f, "use the tool {tool:?} at {at}"),
            Self::SetParam { name, value, .. } => {
                write!(
                    f,
                    "set the parameter {name:?} at {at} to {}",
                    value.as_str()
                )
            }
            Self::RenameParam { from, to, .. } => {
                write!(f, "call the parameter {from:?} at {at} {to:?}")
            }
            Self::RemoveParam { name, .. } => write!(f, "drop the parameter {name:?} at {at}"),
            Self::RemoveStep { .. } => write!(f, "drop the step at {at}"),
            Self::Join { tool, .. } => write!(f, "join the group at {at} with {tool:?}"),
            Self::InSequence { .. } => write!(f, "run the members of {at} one after another"),
            Self::Split { most, .. } => write!(f, "run the group at {at} {most} at a time"),
            Self::Stagger { most, .. } => {
                write!(f, "start what waits as {at} does {most} at a time")
            }
            Self::DependOn { id, .. } => write!(f, "let {at} wait for {id:?}"),
            Self::Release { id, .. } => write!(f, "let {at} not wait for {id:?}"),
            Self::SetOutputKey { key, .. } => write!(f, "call the output of {at} {key:?}"),
            Self::SetContext { name, value, .. } => {
                write!(f, "set {name:?} in the ctx of {at:?} to {}", value.as_str())
            }
            Self::SetRaw { .. } => write!(f, "let {at} answer raw"),
        }
    }
}

ubos_common::wire! {
    /// Every repair, before it is told which.
    struct AnyRepair {
        required repair: String = "repair", "";
        required at: String = "at", "";
        optional verb: String = "verb", "";
        optional tool: String = "tool", "";
        optional name: String = "name", "";
        verbatim value: RawBuf = "value", "";
        optional from: String = "from", "";
        optional to: String = "to", "";
        optional most: usize = "most", "";
        optional id: String = "id", "";
        optional key: String = "key", "";
    }
}

impl Read<'_> for Repair {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let at = reader.offset();
        let any = AnyRepair::read(reader)?;
        any.into_repair().ok_or_else(|| {
            let what = "no repair of that name, or a member of it is absent";
            reader.note(at, Some("repair".into()), "bad_value", Level::Must, what);
            reader.noted()
        })
    }
}
