//! The programs of `sap`'s README, with the dependencies that it tells its readers to write.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use super::write_if_new;

/// The blocks of a page in one language, in their order.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let begin = format!("```{language}\n");
    let behind = page.split(begin.as_str()).skip(1);
    behind
        .map(|rest| rest.split("```").next().unwrap())
        .collect()
}

#[test]
fn the_programs_of_the_readme_of_sap_are_built_and_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("readme-of-sap");
    let page = fs::read_to_string(root.join("sap/README.md")).unwrap();
    let manifests = blocks(&page, "toml");
    let programs = blocks(&page, "rust");
    assert_eq!((manifests.len(), programs.len()), (1, 3));
    // A reader has this repository beside the program.
    let told = r#"path = "../ubos/sap""#;
    assert!(manifests[0].contains(told), "{}", manifests[0]);
    let here = format!("path = {:?}", root.join("sap"));
    let mut manifest =
        "[package]\nname = \"reads-readme\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n"
            .to_owned();
    manifest += &manifests[0].replace(told, &here);
    manifest += "\n[workspace]\nresolver = \"3\"\n";
    let sources = folder.join("src/bin");
    fs::create_dir_all(&sources).unwrap();
    let mut names = Vec::new();
    for (number, program) in programs.iter().enumerate() {
        let mut program = (*program).to_owned();
        // What is shown as a part of a program is built as one.
        if !program.contains("fn main()") {
            write!(program, "\nfn main() {{\n    let _ = serve;\n}}\n").unwrap();
        }
        let name = format!("program-{}", number + 1);
        write_if_new(&sources.join(format!("{name}.rs")), &program);
        names.push(name);
    }
    write_if_new(&folder.join("Cargo.toml"), &manifest);
    // The versions that this workspace was tested with; all of them are there already.
    fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    for name in names {
        let output = Command::new(env!("CARGO"))
            .args(["run", "--quiet", "--offline", "--bin", &name])
            .current_dir(&folder)
            .env("CARGO_TARGET_DIR", folder.join("target"))
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {said}");
    }
}
