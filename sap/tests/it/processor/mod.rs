//! Tasks through the processor: every way in which one can end.

mod admission;
mod cache;
mod ending;

use futures::executor::block_on;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use futures::future::BoxFuture;
use sap::cache::{Caching, WholePayload};
use sap::processor::{AllowAll, Answer, Config, Context, Delivery, Outcome, Processor};
use sap::store::MemoryTranscript;
use sap::transcript::{Entry, EntryKind, Transcript};
use sap::validate::{Options, decode_result};
use sap::{Capability, Nack, Producer, ProducerKind, TaskResult};
use serde_json::{Value, json};
use ubos_common::driver::Sleep;
use ubos_common::json::RawBuf;
use ubos_common::time::{Mono, Now, Timestamp};

use crate::samples::{task, with};

/// A clock that jumps to whatever is waited for.
#[derive(Clone, Debug)]
pub(crate) struct Jumping(Arc<Mutex<Now>>);

impl Jumping {
    pub(crate) fn new() -> Self {
        let issued: Timestamp = "2025-09-28T10:15:23Z".parse().unwrap();
        Self(Arc::new(Mutex::new(Now::new(Mono::ZERO, issued))))
    }

    pub(crate) fn go_on(&self, span: Duration) {
        let mut now = self.0.lock().unwrap();
        *now = now.plus(span);
    }
}

impl Sleep for Jumping {
    fn now(&self) -> Now {
        *self.0.lock().unwrap()
    }

    fn sleep_until(&self, deadline: Mono) -> BoxFuture<'static, ()> {
        let clock = Arc::clone(&self.0);
        Box::pin(async move {
            // Everything else that is ready comes first.
            for _ in 0..8 {
                yield_now().await;
            }
            let mut now = clock.lock().unwrap();
            let span = deadline.saturating_since(now.mono);
            *now = now.plus(span);
        })
    }
}

pub(crate) async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

pub(crate) type Log = Arc<MemoryTranscript>;

pub(crate) fn processor(log: &Log) -> Processor {
    let producer = Producer::new("A-ml-001".parse().unwrap(), ProducerKind::Agent);
    Processor::new(
        producer,
        Arc::new(AllowAll),
        Arc::clone(log) as Arc<dyn Transcript>,
        Config::default(),
    )
    .unwrap()
    .refusals(log.clone())
}

pub(crate) fn text(text: &str) -> RawBuf {
    RawBuf::parse(text).unwrap()
}

/// `consult.align` says `output`.
pub(crate) fn answering_on(transcript: Arc<dyn Transcript>, output: &'static str) -> Processor {
    let producer = Producer::new("A-ml-001".parse().unwrap(), ProducerKind::Agent);
    let all = Arc::new(AllowAll);
    Processor::new(producer, all, transcript, Config::default())
        .unwrap()
        .handle(
            "consult.align".parse().unwrap(),
            move |_: Context| async move { Ok(Outcome::new(text(output))) },
        )
}

pub(crate) fn consult() -> Capability {
    "consult.align".parse().unwrap()
}

/// Outcomes that answer equal tasks of everybody.
pub(crate) fn whole() -> Caching {
    Caching::shared(WholePayload)
}

/// A task without a cache, numbered.
#[cfg(feature = "log")]
pub(crate) fn cached_off(number: u16) -> Value {
    let id = format!("00000000-0000-0000-0000-00000000{number:04}");
    with(no_cache(), "/taskId", Some(json!(id)))
}

/// `consult.align` says `output` and counts how often it is asked.
pub(crate) fn answering(log: &Log, output: &'static str, calls: &Arc<AtomicUsize>) -> Processor {
    let calls = Arc::clone(calls);
    processor(log).handle("consult.align".parse().unwrap(), move |_: Context| {
        calls.fetch_add(1, Ordering::SeqCst);
        async move { Ok(Outcome::new(text(output)).citing(vec!["ubos://a".into()])) }
    })
}

pub(crate) fn run<S: Sleep + Clone + Send + Sync + 'static>(
    processor: &Processor,
    clock: &S,
    task: &Value,
) -> (Vec<String>, Answer) {
    let mut told = Vec::new();
    let bytes = task.to_string();
    let mut sink = |delivery: Delivery<'_>| {
        told.push(match delivery {
            Delivery::Ack(_) => "ACK".to_owned(),
            Delivery::Result(result) => result.status.to_string(),
            other => format!("{other:?}"),
        });
    };
    let answer = block_on(processor.process(clock, bytes.as_bytes(), &mut sink));
    (told, answer.unwrap())
}

pub(crate) fn result(answer: Answer) -> TaskResult {
    let Answer::Result(result) = answer else {
        panic!("{answer:?}")
    };
    sap::report(&result).unwrap_or_else(|error| panic!("{error}"));
    *result
}

pub(crate) fn nack(answer: Answer) -> Nack {
    let Answer::Nack(nack) = answer else {
        panic!("{answer:?}")
    };
    nack
}

pub(crate) fn kinds(log: &Log) -> Vec<String> {
    let entries = block_on(log.read(0, 100)).unwrap();
    let kind = |entry: &Entry| match entry.kind {
        EntryKind::Result => {
            let (result, _) =
                decode_result(entry.body.as_str().as_bytes(), &Options::default()).unwrap();
            result.status.to_string()
        }
        _ => entry.kind.to_string(),
    };
    entries.iter().map(kind).collect()
}

pub(crate) fn no_cache() -> Value {
    with(task(), "/constitutionalContext/cachePolicy", None)
}

pub(crate) fn cached(id: u8, mode: &str) -> Value {
    let id = format!("00000000-0000-0000-0000-0000000000{id:02}");
    let policy = json!({"mode": mode, "maxAgeSec": 60, "mustAlign": true});
    with(
        with(task(), "/taskId", Some(json!(id))),
        "/constitutionalContext/cachePolicy",
        Some(policy),
    )
}
