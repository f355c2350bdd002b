//! The program `conformance`, run as its users run it.

use std::fs;
use std::process::Command;

use crate::bounded;

/// The program, beside those of this package; it is built where only this package is.
pub(crate) fn program() -> &'static str {
    static PROGRAM: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    PROGRAM.get_or_init(|| {
        let path = std::path::Path::new(env!("CARGO_BIN_EXE_validate"))
            .with_file_name(format!("conformance{}", std::env::consts::EXE_SUFFIX));
        if !path.exists() {
            let built = Command::new(env!("CARGO"))
                .args(["build", "--quiet", "--package", "ubos-conformance"])
                .status();
            assert!(built.unwrap().success());
        }
        path.to_str().unwrap().to_owned()
    })
}

fn conformance(arguments: &[&str]) -> (i32, String, String) {
    let output = bounded::output(Command::new(program()).args(arguments));
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
        12,
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
        // What it leaves behind keeps its output open.
        &["sap", "--", "sh", "-c", "sleep 3600 & false"],
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
        &["uap-state"],
        &["uap-state", "/nowhere"],
        &["uap-run", "--", "true"],
        &["uap-run", "/nowhere"],
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
    // Behind it a busy machine starts a test agent.
    let core = ["osw-core", "--launch", CORE, "--handshake-ms", "120000"];
    let core = [&core[..], &["--script", CALLS, "--", "{}"]].concat();
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
    assert!(told.contains("0 cases judged the peer"), "{told}");
}

// spec: OSW-9-1
#[cfg(unix)]
#[test]
fn a_tap_judges_what_passes_between_a_core_and_its_agent() {
    let dir = tempfile::tempdir().unwrap();
    let report = dir.path().join("report");
    let own = program();
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
        // Behind it a busy machine starts two processes more.
        core.args(["--handshake-ms", "120000", "--script", CALLS, "--"]);
        core.args(tap).args(agent);
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

const RUN: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../uap-agent/vectors/run.jsonl"
);

