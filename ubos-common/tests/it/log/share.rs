//! Threads: many appenders, readers beside them.
#![expect(
    clippy::disallowed_methods,
    reason = "a reader waits for a time, and not for ever"
)]

use super::{BOUND, config, open, payload};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Instant;
use ubos_common::log::{FsDir, Log, Reader, SimDisk, Verify};

#[test]
fn readers_beside_a_writer_see_whole_records_in_order() {
    const COUNT: u64 = 400;
    let folder = tempfile::tempdir().unwrap();
    let log = Log::open(folder.path(), config().with_segment_bytes(20_000)).unwrap();
    let follow = |mut reader: Reader| {
        let (mut next, mut since) = (0, Instant::now());
        while next < COUNT {
            if let Some(entry) = reader.next().unwrap() {
                assert_eq!(entry.position.sequence, next);
                assert_eq!(entry.bytes, payload(next, (next * 13 % 3000) as usize));
                next += 1;
                since = Instant::now();
            } else {
                assert!(since.elapsed() < BOUND, "record {next} does not come");
                std::thread::yield_now();
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| follow(log.reader()));
        scope.spawn(|| follow(Reader::open(folder.path())));
        for n in 0..COUNT {
            log.append(&payload(n, (n * 13 % 3000) as usize)).unwrap();
        }
    });
    assert_eq!(
        Verify::default()
            .run(&FsDir::new(folder.path()))
            .unwrap()
            .records,
        COUNT
    );
}

#[test]
fn appends_of_many_threads_each_have_their_place() {
    let disk = SimDisk::new();
    let log = open(&disk, &config());
    let seen = Mutex::new(BTreeSet::new());
    std::thread::scope(|scope| {
        for thread in 0..16_u8 {
            let (log, seen) = (&log, &seen);
            scope.spawn(move || {
                for n in 0..50_u8 {
                    let position = log.append(&[thread, n]).unwrap();
                    assert_eq!(log.reader().read(position).unwrap(), [thread, n]);
                    assert!(seen.lock().unwrap().insert(position.sequence));
                }
            });
        }
    });
    assert_eq!(seen.into_inner().unwrap(), (0..800).collect());
    assert_eq!(
        Verify::default().run(disk.dir().as_ref()).unwrap().records,
        800
    );
}

#[test]
fn one_failure_reaches_everybody_who_waits() {
    let disk = SimDisk::new();
    let log = open(&disk, &config());
    disk.cut_power_after(20);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let failed = (0..1000).any(|_| log.append(b"until it fails").is_err());
                assert!(failed, "the power is cut");
            });
        }
    });
    let acknowledged = log.head().next_sequence;
    disk.restart(3);
    assert!(open(&disk, &config()).head().next_sequence >= acknowledged);
}
