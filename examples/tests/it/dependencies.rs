//! The page of dependencies against the manifests of the published crates.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const CRATES: [&str; 7] = [
    "ubos-common",
    "sap",
    "sacp",
    "upp",
    "uap-agent",
    "opensentience-wire",
    "uap-hub-proto",
];

#[test]
fn each_dependency_stands_on_the_page_and_no_other() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut used = BTreeSet::new();
    for name in CRATES {
        let text = fs::read_to_string(root.join(name).join("Cargo.toml")).unwrap();
        let manifest: toml::Table = toml::from_str(&text).unwrap();
        let dependencies = manifest["dependencies"].as_table().unwrap();
        used.extend(dependencies.keys().cloned());
    }
    used.retain(|name| !CRATES.contains(&name.as_str()));
    let page = fs::read_to_string(root.join("DEPENDENCIES.md")).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| "));
    let named: BTreeSet<String> = rows
        .skip(1)
        .flat_map(|row| row.split('|').nth(1).unwrap().split(','))
        .map(|name| name.trim().to_owned())
        .collect();
    assert_eq!(named, used);
}
