//! Proving, following and archiving beside a writer at full speed.
#![expect(
    clippy::disallowed_methods,
    reason = "a race is run for a time, not for a count"
)]

use super::{BOUND, config, drain, open, payload, segment};
use proptest::prelude::*;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use ubos_common::log::format::Fault;
use ubos_common::log::{
    ArchiveError, Config, DirLock, FsDir, Log, LogDir, LogFile, ReadError, Reader, SimDisk, Sync,
    Verify,
};

const FOLDER: &str = "UBOS_LOG_BESIDE_FOLDER";
const SPEED: &str = "UBOS_LOG_BESIDE_SPEED";

/// Settings of a writer at full speed, with small or large segments.
fn fast(segment_bytes: u64) -> Config {
    config()
        .with_sync(Sync::None)
        .with_segment_bytes(segment_bytes)
}

/// Appends `count` records, or until it is stopped.
fn write(log: &Log, count: u64, stop: &AtomicBool) {
    for n in 0..count {
        log.append(&payload(n, (n * 37 % 300) as usize)).unwrap();
        if stop.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// Proves the log again and again while it is written, at least twice; what was there before must be proven each time.
/// `written` tells how many records that is, and whether to go on.
fn prove_while(folder: &Path, written: impl Fn() -> (u64, bool)) {
    let dir = FsDir::new(folder);
    let mut rounds = 0;
    loop {
        let (before, goes_on) = written();
        if rounds >= 2 && !goes_on {
            return;
        }
        // Mostly the end alone, so that there are many rounds.
        let from = if rounds % 10 == 0 {
            0
        } else {
            before.saturating_sub(100)
        };
        let proven = Verify::default().from(from).run(&dir);
        let proven = proven.unwrap_or_else(|error| panic!("round {rounds}: {error}"));
        assert!(proven.head.next_sequence >= before, "round {rounds}");
        let report = Verify::default().from(from).kept(proven.head).fsck(&dir);
        assert_eq!(report.unwrap().findings, [], "round {rounds}");
        rounds += 1;
    }
}

#[test]
fn a_proof_beside_a_thread_that_writes_is_right() {
    for segment_bytes in [20_000, 4 << 20] {
        let folder = tempfile::tempdir().unwrap();
        let log = Log::open(folder.path(), fast(segment_bytes)).unwrap();
        let (done, stop) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                write(&log, 150_000, &stop);
                done.store(true, Ordering::Relaxed);
            });
            let start = Instant::now();
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                prove_while(folder.path(), || {
                    let goes_on = !done.load(Ordering::Relaxed) && start.elapsed().as_secs() < 3;
                    (log.head().next_sequence, goes_on)
                });
            }));
            stop.store(true, Ordering::Relaxed);
            assert!(outcome.is_ok());
        });
    }
}

/// The child: appends until its standard input ends.
#[test]
#[ignore = "run by the test below, in a process of its own"]
fn child() {
    let (Some(folder), Some(speed)) = (std::env::var_os(FOLDER), std::env::var(SPEED).ok()) else {
        return;
    };
    let config = match speed.as_str() {
        "synced" => config(),
        _ => fast(200_000),
    };
    let log = Log::open(PathBuf::from(folder), config).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = io::stdin().read(&mut [0]);
            stop.store(true, Ordering::Relaxed);
        });
        write(&log, 150_000, &stop);
    });
}

#[test]
fn a_proof_beside_a_process_that_writes_is_right() {
    for speed in ["synced", "unsynced"] {
        let folder = tempfile::tempdir().unwrap();
        drop(Log::open(folder.path(), fast(200_000)).unwrap());
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--ignored",
                "--exact",
                "log::beside::child",
                "--test-threads=1",
            ])
            .env(FOLDER, folder.path())
            .env(SPEED, speed)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let start = Instant::now();
        while Reader::open(folder.path()).next().unwrap().is_none() {
            assert!(start.elapsed() < BOUND, "the child writes nothing");
        }
        let start = Instant::now();
        let outcome = std::panic::catch_unwind(|| {
            let written = std::cell::RefCell::new((Reader::open(folder.path()), 0));
            prove_while(folder.path(), || {
                let (reader, before) = &mut *written.borrow_mut();
                *before += drain(reader).len() as u64;
                (*before, start.elapsed() < Duration::from_secs(3))
            });
        });
        drop(child.stdin.take());
        let start = Instant::now();
        let ended = loop {
            if let Some(ended) = child.try_wait().unwrap() {
                break ended;
            }
            if start.elapsed() > BOUND {
                child.kill().unwrap();
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        assert!(ended.success(), "{ended}");
        assert!(outcome.is_ok(), "{speed}");
    }
}

