//! What checking a value against a schema costs at most, counted before it is done.
//!
//! A step is one keyword looked at for one place of the value. The count takes every branch and never the way
//! out that the validator finds, so it is an upper bound:
//!
//! - a schema without recursion costs at most its weight times the places of the value, which is known when it
//!   is compiled;
//! - where that says too little, value and schema are walked together, until the budget is spent.
//!
//! Two things cost more than the text tells. `unevaluated*` checks the branches beside it again to learn what
//! they evaluated, and so do those inside of them: thrice the work for each level. An `anyOf` that failed checks
//! its branches again to say why: once more for each level.

use std::collections::BTreeMap;

use serde_json::Value;

use super::error::SchemaError;
use super::pattern;

/// The tree of a schema's applicators, with weights.
#[derive(Debug, Default)]
pub(super) struct Cost {
    nodes: Vec<Node>,
    /// Steps for one place of a value; `None` where the schema is recursive, or a text costs more than its length.
    flat: Option<Weight>,
    /// Schemas in it, each as often as references lead to it.
    expanded: u64,
    /// States of its patterns.
    states: u64,
}

/// Steps for one place, and for each [`CHUNK`] of a string there.
#[derive(Clone, Copy, Debug, Default)]
struct Weight {
    place: u64,
    chunk: u64,
}

impl Weight {
    fn of(self, text_bytes: Option<usize>) -> u64 {
        let chunks = text_bytes.map_or(0, |bytes| (bytes / CHUNK) as u64 + 1);
        self.place.saturating_add(self.chunk.saturating_mul(chunks))
    }

    const fn plus(self, other: Self, times: u64) -> Self {
        Self {
            place: self.place.saturating_add(other.place.saturating_mul(times)),
            chunk: self.chunk.saturating_add(other.chunk.saturating_mul(times)),
        }
    }
}

#[derive(Debug, Default)]
struct Node {
    weight: Weight,
    /// `uniqueItems` hashes and compares all that is inside.
    is_unique: bool,
    /// The format `regex`: names of groups are compared with those before them.
    reads_pattern: bool,
    /// `unevaluatedProperties` or `unevaluatedItems`.
    is_unevaluated: bool,
    /// Schemas for the same value.
    same: Vec<usize>,
    members: BTreeMap<String, usize>,
    /// For every member that `members` does not name.
    other_members: Vec<usize>,
    /// For every item.
    items: Vec<usize>,
    /// For members by a pattern: for every member, whatever its name.
    every_member: Vec<usize>,
    names: Vec<usize>,
    prefix: Vec<usize>,
}

impl Node {
    fn below(&self) -> impl Iterator<Item = usize> + '_ {
        let members = self.members.values().chain(&self.other_members);
        let lists = self
            .every_member
            .iter()
            .chain(&self.items)
            .chain(&self.names)
            .chain(&self.prefix);
        members.chain(lists).copied()
    }
}

/// How often a place is looked at.
#[derive(Clone, Copy)]
struct Times {
    /// For `unevaluated*` above.
    again: u64,
    /// Branches above that are checked once more when they fail.
    level: u64,
    /// Schemas and values above: the validator's stack.
    depth: usize,
}

impl Times {
    const ONCE: Self = Self {
        again: 1,
        level: 2,
        depth: 0,
    };

    const fn factor(self) -> u64 {
        self.again.saturating_mul(self.level)
    }

    const fn same(self, is_unevaluated: bool) -> Self {
        let again = if is_unevaluated { 3 } else { 1 };
        Self {
            again: self.again.saturating_mul(again),
            level: self.level + 1,
            depth: self.depth + 1,
        }
    }

    const fn below(self) -> Self {
        Self {
            depth: self.depth + 1,
            ..self
        }
    }
}

