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
        5,
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
    ] {
        let (code, told, said) = conformance(arguments);
        assert_eq!((code, told.as_str()), (2, ""), "{arguments:?}");
        assert!(said.starts_with("conformance: "), "{said}");
    }
    assert!(conformance(&["--help"]).1.contains("exit codes"));
}
