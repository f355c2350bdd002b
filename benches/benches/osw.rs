//! A call of OpenSentience over a Unix socket, both ends in one process: against bytes of the same sizes thrown to
//! and fro, and against an rmcp call of the same input (feature `yardsticks`):
//! `cargo bench -p benches --bench osw --features yardsticks`.
//!
//! After the criterion groups it prints ratios, from runs of all sides taken in turn.

#![expect(
    clippy::expect_used,
    reason = "a bench whose subject is refused has nothing to say"
)]
#![expect(clippy::print_stdout, reason = "the summary is the result")]
#![expect(
    clippy::disallowed_methods,
    reason = "a bench reads the clock and starts tasks"
)]

use std::alloc::System;
use std::future::Future;
use std::time::{Duration, Instant};

use benches::{Bar, report};
use criterion::Criterion;
use futures::future::join_all;
use opensentience_wire::message::{SemVer, Status, ToolSpec};
use opensentience_wire::role::agent;
use opensentience_wire::role::core::{CallRequest, Config, Outcome};
use opensentience_wire::role::router;
use opensentience_wire::transport::tokio::{
    Agent, AuditSink, CoreHandle, Launcher, ToolRouter, attach,
};
use opensentience_wire::{Grant, SessionToken};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use ubos_common::id::IdSource;
use ubos_common::json::{RawBuf, RawObject};
use ubos_common::os::Clock;

#[global_allocator]
static GLOBAL: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const AGENT: &str = "com.example.graph";
const TOOL: &str = "com.example.graph/search";
const SCHEMA: &str = r#"{"type":"object","properties":{"query":{"type":"string","maxLength":200},"limit":{"type":"integer","minimum":1}},"required":["query"],"additionalProperties":false}"#;
/// These make a call of 424 bytes and a result of 409, as compact JSON without the length.
const INPUT: &str = r#"{"query":"agents that can plan, and what they were asked to do before they were told to stop, with the tools that they had at hand by then, newest first..","limit":20}"#;
const REQUEST_ID: &str = "chat_session:0197-0000000000001";
const OUTPUT: &str = r#"{"hits":3}"#;
const CALL_BYTES: usize = 424;
const RESULT_BYTES: usize = 409;
/// Calls at a time, where more than one is.
const FLIGHT: u64 = 64;

fn object(text: &str) -> RawObject {
    let raw = RawBuf::parse(text).ok().and_then(RawObject::new);
    raw.expect("an object")
}

fn on_runtime<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(future)
}

/// Bytes one way, bytes back.
fn raw(trips: u64) -> Duration {
    on_runtime(async {
        let (mut here, mut there) = UnixStream::pair().expect("a pair");
        let echo = tokio::spawn(async move {
            let (mut call, result) = ([0; CALL_BYTES + 4], [b'x'; RESULT_BYTES + 4]);
            while there.read_exact(&mut call).await.is_ok() {
                there.write_all(&result).await.expect("sent");
            }
        });
        let (call, mut result) = ([b'x'; CALL_BYTES + 4], [0; RESULT_BYTES + 4]);
        let start = Instant::now();
        for _ in 0..trips {
            here.write_all(&call).await.expect("sent");
            here.read_exact(&mut result).await.expect("answered");
        }
        let spent = start.elapsed();
        drop(here);
        echo.await.expect("ended");
        spent
    })
}

/// The agent of all calls.
fn agent() -> Agent {
    let spec = ToolSpec::local("search", "finds", object(SCHEMA));
    let output = object(OUTPUT);
    Agent::new("1.0.0".parse::<SemVer>().expect("a version")).tool(spec, move |_, _| {
        let output = output.clone();
        async move { Ok(output) }
    })
}