impl Cost {
    /// # Errors
    ///
    /// [`SchemaError::Remote`], [`SchemaError::Endless`], and [`SchemaError::TooLarge`] for a schema that grows
    /// beyond [`MAX_EXPANDED`] when its references are followed.
    pub(super) fn of(schema: &Value) -> Result<Self, SchemaError> {
        let mut builder = Builder {
            root: schema,
            targets: Vec::new(),
            known: BTreeMap::new(),
            states: MAX_STATES,
            read: MAX_READ,
            depth: 0,
            compared: MAX_COMPARED,
            cost: Self::default(),
        };
        builder.find_targets(schema);
        builder.node(schema)?;
        let states = MAX_STATES - builder.states;
        let mut cost = builder.cost;
        cost.refuse_endless()?;
        (cost.flat, cost.expanded) = cost.expand()?;
        cost.states = states;
        Ok(cost)
    }

    /// Bytes of what is compiled, about.
    pub(super) const fn size(&self) -> u64 {
        self.expanded * NODE_BYTES + self.states * STATE_BYTES
    }

    /// # Errors
    ///
    /// [`SchemaError::TooExpensive`] where it takes more than so many steps.
    pub(super) fn check(&self, value: &Value, bytes: usize, steps: u64) -> Result<(), SchemaError> {
        if let Some(flat) = self.flat {
            // Each place of a value takes two bytes of its text; all strings together are no longer than it.
            let places = bytes as u64 / 2 + 1;
            let whole = flat.place.saturating_add(flat.chunk).saturating_mul(places);
            let text = flat.chunk.saturating_mul((bytes / CHUNK) as u64 + 1);
            if whole.saturating_add(text) <= steps {
                return Ok(());
            }
        }
        let mut left = steps;
        self.walk(0, value, Times::ONCE, &mut left)
            .ok_or(SchemaError::TooExpensive)
    }

    fn walk(&self, node: usize, value: &Value, times: Times, left: &mut u64) -> Option<()> {
        if times.depth > MAX_DEPTH {
            return None;
        }
        let node = self.nodes.get(node)?;
        let mut steps = node.weight.of(value.as_str().map(str::len));
        if node.is_unique {
            steps = steps.saturating_add(places(value).saturating_mul(4));
        }
        if let (true, Some(text)) = (node.reads_pattern, value.as_str()) {
            let parts = text.len() as u64 / PATTERN_PART;
            steps = steps.saturating_add(parts.saturating_mul(parts));
        }
        spend(left, steps.saturating_mul(times.factor()))?;
        for same in &node.same {
            self.walk(*same, value, times.same(node.is_unevaluated), left)?;
        }
        match value {
            Value::Object(members) => {
                for (name, value) in members {
                    self.member(node, name, value, times.below(), left)?;
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    let prefix = node.prefix.get(index).into_iter();
                    for child in prefix.chain(&node.items) {
                        self.walk(*child, item, times.below(), left)?;
                    }
                }
            }
            _ => {}
        }
        Some(())
    }

    fn member(
        &self,
        node: &Node,
        name: &str,
        value: &Value,
        times: Times,
        left: &mut u64,
    ) -> Option<()> {
        match node.members.get(name) {
            Some(child) => self.walk(*child, value, times, left)?,
            None => {
                for child in &node.other_members {
                    self.walk(*child, value, times, left)?;
                }
            }
        }
        for child in &node.every_member {
            self.walk(*child, value, times, left)?;
        }
        if node.names.is_empty() {
            return Some(());
        }
        // Copied once, however many schemas look at it.
        spend(left, (name.len() / CHUNK) as u64 + 1)?;
        let name = Value::String(name.to_owned());
        for child in &node.names {
            self.walk(*child, &name, times, left)?;
        }
        Some(())
    }

    /// A schema that comes back to itself for the same value never ends.
    fn refuse_endless(&self) -> Result<(), SchemaError> {
        let mut done = vec![false; self.nodes.len()];
        let mut open = vec![false; self.nodes.len()];
        for start in 0..self.nodes.len() {
            if self.comes_back(start, &mut open, &mut done) {
                return Err(SchemaError::Endless);
            }
        }
        Ok(())
    }

