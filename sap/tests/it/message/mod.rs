//! Reading and writing tasks, results and receipts.

mod advice;
mod members;
mod reading;

use sap::PressureLevel;
use sap::validate::{Options, findings};
use serde_json::Value;
use ubos_common::violation::Profile;

use crate::samples::{example_task, found, read_result, read_task, result, with};

fn task_findings(value: &Value, options: &Options) -> Vec<String> {
    found(&findings(&read_task(value, options)))
}

fn result_findings(value: &Value, options: &Options) -> Vec<String> {
    found(&findings(&read_result(value, options)))
}

/// Each change is refused by the strict profile at its own pointer, with one MUST finding.
fn each_is_refused(
    base: &Value,
    judge: fn(&Value, &Options) -> Vec<String>,
    changes: &[(&str, Value)],
) {
    for (pointer, value) in changes {
        let changed = with(base.clone(), pointer, Some(value.clone()));
        let musts: Vec<String> = judge(&changed, &Options::default())
            .into_iter()
            .filter(|line| line.starts_with("MUST"))
            .collect();
        assert_eq!(musts.len(), 1, "{pointer} = {value}: {musts:?}");
        assert!(
            musts[0].starts_with(&format!("MUST {pointer}")),
            "{musts:?}"
        );
    }
}

// spec: SAP-4.1-14
#[test]
fn the_example_task_lacks_its_pressure_level_alone() {
    let level = "/constitutionalContext/pressureLevel SAP-4.1-5";
    assert_eq!(
        task_findings(&example_task(), &Options::default()),
        [format!("MUST {level}")]
    );
    let (task, report) = read_task(&example_task(), &Options::from(Profile::Lenient)).unwrap();
    assert_eq!(found(&report), [format!("ADVICE {level}")]);
    assert_eq!(
        task.constitutional_context.pressure_level,
        PressureLevel::Consulted
    );
}

// spec: SAP-4.2-8
#[test]
fn the_example_result_has_no_finding() {
    for options in [Options::default(), Options::from(Profile::Lenient)] {
        assert!(result_findings(&result(), &options).is_empty());
    }
}
