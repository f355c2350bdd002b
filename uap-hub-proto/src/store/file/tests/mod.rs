//! What files keep, over restarts, crashes and compactions.

use std::sync::atomic::{AtomicBool, Ordering};

use ubos_common::{
    id::IdSource,
    log::{DirLock, LogFile, LogId, SimDisk},
};

use super::*;
use crate::{
    role::hub::Verdict,
    store::tests::{keeps_jobs_until_they_end, takes_the_first_end},
};

fn open(dir: &tempfile::TempDir) -> Result<FileStore, FileStoreError> {
    FileStore::open(
        dir.path(),
        Config::default().with_log_id(LogId::from_bytes([7; 16])),
    )
}

// spec: HUB-6-1
#[test]
fn files_keep_jobs_over_restarts_until_they_end() {
    let dir = tempfile::tempdir().unwrap();
    keeps_jobs_until_they_end(&open(&dir).unwrap());
    let store = open(&dir).unwrap();
    let unfinished: Vec<_> = store.unfinished().unwrap();
    assert_eq!(unfinished.len(), 2);
    let label = unfinished[1].1.label.clone().unwrap();
    assert_eq!(store.labelled(&label).unwrap(), Some(unfinished[1].0));
    let ends: Vec<_> = store.outcomes().map(Result::unwrap).collect();
    assert_eq!(ends.len(), 3);
    let ended = ends.iter().find_map(|(_, outcome)| outcome.clone());
    assert_eq!(ended.unwrap().verdict, Verdict::Completed);
    assert!(store.compact(9, &archive(&dir)).is_err(), "its own folder");
}

#[test]
fn a_full_store_takes_no_jobs_and_still_takes_ends() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir).unwrap();
    store.max_jobs = 3;
    keeps_jobs_until_they_end(&store);
    let (id, job) = store.unfinished().unwrap().remove(0);
    let again = store.write(&[(id, Record::Accepted(job))]);
    assert!(matches!(again, Err(StoreError::Full { most: 3 })));
    let end = || Record::Ended(Outcome::new(Verdict::Failed, ""));
    assert!(store.write(&[(id, end())]).is_ok());
    store.max_jobs = 0;
    assert!(store.write(&[(id, end())]).is_ok());
}

#[test]
fn a_store_at_its_bound_is_opened_and_one_beyond_it_is_not() {
    let dir = tempfile::tempdir().unwrap();
    keeps_jobs_until_they_end(&open(&dir).unwrap());
    let open = |most| {
        let config = Config::default().with_log_id(LogId::from_bytes([7; 16]));
        FileStore::open_bounded(Arc::new(archive(&dir)), config, most)
    };
    assert!(matches!(open(2), Err(FileStoreError::TooMany { limit: 2 })));
    assert_eq!(open(3).unwrap().index().jobs.len(), 3);
}

#[test]
fn another_programs_log_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config::default().with_log_id(LogId::from_bytes([7; 16]));
    let log = Log::open(dir.path(), config).unwrap();
    log.append(b"\xff something else").unwrap();
    log.close().unwrap();
    assert!(matches!(
        open(&dir),
        Err(FileStoreError::Open(OpenError::WrongKind { .. }))
    ));
    let dir = tempfile::tempdir().unwrap();
    let config = Config::default().with_log_id(LogId::from_bytes([7; 16]));
    let log = Log::open(dir.path(), config.with_kind(KIND)).unwrap();
    log.append(b"\xff something else").unwrap();
    log.close().unwrap();
    assert!(matches!(open(&dir), Err(FileStoreError::Record(_))));
}

fn archive(dir: &tempfile::TempDir) -> FsDir {
    FsDir::create(dir.path()).unwrap()
}

/// Bytes of the segments in a folder.
fn bytes(dir: &tempfile::TempDir) -> u64 {
    let files = std::fs::read_dir(dir.path()).unwrap();
    files
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum()
}

