//! The logs in `vectors/log`: what this crate writes, for readers in other languages.
//!
//! With `UBOS_WRITE_VECTORS` set they are written anew.

use std::fmt::Write as _;
use std::path::Path;

use super::{payload, segment};
use ubos_common::canon::Digest;
use ubos_common::log::{
    Config, Log, LogId, Reader, SimDisk, Verified, Verify, format::Limits, format::LogKeys,
};

const ID: LogId = LogId::from_bytes(*b"\x01\x23\x45\x67\x89\xab\xcd\xef-vectors");

fn config() -> Config {
    Config::default()
        .with_log_id(ID)
        .with_kind("vectors")
        .with_segment_bytes(2_000)
}

/// Three segments: single records, an empty one, a batch, records longer than a sector.
fn plain() -> SimDisk {
    let disk = SimDisk::new();
    let log = Log::open_in(disk.dir(), config()).unwrap();
    log.append(b"first").unwrap();
    log.append(b"").unwrap();
    let long = payload(3, 700);
    log.append_batch(&[b"second", &long, b"third"]).unwrap();
    for n in 0..4 {
        log.append(&payload(n, 600)).unwrap();
    }
    log.close().unwrap();
    disk
}

/// The last block was written in part.
fn torn() -> SimDisk {
    let disk = plain();
    let name = last(&disk);
    let bytes = trimmed(&disk, &name);
    disk.put(&name, bytes[..bytes.len() - 40].to_vec());
    disk
}

/// The first segment was archived.
fn archived() -> SimDisk {
    let disk = plain();
    disk.dir().remove(&segment(0)).unwrap();
    disk
}

/// A byte of the last segment was changed, and the log repaired: what was behind is in a file beside, and noted.
fn repaired() -> SimDisk {
    let disk = plain();
    let name = last(&disk);
    let mut bytes = trimmed(&disk, &name);
    bytes[300] ^= 1;
    disk.put(&name, bytes);
    Log::repair(disk.dir(), config()).unwrap();
    let log = Log::open_in(disk.dir(), config()).unwrap();
    log.append(b"behind the cut").unwrap();
    log.close().unwrap();
    disk
}

fn names(disk: &SimDisk) -> Vec<String> {
    let mut names = disk.dir().list().unwrap();
    names.sort();
    names
}

fn last(disk: &SimDisk) -> String {
    let segments = names(disk)
        .into_iter()
        .filter(|name| name.ends_with(".seg"));
    segments.max().unwrap()
}

/// A file without the zeroes at its end.
fn trimmed(disk: &SimDisk, name: &str) -> Vec<u8> {
    let mut bytes = disk.contents(name).unwrap();
    let end = bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |at| at + 1);
    bytes.truncate(end);
    bytes
}

/// What a reader finds in a log, as JSON.
fn found(name: &str, disk: &SimDisk) -> String {
    let proven: Verified = Verify::default().run(disk.dir().as_ref()).unwrap();
    let mut reader = Reader::open_in(disk.dir(), Limits::default());
    let mut records = String::new();
    while let Some(entry) = reader.next().unwrap() {
        let digest = Digest::of_bytes(entry.bytes);
        let sequence = entry.position.sequence;
        let length = entry.bytes.len();
        let comma = if records.is_empty() { "" } else { "," };
        write!(
            records,
            "{comma}\n      {{\"sequence\": {sequence}, \"length\": {length}, \"blake3\": \"{digest}\"}}"
        )
        .unwrap();
    }
    format!(
        "  \"{name}\": {{\n    \"first_sequence\": {},\n    \"segments\": {},\n    \"blocks\": {},\n    \"kind\": \"{}\",\n    \
         \"torn\": {},\n    \"cuts\": {},\n    \"head\": \"{}\",\n    \"records\": [{records}\n    ]\n  }}",
        proven.first_sequence,
        proven.segments,
        proven.blocks,
        proven.kind,
        proven.torn.is_some(),
        proven.cuts.len(),
        proven.head,
    )
}

#[test]
fn the_vectors_are_what_is_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors/log");
    let is_written = std::env::var_os("UBOS_WRITE_VECTORS").is_some();
    let logs = [
        ("plain", plain()),
        ("torn", torn()),
        ("archived", archived()),
        ("repaired", repaired()),
    ];
    let genesis = LogKeys::new(ID).genesis();
    let mut about = format!("{{\n  \"log_id\": \"{ID}\",\n  \"genesis\": \"{genesis}\"");
    for (name, disk) in &logs {
        about.push_str(",\n");
        about.push_str(&found(name, disk));
        let own = folder.join(name);
        for file in names(disk) {
            check(&own.join(&file), &trimmed(disk, &file), is_written);
        }
        let there = std::fs::read_dir(&own).unwrap().count();
        assert_eq!(there, names(disk).len(), "files of {name}");
    }
    about.push_str("\n}\n");
    check(&folder.join("expected.json"), about.as_bytes(), is_written);
}

fn check(path: &Path, bytes: &[u8], is_written: bool) {
    if is_written {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    let there = std::fs::read(path).unwrap();
    assert!(there == bytes, "{} differs", path.display());
}