    fn comes_back(&self, node: usize, open: &mut [bool], done: &mut [bool]) -> bool {
        let (Some(node_of), Some(is_open)) = (self.nodes.get(node), open.get_mut(node)) else {
            return false;
        };
        if core::mem::replace(is_open, true) {
            return true;
        }
        let found = done.get(node) == Some(&false)
            && node_of
                .same
                .iter()
                .any(|same| self.comes_back(*same, open, done));
        if let (Some(is_open), Some(is_done)) = (open.get_mut(node), done.get_mut(node)) {
            *is_open = false;
            *is_done = true;
        }
        found
    }

    /// The weight of all schemas, each as often as references lead to it, and how many these are; no weight where they
    /// lead into a circle.
    fn expand(&self) -> Result<(Option<Weight>, u64), SchemaError> {
        let mut sum = Weight::default();
        let mut left = MAX_EXPANDED;
        let mut path = vec![false; self.nodes.len()];
        let is_flat = self.expand_node(0, Times::ONCE, &mut path, &mut sum, &mut left);
        let is_flat = is_flat.ok_or(SchemaError::TooLarge)?;
        Ok((is_flat.then_some(sum), MAX_EXPANDED - left))
    }

    fn expand_node(
        &self,
        index: usize,
        times: Times,
        path: &mut [bool],
        sum: &mut Weight,
        left: &mut u64,
    ) -> Option<bool> {
        let (Some(node), Some(on_path)) = (self.nodes.get(index), path.get_mut(index)) else {
            return Some(true);
        };
        if core::mem::replace(on_path, true) {
            return Some(false);
        }
        spend(left, times.again)?;
        *sum = sum.plus(node.weight, times.factor());
        let unique = Weight { place: 4, chunk: 0 };
        *sum = sum.plus(unique, if node.is_unique { times.factor() } else { 0 });
        let mut is_flat = times.depth <= MAX_DEPTH && !node.reads_pattern;
        for same in &node.same {
            is_flat &= self.expand_node(*same, times.same(node.is_unevaluated), path, sum, left)?;
        }
        for child in node.below() {
            is_flat &= self.expand_node(child, times.below(), path, sum, left)?;
        }
        if let Some(on_path) = path.get_mut(index) {
            *on_path = false;
        }
        Some(is_flat)
    }
}

fn spend(left: &mut u64, steps: u64) -> Option<()> {
    *left = left.checked_sub(steps)?;
    Some(())
}

fn places(value: &Value) -> u64 {
    match value {
        Value::Array(items) => items.iter().map(places).sum::<u64>() + 1,
        Value::Object(members) => members.values().map(places).sum::<u64>() + 1,
        Value::String(text) => (text.len() / CHUNK) as u64 + 1,
        _ => 1,
    }
}

struct Builder<'a> {
    root: &'a Value,
    /// Where a reference may begin: every schema with an `$id` of its own, or a name.
    targets: Vec<&'a Value>,
    /// Nodes by the addresses of their schemas.
    known: BTreeMap<*const Value, usize>,
    /// States of patterns that are left.
    states: u64,
    /// Bytes of patterns that may still be read.
    read: u64,
    /// Schemas and references inside one another.
    depth: usize,
    /// Places that references may still be compared with.
    compared: u64,
    cost: Cost,
}

impl<'a> Builder<'a> {
    fn find_targets(&mut self, schema: &'a Value) {
        match schema {
            Value::Object(members) => {
                if ANCHORS.iter().any(|name| members.contains_key(*name)) {
                    self.targets.push(schema);
                }
                members.values().for_each(|value| self.find_targets(value));
            }
            Value::Array(items) => items.iter().for_each(|item| self.find_targets(item)),
            _ => {}
        }
    }

