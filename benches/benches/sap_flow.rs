//! A task through the whole processor, answered by the cache, against reading it alone; and a round trip on the
//! bus, against an rmcp call of the same payload over a duplex in memory (feature `yardsticks`):
//! `cargo bench -p benches --bench sap_flow --features yardsticks`.
//!
//! After the criterion groups it prints ratios, from runs of both sides taken in turn.

#![expect(
    clippy::expect_used,
    reason = "a bench whose subject is refused has nothing to say"
)]
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use benches::{Bar, report};
use criterion::Criterion;
use futures::executor::block_on;
use futures::future::BoxFuture;
use sap::cache::{Caching, WholePayload};
use sap::processor::{AllowAll, Answer, Config, Context, Delivery, Outcome, Processor};
use sap::store::{MemoryCache, MemoryTranscript};
use sap::transport::Message;
use sap::transport::bus::{self, Bus};
use sap::validate::{Options, decode_task};
use sap::{Producer, ProducerKind, Status, Task};
use ubos_common::driver::Sleep;
use ubos_common::json::RawBuf;
use ubos_common::time::{Mono, Now, Timestamp};

/// The specification's task, compact, with the level that it lacks and without an endpoint.
const TEXT: &str = r#"{"protocolVersion":"2.0","taskId":"7fbb32b6-0d2c-4c1a-9b75-000000000000","parentTaskId":null,"correlationId":"a7f5d5b2-13a8-4a0d-9ba2-6b1e3c6f9d11","issuedAt":"2025-09-28T10:15:23Z","issuer":{"agentId":"A-prime","agentKind":"agent","name":"AI Prime"},"target":{"agentId":"A-ml-001","capability":"consult.align"},"constitutionalContext":{"pressureLevel":"consulted","principles":["systems_over_willpower","blueprint_thinking","strategic_pause"],"pressure":{"systems_over_willpower":52,"blueprint_thinking":41,"strategic_pause":28},"objectives":["Outline SAP V2 spec"],"constraints":["No PII","Cite constitutional sources"],"riskTolerance":"low","territory":"EUFM","references":["ubos://constitution/books"],"cachePolicy":{"mode":"prefer","maxAgeSec":86400,"mustAlign":true}},"payload":{"topic":"UBOS SAP V2","depth":"detailed"},"outputContract":{"format":"json","schema":{"type":"object"}},"telemetry":{"priority":"high","deadline":"2025-09-28T11:00:00Z","budget":{"tokens":8000}},"replyTo":{"expectAck":true},"tags":["spec","protocol"],"meta":{"clientVersion":"ubos/1.7.0","note":"as long as the others"}}"#;
const OUTPUT: &str = r#"{"sections":["Purpose","Objects","Learning"]}"#;
/// Tasks that one processor answers before it is made anew, so that what it keeps does not grow.
const ROUND: u32 = 2_000;

/// A clock that stands.
#[derive(Clone)]
struct Still(Timestamp);

impl Sleep for Still {
    fn now(&self) -> Now {
        Now::new(Mono::ZERO, self.0)
    }

    fn sleep_until(&self, _: Mono) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

fn still() -> Still {
    Still("2025-09-28T10:20:00Z".parse().expect("a time"))
}

/// The task under its own id.
fn numbered(number: u32) -> Vec<u8> {
    TEXT.replacen("000000000000", &format!("{number:012}"), 1)
        .into_bytes()
}

fn processor() -> Processor {
    let producer = Producer::new("A-ml-001".parse().expect("an id"), ProducerKind::Agent);
    Processor::new(
        producer,
        Arc::new(AllowAll),
        Arc::new(MemoryTranscript::default().with_max_bytes(usize::MAX)),
        Config::default(),
    )
    .expect("a processor")
    .handle(
        "consult.align".parse().expect("a name"),
        |_: Context| async { Ok(Outcome::new(RawBuf::parse(OUTPUT).expect("JSON"))) },
    )
    .cache(Arc::new(MemoryCache::default()))
    .cached(
        "consult.align".parse().expect("a name"),
        Caching::shared(WholePayload),
    )
}

/// A processor whose cache has the answer.
fn warm() -> Processor {
    let processor = processor();
    assert_eq!(
        answer(&processor, &numbered(0)),
        (Status::Succeeded, Some(false))
    );
    assert_eq!(
        answer(&processor, &numbered(1)),
        (Status::Succeeded, Some(true))
    );
    processor
}

fn answer(processor: &Processor, task: &[u8]) -> (Status, Option<bool>) {
    let mut sink = |delivery: Delivery<'_>| {
        black_box(&delivery);
    };
    let answer = block_on(processor.process(&still(), task, &mut sink));
    match answer.expect("written down") {
        Answer::Result(result) => {
            let hit = result
                .constitutional_evidence
                .cache
                .and_then(|cache| cache.hit);
            (result.status, hit)
        }
        other => unreachable!("{other:?}"),
    }
}

