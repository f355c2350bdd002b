//! The logs in `vectors/log`: what this crate writes, for readers in other languages.
//!
//! With `UBOS_WRITE_VECTORS` set they are written anew.

use std::fmt::Write as _;
use std::path::Path;

use super::{payload, segment};
use ubos_common::canon::Digest;
use ubos_common::log::format::{BlockBuilder, Limits, LogKeys};
use ubos_common::log::{Config, Log, LogId, ReadError, Reader, SimDisk, Verified, Verify};

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
    trim(&disk);
    disk
}

/// The log with other bytes in its last segment, whose blocks begin at 128 and 852 and end at 1,576.
fn changed(change: impl FnOnce(&mut Vec<u8>)) -> SimDisk {
    let disk = plain();
    let name = last(&disk);
    let mut bytes = disk.contents(&name).unwrap();
    assert_eq!(bytes.len(), 1_576);
    change(&mut bytes);
    disk.put(&name, bytes);
    disk
}

/// The last block was written in part: the file ends inside it (rule 1 of section 8).
fn torn() -> SimDisk {
    changed(|bytes| bytes.truncate(bytes.len() - 40))
}

/// Of its digest the first half was written (rule 2).
fn torn_digest() -> SimDisk {
    changed(|bytes| {
        bytes[1_560..].fill(0);
        bytes.resize(2_000, 0);
    })
}

/// A sector of its record was not written (rule 3).
fn torn_sector() -> SimDisk {
    changed(|bytes| bytes[1_024..1_536].fill(0))
}

/// Its first sector was not written, in which the block before ends (rule 4).
fn torn_header() -> SimDisk {
    changed(|bytes| bytes[852..1_024].fill(0))
}

/// The segment was taken ahead.
fn ahead() -> SimDisk {
    changed(|bytes| bytes.resize(2_000, 0))
}

/// The last record was changed.
fn damaged_record() -> SimDisk {
    changed(|bytes| bytes[1_000] ^= 1)
}

/// A sector of its record is zero, and a block behind says that it had been synced; the digest of that one ends in a zero.
fn damaged_synced() -> SimDisk {
    changed(|bytes| {
        let previous = digest_at_the_end_of(bytes);
        let later = (0_u32..100_000)
            .map(|number| block(9, previous, 9, &number.to_le_bytes()))
            .find(|block| block.ends_with(&[0]))
            .unwrap();
        bytes[1_024..1_536].fill(0);
        bytes.extend_from_slice(&later);
        bytes.resize(2_000, 0);
    })
}

/// A block that does not follow stands behind the last one.
fn damaged_place() -> SimDisk {
    changed(|bytes| {
        let previous = digest_at_the_end_of(bytes);
        bytes.extend_from_slice(&block(11, previous, 9, b"eleventh"));
    })
}

/// Bytes follow the last block of a segment that another follows.
fn damaged_sealed() -> SimDisk {
    let disk = plain();
    let mut bytes = disk.contents(&segment(0)).unwrap();
    bytes.extend_from_slice(b"x");
    disk.put(&segment(0), bytes);
    disk
}

fn digest_at_the_end_of(bytes: &[u8]) -> Digest {
    Digest::from_bytes(*bytes.last_chunk().unwrap())
}

fn block(first: u64, previous: Digest, durable: u64, record: &[u8]) -> Vec<u8> {
    let mut block = BlockBuilder::new(LogKeys::new(ID), Limits::default());
    block.begin(first);
    block.push(record).unwrap();
    block.finish(previous, durable);
    block.as_bytes().to_vec()
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
    let mut bytes = disk.contents(&name).unwrap();
    bytes[300] ^= 1;
    disk.put(&name, bytes);
    Log::repair(disk.dir(), config()).unwrap();
    let log = Log::open_in(disk.dir(), config()).unwrap();
    log.append(b"behind the cut").unwrap();
    log.close().unwrap();
    trim(&disk);
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

/// Takes the zeroes at their ends from all files: a log takes space ahead.
fn trim(disk: &SimDisk) {
    for name in names(disk) {
        let mut bytes = disk.contents(&name).unwrap();
        let end = bytes.iter().rposition(|byte| *byte != 0);
        bytes.truncate(end.map_or(0, |at| at + 1));
        disk.put(&name, bytes);
    }
}

/// What a reader finds in a log, as JSON.
fn found(name: &str, disk: &SimDisk) -> String {
    let proven: Verified = match Verify::default().run(disk.dir().as_ref()) {
        Ok(proven) => proven,
        Err(ReadError::Damaged(damage)) => {
            let (segment, offset) = (damage.segment, damage.offset);
            let sequence = damage.fault.sequence().unwrap();
            return format!(
                "  \"{name}\": {{\n    \"damage\": {{\"segment\": {segment}, \"offset\": {offset}, \"sequence\": {sequence}}}\n  }}"
            );
        }
        Err(error) => panic!("{error}"),
    };
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
        ("ahead", ahead()),
        ("torn-digest", torn_digest()),
        ("torn-sector", torn_sector()),
        ("torn-header", torn_header()),
        ("damaged-record", damaged_record()),
        ("damaged-synced", damaged_synced()),
        ("damaged-place", damaged_place()),
        ("damaged-sealed", damaged_sealed()),
    ];
    let genesis = LogKeys::new(ID).genesis();
    let mut about = format!("{{\n  \"log_id\": \"{ID}\",\n  \"genesis\": \"{genesis}\"");
    for (name, disk) in &logs {
        about.push_str(",\n");
        about.push_str(&found(name, disk));
        let own = folder.join(name);
        for file in names(disk) {
            let bytes = disk.contents(&file).unwrap();
            check(&own.join(&file), &bytes, is_written);
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
