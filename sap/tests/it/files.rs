//! Stores in files: what stays, and how tampering shows.

use futures::FutureExt as _;
use futures::executor::block_on;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use sap::cache::CacheStore as _;
use sap::store::{
    FileCache, FileTranscript, MemoryCache, MemoryTranscript, Redacting, StoreKind, fsck,
};
use sap::transcript::{Entry, EntryKind, Head, Transcript, Verdict};
use sap::validate::Options;
use serde_json::json;
use ubos_common::json::RawObject;
use ubos_common::log::{Config, FsDir, LogId, OpenError, Sync, Verify};
use ubos_common::time::Timestamp;

use crate::samples::{read_result, read_task, result, task, with};

fn config() -> Config {
    Config::default()
        .with_log_id(LogId::from_bytes([5; 16]))
        .with_segment_bytes(1 << 16)
        .with_sync(Sync::None)
}

fn entries() -> Vec<Entry> {
    let (task, _) = read_task(&task(), &Options::default()).unwrap();
    let (result, _) = read_result(&result(), &Options::default()).unwrap();
    let at = Timestamp::EPOCH;
    vec![
        Entry::of(EntryKind::Task, at, &task).unwrap(),
        Entry::of(EntryKind::Result, at, &result).unwrap(),
    ]
}

/// The log's first segment, and where the bytes `needle` are in it.
fn segment(folder: &Path, needle: &str) -> (PathBuf, Vec<u8>, usize) {
    let paths = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let path = paths
        .filter(|path| fs::metadata(path).unwrap().len() > 1000)
        .min()
        .unwrap();
    let bytes = fs::read(&path).unwrap();
    let mut windows = bytes.windows(needle.len());
    let place = windows
        .position(|window| window == needle.as_bytes())
        .unwrap();
    (path, bytes, place)
}

/// Changes one byte inside the bytes `needle`.
fn tamper(folder: &Path, needle: &str) {
    let (path, mut bytes, place) = segment(folder, needle);
    bytes[place] ^= 1;
    fs::write(&path, bytes).unwrap();
}

/// Ends the segment inside the bytes `needle`, as a crash does.
fn cut(folder: &Path, needle: &str) {
    let (path, bytes, place) = segment(folder, needle);
    fs::write(&path, &bytes[..place]).unwrap();
}

fn reads_back_and_proves(transcript: &dyn Transcript) -> Head {
    for (number, entry) in entries().iter().enumerate() {
        assert_eq!(block_on(transcript.record(entry)).unwrap(), number as u64);
    }
    assert_eq!(block_on(transcript.read(0, 10)).unwrap(), entries());
    for (from, entry) in entries().into_iter().enumerate() {
        assert_eq!(block_on(transcript.read(from as u64, 1)).unwrap(), [entry]);
    }
    let proof = transcript.verify(None).unwrap();
    assert_eq!((proof.records, proof.verdict), (2, Verdict::Intact));
    proof.head
}

// spec: SAP-11-3
#[test]
fn a_transcript_shows_a_changed_byte_and_a_cut_tail() {
    let folder = tempfile::tempdir().unwrap();
    let transcript = FileTranscript::open(folder.path(), config()).unwrap();
    let head = reads_back_and_proves(&transcript);
    assert_eq!(
        transcript.verify(Some(&head)).unwrap().verdict,
        Verdict::Intact
    );
    let empty = tempfile::tempdir().unwrap();
    let other = FileTranscript::open(empty.path(), config()).unwrap();
    assert!(matches!(
        other.verify(Some(&head)).unwrap().verdict,
        Verdict::Broken { .. }
    ));
    assert!(
        transcript
            .verify(Some(&Head::from("memory:0:x".to_owned())))
            .is_err()
    );
    tamper(folder.path(), "SUCCEEDED");
    let Verdict::Broken { record, what } = transcript.verify(None).unwrap().verdict else {
        panic!("broken")
    };
    assert_eq!(record, Some(1), "{what}");
    drop(transcript);
    assert!(matches!(
        FileTranscript::open(folder.path(), config()),
        Err(OpenError::Damaged(_))
    ));
}