#[test]
fn what_agents_of_uap_leave_behind_is_judged_by_level() {
    let (code, told, said) = conformance(&["uap-run", RUN]);
    assert_eq!((code, said.as_str()), (0, ""), "{told}");
    for level in [
        "Core (required)",
        "Advanced Execution (required)",
        "Thread Trees (optional)",
        "Middleware (required)",
    ] {
        assert!(told.contains(&format!("{level}: conforms")), "{told}");
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run");
    let text = fs::read_to_string(RUN).unwrap();
    fs::write(
        &file,
        text.replace("\"type\":\"reasoning\"", "\"type\":\"musing\""),
    )
    .unwrap();
    let (code, told, _) = conformance(&["uap-run", "--report", "json", file.to_str().unwrap()]);
    let report: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(
        (code, &report["levels"][1]["verdict"]),
        (1, &"does not conform".into()),
        "{told}"
    );
    fs::write(&file, "{\"what\":1}\n").unwrap();
    let (code, _, said) = conformance(&["uap-run", file.to_str().unwrap()]);
    assert_eq!((code, said.contains("line 1")), (2, true), "{said}");
    fs::write(&file, "").unwrap();
    let (code, told, _) = conformance(&["uap-run", file.to_str().unwrap()]);
    assert_eq!(
        (code, told.contains("0 cases judged the peer")),
        (1, true),
        "{told}"
    );
}

#[test]
fn states_and_trees_of_uap_are_judged() {
    let validate = env!("CARGO_BIN_EXE_validate");
    let (code, told, _) = conformance(&["uap-state", "--", validate, "{}", "-"]);
    assert_eq!(code, 0, "{told}");
    let (code, told, _) = conformance(&["uap-state", "--", "true"]);
    assert_eq!(
        (code, told.contains("valid where invalid is wanted")),
        (1, true),
        "{told}"
    );
    let dir = tempfile::tempdir().unwrap();
    let state = |n: u64, id: u64| {
        let file = dir.path().join(format!("{n}.json"));
        let text = format!(
            r#"{{"version":"1.1.0","id":"00000000-0000-4000-8000-00000000000{id}","messages":[],"step":{n},"metadata":{{}},"reasoning":[]}}"#
        );
        fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let (code, told, _) = conformance(&["uap-state", &state(1, 1), &state(2, 2), &state(3, 3)]);
    assert_eq!(
        (code, told.contains("Core (required): conforms")),
        (0, true),
        "{told}"
    );
    let (code, told, _) = conformance(&["uap-state", &state(1, 1), &state(3, 1)]);
    assert_eq!(code, 1);
    assert!(
        told.contains("line 2: the id of an earlier state"),
        "{told}"
    );
    assert!(
        told.contains("line 2: a state that is not of the next step"),
        "{told}"
    );
}

/// What `agent-chat` leaves behind is what agents of UAP leave behind.
// spec: UAP-11-3
#[cfg(unix)]
#[test]
fn the_trace_of_a_chat_conforms() {
    let dir = tempfile::tempdir().unwrap();
    for way in ["loop", "react", "plan"] {
        let trace = dir.path().join(way);
        let mut chat = Command::new(env!("CARGO_BIN_EXE_agent-chat"))
            .args(["--strategy", way, "--trace", trace.to_str().unwrap()])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let questions = b"calc 1+1 and count words of a b\nhello\ncalc 1/0\n";
        std::io::Write::write_all(&mut chat.stdin.take().unwrap(), questions).unwrap();
        let _bounded = bounded::bounded(&chat);
        assert!(chat.wait().unwrap().success());
        let (code, told, _) = conformance(&["uap-run", trace.to_str().unwrap()]);
        assert_eq!(code, 0, "{way}: {told}");
    }
}

#[test]
fn an_endpoint_of_sap_is_judged_while_it_runs() {
    let agent = crate::sap_programs::Agent::start(&["--allow", "A-conformance"]);
    let run = |capability: &str, payload: &str| {
        conformance(&[
            "sap-http",
            "--url",
            &agent.url,
            "--capability",
            capability,
            "--payload",
            payload,
            "--slow",
            "text.count",
            "--slow-payload",
            r#"{"to":1000}"#,
        ])
    };
    // Twice: no run has the ids of another.
    for _ in 0..2 {
        let (code, told, said) = run("text.echo", r#"{"a":1}"#);
        assert_eq!((code, said.as_str()), (0, ""), "{told}");
        assert!(
            told.trim_end().ends_with("0 failed, 0 not applicable"),
            "{told}"
        );
    }
    // Nothing of what the issuer may not have done can be judged.
    let (code, told, _) = run("text.none", "{}");
    assert_eq!(code, 1, "{told}");
    // Nobody is cancelled where no work is slow.
    let work = ["--capability", "text.echo", "--payload", r#"{"a":1}"#];
    let (code, told, _) = conformance(&[&["sap-http", "--url", &agent.url][..], &work].concat());
    assert!(code == 0 && told.contains("slow work"), "{told}");
    let (code, _, said) = conformance(&["sap-http", "--url", "what", "--capability", "a.b"]);
    assert_eq!((code, said.lines().count()), (2, 1));
}

#[test]
fn an_endpoint_of_sap_that_wants_a_token_is_judged_with_one() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    fs::write(&file, "hunter2\n").unwrap();
    let file = file.to_str().unwrap();
    let agent = crate::sap_programs::Agent::start(&["--token", &format!("A-conformance={file}")]);
    let run = |bearer: &[&str]| {
        let work = ["--capability", "text.echo", "--payload", r#"{"a":1}"#];
        let asked = [&["sap-http", "--url", &agent.url][..], &work, bearer];
        conformance(&asked.concat())
    };
    let (code, told, said) = run(&["--bearer-file", file]);
    assert_eq!((code, said.as_str()), (0, ""), "{told}");
    assert!(!told.contains("hunter2"), "{told}");
    let (code, told, _) = run(&[]);
    assert_eq!(code, 1, "{told}");
    // Of a token that cannot be sent nothing is shown.
    fs::write(file, "hunter2 and more").unwrap();
    let (code, told, said) = run(&["--bearer-file", file]);
    assert_eq!((code, told.as_str(), said.lines().count()), (2, "", 1));
    assert!(!said.contains("hunter2"), "{said}");
}
