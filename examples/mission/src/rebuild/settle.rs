//! The times of steps, where their stores know them to the second or not at all.

use std::collections::HashMap;

use ubos_common::time::Timestamp;

use super::Missing;
use super::build::{Draft, When, about};
use crate::trace::Spans;

/// Steps with times, and those that cause each other and stand nowhere.
///
/// A step whose beginning is not known begins no earlier than its cause, and one whose end is not known ends no earlier than
/// what it caused.
pub(super) fn settle(drafts: Vec<Draft>, more: u64) -> (Spans, Vec<Missing>) {
    let times: Vec<_> = drafts
        .iter()
        .map(|draft| (draft.start, draft.end))
        .collect();
    let list = drafts.into_iter().map(|draft| draft.span).collect();
    let mut spans = Spans { list, more };
    let places: HashMap<String, usize> = spans
        .list
        .iter()
        .enumerate()
        .map(|(place, span)| (span.id.clone(), place))
        .collect();
    let order: Vec<usize> = spans
        .tree()
        .iter()
        .filter_map(|(_, span)| places.get(&span.id).copied())
        .collect();
    // Causes come before what they caused.
    let cause_of = |spans: &Spans, place: usize| {
        let parent = spans.list.get(place)?.parent.as_ref()?;
        places.get(parent).copied()
    };
    for place in order.iter().copied() {
        let cause = cause_of(&spans, place).and_then(|cause| spans.list.get(cause));
        let earliest = cause.map_or(Timestamp::EPOCH, |cause| cause.started);
        let start = times.get(place).map(|(start, _)| *start);
        if let Some(span) = spans.list.get_mut(place)
            && !matches!(start, Some(When::At(_)))
        {
            span.started = span.started.max(earliest);
        }
    }
    let mut last: Vec<Timestamp> = spans.list.iter().map(|span| span.started).collect();
    for place in order.iter().rev().copied() {
        let end = times.get(place).and_then(|(_, end)| *end);
        let at_least = last.get(place).copied().unwrap_or(Timestamp::EPOCH);
        let ended = end.map(|end| match end {
            When::At(at) => at,
            When::InSecond(at) => at.max(at_least),
            When::Unknown => at_least,
        });
        if let Some(span) = spans.list.get_mut(place) {
            span.ended = ended;
        }
        let cause = cause_of(&spans, place);
        if let Some(of_cause) = cause.and_then(|cause| last.get_mut(cause)) {
            *of_cause = (*of_cause).max(ended.unwrap_or(at_least));
        }
    }
    let mut stands = vec![false; spans.list.len()];
    for place in order {
        if let Some(stands) = stands.get_mut(place) {
            *stands = true;
        }
    }
    let circles = spans
        .list
        .iter()
        .zip(&stands)
        .filter(|(_, stands)| !**stands);
    let circles = circles.map(|(span, _)| Missing {
        who: span.who,
        message: about(span),
        names: format!(
            "{}, which it causes",
            span.parent.as_deref().unwrap_or("itself")
        ),
    });
    let circles = circles.collect();
    (spans, circles)
}
