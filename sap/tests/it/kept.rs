//! Signals and knowledge in files: what a start knows of the time before it.

use std::path::Path;
use std::sync::{Arc, Mutex};

use futures::executor::block_on;
use sap::StoreError;
use sap::learning::{
    Aggregate, Bounds, Feedback, Heuristics, Learner, Librarian as _, Signal, SignalKey,
    SignalSink, Support, Trial, TrialState, Window,
};
use sap::store::{FileCache, FileSignals, FileTranscript, Library, ReadBack, StoreKind, fsck};
use sap::transcript::Verdict;
use serde_json::json;
use ubos_common::json::{RawBuf, RawObject};
use ubos_common::log::format::Limits;
use ubos_common::log::{Config, FsDir, Log, LogId};
use ubos_common::time::Timestamp;

use crate::learned::suggestion;
use crate::learning::{computed, decision, learned};

fn config() -> Config {
    Config::default()
        .with_log_id(LogId::from_bytes([7; 16]))
        .with_segment_bytes(1 << 16)
}

fn all() -> Arc<Mutex<Aggregate>> {
    Arc::default()
}

fn open(folder: &Path, from: Timestamp, sink: &Arc<Mutex<Aggregate>>) -> (FileSignals, ReadBack) {
    let sink = Arc::clone(sink) as Arc<dyn SignalSink>;
    FileSignals::open(folder, config(), from, sink).unwrap()
}

fn told(read: &ReadBack) -> [u64; 4] {
    [read.told, read.refused, read.older, read.unknown]
}

fn signals() -> Vec<Signal> {
    let decisions = (0..20).map(|n| decision(n, 4.0 * n as f64 + 1.0, n < 10));
    decisions.collect()
}

/// The file of the log's first segment.
fn segment(folder: &Path) -> std::path::PathBuf {
    let files = std::fs::read_dir(folder).unwrap();
    let mut files = files.map(|entry| entry.unwrap().path());
    files
        .find(|file| file.extension().is_some_and(|e| e == "seg"))
        .unwrap()
}

// spec: SAP-7-1
#[test]
fn a_record_that_is_no_signal_is_passed_over_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::open(folder.path(), config().with_kind("sap-signals")).unwrap();
    log.append(b"{}").unwrap();
    drop(log);
    let (_, read) = open(folder.path(), Timestamp::EPOCH, &all());
    assert_eq!(told(&read), [0, 0, 0, 1]);
}

// spec: SAP-7-1, SAP-7-2, SAP-7-5
#[test]
fn what_was_learned_before_a_start_is_learned_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let before = all();
    let (kept, read) = open(folder.path(), Timestamp::EPOCH, &before);
    assert_eq!(told(&read), [0; 4]);
    for signal in signals() {
        kept.emit(signal).unwrap();
    }
    // Whoever learns waits for everything that was emitted, and the proof speaks of it.
    let known = Arc::clone(&before);
    let learn = kept.learn(move |proof| {
        let known = known.lock().unwrap();
        (
            Heuristics::derive(&known, Support::default(), Some(&proof)),
            proof,
        )
    });
    let (heuristics, proof) = block_on(learn).unwrap();
    assert_eq!((proof.records, &proof.verdict), (20, &Verdict::Intact));
    let evidence = &heuristics.thresholds[0].evidence;
    assert_eq!(
        (evidence.count.signals, evidence.learned_from.as_ref()),
        (20, Some(&proof))
    );
    // One that is said again is kept again, and counts once.
    kept.emit(signals().remove(0)).unwrap();
    assert_eq!(kept.unkept(), 0);
    drop(kept);

    let after = all();
    let (kept, read) = open(folder.path(), Timestamp::EPOCH, &after);
    assert_eq!(told(&read), [21, 0, 0, 0]);
    assert_eq!(*after.lock().unwrap(), *before.lock().unwrap());
    let mut later = decision(50, 3.0, true);
    later.at = "2030-01-01T00:00:00Z".parse::<Timestamp>().unwrap().into();
    let since = later.at.timestamp();
    kept.emit(later).unwrap();
    drop(kept);
    // What is older than anybody asks for is not told.
    let recent = all();
    let (kept, read) = open(folder.path(), since, &recent);
    assert_eq!(told(&read), [1, 0, 21, 0]);
    drop(kept);
    // What they refuse is said, and stays.
    let full = Aggregate::new(Bounds::default().with_max_signals(5));
    let (kept, read) = open(folder.path(), Timestamp::EPOCH, &Arc::new(Mutex::new(full)));
    assert_eq!(told(&read), [6, 16, 0, 0]);
    drop(kept);
    let report = fsck(folder.path(), StoreKind::Signals, &[proof.head]).unwrap();
    assert_eq!((report.records, report.findings.len()), (22, 0));
    let wrong = fsck(folder.path(), StoreKind::Knowledge, &[]).unwrap();
    assert_eq!(wrong.findings.len(), 22);
}