/// Twelve segments of a simulated log, and a folder to archive to.
fn many_segments() -> (SimDisk, Log, SimDisk) {
    let disk = SimDisk::new();
    let log = open(&disk, &config().with_segment_bytes(3000));
    for n in 0..60 {
        log.append(&payload(n, 500)).unwrap();
    }
    (disk, log, SimDisk::new())
}

#[test]
fn a_follower_whose_next_segment_was_archived_is_told() {
    for in_process in [false, true] {
        let (disk, log, target) = many_segments();
        let mut reader = if in_process {
            log.reader()
        } else {
            Reader::open_in(disk.dir(), Default::default())
        };
        // It stands anywhere in the first segment, also at its very end.
        for stand in 1..7 {
            reader.seek(0);
            for _ in 0..stand {
                reader.next().unwrap().unwrap();
            }
        }
        let moved = log.archive(40, target.dir().as_ref()).unwrap();
        let first = moved.head.unwrap().next_sequence;
        let mut seen = 0;
        let error = loop {
            match reader.next() {
                Ok(Some(_)) => seen += 1,
                Ok(None) => panic!("nothing more, below what is visible"),
                Err(error) => break error,
            }
        };
        assert!(seen < 40);
        assert!(
            matches!(error, ReadError::Archived { first: found, .. } if found == first),
            "{error}"
        );
        reader.seek(first);
        assert_eq!(drain(&mut reader).len() as u64, 60 - first);
    }
}

/// Stops the others, also where this one panics: the scope waits for them.
struct Stops<'s>(&'s AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn readers_beside_archiving_get_records_or_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let target = tempfile::tempdir().unwrap();
    let log = Log::open(folder.path(), fast(4000)).unwrap();
    let target = FsDir::new(target.path());
    let stop = AtomicBool::new(false);
    let follow = |make: &dyn Fn() -> Reader| {
        let mut opened = 0;
        while !stop.load(Ordering::Relaxed) || opened < 50 {
            let mut reader = make();
            opened += 1;
            let mut next = None;
            for _ in 0..40 {
                let visible = log.head().next_sequence;
                match reader.next() {
                    Ok(Some(entry)) => {
                        let sequence = entry.position.sequence;
                        assert!(next.is_none_or(|next| next == sequence));
                        next = Some(sequence + 1);
                    }
                    Ok(None) => assert!(
                        next.is_none_or(|next| next >= visible),
                        "{next:?} {visible}"
                    ),
                    Err(ReadError::Archived { wanted, first }) => {
                        assert!(wanted < first);
                        break;
                    }
                    Err(error) => panic!("{error:?}"),
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let readers = [
            scope.spawn(|| follow(&|| log.reader())),
            scope.spawn(|| follow(&|| Reader::open(folder.path()))),
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    Verify::default().run(&FsDir::new(folder.path())).unwrap();
                }
            }),
        ];
        let _stops = Stops(&stop);
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(2)
            && !readers
                .iter()
                .any(std::thread::ScopedJoinHandle::is_finished)
        {
            for n in 0..40 {
                log.append(&payload(n, 300)).unwrap();
            }
            log.archive(log.head().next_sequence, &target).unwrap();
        }
    });
    Verify::default().run(&target).unwrap();
}

#[test]
fn archiving_into_the_logs_own_folder_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("log");
    let log = Log::open(&folder, config().with_segment_bytes(1000)).unwrap();
    for n in 0..20 {
        log.append(&payload(n, 300)).unwrap();
    }
    std::os::unix::fs::symlink(&folder, root.path().join("link")).unwrap();
    for name in ["log", "link", "./log/", "log/../link/."] {
        let target = FsDir::new(root.path().join(name));
        assert!(
            matches!(log.archive(15, &target), Err(ArchiveError::SameFolder)),
            "{name}"
        );
    }
    // A folder that does not say which one it is, as one mounted from elsewhere: what is made in it tells.
    let hidden = Hidden(FsDir::new(&folder), AtomicU64::new(0));
    assert!(matches!(
        log.archive(15, &hidden),
        Err(ArchiveError::SameFolder)
    ));
    assert_eq!(drain(&mut log.reader()).len(), 20);
    let (disk, log, _) = many_segments();
    assert!(matches!(
        log.archive(40, disk.dir().as_ref()),
        Err(ArchiveError::SameFolder)
    ));
    assert_eq!(drain(&mut log.reader()).len(), 60);
}