async fn connect() -> CoreHandle {
    let (here, there) = UnixStream::pair().expect("a pair");
    let agent = agent();
    let token = || SessionToken::from_random([7; 32]);
    let config = agent::Config::new(
        AGENT,
        "1.0.0".parse::<SemVer>().expect("a version"),
        token(),
    );
    tokio::spawn(agent.serve(there, config));
    let clock = Clock::start();
    let grant = Grant::new(clock.now().mono, token(), AGENT);
    let ids = IdSource::from_os().expect("random");
    let core = attach(
        here,
        clock,
        Config::default(),
        ids,
        grant,
        AuditSink::default(),
    );
    let mut core = core.await.expect("taken in");
    assert!(core.tools_changed().await, "an agent without tools");
    core
}

fn request() -> CallRequest {
    let mut request = CallRequest::new(TOOL, object(INPUT));
    request.request_id = Some(REQUEST_ID.into());
    request
}

async fn call(core: &CoreHandle) -> Outcome {
    let call = core.call(request()).await.expect("sent");
    call.result().await
}

/// One call after the other.
fn sequential(trips: u64) -> Duration {
    on_runtime(in_turn(trips))
}

async fn in_turn(trips: u64) -> Duration {
    let core = connect().await;
    let start = Instant::now();
    for _ in 0..trips {
        assert_eq!(call(&core).await.status, Status::Succeeded);
    }
    start.elapsed()
}

/// One call after the other, caller, core and agent on two threads.
fn on_two_threads(trips: u64) -> Duration {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let calls = runtime.spawn(in_turn(trips));
    runtime.block_on(calls).expect("ended")
}

/// The variable that makes this program the agent.
const ROLE: &str = "OSW_BENCH_AGENT";

fn launcher() -> Launcher {
    let program = std::env::current_exe().expect("a program");
    Launcher::new(AGENT, program).env(ROLE, "agent")
}

/// One call after the other of an agent in a process of its own.
fn launched(trips: u64) -> Duration {
    on_runtime(async {
        let core = launcher().launch().await.expect("launched");
        let start = Instant::now();
        for _ in 0..trips {
            assert_eq!(call(&core).await.status, Status::Succeeded);
        }
        let spent = start.elapsed();
        core.shutdown().await;
        spent
    })
}

/// The same through a router.
fn routed(trips: u64) -> Duration {
    on_runtime(async {
        let router = ToolRouter::builder(router::Config::default()).agent(AGENT, launcher);
        let router = router.start().expect("started");
        router.ready().await;
        let start = Instant::now();
        for _ in 0..trips {
            let call = router.call(request()).await.expect("sent");
            assert_eq!(call.result().await.status, Status::Succeeded);
        }
        let spent = start.elapsed();
        router.shutdown().await;
        spent
    })
}

/// Allocations a call, of both ends together.
fn allocations() -> f64 {
    const CALLS: u64 = 10_000;
    let count = |calls| {
        let region = Region::new(GLOBAL);
        sequential(calls);
        let change = region.change();
        (change.allocations + change.reallocations) as f64
    };
    // What a connection takes is in both.
    (count(2 * CALLS) - count(CALLS)) / CALLS as f64
}

/// So many calls that each begin anew when their result is there.
fn pipelined(trips: u64) -> Duration {
    on_runtime(async {
        let core = connect().await;
        let start = Instant::now();
        let each = trips.div_ceil(FLIGHT);
        join_all((0..FLIGHT).map(|_| async {
            for _ in 0..each {
                assert_eq!(call(&core).await.status, Status::Succeeded);
            }
        }))
        .await;
        start.elapsed()
    })
}

#[cfg(feature = "yardsticks")]
mod yardstick {
    use std::time::{Duration, Instant};

