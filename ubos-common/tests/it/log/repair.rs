//! Logs of the wrong kind stay as they are, and logs that cannot be opened are repaired without losing a byte.

use super::{config, open, payload, read_all, segment};
use ubos_common::canon::Digest;
use ubos_common::log::format::{Fault, Limits};
use ubos_common::log::{Config, Damage, Kind, Log, OpenError, ReadError, Reader, SimDisk, Verify};

fn files(disk: &SimDisk) -> Vec<(String, Vec<u8>)> {
    let mut names = disk.dir().list().unwrap();
    names.sort();
    let file = |name: String| (name.clone(), disk.contents(&name).unwrap());
    names.into_iter().map(file).collect()
}

#[test]
fn a_log_of_another_kind_is_refused_and_not_touched() {
    let disk = SimDisk::new();
    let of_kind = |kind| config().with_kind(kind);
    let log = open(&disk, &of_kind("one"));
    log.append(b"a record").unwrap();
    log.close().unwrap();
    disk.put("segment.new", b"not ours".to_vec());
    let before = files(&disk);
    let operations = disk.operations();
    for kind in ["two", ""] {
        for repair in [false, true] {
            let answer = if repair {
                Log::repair(disk.dir(), of_kind(kind)).map(drop)
            } else {
                Log::open_in(disk.dir(), of_kind(kind)).map(drop)
            };
            match answer {
                Err(error @ OpenError::WrongKind { .. }) => {
                    let text = error.to_string();
                    let wanted = if kind.is_empty() { "(none)" } else { kind };
                    assert!(text.contains("kind one") && text.contains(wanted), "{text}");
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!((files(&disk), disk.operations()), (before, operations));
    assert_eq!(open(&disk, &of_kind("one")).head().next_sequence, 1);
    let proven = Verify::default().run(disk.dir().as_ref()).unwrap();
    assert_eq!(proven.kind, "one".parse::<Kind>().unwrap());
}

#[test]
fn a_segment_of_another_kind_is_named_and_its_records_are_proven() {
    let [disk, other] =
        ["one", "two"].map(|kind| log(&config().with_segment_bytes(2000).with_kind(kind)));
    disk.put(&segment(1), other.contents(&segment(1)).unwrap());
    let [wanted, found] = ["one", "two"].map(|kind| kind.parse().unwrap());
    let wrong = Fault::WrongKind { wanted, found };
    let proof = Verify::default().run(disk.dir().as_ref());
    assert!(matches!(proof, Err(ReadError::Damaged(damage)) if damage.fault == wrong));
    let report = Verify::default().fsck(disk.dir().as_ref()).unwrap();
    let named = |damage: &Damage| (damage.segment, damage.fault);
    let found: Vec<_> = report.findings.iter().map(|it| named(&it.damage)).collect();
    assert_eq!((found, report.verified.records), (vec![(1, wrong)], 24));
}

#[test]
fn a_kind_is_a_short_plain_name() {
    for name in ["", "Upper", "a b", "more-than-16-chars", "a\0b", "\u{e9}"] {
        assert!(name.parse::<Kind>().is_err(), "{name:?}");
        if !name.is_empty() {
            let opened = Log::open_in(
                SimDisk::new().dir(),
                config().with_kind(name.to_owned().leak()),
            );
            assert!(matches!(opened, Err(OpenError::Kind(_))));
        }
    }
    assert_eq!(
        "exactly-16-chars".parse::<Kind>().unwrap().to_string(),
        "exactly-16-chars"
    );
}

/// A log of several segments whose last one holds many records; closed.
fn log(config: &Config) -> SimDisk {
    let disk = SimDisk::new();
    let log = open(&disk, config);
    for n in 0..24 {
        log.append(&payload(n, 200)).unwrap();
    }
    log.close().unwrap();
    disk
}

/// Opening is refused; after repairing it is not, and the bytes that are gone lie beside.
fn repaired(disk: &SimDisk, config: &Config, kept: u64, what: &str) {
    let before = files(disk);
    assert!(Log::open_in(disk.dir(), config.clone()).is_err(), "{what}");
    assert_eq!(files(disk), before, "{what}");
    let done =
        Log::repair(disk.dir(), config.clone()).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(!done.cuts.is_empty(), "{what}");
    for cut in &done.cuts {
        let beside = disk.contents(&cut.file_name()).unwrap();
        assert_eq!(
            (beside.len() as u64, Digest::of_bytes(&beside)),
            (cut.bytes, cut.digest)
        );
        let was = before
            .iter()
            .find(|(name, _)| *name == segment(cut.segment))
            .unwrap();
        assert_eq!(
            beside,
            was.1[usize::try_from(cut.offset).unwrap()..],
            "{what}"
        );
    }
    let proven = Verify::default().run(disk.dir().as_ref()).unwrap();
    assert_eq!(
        (&proven.cuts, proven.head),
        (&done.cuts, done.head),
        "{what}"
    );
    // Readers see the records that are left, and those that follow.
    let log = Log::open_in(disk.dir(), config.clone()).unwrap();
    let position = log.append(b"after").unwrap();
    assert_eq!(log.reader().read(position).unwrap(), b"after");
    drop(log);
    let found = read_all(disk.dir());
    assert_eq!(found.len() as u64, kept + 1, "{what}");
    assert_eq!(found.last().unwrap().1, b"after");
    let again = Log::repair(disk.dir(), config.clone()).unwrap();
    assert_eq!(again.cuts, [], "{what}: nothing is left to repair");
}

#[test]
fn what_cannot_be_opened_is_repaired_and_nothing_is_lost() {
    let config = config().with_segment_bytes(2000).with_kind("repaired");
    let last = |disk: &SimDisk| {
        (0..)
            .take_while(|index| disk.contents(&segment(*index)).is_some())
            .count() as u64
            - 1
    };
    let first_of = |disk: &SimDisk, index: u64| {
        let header = disk.contents(&segment(index)).unwrap();
        u64::from_le_bytes(header[40..48].try_into().unwrap())
    };

    let disk = log(&config);
    let tip = last(&disk);
    assert!(tip >= 2);
    let mut bytes = disk.contents(&segment(tip)).unwrap();
    bytes[128 + 300] ^= 1;
    disk.put(&segment(tip), bytes);
    repaired(
        &disk,
        &config,
        first_of(&log(&config), tip),
        "a record of the last segment",
    );

    let disk = log(&config);
    let mut bytes = disk.contents(&segment(tip)).unwrap();
    bytes[20] ^= 1;
    disk.put(&segment(tip), bytes);
    repaired(
        &disk,
        &config,
        first_of(&log(&config), tip),
        "the header of the last segment",
    );

    let disk = log(&config);
    disk.dir().remove(&segment(1)).unwrap();
    repaired(
        &disk,
        &config,
        first_of(&log(&config), 1),
        "a missing segment",
    );

    let disk = log(&config);
    let mut bytes = disk.contents(&segment(0)).unwrap();
    bytes[20] ^= 1;
    disk.put(&segment(0), bytes);
    repaired(
        &disk,
        &config,
        24 - first_of(&log(&config), 1),
        "the header of the first segment",
    );

    let disk = SimDisk::new();
    let config = config.with_segment_bytes(4 << 20);
    let log = open(&disk, &config);
    for n in 0..3 {
        log.append(&payload(n, 600_000)).unwrap();
    }
    log.close().unwrap();
    let mut bytes = disk.contents(&segment(0)).unwrap();
    bytes[128 + 300] ^= 1;
    disk.put(&segment(0), bytes);
    repaired(&disk, &config, 0, "more than is copied at once");
}

#[test]
fn a_sound_log_is_left_alone_and_an_empty_folder_refused() {
    let disk = log(&config());
    let before = read_all(disk.dir());
    let head = open(&disk, &config()).head();
    let done = Log::repair(disk.dir(), config()).unwrap();
    assert_eq!((done.cuts.len(), done.head), (0, head));
    assert_eq!(read_all(disk.dir()), before);
    let empty = Log::repair(SimDisk::new().dir(), config());
    assert!(matches!(empty, Err(OpenError::NothingSound)));
}

#[test]
fn a_repair_that_is_cut_off_is_ended_by_the_next() {
    let config = config().with_segment_bytes(2000);
    let mut cut_at = 0;
    loop {
        let disk = log(&config);
        let tip = (0..)
            .take_while(|index| disk.contents(&segment(*index)).is_some())
            .count() as u64
            - 1;
        let mut bytes = disk.contents(&segment(tip)).unwrap();
        bytes[128 + 300] ^= 1;
        let lost = bytes[128..].to_vec();
        disk.put(&segment(tip), bytes);
        let start = disk.operations();
        disk.cut_power_after(cut_at);
        let done = Log::repair(disk.dir(), config.clone()).is_ok();
        disk.restart(cut_at);
        let _ = Log::repair(disk.dir(), config.clone()).unwrap();
        let beside = disk
            .dir()
            .list()
            .unwrap()
            .into_iter()
            .find(|name| name.contains(".cut"));
        assert_eq!(
            disk.contents(&beside.unwrap()).unwrap(),
            lost,
            "cut off at {cut_at}"
        );
        let proven = Verify::default().run(disk.dir().as_ref()).unwrap();
        assert!(!proven.cuts.is_empty(), "cut off at {cut_at}");
        let mut reader = Reader::open_in(disk.dir(), Limits::default());
        while reader.next().unwrap().is_some() {}
        if done {
            assert!(disk.operations() > start);
            return;
        }
        cut_at += 1;
    }
}
