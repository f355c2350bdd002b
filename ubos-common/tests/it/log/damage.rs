//! Whatever is changed on the disk is found and named, and nothing makes the log panic.

use super::{ID, config, open, payload, read_all, segment};
use proptest::prelude::*;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use ubos_common::log::format::{BlockBuilder, Fault, Limits, LogKeys, SEGMENT_HEADER_BYTES};
use ubos_common::log::{
    Digest, DirLock, FsDir, Head, Log, LogDir, LogFile, OpenError, ReadError, Reader, SimDisk,
    Sync, Verify,
};

/// Three segments of two blocks with two records each, closed; their bytes.
fn small_log() -> (SimDisk, Vec<Vec<u8>>, Head) {
    let disk = SimDisk::new();
    let log = open(&disk, &config().with_segment_bytes(500));
    for n in 0..6 {
        log.append_batch(&[&payload(2 * n, 45), &payload(2 * n + 1, 60)])
            .unwrap();
    }
    let head = log.close().unwrap();
    let files = (0..)
        .map_while(|index| disk.contents(&segment(index)))
        .collect::<Vec<_>>();
    assert_eq!(files.len(), 3);
    (disk, files, head)
}

fn fault(answer: Result<impl Sized, ReadError>) -> Fault {
    match answer {
        Err(ReadError::Damaged(damage)) => damage.fault,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("damage was not found"),
    }
}

fn open_fault(disk: &SimDisk) -> Fault {
    match Log::open_in(disk.dir(), config()) {
        Err(OpenError::Damaged(damage)) => damage.fault,
        other => panic!("{other:?}"),
    }
}

fn with_file(index: u64, bytes: Vec<u8>, others: &[Vec<u8>]) -> SimDisk {
    let disk = SimDisk::new();
    for (at, other) in (0..).zip(others) {
        disk.put(
            &segment(at),
            if at == index {
                bytes.clone()
            } else {
                other.clone()
            },
        );
    }
    disk
}

// spec: SAP-11-3
#[test]
fn every_flipped_bit_is_found_and_named() {
    let (_, files, _) = small_log();
    for (index, file) in (0..).zip(&files) {
        for bit in 0..file.len() * 8 {
            let mut bytes = file.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let disk = with_file(index, bytes.clone(), &files);
            fault(Verify::default().run(disk.dir().as_ref()));
            let report = Verify::default().fsck(disk.dir().as_ref()).unwrap();
            assert!(!report.findings.is_empty(), "segment {index} bit {bit}");
            if index == 2 {
                open_fault(&disk);
                assert_eq!(
                    disk.contents(&segment(2)).unwrap(),
                    bytes,
                    "opening changed a damaged file"
                );
            }
        }
    }
}

#[test]
fn the_first_bad_record_is_named_and_the_rest_survives() {
    let (_, files, head) = small_log();
    let mut bytes = files[1].clone();
    let at = bytes
        .windows(60)
        .position(|window| window == payload(5, 60))
        .unwrap();
    bytes[at + 20] ^= 4;
    let disk = with_file(1, bytes, &files);
    assert_eq!(
        fault(Verify::default().run(disk.dir().as_ref())),
        Fault::Record { sequence: 5 }
    );
    let report = Verify::default()
        .kept(head)
        .fsck(disk.dir().as_ref())
        .unwrap();
    let finding = report.findings[0];
    assert_eq!(
        (report.findings.len(), finding.lost_from, finding.lost_to),
        (1, 5, Some(6))
    );
    assert_eq!((report.verified.records, report.verified.head), (10, head));
}

