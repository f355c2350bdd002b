//! A store whose disk fails and recovers, while it is open.

use std::collections::BTreeMap;

use ubos_common::log::SimFault;

use super::*;

fn job(bytes: usize) -> Job {
    Job::test("t", vec![crate::wire::Payload::new("p".repeat(bytes))])
}

/// What a caller was told of its jobs: `Some` is an end.
type Told = BTreeMap<JobId, Option<String>>;

/// What was acknowledged is there, and no job that was refused runs.
fn holds(store: &FileStore, told: &Told, what: &str) {
    let unfinished: Vec<_> = store.unfinished().unwrap();
    let mut unfinished: Vec<_> = unfinished.into_iter().map(|(id, _)| id).collect();
    unfinished.sort_unstable();
    let open = told.iter().filter(|(_, end)| end.is_none());
    assert_eq!(
        unfinished,
        open.map(|(id, _)| *id).collect::<Vec<_>>(),
        "{what}"
    );
    for (id, end) in told {
        let outcome = store.outcome(*id).unwrap().map(|outcome| outcome.message);
        assert_eq!(outcome.as_deref(), end.as_deref(), "{what}");
    }
}

// spec: HUB-6-1
#[test]
fn a_store_on_a_full_disk_refuses_until_there_is_room_and_goes_on() {
    let disk = SimDisk::new();
    let store = FileStore::open_in(disk.dir(), small()).unwrap();
    let mut ids = IdSource::seeded(1);
    let mut told = Told::new();
    disk.set_capacity(Some(20 << 10));
    let refused = loop {
        let id = ids.next_id();
        if store.write(&[(id, Record::Accepted(job(1000)))]).is_err() {
            break id;
        }
        told.insert(id, None);
        assert!(told.len() < 100, "it is never full");
    };
    assert!(told.len() > 3, "{}", told.len());
    holds(&store, &told, "full");
    for _ in 0..3 {
        let again = store.write(&[(ids.next_id(), Record::Accepted(job(1000)))]);
        assert!(matches!(again, Err(StoreError::Failed(_))), "{again:?}");
        let locked = FileStore::open_in(disk.dir(), small());
        assert!(
            matches!(locked, Err(FileStoreError::Open(OpenError::Locked))),
            "another process would get the log"
        );
    }
    assert!(store.compact(0, &*SimDisk::new().dir()).is_err());
    holds(&store, &told, "full");
    disk.set_capacity(None);
    assert_eq!(store.compact(0, &*SimDisk::new().dir()).unwrap(), 0);
    let (first, id) = (*told.keys().next().unwrap(), ids.next_id());
    let records = [(first, ended("done")), (id, Record::Accepted(job(10)))];
    store.write(&records).unwrap();
    told.insert(first, Some("done".into()));
    told.insert(id, None);
    holds(&store, &told, "room again");
    fill(&store, &mut ids);
    assert_eq!(store.compact(100, &*SimDisk::new().dir()).unwrap(), 0);
    drop(store);
    let store = FileStore::open_in(disk.dir(), small()).unwrap();
    holds(&store, &told, "opened again");
    assert_eq!(store.index().places(refused)[0], None);
}

/// Jobs come and end while one operation of the disk fails. Returns how many were refused, and how many of these are in the log.
fn one_fault(after: u64, fault: SimFault) -> (usize, usize) {
    let what = format!("{fault:?} after {after}");
    let disk = SimDisk::new();
    let store = FileStore::open_in(disk.dir(), small()).unwrap();
    let mut ids = IdSource::seeded(1);
    let (mut told, mut refused) = (Told::new(), Vec::new());
    disk.fail_after(after, fault);
    for n in 0..12 {
        let id = ids.next_id();
        match store.write(&[(id, Record::Accepted(job(700)))]) {
            Ok(()) => drop(told.insert(id, None)),
            Err(_) => refused.push(id),
        }
        let oldest = told.iter().find(|(_, end)| end.is_none());
        let Some(id) = oldest.map(|(id, _)| *id).filter(|_| n % 2 == 1) else {
            continue;
        };
        if store.write(&[(id, ended("done"))]).is_ok() {
            told.insert(id, Some("done".into()));
        } else {
            // It may be there all the same, and is told once more.
            let _ = store.write(&[(id, ended("done"))]);
            assert!(store.outcome(id).unwrap().is_some(), "{what}");
            told.insert(id, Some("done".into()));
        }
    }
    // The fault may be due only now; then it is over.
    let mut late = || {
        let id = ids.next_id();
        let done = store.write(&[(id, Record::Accepted(job(1)))]);
        (id, done.is_ok())
    };
    let tried = [late(), late()];
    assert!(tried.iter().any(|(_, is_stored)| *is_stored), "{what}");
    for (id, is_stored) in tried {
        match is_stored {
            true => drop(told.insert(id, None)),
            false => refused.push(id),
        }
    }
    holds(&store, &told, &what);
    let places = |store: &FileStore| -> Vec<_> {
        refused.iter().map(|id| store.index().places(*id)).collect()
    };
    let before = places(&store);
    drop(store);
    disk.restart(after);
    let store = FileStore::open_in(disk.dir(), small()).unwrap();
    holds(&store, &told, &what);
    let there = places(&store);
    assert_eq!(before, there, "{what}");
    let there = there.iter().filter(|[accepted, _]| accepted.is_some());
    (refused.len(), there.count())
}

// spec: HUB-6-1
#[test]
fn what_a_failing_disk_acknowledged_is_there_and_what_it_refused_never_runs() {
    let (mut refused, mut there) = (0, 0);
    for fault in [SimFault::Write, SimFault::ShortWrite(0), SimFault::Sync] {
        for after in 0..60 {
            let (some, found) = one_fault(after, fault);
            refused += some;
            there += found;
        }
    }
    // Else the interesting case was not among them.
    assert!(refused > 20 && there > 0, "{refused} {there}");
}

/// A log that lost what was acknowledged is not written on.
#[test]
fn a_log_that_is_shorter_than_what_was_acknowledged_stays_closed() {
    let disk = SimDisk::new();
    let store = FileStore::open_in(disk.dir(), small()).unwrap();
    let mut ids = IdSource::seeded(1);
    let name = disk.dir().list().unwrap().remove(0);
    let before = disk.contents(&name).unwrap();
    let mut write = |store: &FileStore| store.write(&[(ids.next_id(), Record::Accepted(job(9)))]);
    write(&store).unwrap();
    disk.fail_after(0, SimFault::Write);
    write(&store).unwrap_err();
    disk.put(&name, before);
    let told = write(&store).unwrap_err();
    let cause = std::error::Error::source(&told).unwrap().to_string();
    assert!(cause.contains("record 0 now, but 1"), "{cause}");
    assert!(store.unfinished().is_err(), "it is not there");
}
