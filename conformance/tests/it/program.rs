//! The program `conformance`, and programs that it judges.

use std::process::Command;

const CONFORMANCE: &str = env!("CARGO_BIN_EXE_conformance");

#[test]
fn executors_are_judged_line_by_line() {
    let report = |command: &[&str]| {
        let output = Command::new(CONFORMANCE)
            .args(["sacp-executor", "--"])
            .args(command)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        (output.status.code(), text)
    };
    let (code, text) = report(&[CONFORMANCE, "sacp-test-executor"]);
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = report(&[CONFORMANCE, "--help"]);
    assert_eq!(code, Some(1), "{text}");
}

// Whoever reads a report of a failure need not learn how one signs in.
#[cfg(feature = "hub")]
#[test]
fn a_hub_that_is_not_reached_is_named_without_its_password() {
    let output = Command::new(CONFORMANCE)
        .args(["hub", "--url", "http://ada:lovelace@127.0.0.1:1"])
        .output()
        .unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("http://127.0.0.1:1"), "{said}");
    assert!(
        !said.contains("ada") && !said.contains("lovelace"),
        "{said}"
    );
}
