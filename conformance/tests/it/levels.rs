//! The cases of all kits against the registers of the crates.

use std::collections::BTreeMap;

use ubos_common::violation::Level;
use ubos_conformance::{Kit, Protocol, hub, osw, sacp, sap, uap};

#[derive(serde::Deserialize)]
struct Register {
    clause: Vec<Clause>,
}

#[derive(serde::Deserialize)]
struct Clause {
    id: String,
    level: String,
}

/// The level of every clause that a crate registers.
fn levels() -> BTreeMap<String, Level> {
    let mut levels = BTreeMap::new();
    for name in [
        "sap",
        "sacp",
        "upp",
        "uap-agent",
        "opensentience-wire",
        "uap-hub-proto",
    ] {
        let path = format!("{}/../{name}/requirements.toml", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        let register: Register = toml::from_str(&text).unwrap();
        for clause in register.clause {
            let level = match clause.level.as_str() {
                "MUST" => Level::Must,
                "SHOULD" => Level::Should,
                "BEYOND" => Level::Advice,
                other => panic!("{}: {other}", clause.id),
            };
            levels.insert(clause.id, level);
        }
    }
    levels
}

fn check<P: Protocol>(kit: &Kit<P>, levels: &BTreeMap<String, Level>) -> Vec<String> {
    let mut wrong = Vec::new();
    for case in kit.cases() {
        let is_left_open = LEFT_OPEN.contains(&case.name()) && case.level() == Level::Advice;
        if levels.get(case.clause()) != Some(&case.level()) && !is_left_open {
            let (clause, name, level) = (case.clause(), case.name(), case.level());
            let registered = levels.get(clause);
            wrong.push(format!(
                "{clause} {name:?}: {level} where {registered:?} is registered"
            ));
        }
    }
    wrong
}

/// What the crate does by its clause, where the specification leaves it to everybody.
const LEFT_OPEN: [&str; 2] = [
    "an Ack has its status and the ids of its task",
    "a Nack has its status, a code, a reason and the ids of its task",
];

#[test]
fn cases_have_the_level_of_their_clause() {
    let levels = levels();
    let wrong = [
        check(&sap::checklist_kit(), &levels),
        check(&sap::vector_kit(), &levels),
        check(&sap::endpoint_kit(), &levels),
        check(&sacp::vector_kit(), &levels),
        check(&osw::agent_kit(), &levels),
        check(&osw::core_kit(), &levels),
        check(&osw::vector_kit(), &levels),
        check(&uap::file_kit(), &levels),
        check(&uap::run_kit(), &levels),
        check(&hub::hub_kit(), &levels),
        check(&hub::agent_kit(), &levels),
    ]
    .concat();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
