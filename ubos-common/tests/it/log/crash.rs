//! Power cuts, full and failing disks: what was acknowledged stays, and a crash is never called tampering.

use super::{config, open, payload, read_all};
use ubos_common::log::{Config, Log, SimDisk, SimFault, Sync, Verify};

/// Appends until something fails; tells how many records were acknowledged.
fn append_some(log: &Log, from: u64, count: u64) -> u64 {
    let mut acknowledged = from;
    for n in from..from + count {
        // Zeroes in a payload are what a sector that was not written looks like.
        let mut bytes = payload(n, (n * 397 % 1900) as usize);
        bytes.extend([0; 600]);
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
        assert!(
            bytes.starts_with(&payload(n, (n * 397 % 1900) as usize)),
            "{context}: record {n}"
        );
    }
    assert_eq!(found.len() as u64, next, "{context}");
    next
}

fn cut_everywhere(sync: Sync, seeds: u64) {
    let config = config().segment_bytes(6000).sync(sync);
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
    let config = config().segment_bytes(6000);
    for capacity in (5000..40_000).step_by(487) {
        let disk = SimDisk::new();
        disk.set_capacity(Some(capacity));
        let acknowledged =
            Log::open_in(disk.dir(), config.clone()).map_or(0, |log| append_some(&log, 0, 30));
        assert!(acknowledged < 30);
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
    let config = config().segment_bytes(6000);
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
