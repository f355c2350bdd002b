//! Checkpoints in files, sealed.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::executor::block_on;
use uap_agent::{
    AgentState, CheckpointError, CheckpointHistory, CheckpointStore, FileCheckpoints,
    LogCheckpoints,
};
use uap_agent::{Seal, SealError};
use ubos_common::id::IdSource;

use crate::log_store::Steps;

/// A toy: it hides and binds enough for tests, and protects nothing from anybody. Never take it for a cipher.
pub(crate) struct Toy {
    key: u64,
    calls: std::sync::atomic::AtomicU64,
}

impl Toy {
    pub(crate) fn new(key: u64) -> Self {
        Self {
            key,
            calls: std::sync::atomic::AtomicU64::new(1),
        }
    }

    fn stream(&self, nonce: u64) -> impl Iterator<Item = u8> {
        let mut ids = IdSource::seeded(self.key ^ nonce.rotate_left(32));
        std::iter::repeat_with(move || ids.bits().to_le_bytes()).flatten()
    }

    fn tag(&self, bound: &[u8], nonce: u64, plain: &[u8]) -> [u8; 32] {
        let mut text = [&self.key.to_le_bytes()[..], &nonce.to_le_bytes()].concat();
        text.extend((bound.len() as u64).to_le_bytes());
        text.extend(bound);
        text.extend(plain);
        *ubos_common::canon::Digest::of_bytes(&text).as_bytes()
    }
}

impl Seal for Toy {
    fn seal(&self, bound: &[u8], plain: &[u8]) -> Result<Vec<u8>, SealError> {
        let nonce = self.calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let mut sealed = nonce.to_le_bytes().to_vec();
        sealed.extend(self.tag(bound, nonce, plain));
        sealed.extend(plain.iter().zip(self.stream(nonce)).map(|(a, b)| a ^ b));
        Ok(sealed)
    }

    fn open(&self, bound: &[u8], sealed: &[u8]) -> Result<Vec<u8>, SealError> {
        let (nonce, rest) = sealed.split_first_chunk().ok_or(SealError::Refused)?;
        let (tag, hidden) = rest.split_first_chunk::<32>().ok_or(SealError::Refused)?;
        let nonce = u64::from_le_bytes(*nonce);
        let plain: Vec<u8> = hidden
            .iter()
            .zip(self.stream(nonce))
            .map(|(a, b)| a ^ b)
            .collect();
        if self.tag(bound, nonce, &plain) == *tag {
            Ok(plain)
        } else {
            Err(SealError::Refused)
        }
    }
}

fn all_files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(all_files(&path));
        } else {
            found.push((path.clone(), fs::read(path).unwrap()));
        }
    }
    found.sort_unstable();
    found
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len())
        .any(|part| part == text.as_bytes())
}

/// Both stores in files, over folders of their own.
fn stores(folder: &Path, seal: Option<u64>) -> [Box<dyn CheckpointStore>; 2] {
    let mut files = FileCheckpoints::open(folder.join("files")).unwrap();
    let mut log = LogCheckpoints::open(folder.join("log")).unwrap();
    if let Some(key) = seal {
        files = files.with_seal(Arc::new(Toy::new(key)));
        log = log.with_seal(Arc::new(Toy::new(key)));
    }
    [Box::new(files), Box::new(log)]
}

/// A session with secrets in each of its parts.
fn save_secrets(store: &dyn CheckpointStore, session: &str) -> AgentState {
    let mut steps = Steps::new(4);
    steps.agent = "agent-of-the-secret-service";
    for n in 0..5 {
        steps.step(300);
        let ids = &mut steps.ids;
        let state = steps.state.with_reasoning(ids, "secret reasoning");
        let state = state.with_metadata(
            ids,
            format!("secret-key-{n}"),
            upp::json_text("secret value"),
        );
        steps.state = state;
        steps.save(store, session).unwrap();
    }
    steps.state
}

// spec: UAP-15-1
#[test]
fn what_is_sealed_is_not_on_the_disk_in_plain() {
    let folder = tempfile::tempdir().unwrap();
    for store in stores(folder.path(), Some(1)) {
        let state = save_secrets(&*store, "s");
        assert_eq!(block_on(store.load("s")).unwrap(), Some(state));
        assert_eq!(block_on(store.list()).unwrap(), ["s"]);
    }
    let plain = tempfile::tempdir().unwrap();
    stores(plain.path(), None)
        .iter()
        .for_each(|store| drop(save_secrets(&**store, "s")));
    // The words are looked for where they must be found, too.
    for (folder, wanted) in [(folder.path(), false), (plain.path(), true)] {
        for (place, bytes) in all_files(folder)
            .into_iter()
            .filter(|(_, bytes)| !bytes.is_empty())
        {
            let found = [
                "secret", "xxxxxxxx", "agentId", "messages", "\"c\":", "1970",
            ];
            let found = found.iter().any(|word| contains(&bytes, word));
            assert_eq!(found, wanted, "{}", place.display());
        }
    }
}