// spec: SAP-11-3
#[test]
fn a_cut_end_is_torn_and_a_changed_end_is_damage() {
    let (_, files, head) = small_log();
    let last = &files[2];
    let whole = read_all(with_file(2, last.clone(), &files).dir()).len() as u64;
    for length in 0..last.len() {
        let disk = with_file(2, last[..length].to_vec(), &files);
        let kept = fault(Verify::default().kept(head).run(disk.dir().as_ref()));
        if length < SEGMENT_HEADER_BYTES {
            assert_eq!(
                (kept, open_fault(&disk)),
                (Fault::SegmentHeader, Fault::SegmentHeader)
            );
            continue;
        }
        let log = open(&disk, &config());
        let found = log.head().next_sequence;
        assert_eq!(
            (kept, kept.sequence()),
            (
                Fault::TailRemoved {
                    wanted: whole,
                    found
                },
                Some(found)
            )
        );
        let torn = log.report().torn.map_or(0, |torn| torn.bytes);
        assert!(found < whole && found.is_multiple_of(2));
        assert!(torn > 0 || read_all(disk.dir()).len() as u64 == found);
        let end = log.close().unwrap();
        assert_eq!(
            Verify::default()
                .kept(end)
                .run(disk.dir().as_ref())
                .unwrap()
                .torn,
            None
        );
    }
}

#[test]
fn a_proof_needs_what_has_its_first_record_and_nothing_before() {
    let (_, files, _) = small_log();
    // In the header, and in a block.
    for at in [20, SEGMENT_HEADER_BYTES + 80] {
        let mut bytes = files[0].clone();
        bytes[at] ^= 1;
        let disk = with_file(0, bytes, &files);
        let from = |sequence| Verify::default().from(sequence).run(disk.dir().as_ref());
        // The second segment begins with record 4.
        let proven = from(4).unwrap();
        assert_eq!((proven.first_sequence, proven.records), (4, 8));
        fault(from(3));
    }
}

#[test]
fn a_reader_needs_no_segment_before_the_one_it_begins_with() {
    let (_, files, _) = small_log();
    let mut bytes = files[0].clone();
    bytes[SEGMENT_HEADER_BYTES + 80] ^= 1;
    let disk = with_file(0, bytes, &files);
    let mut reader = Reader::open_in(disk.dir(), Limits::default());
    // The second segment begins with record 4.
    reader.seek(4);
    assert_eq!(reader.next().unwrap().unwrap().position.sequence, 4);
}

#[test]
fn removed_doubled_and_swapped_segments_are_found() {
    let (_, files, _) = small_log();
    let disk = SimDisk::new();
    disk.put(&segment(0), files[0].clone());
    disk.put(&segment(2), files[2].clone());
    let missing = Fault::MissingSegment { index: 1 };
    assert_eq!(
        (
            fault(Verify::default().run(disk.dir().as_ref())),
            open_fault(&disk)
        ),
        (missing, missing)
    );
    // Its header says where the last segment begins, though no block is in it.
    for length in [files[2].len(), SEGMENT_HEADER_BYTES] {
        disk.put(&segment(2), files[2][..length].to_vec());
        let report = Verify::default().fsck(disk.dir().as_ref()).unwrap();
        let hole = report.findings[0];
        assert_eq!((hole.lost_from, hole.lost_to), (4, Some(8)));
        assert!(report.verified.head.next_sequence >= 8);
    }
    let disk = with_file(1, files[2].clone(), &files);
    assert_eq!(
        fault(Verify::default().run(disk.dir().as_ref())),
        Fault::WrongSegment {
            wanted: 1,
            found: 2
        }
    );
    let disk = with_file(0, b"#!/bin/sh\n".repeat(100), &files);
    assert_eq!(
        fault(Verify::default().run(disk.dir().as_ref())),
        Fault::Foreign
    );
}

#[test]
fn bytes_put_in_before_a_block_lose_no_record() {
    let (_, files, head) = small_log();
    let (header, blocks) = files[1].split_at(SEGMENT_HEADER_BYTES);
    let disk = with_file(1, [header, &[7; 100], blocks].concat(), &files);
    let report = Verify::default().fsck(disk.dir().as_ref()).unwrap();
    let found: Vec<_> = report
        .findings
        .iter()
        .map(|it| (it.lost_from, it.lost_to))
        .collect();
    assert_eq!(found, [(4, Some(4))]);
    assert_eq!((report.verified.records, report.verified.head), (12, head));
}

