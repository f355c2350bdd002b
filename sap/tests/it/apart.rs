//! Long messages: what is done with the whole of one holds up nobody who polls.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context as Waking, Poll, Wake, Waker};
use std::thread::{self, Thread, ThreadId};
use std::time::Duration;

use futures::executor::block_on;
use futures::future::BoxFuture;
use sap::cache::{Caching, Essence, KeyError, WholePayload};
use sap::learning::{Signal, SignalSink};
use sap::processor::{Context, Delivery, HandlerError, Outcome, Processor, Progress};
use sap::store::MemoryCache;
use sap::transcript::{EntryKind, Transcript as _};
use sap::{ErrorCode, Status, StoreError};
use serde_json::{Value, json};
use ubos_common::driver::Sleep;
use ubos_common::json::{RawBuf, RawObject};
use ubos_common::time::{Mono, Now, Timestamp};

use crate::processor::{Log, cached, consult, processor, result};
use crate::samples::with;

/// No time passes while another thread works.
#[derive(Clone)]
pub(crate) struct Still;

impl Sleep for Still {
    fn now(&self) -> Now {
        Now::new(
            Mono::ZERO,
            "2025-09-28T10:15:23Z".parse::<Timestamp>().unwrap(),
        )
    }

    fn sleep_until(&self, _: Mono) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn long(number: u8, mode: &str) -> Value {
    let payload = json!({"text": "lorem ipsum ".repeat(8_000), "n": number});
    with(cached(number, mode), "/payload", Some(payload))
}

async fn echo(mut cx: Context) -> Result<Outcome, HandlerError> {
    let output: RawBuf = cx.task.payload.clone().into();
    let left = vec![RawObject::empty()];
    cx.report(Progress::partial(output.clone(), left)).await;
    Ok(Outcome::new(output).citing(vec!["ubos://a".into()]))
}

/// Who extracts essences and takes signals.
#[derive(Debug, Default)]
struct Seen(Mutex<Vec<(&'static str, ThreadId)>>);

impl Seen {
    fn note(&self, what: &'static str) {
        self.0.lock().unwrap().push((what, thread::current().id()));
    }
}

#[derive(Debug)]
struct Noted(Arc<Seen>);

impl Essence for Noted {
    fn version(&self) -> &'static str {
        "noted/1"
    }

    fn extract(&self, payload: &RawObject) -> Result<RawBuf, KeyError> {
        self.0.note("essence");
        WholePayload.extract(payload)
    }
}

impl SignalSink for Noted {
    fn emit(&self, _: Signal) -> Result<(), StoreError> {
        self.0.note("signal");
        Ok(())
    }
}

fn desk(log: &Log, seen: &Arc<Seen>) -> Processor {
    processor(log)
        .handle(consult(), echo)
        .cache(Arc::new(MemoryCache::default()))
        .cached(consult(), Caching::shared(Noted(Arc::clone(seen))))
        .signals(Arc::new(Noted(Arc::clone(seen))))
}

fn run(processor: &Processor, task: &Value) -> sap::TaskResult {
    let bytes = task.to_string();
    let mut sink = |_: Delivery<'_>| {};
    result(block_on(processor.process(&Still, bytes.as_bytes(), &mut sink)).unwrap())
}

// spec: SAP-7-6, SAP-6-1
#[test]
fn what_is_made_of_a_long_message_is_made_on_another_thread() {
    let (log, seen) = (Log::default(), Arc::new(Seen::default()));
    let processor = desk(&log, &seen);
    let answer = run(&processor, &long(1, "prefer"));
    assert_eq!(answer.status, Status::Succeeded);
    let hit = run(&processor, &long(1, "prefer"));
    assert_eq!(hit.output, answer.output);
    block_on(processor.signals_told());
    let own = thread::current().id();
    let before = std::mem::take(&mut *seen.0.lock().unwrap());
    let kinds: Vec<&str> = before.iter().map(|(what, _)| *what).collect();
    assert_eq!(kinds, ["essence", "signal", "signal"]);
    assert!(before.iter().all(|(_, thread)| *thread != own));
    // A short one is worth no other thread; its signals are not made here, whoever waits for them.
    let short = with(cached(2, "prefer"), "/payload", Some(json!({"n": 2})));
    assert_eq!(run(&processor, &short).status, Status::Succeeded);
    block_on(processor.signals_told());
    let seen: Vec<_> = std::mem::take(&mut *seen.0.lock().unwrap())
        .into_iter()
        .map(|(what, thread)| (what, thread == own))
        .collect();
    assert_eq!(
        seen,
        [("essence", true), ("signal", false), ("signal", false)]
    );
}

#[derive(Debug)]
struct Panics;

impl Essence for Panics {
    fn version(&self) -> &'static str {
        "panics/1"
    }

    fn extract(&self, _: &RawObject) -> Result<RawBuf, KeyError> {
        panic!("an extractor's own fault")
    }
}

// spec: SAP-5-2, SAP-8-1
#[test]
fn a_panic_on_the_other_thread_ends_its_own_task() {
    let log = Log::default();
    let processor = processor(&log)
        .handle(consult(), echo)
        .cache(Arc::new(MemoryCache::default()))
        .cached(consult(), Caching::shared(Panics));
    let answer = run(&processor, &long(1, "prefer"));
    assert_eq!(answer.error_code(), Some(&ErrorCode::Internal));
    assert_eq!(
        run(&processor, &long(2, "bypass")).status,
        Status::Succeeded
    );
    // Bytes that are no task are read apart, too.
    let none = "[1,".repeat(50_000);
    let mut sink = |_: Delivery<'_>| {};
    let turned = block_on(processor.process(&Still, none.as_bytes(), &mut sink));
    let turned = crate::processor::nack(turned.unwrap());
    assert_eq!(turned.code, ErrorCode::InvalidTask);
}

// spec: SAP-5-2, SAP-10-1
#[test]
fn a_long_task_ends_in_the_transcript_whenever_it_is_dropped() {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let bytes = long(1, "prefer").to_string();
    for polls in 1.. {
        let log = Log::default();
        let processor = desk(&log, &Arc::default());
        let mut sink = |_: Delivery<'_>| {};
        let ended = {
            let mut work = pin!(processor.process(&Still, bytes.as_bytes(), &mut sink));
            let mut waking = Waking::from_waker(&waker);
            (0..polls).any(|poll| {
                if poll > 0 {
                    thread::park();
                }
                // The last poll is followed by the drop, whatever the other thread is at.
                matches!(work.as_mut().poll(&mut waking), Poll::Ready(answer) if answer.is_ok())
            })
        };
        // What is at work when the run is dropped ends it, on its own thread.
        for wait in 0.. {
            let entries = block_on(log.read(0, 100)).unwrap();
            let kinds: Vec<&EntryKind> = entries.iter().map(|entry| &entry.kind).collect();
            let ends = entries.iter().filter(|entry| {
                let text = entry.body.as_str();
                let is_end = |word: &str| text.contains(&format!(r#""status":"{word}""#));
                is_end("SUCCEEDED") || is_end("FAILED")
            });
            match ends.count() {
                // It was not taken yet.
                0 if kinds.is_empty() => break,
                0 => assert!(wait < 60_000, "{polls} polls: {kinds:?} and no end"),
                ends => {
                    assert_eq!((ends, kinds[0]), (1, &EntryKind::Task), "{polls} polls");
                    break;
                }
            }
            thread::sleep(Duration::from_millis(1));
        }
        if ended {
            return;
        }
    }
}

/// Says where it is read and written.
#[cfg(feature = "typed")]
mod typed {
    use super::*;
    use schemars::JsonSchema;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    static SEEN: Mutex<Vec<(&str, ThreadId)>> = Mutex::new(Vec::new());

    fn note(what: &'static str) {
        SEEN.lock().unwrap().push((what, thread::current().id()));
    }

    #[derive(JsonSchema)]
    struct Noting(#[expect(dead_code, reason = "its schema takes all")] Value);

    impl<'de> Deserialize<'de> for Noting {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            note("read");
            Value::deserialize(deserializer).map(Noting)
        }
    }

    #[derive(JsonSchema)]
    struct Texts(
        #[expect(dead_code, reason = "its schema takes all")] Vec<String>,
        usize,
    );

    impl Serialize for Texts {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            note("written");
            vec!["text"; self.1].serialize(serializer)
        }
    }

    #[test]
    fn what_is_long_is_read_and_written_on_another_thread() {
        let own = thread::current().id();
        for (task, texts, wanted) in [
            (
                cached(1, "bypass"),
                1,
                vec![("read", true), ("written", true)],
            ),
            // What is written is seen to be long when it is.
            (
                long(2, "bypass"),
                20_000,
                vec![("read", false), ("written", true), ("written", false)],
            ),
        ] {
            let handler = move |_: Noting, _: Context| async move {
                Ok::<_, HandlerError>(Texts(Vec::new(), texts))
            };
            let processor = processor(&Log::default()).handle_typed(consult(), handler);
            let answer = run(&processor, &task);
            assert_eq!(answer.status, Status::Succeeded);
            let output = answer.output.unwrap();
            assert_eq!(output.deserialize::<Vec<String>>().unwrap().len(), texts);
            let seen = std::mem::take(&mut *SEEN.lock().unwrap());
            let seen: Vec<_> = seen
                .iter()
                .map(|(what, thread)| (*what, *thread == own))
                .collect();
            assert_eq!(seen, wanted);
        }
    }
}
