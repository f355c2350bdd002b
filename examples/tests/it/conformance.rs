//! The program `conformance`, run as its users run it.

use std::fs;
use std::process::Command;

fn conformance(arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_conformance"))
        .args(arguments)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn the_kits_hold() {
    let (code, told, said) = conformance(&["self-test"]);
    assert_eq!((code, said.as_str()), (0, ""));
    assert_eq!(
        told.lines()
            .filter(|line| line.ends_with("cases hold"))
            .count(),
        8,
        "{told}"
    );
}

#[test]
fn a_validator_is_judged_by_what_it_says_of_known_messages() {
    let validate = env!("CARGO_BIN_EXE_validate");
    let (code, told, _) = conformance(&["sap", "--", validate, "sap-{}", "-"]);
    assert_eq!(code, 0, "{told}");
    assert!(
        told.trim_end().ends_with("0 failed, 0 not applicable"),
        "{told}"
    );
    for yes_man in [
        &["sap", "--", "true"][..],
        &["sacp", "--", "cat"],
        &["sap", "--report", "json", "--", "false"],
    ] {
        let (code, told, _) = conformance(yes_man);
        assert_eq!(code, 1, "{told}");
    }
    let (_, told, _) = conformance(&["sacp", "--report", "junit", "--", "false"]);
    assert!(
        told.starts_with("<?xml") && told.contains("<failure"),
        "{told}"
    );
}

#[test]
fn an_exchange_is_judged_by_the_checklist() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("exchange");
    fs::write(&file, "{\"task\":{\"protocolVersion\":\"2.0\"}}\n\n").unwrap();
    let (code, told, _) = conformance(&["sap", file.to_str().unwrap()]);
    assert_eq!(code, 1);
    assert!(
        told.contains("line 1, /taskId: absent") && told.contains("not applicable"),
        "{told}"
    );
    fs::write(&file, "{\"task\":{}}\n{\"what\":1}\n").unwrap();
    let (code, _, said) = conformance(&["sap", file.to_str().unwrap()]);
    assert_eq!(code, 2);
    assert!(said.contains("line 2"), "{said}");
}

#[test]
fn usage_ends_with_2() {
    for arguments in [
        &[][..],
        &["nope"],
        &["sap"],
        &["sap", "--"],
        &["sacp", "file"],
        &["sap", "--", "/nowhere"],
        &["self-test", "x"],
        &["osw-agent", "file"],
        &["osw-agent", "--", "/nowhere"],
        &["osw-core", "--launch", "true"],
        &["osw-core", "--launch", "/nowhere", "{}"],
        &["osw-core", "--", "true", "{}"],
        &["osw-tap", "--", "true"],
        &["osw-tap", "--to"],
    ] {
        let (code, told, said) = conformance(arguments);
        assert_eq!((code, told.as_str()), (2, ""), "{arguments:?}");
        assert!(said.starts_with("conformance: "), "{said}");
    }
    assert!(conformance(&["--help"]).1.contains("exit codes"));
}

/// A small program in the shell, as an agent or a core.
#[cfg(unix)]
fn shell(script: &str) -> [&str; 3] {
    ["sh", "-c", script]
}

/// The verdicts of a report in JSON, by clause.
#[cfg(unix)]
fn verdicts(report: &serde_json::Value) -> std::collections::BTreeMap<String, String> {
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let cases = report["cases"].as_array().unwrap().iter();
    cases
        .map(|case| (text(&case["clause"]), text(&case["verdict"])))
        .collect()
}

#[cfg(unix)]
const AGENT: &str = env!("CARGO_BIN_EXE_agent");
#[cfg(unix)]
const CORE: &str = env!("CARGO_BIN_EXE_core");
#[cfg(unix)]
const CALLS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../opensentience-wire/vectors/calls.jsonl"
);

// spec: OSW-9-1
#[cfg(unix)]
#[test]
fn the_reference_agent_conforms() {
    let (code, told, said) = conformance(&["osw-agent", "--", AGENT]);
    assert_eq!((code, said.as_str()), (0, ""), "{told}");
    assert!(told.contains("0 failed, 1 not applicable"), "{told}");
}