    use futures::future::{join, join_all};
    use rmcp::model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
        ServerCapabilities, ServerConfig,
    };
    use rmcp::service::{RequestContext, RoleServer, RunningService};
    use rmcp::{RoleClient, ServerHandler, ServiceExt as _};
    use serde_json::Value;
    use tokio::net::UnixStream;

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

    type Client = RunningService<RoleClient, ()>;

    async fn call(client: &Client) {
        let Ok(Value::Object(input)) = serde_json::from_str(super::INPUT) else {
            unreachable!("an object")
        };
        let call = CallToolRequestParams::new("search").with_arguments(input);
        let answer = client.call_tool(call).await.expect("answered");
        assert_eq!(answer.content.len(), 1);
    }

    async fn connect() -> (RunningService<RoleServer, Tool>, Client) {
        let (here, there) = UnixStream::pair().expect("a pair");
        let (server, client) = join(Tool.serve(there), ().serve(here)).await;
        (server.expect("served"), client.expect("connected"))
    }

    pub(crate) fn sequential(trips: u64) -> Duration {
        super::on_runtime(async {
            let (_server, client) = connect().await;
            let start = Instant::now();
            for _ in 0..trips {
                call(&client).await;
            }
            start.elapsed()
        })
    }

    pub(crate) fn pipelined(trips: u64) -> Duration {
        super::on_runtime(async {
            let (_server, client) = connect().await;
            let start = Instant::now();
            let each = trips.div_ceil(super::FLIGHT);
            join_all((0..super::FLIGHT).map(|_| async {
                for _ in 0..each {
                    call(&client).await;
                }
            }))
            .await;
            start.elapsed()
        })
    }
}

type Run = (&'static str, fn(u64) -> Duration);

const RUNS: &[Run] = &[
    ("raw bytes", raw),
    ("call", sequential),
    ("call, 64 in flight", pipelined),
    ("call, two threads", on_two_threads),
    ("call, own process", launched),
    ("call, own process, routed", routed),
    #[cfg(feature = "yardsticks")]
    ("rmcp", yardstick::sequential),
    #[cfg(feature = "yardsticks")]
    ("rmcp, 64 in flight", yardstick::pipelined),
];

/// The medians of rounds in which all sides run in turn, in nanoseconds a trip.
fn summary() {
    const ROUNDS: usize = 15;
    const TRIPS: u64 = 3_200;
    let mut times = vec![Vec::new(); RUNS.len()];
    for _ in 0..ROUNDS {
        for ((_, run), times) in RUNS.iter().zip(&mut times) {
            times.push(run(TRIPS).as_secs_f64() * 1e9 / TRIPS as f64);
        }
    }
    let medians: Vec<f64> = times
        .iter_mut()
        .map(|times| {
            times.sort_by(f64::total_cmp);
            times.get(ROUNDS / 2).copied().unwrap_or(f64::NAN)
        })
        .collect();
    println!();
    for ((name, _), median) in RUNS.iter().zip(&medians) {
        println!("{name:<26} {median:>8.0} ns");
    }
    let ratio = |one: usize, other: usize| {
        let at = |n: usize| medians.get(n).copied().unwrap_or(f64::NAN);
        at(one) / at(other)
    };
    report(
        "OpenSentience call / raw bytes",
        ratio(1, 0),
        Bar::AtMost(1.5),
    );
    report("call, two threads / raw bytes", ratio(3, 0), Bar::None);
    report(
        "call through a router / call, own process",
        ratio(5, 4),
        Bar::None,
    );
    report("allocations a call", allocations(), Bar::AtMost(20.0));
    if cfg!(feature = "yardsticks") {
        report("rmcp / call", ratio(6, 1), Bar::None);
        report("rmcp / call, 64 in flight", ratio(7, 2), Bar::AtLeast(5.0));
    }
}

fn main() {
    if std::env::var_os(ROLE).is_some() {
        agent().run().expect("served");
        return;
    }
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("osw");
    for (name, run) in RUNS {
        group.bench_function(*name, |bencher| bencher.iter_custom(run));
    }
    group.finish();
    // `cargo test` runs benches once, to see that they run.
    if std::env::args().any(|argument| argument == "--bench") {
        summary();
    }
}
