//! How late a timer of 1 ms comes on the one thread of an executor that runs 300 tasks at once, with transcript and cache in
//! memory and in files: `cargo bench -p benches --bench sap_late`. At most 20 ms with files, in the worst of five rounds.

#![expect(
    clippy::expect_used,
    reason = "a bench whose subject fails has nothing to say"
)]
#![expect(clippy::print_stdout, reason = "the figures are the result")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use benches::{Bar, report};
use sap::cache::{CacheStore, Caching, WholePayload};
use sap::processor::{AllowAll, Answer, Config, Context, Delivery, Outcome, Processor};
use sap::store::{FileCache, FileTranscript, MemoryCache, MemoryTranscript};
use sap::transcript::Transcript;
use sap::{Producer, ProducerKind, Status};
use tokio::task::JoinSet;
use ubos_common::driver::Sleep;
use ubos_common::log::{self, LogId};
use ubos_common::time::{Mono, Now, Timestamp};

const TICK: Duration = Duration::from_millis(1);

#[derive(Clone)]
struct Still;

impl Sleep for Still {
    fn now(&self) -> Now {
        Now::new(Mono::ZERO, Timestamp::EPOCH)
    }

    fn sleep_until(&self, _: Mono) -> futures::future::BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

fn task(number: usize) -> String {
    let text = "lorem ipsum ".repeat(80);
    format!(
        r#"{{"protocolVersion":"2.0","taskId":"00000000-0000-0000-0000-{number:012}","correlationId":"00000000-0000-0000-0000-000000000002","issuedAt":"2025-09-28T10:15:23Z","issuer":{{"agentId":"A-prime","agentKind":"agent"}},"target":{{"capability":"text.echo"}},"constitutionalContext":{{"pressureLevel":"consulted","cachePolicy":{{"mode":"prefer"}}}},"payload":{{"number":{number},"text":"{text}"}}}}"#
    )
}

fn processor(transcript: Arc<dyn Transcript>, cache: Arc<dyn CacheStore>) -> Processor {
    let producer = Producer::new("A-1".parse().expect("an id"), ProducerKind::Agent);
    Processor::new(producer, Arc::new(AllowAll), transcript, Config::default())
        .expect("settings in range")
        .cache(cache)
        .cached(
            "text.echo".parse().expect("a name"),
            Caching::shared(WholePayload),
        )
        .handle(
            "text.echo".parse().expect("a name"),
            |cx: Context| async move { Ok(Outcome::new(cx.task.payload.clone().into())) },
        )
}

fn in_files(folder: &Path) -> Processor {
    let config = || log::Config::default().with_log_id(LogId::from_bytes([5; 16]));
    let transcript = FileTranscript::open(folder.join("transcript"), config());
    let cache = FileCache::open(folder.join("cache"), config());
    processor(
        Arc::new(transcript.expect("a transcript")),
        Arc::new(cache.expect("a cache")),
    )
}

/// How late the latest timer came while all tasks ran, and how long they took.
fn latest(processor: Processor, tasks: usize) -> (Duration, Duration) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let processor = Arc::new(processor);
    let texts: Vec<String> = (0..tasks).map(task).collect();
    runtime.block_on(async {
        let start = Instant::now();
        let mut running = JoinSet::new();
        for text in texts {
            let processor = Arc::clone(&processor);
            running.spawn(async move {
                let mut sink = |_: Delivery<'_>| {};
                let answer = processor.process(&Still, text.as_bytes(), &mut sink);
                match answer.await {
                    Ok(Answer::Result(result)) => result.status == Status::Succeeded,
                    _ => false,
                }
            });
        }
        let mut latest = Duration::ZERO;
        while !running.is_empty() {
            let due = Instant::now() + TICK;
            tokio::time::sleep(TICK).await;
            latest = latest.max(due.elapsed());
            while let Some(ended) = running.try_join_next() {
                assert!(ended.expect("no task panics"), "each task succeeds");
            }
        }
        (latest, start.elapsed())
    })
}

fn main() {
    // `cargo test` runs benches once, to see that they run.
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let (tasks, rounds) = if is_bench { (300, 5) } else { (3, 1) };
    let mut latest_of = [Duration::ZERO; 2];
    for round in 1..=rounds {
        let memory = processor(
            Arc::new(MemoryTranscript::default().with_max_bytes(usize::MAX)),
            Arc::new(MemoryCache::default()),
        );
        let folder = tempfile::tempdir().expect("a folder");
        let processors = [("memory", memory), ("files", in_files(folder.path()))];
        for ((name, processor), latest_of) in processors.into_iter().zip(&mut latest_of) {
            let (late, took) = latest(processor, tasks);
            *latest_of = late.max(*latest_of);
            println!(
                "{round}: {tasks} tasks, {name:<6} {took:>10.1?}, the latest timer {late:>10.1?} late"
            );
        }
    }
    if is_bench {
        let [memory, files] = latest_of.map(|late| late.as_secs_f64() * 1e3);
        let what = "SAP: ms that a timer of 1 ms is late beside 300 tasks, stores in";
        report(&format!("{what} files"), files, Bar::AtMost(20.0));
        report(&format!("{what} memory"), memory, Bar::None);
    }
}