#[test]
fn who_closes_a_log_of_signals_waits_for_all_that_was_handed_over() {
    let folder = tempfile::tempdir().unwrap();
    let (kept, _) = open(folder.path(), Timestamp::EPOCH, &all());
    for signal in signals() {
        kept.emit(signal).unwrap();
    }
    let (learned, has_learned) = std::sync::mpsc::channel();
    drop(kept.learn(move |proof| {
        // Others go on meanwhile.
        (0..100).for_each(|_| std::thread::yield_now());
        learned.send(proof.records).unwrap();
    }));
    kept.close();
    assert_eq!(has_learned.try_recv(), Ok(20));
}

// spec: SAP-7-1
#[test]
fn a_signal_that_cannot_be_kept_is_counted_and_not_learned_of() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits::default().with_max_record_bytes(8_000);
    let (learners, config) = (all(), config().with_limits(limits));
    let sink = Arc::clone(&learners) as Arc<dyn SignalSink>;
    let (kept, _) = FileSignals::open(folder.path(), config, Timestamp::EPOCH, sink).unwrap();
    // It is taken: that it is too long is known when it is written.
    let mut notes = Feedback::new("ada".parse().unwrap());
    notes.notes = Some("long ".repeat(2_000));
    let short = decision(1, 5.0, true);
    kept.emit(Signal::of_operator(&short, Timestamp::EPOCH, notes))
        .unwrap();
    kept.emit(short).unwrap();
    let records = block_on(kept.learn(|proof| proof.records)).unwrap();
    assert_eq!((records, kept.unkept()), (1, 1));
    assert_eq!((&*learners.lock().unwrap()).into_iter().count(), 1);
}