// spec: SAP-11-3
#[test]
fn a_transcript_goes_on_where_it_ended() {
    let folder = tempfile::tempdir().unwrap();
    let head = reads_back_and_proves(&FileTranscript::open(folder.path(), config()).unwrap());
    let again = FileTranscript::open(folder.path(), config()).unwrap();
    assert_eq!(block_on(again.record(&entries()[0])).unwrap(), 2);
    let proof = again.verify(Some(&head)).unwrap();
    assert_eq!((proof.records, proof.verdict), (3, Verdict::Intact));
    assert_eq!(
        again.log().sync().unwrap().to_string(),
        proof.head.to_string()
    );
}

// spec: SAP-11-3
#[test]
fn a_last_entry_cut_short_is_dropped_and_reported() {
    let folder = tempfile::tempdir().unwrap();
    let transcript = FileTranscript::open(folder.path(), config()).unwrap();
    reads_back_and_proves(&transcript);
    transcript.close();
    cut(folder.path(), "SUCCEEDED");
    let again = FileTranscript::open(folder.path(), config()).unwrap();
    assert_eq!(again.log().report().torn.as_ref().unwrap().sequence, 1);
    assert_eq!(block_on(again.read(0, 10)).unwrap(), entries()[..1]);
    assert_eq!(again.verify(None).unwrap().verdict, Verdict::Intact);
}

// spec: SAP-10-1
#[test]
fn what_is_made_of_an_entry_is_made_by_the_thread_of_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let transcript = FileTranscript::open(folder.path(), config()).unwrap();
    let [task, result] = entries().try_into().unwrap();
    let named = |mut entry: Entry| {
        let body = json!({"made by": std::thread::current().name()});
        entry.body = RawObject::from_serialize(&body).unwrap().unwrap();
        entry
    };
    let first = transcript.record_made(task, named);
    let second = transcript.record(&result);
    assert_eq!(
        (block_on(second).unwrap(), block_on(first).unwrap()),
        (1, 0)
    );
    let kept = block_on(transcript.read(0, 10)).unwrap();
    assert_eq!(kept[0].body.as_str(), r#"{"made by":"sap-store"}"#);
    assert_eq!(kept[1], result);
}

#[test]
fn a_result_is_taken_though_too_many_entries_wait_for_the_disk() {
    static GATE: Mutex<()> = Mutex::new(());
    let folder = tempfile::tempdir().unwrap();
    let transcript = FileTranscript::open(folder.path(), config()).unwrap();
    let [task, result] = entries().try_into().unwrap();
    let gate = GATE.lock().unwrap();
    let held_up = |entry: Entry| {
        drop(GATE.lock());
        entry
    };
    drop(transcript.record_made(task.clone(), held_up));
    let mut refused = (0..10_000).filter_map(|_| transcript.record(&task).now_or_never());
    assert!(refused.next().unwrap().is_err());
    let end = transcript.record(&result);
    drop(gate);
    assert!(block_on(end).is_ok());
}

#[test]
fn a_transcript_in_files_keeps_no_secret_where_it_redacts() {
    let folder = tempfile::tempdir().unwrap();
    let transcript = Redacting(FileTranscript::open(folder.path(), config()).unwrap());
    let mut secret = task();
    secret["payload"] = json!({"password": "hunter2", "n": 1});
    let (secret, _) = read_task(&secret, &Options::default()).unwrap();
    let entry = Entry::of(EntryKind::Task, Timestamp::EPOCH, &secret).unwrap();
    assert_eq!(block_on(transcript.record(&entry)).unwrap(), 0);
    let kept = block_on(transcript.read(0, 1)).unwrap().remove(0);
    let payload = r#""payload":{"n":1,"password":"[REDACTED]"}"#;
    assert!(
        kept.body.as_str().contains(payload),
        "{}",
        kept.body.as_str()
    );
    assert!(kept.digest.is_some());
}