// spec: HUB-6-1
#[test]
fn a_compacted_store_keeps_what_is_needed() {
    let (dir, old) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = || {
        Config::default()
            .with_log_id(LogId::from_bytes([7; 16]))
            .with_segment_bytes(64 << 10)
    };
    let store = FileStore::open(dir.path(), config()).unwrap();
    let mut ids = IdSource::seeded(1);
    let jobs: Vec<JobId> = (0..1000).map(|_| ids.next_id()).collect();
    let job = |n: usize| {
        let payload = crate::wire::Payload::file("p", "p", "text/plain", vec![7; 1000]);
        Job::test("t", vec![payload]).with_label(&n.to_string())
    };
    for (n, id) in jobs.iter().enumerate() {
        store.write(&[(*id, Record::Accepted(job(n)))]).unwrap();
        if n % 100 != 7 {
            let end = Record::Ended(Outcome::new(Verdict::Completed, n.to_string()));
            store.write(&[(*id, end)]).unwrap();
        }
    }
    let before = bytes(&dir);
    assert_eq!(store.compact(20, &archive(&old)).unwrap(), 970);
    assert_eq!(
        store.compact(20, &archive(&old)).unwrap(),
        0,
        "nothing more"
    );
    // Ten jobs that have not ended keep their payloads; of those that have and stay the ends are needed.
    assert!(bytes(&dir) < before / 4, "{} of {before}", bytes(&dir));
    for (n, id) in jobs.iter().enumerate().skip(980) {
        let accepted = store.index().jobs[id].accepted.unwrap();
        let Record::Accepted(kept) = store.read(accepted).unwrap() else {
            panic!("another record");
        };
        assert_eq!(kept.payloads.is_empty(), n % 100 != 7, "{n}");
    }
    let holds = |store: &FileStore| {
        let unfinished = jobs.iter().enumerate().skip(7).step_by(100);
        let unfinished = unfinished.map(|(n, id)| (*id, job(n)));
        assert_eq!(store.unfinished().unwrap(), unfinished.collect::<Vec<_>>());
        for (n, id) in jobs.iter().enumerate() {
            let outcome = store.outcome(*id).unwrap().map(|outcome| outcome.message);
            let label = store.labelled(&n.to_string()).unwrap();
            let is_kept = n >= 980;
            assert_eq!(outcome, (is_kept && n % 100 != 7).then(|| n.to_string()));
            assert_eq!(label, (is_kept || n % 100 == 7).then_some(*id));
        }
    };
    holds(&store);
    drop(store);
    holds(&FileStore::open(dir.path(), config()).unwrap());
}

// spec: HUB-6-1
#[test]
fn a_store_is_compacted_while_it_is_used() {
    let (dir, old) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = || {
        Config::default()
            .with_log_id(LogId::from_bytes([7; 16]))
            .with_segment_bytes(64 << 10)
    };
    let store = FileStore::open(dir.path(), config()).unwrap();
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut ids = IdSource::seeded(1);
            let mut open: Vec<JobId> = Vec::new();
            for n in 0..1500 {
                let id = ids.next_id();
                let job = Job::test("t", vec![crate::wire::Payload::new("p".repeat(500))]);
                store.write(&[(id, Record::Accepted(job))]).unwrap();
                open.push(id);
                if n % 3 > 0 {
                    let id = open.remove(n % open.len());
                    let end = Record::Ended(Outcome::new(Verdict::Completed, "done"));
                    store.write(&[(id, end)]).unwrap();
                    // It ended just now, and is among those that stay.
                    assert!(store.outcome(id).unwrap().is_some());
                }
            }
            open
        });
        while !writer.is_finished() {
            store.compact(300, &archive(&old)).unwrap();
        }
        writer.join().unwrap()
    });
    let holds = |store: &FileStore| {
        let unfinished = store.unfinished().unwrap();
        let mut unfinished: Vec<_> = unfinished.into_iter().map(|(id, _)| id).collect();
        let mut wanted = written.clone();
        unfinished.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(unfinished, wanted);
    };
    holds(&store);
    drop(store);
    holds(&FileStore::open(dir.path(), config()).unwrap());
}

// spec: HUB-6-1
#[test]
fn the_first_end_in_files_is_final() {
    let dir = tempfile::tempdir().unwrap();
    takes_the_first_end(&open(&dir).unwrap());
    let again = open(&dir).unwrap();
    assert_eq!(again.unfinished().unwrap(), []);
}