fn hits(tasks: u64) -> Duration {
    let mut spent = Duration::ZERO;
    let mut left = u32::try_from(tasks).expect("a number of iterations");
    while left > 0 {
        let processor = warm();
        let round: Vec<Vec<u8>> = (2..2 + left.min(ROUND)).map(numbered).collect();
        let start = Instant::now();
        for task in &round {
            black_box(answer(&processor, task));
        }
        spent += start.elapsed();
        left -= left.min(ROUND);
    }
    spent
}

fn decode(tasks: u64) -> Duration {
    let (text, options) = (numbered(7), Options::default());
    let start = Instant::now();
    for _ in 0..tasks {
        black_box(decode_task(black_box(&text), &options).expect("a task"));
    }
    start.elapsed()
}

fn typed(number: u32) -> Task {
    let (mut task, _) = decode_task(&numbered(number), &Options::default()).expect("a task");
    task.constitutional_context.cache_policy = None;
    task
}

/// Round trips on the bus; the handler answers at once.
fn bus(trips: u64) -> Duration {
    let mut spent = Duration::ZERO;
    let mut left = u32::try_from(trips).expect("a number of iterations");
    while left > 0 {
        let transcript = Arc::new(MemoryTranscript::default().with_max_bytes(usize::MAX));
        let bus = Bus::new(Arc::new(still()), transcript, bus::Config::default()).expect("a bus");
        bus.attach(processor(), |_| {});
        let round: Vec<Task> = (0..left.min(ROUND)).map(typed).collect();
        let start = Instant::now();
        for task in round {
            let answer = block_on(bus.send(task, &mut |message| {
                black_box(message);
            }));
            let Ok(Some(Message::Result(result))) = answer else {
                unreachable!("answered")
            };
            assert_eq!(result.status, Status::Succeeded);
        }
        spent += start.elapsed();
        left -= left.min(ROUND);
    }
    spent
}

#[cfg(feature = "yardsticks")]
mod yardstick {
    use std::time::{Duration, Instant};

    use rmcp::model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
        ServerCapabilities, ServerConfig,
    };
    use rmcp::service::{RequestContext, RoleServer};
    use rmcp::{ServerHandler, ServiceExt as _};
    use serde_json::Value;

    /// One tool, which answers at once with a text.
    struct Tool;

    impl ServerHandler for Tool {
        fn get_info(&self) -> ServerConfig {
            ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
        }

        async fn call_tool(
            &self,
            request: CallToolRequestParams,
            _: RequestContext<RoleServer>,
        ) -> Result<CallToolResponse, ErrorData> {
            assert!(request.arguments.is_some());
            Ok(CallToolResult::success(vec![ContentBlock::text(super::OUTPUT)]).into())
        }
    }

    pub(crate) fn calls(trips: u64) -> Duration {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let (here, there) = tokio::io::duplex(1 << 16);
            let (server, client) = futures::future::join(Tool.serve(there), ().serve(here)).await;
            let (_server, client) = (server.expect("served"), client.expect("connected"));
            let Ok(Value::Object(task)) = serde_json::from_slice(&super::numbered(7)) else {
                unreachable!("an object")
            };
            let start = Instant::now();
            for _ in 0..trips {
                let call = CallToolRequestParams::new("consult.align").with_arguments(task.clone());
                let answer = client.call_tool(call).await.expect("answered");
                assert_eq!(answer.content.len(), 1);
            }
            start.elapsed()
        })
    }
}

/// The median of rounds in which both sides run in turn.
fn ratio(one: impl Fn(u64) -> Duration, other: impl Fn(u64) -> Duration) -> f64 {
    let mut ratios: Vec<f64> = (0..15)
        .map(|_| {
            let (one, other) = (one(2_000), other(2_000));
            one.as_secs_f64() / other.as_secs_f64()
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    ratios.get(7).copied().unwrap_or(f64::NAN)
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("sap_flow");
    group.bench_function("decode", |b| b.iter_custom(decode));
    group.bench_function("cache_hit", |b| b.iter_custom(hits));
    group.bench_function("bus", |b| b.iter_custom(bus));
    #[cfg(feature = "yardsticks")]
    group.bench_function("rmcp", |b| b.iter_custom(yardstick::calls));
    group.finish();
    // `cargo test` runs benches once, to see that they run.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    report(
        "SAP: cache hit / decode",
        ratio(hits, decode),
        Bar::AtMost(6.0),
    );
    #[cfg(feature = "yardsticks")]
    report(
        "rmcp / SAP bus",
        ratio(yardstick::calls, bus),
        Bar::AtLeast(3.0),
    );
}