// spec: SAP-7-1, SAP-11-2
#[test]
fn signals_are_kept_and_learned_of_without_secrets() {
    let (folder, told) = (tempfile::tempdir().unwrap(), Arc::new(Told::default()));
    let open = || {
        let sink = Arc::clone(&told) as Arc<dyn SignalSink>;
        FileSignals::open(folder.path(), config(), Timestamp::EPOCH, sink).unwrap()
    };
    let object = |text: &str| RawObject::new(RawBuf::parse(text).unwrap()).unwrap();
    let mut signal = decision(1, 5.0, true);
    signal.metrics = Some(object(r#"{"password":"hunter2","tokensUsed":7}"#));
    signal.next_actions = Some(vec![object(r#"{"with":{"api_key":"hunter2"}}"#)]);
    signal.territory = Some("password='hunter2hunter2'".into());
    let mut checks = signal.policy_checks.clone().unwrap();
    checks[0].notes = Some("password='hunter2hunter2' was seen".into());
    signal.policy_checks = Some(checks);
    let mut feedback = Feedback::new("ada".parse().unwrap());
    feedback.notes = Some("password='hunter2hunter2' is no good".into());
    let (kept, _) = open();
    let said = Signal::of_operator(&signal, Timestamp::EPOCH, feedback);
    kept.emit(signal.clone()).unwrap();
    kept.emit(said).unwrap();
    block_on(kept.learn(drop)).unwrap();
    drop(kept);
    let bytes = std::fs::read(segment(folder.path())).unwrap();
    let has = |text: &[u8]| bytes.windows(text.len()).any(|part| part == text);
    assert!(!has(b"hunter2") && has(b"[REDACTED]"));
    let before = std::mem::take(&mut *told.0.lock().unwrap());
    // What is no secret is there, and a start tells the same.
    let metrics = before[0].metrics.clone().unwrap();
    assert_eq!(
        metrics.as_str(),
        r#"{"password":"[REDACTED]","tokensUsed":7}"#
    );
    assert_eq!(before[0].observed, signal.observed);
    assert_eq!(before[0].id, signal.id);
    let (kept, _) = open();
    assert_eq!(*told.0.lock().unwrap(), before);
    drop(kept);
}

/// Keeps what it is told.
#[derive(Debug, Default)]
struct Told(Mutex<Vec<Signal>>);

impl SignalSink for Told {
    fn emit(&self, signal: Signal) -> Result<(), StoreError> {
        self.0.lock().unwrap().push(signal);
        Ok(())
    }
}

// spec: SAP-7-2
#[test]
fn a_trial_goes_on_after_a_start() {
    let folder = tempfile::tempdir().unwrap();
    let start = || {
        let trial = Arc::new(Trial::new(suggestion(), Timestamp::EPOCH).with_wanted(3));
        let learner = Learner::new(Window::default(), Bounds::default()).unwrap();
        let sinks: Vec<Arc<dyn SignalSink>> = vec![
            Arc::clone(&trial) as Arc<dyn SignalSink>,
            Arc::new(Mutex::new(learner)),
        ];
        let kept = FileSignals::open(folder.path(), config(), Timestamp::EPOCH, Arc::new(sinks));
        (kept.unwrap().0, trial)
    };
    let said = |n: u64| computed(n, json!({"text": "a", "asked": n}), json!("fine"));
    let (kept, trial) = start();
    (0..3).for_each(|n| kept.emit(said(n)).unwrap());
    block_on(kept.learn(drop)).unwrap();
    assert_eq!(trial.state(), TrialState::Open { agreed: 2 });
    drop(kept);
    let (kept, trial) = start();
    assert_eq!(trial.state(), TrialState::Open { agreed: 2 });
    kept.emit(said(3)).unwrap();
    block_on(kept.learn(drop)).unwrap();
    assert_eq!(trial.state(), TrialState::Proven);
}

/// Takes nothing.
#[derive(Debug)]
struct Shut;

impl SignalSink for Shut {
    fn emit(&self, _: Signal) -> Result<(), StoreError> {
        let (what, limit) = ("signals", 0);
        Err(StoreError::Full { what, limit })
    }
}

#[test]
fn all_sinks_are_told_and_the_first_refusal_is_said() {
    let (first, last) = (all(), all());
    let sinks: Vec<Arc<dyn SignalSink>> = vec![
        Arc::clone(&first) as Arc<dyn SignalSink>,
        Arc::new(Shut),
        Arc::clone(&last) as Arc<dyn SignalSink>,
    ];
    let refused = sinks.emit(decision(1, 5.0, true)).unwrap_err();
    assert_eq!(refused.to_string(), "signals at their limit of 0");
    for taken in [first, last] {
        assert_eq!((&*taken.lock().unwrap()).into_iter().count(), 1);
    }
}

// spec: SAP-11-3
#[test]
fn a_log_of_signals_that_was_changed_is_not_learned_of() {
    let folder = tempfile::tempdir().unwrap();
    let (kept, _) = open(folder.path(), Timestamp::EPOCH, &all());
    for signal in signals() {
        kept.emit(signal).unwrap();
        block_on(kept.learn(drop)).unwrap();
    }
    let file = segment(folder.path());
    let mut bytes = std::fs::read(&file).unwrap();
    let at = bytes
        .windows(10)
        .position(|part| part == b"\"capabilit")
        .unwrap();
    bytes[at + 3] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    // Who learns while it is open is told so, and so is who opens it.
    let verdict = block_on(kept.learn(|proof| proof.verdict)).unwrap();
    assert!(matches!(verdict, Verdict::Broken { .. }), "{verdict:?}");
    drop(kept);
    let sink = all() as Arc<dyn SignalSink>;
    let error = FileSignals::open(folder.path(), config(), Timestamp::EPOCH, sink).unwrap_err();
    assert!(error.to_string().ends_with("the log failed"), "{error}");
}

#[test]
fn folders_of_another_kind_are_refused_untouched() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    FileTranscript::open(path("transcript"), config())
        .unwrap()
        .close();
    open(&path("signals"), Timestamp::EPOCH, &all()).0.close();
    Library::open(path("library"), config()).unwrap().close();
    let bytes = |name: &str| std::fs::read(segment(&path(name))).unwrap();
    let before = ["transcript", "signals", "library"].map(bytes);
    let signals = |name: &str| {
        let sink = all() as Arc<dyn SignalSink>;
        FileSignals::open(path(name), config(), Timestamp::EPOCH, sink).is_err()
    };
    assert!(signals("transcript") && signals("library"));
    assert!(Library::open(path("signals"), config()).is_err());
    assert!(FileCache::open(path("library"), config()).is_err());
    assert_eq!(["transcript", "signals", "library"].map(bytes), before);
}

// spec: SAP-7-3
#[test]
fn a_library_files_each_piece_once_also_after_a_start() {
    let folder = tempfile::tempdir().unwrap();
    let (known, heuristics) = learned(signals());
    let publish = |library: &Library, known: &Aggregate, heuristics: &Heuristics| {
        let mut publisher = library.publisher();
        let filed = publisher.publish(
            Timestamp::EPOCH,
            known,
            heuristics,
            Support::default(),
            library,
        );
        block_on(filed).unwrap()
    };
    let library = Library::open(folder.path(), config()).unwrap();
    let filed = publish(&library, &known, &heuristics);
    assert_eq!(filed.len(), 2);
    for artifact in &filed {
        let about = SignalKey::from(artifact);
        assert_eq!(
            block_on(library.newest(&about)).unwrap().as_ref(),
            Some(artifact)
        );
        // Whoever offers it once more is not refused, and nothing is written.
        block_on(library.file(artifact)).unwrap();
    }
    assert_eq!(library.log().head().next_sequence, 2);
    drop(library);

    let library = Library::open(folder.path(), config()).unwrap();
    assert!(publish(&library, &known, &heuristics).is_empty());
    let (more, learned) = learned(signals().into_iter().chain([decision(77, 3.0, true)]));
    let renewed = publish(&library, &more, &learned);
    let about = SignalKey::from(&renewed[0]);
    assert_eq!(
        block_on(library.newest(&about)).unwrap().as_ref(),
        Some(&renewed[0])
    );
    assert_eq!((renewed.len(), library.log().head().next_sequence), (2, 4));
    drop(library);
    // The newest is found again, and the older one stays.
    let library = Library::open(folder.path(), config()).unwrap();
    assert_eq!(
        block_on(library.newest(&about)).unwrap().as_ref(),
        Some(&renewed[0])
    );
    let mut other = about.clone();
    other.territory = None;
    assert_eq!(block_on(library.newest(&other)).unwrap(), None);
    drop(library);
    let report = fsck(folder.path(), StoreKind::Knowledge, &[]).unwrap();
    assert_eq!((report.records, report.findings.len()), (4, 0));
}

#[test]
fn a_piece_of_a_library_that_was_archived_is_not_there_and_no_failure() {
    let (folder, archive) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let library = Library::open(folder.path(), config().with_segment_bytes(1)).unwrap();
    let (known, heuristics) = learned(signals());
    let mut publisher = library.publisher();
    let filed = publisher.publish(
        Timestamp::EPOCH,
        &known,
        &heuristics,
        Support::default(),
        &library,
    );
    let filed = block_on(filed).unwrap();
    let to = FsDir::create(archive.path()).unwrap();
    assert!(library.log().archive(1, &to).unwrap().segments > 0);
    let newest = |piece| block_on(library.newest(&SignalKey::from(piece))).unwrap();
    assert_eq!(
        (newest(&filed[0]), newest(&filed[1])),
        (None, Some(filed[1].clone()))
    );
}

#[cfg(feature = "driver")]
// spec: SAP-7-3
#[test]
fn a_library_answers_tasks() {
    use crate::processor::{Log, processor, result};
    use crate::samples::{task, with};
    use futures::future::BoxFuture;
    use sap::processor::Delivery;
    use serde_json::Value;
    use ubos_common::driver::Sleep;
    use ubos_common::time::{Mono, Now};

    /// The library has a thread of its own, which no time that jumps would wait for.
    #[derive(Clone)]
    struct Still;

    impl Sleep for Still {
        fn now(&self) -> Now {
            Now::new(Mono::ZERO, Timestamp::EPOCH)
        }

        fn sleep_until(&self, _: Mono) -> BoxFuture<'static, ()> {
            Box::pin(std::future::pending())
        }
    }

    let folder = tempfile::tempdir().unwrap();
    let (known, heuristics) = learned(signals());
    let library = Arc::new(Library::open(folder.path(), config()).unwrap());
    let mut publisher = library.publisher();
    let filed = publisher.publish(
        Timestamp::EPOCH,
        &known,
        &heuristics,
        Support::default(),
        &*library,
    );
    let filed = block_on(filed).unwrap();
    let processor =
        processor(&Log::default()).handle("consult.align".parse().unwrap(), Arc::clone(&library));
    let ask = |n: u64, payload: Value| {
        let id = format!("00000000-0000-0000-0000-{n:012}");
        let task = with(task(), "/taskId", Some(json!(id)));
        let task = with(task, "/constitutionalContext/cachePolicy", None);
        let bytes = with(task, "/payload", Some(payload)).to_string();
        let mut sink = |_: Delivery<'_>| {};
        let answer = block_on(processor.process(&Still, bytes.as_bytes(), &mut sink));
        result(answer.unwrap())
    };
    let fingerprint = filed[1].fingerprint.unwrap().to_string();
    let about = json!({"capability": "consult.align", "territory": "EUFM"});
    let card =
        json!({"capability": "consult.align", "territory": "EUFM", "fingerprint": fingerprint});
    for (n, (payload, artifact)) in (1..).zip([(about, &filed[0]), (card, &filed[1])]) {
        let said = ask(n, payload);
        let output: Value = said.output.unwrap().deserialize().unwrap();
        assert_eq!(output["digest"], json!(artifact.digest.to_string()));
        let cited = said.constitutional_evidence.citations.unwrap();
        assert_eq!(cited, [format!("blake3:{}", artifact.digest)]);
    }
    let nothing = ask(3, json!({"capability": "consult.align"}));
    assert_eq!(nothing.output.unwrap().as_str(), "null");
    let wrong = ask(4, json!({"capability": 7}));
    assert_eq!(
        wrong.error_code().map(|code| code.as_str()),
        Some("UNPROCESSABLE")
    );
}