#[test]
fn a_transcript_in_memory_is_chained_and_bounded() {
    let transcript = MemoryTranscript::new(2);
    let head = reads_back_and_proves(&transcript);
    assert!(block_on(transcript.record(&entries()[0])).is_err());
    assert_eq!(
        transcript.verify(Some(&head)).unwrap().verdict,
        Verdict::Intact
    );
    let empty = MemoryTranscript::default();
    assert!(matches!(
        empty.verify(Some(&head)).unwrap().verdict,
        Verdict::Broken {
            record: Some(0),
            ..
        }
    ));
}

// spec: SAP-6-8
#[test]
fn a_cache_in_files_stays_and_shows_a_changed_byte() {
    let folder = tempfile::tempdir().unwrap();
    crate::cache::keeps_versions(&FileCache::open(folder.path(), config()).unwrap());
    let (task, _) = read_task(&task(), &Options::default()).unwrap();
    let newest = crate::cache::record(&task, Timestamp::EPOCH, "\"newest\"");
    let cache = FileCache::open(folder.path(), config()).unwrap();
    block_on(cache.put(&newest)).unwrap();
    assert_eq!(cache.versions(&newest.cache_key).unwrap().len(), 4);
    assert_eq!(
        block_on(cache.find(&newest.cache_key))
            .unwrap()
            .record
            .as_ref(),
        Some(&newest)
    );
    tamper(folder.path(), "newest");
    let lookup = block_on(cache.find(&newest.cache_key)).unwrap();
    assert_eq!(lookup.damaged, 1);
    assert_eq!(lookup.record.unwrap().output.as_str(), "2");
    assert_eq!(cache.versions(&newest.cache_key).unwrap().len(), 3);
}

// spec: SAP-6-8
#[test]
fn a_record_of_a_cache_that_was_archived_is_a_miss_and_not_damaged() {
    let (folder, archive) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let cache = FileCache::open(folder.path(), config()).unwrap();
    let record = |n: u64| {
        let mut task = task();
        task["payload"] = json!({"n": n});
        let (task, _) = read_task(&task, &Options::default()).unwrap();
        let output = json!("long ".repeat(1_000)).to_string();
        crate::cache::record(&task, Timestamp::EPOCH, &output)
    };
    for n in 0..100 {
        block_on(cache.put(&record(n))).unwrap();
    }
    let to = FsDir::create(archive.path()).unwrap();
    assert!(cache.log().archive(50, &to).unwrap().segments > 0);
    let find = |n: u64| block_on(cache.find(&record(n).cache_key)).unwrap();
    let (moved, kept) = (find(0), find(99));
    assert_eq!((moved.record, moved.damaged), (None, 0));
    assert_eq!((kept.record, kept.damaged), (Some(record(99)), 0));
    assert_eq!(cache.versions(&record(0).cache_key).unwrap(), []);
}

// spec: SAP-11-3
#[test]
fn whole_segments_are_archived_and_the_chain_holds_over_both_folders() {
    let (folder, archive) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let transcript = FileTranscript::open(folder.path(), config()).unwrap();
    let entries = entries();
    for number in 0..200 {
        assert_eq!(
            block_on(transcript.record(&entries[number % 2])).unwrap(),
            number as u64
        );
    }
    let kept = transcript.verify(None).unwrap().head;
    let archived = transcript
        .log()
        .archive(100, &FsDir::create(archive.path()).unwrap())
        .unwrap();
    let head = Head::from(archived.head.unwrap().to_string());
    assert!(archived.segments > 0);
    let rest = |head: &Head| {
        let after = Verify::default().after(head.as_ref().parse().unwrap());
        after.run(&FsDir::new(folder.path()))
    };
    assert_eq!(rest(&head).unwrap().head.to_string(), kept.to_string());
    assert!(rest(&kept).is_ok_and(|proven| proven.records < 200));
    let moved = fsck(
        archive.path(),
        StoreKind::Transcript,
        std::slice::from_ref(&head),
    )
    .unwrap();
    let left = fsck(folder.path(), StoreKind::Transcript, &[kept]).unwrap();
    assert_eq!((moved.findings, left.findings), (vec![], vec![]));
    assert_eq!((moved.records + left.records, moved.head), (200, head));
    assert!(moved.records <= 100);
    // The rest is read by its numbers, and goes on.
    assert_eq!(block_on(transcript.read(199, 10)).unwrap(), entries[1..]);
    assert_eq!(block_on(transcript.record(&entries[0])).unwrap(), 200);
    drop(transcript);
    let again = FileTranscript::open(folder.path(), config()).unwrap();
    assert_eq!(block_on(again.record(&entries[0])).unwrap(), 201);
}