    fn node(&mut self, schema: &'a Value) -> Result<usize, SchemaError> {
        if let Some(known) = self.known.get(&core::ptr::from_ref(schema)) {
            return Ok(*known);
        }
        if self.depth == MAX_NESTED {
            return Err(SchemaError::TooLarge);
        }
        self.depth += 1;
        let index = self.cost.nodes.len();
        self.known.insert(core::ptr::from_ref(schema), index);
        self.cost.nodes.push(Node::default());
        let mut node = Node::default();
        node.weight.place = 1;
        if let Value::Object(keywords) = schema {
            for (keyword, value) in keywords {
                self.keyword(&mut node, keyword, value)?;
            }
        }
        if let Some(kept) = self.cost.nodes.get_mut(index) {
            *kept = node;
        }
        self.depth -= 1;
        Ok(index)
    }

    fn keyword(
        &mut self,
        node: &mut Node,
        keyword: &str,
        value: &'a Value,
    ) -> Result<(), SchemaError> {
        match keyword {
            "$ref" | "$dynamicRef" | "$recursiveRef" => self.reference(node, value)?,
            "allOf" | "anyOf" | "oneOf" | "not" | "if" | "then" | "else" => {
                self.schemas(value, &mut node.same)?;
            }
            "dependentSchemas" | "dependencies" => self.named(value, &mut node.same)?,
            "properties" => {
                for (name, schema) in value.as_object().into_iter().flatten() {
                    let child = self.node(schema)?;
                    node.members.insert(name.clone(), child);
                }
            }
            "patternProperties" => {
                // Every name of the value is held against every pattern.
                for (pattern, _) in value.as_object().into_iter().flatten() {
                    let chunk = self.pattern(pattern)?;
                    node.names.push(self.cost.nodes.len());
                    self.cost.nodes.push(Node {
                        weight: Weight { place: 1, chunk },
                        ..Node::default()
                    });
                }
                self.named(value, &mut node.every_member)?;
            }
            "unevaluatedProperties" => {
                node.is_unevaluated = true;
                self.schemas(value, &mut node.every_member)?;
            }
            "unevaluatedItems" => {
                node.is_unevaluated = true;
                self.schemas(value, &mut node.items)?;
            }
            "additionalProperties" => self.schemas(value, &mut node.other_members)?,
            "additionalItems" | "contains" => self.schemas(value, &mut node.items)?,
            // A list of them, in older drafts, is what `prefixItems` is now.
            "items" if !value.is_array() => self.schemas(value, &mut node.items)?,
            "items" | "prefixItems" => self.schemas(value, &mut node.prefix)?,
            "propertyNames" => self.schemas(value, &mut node.names)?,
            _ => self.check(node, keyword, value)?,
        }
        Ok(())
    }

    /// A keyword that looks at one place and applies no other schema.
    fn check(&mut self, node: &mut Node, keyword: &str, value: &Value) -> Result<(), SchemaError> {
        match keyword {
            "pattern" => {
                let steps = self.pattern(value.as_str().unwrap_or_default())?;
                node.weight.chunk = node.weight.chunk.saturating_add(steps);
            }
            "format" => {
                node.weight.chunk += FORMAT_STEPS;
                node.reads_pattern = value == "regex";
            }
            "minLength" | "maxLength" => node.weight.chunk += 1,
            "multipleOf" if value.is_u64() => node.weight.place += 2,
            "multipleOf" => node.weight.place += MULTIPLE_STEPS,
            "uniqueItems" => node.is_unique = value == &Value::Bool(true),
            // Texts are looked up by their hash.
            "enum" if is_texts(value) => node.weight = node.weight.plus(TEXTS, 1),
            name if CHECKS.contains(&name) => {
                node.weight.place = node.weight.place.saturating_add(places(value));
            }
            // What checks nothing costs nothing.
            _ => {}
        }
        Ok(())
    }

    fn schemas(&mut self, value: &'a Value, into: &mut Vec<usize>) -> Result<(), SchemaError> {
        let list = value.as_array().map(Vec::as_slice);
        for schema in list.unwrap_or_else(|| core::slice::from_ref(value)) {
            into.push(self.node(schema)?);
        }
        Ok(())
    }

    fn named(&mut self, value: &'a Value, into: &mut Vec<usize>) -> Result<(), SchemaError> {
        for (_, schema) in value.as_object().into_iter().flatten() {
            into.push(self.node(schema)?);
        }
        Ok(())
    }

