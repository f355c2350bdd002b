//! One session floods the hub and nobody reads it: what do the others notice?
//!
//! ```sh
//! cargo run --release -p uap-hub-proto --features client,server --example flood
//! ```

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a program that measures"
)]

use std::time::{Duration, Instant};

use uap_hub_proto::{
    role::hub::{Job, JobEvent, Verdict},
    transport::{
        client::AgentBuilder,
        server::{HubHandle, ServerConfig, serve},
    },
    wire::{Severity, TestResult},
};

/// Sessions that are timed, one after the other.
const SESSIONS: u32 = 300;

/// Bytes of a line of the flood, and its lines: 200 MB.
const LINE: usize = 10_000;
const LINES: usize = 20_000;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let hub = serve(([127, 0, 0, 1], 0).into(), ServerConfig::default())
        .await
        .unwrap();
    let _agent = AgentBuilder::new("one")
        .on_test("trip", |_, context| async move {
            context.progress(1, 1, "there").await?;
            Ok(TestResult::completed("and back"))
        })
        .on_test("flood", |_, context| async move {
            for _ in 0..LINES {
                context.log(Severity::Info, "x".repeat(LINE)).await?;
            }
            Ok(TestResult::completed("flooded"))
        })
        .start(&hub.url())
        .unwrap();
    hub.wait_for_agents(1).await.expect("the hub lives");
    trips(&hub).await;
    for round in 1..=5 {
        let quiet = trips(&hub).await;
        let before = resident();
        let mut flood = hub.submit(Job::test("flood", vec![])).unwrap();
        while !matches!(
            flood.next_event().await.expect("no end before it"),
            JobEvent::Telemetry { .. }
        ) {}
        let flooded = trips(&hub).await;
        let grown = resident().saturating_sub(before);
        flood.cancel().unwrap();
        println!(
            "round {round}: a session {quiet:.1?}, beside the flood {flooded:.1?}, ratio {:.2}; \
             memory of hub and agent grew by {grown} KiB of {} MB sent",
            flooded.as_secs_f64() / quiet.as_secs_f64(),
            LINE * LINES / 1_000_000,
        );
    }
}

/// The mean time of a session.
async fn trips(hub: &HubHandle) -> Duration {
    let started = Instant::now();
    for _ in 0..SESSIONS {
        let job = hub.submit(Job::test("trip", vec![])).unwrap();
        assert_eq!(job.outcome().await.verdict, Verdict::Completed);
    }
    started.elapsed() / SESSIONS
}

/// KiB of memory that this process has.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kib.unwrap_or_default()
}
