//! The bounds of journals.

use futures::executor::block_on;
use uap_agent::journal::{FileJournal, FileJournalConfig, Journal, JournalError, MemoryJournal};
use uap_agent::{AgentState, ThreadTree, Trace, TraceLimits};
use ubos_common::id::IdSource;
use ubos_common::json::{RawBuf, RawObject};

/// What an entry counts besides its text.
const ENTRY: usize = 32;

fn entry(bytes: usize) -> RawObject {
    let text = format!(r#"{{"text":"{}"}}"#, "x".repeat(bytes - 11));
    RawObject::new(RawBuf::assume_sound(text)).unwrap()
}

// spec: UAP-12-5
#[test]
fn a_journal_in_files_takes_nothing_that_it_cannot_give_back() {
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let config = FileJournalConfig::default().with_max_bytes(5000 + 3 * ENTRY);
        FileJournal::open_with(folder.path(), &config).unwrap()
    };
    let journal = open();
    block_on(journal.append(0, vec![entry(2000)])).unwrap();
    let full = JournalError::Full {
        limit: 5000 + 3 * ENTRY,
        unit: "bytes",
    };
    assert_eq!(
        block_on(journal.append(1, vec![entry(3001 + ENTRY)])).unwrap_err(),
        full
    );
    block_on(journal.append(1, vec![entry(2000)])).unwrap();
    drop(journal);
    // What is there counts when the folder is opened again.
    let journal = open();
    assert_eq!(
        block_on(journal.append(2, vec![entry(1001)])).unwrap_err(),
        full
    );
    block_on(journal.append(2, vec![entry(1000)])).unwrap();
    assert_eq!(block_on(journal.read()).unwrap().len(), 3);

    let folder = tempfile::tempdir().unwrap();
    let journal = FileJournal::open(folder.path()).unwrap();
    let long = block_on(journal.append(0, vec![entry((16 << 20) + 1)])).unwrap_err();
    let unit = "bytes in an entry";
    assert_eq!(
        long,
        JournalError::Full {
            limit: 16 << 20,
            unit
        }
    );
    let many = vec![entry(12 << 20), entry(12 << 20), entry(12 << 20)];
    let long = block_on(journal.append(0, many)).unwrap_err();
    assert!(
        matches!(
            long,
            JournalError::Full {
                unit: "bytes in one write",
                ..
            }
        ),
        "{long}"
    );
    let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(300), "]".repeat(300));
    let deep = RawObject::new(RawBuf::assume_sound(deep)).unwrap();
    let refused = block_on(journal.append(0, vec![deep])).unwrap_err();
    assert!(
        matches!(refused, JournalError::Entry { entry: 0, .. }),
        "{refused}"
    );
    assert!(block_on(journal.read()).unwrap().is_empty());
    block_on(journal.append(0, vec![entry(100)])).unwrap();
}

// spec: UAP-12-5
#[test]
fn many_small_entries_are_bounded_by_the_memory_that_they_take() {
    let folder = tempfile::tempdir().unwrap();
    let limit = 1000 * ENTRY;
    let config = FileJournalConfig::default().with_max_bytes(limit);
    let files = FileJournal::open_with(folder.path(), &config).unwrap();
    let memory = MemoryJournal::with_max_bytes(limit).unwrap();
    let many = |count| vec![RawObject::empty(); count];
    for journal in [&files as &dyn Journal, &memory] {
        let unit = "bytes";
        let refused = block_on(journal.append(0, many(942))).unwrap_err();
        assert_eq!(refused, JournalError::Full { limit, unit });
        // An entry takes 34 bytes.
        block_on(journal.append(0, many(941))).unwrap();
        assert_eq!(block_on(journal.read()).unwrap().len(), 941);
    }
}

// spec: UAP-12-5
#[test]
fn bounds_that_let_nothing_in_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = |bytes| {
        let config = FileJournalConfig::default().with_max_bytes(bytes);
        match FileJournal::open_with(folder.path(), &config).unwrap_err() {
            JournalError::Setting(error) => error,
            error => panic!("{error}"),
        }
    };
    let most = FileJournalConfig::default().with_max_bytes(256 << 20);
    FileJournal::open_with(folder.path(), &most).unwrap();
    let trace = |limits| Trace::new(limits).unwrap_err();
    let mut ids = IdSource::seeded(1);
    let tree = ThreadTree::new(&mut IdSource::seeded(2), AgentState::initial(&mut ids));
    let told = [
        MemoryJournal::with_max_bytes(0).unwrap_err(),
        file(0),
        file((256 << 20) + 1),
        tree.with_limit(0).unwrap_err(),
        trace(TraceLimits::default().with_max_events(0)),
        trace(TraceLimits::default().with_max_bytes(0)),
        trace(TraceLimits::default().with_max_event_bytes(0)),
    ];
    for (error, name) in told.iter().zip([
        "max_bytes",
        "max_bytes",
        "max_bytes",
        "limit",
        "max_events",
        "max_bytes",
        "max_event_bytes",
    ]) {
        assert!(error.to_string().starts_with(name), "{error}");
    }
}

// spec: UAP-12-5
#[test]
fn journals_of_two_folders_are_told_apart_by_their_ids() {
    let first_bytes = || {
        let folder = tempfile::tempdir().unwrap();
        let journal = FileJournal::open(folder.path()).unwrap();
        block_on(journal.append(0, vec![entry(2000)])).unwrap();
        drop(journal);
        let mut files: Vec<_> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|file| file.unwrap().path())
            .collect();
        files.sort();
        std::fs::read(&files[0]).unwrap()
    };
    assert_ne!(first_bytes(), first_bytes());
}
