//! Power cuts, full and failing disks: what was acknowledged stays, and a crash is never called tampering.

use super::{config, open, payload, read_all};
use proptest::prelude::*;
use ubos_common::log::format::{BlockBuilder, Limits, LogKeys};
use ubos_common::log::{Config, Log, SimDisk, SimFault, Sync, Verify};

/// Record `n`: of any size and shape. Zeroes are what a sector that was not written looks like.
fn shaped(n: u64) -> Vec<u8> {
    let length = [0, 1, 3, 17, 60, 400, 512, 1400, 3000][(n * 7 % 9) as usize];
    let zeroes = [0, 0, 1, 40, 600][(n * 3 % 5) as usize];
    let mut bytes = payload(n, length);
    if n % 4 == 1 {
        bytes.splice(0..0, vec![0; zeroes]);
    } else {
        bytes.extend(vec![0; zeroes]);
    }
    bytes
}

/// Appends until something fails; tells how many records were acknowledged.
fn append_some(log: &Log, from: u64, count: u64) -> u64 {
    let mut acknowledged = from;
    for n in from..from + count {
        let bytes = shaped(n);
        let done = if n % 3 == 0 {
            log.append_batch(&[&bytes]).map(|batch| batch.first)
        } else {
            log.append(&bytes)
        };
        match done {
            Ok(position) => assert_eq!(position.sequence, n),
            Err(_) => break,
        }
        acknowledged = n + 1;
    }
    acknowledged
}

fn check(disk: &SimDisk, config: &Config, acknowledged: u64, context: &str) -> u64 {
    let log = Log::open_in(disk.dir(), config.clone())
        .unwrap_or_else(|error| panic!("{context}: {error}"));
    let next = log.head().next_sequence;
    assert!(
        next >= acknowledged,
        "{context}: {acknowledged} acknowledged, {next} there"
    );
    let found = read_all(disk.dir());
    for (n, (sequence, bytes)) in (0..).zip(&found) {
        assert_eq!(*sequence, n);
        assert_eq!(*bytes, shaped(n), "{context}: record {n}");
    }
    assert_eq!(found.len() as u64, next, "{context}");
    next
}

fn cut_everywhere(sync: Sync, seeds: u64) {
    let config = config().with_segment_bytes(6000).with_sync(sync);
    let whole = SimDisk::new();
    append_some(&open(&whole, &config), 0, 12);
    for cut in 0..whole.operations() + 3 {
        for seed in 0..seeds {
            let context = format!("{sync:?} cut {cut} seed {seed}");
            let disk = SimDisk::new();
            disk.cut_power_after(cut);
            let acknowledged =
                Log::open_in(disk.dir(), config.clone()).map_or(0, |log| append_some(&log, 0, 12));
            disk.restart(seed * 7919 + cut);
            let acknowledged = if sync == Sync::None { 0 } else { acknowledged };
            // The power goes again while the log recovers or writes on.
            disk.cut_power_after(seed);
            let again = Log::open_in(disk.dir(), config.clone())
                .map_or(0, |log| append_some(&log, log.head().next_sequence, 2));
            disk.restart(seed + 1);
            let acknowledged = if sync == Sync::None {
                0
            } else {
                acknowledged.max(again)
            };
            let next = check(&disk, &config, acknowledged, &context);
            assert_eq!(
                append_some(&open(&disk, &config), next, 3),
                next + 3,
                "{context}"
            );
            let proven = Verify::default().run(disk.dir().as_ref()).unwrap();
            assert_eq!((proven.records, proven.torn), (next + 3, None), "{context}");
        }
    }
}

// spec: SAP-11-3
#[test]
fn a_power_cut_anywhere_loses_nothing_acknowledged() {
    cut_everywhere(Sync::Each, 6);
    cut_everywhere(Sync::Group, 6);
}

#[test]
fn a_power_cut_without_syncs_leaves_a_sound_beginning() {
    cut_everywhere(Sync::None, 6);
}

#[test]
fn a_batch_is_there_whole_or_not_at_all() {
    let config = config();
    for cut in 0..12 {
        for seed in 0..40 {
            let disk = SimDisk::new();
            let log = open(&disk, &config);
            let records: Vec<Vec<u8>> = (0..9).map(|n| payload(n, 700)).collect();
            let slices: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
            disk.cut_power_after(cut);
            for _ in 0..3 {
                let _ = log.append_batch(&slices);
            }
            drop(log);
            disk.restart(seed);
            let next = open(&disk, &config).head().next_sequence;
            assert_eq!(next % 9, 0, "cut {cut} seed {seed}");
        }
    }
}

#[test]
fn a_full_disk_loses_nothing_acknowledged() {
    let config = config().with_segment_bytes(6000);
    for capacity in (5000..40_000).step_by(487) {
        let disk = SimDisk::new();
        disk.set_capacity(Some(capacity));
        let acknowledged =
            Log::open_in(disk.dir(), config.clone()).map_or(0, |log| append_some(&log, 0, 80));
        assert!(acknowledged < 80);
        disk.restart(capacity);
        disk.set_capacity(None);
        let next = check(
            &disk,
            &config,
            acknowledged,
            &format!("capacity {capacity}"),
        );
        assert_eq!(append_some(&open(&disk, &config), next, 3), next + 3);
    }
}

