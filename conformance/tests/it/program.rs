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

#[test]
fn a_password_in_an_address_is_not_shown() {
    for arguments in [
        &["hub", "--url", "http://user:secret@127.0.0.1:1"][..],
        &["hub", "--url=http://user:secret@host"],
        &["hub-agent", "--hub=http://user:secret@host"],
        &["hub-hostile", "--url=http://user:secret@host"],
        &["sap-http", "--url=http://user:secret@host"],
    ] {
        let output = Command::new(CONFORMANCE).args(arguments).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        let host = arguments.last().unwrap().rsplit('@').next().unwrap();
        assert!(said.contains(host) && !said.contains("secret"), "{said}");
    }
}
