//! The kit of a live endpoint of SAP.

use ubos_conformance::Expectations;
use ubos_conformance::sap::endpoint_kit;

/// The proof of a kit lets a mutant fail other cases of its own clause. Here none does.
#[test]
fn only_its_own_case_catches_a_mutant() {
    let kit = endpoint_kit();
    assert_eq!(kit.cases().len(), 26);
    for case in kit.cases() {
        let report = kit.run(&Expectations::new(), |_| Ok(case.mutant()));
        let failed = report.outcomes().iter().filter(|outcome| {
            // One that never ends a task ends none that is late or cancelled, either.
            let is_named = (case.clause(), outcome.clause) == ("SAP-5-2", "SAP-5-8");
            outcome.verdict.is_fail() && !is_named
        });
        let failed: Vec<_> = failed.map(|outcome| outcome.name).collect();
        assert_eq!(failed, [case.name()]);
    }
}
