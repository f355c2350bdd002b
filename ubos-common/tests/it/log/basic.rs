//! Appending, reading, rotating, archiving.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::{ID, config, drain, open, payload, read_all, segment};
use ubos_common::log::format::{EncodeError, Limits};
use ubos_common::log::{
    AppendError, ArchiveError, Config, Digest, FsDir, Head, HeadError, Log, LogDir as _, LogId,
    OpenError, Position, ReadError, Reader, SimDisk, SimFault, Sync, Verify,
};

#[test]
fn records_come_back_in_order_and_by_position() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::open(folder.path(), config()).unwrap();
    let lengths = [0, 1, 500, 5000, 100_000];
    let positions: Vec<_> = (0..)
        .zip(lengths)
        .map(|(n, len)| log.append(&payload(n, len)).unwrap())
        .collect();
    let mut reader = log.reader();
    let expected: Vec<_> = (0..)
        .zip(lengths)
        .map(|(n, len)| (n, payload(n, len)))
        .collect();
    assert_eq!(drain(&mut reader), expected);
    for (position, (n, bytes)) in positions.iter().zip(&expected) {
        assert_eq!(
            (position.sequence, reader.read(*position).unwrap()),
            (*n, bytes.clone())
        );
    }
    let head = log.close().unwrap();
    let reopened = Log::open(folder.path(), Config::default()).unwrap();
    assert_eq!(
        (
            reopened.head(),
            reopened.report().torn,
            reopened.report().created
        ),
        (head, None, false)
    );
    assert_eq!(drain(&mut Reader::open(folder.path())), expected);
}

#[test]
fn a_reader_goes_on_where_it_stopped() {
    let disk = SimDisk::new();
    let log = open(&disk, &config().with_segment_bytes(2000));
    let mut inside = log.reader();
    let mut outside = Reader::open_in(disk.dir(), Limits::default());
    for n in 0..50 {
        assert!(inside.next().unwrap().is_none());
        assert!(outside.next().unwrap().is_none());
        log.append(&payload(n, 300)).unwrap();
        assert_eq!(drain(&mut inside), [(n, payload(n, 300))]);
        assert_eq!(drain(&mut outside), [(n, payload(n, 300))]);
    }
    for n in [0, 7, 49] {
        inside.seek(n);
        assert_eq!(inside.next().unwrap().unwrap().position.sequence, n);
        assert_eq!(drain(&mut inside).len() as u64, 49 - n);
    }
    for reader in [&mut inside, &mut outside] {
        assert!(reader.seek_last().unwrap());
        assert_eq!(drain(reader), [(49, payload(49, 300))]);
    }
    inside.seek(52);
    for n in 50..54 {
        log.append(&payload(n, 3)).unwrap();
    }
    assert_eq!(drain(&mut inside).first().unwrap().0, 52);
}

#[test]
fn the_last_record_is_found_wherever_it_lies() {
    let disk = SimDisk::new();
    let log = open(&disk, &config().with_segment_bytes(2000));
    let mut reader = Reader::open_in(disk.dir(), Limits::default());
    assert!(!reader.seek_last().unwrap());
    assert!(reader.next().unwrap().is_none());
    for n in 0..40 {
        log.append(&payload(n, 700)).unwrap();
        assert!(reader.seek_last().unwrap());
        assert_eq!(drain(&mut reader), [(n, payload(n, 700))]);
    }
}

#[test]
fn a_position_that_is_not_a_records_is_refused() {
    let disk = SimDisk::new();
    let log = open(&disk, &config());
    let position = log.append(&payload(0, 40)).unwrap();
    let ticket = log.submit(&payload(1, 40)).unwrap();
    let mut reader = log.reader();
    let uncommitted = Position::new(1, 0, position.offset + 60);
    let wrong = [
        Position::new(1, 0, position.offset),
        Position::new(0, 0, position.offset + 1),
        Position::new(0, 0, 3),
        Position::new(0, 9, position.offset),
        Position::new(0, 0, u64::MAX - 3),
        uncommitted,
    ];
    for position in wrong {
        assert!(
            matches!(reader.read(position), Err(ReadError::NoRecord { .. })),
            "{position:?}"
        );
    }
    log.wait(ticket).unwrap();
    assert_eq!(
        reader.read(log.wait(ticket).unwrap()).unwrap(),
        payload(1, 40)
    );
}