#[test]
fn a_failing_disk_loses_nothing_acknowledged() {
    let config = config().with_segment_bytes(6000);
    let whole = SimDisk::new();
    append_some(&open(&whole, &config), 0, 12);
    for at in 0..whole.operations() {
        for fault in [SimFault::Write, SimFault::Sync] {
            for restart in [false, true] {
                let context = format!("{fault:?} at {at}, restart {restart}");
                let disk = SimDisk::new();
                disk.fail_after(at, fault);
                let acknowledged = Log::open_in(disk.dir(), config.clone())
                    .map_or(0, |log| append_some(&log, 0, 12));
                if restart {
                    disk.restart(at);
                }
                // The fault may strike only now; then the next attempt must do.
                drop(Log::open_in(disk.dir(), config.clone()));
                let next = check(&disk, &config, acknowledged, &context);
                // Built on what the failed sync left in memory only: it must be on the disk by now.
                let acknowledged = append_some(&open(&disk, &config), next, 3);
                disk.restart(at + 1);
                check(&disk, &config, acknowledged, &context);
            }
        }
    }
}

#[test]
fn what_opening_finds_is_durable() {
    for seed in 0..20 {
        let disk = SimDisk::new();
        let log = open(&disk, &config());
        disk.fail_after(0, SimFault::Sync);
        log.append(&shaped(0)).unwrap_err();
        drop(log);
        let log = open(&disk, &config());
        let found = log.head().next_sequence;
        assert_eq!(found, 1);
        disk.cut_power_after(0);
        drop(log);
        disk.restart(seed);
        check(&disk, &config(), found, &format!("seed {seed}"));
    }
}

/// A record of one of the shapes that are hard to tell from bytes that were not written.
fn any_record() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..80),
        prop::collection::vec(any::<u8>(), 0..1500),
        (0_usize..1500).prop_map(|length| vec![0; length]),
        (prop::collection::vec(any::<u8>(), 0..40), 0_usize..900).prop_map(
            |(mut bytes, zeroes)| {
                bytes.extend(vec![0; zeroes]);
                bytes
            }
        ),
        (1_usize..40, 0_usize..600).prop_map(|(count, zeroes)| {
            let mut bytes = vec![0; zeroes];
            bytes.extend(vec![7; count]);
            bytes
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn a_failed_write_of_any_length_is_torn_and_recovered(
        records in prop::collection::vec(any_record(), 1..8),
        reached in 0_usize..1700,
        power in any::<Option<u64>>(),
    ) {
        let disk = SimDisk::new();
        let log = open(&disk, &config());
        let (last, before) = records.split_last().unwrap();
        for record in before {
            log.append(record).unwrap();
        }
        disk.fail_after(0, SimFault::ShortWrite(reached));
        let failed = log.append(last).is_err();
        prop_assert!(failed);
        drop(log);
        if let Some(seed) = power {
            disk.restart(seed);
        }
        let log = match Log::open_in(disk.dir(), config()) {
            Ok(log) => log,
            Err(error) => return Err(TestCaseError::fail(format!("{error}"))),
        };
        // All of it may have been written before the write failed.
        let next = log.head().next_sequence;
        prop_assert!(next == before.len() as u64 || next == records.len() as u64);
        log.append(b"goes on").unwrap();
        drop(log);
        let found = read_all(disk.dir());
        prop_assert_eq!(found.len() as u64, next + 1);
        for ((_, found), record) in found.iter().zip(before) {
            prop_assert_eq!(found, record);
        }
        Verify::default().run(disk.dir().as_ref()).unwrap();
    }
}

/// The header of a block that never was: as records before `durable` would be followed by it.
fn forged_header(durable: u64) -> Vec<u8> {
    let keys = LogKeys::new(super::ID);
    let mut block = BlockBuilder::new(keys.clone(), Limits::default());
    block.begin(durable);
    block.push(b"never written").unwrap();
    block.finish(keys.genesis(), durable);
    block.as_bytes()[..72].to_vec()
}

#[test]
fn a_forged_header_in_a_record_makes_no_damage_of_a_torn_write() {
    let forged = forged_header(9);
    for copies in [1, 50] {
        let mut record = payload(3, 700);
        record.extend(forged.repeat(copies));
        record.extend(payload(4, 700));
        let whole = SimDisk::new();
        let log = open(&whole, &config());
        log.append(b"before").unwrap();
        let operations = whole.operations();
        drop(log);
        for seed in 0..200 {
            let disk = SimDisk::new();
            let log = open(&disk, &config());
            log.append(b"before").unwrap();
            assert_eq!(disk.operations(), operations);
            disk.cut_power_after(1);
            assert!(log.append(&record).is_err());
            drop(log);
            disk.restart(seed);
            let log = Log::open_in(disk.dir(), config())
                .unwrap_or_else(|error| panic!("{copies} copies, seed {seed}: {error}"));
            assert!(log.head().next_sequence >= 1);
        }
    }
}