// spec: SAP-11-3, SAP-6-8
#[test]
fn fsck_names_all_that_is_wrong_with_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let transcript = FileTranscript::open(folder.path(), config()).unwrap();
    let head = reads_back_and_proves(&transcript);
    for entry in entries() {
        block_on(transcript.record(&entry)).unwrap();
    }
    transcript.close();
    let report = |kept: &[Head]| fsck(folder.path(), StoreKind::Transcript, kept).unwrap();
    assert_eq!(
        (
            report(std::slice::from_ref(&head)).records,
            report(&[head]).findings,
        ),
        (4, vec![])
    );
    let strangers = fsck(folder.path(), StoreKind::Cache, &[]).unwrap().findings;
    assert_eq!(
        strangers.iter().map(|f| f.record).collect::<Vec<_>>(),
        [0, 1, 2, 3]
    );
    tamper(folder.path(), "SUCCEEDED");
    let found = report(&[]);
    assert_eq!(
        (found.findings.len(), found.findings[0].record),
        (1, 1),
        "{found:?}"
    );
    assert!(!found.findings[0].what.contains("SUCCEEDED"));
    // Damage and strangers come in the order of the store.
    let both = fsck(folder.path(), StoreKind::Cache, &[]).unwrap().findings;
    let both: Vec<u64> = both.iter().map(|finding| finding.record).collect();
    assert_eq!(both, [0, 1]);
    // A tail that is gone is found by a head that was kept.
    let other = tempfile::tempdir().unwrap();
    let long = FileTranscript::open(other.path(), config()).unwrap();
    let head = reads_back_and_proves(&long);
    long.close();
    cut(other.path(), "SUCCEEDED");
    let cut_short = fsck(other.path(), StoreKind::Transcript, &[]).unwrap();
    assert_eq!((cut_short.torn, cut_short.findings), (Some(1), vec![]));
    assert!(
        !fsck(other.path(), StoreKind::Transcript, &[head])
            .unwrap()
            .findings
            .is_empty()
    );
    assert!(fsck(other.path().join("none"), StoreKind::Cache, &[]).is_err());
    assert!(
        fsck(
            other.path(),
            StoreKind::Cache,
            &[Head::from("memory:0:x".to_owned())]
        )
        .is_err()
    );
}

// spec: SAP-11-3
#[test]
fn fsck_looks_at_the_segments_behind_damage() {
    for damage in [tamper, cut] {
        let folder = tempfile::tempdir().unwrap();
        let transcript = FileTranscript::open(folder.path(), config()).unwrap();
        for number in 0..200 {
            let recorded = transcript.record(&entries()[number % 2]);
            // Each of these is a block of its own, of which one is damaged.
            if number < 100 {
                block_on(recorded).unwrap();
            }
        }
        // What was handed over is there, whether anybody waits for it or not.
        transcript.close();
        damage(folder.path(), "SUCCEEDED");
        let found = fsck(folder.path(), StoreKind::Cache, &[]).unwrap().findings;
        // A stranger, the damage, and the strangers of the other segments.
        let found: Vec<u64> = found.iter().map(|finding| finding.record).collect();
        let (first, rest) = found.split_at(2);
        assert_eq!(first, [0, 1]);
        let second = fs::read(folder.path().join("0000000000000001.seg")).unwrap();
        let begins = u64::from_le_bytes(second[40..48].try_into().unwrap());
        assert!(begins < 100 && rest.iter().copied().eq(begins..200));
    }
}

