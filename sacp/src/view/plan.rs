//! Borrowed plans: acts, groups and joins.

use std::borrow::Cow;

use ubos_common::json::{Fault, FaultKind, Kind, Raw, Reader};
use ubos_common::violation::Level;

use super::{MessageView, read_subtask};
use crate::limits::{MAX_ACTS, MAX_GROUP_DEPTH};

/// One entry of a plan or a group.
#[derive(Clone, Debug, PartialEq)]
// exhaustive: the two forms of 0.1
pub enum ItemView<'a> {
    /// One act.
    Act(ActView<'a>),
    /// Entries that run in parallel; never empty.
    Group(Vec<Self>),
}

/// One act: `[verb, tool, params]`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ActView<'a> {
    /// The verb.
    pub verb: Cow<'a, str>,
    /// The tool.
    pub tool: Cow<'a, str>,
    /// The parameters: an object.
    pub params: Raw<'a>,
    /// The message in the parameter `subtask`.
    pub subtask: Option<Box<MessageView<'a>>>,
}

/// The state while a plan is read.
struct Walk {
    /// The depth of the message.
    depth: usize,
    /// Acts so far.
    acts: usize,
}

// impl: SACP-2-2, SACP-2-3
pub(crate) fn read_plan<'a>(
    reader: &mut Reader<'a>,
    depth: usize,
) -> Result<Vec<ItemView<'a>>, Fault> {
    let plan_at = reader.offset();
    let mut items: Vec<ItemView<'a>> = Vec::new();
    let mut refused = false;
    // A refused group still counts as a group for the join after it.
    let mut behind_group = false;
    let mut walk = Walk { depth, acts: 0 };
    reader.array(|reader, _| {
        let mark = reader.mark();
        let at = reader.offset_here();
        let kind = reader.peek()?;
        let item = read_item(reader, kind, 0, &mut walk);
        match reader.settle(mark, item)? {
            Some(item) => {
                if is_join(&item) && !behind_group {
                    refused |= !lone_join(reader, at, walk.acts)?;
                }
                items.push(item);
            }
            None => refused = true,
        }
        behind_group = kind == Kind::Object;
        Ok(())
    })?;
    if items.is_empty() && !refused {
        let what = "nothing to do: whoever would run it asks back";
        let note = |reader: &mut Reader<'_>| {
            reader.note(plan_at, None, "empty_plan", Level::Advice, what);
            Ok(())
        };
        reader.under("SACP-2-7", false, note)?;
    }
    if refused {
        return Err(reader.noted());
    }
    Ok(items)
}

fn is_join(item: &ItemView<'_>) -> bool {
    matches!(item, ItemView::Act(act) if act.verb == "join")
}

/// Reports a join without a group before it; returns whether it passes as an ordinary act.
fn lone_join(reader: &mut Reader<'_>, at: usize, number: usize) -> Result<bool, Fault> {
    let lenient = reader.is_lenient();
    let level = if lenient { Level::Advice } else { Level::Must };
    let what = format!("act {number} is a join without a group directly before it");
    note_structure(reader, at, "lone_join", level, what)?;
    Ok(lenient)
}

/// A finding about groups and joins, which have their own clause.
fn note_structure(
    reader: &mut Reader<'_>,
    at: usize,
    code: &'static str,
    level: Level,
    what: impl Into<Cow<'static, str>>,
) -> Result<(), Fault> {
    let note = |reader: &mut Reader<'_>| {
        reader.note(at, None, code, level, what);
        Ok(())
    };
    reader.under("SACP-2-3", false, note).map(drop)
}

fn read_item<'a>(
    reader: &mut Reader<'a>,
    kind: Kind,
    groups: usize,
    walk: &mut Walk,
) -> Result<ItemView<'a>, Fault> {
    match kind {
        Kind::Object => read_group(reader, groups, walk).map(ItemView::Group),
        seen => {
            walk.acts += 1;
            if walk.acts > MAX_ACTS {
                return Err(reader.bad_value(reader.offset_here(), "at most 10000 acts"));
            }
            if seen == Kind::Array {
                return read_act(reader, walk).map(ItemView::Act);
            }
            let at = reader.offset_here();
            let what = format!("act {}: an act or a group wanted, {seen} seen", walk.acts);
            reader.note(at, None, "wrong_type", Level::Must, what);
            reader.skip()?;
            Err(reader.noted())
        }
    }
}