// spec: OSW-9-1
#[cfg(unix)]
#[test]
fn the_reference_core_conforms() {
    let core = ["osw-core", "--launch", CORE, "--script", CALLS, "--", "{}"];
    let (code, told, said) = conformance(&core);
    assert_eq!((code, said.as_str()), (0, ""), "{told}");
    assert!(told.contains("0 failed, 0 not applicable"), "{told}");
}

// spec: OSW-9-1
#[cfg(unix)]
#[test]
fn broken_agents_and_cores_do_not_conform() {
    let dies = shell("exit 7");
    let (code, told, _) = conformance(&[&["osw-agent", "--"][..], &dies].concat());
    assert_eq!(code, 1);
    assert!(
        told.contains("OSW-4.1-1") && told.contains("no hello"),
        "{told}"
    );
    // One that does not heed its launch: another id.
    let other = format!("OPENSENTIENCE_AGENT_ID=com.example.other exec {AGENT}");
    let other = shell(&other);
    let (code, told, _) =
        conformance(&[&["osw-agent", "--report", "json", "--"][..], &other].concat());
    let report = serde_json::from_str(&told).unwrap();
    assert_eq!(code, 1);
    let verdicts = verdicts(&report);
    assert_eq!(verdicts["OSW-4.1-2"], "fail", "{told}");
    assert_eq!(verdicts["OSW-4.5-1"], "pass", "{told}");
    let launches_nothing = shell("exit 0; {}");
    let (code, told, _) = conformance(&[&["osw-core", "--launch"][..], &launches_nothing].concat());
    assert_eq!(code, 1);
    assert!(told.contains("only 0 judged"), "{told}");
}

// spec: OSW-9-1
#[cfg(unix)]
#[test]
fn a_tap_judges_what_passes_between_a_core_and_its_agent() {
    let dir = tempfile::tempdir().unwrap();
    let report = dir.path().join("report");
    let own = env!("CARGO_BIN_EXE_conformance");
    let tap = [
        own,
        "osw-tap",
        "--report",
        "json",
        "--to",
        report.to_str().unwrap(),
        "--",
    ];
    let core = |agent: &[&str]| {
        let mut core = Command::new(CORE);
        core.args(["--script", CALLS, "--"]).args(tap).args(agent);
        let output = core.output().unwrap();
        let lines = String::from_utf8(output.stdout).unwrap();
        let exited = lines
            .lines()
            .last()
            .map(|line| serde_json::from_str(line).unwrap());
        let exited: serde_json::Value = exited.unwrap();
        let told = fs::read_to_string(&report).unwrap();
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        (output.status.code(), exited["code"].as_i64(), told)
    };
    let (code, exited, told) = core(&[AGENT]);
    assert_eq!((code, exited), (Some(0), Some(0)), "{told}");
    assert_eq!(verdicts(&told["agent"])["OSW-4.4-3"], "pass", "{told}");
    assert_eq!(verdicts(&told["core"])["OSW-3-3"], "pass", "{told}");
    // The core refuses this one; the tap says why.
    let other = format!("OPENSENTIENCE_AGENT_ID=com.example.other exec {AGENT}");
    let (code, exited, told) = core(&shell(&other));
    assert_eq!((code, exited), (Some(3), Some(1)), "{told}");
    assert_eq!(verdicts(&told["agent"])["OSW-4.1-2"], "fail", "{told}");
    assert_eq!(verdicts(&told["core"])["OSW-4.1-3"], "pass", "{told}");
}

#[test]
fn a_validator_of_opensentience_is_judged() {
    let validate = env!("CARGO_BIN_EXE_validate");
    let (code, told, _) = conformance(&["osw", "--", validate, "osw-{}", "-"]);
    assert_eq!(code, 0, "{told}");
    let (code, told, _) = conformance(&["osw", "--", "true"]);
    assert_eq!(code, 1, "{told}");
}

/// Needs `python3`.
// spec: OSW-9-1
#[cfg(all(unix, feature = "external-tests"))]
#[test]
fn an_agent_in_another_language_conforms() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/python/osw_agent.py");
    let (code, told, said) = conformance(&["osw-agent", "--", "python3", script]);
    assert_eq!((code, said.as_str()), (0, ""), "{told}");
    assert!(told.contains("0 failed, 1 not applicable"), "{told}");
}