#[test]
fn a_reader_passes_over_zeroes_behind_the_last_block_and_over_nothing_else() {
    let (_, files, _) = small_log();
    let read = |behind: &[u8]| {
        let disk = with_file(0, [&files[0][..], behind].concat(), &files);
        let mut reader = Reader::open_in(disk.dir(), Limits::default());
        reader.seek(3);
        reader.next().unwrap().unwrap();
        reader
            .next()
            .map(|entry| entry.map(|it| it.position.sequence))
    };
    // Less than a header, and more.
    for length in [1, 71, 72, 600] {
        assert_eq!(read(&vec![0; length]).unwrap(), Some(4));
        fault(read(&vec![7; length]));
    }
}

/// A block of records 0 and 1 as somebody forges it who knows the format.
fn forged(previous: Digest, second: &[u8]) -> Vec<u8> {
    let mut block = BlockBuilder::new(LogKeys::new(ID), Limits::default());
    block.begin(0);
    block.push(&payload(0, 45)).unwrap();
    block.push(second).unwrap();
    block.finish(previous, 0);
    block.as_bytes().to_vec()
}

// spec: SAP-11-3
#[test]
fn a_forged_block_breaks_the_chain_behind_it() {
    let (_, files, head) = small_log();
    let block = forged(LogKeys::new(ID).genesis(), &payload(99, 60));
    let mut bytes = files[0].clone();
    bytes[SEGMENT_HEADER_BYTES..SEGMENT_HEADER_BYTES + block.len()].copy_from_slice(&block);
    let disk = with_file(0, bytes.clone(), &files);
    assert_eq!(
        fault(Verify::default().run(disk.dir().as_ref())),
        Fault::Chain { sequence: 2 }
    );
    bytes.truncate(SEGMENT_HEADER_BYTES + block.len());
    let disk = SimDisk::new();
    disk.put(&segment(0), bytes);
    // The whole end forged: only what was kept elsewhere tells.
    let forged = Verify::default().run(disk.dir().as_ref()).unwrap().head;
    let found = fault(Verify::default().kept(head).run(disk.dir().as_ref()));
    assert_eq!(
        found,
        Fault::TailRemoved {
            wanted: 12,
            found: 2
        }
    );
    let mut kept = forged;
    kept.digest = head.digest;
    assert_eq!(
        fault(Verify::default().kept(kept).run(disk.dir().as_ref())),
        Fault::Head { sequence: 2 }
    );
    kept.next_sequence = 1;
    assert_eq!(
        fault(Verify::default().kept(kept).run(disk.dir().as_ref())),
        Fault::Head { sequence: 1 }
    );
}

#[test]
fn a_hole_in_synced_blocks_is_damage_though_it_looks_torn() {
    let disk = SimDisk::new();
    let log = open(&disk, &config());
    for n in 0..8 {
        log.append(&payload(n, 900)).unwrap();
    }
    std::mem::forget(log);
    let mut bytes = disk.contents(&segment(0)).unwrap();
    bytes[2048..2560].fill(0);
    disk.restart(0);
    disk.put(&segment(0), bytes);
    assert_eq!(open_fault(&disk), Fault::Record { sequence: 1 });
}

/// What proved the first one damaged stands right behind the second, and proves that, too.
#[test]
fn one_later_block_proves_two_before_it_damaged() {
    let disk = SimDisk::new();
    let log = open(&disk, &config().with_sync(Sync::None));
    let ends: Vec<usize> = (0..4)
        .map(|n| {
            if n == 3 {
                log.sync().unwrap();
            }
            log.append(&payload(n, 1_200)).unwrap();
            let bytes = disk.contents(&segment(0)).unwrap();
            bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1
        })
        .collect();
    std::mem::forget(log);
    let mut bytes = disk.contents(&segment(0)).unwrap();
    bytes[ends[0] - 100] ^= 1;
    let sector = (ends[1] + 100).next_multiple_of(512);
    assert!(sector + 512 < ends[2]);
    bytes[sector..sector + 512].fill(0);
    let disk = with_file(0, bytes, &[Vec::new()]);
    let report = Verify::default().fsck(disk.dir().as_ref()).unwrap();
    let found: Vec<_> = (report.findings.iter())
        .map(|finding| (finding.lost_from, finding.lost_to))
        .collect();
    assert_eq!(found, [(0, Some(1)), (2, Some(3))]);
    assert_eq!(report.verified.torn, None);
}

