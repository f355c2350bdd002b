//! Short names for the keys of `ctx` and `params`, and their tables.
//!
//! A table maps keys at every depth, never members of the envelope and never values. Some short names have one
//! meaning with one verb and another meaning with another verb: those are scoped to their verb. A table with a
//! collision is refused when it is made. Expanding and compacting are each other's reverse.
//!
//! ```
//! use sacp::{AliasTable, AnyMessage};
//!
//! let table = AliasTable::default();
//! let short = br#"{"g":"STAY","ctx":{"bdg":150},"plan":[["search","H_API",{"c":"Paris"}]]}"#;
//! let (short, _) = AnyMessage::decode(short)?;
//! let long = table.expand(&short)?;
//! assert_eq!(long.encode(), br#"{"g":"STAY","ctx":{"budget":150},"plan":[["search","H_API",{"city":"Paris"}]]}"#);
//! assert_eq!(table.compact(&long)?, short);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::BTreeMap;

use ubos_common::json::{self, DecodeError, Limits};
use ubos_common::violation::{PointerText, Profile};

use crate::any::{AnyMessage, MessageRef};
use crate::limits::MAX_ALIASES;
use crate::message::OutFmt;
use crate::tree::Node;

/// Short names by long ones and the reverse, for all verbs and for single ones.
///
/// As JSON: `{"version":"1","keys":{"bdg":"budget"},"verbs":{"search":{"c":"city"}}}`.
///
/// Spec: SACP 1
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AliasTable {
    version: String,
    keys: Names,
    verbs: BTreeMap<String, Names>,
}

/// Long names by short ones.
type Names = BTreeMap<String, String>;

/// Why a table is refused, or cannot be applied to a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AliasError {
    /// Two short names have one meaning, or a short name is also a long one in the same scope.
    #[error("the alias {alias:?} collides with {other:?}")]
    Collision {
        /// The short name.
        alias: String,
        /// What it collides with.
        other: String,
    },
    /// A name is empty.
    #[error("an alias or a meaning is empty")]
    Empty,
    /// More than 1,000 entries.
    #[error("more than {MAX_ALIASES} aliases")]
    TooMany,
    /// An object has a key in both spellings.
    #[error(
        "{short:?} and {long:?} stand in one object at {}",
        PointerText(pointer)
    )]
    BothSpellings {
        /// The object.
        pointer: String,
        /// The short name.
        short: String,
        /// The long name.
        long: String,
    },
    /// The result is not a valid message: the input was not valid either.
    #[error(transparent)]
    Refused(#[from] DecodeError),
}

impl AliasTable {
    /// A table without entries.
    #[must_use]
    pub fn new(version: impl Into<String>) -> Self {
        Self {
            version: version.into(),
            keys: Names::new(),
            verbs: BTreeMap::new(),
        }
    }

    /// Adds a short name for all verbs.
    ///
    /// # Errors
    ///
    /// A collision, an empty name, or too many names. The table is unchanged.
    pub fn with(mut self, short: &str, long: &str) -> Result<Self, AliasError> {
        self.keys.insert(short.to_owned(), long.to_owned());
        self.checked()
    }

    /// Adds a short name for one verb; it takes precedence over its meaning for all verbs.
    ///
    /// # Errors
    ///
    /// As [`AliasTable::with`].
    pub fn with_verb(mut self, verb: &str, short: &str, long: &str) -> Result<Self, AliasError> {
        let names = self.verbs.entry(verb.to_owned()).or_default();
        names.insert(short.to_owned(), long.to_owned());
        self.checked()
    }

    /// The common part of two tables, with the version of this one.
    ///
    /// # Errors
    ///
    /// The tables give one name different meanings.
    // impl: SACP-1-1
    pub fn agree(&self, other: &Self) -> Result<Self, AliasError> {
        let mut agreed = self.clone();
        merge(&mut agreed.keys, &other.keys)?;
        for (verb, names) in &other.verbs {
            merge(agreed.verbs.entry(verb.clone()).or_default(), names)?;
        }
        agreed.checked()
    }

