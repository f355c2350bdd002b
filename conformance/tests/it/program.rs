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

/// The exit code, standard output and standard error.
fn said(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(CONFORMANCE).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn every_kit_of_the_help_is_named_to_one_who_gives_none() {
    let (_, help, _) = said(&["--help"]);
    let (_, usage) = help.split_once("usage:").unwrap();
    let usage = usage.split("\n\n").next().unwrap();
    let kits = usage.split("conformance ").skip(1);
    let kits: Vec<&str> = kits
        .filter_map(|kit| kit.split([' ', '\n']).next())
        .collect();
    assert!(kits.contains(&"hub-hostile"), "{kits:?}");
    let (code, _, named) = said(&[]);
    assert_eq!(code, Some(2));
    let named: Vec<&str> = named.split([' ', ',', ';']).collect();
    for kit in kits {
        assert!(named.contains(&kit), "{kit}: {named:?}");
    }
}

#[test]
fn what_is_wanted_is_what_the_kit_judges() {
    let command = "a command is wanted behind --";
    for (arguments, wanted) in [
        (&["osw-agent"][..], command),
        (&["osw-agent", "--"], command),
        (&["sacp", "--report", "json"], command),
        (&["osw-core"], "a command is wanted behind --launch"),
        (&["uap-run"], "files are wanted;"),
        (&["sap"], "files are wanted, or a command behind --"),
        (
            &["uap-state", "--"],
            "files are wanted, or a command behind --",
        ),
        (&["sap", "file", "--", "true"], "not both"),
    ] {
        let (code, _, seen) = said(arguments);
        assert_eq!(code, Some(2), "{arguments:?}");
        assert!(seen.contains(wanted), "{arguments:?}: {seen}");
        let speaks_of_files = seen.contains("files");
        assert_eq!(
            speaks_of_files,
            wanted.contains("files") || wanted == "not both",
            "{seen}"
        );
    }
}
