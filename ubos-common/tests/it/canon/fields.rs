//! Structs with any fields, whose names a serializer may recognise by their address.

use proptest::prelude::*;
use serde::ser::{Serialize, SerializeStruct, Serializer};

/// More names than are remembered, of all lengths, are parts of it; its halves are equal, at two addresses.
const LONG: &str = "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz";
const LENGTHS: usize = 30;

/// Names that have to be escaped or lie outside ASCII.
const ODD: [&str; 8] = ["", "\"", "a\\b", "\u{1}", "é", "\u{ffff}", "😂", "aé😂\n"];

pub(super) fn name(index: usize) -> &'static str {
    match index.checked_sub(ODD.len()) {
        None => ODD[index],
        Some(rest) => &LONG[rest / LENGTHS..][..=rest % LENGTHS],
    }
}

/// The index of the name of `length` bytes that stands at `start` of the long text.
pub(super) fn at(start: usize, length: usize) -> usize {
    ODD.len() + start * LENGTHS + length - 1
}

pub(super) fn names() -> impl Strategy<Value = usize> {
    0..at(22, LENGTHS) + 1
}

/// An object whose members are structs and numbers.
#[derive(Debug, Clone)]
pub(super) struct Fields(pub(super) Vec<(usize, Option<Self>)>);

impl Fields {
    pub(super) fn any() -> impl Strategy<Value = Self> {
        let leaf = proptest::collection::vec((names(), Just(None)), 0..6).prop_map(Self);
        leaf.prop_recursive(4, 200, 12, |inner| {
            let member = (names(), proptest::option::of(inner));
            proptest::collection::vec(member, 0..12).prop_map(Self)
        })
    }

    /// Leaves one member of each name.
    pub(super) fn without_doubles(mut self) -> Self {
        let mut seen = Vec::new();
        self.0.retain(|(index, _)| {
            let is_new = !seen.contains(&name(*index));
            seen.push(name(*index));
            is_new
        });
        for (_, value) in &mut self.0 {
            *value = value.take().map(Self::without_doubles);
        }
        self
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Fields", self.0.len())?;
        for (index, value) in &self.0 {
            match value {
                Some(value) => fields.serialize_field(name(*index), &[value, value])?,
                None => fields.serialize_field(name(*index), index)?,
            }
        }
        fields.end()
    }
}