    fn pattern(&mut self, pattern: &str) -> Result<u64, SchemaError> {
        let states = pattern::states(pattern);
        spend(&mut self.states, states).ok_or(SchemaError::TooLarge)?;
        spend(&mut self.read, pattern::reading(pattern)).ok_or(SchemaError::TooLarge)?;
        Ok(states / STATES + 1)
    }

    /// Where a reference can be meant in two ways, both are counted.
    fn reference(&mut self, node: &mut Node, target: &Value) -> Result<(), SchemaError> {
        let Some(target) = target.as_str() else {
            return Ok(());
        };
        let target = target.strip_prefix('#').ok_or(SchemaError::Remote)?;
        let target = unescaped(target).ok_or(SchemaError::NoSchema)?;
        // Each place is compared with those that were found before it.
        let places = self.targets.len() as u64 + 1;
        spend(&mut self.compared, places.saturating_mul(places)).ok_or(SchemaError::TooLarge)?;
        let mut found: Vec<&'a Value> = Vec::new();
        for place in [self.root].into_iter().chain(self.targets.iter().copied()) {
            let meant = if target.is_empty() || target.starts_with('/') {
                place.pointer(&target)
            } else {
                let is_named = |anchor: &&str| place.get(anchor).is_some_and(|it| *it == *target);
                ANCHORS.iter().any(is_named).then_some(place)
            };
            found.extend(meant.filter(|meant| !found.iter().any(|f| core::ptr::eq(*f, *meant))));
        }
        for schema in found {
            node.same.push(self.node(schema)?);
        }
        Ok(())
    }
}

fn is_texts(value: &Value) -> bool {
    value
        .as_array()
        .is_some_and(|items| items.iter().all(Value::is_string))
}

/// A reference's fragment without its percent signs.
fn unescaped(fragment: &str) -> Option<String> {
    let mut bytes = fragment.bytes();
    let mut out = Vec::with_capacity(fragment.len());
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            _ => byte,
        });
    }
    String::from_utf8(out).ok()
}

/// Bytes of a string that count as one.
const CHUNK: usize = 16;
/// Schemas and values inside one another: what the validator has on its stack.
const MAX_DEPTH: usize = 512;
/// Schemas when all references are followed, and `unevaluated*` counted as often as it is compiled.
const MAX_EXPANDED: u64 = 50_000;
/// Schemas and references inside one another when a schema is read, and compiled.
const MAX_NESTED: usize = 256;
/// Comparisons of places that references may mean.
const MAX_COMPARED: u64 = 1_000_000;
/// Bytes of a schema that is compiled.
const NODE_BYTES: u64 = 256;
/// Bytes of a state of a pattern: it is in automata for both directions.
const STATE_BYTES: u64 = 128;
/// States of all patterns together.
const MAX_STATES: u64 = 100_000;
/// Bytes of all patterns together that are read when they are translated.
const MAX_READ: u64 = 1 << 20;
/// Bytes of a text that is read as a pattern: each part costs a step for every part.
const PATTERN_PART: u64 = 128;
/// States that cost one step a chunk: in the worst case all of them are looked at for every byte.
const STATES: u64 = 16;
const FORMAT_STEPS: u64 = 2;
/// A text is hashed, and looked up.
const TEXTS: Weight = Weight { place: 2, chunk: 1 };
/// A remainder of fractions is computed with whole numbers of any length.
const MULTIPLE_STEPS: u64 = 100;
/// What begins a part that references may begin at, or name.
const ANCHORS: [&str; 4] = ["$id", "$anchor", "$dynamicAnchor", "$recursiveAnchor"];
/// Keywords that look at one place and at nothing inside of it.
const CHECKS: [&str; 17] = [
    "const",
    "contentEncoding",
    "contentMediaType",
    "dependentRequired",
    "disallow",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "maxContains",
    "maxItems",
    "maxProperties",
    "maximum",
    "minItems",
    "minProperties",
    "minimum",
    "required",
    "type",
];