fn read_act<'a>(reader: &mut Reader<'a>, walk: &Walk) -> Result<ActView<'a>, Fault> {
    let at = reader.offset_here();
    let number = walk.acts;
    let (mut verb, mut tool, mut params, mut subtask, mut parts) = (None, None, None, None, 0);
    reader.array(|reader, index| {
        parts += 1;
        match index {
            0 => verb = read_word(reader, number, "verb")?,
            1 => tool = read_word(reader, number, "tool")?,
            2 => (params, subtask) = read_params(reader, walk)?,
            _ => reader.skip()?,
        }
        Ok(())
    })?;
    if parts != 3 {
        let s = if parts == 1 { "" } else { "s" };
        let what = format!("act {number} has {parts} part{s} where 3 are wanted");
        reader.note(at, None, "act_parts", Level::Must, what);
        return Err(reader.noted());
    }
    match (verb, tool, params) {
        (Some(verb), Some(tool), Some(params)) => Ok(ActView {
            verb,
            tool,
            params,
            subtask,
        }),
        _ => Err(reader.noted()),
    }
}

#[inline]
fn read_word<'a>(
    reader: &mut Reader<'a>,
    number: usize,
    part: &str,
) -> Result<Option<Cow<'a, str>>, Fault> {
    let at = reader.offset();
    let word = match reader.str() {
        Ok(word) => word,
        Err(fault) => {
            let FaultKind::WrongType { seen, .. } = fault.kind() else {
                return Err(fault);
            };
            let what = format!("act {number}: a text wanted as its {part}, {seen} seen");
            reader.note(at, None, "wrong_type", Level::Must, what);
            reader.skip()?;
            return Ok(None);
        }
    };
    if word.is_empty() {
        let what = format!("act {number}: its {part} is empty");
        reader.note(at, None, "bad_value", Level::Must, what);
        return Ok(None);
    }
    Ok(Some(word))
}

type Params<'a> = (Option<Raw<'a>>, Option<Box<MessageView<'a>>>);

fn read_params<'a>(reader: &mut Reader<'a>, walk: &Walk) -> Result<Params<'a>, Fault> {
    let at = reader.offset();
    let seen = reader.peek()?;
    if seen != Kind::Object {
        let what = format!(
            "act {}: an object wanted as its params, {seen} seen",
            walk.acts
        );
        reader.note(at, None, "wrong_type", Level::Must, what);
        reader.skip()?;
        return Ok((None, None));
    }
    let mut subtask = None;
    let raw = reader.object_raw(|reader, name| {
        // A `subtask` that is not an object is an ordinary parameter.
        if name != "subtask" || reader.peek()? != Kind::Object {
            return reader.skip();
        }
        subtask = reader.under("SACP-2-9", false, |r| read_subtask(r, walk.depth))?;
        Ok(())
    })?;
    Ok((Some(raw), subtask))
}

fn read_group<'a>(
    reader: &mut Reader<'a>,
    groups: usize,
    walk: &mut Walk,
) -> Result<Vec<ItemView<'a>>, Fault> {
    let at = reader.offset_here();
    if groups >= MAX_GROUP_DEPTH {
        return Err(reader.bad_value(at, "at most 8 groups inside one another"));
    }
    let (mut members, mut refused, mut seen) = (Vec::new(), false, false);
    reader.object(|reader, name| {
        if name != "parallel" {
            let here = reader.offset();
            let what = "a group has no member but `parallel`";
            refused = true;
            note_structure(reader, here, "group_member", Level::Must, what)?;
            return reader.skip();
        }
        seen = true;
        let mark = reader.mark();
        let list = read_members(reader, groups, walk, &mut members);
        refused |= !reader.settle(mark, list)?.unwrap_or(false);
        Ok(())
    })?;
    if !refused && members.is_empty() {
        let what = if seen {
            "a group without acts"
        } else {
            "a group without `parallel`"
        };
        note_structure(reader, at, "empty_group", Level::Must, what)?;
        refused = true;
    }
    if refused {
        return Err(reader.noted());
    }
    Ok(members)
}

/// Reads the entries of a group; returns whether all are valid.
fn read_members<'a>(
    reader: &mut Reader<'a>,
    groups: usize,
    walk: &mut Walk,
    members: &mut Vec<ItemView<'a>>,
) -> Result<bool, Fault> {
    let mut good = true;
    reader.array(|reader, _| {
        let mark = reader.mark();
        let here = reader.offset_here();
        let kind = reader.peek()?;
        let item = read_item(reader, kind, groups + 1, walk);
        match reader.settle(mark, item)? {
            Some(item) if is_join(&item) => {
                let what = format!("act {}: a join stands behind a group, not in it", walk.acts);
                note_structure(reader, here, "join_in_group", Level::Must, what)?;
                good = false;
            }
            Some(item) => members.push(item),
            None => good = false,
        }
        Ok(())
    })?;
    Ok(good)
}