fn small() -> Config {
    Config::default()
        .with_log_id(LogId::from_bytes([7; 16]))
        .with_segment_bytes(4 << 10)
}

fn ended(message: &str) -> Record {
    Record::Ended(Outcome::new(Verdict::Completed, message))
}

/// Fills more than a segment with jobs that have ended.
fn fill(store: &FileStore, ids: &mut IdSource) {
    for _ in 0..16 {
        let id = ids.next_id();
        let payload = crate::wire::Payload::new("p".repeat(1000));
        let job = Job::test("t", vec![payload]);
        store
            .write(&[(id, Record::Accepted(job)), (id, ended("filler"))])
            .unwrap();
    }
}

// spec: HUB-6-1
#[test]
fn a_job_that_was_accepted_again_after_its_end_stays_ended() {
    let (disk, old) = (SimDisk::new(), SimDisk::new());
    let mut ids = IdSource::seeded(1);
    let id: JobId = ids.next_id();
    let accepted = || Record::Accepted(Job::test("t", Vec::new()));
    let store = FileStore::open_in(disk.dir(), small()).unwrap();
    store
        .write(&[(id, accepted()), (id, ended("once"))])
        .unwrap();
    fill(&store, &mut ids);
    store.write(&[(id, accepted())]).unwrap();
    store.compact(0, &*old.dir()).unwrap();
    drop(store);
    let store = FileStore::open_in(disk.dir(), small()).unwrap();
    assert_eq!(store.unfinished().unwrap(), []);
    store.compact(0, &*old.dir()).unwrap();
    drop(store);
    let store = FileStore::open_in(disk.dir(), small()).unwrap();
    assert_eq!(store.unfinished().unwrap(), []);
}

// spec: HUB-6-1
#[test]
fn a_second_end_does_not_become_the_first_when_that_is_archived() {
    let (disk, old) = (SimDisk::new(), SimDisk::new());
    let mut ids = IdSource::seeded(1);
    let id: JobId = ids.next_id();
    let store = FileStore::open_in(disk.dir(), small()).unwrap();
    let accepted = Record::Accepted(Job::test("t", Vec::new()));
    store
        .write(&[(id, accepted), (id, ended("first"))])
        .unwrap();
    fill(&store, &mut ids);
    store.write(&[(id, ended("second"))]).unwrap();
    store.compact(100, &*old.dir()).unwrap();
    drop(store);
    let store = FileStore::open_in(disk.dir(), small()).unwrap();
    let outcome = store.outcome(id).unwrap().unwrap();
    assert_eq!(outcome.message, "first");
}

/// A folder in which a job ends when a segment is opened to be read, once that is armed. The end fills its segment.
#[derive(Debug)]
struct Watched {
    dir: Arc<dyn LogDir>,
    is_armed: AtomicBool,
    then: Mutex<Option<std::sync::Weak<FileStore>>>,
    job: JobId,
    /// Whether the end was written.
    is_ended: AtomicBool,
}

impl LogDir for Watched {
    fn list(&self) -> std::io::Result<Vec<String>> {
        self.dir.list()
    }

    fn create(&self, name: &str) -> std::io::Result<Arc<dyn LogFile>> {
        self.dir.create(name)
    }

    fn open(&self, name: &str, write: bool) -> std::io::Result<Arc<dyn LogFile>> {
        if self.is_armed.swap(false, Ordering::Relaxed) {
            let store = lock(&self.then).as_ref().and_then(std::sync::Weak::upgrade);
            let done = store
                .unwrap()
                .write(&[(self.job, ended(&"meanwhile".repeat(500)))]);
            self.is_ended.store(done.is_ok(), Ordering::Relaxed);
        }
        self.dir.open(name, write)
    }

    fn rename(&self, from: &str, to: &str) -> std::io::Result<()> {
        self.dir.rename(from, to)
    }

    fn remove(&self, name: &str) -> std::io::Result<()> {
        self.dir.remove(name)
    }

    fn sync(&self) -> std::io::Result<()> {
        self.dir.sync()
    }