/// A folder without an identity. So many listings pass over its second segment.
#[derive(Debug)]
struct Hidden(FsDir, AtomicU64);

impl LogDir for Hidden {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = self.0.list()?;
        if self.1.load(Ordering::Relaxed) > 0 {
            self.1.fetch_sub(1, Ordering::Relaxed);
            names.retain(|name| *name != segment(1));
        }
        Ok(names)
    }
    fn create(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        self.0.create(name)
    }
    fn open(&self, name: &str, write: bool) -> io::Result<Arc<dyn LogFile>> {
        self.0.open(name, write)
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

#[test]
fn a_segment_that_a_listing_passes_over_is_found_by_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::open(folder.path(), config().with_segment_bytes(1000)).unwrap();
    for n in 0..9 {
        log.append(&payload(n, 300)).unwrap();
    }
    let hidden = Hidden(FsDir::new(folder.path()), AtomicU64::new(1));
    let proven = Verify::default().run(&hidden).unwrap();
    assert_eq!(proven.head, log.head());
}

/// A folder in which something happens before a file is opened, by its name.
struct Beside<F>(SimDisk, F);

impl<F> std::fmt::Debug for Beside<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Beside")
    }
}

impl<F: Fn(&str) + Send + std::marker::Sync> LogDir for Beside<F> {
    fn list(&self) -> io::Result<Vec<String>> {
        self.0.dir().list()
    }
    fn create(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        self.0.dir().create(name)
    }
    fn open(&self, name: &str, write: bool) -> io::Result<Arc<dyn LogFile>> {
        self.1(name);
        self.0.dir().open(name, write)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.dir().rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.dir().remove(name)
    }
    fn sync(&self) -> io::Result<()> {
        self.0.dir().sync()
    }
    fn lock(&self) -> io::Result<Option<DirLock>> {
        self.0.dir().lock()
    }
}

#[test]
fn a_proof_goes_on_into_segments_that_are_begun_meanwhile() {
    // More than two are for the next proof: this one must come to an end.
    for times in 0..3 {
        let disk = SimDisk::new();
        let log = open(&disk, &config().with_segment_bytes(1000));
        log.append(&payload(0, 300)).unwrap();
        let left = AtomicU64::new(times);
        // Four records begin another segment.
        let folder = Beside(disk, |_: &str| {
            if left.load(Ordering::Relaxed) > 0 {
                left.fetch_sub(1, Ordering::Relaxed);
                for n in 0..4 {
                    log.append(&payload(n, 300)).unwrap();
                }
            }
        });
        let proven = Verify::default().run(&folder).unwrap();
        assert_eq!((proven.head, proven.records), (log.head(), 1 + 4 * times));
    }
}

#[test]
fn a_follower_goes_on_where_its_segment_was_archived_when_it_had_read_all_of_it() {
    let (disk, target) = (SimDisk::new(), SimDisk::new());
    let log = open(&disk, &config().with_segment_bytes(1000));
    log.append(&payload(0, 900)).unwrap();
    let goes_on = Arc::new(AtomicBool::new(false));
    let is_due = Arc::clone(&goes_on);
    // The follower opens its own segment again when it has seen none behind it.
    let folder = Beside(disk, move |name: &str| {
        if name == segment(0) && is_due.swap(false, Ordering::Relaxed) {
            log.append(&payload(1, 900)).unwrap();
            let moved = log.archive(1, target.dir().as_ref()).unwrap();
            assert_eq!(moved.segments, 1);
        }
    });
    let mut reader = Reader::open_in(Arc::new(folder), Default::default());
    assert_eq!(drain(&mut reader), [(0, payload(0, 900))]);
    goes_on.store(true, Ordering::Relaxed);
    assert_eq!(drain(&mut reader), [(1, payload(1, 900))]);
}