/// A record may hold what somebody took for the next block of this log.
#[test]
fn a_block_inside_a_record_that_was_read_is_none_to_go_on_with() {
    let mut false_block = BlockBuilder::new(LogKeys::new(ID), Limits::default());
    false_block.begin(1_000);
    false_block.push(&payload(7, 40)).unwrap();
    false_block.finish(LogKeys::new(ID).genesis(), 0);
    let disk = SimDisk::new();
    let log = open(&disk, &config());
    let records = [
        payload(0, 40),
        payload(1, 40),
        false_block.as_bytes().to_vec(),
        payload(3, 40),
        payload(4, 40),
    ];
    let ends = records.map(|record| {
        log.append(&record).unwrap();
        let bytes = disk.contents(&segment(0)).unwrap();
        bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1
    });
    log.close().unwrap();
    let mut bytes = disk.contents(&segment(0)).unwrap();
    for damaged in [ends[0], ends[3]] {
        bytes[damaged - 50] ^= 1;
    }
    let disk = with_file(0, bytes, &[Vec::new()]);
    let report = Verify::default().fsck(disk.dir().as_ref()).unwrap();
    let found: Vec<_> = (report.findings.iter())
        .map(|finding| (finding.lost_from, finding.lost_to))
        .collect();
    assert_eq!(found, [(0, Some(1)), (3, Some(4))]);
    assert_eq!(report.verified.records, 3);
}

#[test]
fn a_whole_header_of_no_block_is_damage() {
    let (disk, files, _) = small_log();
    let data = files[2].iter().rposition(|byte| *byte != 0).unwrap() + 1;
    // The zeroes of the next sector are none of the header's.
    for (length, behind, is_torn) in [(71, 0, true), (72, 0, false), (72, 1_024, false)] {
        let mut bytes = files[2].clone();
        bytes.truncate(data);
        bytes.resize(data + length, 0xAA);
        bytes.resize(data + length + behind, 0);
        disk.put(&segment(2), bytes);
        let opened = Log::open_in(disk.dir(), config());
        assert_eq!(opened.is_ok(), is_torn, "{length} bytes before {behind}");
    }
}

#[test]
fn a_digest_of_which_a_sector_was_not_written_is_torn() {
    let disk = SimDisk::new();
    let log = open(&disk, &config());
    // Of zeroes, so that the sector is missing to the digest alone.
    log.append(&[0; 788]).unwrap();
    log.close().unwrap();
    let mut bytes = disk.contents(&segment(0)).unwrap();
    assert!(bytes[1_024..1_040].iter().any(|byte| *byte != 0));
    bytes[512..1_024].fill(0);
    disk.put(&segment(0), bytes);
    let log = open(&disk, &config());
    assert_eq!(log.head().next_sequence, 0);
    assert!(log.report().torn.is_some());
}

/// It claims more than the file has, so it proves nothing of what is before it.
#[test]
fn a_header_alone_does_not_prove_a_torn_block_damaged() {
    let disk = SimDisk::new();
    let log = open(&disk, &config().with_segment_bytes(4 << 20));
    let ends = [30_000, 900].map(|length| {
        log.append(&payload(length, length as usize)).unwrap();
        let bytes = disk.contents(&segment(0)).unwrap();
        bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1
    });
    log.close().unwrap();
    let mut later = BlockBuilder::new(LogKeys::new(ID), Limits::default());
    later.begin(2);
    later.push(&payload(2, 20_000)).unwrap();
    later.finish(LogKeys::new(ID).genesis(), 2);
    let mut bytes = disk.contents(&segment(0)).unwrap();
    bytes.truncate(ends[1]);
    let sector = ends[0] / 512 * 512;
    bytes[ends[0]..sector + 512].fill(0);
    bytes.extend(&later.as_bytes()[..200]);
    disk.put(&segment(0), bytes);
    let log = open(&disk, &config());
    assert_eq!(log.head().next_sequence, 1);
    assert!(log.report().torn.is_some());
}

