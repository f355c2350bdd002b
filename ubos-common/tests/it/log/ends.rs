//! What stands behind the last block: torn by a crash, or whole once and changed.

use super::{ID, config, segment};
use ubos_common::log::format::{BlockBuilder, Fault, Limits, LogKeys};
use ubos_common::log::{Digest, Log, OpenError, SimDisk, Verify};

/// A block of these records, and its digest.
fn block(first: u64, previous: Digest, durable: u64, records: &[&[u8]]) -> (Vec<u8>, Digest) {
    let mut block = BlockBuilder::new(LogKeys::new(ID), Limits::default());
    block.begin(first);
    for record in records {
        block.push(record).unwrap();
    }
    let digest = block.finish(previous, durable);
    (block.as_bytes().to_vec(), digest)
}

/// The first of many such blocks that ends as is asked for; its record begins with a number.
fn block_that(
    first: u64,
    previous: Digest,
    durable: u64,
    length: usize,
    is_wanted: impl Fn(&[u8]) -> bool,
) -> (Vec<u8>, Digest) {
    let made = (0_u32..100_000).map(|number| {
        let mut record = vec![7; length];
        record[..4].copy_from_slice(&number.to_le_bytes());
        block(first, previous, durable, &[&record])
    });
    made.into_iter()
        .find(|(bytes, _)| is_wanted(bytes))
        .expect("one in a few hundred does")
}

/// A log whose only segment holds these bytes behind its header.
fn log_of(bytes: &[u8]) -> SimDisk {
    let disk = SimDisk::new();
    Log::open_in(disk.dir(), config()).unwrap().close().unwrap();
    let mut file = disk.contents(&segment(0)).unwrap();
    file.truncate(128);
    file.extend_from_slice(bytes);
    disk.put(&segment(0), file);
    disk
}

/// Sequence behind the last record of a log that is sound but for a torn end; the fault of one that is damaged.
fn judged(bytes: &[u8]) -> Result<u64, Fault> {
    let verified = Verify::default().run(log_of(bytes).dir().as_ref());
    match Log::open_in(log_of(bytes).dir(), config()) {
        Ok(log) => {
            let next = log.head().next_sequence;
            assert_eq!(verified.unwrap().head.next_sequence, next);
            Ok(next)
        }
        Err(OpenError::Damaged(damage)) => {
            assert!(verified.is_err());
            Err(damage.fault)
        }
        Err(error) => panic!("{error}"),
    }
}

fn genesis() -> Digest {
    LogKeys::new(ID).genesis()
}

/// A later block proves that one before it had been synced, also where the last bytes of its digest are zero.
#[test]
fn a_later_block_proves_damage_though_its_digest_ends_in_zeroes() {
    let (first, digest) = block(0, genesis(), 0, &[b"first"]);
    let (mut second, digest) = block(1, digest, 1, &[&[5; 1_500]]);
    let at = 1_024 - 128 - first.len();
    second[at..at + 512].fill(0);
    for (zeroes, bytes_behind) in [(1, 0), (1, 1), (1, 3_000), (2, 0), (2, 3_000)] {
        let (third, _) = block_that(2, digest, 2, 40, |bytes| bytes.ends_with(&vec![0; zeroes]));
        let log = [&first[..], &second, &third, &vec![0; bytes_behind]].concat();
        assert_eq!(
            judged(&log),
            Err(Fault::Record { sequence: 1 }),
            "{zeroes} zeroes, {bytes_behind} bytes behind"
        );
    }
}

/// A sector that holds the end of one block and the beginning of the next is not all zero, and may be the one that a crash
/// left as it was.
#[test]
fn a_first_sector_that_was_not_written_is_torn_though_a_block_ends_in_it() {
    let (first, digest) = block(0, genesis(), 0, &[&[3; 200]]);
    let (second, _) = block(1, digest, 1, &[&[5; 1_500]]);
    let mut log = [&first[..], &second].concat();
    assert_eq!(judged(&log), Ok(2));
    let sector = 512 - 128;
    assert!(first.len() < sector);
    log[first.len()..sector].fill(0);
    assert_eq!(judged(&log), Ok(1));
}