    /// The message with long names.
    ///
    /// # Errors
    ///
    /// An object that has a key in both spellings.
    ///
    /// Spec: SACP 1
    pub fn expand<'a>(&self, message: impl Into<MessageRef<'a>>) -> Result<AnyMessage, AliasError> {
        self.respell(message.into(), Way::Expand)
    }

    /// The message with short names.
    ///
    /// # Errors
    ///
    /// As [`AliasTable::expand`].
    ///
    /// Spec: SACP 1
    pub fn compact<'a>(
        &self,
        message: impl Into<MessageRef<'a>>,
    ) -> Result<AnyMessage, AliasError> {
        self.respell(message.into(), Way::Compact)
    }

    /// The shortest JSON of a message: short names, and no `out_fmt` if it is raw.
    ///
    /// # Errors
    ///
    /// As [`AliasTable::expand`].
    ///
    /// Spec: SACP 1
    // impl: SACP-1-2
    pub fn encode_compact<'a>(
        &self,
        message: impl Into<MessageRef<'a>>,
    ) -> Result<Vec<u8>, AliasError> {
        let mut short = self.compact(message)?;
        let out_fmt = match &mut short {
            AnyMessage::V01(message) => &mut message.out_fmt,
            AnyMessage::V10(message) => &mut message.out_fmt,
        };
        out_fmt.take_if(|form| *form == OutFmt::Raw);
        Ok(short.encode())
    }

    fn checked(self) -> Result<Self, AliasError> {
        let entries = self.keys.len() + self.verbs.values().map(Names::len).sum::<usize>();
        if entries > MAX_ALIASES {
            return Err(AliasError::TooMany);
        }
        refuse_collision(&self.keys)?;
        for verb in self.verbs.keys() {
            refuse_collision(&self.in_force(Some(verb)))?;
        }
        Ok(self)
    }

    /// The names in force for a verb, or for `ctx`.
    fn in_force(&self, verb: Option<&str>) -> Names {
        let own = verb.and_then(|verb| self.verbs.get(verb));
        let mut names = self.keys.clone();
        names.extend(
            own.into_iter()
                .flatten()
                .map(|(s, l)| (s.clone(), l.clone())),
        );
        names
    }

    // impl: SACP-1-1
    fn respell(&self, message: MessageRef<'_>, way: Way) -> Result<AnyMessage, AliasError> {
        let mut tree = Node::of(&message)?;
        self.respell_message(&mut tree, way, "")?;
        Ok(AnyMessage::decode_as(&json::to_vec(&tree), message.edition())?.0)
    }

    fn respell_message(&self, message: &mut Node, way: Way, at: &str) -> Result<(), AliasError> {
        if let Some(ctx) = message.member_mut("ctx") {
            let names = Spelling::new(&self.in_force(None), way);
            names.respell(ctx, &format!("{at}/ctx"))?;
        }
        let plan = message.member_mut("plan").and_then(Node::as_list_mut);
        for (n, item) in plan.into_iter().flatten().enumerate() {
            self.respell_item(item, way, &format!("{at}/plan/{n}"))?;
        }
        match message.member_mut("subtask") {
            Some(nested) => self.respell_message(nested, way, &format!("{at}/subtask")),
            None => Ok(()),
        }
    }

    fn respell_item(&self, item: &mut Node, way: Way, at: &str) -> Result<(), AliasError> {
        if let Some(members) = item.member_mut("parallel").and_then(Node::as_list_mut) {
            for (n, member) in members.iter_mut().enumerate() {
                self.respell_item(member, way, &format!("{at}/parallel/{n}"))?;
            }
            return Ok(());
        }
        match item {
            Node::List(parts) => match parts.as_mut_slice() {
                [Node::Text(verb), _, params] => {
                    self.respell_params(verb, params, way, &format!("{at}/2"))
                }
                _ => Ok(()),
            },
            step => {
                // 1.0 has no subtasks: there a parameter of that name is like any other.
                let verb = step.member("verb").and_then(Node::as_text);
                let names = Spelling::new(&self.in_force(verb), way);
                let params = step.member_mut("params");
                params.map_or(Ok(()), |params| {
                    names.respell(params, &format!("{at}/params"))
                })
            }
        }
    }

    /// The parameters of an act of 0.1. An inner message is respelled by its own verbs; its envelope is unchanged.
    fn respell_params(
        &self,
        verb: &str,
        params: &mut Node,
        way: Way,
        at: &str,
    ) -> Result<(), AliasError> {
        let place = params.as_object().and_then(|members| {
            let is_message =
                |(name, value): &(String, Node)| name == "subtask" && value.as_object().is_some();
            members.iter().position(is_message)
        });
        let inner = place.and_then(|place| Some((place, params.remove("subtask")?)));
        Spelling::new(&self.in_force(Some(verb)), way).respell(params, at)?;
        if let (Some((place, mut message)), Some(members)) = (inner, params.as_object_mut()) {
            self.respell_message(&mut message, way, &format!("{at}/subtask"))?;
            members.insert(place, ("subtask".to_owned(), message));
        }
        Ok(())
    }
}