#[test]
fn a_block_behind_a_large_gap_is_found_wherever_a_reading_ends() {
    // The lost block is longer than what is read at once; the next one begins at any place around the end of a
    // reading.
    for length in (256 << 10) - 120..(256 << 10) + 20 {
        let disk = SimDisk::new();
        let log = open(&disk, &config().with_segment_bytes(4 << 20));
        for record in [payload(0, 40), payload(1, length), payload(2, 40)] {
            log.append(&record).unwrap();
        }
        log.close().unwrap();
        let mut bytes = disk.contents(&segment(0)).unwrap();
        let lost = SEGMENT_HEADER_BYTES + 72 + 20 + 40 + 32;
        bytes[lost + 8] ^= 1;
        disk.put(&segment(0), bytes);
        let report = Verify::default().fsck(disk.dir().as_ref()).unwrap();
        let found = report.findings.first().map(|it| (it.lost_from, it.lost_to));
        assert_eq!(found, Some((1, Some(2))), "a record of {length} bytes");
        assert_eq!(report.verified.records, 2, "a record of {length} bytes");
    }
}

#[test]
fn readers_are_told_of_damage_in_the_last_segment() {
    let (disk, files, _) = small_log();
    let mut bytes = files[2].clone();
    bytes[SEGMENT_HEADER_BYTES + 80] ^= 1;
    let log = open(&disk, &config());
    let outside = Reader::open_in(disk.dir(), Limits::default());
    for mut reader in [outside, log.reader()] {
        disk.put(&segment(2), bytes.clone());
        reader.seek(8);
        assert_eq!(
            fault(reader.next().map(drop)),
            Fault::Record { sequence: 8 }
        );
        // It stays where it is, and looks again.
        let file = disk.dir().open(&segment(2), true).unwrap();
        file.write_at(&files[2], 0).unwrap();
        assert_eq!(reader.next().unwrap().unwrap().position.sequence, 8);
    }
    // The writer knows that it wrote the last block; who looks from outside sees a log that ends before.
    let mut bytes = files[2].clone();
    // Both blocks of the segment have one length.
    bytes.truncate(SEGMENT_HEADER_BYTES + (bytes.len() - SEGMENT_HEADER_BYTES) / 2);
    disk.put(&segment(2), bytes);
    let mut outside = Reader::open_in(disk.dir(), Limits::default());
    outside.seek(10);
    assert!(outside.next().unwrap().is_none());
    let mut inside = log.reader();
    inside.seek(10);
    assert_eq!(
        fault(inside.next().map(drop)),
        Fault::CutShort { sequence: 10 }
    );
}

#[test]
fn readers_do_not_go_on_in_a_segment_of_another_life() {
    let (disk, ..) = small_log();
    // The same log, begun again with other records, up to the same numbers.
    let other = SimDisk::new();
    let log = open(&other, &config().with_segment_bytes(500));
    for n in 0..6 {
        log.append_batch(&[&payload(n, 45), &payload(n, 60)])
            .unwrap();
    }
    log.close().unwrap();
    disk.put(&segment(1), other.contents(&segment(1)).unwrap());
    let chain = |sequence| Fault::Chain { sequence };
    assert_eq!(fault(Verify::default().run(disk.dir().as_ref())), chain(4));
    let report = Verify::default().fsck(disk.dir().as_ref()).unwrap();
    let faults: Vec<_> = report.findings.iter().map(|it| it.damage.fault).collect();
    assert_eq!(faults, [chain(4), chain(8)]);
    let mut reader = Reader::open_in(disk.dir(), Limits::default());
    for _ in 0..4 {
        assert!(reader.next().unwrap().is_some());
    }
    assert_eq!(fault(reader.next().map(drop)), chain(4));
}

