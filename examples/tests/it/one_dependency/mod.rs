//! Each protocol crate alone: a tiny program outside of the workspace, with exactly one dependency.

mod readme;

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// The crates, each with its program.
const PROGRAMS: [(&str, &str); 6] = [
    ("sap", include_str!("sap.rs")),
    ("sacp", include_str!("sacp.rs")),
    ("upp", include_str!("upp.rs")),
    ("uap-agent", include_str!("uap_agent.rs")),
    ("opensentience-wire", include_str!("opensentience_wire.rs")),
    ("uap-hub-proto", include_str!("uap_hub_proto.rs")),
];

#[test]
fn programs_with_one_dependency_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("one-dependency");
    let mut members = String::new();
    for (name, program) in PROGRAMS {
        let own = folder.join(name);
        fs::create_dir_all(own.join("src")).unwrap();
        let path = root.join(name);
        let manifest = format!(
            "[package]\nname = \"uses-{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
             [dependencies]\n{name} = {{ path = {path:?} }}\n"
        );
        write_if_new(&own.join("Cargo.toml"), &manifest);
        write_if_new(&own.join("src/main.rs"), program);
        write!(members, "{name:?}, ").unwrap();
    }
    let workspace = format!("[workspace]\nresolver = \"3\"\nmembers = [{members}]\n");
    write_if_new(&folder.join("Cargo.toml"), &workspace);
    // The versions that this workspace was tested with; all of them are there already.
    fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    for (name, _) in PROGRAMS {
        let output = Command::new(env!("CARGO"))
            .args(["run", "--quiet", "--offline", "--package"])
            .arg(format!("uses-{name}"))
            .current_dir(&folder)
            .env("CARGO_TARGET_DIR", folder.join("target"))
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {said}");
    }
}

/// An unchanged file keeps its time, so that a second run builds nothing.
fn write_if_new(path: &Path, text: &str) {
    if fs::read_to_string(path).is_ok_and(|old| old == text) {
        return;
    }
    fs::write(path, text).unwrap();
}
