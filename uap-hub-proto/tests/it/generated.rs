//! The .proto files keep their pattern, and the committed code is what they generate.

use std::{
    fs,
    path::{Path, PathBuf},
};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn proto_dir() -> PathBuf {
    Path::new(ROOT).join("proto")
}

/// Relative paths of all .proto files, sorted.
fn proto_files() -> Vec<String> {
    let mut files: Vec<_> = fs::read_dir(proto_dir().join("uap/v1"))
        .unwrap()
        .map(|entry| {
            format!(
                "uap/v1/{}",
                entry.unwrap().file_name().into_string().unwrap()
            )
        })
        .collect();
    files.sort();
    files
}

/// The one top-level item of a file, or why it breaks the 1-1-1 pattern.
fn single_item(name: &str, text: &str) -> Result<String, String> {
    let file = protox::file::File::from_source(name, text).map_err(|err| err.to_string())?;
    let file = file.file_descriptor_proto();
    if file.package() != "uap.v1" {
        return Err(format!("{name}: package is {:?}", file.package()));
    }
    let items: Vec<&str> = (file.message_type.iter().map(|m| m.name()))
        .chain(file.enum_type.iter().map(|e| e.name()))
        .chain(file.service.iter().map(|s| s.name()))
        .collect();
    match items.as_slice() {
        [one] if name == format!("uap/v1/{one}.proto") => Ok((*one).to_owned()),
        [one] => Err(format!("{name}: holds {one}")),
        many => Err(format!("{name}: {} top-level items", many.len())),
    }
}

fn generate() -> String {
    let fds = protox::compile(proto_files(), [proto_dir()]).unwrap();
    let out = tempfile::tempdir().unwrap();
    tonic_prost_build::configure()
        .bytes(".uap.v1.Attachment.data")
        .client_mod_attribute("uap.v1", "#[cfg(feature = \"client\")]")
        .server_mod_attribute("uap.v1", "#[cfg(feature = \"server\")]")
        .out_dir(out.path())
        .compile_fds(fds)
        .unwrap();
    fs::read_to_string(out.path().join("uap.v1.rs")).unwrap()
}

// spec: HUB-0-1
#[test]
fn every_proto_file_holds_one_item_named_like_the_file() {
    let files = proto_files();
    assert_eq!(files.len(), 31);
    for name in files {
        let text = fs::read_to_string(proto_dir().join(&name)).unwrap();
        single_item(&name, &text).unwrap();
    }
}

// spec: HUB-0-1
#[test]
fn a_file_with_two_items_is_found() {
    let head = "syntax = \"proto3\"; package uap.v1;";
    let check = |body: &str| single_item("uap/v1/A.proto", &format!("{head}{body}"));
    assert_eq!(check("message A {}"), Ok("A".to_owned()));
    assert!(check("message A {} message B {}").is_err());
    assert!(check("message A {} enum B { B_UNSPECIFIED = 0; }").is_err());
    assert!(check("message A {} service B {}").is_err());
    assert!(check("message B {}").is_err());
    assert!(
        single_item(
            "uap/v1/A.proto",
            "syntax = \"proto3\"; package uap.v2; message A {}"
        )
        .is_err()
    );
}

// spec: HUB-0-2
#[test]
fn committed_code_is_fresh() {
    let path = Path::new(ROOT).join("src/generated/uap.v1.rs");
    let fresh = generate();
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        fs::write(&path, &fresh).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == fresh,
        "stale: run the test again with UPDATE_GENERATED=1"
    );
}