#[test]
fn one_writer_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let first = Log::open(folder.path(), config()).unwrap();
    assert!(matches!(
        Log::open(folder.path(), config()),
        Err(OpenError::Locked)
    ));
    first.append(b"still works").unwrap();
    drop(first);
    assert_eq!(
        Log::open(folder.path(), config())
            .unwrap()
            .head()
            .next_sequence,
        1
    );
}

#[test]
fn the_id_is_needed_to_create_and_compared_when_opening() {
    let disk = SimDisk::new();
    assert!(matches!(
        Log::open_in(disk.dir(), Config::default()),
        Err(OpenError::NoId)
    ));
    drop(open(&disk, &config()));
    let other = LogId::from_bytes([8; 16]);
    let answer = Log::open_in(disk.dir(), config().with_log_id(other));
    assert!(
        matches!(answer, Err(OpenError::WrongLog { wanted, found }) if wanted == other && found == ID)
    );
}

#[test]
fn what_waits_together_shares_one_write_and_one_sync() {
    let disk = SimDisk::new();
    let log = open(&disk, &config());
    let before = disk.operations();
    let tickets: Vec<_> = (0..64)
        .map(|n| log.submit(&payload(n, 10)).unwrap())
        .collect();
    assert_eq!(log.head().next_sequence, 0);
    for ticket in &tickets {
        log.wait(*ticket).unwrap();
    }
    assert_eq!(disk.operations() - before, 2);
    let log = {
        drop(log);
        open(&disk, &config().with_sync(Sync::Each))
    };
    let before = disk.operations();
    for n in 0..5 {
        log.append(&payload(n, 10)).unwrap();
    }
    assert_eq!(disk.operations() - before, 10);
    // Nothing waits then.
    let _ = log.submit(b"written at once").unwrap();
    assert_eq!(
        (log.head().next_sequence, disk.operations() - before),
        (70, 12)
    );
    drop(log);
    let log = open(&disk, &config().with_sync(Sync::None));
    let before = disk.operations();
    log.append(b"unsynced").unwrap();
    assert_eq!(disk.operations() - before, 1);
    log.sync().unwrap();
    log.sync().unwrap();
    assert_eq!(disk.operations() - before, 2);
    // What waits is written by it, too.
    let waiting = log.submit(b"waits").unwrap();
    let end = log.sync().unwrap().next_sequence;
    assert_eq!(
        (end, disk.operations() - before),
        (log.head().next_sequence, 4)
    );
    log.wait(waiting).unwrap();
}

#[test]
fn a_log_that_cannot_be_makes_no_folder() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("log");
    let wrong = config().with_segment_bytes(0);
    Log::open(&path, wrong.clone()).unwrap_err();
    assert!(!path.exists());
    let disk = SimDisk::new();
    let refused = Log::open_in(disk.dir(), wrong.clone()).unwrap_err();
    assert!(matches!(refused, OpenError::Config(_)), "{refused}");
    let refused = Log::repair(disk.dir(), wrong).unwrap_err();
    assert!(matches!(refused, OpenError::Config(_)), "{refused}");
    // A file stands where a folder should be.
    fs::write(&path, b"a file").unwrap();
    match Log::open(path.join("below"), config()) {
        Err(OpenError::Io(error)) => assert_eq!(error.kind(), ErrorKind::AlreadyExists),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_bound_of_pending_bytes_commits_first() {
    let disk = SimDisk::new();
    let log = open(&disk, &config().with_max_pending_bytes(1000));
    for n in 0..10 {
        let _ = log.submit(&payload(n, 300)).unwrap();
    }
    assert!((6..10).contains(&log.head().next_sequence));
    assert_eq!(log.commit().unwrap().next_sequence, 10);
    // Three fit to the last byte: a header, and a frame for each.
    let bound = config().with_max_pending_bytes(72 + 3 * (20 + 300));
    let log = open(&SimDisk::new(), &bound);
    let committed = [0, 1, 2, 3].map(|n| {
        let _ = log.submit(&payload(n, 300)).unwrap();
        log.head().next_sequence
    });
    assert_eq!(committed, [0, 0, 0, 3]);
}

#[test]
fn settings_that_cannot_work_are_named_and_make_no_folder() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("log");
    let refused = |config: Config| match Log::open(&folder, config) {
        Err(OpenError::Config(error)) => error.setting,
        other => panic!("{other:?}"),
    };
    let limits = Limits::default();
    assert_eq!(refused(config().with_segment_bytes(0)), "segment_bytes");
    let none = limits.with_max_record_bytes(0);
    assert_eq!(refused(config().with_limits(none)), "max_record_bytes");
    for (record, block) in [(100, 119), (100, 1 << 32)] {
        let limits = limits.with_max_record_bytes(record);
        let limits = limits.with_max_block_bytes(block);
        assert_eq!(refused(config().with_limits(limits)), "max_block_bytes");
    }
    assert!(!folder.exists());
    let limits = limits.with_max_record_bytes(100).with_max_block_bytes(120);
    let log = Log::open(&folder, config().with_limits(limits)).unwrap();
    assert_eq!(log.append(&[1; 100]).unwrap().sequence, 0);
}

