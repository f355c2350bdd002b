//! Tasks that came before, while their transcript cannot be read.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures::executor::block_on;
use sap::alignment::{Rules, WhatIfTable};
use sap::processor::{AllowAll, Answer, Config, Context, Interrupted, Outcome, Peer, Processor};
use sap::store::MemoryTranscript;
use sap::transcript::{Entry, Head, Proof, Transcript, TranscriptError};
use sap::transport::{Message, Service};
use sap::{BoxFuture, ConstitutionalContext, ErrorCode, Producer, ProducerKind, Status};
use serde_json::Value;

use crate::processor::{Jumping, consult, no_cache, result, run, text};

/// What a transcript says when it is read.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reads {
    Well,
    /// As one whose disk fails, or that has too much to do.
    Fails,
    Archived,
    /// As one whose bytes are not what was written.
    Damaged,
    Nothing,
    Never,
}

#[derive(Debug)]
struct Faulty {
    log: MemoryTranscript,
    reads: Mutex<Reads>,
}

impl Transcript for Faulty {
    fn record(&self, entry: &Entry) -> BoxFuture<'_, Result<u64, TranscriptError>> {
        self.log.record(entry)
    }

    fn read(&self, from: u64, max: usize) -> BoxFuture<'_, Result<Vec<Entry>, TranscriptError>> {
        let reads = *self.reads.lock().unwrap();
        let failed = || TranscriptError::Store(std::io::Error::other("too many open files").into());
        Box::pin(async move {
            match reads {
                Reads::Well => self.log.read(from, max).await,
                Reads::Fails => Err(failed()),
                Reads::Archived => Err(TranscriptError::Archived { first: from + 1 }),
                Reads::Damaged => {
                    let damage = std::io::Error::other("record 1 does not hold");
                    Err(TranscriptError::Damaged(damage.into()))
                }
                Reads::Nothing => Ok(Vec::new()),
                Reads::Never => std::future::pending().await,
            }
        })
    }

    fn verify(&self, kept: Option<&Head>) -> Result<Proof, TranscriptError> {
        self.log.verify(kept)
    }
}

/// A transcript that says of its first entry both that it went and that it is the first that is left. Who asks again and
/// again is stopped.
#[derive(Debug, Default)]
struct Contradictory(AtomicUsize);

impl Transcript for Contradictory {
    fn record(&self, _: &Entry) -> BoxFuture<'_, Result<u64, TranscriptError>> {
        unreachable!("it is only read")
    }

    fn read(&self, first: u64, _: usize) -> BoxFuture<'_, Result<Vec<Entry>, TranscriptError>> {
        assert!(self.0.fetch_add(1, Ordering::SeqCst) < 10, "asked again");
        Box::pin(async move { Err(TranscriptError::Archived { first }) })
    }

    fn verify(&self, _: Option<&Head>) -> Result<Proof, TranscriptError> {
        unreachable!("it is only read")
    }
}

#[test]
fn a_transcript_that_contradicts_itself_cannot_be_read() {
    let unread = Contradictory::default();
    let same = ConstitutionalContext::clone;
    let table = block_on(WhatIfTable::of(&unread, &Rules::default(), same));
    assert!(matches!(table, Err(TranscriptError::Archived { first: 0 })));
    let producer = Producer::new("A-ml-001".parse().unwrap(), ProducerKind::Agent);
    let config = Config::default();
    let processor = Processor::new(producer, Arc::new(AllowAll), Arc::new(unread), config);
    let mut processor = processor.unwrap();
    let resumed = block_on(processor.resume(&Jumping::new(), Interrupted::Fail));
    assert!(matches!(
        resumed,
        Err(TranscriptError::Archived { first: 0 })
    ));
}

/// A processor that has done `no_cache` once, and whose transcript alone has its result.
struct Desk {
    processor: Arc<Processor>,
    faulty: Arc<Faulty>,
    clock: Jumping,
    runs: Arc<AtomicUsize>,
}

impl Desk {
    fn after_a_task() -> Self {
        let faulty = Arc::new(Faulty {
            log: MemoryTranscript::default(),
            reads: Mutex::new(Reads::Well),
        });
        let (clock, runs) = (Jumping::new(), Arc::<AtomicUsize>::default());
        let counter = Arc::clone(&runs);
        let producer = Producer::new("A-ml-001".parse().unwrap(), ProducerKind::Agent);
        let config = Config::default().with_max_remembered_bytes(0);
        let transcript = Arc::clone(&faulty) as Arc<dyn Transcript>;
        let processor = Processor::new(producer, Arc::new(AllowAll), transcript, config)
            .unwrap()
            .handle(consult(), move |_: Context| {
                counter.fetch_add(1, Ordering::SeqCst);
                async { Ok(Outcome::new(text("1"))) }
            });
        let desk = Self {
            processor: Arc::new(processor),
            faulty,
            clock,
            runs,
        };
        let first = result(run(&desk.processor, &desk.clock, &no_cache()).1);
        assert_eq!(first.status, Status::Succeeded);
        desk
    }