// spec: UAP-15-1
#[test]
fn a_wrong_key_is_an_error_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let states = stores(folder.path(), Some(1)).map(|store| save_secrets(&*store, "s"));
    let before = all_files(folder.path());
    for (key, wanted) in [(Some(2), SealError::Refused), (None, SealError::NoKey)] {
        for store in stores(folder.path(), key) {
            let wanted = Err(CheckpointError::Sealed(wanted.clone()));
            assert_eq!(block_on(store.load("s")).map(drop), wanted);
            assert_eq!(block_on(store.load_metadata("s")).map(drop), wanted);
            let mut steps = Steps::new(8);
            steps.step(1);
            assert_eq!(steps.save(&*store, "s"), wanted);
        }
    }
    let log = LogCheckpoints::open(folder.path().join("log")).unwrap();
    let log = log.with_seal(Arc::new(Toy::new(2)));
    let wanted = CheckpointError::Sealed(SealError::Refused);
    assert_eq!(block_on(log.history("s")), Err(wanted.clone()));
    assert_eq!(block_on(log.prune("s", 1)), Err(wanted.clone()));
    let any = IdSource::seeded(1).uuid();
    assert_eq!(block_on(log.load_at("s", any)), Err(wanted.clone()));
    assert_eq!(block_on(log.fork("s", any, "t")), Err(wanted));
    drop(log);
    assert_eq!(all_files(folder.path()), before);
    for store in stores(folder.path(), Some(1)) {
        let loaded = block_on(store.load("s")).unwrap();
        assert_eq!(loaded.as_ref(), states.first());
    }
}

// spec: UAP-15-1
#[test]
fn what_somebody_without_the_key_wrote_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    stores(folder.path(), None)
        .iter()
        .for_each(|store| drop(save_secrets(&**store, "s")));
    let before = all_files(folder.path());
    for store in stores(folder.path(), Some(1)) {
        let wanted = Err(CheckpointError::Sealed(SealError::NotSealed));
        assert_eq!(block_on(store.load("s")).map(drop), wanted);
        let mut steps = Steps::new(8);
        steps.step(1);
        assert_eq!(steps.save(&*store, "s"), wanted);
    }
    assert_eq!(all_files(folder.path()), before);
}

// spec: UAP-15-1
#[test]
fn what_is_sealed_belongs_to_its_session_and_its_place() {
    let folder = tempfile::tempdir().unwrap();
    for store in stores(folder.path(), Some(1)) {
        save_secrets(&*store, "s");
    }
    let refused = Err(CheckpointError::Sealed(SealError::Refused));
    let files = folder.path().join("files");
    let copy = |from: &str, to: &str| {
        fs::create_dir_all(files.join("t")).unwrap();
        fs::copy(files.join(from), files.join(to)).unwrap();
    };
    copy("s/checkpoint.json", "t/checkpoint.json");
    copy("s/metadata.json", "t/metadata.json");
    let log = folder.path().join("log");
    fs::create_dir_all(log.join("t/g0000000000000000")).unwrap();
    let segment = "g0000000000000000/0000000000000000.seg";
    fs::copy(log.join("s").join(segment), log.join("t").join(segment)).unwrap();
    for store in stores(folder.path(), Some(1)) {
        assert_eq!(block_on(store.load("t")).map(drop), refused);
        assert!(block_on(store.load("s")).unwrap().is_some());
    }
    copy("s/metadata.json", "s/checkpoint.json");
    let [store, log] = stores(folder.path(), Some(1));
    assert_eq!(block_on(store.load("s")).map(drop), refused);
    drop(log);
    // One record in the place of another, in a chain that holds.
    let whole = folder.path().join("log/s/g0000000000000000");
    let mut records = Vec::new();
    let mut reader = ubos_common::log::Reader::open(&whole);
    while let Some(entry) = reader.next().unwrap() {
        records.push(entry.bytes.to_vec());
    }
    records.swap(1, 2);
    fs::remove_dir_all(&whole).unwrap();
    let config = ubos_common::log::Config::default().with_kind("uap-checkpoints");
    let id = ubos_common::log::LogId::from_bytes([3; 16]);
    let forged = ubos_common::log::Log::open(&whole, config.with_log_id(id)).unwrap();
    for record in records {
        forged.append(&record).unwrap();
    }
    drop(forged);
    let [_, log] = stores(folder.path(), Some(1));
    assert_eq!(block_on(log.load("s")).map(drop), refused);
}

/// A cipher that fails.
struct Broken;

impl Seal for Broken {
    fn seal(&self, _: &[u8], _: &[u8]) -> Result<Vec<u8>, SealError> {
        Err(SealError::Failed("no entropy".into()))
    }
    fn open(&self, _: &[u8], _: &[u8]) -> Result<Vec<u8>, SealError> {
        Err(SealError::Failed("no entropy".into()))
    }
}