    fn lock(&self) -> std::io::Result<Option<DirLock>> {
        self.dir.lock()
    }
}

/// More effects than a compaction has.
const NEVER: u64 = 1 << 20;

/// Two compactions, each of which dies at one of its durable effects, or of one process if the first does not. A job ends while
/// the first copies it. Returns how many effects each had.
fn compact_twice(first: u64, second: u64) -> [u64; 2] {
    let (disk, old) = (SimDisk::new(), SimDisk::new());
    let mut ids = IdSource::seeded(1);
    let [ends, stays, done] = [(); 3].map(|()| ids.next_id::<JobId>());
    let job = |n: &str| Job::test("t", vec![crate::wire::Payload::new(n)]);
    let dir = Arc::new(Watched {
        dir: disk.dir(),
        is_armed: AtomicBool::new(false),
        then: Mutex::default(),
        job: ends,
        is_ended: AtomicBool::new(false),
    });
    let store = Arc::new(FileStore::open_in(dir.clone(), small()).unwrap());
    *lock(&dir.then) = Some(Arc::downgrade(&store));
    store
        .write(&[(ends, Record::Accepted(job("ends")))])
        .unwrap();
    store
        .write(&[(stays, Record::Accepted(job("stays")))])
        .unwrap();
    fill(&store, &mut ids);
    store
        .write(&[
            (done, Record::Accepted(job("done"))),
            (done, ended("before")),
        ])
        .unwrap();
    let mut effects = [0; 2];
    let mut compact = |store: &FileStore, keep, cut: u64, n: usize| {
        let before = disk.operations();
        disk.cut_power_after(cut);
        let done = store.compact(keep, &*old.dir());
        effects[n] = disk.operations() - before;
        assert!(done.is_ok() || effects[n] >= cut, "{done:?}");
    };
    dir.is_armed.store(true, Ordering::Relaxed);
    compact(&store, 100, first, 0);
    let reopen = |store: Arc<FileStore>| {
        drop(store);
        disk.restart(first ^ second);
        old.restart(second);
        Arc::new(FileStore::open_in(disk.dir(), small()).unwrap())
    };
    let holds = |store: &FileStore, keeps: bool| {
        let unfinished: Vec<_> = store.unfinished().unwrap();
        assert!(
            unfinished.contains(&(stays, job("stays"))),
            "{first} {second}"
        );
        let is_left = unfinished.iter().any(|(id, _)| *id == ends);
        let is_ended = dir.is_ended.load(Ordering::Relaxed);
        assert!(!is_left || !is_ended, "it came back: {first} {second}");
        assert!(unfinished.iter().all(|(id, _)| [ends, stays].contains(id)));
        let outcome = store.outcome(done).unwrap();
        assert!(!keeps || outcome.is_some_and(|outcome| outcome.message == "before"));
    };
    let store = if first == NEVER { store } else { reopen(store) };
    holds(&store, true);
    // Segments end anywhere.
    fill(&store, &mut ids);
    compact(&store, 0, second, 1);
    holds(&reopen(store), false);
    effects
}

// spec: HUB-6-1
#[test]
fn a_finished_job_does_not_come_back_however_two_compactions_end() {
    let [first, second] = compact_twice(NEVER, NEVER);
    assert!(first > 7 && second > 7, "{first} {second}");
    for one in (0..=first).chain([NEVER]) {
        for other in 0..=second {
            compact_twice(one, other);
        }
    }
}

// spec: HUB-6-1
#[test]
fn jobs_of_more_bytes_than_one_write_takes_are_compacted() {
    let (dir, old) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = open(&dir).unwrap();
    let mut ids = IdSource::seeded(1);
    let payload = || crate::wire::Payload::file("p", "p", "", vec![7; 48 << 20]);
    for _ in 0..4 {
        let record = Record::Accepted(Job::test("t", vec![payload()]));
        store.write(&[(ids.next_id(), record)]).unwrap();
    }
    assert_eq!(store.compact(0, &archive(&old)).unwrap(), 0);
    assert_eq!(store.unfinished().unwrap().len(), 4);
}

mod failures;