impl Default for AliasTable {
    /// The names of the specification, and those of its first sample scoped to their verbs.
    // choice: SACP-1-1 what one sample means by `c`, `p` and `n` depends on the verb: none of them is global.
    fn default() -> Self {
        let names = |pairs: &[(&str, &str)]| {
            let owned = |(short, long): &(&str, &str)| ((*short).to_owned(), (*long).to_owned());
            pairs.iter().map(owned).collect::<Names>()
        };
        let search = names(&[("c", "city"), ("p_max", "price_max")]);
        let rank = names(&[("c", "criteria")]);
        let present = names(&[("n", "count")]);
        Self {
            version: "1".to_owned(),
            keys: names(&[("am", "amenities"), ("bdg", "budget"), ("loc", "location")]),
            verbs: BTreeMap::from([
                ("s".to_owned(), search.clone()),
                ("search".to_owned(), search),
                ("r".to_owned(), rank.clone()),
                ("rank".to_owned(), rank),
                ("p".to_owned(), present.clone()),
                ("present".to_owned(), present),
            ]),
        }
    }
}

impl core::str::FromStr for AliasTable {
    type Err = AliasError;

    /// Reads a table from JSON. Text that is not valid JSON or has another form is refused, and so is a collision.
    fn from_str(text: &str) -> Result<Self, AliasError> {
        let (wire, _) = json::decode::<Wire>(text.as_bytes(), &Limits::default(), Profile::Strict)?;
        let table = Self {
            version: wire.version,
            keys: wire.keys,
            verbs: wire.verbs.unwrap_or_default(),
        };
        table.checked()
    }
}

impl core::fmt::Display for AliasTable {
    /// The compact JSON.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut wire = Wire::new(self.version.clone(), self.keys.clone());
        wire.verbs = Some(self.verbs.clone()).filter(|verbs| !verbs.is_empty());
        f.write_str(&json::to_string(&wire))
    }
}

/// The direction of a replacement.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Expand,
    Compact,
}

struct Spelling {
    from: Names,
    way: Way,
}

impl Spelling {
    fn new(names: &Names, way: Way) -> Self {
        let turned = |(short, long): (&String, &String)| match way {
            Way::Expand => (short.clone(), long.clone()),
            Way::Compact => (long.clone(), short.clone()),
        };
        Self {
            from: names.iter().map(turned).collect(),
            way,
        }
    }

    fn respell(&self, value: &mut Node, at: &str) -> Result<(), AliasError> {
        match value {
            Node::List(items) => {
                for (n, item) in items.iter_mut().enumerate() {
                    self.respell(item, &format!("{at}/{n}"))?;
                }
            }
            Node::Object(members) => self.respell_members(members, at)?,
            Node::Plain(_) | Node::Text(_) => {}
        }
        Ok(())
    }

    fn respell_members(&self, members: &mut [(String, Node)], at: &str) -> Result<(), AliasError> {
        let both = members.iter().find_map(|(name, _)| {
            let other = self.from.get(name)?;
            let double = members.iter().any(|(n, _)| n == other);
            double.then(|| (name.clone(), other.clone()))
        });
        if let Some((name, other)) = both {
            let (short, long) = match self.way {
                Way::Expand => (name, other),
                Way::Compact => (other, name),
            };
            return Err(AliasError::BothSpellings {
                pointer: at.to_owned(),
                short,
                long,
            });
        }
        for (name, value) in members {
            if let Some(other) = self.from.get(name) {
                other.clone_into(name);
            }
            self.respell(
                value,
                &format!("{at}/{}", name.replace('~', "~0").replace('/', "~1")),
            )?;
        }
        Ok(())
    }
}

ubos_common::wire! {
    /// A table on the wire.
    struct Wire {
        required version: String = "version", "SACP-1-1";
        required keys: BTreeMap<String, String> = "keys", "SACP-1-1";
        optional verbs: BTreeMap<String, BTreeMap<String, String>> = "verbs", "SACP-1-1";
    }
}

/// Adds names; a name with another meaning is refused.
fn merge(into: &mut Names, names: &Names) -> Result<(), AliasError> {
    for (short, long) in names {
        match into.get(short) {
            Some(other) if other != long => {
                return Err(AliasError::Collision {
                    alias: short.clone(),
                    other: other.clone(),
                });
            }
            _ => drop(into.insert(short.clone(), long.clone())),
        }
    }
    Ok(())
}

/// Each long name has one short one, and none is both.
fn refuse_collision(names: &Names) -> Result<(), AliasError> {
    let mut shorts: BTreeMap<&str, &str> = BTreeMap::new();
    for (short, long) in names {
        if short.is_empty() || long.is_empty() {
            return Err(AliasError::Empty);
        }
        let collision = |other: &str| AliasError::Collision {
            alias: short.clone(),
            other: other.to_owned(),
        };
        if let Some(other) = shorts.insert(long, short) {
            return Err(collision(other));
        }
        if names.contains_key(long) {
            return Err(collision(long));
        }
    }
    Ok(())
}
