//! What the generators make holds, and is read back as it was made.

use arbitrary::{Arbitrary as _, Unstructured};
use proptest::prelude::*;
use sap::validate::{Options, decode_result, decode_task};
use sap::{Task, TaskResult};

proptest! {
    // spec: SAP-4.1-15, SAP-2-3
    #[test]
    fn generated_messages_are_valid_and_read_back(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
        let mut source = Unstructured::new(&bytes);
        if let Ok(task) = Task::arbitrary(&mut source) {
            let (again, _) = decode_task(&task.encode(), &Options::default()).unwrap();
            prop_assert_eq!(again, task);
        }
        if let Ok(result) = TaskResult::arbitrary(&mut source) {
            let (again, _) = decode_result(&result.encode(), &Options::default()).unwrap();
            prop_assert_eq!(again, result);
        }
    }
}

#[test]
fn there_are_seeds_and_words_to_begin_with() {
    assert!(sap::arbitrary::seeds().count() > 100);
}

/// Bytes of a generator: the same each time.
fn bytes(seed: u64) -> Vec<u8> {
    let step = |state: &u64| {
        Some(
            state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(seed | 1),
        )
    };
    let states = std::iter::successors(Some(seed), step);
    states
        .skip(1)
        .take(4_000)
        .map(|state| state.to_be_bytes()[1])
        .collect()
}

// spec: SAP-2-3
#[test]
fn some_generated_messages_have_members_that_nobody_knows() {
    let has_any = |seed: u64| {
        let task = Task::arbitrary(&mut Unstructured::new(&bytes(seed)));
        task.is_ok_and(|task| String::from_utf8(task.encode()).unwrap().contains("\"x-"))
    };
    assert!((0..100).any(has_any));
}

#[test]
fn some_generated_messages_have_members_that_may_be_absent_and_values_of_each_kind() {
    let result = |seed| TaskResult::arbitrary(&mut Unstructured::new(&bytes(seed))).ok();
    let results: Vec<TaskResult> = (0..300).filter_map(result).collect();
    let outputs: Vec<_> = results.iter().filter_map(|it| it.output.as_ref()).collect();
    for first in ["n", "t", "f", "-", "1", "[", "{", "\""] {
        let has_kind = outputs.iter().any(|it| it.as_str().starts_with(first));
        assert!(has_kind, "{first}");
    }
    let is_large = |text: &str| text.parse().is_ok_and(|n: i64| n.unsigned_abs() > 1 << 53);
    let is_fraction =
        |text: &str| text.parse::<f64>().is_ok() && text.contains('.') && text != "1.50e+3";
    assert!(outputs.iter().any(|it| is_large(it.as_str())));
    assert!(outputs.iter().any(|it| is_fraction(it.as_str())));
    let otherwise = outputs.iter().filter(|it| it.as_str() == "1.50e+3");
    assert!(otherwise.count() > 0, "a number is written in many ways");
}

#[test]
fn some_generated_budgets_are_not_whole() {
    let tokens = |seed| {
        let task = Task::arbitrary(&mut Unstructured::new(&bytes(seed))).ok()?;
        task.telemetry?.budget?.tokens
    };
    let mut tokens = (0..300).filter_map(tokens);
    assert!(tokens.any(|tokens| f64::from(&tokens).fract() > 0.0));
}

#[test]
fn texts_that_no_name_may_have_still_make_a_task() {
    let spaces = b" .".repeat(4_000);
    let task = Task::arbitrary(&mut Unstructured::new(&spaces)).unwrap();
    assert_eq!(task.target.capability.as_str().matches('.').count(), 1);
}
