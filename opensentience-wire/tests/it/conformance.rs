//! The conformance kits hold, with the machines of this crate as references.

use opensentience_wire::Limits;
use opensentience_wire::validate::{message, stream};
use serde_json::{Value, json};
use ubos_common::violation::Level;
use ubos_conformance::osw::{OUT_OF_REACH, VECTORS, VectorKind, agent_kit, core_kit, vector_kit};
use ubos_conformance::{Kit, Protocol};

fn assert_proved<P: Protocol>(kit: &Kit<P>) {
    let errors = kit.prove().err().unwrap_or_default();
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}

// spec: OSW-9-1
#[test]
fn agent_kit_is_proved() {
    assert_proved(&agent_kit());
}

// spec: OSW-9-1
#[test]
fn core_kit_is_proved() {
    assert_proved(&core_kit());
}

#[test]
fn vector_kit_is_proved() {
    assert_proved(&vector_kit());
}

// spec: OSW-8-2
#[test]
fn index_lists_the_vectors_and_their_pointers() {
    let index = include_str!("../../vectors/index.json");
    let index: Vec<Value> = serde_json::from_str(index).unwrap();
    let limits = Limits::default();
    for (line, vector) in index.iter().zip(VECTORS) {
        let report = match vector.kind {
            VectorKind::Message => message(vector.bytes, &limits),
            VectorKind::Stream => stream(vector.bytes, &limits),
        };
        let musts = report.iter().filter(|found| found.level == Level::Must);
        let pointers: Vec<&str> = musts.map(|found| found.pointer.as_str()).collect();
        let (file, kind, clause) = (vector.file, vector.kind.as_str(), vector.clause);
        let mut wanted =
            json!({"file": file, "kind": kind, "clause": clause, "valid": vector.valid});
        if !vector.valid {
            wanted["pointers"] = pointers.into();
        }
        assert_eq!(*line, wanted);
    }
    assert_eq!(index.len(), VECTORS.len());
}

/// Every clause of the register is in a kit, or its absence has a reason.
// spec: OSW-9-1
#[test]
fn every_clause_is_judged_or_out_of_reach() {
    let register = include_str!("../../requirements.toml").lines();
    let ids = register.filter_map(|line| line.strip_prefix("id = \"")?.strip_suffix('"'));
    let (agents, cores, vectors) = (agent_kit(), core_kit(), vector_kit());
    let mut judged: Vec<&str> = agents.cases().iter().map(|case| case.clause()).collect();
    judged.extend(cores.cases().iter().map(|case| case.clause()));
    judged.extend(vectors.cases().iter().map(|case| case.clause()));
    let excused = |id: &str| OUT_OF_REACH.iter().any(|(clause, _)| *clause == id);
    for id in ids {
        assert_ne!(judged.contains(&id), excused(id), "{id}");
    }
}
