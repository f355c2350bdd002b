//! Tasks and results of SAP: strict, lenient and borrowed reading agree, and nothing read is lost.

use arbitrary::{Arbitrary as _, Unstructured};
use sap::cache::{Keys, WholePayload};
use sap::validate::{Options, decode_result, decode_task, findings};
use sap::{Task, TaskResult, TaskView};
use ubos_common::json::Limits;
use ubos_common::violation::Profile;

/// The first byte chooses what the others are: a task, a result, or what generators draw from.
pub fn check(bytes: &[u8]) {
    let Some((choice, rest)) = bytes.split_first() else {
        return;
    };
    match choice % 3 {
        0 => task(rest),
        1 => result(rest),
        _ => generated(rest),
    }
}

fn task(text: &[u8]) {
    let Ok((lenient, _)) = decode_task(text, &Options::from(Profile::Lenient)) else {
        assert!(decode_task(text, &Options::default()).is_err());
        return;
    };
    let written = lenient.encode();
    let (again, _) =
        decode_task(&written, &Options::from(Profile::Lenient)).expect("what was written is read");
    assert_eq!(again, lenient);
    let Ok((strict, report)) = decode_task(text, &Options::default()) else {
        return;
    };
    assert!(report.is_valid() && strict == lenient);
    let (again, told) = decode_task(&written, &Options::default()).expect("valid stays valid");
    assert!(again == strict && told.len() == report.len());
    let (view, _) = TaskView::decode(text, &Limits::default()).expect("a view sees less");
    assert_eq!(view.task_id, strict.task_id);
    assert_eq!(view.payload.as_str(), strict.payload.as_str());
    if let Ok(keys) = Keys::of(&strict, &WholePayload) {
        assert_eq!(Keys::of(&again, &WholePayload), Ok(keys));
    }
}

fn result(text: &[u8]) {
    let Ok((lenient, _)) = decode_result(text, &Options::from(Profile::Lenient)) else {
        assert!(decode_result(text, &Options::default()).is_err());
        return;
    };
    let written = lenient.encode();
    let (again, _) = decode_result(&written, &Options::from(Profile::Lenient))
        .expect("what was written is read");
    assert_eq!(again, lenient);
    if let Ok((strict, report)) = decode_result(text, &Options::default()) {
        assert!(report.is_valid() && strict == lenient);
        assert!(decode_result(&written, &Options::default()).is_ok());
    }
}

fn generated(bytes: &[u8]) {
    let mut source = Unstructured::new(bytes);
    if let Ok(made) = Task::arbitrary(&mut source) {
        let report = findings(&decode_task(&made.encode(), &Options::default()));
        assert!(report.is_valid(), "{report}");
        task(&made.encode());
    }
    if let Ok(made) = TaskResult::arbitrary(&mut source) {
        let report = findings(&decode_result(&made.encode(), &Options::default()));
        assert!(report.is_valid(), "{report}");
        result(&made.encode());
    }
}
