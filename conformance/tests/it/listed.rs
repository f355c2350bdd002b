//! The cases of all kits against the snapshot of the proof, whose program reads them from the sources.

use std::collections::{BTreeMap, BTreeSet};

use ubos_conformance::{Kit, Protocol, hub, osw, sacp, sap, uap};

#[derive(serde::Deserialize)]
struct Snapshot {
    clauses: Vec<Clause>,
}

#[derive(serde::Deserialize)]
struct Clause {
    id: String,
    /// The mutant of each case by its kit and name.
    cases: BTreeMap<String, String>,
}

fn list<P: Protocol>(kit: &Kit<P>) -> Vec<(String, String)> {
    let case = |case: &ubos_conformance::Case<P>| {
        let name = format!("{}: {}", kit.name(), case.name());
        (case.clause().to_owned(), name)
    };
    kit.cases().iter().map(case).collect()
}

#[test]
fn the_snapshot_lists_every_case() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../proof.json");
    let snapshot: Snapshot = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut listed = BTreeSet::new();
    for Clause { id, cases } in snapshot.clauses {
        for (case, mutant) in cases {
            assert!(!mutant.is_empty(), "{id} {case} has no mutant");
            listed.insert((id.clone(), case));
        }
    }
    let kits: BTreeSet<(String, String)> = [
        list(&sap::checklist_kit()),
        list(&sap::vector_kit()),
        list(&sap::endpoint_kit()),
        list(&sacp::vector_kit()),
        list(&sacp::executor_kit()),
        list(&osw::agent_kit()),
        list(&osw::core_kit()),
        list(&osw::vector_kit()),
        list(&uap::file_kit()),
        list(&uap::run_kit()),
        list(&uap::resume_kit()),
        list(&hub::hub_kit()),
        list(&hub::agent_kit()),
    ]
    .concat()
    .into_iter()
    .collect();
    let unlisted: Vec<_> = kits.difference(&listed).collect();
    let unknown: Vec<_> = listed.difference(&kits).collect();
    assert!(
        unlisted.is_empty() && unknown.is_empty(),
        "not in proof.json: {unlisted:?}; in no kit: {unknown:?}; `scripts/proof update` renews it"
    );
}