    fn reads(&self, reads: Reads) {
        *self.faulty.reads.lock().unwrap() = reads;
    }

    /// The code of the Nack for a copy; none where it is answered.
    fn told(&self, bytes: &str) -> Option<ErrorCode> {
        let mut sink = |_: sap::processor::Delivery<'_>| {};
        let answer = self
            .processor
            .process(&self.clock, bytes.as_bytes(), &mut sink);
        match block_on(answer).unwrap() {
            Answer::Nack(nack) => Some(nack.code),
            answer => {
                assert_eq!(result(answer).status, Status::Succeeded);
                None
            }
        }
    }
}

/// The same task, written otherwise.
fn otherwise(task: &Value) -> String {
    let text = task.to_string();
    let other = text.replace(r#""payload":{"#, r#""payload":{ "#);
    assert_ne!(other, text);
    other
}

// spec: SAP-5-10
#[test]
fn a_copy_that_comes_while_nothing_can_be_read_may_come_again() {
    let desk = Desk::after_a_task();
    let (same, other) = (no_cache().to_string(), otherwise(&no_cache()));
    for (reads, of_same, of_other) in [
        (
            Reads::Fails,
            Some(ErrorCode::RateLimit),
            Some(ErrorCode::RateLimit),
        ),
        (
            Reads::Archived,
            Some(ErrorCode::NotFound),
            Some(ErrorCode::InvalidTask),
        ),
        (
            Reads::Damaged,
            Some(ErrorCode::NotFound),
            Some(ErrorCode::InvalidTask),
        ),
        (
            Reads::Nothing,
            Some(ErrorCode::NotFound),
            Some(ErrorCode::InvalidTask),
        ),
        // It is waited for as long as for a hook.
        (
            Reads::Never,
            Some(ErrorCode::RateLimit),
            Some(ErrorCode::RateLimit),
        ),
        (Reads::Well, None, None),
    ] {
        desk.reads(reads);
        assert_eq!(desk.told(&same), of_same, "{reads:?}");
        assert_eq!(desk.told(&other), of_other, "{reads:?}");
    }
    assert_eq!(desk.runs.load(Ordering::SeqCst), 1);
}

// spec: SAP-5-10, SAP-10-1
#[test]
fn who_asks_about_a_task_is_told_whether_it_is_lost_or_may_be_asked_for_again() {
    let desk = Desk::after_a_task();
    let service = Service::new(Arc::clone(&desk.processor), Arc::new(desk.clock.clone()));
    let task = crate::samples::read_task(&no_cache(), &sap::validate::Options::default());
    let (issuer, id) = task
        .map(|(task, _)| (task.issuer.agent_id, task.task_id))
        .unwrap();
    let peer = Peer::default();
    let about = || block_on(service.about(&peer, &issuer, &id)).map_err(Box::new);
    let code = |message: Option<Message>| match message {
        Some(Message::Nack(nack)) => Some(nack.code),
        _ => None,
    };
    for (reads, wanted) in [
        (Reads::Fails, ErrorCode::RateLimit),
        (Reads::Archived, ErrorCode::NotFound),
        (Reads::Damaged, ErrorCode::NotFound),
        (Reads::Nothing, ErrorCode::NotFound),
        (Reads::Never, ErrorCode::RateLimit),
    ] {
        desk.reads(reads);
        assert_eq!(
            about().err().map(|nack| nack.code),
            Some(wanted.clone()),
            "{reads:?}"
        );
        desk.reads(Reads::Well);
        let mut known = about().unwrap();
        desk.reads(reads);
        assert_eq!(
            code(Some(block_on(known.latest()))),
            Some(wanted.clone()),
            "{reads:?}"
        );
        // Who follows it is told, and that is the last; of one that is lost there is nothing to tell.
        let of_next = (wanted == ErrorCode::RateLimit).then_some(wanted.clone());
        assert_eq!(code(block_on(known.next())), of_next, "{reads:?}");
        assert!(block_on(known.next()).is_none());
    }
}