// spec: UAP-15-1
#[test]
fn a_cipher_that_fails_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let files = FileCheckpoints::open(folder.path().join("files")).unwrap();
    let log = LogCheckpoints::open(folder.path().join("log")).unwrap();
    let stores: [Box<dyn CheckpointStore>; 2] = [
        Box::new(files.with_seal(Arc::new(Broken))),
        Box::new(log.with_seal(Arc::new(Broken))),
    ];
    for store in stores {
        let mut steps = Steps::new(1);
        steps.step(1);
        let failed = SealError::Failed("no entropy".into());
        assert_eq!(
            steps.save(&*store, "s"),
            Err(CheckpointError::Sealed(failed))
        );
        assert_eq!(block_on(store.load("s")), Ok(None));
        assert_eq!(block_on(store.list()).unwrap(), [""; 0]);
    }
}

/// A cipher that panics, until it is mended.
#[derive(Default)]
struct Panicking(std::sync::atomic::AtomicBool);

impl Panicking {
    fn pass(&self, bytes: &[u8]) -> Result<Vec<u8>, SealError> {
        assert!(self.0.load(std::sync::atomic::Ordering::Relaxed), "broken");
        Ok(bytes.to_vec())
    }
}

impl Seal for Panicking {
    fn seal(&self, _: &[u8], plain: &[u8]) -> Result<Vec<u8>, SealError> {
        self.pass(plain)
    }
    fn open(&self, _: &[u8], sealed: &[u8]) -> Result<Vec<u8>, SealError> {
        self.pass(sealed)
    }
}

// spec: UAP-15-1
#[test]
fn a_cipher_that_panics_takes_no_store_down() {
    let folder = tempfile::tempdir().unwrap();
    let seal = Arc::new(Panicking::default());
    let files = FileCheckpoints::open(folder.path().join("files")).unwrap();
    let log = LogCheckpoints::open(folder.path().join("log")).unwrap();
    let stores: [Box<dyn CheckpointStore>; 2] = [
        Box::new(files.with_seal(seal.clone())),
        Box::new(log.with_seal(seal.clone())),
    ];
    for store in stores {
        let is_mended = |mended| seal.0.store(mended, std::sync::atomic::Ordering::Relaxed);
        let panicked = || CheckpointError::Sealed(SealError::Failed("it panicked".into()));
        let mut steps = Steps::new(1);
        steps.step(1);
        is_mended(false);
        assert_eq!(steps.save(&*store, "s"), Err(panicked()));
        is_mended(true);
        steps.save(&*store, "s").unwrap();
        is_mended(false);
        assert_eq!(steps.save(&*store, "s"), Err(panicked()));
        is_mended(true);
        assert_eq!(block_on(store.load("s")), Ok(Some(steps.state)));
    }
}

/// Fails or removes a folder, where it is told to.
#[derive(Default)]
struct Disturbing {
    fails: std::sync::atomic::AtomicBool,
    removes: std::sync::Mutex<Option<PathBuf>>,
}

impl Seal for Disturbing {
    fn seal(&self, _: &[u8], plain: &[u8]) -> Result<Vec<u8>, SealError> {
        match self.fails.load(std::sync::atomic::Ordering::Relaxed) {
            true => Err(SealError::Failed("no entropy".into())),
            false => Ok(plain.to_vec()),
        }
    }
    fn open(&self, _: &[u8], sealed: &[u8]) -> Result<Vec<u8>, SealError> {
        if let Some(folder) = self.removes.lock().unwrap().take() {
            fs::remove_dir_all(folder).unwrap();
        }
        Ok(sealed.to_vec())
    }
}

// spec: UAP-12-4
#[test]
fn a_fork_that_fails_is_told_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let seal = Arc::new(Disturbing::default());
    let store = LogCheckpoints::open(folder.path()).unwrap();
    let store = store.with_seal(seal.clone());
    let mut steps = Steps::new(1);
    for _ in 0..2 {
        steps.step(5);
        steps.save(&store, "s").unwrap();
    }
    let checkpoint = block_on(store.history("s")).unwrap()[0].checkpoint_id;
    let fails = |fails| {
        seal.fails
            .store(fails, std::sync::atomic::Ordering::Relaxed)
    };
    let fork = folder.path().join("fork");
    fails(true);
    let refused = block_on(store.fork("s", checkpoint, "fork"));
    let failed = SealError::Failed("no entropy".into());
    assert_eq!(refused, Err(CheckpointError::Sealed(failed)));
    assert!(!fork.exists());
    fails(false);
    block_on(store.fork("s", checkpoint, "fork")).unwrap();
    block_on(store.delete("fork")).unwrap();
    // The session goes between a look at it and the copy.
    *seal.removes.lock().unwrap() = Some(folder.path().join("s"));
    let refused = block_on(store.fork("s", checkpoint, "fork"));
    assert_eq!(refused, Err(CheckpointError::Unknown { checkpoint }));
    assert!(!fork.exists());
}