#[test]
fn a_segment_that_a_crash_left_half_made_is_removed() {
    let disk = SimDisk::new();
    for _ in 0..2 {
        disk.put("segment.new", vec![7; 3000]);
        let log = open(&disk, &config());
        assert!(disk.contents("segment.new").is_none());
        log.append(b"record").unwrap();
        log.close().unwrap();
    }
    assert_eq!(read_all(disk.dir()).len(), 2);
}

#[test]
fn too_large_a_record_changes_nothing() {
    let disk = SimDisk::new();
    let limits = Limits::default()
        .with_max_record_bytes(100)
        .with_max_block_bytes(300);
    let log = open(&disk, &config().with_limits(limits));
    let refused = AppendError::Encode(EncodeError::RecordTooLarge {
        bytes: 101,
        limit: 100,
    });
    assert_eq!(log.append(&[1; 101]), Err(refused));
    let batch: Vec<&[u8]> = vec![&[1; 100]; 3];
    assert!(matches!(
        log.append_batch(&batch),
        Err(AppendError::Encode(EncodeError::BlockTooLarge { .. }))
    ));
    assert_eq!(log.append(&[1; 100]).unwrap().sequence, 0);
}

#[test]
fn a_segment_has_its_place_on_the_disk_while_it_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let length = || fs::metadata(folder.path().join(segment(0))).unwrap().len();
    for _ in 0..2 {
        let log = Log::open(folder.path(), config()).unwrap();
        assert_eq!(length(), 64 << 10);
        log.close().unwrap();
        assert!(length() < 1_000, "closing gives it back");
    }
}

#[test]
fn a_segment_that_is_full_to_its_last_byte_is_followed_by_another() {
    let disk = SimDisk::new();
    let log = open(&disk, &config());
    log.append(&payload(0, 40)).unwrap();
    log.close().unwrap();
    let length = disk.contents(&segment(0)).unwrap().len() as u64;
    let log = open(&SimDisk::new(), &config().with_segment_bytes(length));
    let segments = [0, 1].map(|n| log.append(&payload(n, 40)).unwrap().segment);
    assert_eq!(segments, [0, 1]);
}

#[test]
fn a_batch_has_consecutive_positions() {
    let disk = SimDisk::new();
    let log = open(&disk, &config());
    log.append(b"before").unwrap();
    let records: Vec<Vec<u8>> = (0..5).map(|n| payload(n, 70)).collect();
    let slices: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
    let batch = log.append_batch(&slices).unwrap();
    let mut reader = log.reader();
    let found: Vec<_> = batch
        .positions
        .iter()
        .map(|position| reader.read(*position).unwrap())
        .collect();
    assert_eq!(found, records);
    assert_eq!((batch.first.sequence, log.head().next_sequence), (1, 6));
}

#[test]
fn a_failed_sync_poisons_the_writer() {
    let disk = SimDisk::new();
    let log = open(&disk, &config());
    let good = log.append(b"good").unwrap();
    let waiting = log.submit(b"never acknowledged").unwrap();
    disk.fail_after(0, SimFault::Sync);
    assert!(matches!(log.wait(waiting), Err(AppendError::Poisoned(_))));
    assert!(matches!(log.append(b"more"), Err(AppendError::Poisoned(_))));
    assert!(matches!(log.sync(), Err(AppendError::Poisoned(_))));
    assert_eq!(log.head().next_sequence, 1);
    // Its bytes are in the file, and no record.
    let written = Position::new(1, 0, good.offset + 20 + 4 + 32 + 72);
    let read = log.reader().read(written);
    assert!(matches!(read, Err(ReadError::NoRecord { .. })), "{read:?}");
}