/// A block whose digest holds was there in full: no crash made it what it is.
#[test]
fn a_block_that_was_sealed_is_never_torn() {
    let (mut bytes, _) = block(0, genesis(), 0, &[&[0; 2_000]]);
    // A length that leads beyond the body, under a digest that holds.
    bytes[72..76].copy_from_slice(&3_000_u32.to_le_bytes());
    let end = bytes.len() - 32;
    let whole = blake3::keyed_hash(&block_key(), &bytes[..end]);
    bytes[end..].copy_from_slice(whole.as_bytes());
    assert_eq!(judged(&bytes), Err(Fault::Record { sequence: 0 }));
}

fn block_key() -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("ubos-common 2026 log format 2: block");
    hasher.update(ID.as_bytes());
    *hasher.finalize().as_bytes()
}

/// A sector in which something is written was written: what is zero in it before that was zero or was changed.
#[test]
fn a_sector_that_holds_what_follows_was_written() {
    let (first, digest) = block(0, genesis(), 0, &[b"first"]);
    // The digest of the second begins in one sector and ends in the next.
    let length = 1_024 - 128 - first.len() - 72 - 20 - 12;
    let (mut second, digest) = block(1, digest, 1, &[&vec![5; length]]);
    let (third, _) = block(2, digest, 1, &[b"third"]);
    let end = second.len();
    second[end - 20..].fill(0);
    second[end - 25] ^= 1;
    let alone = [&first[..], &second, &[0; 600]].concat();
    assert_eq!(judged(&alone), Ok(1));
    let followed = [&first[..], &second, &third].concat();
    assert_eq!(
        judged(&followed),
        Err(Fault::BlockDigest { first: 1, end: 2 })
    );
}

/// 71 bytes are no header, whatever the one that is missing may be.
#[test]
fn a_header_of_which_a_byte_is_missing_says_nothing() {
    let (first, digest) = block(0, genesis(), 0, &[b"first"]);
    let (found, other) = (7..)
        .map(|sequence| (sequence, block(sequence, digest, 1, &[b"elsewhere"]).0))
        .find(|(_, bytes)| bytes[71] == 0)
        .unwrap();
    let log = [&first[..], &other[..71]].concat();
    assert_eq!(judged(&log), Ok(1));
    let log = [&first[..], &other[..72]].concat();
    let misplaced = Fault::Sequence { wanted: 1, found };
    assert_eq!(judged(&log), Err(misplaced));
}

/// Zeroes that a record holds were written: only where the damage is may a sector be missing.
#[test]
fn zeroes_beside_the_damage_are_no_missing_sector() {
    let (mut bytes, _) = block(0, genesis(), 0, &[&[5; 1_500], &[0; 2_000]]);
    bytes[100] ^= 1;
    assert_eq!(judged(&bytes), Err(Fault::Record { sequence: 0 }));
    let (first, digest) = block(0, genesis(), 0, &[&[3; 300]]);
    let (mut second, _) = block(1, digest, 1, &[&[0; 2_000]]);
    second[8] ^= 1;
    let log = [&first[..], &second].concat();
    assert_eq!(judged(&log), Err(Fault::BlockHeader { sequence: 1 }));
}

/// Nobody knows whether such a block was synced, and a record may hold what looks like its header.
#[test]
fn a_header_that_claims_more_than_the_file_has_proves_nothing() {
    let (first, digest) = block(0, genesis(), 0, &[&[3; 200]]);
    let (large, _) = block(7, digest, 7, &[&[5; 100_000]]);
    let record = [&[5; 1_000], &large[..72], &[5; 400]].concat();
    let (mut second, _) = block(1, digest, 1, &[&record]);
    second[..512 - 128 - first.len()].fill(0);
    assert_eq!(judged(&[first, second].concat()), Ok(1));
}