#[test]
fn a_follower_whose_segment_was_taken_away_with_what_follows_is_told() {
    let disk = SimDisk::new();
    let log = open(&disk, &config().with_segment_bytes(1000));
    log.append(&payload(0, 900)).unwrap();
    log.append(&payload(1, 900)).unwrap();
    let mut reader = Reader::open_in(disk.dir(), Default::default());
    assert_eq!(drain(&mut reader).len(), 2);
    disk.dir().remove(&segment(1)).unwrap();
    let lost = reader.next().map(|entry| entry.map(|entry| entry.position));
    match lost {
        Err(ReadError::Damaged(damage)) => {
            assert_eq!(damage.fault, Fault::MissingSegment { index: 1 });
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn removing_files_beside_the_segments_admits_no_second_writer() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("log");
    let log = Log::open(&folder, config()).unwrap();
    log.append(b"one").unwrap();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "seg") {
            std::fs::remove_file(path).unwrap();
        }
    }
    let locked = |folder: &Path| {
        let second = Log::open(folder, config());
        matches!(second, Err(ubos_common::log::OpenError::Locked))
    };
    assert!(locked(&folder));
    std::os::unix::fs::symlink(&folder, root.path().join("link")).unwrap();
    assert!(locked(&root.path().join("link")));
    // The same segment in another folder.
    let other = root.path().join("other");
    std::fs::create_dir(&other).unwrap();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        std::fs::hard_link(&path, other.join(path.file_name().unwrap())).unwrap();
    }
    assert!(locked(&other));
    log.append(b"two").unwrap();
    log.close().unwrap();
    assert_eq!(
        Log::open(&folder, config()).unwrap().head().next_sequence,
        2
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever is visible when a proof begins is in it, wherever segments end.
    #[test]
    fn a_proof_ends_where_the_log_ends(lengths in prop::collection::vec(0_usize..900, 0..40), segment in 300_u64..3000) {
        let disk = SimDisk::new();
        let log = open(&disk, &config().with_segment_bytes(segment));
        for (n, length) in (0..).zip(&lengths) {
            log.append(&payload(n, *length)).unwrap();
            let proven = Verify::default().run(disk.dir().as_ref()).unwrap();
            prop_assert_eq!(proven.head, log.head());
        }
    }
}

type Peeking = Arc<Mutex<Option<(Reader, u64)>>>;

/// A folder whose files are read by a reader of the writer's own while they are synced.
#[derive(Debug)]
struct PeekedDir(Arc<dyn LogDir>, Peeking);

#[derive(Debug)]
struct PeekedFile(Arc<dyn LogFile>, Peeking);

impl LogDir for PeekedDir {
    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }
    fn create(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        let file = self.0.create(name)?;
        Ok(Arc::new(PeekedFile(file, Arc::clone(&self.1))))
    }
    fn open(&self, name: &str, write: bool) -> io::Result<Arc<dyn LogFile>> {
        self.0.open(name, write)
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

impl LogFile for PeekedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_at(bytes, offset)
    }
    fn sync(&self) -> io::Result<()> {
        if let Some((reader, peeked)) = &mut *self.1.lock().unwrap() {
            assert!(reader.next().unwrap().is_none(), "read before its sync");
            *peeked += 1;
        }
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

#[test]
fn a_record_is_read_after_its_sync_and_not_before() {
    let peeking = Peeking::default();
    let dir = PeekedDir(SimDisk::new().dir(), Arc::clone(&peeking));
    let log = Log::open_in(Arc::new(dir), config()).unwrap();
    log.append(b"first").unwrap();
    *peeking.lock().unwrap() = Some((log.reader(), 0));
    let next = || {
        let mut peeking = peeking.lock().unwrap();
        let (reader, _) = peeking.as_mut().unwrap();
        reader.next().unwrap().map(|entry| entry.bytes.to_vec())
    };
    assert_eq!(next(), Some(b"first".to_vec()));
    for n in 0..4 {
        log.append(&payload(n, 50)).unwrap();
        assert_eq!(next(), Some(payload(n, 50)));
    }
    let peeked = peeking.lock().unwrap().as_ref().map(|(_, peeked)| *peeked);
    assert_eq!(peeked, Some(4));
    *peeking.lock().unwrap() = None;
}

#[test]
fn whoever_waits_for_the_commit_of_another_is_woken() {
    let peeking = Peeking::default();
    let dir = PeekedDir(SimDisk::new().dir(), Arc::clone(&peeking));
    let log = Arc::new(Log::open_in(Arc::new(dir), config()).unwrap());
    // One leads and stands in its sync; the others wait for it.
    let held = peeking.lock().unwrap();
    let (done, ends) = mpsc::channel();
    for n in 0..8 {
        let (log, done) = (Arc::clone(&log), done.clone());
        std::thread::spawn(move || done.send(log.append(&[n]).unwrap().sequence));
    }
    std::thread::sleep(Duration::from_millis(100));
    drop(held);
    let mut seen = (0..8)
        .map(|_| ends.recv_timeout(BOUND).expect("woken"))
        .collect::<Vec<_>>();
    seen.sort_unstable();
    assert_eq!(seen, (0..8).collect::<Vec<_>>());
}