#[test]
fn readers_and_proofs_write_nothing() {
    let disk = SimDisk::new();
    drop(open(&disk, &config()));
    let mut torn = disk.contents(&segment(0)).unwrap();
    torn.extend([7; 30]);
    disk.put(&segment(0), torn);
    let before = disk.operations();
    assert!(read_all(disk.dir()).is_empty());
    assert_eq!(
        Verify::default()
            .run(disk.dir().as_ref())
            .unwrap()
            .torn
            .unwrap()
            .bytes,
        30
    );
    assert_eq!(disk.operations(), before);
}

#[test]
fn archived_segments_and_the_rest_prove_each_other() {
    let (folder, vault) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let vault = FsDir::new(vault.path());
    let log = Log::open(folder.path(), config().with_segment_bytes(4000)).unwrap();
    let here = FsDir::new(folder.path());
    for n in 0..40 {
        log.append(&payload(n, 500)).unwrap();
    }
    let whole = Verify::default().run(&here).unwrap();
    let archived = log.archive(25, &vault).unwrap();
    let seam = archived.head.unwrap();
    assert!(
        archived.segments >= 2 && (15..=25).contains(&seam.next_sequence),
        "{archived:?}"
    );
    assert_eq!(Verify::default().kept(seam).run(&vault).unwrap().head, seam);
    let rest = Verify::default()
        .after(seam)
        .kept(whole.head)
        .run(&here)
        .unwrap();
    assert_eq!(
        (rest.first_sequence, rest.records),
        (seam.next_sequence, 40 - seam.next_sequence)
    );
    let mut other = seam;
    other.digest = whole.head.digest;
    assert!(matches!(
        Verify::default().after(other).run(&here),
        Err(ReadError::Damaged(_))
    ));
    assert!(matches!(
        Verify::default().from(3).run(&here),
        Err(ReadError::Archived { wanted: 3, first }) if first == seam.next_sequence
    ));
    let mut reader = log.reader();
    reader.seek(3);
    assert!(matches!(
        reader.next(),
        Err(ReadError::Archived { wanted: 3, .. })
    ));
    assert_eq!(log.archive(25, &vault).unwrap().segments, 0);
    log.append(b"goes on").unwrap();
    drop(log);
    let log = Log::open(folder.path(), config()).unwrap();
    assert_eq!(
        (log.head().next_sequence, log.report().first_sequence),
        (41, seam.next_sequence)
    );
}

/// A log of some segments in a folder, and the names of their files.
fn segmented(folder: &Path) -> (Log, Vec<PathBuf>) {
    let log = Log::open(folder, config().with_segment_bytes(4000)).unwrap();
    for n in 0..40 {
        log.append(&payload(n, 500)).unwrap();
    }
    let files = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    let mut files: Vec<_> = files
        .filter(|file| fs::metadata(file).unwrap().len() > 1000)
        .collect();
    files.sort();
    (log, files)
}

#[test]
fn an_archive_that_holds_another_segment_of_that_name_is_left_alone() {
    let (folder, vault) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (log, files) = segmented(folder.path());
    let there = vault.path().join(files[0].file_name().unwrap());
    let mut other = fs::read(&files[0]).unwrap();
    *other.last_mut().unwrap() ^= 1;
    fs::write(&there, &other).unwrap();
    let refused = log.archive(25, &FsDir::new(vault.path()));
    assert!(
        matches!(refused, Err(ArchiveError::Occupied { .. })),
        "{refused:?}"
    );
    assert_eq!(fs::read(&there).unwrap(), other);
    assert!(files[0].exists());
}

#[test]
fn what_an_archiver_that_died_left_behind_is_in_nobodys_way() {
    let (folder, vault) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (log, files) = segmented(folder.path());
    fs::write(folder.path().join("segment.probe"), b"").unwrap();
    // It had copied one.
    fs::copy(&files[0], vault.path().join(files[0].file_name().unwrap())).unwrap();
    let archived = log.archive(25, &FsDir::new(vault.path())).unwrap();
    assert!(archived.segments >= 2 && !files[0].exists());
    assert!(!vault.path().join("segment.probe").exists());
}

#[test]
fn a_damaged_segment_is_not_archived() {
    for (file, at) in [(0, 2_000), (1, 20)] {
        let (folder, vault) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (log, files) = segmented(folder.path());
        let mut bytes = fs::read(&files[file]).unwrap();
        bytes[at] ^= 1;
        fs::write(&files[file], bytes).unwrap();
        let refused = log.archive(25, &FsDir::new(vault.path()));
        assert!(
            matches!(refused, Err(ArchiveError::Damaged(_))),
            "{file} {refused:?}"
        );
    }
}

