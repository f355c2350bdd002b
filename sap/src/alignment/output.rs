//! One output that many predicates look at: each part is read once, and what all of it costs is bounded.

use std::collections::BTreeMap;
use std::sync::Arc;

use ubos_common::canon::Digest;
use ubos_common::json::{self, Kind, Raw, Read};
use ubos_common::violation::Profile;

use super::reading::caseless;
use crate::lifecycle::body_digest;
use crate::limits::unbounded;

/// The steps of a verdict are spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("holding the output against it takes more steps than the budget")]
pub(super) struct Spent;

/// An output, what was read of it, and the steps that are left. A part is known by where it begins.
#[derive(Debug)]
pub(super) struct Output<'a> {
    pub(super) whole: Raw<'a>,
    steps: usize,
    objects: BTreeMap<usize, Option<Arc<BTreeMap<String, Raw<'a>>>>>,
    arrays: BTreeMap<usize, Option<Arc<Vec<Raw<'a>>>>>,
    texts: BTreeMap<usize, Option<Arc<str>>>,
    /// Long ones; to read a short one again is as fast as to find it.
    numbers: BTreeMap<usize, Option<f64>>,
    digests: BTreeMap<usize, Digest>,
}

impl<'a> Output<'a> {
    /// Steps of one verdict. Reading a byte is one.
    pub(super) const MAX_STEPS: usize = 4 << 20;

    pub(super) const fn new(whole: Raw<'a>) -> Self {
        Self::with_steps(whole, Self::MAX_STEPS)
    }

    pub(super) const fn with_steps(whole: Raw<'a>, steps: usize) -> Self {
        Self {
            whole,
            steps,
            objects: BTreeMap::new(),
            arrays: BTreeMap::new(),
            texts: BTreeMap::new(),
            numbers: BTreeMap::new(),
            digests: BTreeMap::new(),
        }
    }

    /// Spends steps; once they are spent, all that follows is too much.
    pub(super) fn spend(&mut self, steps: usize) -> Result<(), Spent> {
        let left = self.steps.checked_sub(steps);
        self.steps = left.unwrap_or(0);
        left.map(drop).ok_or(Spent)
    }

    pub(super) fn members(
        &mut self,
        value: Raw<'a>,
    ) -> Result<Option<Arc<BTreeMap<String, Raw<'a>>>>, Spent> {
        if let Some(known) = self.objects.get(&place(value)) {
            return Ok(known.clone());
        }
        self.spend(length(value))?;
        let members = read(value).map(Arc::new);
        self.objects.insert(place(value), members.clone());
        Ok(members)
    }

    pub(super) fn elements(&mut self, value: Raw<'a>) -> Result<Option<Arc<Vec<Raw<'a>>>>, Spent> {
        if let Some(known) = self.arrays.get(&place(value)) {
            return Ok(known.clone());
        }
        self.spend(length(value))?;
        let elements = read(value).map(Arc::new);
        self.arrays.insert(place(value), elements.clone());
        Ok(elements)
    }

    /// A string whatever the case of its letters. To look through it costs a step for four bytes.
    pub(super) fn text(&mut self, value: Raw<'a>) -> Result<Option<Arc<str>>, Spent> {
        if value.kind() != Kind::String {
            return Ok(None);
        }
        self.spend(length(value) / 4)?;
        if let Some(known) = self.texts.get(&place(value)) {
            return Ok(known.clone());
        }
        self.spend(length(value))?;
        let text = read::<String>(value).map(|text| Arc::from(caseless(&text)));
        self.texts.insert(place(value), text.clone());
        Ok(text)
    }

    pub(super) fn number(&mut self, value: Raw<'a>) -> Result<Option<f64>, Spent> {
        if value.kind() != Kind::Number {
            return Ok(None);
        }
        if let Some(known) = self.numbers.get(&place(value)) {
            return Ok(*known);
        }
        self.spend(length(value))?;
        let number = read(value);
        if length(value) > SHORT {
            self.numbers.insert(place(value), number);
        }
        Ok(number)
    }

    pub(super) fn digest(&mut self, value: Raw<'a>) -> Result<Digest, Spent> {
        if let Some(known) = self.digests.get(&place(value)) {
            return Ok(*known);
        }
        self.spend(4 * length(value))?;
        let digest = body_digest(value.as_str().as_bytes());
        self.digests.insert(place(value), digest);
        Ok(digest)
    }
}

/// Bytes of a number that is read each time.
const SHORT: usize = 64;

/// No two parts of a kind begin at the same place.
fn place(value: Raw<'_>) -> usize {
    value.as_str().as_ptr().addr()
}

fn length(value: Raw<'_>) -> usize {
    value.as_str().len()
}

pub(super) fn read<'a, T: Read<'a>>(value: Raw<'a>) -> Option<T> {
    let outcome = json::read_raw(value, &unbounded(), Profile::Strict);
    outcome.ok().map(|(value, _)| value)
}
