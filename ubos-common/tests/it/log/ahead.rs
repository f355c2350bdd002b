//! Proving a log that is too large for one piece: what is read ahead is what is there.

use super::{config, open, segment};
use ubos_common::log::format::Fault;
use ubos_common::log::{ReadError, SimDisk, Verify};

/// Commits of many sizes in one segment of 12 MB: small ones, one that ends at odd places, one over a piece,
/// one whose rest is more than the room before a piece.
fn large_log() -> SimDisk {
    let disk = SimDisk::new();
    let log = open(&disk, &config().with_segment_bytes(64 << 20));
    for n in 0..24_u8 {
        let size = match n % 6 {
            0 => 3_000_000,
            3 => 700_001,
            other => 20_000 + usize::from(other),
        };
        log.append(&vec![n; size]).unwrap();
    }
    log.close().unwrap();
    disk
}

#[test]
fn commits_over_many_pieces_are_proven() {
    let disk = large_log();
    let proven = Verify::default().run(disk.dir().as_ref()).unwrap();
    assert_eq!((proven.records, proven.blocks), (24, 24));
    assert_eq!(open(&disk, &config()).head(), proven.head);
}

/// Behind the first one, a piece and what is left of the one before it are less than a commit.
#[test]
fn commits_that_begin_before_a_piece_and_end_behind_it_are_proven() {
    let disk = SimDisk::new();
    let log = open(&disk, &config().with_segment_bytes(4 << 20));
    // The last one stands in another segment: in the last segment a block that does not hold is read once more.
    for n in 0..5 {
        log.append(&vec![n; 1_200_000]).unwrap();
    }
    log.close().unwrap();
    let proven = Verify::default().run(disk.dir().as_ref()).unwrap();
    assert_eq!((proven.segments, proven.records), (2, 5));
}

#[test]
fn a_changed_byte_in_any_piece_is_found_at_its_record() {
    let disk = large_log();
    let sound = disk.contents(&segment(0)).unwrap();
    let end = sound.iter().rposition(|byte| *byte != 0).unwrap();
    let mut found = Vec::new();
    for part in 1..10 {
        let mut bytes = sound.clone();
        bytes[end / 10 * part] ^= 1;
        disk.put(&segment(0), bytes);
        match Verify::default().run(disk.dir().as_ref()) {
            Err(ReadError::Damaged(damage)) => match damage.fault {
                Fault::Record { sequence, .. } => found.push(sequence),
                other => panic!("{other}"),
            },
            other => panic!("{other:?}"),
        }
    }
    assert!(
        found.is_sorted() && found.first() < found.last(),
        "{found:?}"
    );
}