#[test]
fn a_head_of_another_log_proves_nothing() {
    let (disk, _, mut head) = small_log();
    head.log = ubos_common::log::LogId::from_bytes([1; 16]);
    assert!(matches!(
        fault(Verify::default().kept(head).run(disk.dir().as_ref())),
        Fault::WrongLog { .. }
    ));
}

proptest! {
    #[test]
    fn any_bytes_are_refused_or_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000), keep in 0_usize..700) {
        let (_, files, _) = small_log();
        let mut mixed = files[2].get(..keep).unwrap_or(&files[2]).to_vec();
        mixed.extend(&bytes);
        for file in [bytes, mixed] {
            let disk = with_file(2, file, &files);
            let report = Verify::default().fsck(disk.dir().as_ref());
            prop_assert!(report.is_ok());
            let _ = Log::open_in(disk.dir(), config());
            let alone = SimDisk::new();
            alone.put(&segment(0), disk.contents(&segment(2)).unwrap());
            prop_assert!(Verify::default().run(alone.dir().as_ref()).is_err());
        }
    }

    #[test]
    fn any_overwriting_is_found(at in 0_usize..1500, with in prop::collection::vec(any::<u8>(), 1..300)) {
        let (_, files, head) = small_log();
        let mut all = files.concat();
        let at = at % all.len();
        let end = all.len().min(at + with.len());
        let before = all.clone();
        all[at..end].copy_from_slice(&with[..end - at]);
        prop_assume!(all != before);
        let mut rest = all.as_slice();
        let disk = SimDisk::new();
        for (index, file) in (0..).zip(&files) {
            let (bytes, after) = rest.split_at(file.len());
            disk.put(&segment(index), bytes.to_vec());
            rest = after;
        }
        prop_assert!(Verify::default().kept(head).run(disk.dir().as_ref()).is_err());
    }
}

/// A folder that counts the bytes that are read of its files. A signal interrupts the first reading.
#[derive(Debug)]
struct Counting(Arc<dyn LogDir>, Arc<AtomicU64>);

#[derive(Debug)]
struct CountingFile(Arc<dyn LogFile>, Arc<AtomicU64>);

impl LogDir for Counting {
    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }
    fn create(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        self.0.create(name)
    }
    fn open(&self, name: &str, write: bool) -> io::Result<Arc<dyn LogFile>> {
        let file = self.0.open(name, write)?;
        Ok(Arc::new(CountingFile(file, Arc::clone(&self.1))))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }
    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
    fn lock(&self) -> io::Result<Option<DirLock>> {
        self.0.lock()
    }
}

impl LogFile for CountingFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if self.1.fetch_add(1, Ordering::Relaxed) == 0 {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let read = self.0.read_at(buffer, offset)?;
        self.1.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_at(bytes, offset)
    }
    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }
    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.0.allocate(bytes)
    }
}

/// What `act` reads of a log of one segment, as a multiple of the segment's length.
fn readings(bytes: &[u8], act: impl FnOnce(Arc<dyn LogDir>)) -> u64 {
    let disk = SimDisk::new();
    disk.put(&segment(0), bytes.to_vec());
    let read = Arc::new(AtomicU64::new(0));
    act(Arc::new(Counting(disk.dir(), Arc::clone(&read))));
    read.load(Ordering::Relaxed).div_ceil(bytes.len() as u64)
}

#[test]
fn a_reading_that_is_interrupted_is_done_again() {
    let (disk, ..) = small_log();
    let counting = Counting(disk.dir(), Arc::default());
    assert_eq!(read_all(Arc::new(counting)).len(), 12);
}

