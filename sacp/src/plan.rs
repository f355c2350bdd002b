//! The plan of 0.1: acts, and groups of acts that run in parallel.

use serde::Serialize;
use ubos_common::json::{self, Fault, RawObject, Read, Reader, Write};

use crate::error::ParamsError;
use crate::view::{ActView, ItemView, read_plan};

/// The plan.
///
/// ```
/// use sacp::{Act, Item, Plan};
///
/// let mut plan = Plan::default();
/// plan.push(Item::group([Act::new("fetch", "WEATHER"), Act::new("fetch", "TRAINS")]));
/// plan.push(Act::join("MERGE"));
/// assert!(matches!(&plan.items[0], Item::Group(acts) if acts.len() == 2));
/// ```
///
/// A [`Graph`](crate::Graph) tells which act waits for which.
///
/// Spec: SACP 2
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Plan {
    /// The entries.
    pub items: Vec<Item>,
}

/// One entry of a plan or a group.
#[derive(Clone, Debug, PartialEq)]
// exhaustive: the two forms of 0.1
pub enum Item {
    /// One act.
    Act(Act),
    /// Entries that run in parallel. A message with an empty group is refused when it is read.
    Group(Vec<Self>),
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

impl Plan {
    /// Adds an entry at the end.
    pub fn push(&mut self, item: impl Into<Item>) {
        self.items.push(item.into());
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

    /// Sets the parameters: whatever serializes to an object.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    ///
    /// let act = sacp::Act::new("search", "H_API").with_params(&BTreeMap::from([("city", "Paris")]))?;
    /// assert_eq!(act.params.as_str(), r#"{"city":"Paris"}"#);
    /// # Ok::<(), sacp::ParamsError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The value does not serialize, or is no object.
    pub fn with_params<T: Serialize + ?Sized>(self, params: &T) -> Result<Self, ParamsError> {
        Ok(self.with_object(ParamsError::params(params)?))
    }

    /// Sets the parameters.
    pub(crate) fn with_object(mut self, params: RawObject) -> Self {
        self.params = params;
        self
    }

    /// Whether it joins the outputs of the group before it.
    #[must_use]
    pub fn is_join(&self) -> bool {
        self.verb == "join"
    }
}

impl Item {
    /// A group of entries that run in parallel.
    #[must_use]
    pub fn group(members: impl IntoIterator<Item = impl Into<Self>>) -> Self {
        Self::Group(members.into_iter().map(Into::into).collect())
    }
}

impl From<Act> for Item {
    fn from(act: Act) -> Self {
        Self::Act(act)
    }
}

impl Read<'_> for Plan {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        read_plan(reader, 1).map(Self::from)
    }
}

impl From<Vec<ItemView<'_>>> for Plan {
    fn from(items: Vec<ItemView<'_>>) -> Self {
        Self {
            items: items.into_iter().map(Item::from).collect(),
        }
    }
}

impl From<ItemView<'_>> for Item {
    fn from(item: ItemView<'_>) -> Self {
        match item {
            ItemView::Act(act) => Self::Act(act.into()),
            ItemView::Group(members) => Self::group(members),
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
            Self::Group(members) => {
                let mut object = json::MemberWriter::begin(out);
                object.member("parallel", members);
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
