//! Traces, metrics and extensions of a message.

use std::collections::{BTreeMap, btree_map};

use ubos_common::json::{Fault, RawBuf, Read, Reader, Write};
use ubos_common::violation::Level;

use super::closed::refuse_unknown;
use super::names::Id;
use super::step::Bounded;

ubos_common::wire! {
    /// The place of a message in a trace. Unknown members are refused.
    ///
    /// Spec: SACP 1.0, 4
    pub struct Trace checked by check_trace {
        /// The trace id.
        optional trace_id: Id = "trace_id", "SACP1-4-4";
        /// The span id of this message.
        optional span_id: Id = "span_id", "SACP1-4-4";
        /// The parent span id.
        optional parent_span_id: Id = "parent_span_id", "SACP1-4-4";
        /// The number of the attempt, from 1.
        optional attempt: Bounded<1, { u64::MAX }> = "attempt", "SACP1-4-4";
        /// Its metrics.
        optional metrics: Metrics = "metrics", "SACP1-4-4";
    }
}

ubos_common::wire! {
    /// The metrics of a message. Unknown members are refused.
    ///
    /// Spec: SACP 1.0, 4
    pub struct Metrics checked by check_metrics {
        /// Milliseconds from request to answer.
        optional latency_ms: Bounded<0, { u64::MAX }> = "latency_ms", "SACP1-4-4";
        /// Milliseconds that it waited before it started.
        optional queue_ms: Bounded<0, { u64::MAX }> = "queue_ms", "SACP1-4-4";
        /// Tools called.
        optional tool_calls: Bounded<0, { u64::MAX }> = "tool_calls", "SACP1-4-4";
        /// Tokens read by models.
        optional tokens_in: Bounded<0, { u64::MAX }> = "tokens_in", "SACP1-4-4";
        /// Tokens written by models.
        optional tokens_out: Bounded<0, { u64::MAX }> = "tokens_out", "SACP1-4-4";
        /// US dollars; at least 0.
        optional cost_usd: f64 = "cost_usd", "SACP1-4-4";
    }
}

impl Trace {
    /// The place of the message `msg_id` below another: a span of its own, and nothing of what the other took.
    pub(crate) fn below(parent: Option<&Self>, msg_id: &Id) -> Self {
        let mut trace = Self::new();
        trace.trace_id = parent.and_then(|parent| parent.trace_id.clone());
        trace.parent_span_id = parent.and_then(|parent| parent.span_id.clone());
        trace.span_id = Some(msg_id.clone());
        trace
    }
}

impl Metrics {
    /// Adds what another message took of tokens and money.
    pub(crate) fn spend(&mut self, other: &Self) {
        let add = |to: &mut Option<Bounded<0, { u64::MAX }>>, of: Option<_>| {
            let of = of.map(u64::from);
            let sum = of.map(|of| of.saturating_add(to.map_or(0, u64::from)));
            *to = sum.and_then(Bounded::new).or(*to);
        };
        add(&mut self.tokens_in, other.tokens_in);
        add(&mut self.tokens_out, other.tokens_out);
        let cost = other
            .cost_usd
            .map(|cost| cost + self.cost_usd.unwrap_or_default());
        // A sum that is no number of JSON is not written.
        self.cost_usd = cost.filter(|cost| cost.is_finite()).or(self.cost_usd);
    }
}

// impl: SACP1-4-4
fn check_trace(reader: &mut Reader<'_>, at: usize, trace: &Trace) -> Result<(), Fault> {
    if refuse_unknown(reader, at, &trace.extra, "a trace has no such member") {
        return Err(reader.noted());
    }
    Ok(())
}

// impl: SACP1-4-4
fn check_metrics(reader: &mut Reader<'_>, at: usize, metrics: &Metrics) -> Result<(), Fault> {
    let mut refused = refuse_unknown(reader, at, &metrics.extra, "metrics have no such member");
    if metrics.cost_usd.is_some_and(|cost| cost < 0.0) {
        let what = "an amount of at least 0 wanted";
        reader.note(at, Some("cost_usd".into()), "bad_value", Level::Must, what);
        refused = true;
    }
    if refused {
        return Err(reader.noted());
    }
    Ok(())
}

/// Extensions by name: `vendor.name`.
///
/// Spec: SACP 1.0, 4
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ext(BTreeMap<String, RawBuf>);

impl Ext {
    /// Adds an extension. Returns `false` and changes nothing if its name is not valid.
    pub fn insert(&mut self, name: &str, value: RawBuf) -> bool {
        let good = Self::fits(name);
        if good {
            self.0.insert(name.to_owned(), value);
        }
        good
    }

    /// Takes an extension out.
    pub(super) fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// The extension with this name.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&RawBuf> {
        self.0.get(name)
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a name is valid: lower-case letters and digits, a dot, then letters, digits, `_`, `.` and `-`.
    fn fits(name: &str) -> bool {
        let Some((vendor, rest)) = name.split_once('.') else {
            return false;
        };
        let vendor_byte = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let rest_byte = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
        !vendor.is_empty()
            && !rest.is_empty()
            && vendor.bytes().all(vendor_byte)
            && rest.bytes().all(rest_byte)
    }
}

impl<'a> IntoIterator for &'a Ext {
    type Item = (&'a String, &'a RawBuf);
    type IntoIter = btree_map::Iter<'a, String, RawBuf>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl Read<'_> for Ext {
    // impl: SACP1-4-4
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let mut refused = false;
        let mut members = BTreeMap::new();
        reader.object(|reader, name| {
            if !Self::fits(name) {
                let here = reader.offset();
                reader.reject(here, "ext_name", "an extension is named vendor.name");
                refused = true;
                return reader.skip();
            }
            members.insert(name.clone().into_owned(), RawBuf::read(reader)?);
            Ok(())
        })?;
        if refused {
            return Err(reader.noted());
        }
        Ok(Self(members))
    }
}

impl Write for Ext {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }
}