#[test]
fn a_file_says_how_long_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let file = FsDir::new(folder.path()).create("f").unwrap();
    file.write_at(b"abc", 2).unwrap();
    assert_eq!(file.len().unwrap(), 5);
}

// Other systems answer otherwise.
#[cfg(target_os = "linux")]
#[test]
fn what_cannot_be_synced_is_not_called_durable() {
    let folder = tempfile::tempdir().unwrap();
    FsDir::new(folder.path().join("gone")).sync().unwrap_err();
    let device = FsDir::new("/dev").open("null", true).unwrap();
    assert_eq!(device.sync().unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[cfg(target_os = "linux")]
#[test]
fn an_error_of_the_disk_is_told_as_it_is() {
    let (folder, vault) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (log, files) = segmented(folder.path());
    // Nobody reads a folder.
    fs::remove_file(&files[0]).unwrap();
    fs::create_dir(&files[0]).unwrap();
    match log.archive(25, &FsDir::new(vault.path())) {
        Err(ArchiveError::Io(error)) => assert_eq!(error.kind(), ErrorKind::IsADirectory),
        other => panic!("{other:?}"),
    }
    drop(log);
    match Log::open(folder.path(), config()) {
        Err(OpenError::Io(error)) => assert_eq!(error.kind(), ErrorKind::IsADirectory),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_interrupted_archive_is_completed_later() {
    let fill = |disk: &SimDisk| {
        let log = open(disk, &config().with_segment_bytes(2000));
        for n in 0..20 {
            log.append(&payload(n, 300)).unwrap();
        }
        log
    };
    for cut in 0..40 {
        let (here, vault) = (SimDisk::new(), SimDisk::new());
        let log = fill(&here);
        vault.cut_power_after(cut);
        let first = log.archive(20, vault.dir().as_ref());
        vault.restart(cut);
        log.archive(20, vault.dir().as_ref()).unwrap();
        let there = read_all(vault.dir());
        let rest = read_all(here.dir());
        let all: Vec<_> = there.into_iter().chain(rest).collect();
        let expected: Vec<_> = (0..20).map(|n| (n, payload(n, 300))).collect();
        assert_eq!(all, expected, "cut {cut} {first:?}");
    }
}

#[test]
fn what_was_archived_does_not_come_back() {
    for seed in 0..8 {
        let (here, vault) = (SimDisk::new(), SimDisk::new());
        let log = open(&here, &config().with_segment_bytes(1000));
        for n in 0..9 {
            log.append(&payload(n, 300)).unwrap();
        }
        let archived = log.archive(9, vault.dir().as_ref()).unwrap();
        here.restart(seed);
        let first = read_all(here.dir())[0].0;
        assert_eq!(first, archived.head.unwrap().next_sequence, "seed {seed}");
    }
}

#[test]
fn a_text_that_is_no_head_is_refused_by_its_part() {
    let head = Head::new(ID, 42, Digest::from_bytes([2; 32]));
    let text = head.to_string();
    assert_eq!(text.parse(), Ok(head));
    let (id, digest) = (ID.to_string(), head.digest.to_string());
    for (part, with, error) in [
        ("ubos-log:1:", "ubos-log:2:", HeadError::Prefix),
        (&digest, "", HeadError::Digest),
        (&digest, &format!("{digest}:"), HeadError::Parts),
        (&format!(":{digest}"), "", HeadError::Parts),
        (&id, &id.replace('-', ""), HeadError::Log),
        (&id, "", HeadError::Log),
        (":42:", ":+42:", HeadError::Sequence),
        (":42:", ":042:", HeadError::Sequence),
        (":42:", "::", HeadError::Sequence),
    ] {
        assert_eq!(
            text.replace(part, with).parse::<Head>(),
            Err(error),
            "{with}"
        );
    }
}

#[test]
fn a_closed_log_takes_no_more_room_than_its_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let disk = SimDisk::new();
    let real = Log::open(folder.path(), config()).unwrap();
    let simulated = open(&disk, &config());
    for log in [&real, &simulated] {
        log.append(b"one").unwrap();
        log.append(b"two").unwrap();
    }
    let path = folder.path().join(segment(0));
    assert!(fs::metadata(&path).unwrap().len() > 1_000);
    real.close().unwrap();
    simulated.close().unwrap();
    let bytes = fs::read(&path).unwrap();
    assert!(bytes.len() < 1_000, "{} bytes", bytes.len());
    assert_eq!(Some(bytes), disk.contents(&segment(0)));
}
