//! The words of closed lists, which validators take.

use std::fs;
use std::path::{Path, PathBuf};

use ubos_conformance::{Kit, Protocol, osw, sacp, sap, uap};

fn unseen<P: Protocol>(kit: &Kit<P>) -> Vec<String> {
    let errors = kit.prove().err().unwrap_or_default();
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn a_validator_that_refuses_one_word_is_told() {
    let unseen = [
        unseen(&sap::vector_kit()),
        unseen(&sacp::vector_kit()),
        unseen(&osw::vector_kit()),
        unseen(&uap::file_kit()),
    ]
    .concat();
    assert!(unseen.is_empty(), "{}", unseen.join("\n"));
}

/// Closed lists that no message of a vector holds, and why.
const ELSEWHERE: [(&str, &str); 7] = [
    ("ReceiptStatus", "the kit of endpoints judges receipts"),
    ("SignalSource", "of a log of our own"),
    ("ArtifactKind", "of a log of our own"),
    ("EntryKind", "of a transcript of our own"),
    ("Stage", "of a saved run of our own"),
    ("Severity", "of an audit of our own"),
    ("Source", "the kit of runs judges events"),
];

/// A list belongs to a kit where the kit names it, or each of its words where it is private.
#[test]
fn no_closed_list_is_forgotten() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut lists = 0;
    for (name, kit) in [
        ("sap", "sap/vectors.rs"),
        ("sacp", "sacp/mod.rs"),
        ("opensentience-wire", "osw/vectors.rs"),
        ("uap-agent", "uap/files.rs"),
        ("upp", "uap/files.rs"),
    ] {
        let kit = fs::read_to_string(root.join("conformance/src").join(kit)).unwrap();
        let (_, kit) = kit.split_once("const WORD_LISTS").unwrap();
        for (list, words) in closed_lists(&root.join(name).join("src")) {
            let is_named = kit.contains(&format!("{list}::WORDS"))
                || words
                    .iter()
                    .all(|word| kit.contains(&format!("\"{word}\"")));
            let is_elsewhere = ELSEWHERE.iter().any(|(other, _)| *other == list);
            assert!(
                !words.is_empty() && is_named != is_elsewhere,
                "{name}: {list} {words:?}"
            );
            lists += 1;
        }
    }
    assert!(lists > 20, "{lists}");
}

/// The closed lists below a folder of sources, with their words.
fn closed_lists(folder: &Path) -> Vec<(String, Vec<String>)> {
    let mut lists = Vec::new();
    for file in sources(folder) {
        let source = fs::read_to_string(file).unwrap();
        let code = source
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        let code: String = code.collect::<Vec<_>>().join("\n");
        for (at, _) in code.match_indices("  closed ") {
            let (head, body) = code[at..].split_once('{').unwrap();
            let (body, _) = body.split_once('}').unwrap();
            let name = head.trim().rsplit(' ').next().unwrap();
            let words = body.split('"').skip(1).step_by(2).map(str::to_owned);
            lists.push((name.to_owned(), words.collect()));
        }
    }
    lists
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let found = entries.flat_map(|path| match path.is_dir() {
        true => sources(&path),
        false => vec![path],
    });
    found
        .filter(|path| path.extension().is_some_and(|it| it == "rs"))
        .collect()
}