#[test]
fn a_proof_ends_at_the_first_damage() {
    let (_, mut files, _) = small_log();
    files[0][SEGMENT_HEADER_BYTES + 80] ^= 1;
    let folder = tempfile::tempdir().unwrap();
    for (index, file) in (0..2).zip(&files) {
        std::fs::write(folder.path().join(segment(index)), file).unwrap();
    }
    // It cannot be read, and need not be.
    std::fs::create_dir(folder.path().join(segment(2))).unwrap();
    let dir = FsDir::new(folder.path());
    assert_eq!(
        fault(Verify::default().run(&dir)),
        Fault::Record { sequence: 0 }
    );
}

#[test]
fn a_damaged_log_is_read_a_bounded_number_of_times() {
    let disk = SimDisk::new();
    let log = open(
        &disk,
        &config().with_segment_bytes(64 << 20).with_sync(Sync::None),
    );
    let mut lie = forged(LogKeys::new(ID).genesis(), &payload(1, 4000));
    lie.truncate(72);
    for n in 0..5000 {
        // Most records are headers of blocks that are not there.
        let record = if n % 50 == 0 {
            lie.repeat(40)
        } else {
            payload(n, 60)
        };
        log.append(&record).unwrap();
    }
    log.close().unwrap();
    let sound = disk.contents(&segment(0)).unwrap();
    let opened = |bytes: &[u8]| readings(bytes, |dir| drop(Log::open_in(dir, config())));
    let checked = |bytes: &[u8]| {
        readings(bytes, |dir| {
            drop(Verify::default().fsck(dir.as_ref()).unwrap())
        })
    };
    // Damage near the start, and everywhere.
    let mut near = sound.clone();
    near[SEGMENT_HEADER_BYTES + 200] ^= 1;
    let mut torn = sound.clone();
    torn[SEGMENT_HEADER_BYTES..4096].fill(0);
    let mut everywhere = sound;
    for at in (SEGMENT_HEADER_BYTES + 100..everywhere.len()).step_by(700) {
        everywhere[at] ^= 1;
    }
    for bytes in [&near, &torn, &everywhere] {
        assert!(opened(bytes) <= 12, "opened: {} times", opened(bytes));
        assert!(checked(bytes) <= 12, "checked: {} times", checked(bytes));
    }
}

#[test]
fn the_last_record_costs_one_segment_however_long_the_log_is() {
    let disk = SimDisk::new();
    let log = open(&disk, &config().with_segment_bytes(20_000));
    for n in 0..1000 {
        log.append(&payload(n, 300)).unwrap();
    }
    log.close().unwrap();
    let read = Arc::new(AtomicU64::new(0));
    let counting = Arc::new(Counting(disk.dir(), Arc::clone(&read)));
    let mut reader = Reader::open_in(counting, Limits::default());
    assert!(reader.seek_last().unwrap());
    assert_eq!(reader.next().unwrap().unwrap().position.sequence, 999);
    // The headers of segments that a search by halves opens, and the last segment, for the reader and the record.
    let bytes = read.load(Ordering::Relaxed);
    assert!(bytes < 60_000, "{bytes} bytes of 400,000");
}

/// The block before it was taken out: what is left of the last one says that a block is missing, however it ends.
#[test]
fn a_torn_block_at_another_place_is_damage() {
    let disk = SimDisk::new();
    let log = open(&disk, &config());
    let ends: Vec<usize> = (0..3)
        .map(|n| {
            log.append(&payload(n, 600)).unwrap();
            let bytes = disk.contents(&segment(0)).unwrap();
            bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1
        })
        .collect();
    log.close().unwrap();
    let mut bytes = disk.contents(&segment(0)).unwrap();
    bytes.truncate(ends[2] - 100);
    bytes.drain(ends[0]..ends[1]);
    disk.put(&segment(0), bytes);
    let found = Verify::default().run(disk.dir().as_ref()).unwrap_err();
    assert!(found.to_string().contains("1"), "{found}");
    let refused = Log::open_in(disk.dir(), config()).unwrap_err();
    assert!(matches!(refused, OpenError::Damaged(_)), "{refused}");
}
