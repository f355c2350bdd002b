//! The kits hold what they say.

use opensentience_wire::conformance::{AGENTS, CORES, FILES, Kind, OUT_OF_REACH, VECTORS};
use opensentience_wire::limits::Limits;
use opensentience_wire::validate::{message, stream};
use serde_json::{Value, json};
use ubos_common::conformance::{Case, Protocol, prove};
use ubos_common::violation::Level;

fn proved<P: Protocol>(cases: &[Case<P>]) {
    let faults = prove(cases).err().unwrap_or_default();
    let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

// spec: OSW-9-1
#[test]
fn the_kit_for_agents_holds() {
    proved(AGENTS);
}

// spec: OSW-9-1
#[test]
fn the_kit_for_cores_holds() {
    proved(CORES);
}

#[test]
fn the_kit_for_validators_holds() {
    proved(VECTORS);
}

// spec: OSW-8-2
#[test]
fn the_index_lists_the_vectors_with_the_pointers_of_their_findings() {
    let index = include_str!("../../vectors/index.json");
    let index: Vec<Value> = serde_json::from_str(index).unwrap();
    let limits = Limits::default();
    for (line, vector) in index.iter().zip(FILES) {
        let report = match vector.kind {
            Kind::Message => message(vector.bytes, &limits),
            Kind::Stream => stream(vector.bytes, &limits),
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
    assert_eq!(index.len(), FILES.len());
}

/// Every clause of the register is in a kit, or its absence has a reason.
// spec: OSW-9-1
#[test]
fn every_clause_is_judged_or_out_of_reach() {
    let register = include_str!("../../requirements.toml").lines();
    let ids = register.filter_map(|line| line.strip_prefix("id = \"")?.strip_suffix('"'));
    let agents = AGENTS.iter().map(|case| case.clause);
    let cores = CORES.iter().map(|case| case.clause);
    let vectors = VECTORS.iter().map(|case| case.clause);
    let judged: Vec<&str> = agents.chain(cores).chain(vectors).collect();
    let excused = |id: &str| OUT_OF_REACH.iter().any(|(clause, _)| *clause == id);
    for id in ids {
        assert_ne!(judged.contains(&id), excused(id), "{id}");
    }
}