#[test]
fn a_store_of_the_other_kind_is_refused_and_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let config = || Config::default().with_log_id(LogId::from_bytes([7; 16]));
    FileTranscript::open(folder.path(), config())
        .unwrap()
        .close();
    let names = || -> Vec<_> {
        let entries = fs::read_dir(folder.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect()
    };
    let before = names();
    let error = FileCache::open(folder.path(), config()).unwrap_err();
    let text = std::error::Error::source(&error).unwrap().to_string();
    assert!(
        text.contains("sap-transcript") && text.contains("sap-cache"),
        "{text}"
    );
    assert_eq!(names(), before);
}

#[cfg(feature = "driver")]
// spec: SAP-5-10, SAP-11-3
#[test]
fn what_is_left_after_archiving_is_proved_and_resumed() {
    use crate::processor::{Jumping, answering_on, cached_off, result, run};
    let (folder, archive) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let open = || std::sync::Arc::new(FileTranscript::open(folder.path(), config()).unwrap());
    let (transcript, clock) = (open(), Jumping::new());
    let first = answering_on(transcript.clone(), "1");
    let ended: Vec<_> = (0..100)
        .map(|number| result(run(&first, &clock, &cached_off(number)).1))
        .collect();
    drop(first);
    let to = FsDir::create(archive.path()).unwrap();
    let moved = transcript.log().archive(100, &to).unwrap();
    assert!(moved.segments > 0);
    assert_eq!(transcript.verify(None).unwrap().verdict, Verdict::Intact);
    drop(transcript);
    let mut second = answering_on(open(), "2");
    let policy = sap::processor::Interrupted::Fail;
    let resumed = block_on(second.resume(&clock, policy)).unwrap();
    assert!((50..100).contains(&resumed.ended), "{resumed:?}");
    assert_eq!(resumed.failed, []);
    let last = result(run(&second, &clock, &cached_off(99)).1);
    assert_eq!(Some(&last), ended.last());
}

// spec: SAP-6-8
#[test]
fn stores_in_memory_are_bounded_in_bytes_too() {
    use sap::cache::{CacheRecord, Keys, WholePayload};
    let long = with(
        task(),
        "/payload",
        Some(json!({"text": "x".repeat((1 << 20) - 4_096)})),
    );
    let options = Options::default();
    let (long, _) = read_task(&long, &options).unwrap();
    let (short, _) = read_task(&task(), &options).unwrap();
    let of = |task| Entry::of(EntryKind::Task, Timestamp::EPOCH, task).unwrap();
    let transcript = MemoryTranscript::default();
    let full = (0..100).find(|_| block_on(transcript.record(&of(&long))).is_err());
    // 64 MiB.
    assert_eq!(full, Some(64));
    // What is short still finds room.
    block_on(transcript.record(&of(&short))).unwrap();
    assert_eq!(transcript.verify(None).unwrap().records, 65);
    // One that needs all the room has it, however little is there to go.
    let most = ubos_common::json::to_vec(&of(&long)).len();
    let newest = MemoryTranscript::default().keeping_newest();
    let newest = newest.with_max_bytes(most);
    for task in [&short, &long] {
        block_on(newest.record_made(of(task), |entry| entry)).unwrap();
    }
    assert_eq!(newest.removed(), 1);
    let keys = Keys::of(&short, &WholePayload).unwrap();
    let mut record = CacheRecord::new(
        keys.key,
        Timestamp::EPOCH.into(),
        "A-ml-001".parse().unwrap(),
        sap::Alignment::Valid,
        long.payload.clone().into(),
        Vec::new(),
        keys.fingerprint,
        "2.0".into(),
    );
    let full = |record: &CacheRecord| {
        let cache = MemoryCache::default();
        (0..100).find(|_| block_on(cache.put(record)).is_err())
    };
    assert_eq!(full(&record), Some(64));
    record.citations = vec!["x".repeat(1 << 20)];
    assert_eq!(full(&record), Some(32));
}
