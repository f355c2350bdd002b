//! What the generators of messages draw.

use arbitrary::{Arbitrary as _, Unstructured};
use prost_types::{Value, value::Kind};
use uap_hub_proto::wire::{StepReport, TestResult};
use ubos_common::id::IdSource;

fn deepest(steps: &[StepReport]) -> usize {
    let depths = steps.iter().map(|step| 1 + deepest(&step.steps));
    depths.max().unwrap_or(0)
}

fn nested<'a>(values: impl IntoIterator<Item = &'a Value>) -> usize {
    let depths = values.into_iter().map(|value| match &value.kind {
        Some(Kind::StructValue(object)) => 1 + nested(object.fields.values()),
        Some(Kind::ListValue(list)) => 1 + nested(&list.values),
        _ => 0,
    });
    depths.max().unwrap_or(0)
}

const fn is_list(value: &&Value) -> bool {
    matches!(value.kind, Some(Kind::ListValue(_)))
}

#[test]
#[cfg_attr(miri, ignore = "too slow in an interpreter")]
fn results_have_words_times_lists_and_unknown_states_and_are_nested_three_deep_at_most() {
    let mut ids = IdSource::seeded(0);
    let (mut steps, mut values, mut words, mut times, mut spans) = (0, 0, 0, 0, 0);
    let (mut lists, mut unknown) = (0, 0);
    for _ in 0..500 {
        let bytes: Vec<_> = (0..1_000).flat_map(|_| ids.bits().to_le_bytes()).collect();
        let drawn = TestResult::arbitrary(&mut Unstructured::new(&bytes)).unwrap();
        steps = steps.max(deepest(&drawn.reports));
        let status = drawn.status.unwrap_or_default();
        words += status.message.len();
        unknown += usize::from(status.state > 9);
        let Some(summary) = drawn.summary else {
            continue;
        };
        times += usize::from(summary.start_time.is_some());
        spans += usize::from(summary.total_duration.is_some());
        let metadata = summary.metadata.unwrap_or_default();
        values = values.max(nested(metadata.fields.values()));
        lists += metadata.fields.values().filter(is_list).count();
    }
    assert_eq!((steps, values), (3, 3));
    let all = [words, times, spans, lists, unknown];
    assert!(all.iter().all(|count| *count > 0), "{all:?}");
}
