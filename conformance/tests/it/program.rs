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
