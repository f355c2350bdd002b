//! Bounded JSON with limits, duplicate check and findings, against plain `serde_json` into the same types:
//! `cargo bench -p benches --bench json`.
//!
//! After the criterion group it prints ratios, from runs of both sides taken in turn.

#![expect(
    clippy::expect_used,
    reason = "a bench whose subject is refused has nothing to say"
)]
#![expect(clippy::print_stdout, reason = "the summary is the result")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::borrow::Cow;
use std::hint::black_box;
use std::time::Instant;

use benches::{Bar, report};
use criterion::{Criterion, Throughput};
use serde::Deserialize;
use serde_json::value::RawValue;
use ubos_common::json::{self, Limits, Raw, RawBuf, Read};
use ubos_common::violation::Profile;

/// An envelope of 1 KB with a payload, as the protocols here have them.
const TEXT: &str = r#"{"protocolVersion":"2.0","taskId":"1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed","parentTaskId":null,"correlationId":"7d793037-a076-4c8e-9d0b-6f3a1c2f1f11","issuedAt":"2025-10-01T12:00:00Z","issuer":{"agentId":"A-prime","agentKind":"agent","name":"Prime"},"target":{"capability":"research.query","agentId":"A-research-001","region":"eu"},"context":{"pressureLevel":"consulted","territory":"EUFM","riskTolerance":"low","principles":["systems_over_willpower","blueprint_thinking","strategic_pause"],"objectives":["find the funding gap","name the sources"],"constraints":["no personal data","cite every figure"]},"payload":{"query":"grants for small manufacturers in the north","depth":"medium","filters":{"year":[2023,2024,2025],"currency":"EUR","min":10000.5,"max":2500000},"notes":["first \u00e9bauche","second"],"pages":12,"strict":true,"weights":[0.25,0.5,0.125,0.0625],"sources":[{"name":"register","rank":1},{"name":"survey","rank":2},{"name":"press","rank":3}]},"tags":["pilot","q4"]}"#;

ubos_common::wire! {
    /// Owned.
    pub struct Task {
        /// Text.
        required version: String = "protocolVersion", "B-1";
        /// Text.
        required task_id: String = "taskId", "B-1";
        /// Text.
        nullable parent: String = "parentTaskId", "B-1";
        /// Text.
        required correlation_id: String = "correlationId", "B-1";
        /// Text.
        required issued_at: String = "issuedAt", "B-1";
        /// Object.
        required issuer: Issuer = "issuer", "B-1";
        /// Object.
        required target: Target = "target", "B-1";
        /// Object.
        required context: Context = "context", "B-1";
        /// Raw.
        required payload: RawBuf = "payload", "B-1";
        /// List.
        optional tags: Vec<String> = "tags", "B-1";
    }
}

ubos_common::wire! {
    /// Owned.
    pub struct Issuer {
        /// Text.
        required agent_id: String = "agentId", "B-1";
        /// Text.
        required kind: String = "agentKind", "B-1";
        /// Text.
        optional name: String = "name", "B-1";
    }
}

ubos_common::wire! {
    /// Owned.
    pub struct Target {
        /// Text.
        required capability: String = "capability", "B-1";
        /// Text.
        optional agent_id: String = "agentId", "B-1";
        /// Text.
        optional region: String = "region", "B-1";
    }
}

ubos_common::wire! {
    /// Owned.
    pub struct Context {
        /// Text.
        required level: String = "pressureLevel", "B-1";
        /// Text.
        optional territory: String = "territory", "B-1";
        /// Text.
        optional risk: String = "riskTolerance", "B-1";
        /// List.
        optional principles: Vec<String> = "principles", "B-1";
        /// List.
        optional objectives: Vec<String> = "objectives", "B-1";
        /// List.
        optional constraints: Vec<String> = "constraints", "B-1";
    }
}

ubos_common::wire! {
    /// Borrowed.
    pub struct View<'a> {
        /// Text.
        required version: Cow<'a, str> = "protocolVersion", "B-1";
        /// Text.
        required task_id: Cow<'a, str> = "taskId", "B-1";
        /// Raw.
        required parent: Raw<'a> = "parentTaskId", "B-1";
        /// Text.
        required correlation_id: Cow<'a, str> = "correlationId", "B-1";
        /// Text.
        required issued_at: Cow<'a, str> = "issuedAt", "B-1";
        /// Raw.
        required issuer: Raw<'a> = "issuer", "B-1";
        /// Raw.
        required target: Raw<'a> = "target", "B-1";
        /// Raw.
        required context: Raw<'a> = "context", "B-1";
        /// Raw.
        required payload: Raw<'a> = "payload", "B-1";
        /// Raw.
        optional tags: Raw<'a> = "tags", "B-1";
    }
}

/// The same with derived serde.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "read to be measured")]
struct SerdeTask {
    protocol_version: String,
    task_id: String,
    parent_task_id: Option<String>,
    correlation_id: String,
    issued_at: String,
    issuer: SerdeIssuer,
    target: SerdeTarget,
    context: SerdeContext,
    payload: Box<RawValue>,
    tags: Option<Vec<String>>,
}

/// The same, with the payload as a tree: what one writes first.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "read to be measured")]
struct SerdeTree {
    protocol_version: String,
    task_id: String,
    parent_task_id: Option<String>,
    correlation_id: String,
    issued_at: String,
    issuer: SerdeIssuer,
    target: SerdeTarget,
    context: SerdeContext,
    payload: serde_json::Value,
    tags: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "read to be measured")]
struct SerdeIssuer {
    agent_id: String,
    agent_kind: String,
    name: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "read to be measured")]
struct SerdeTarget {
    capability: String,
    agent_id: Option<String>,
    region: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "read to be measured")]
struct SerdeContext {
    pressure_level: String,
    territory: Option<String>,
    risk_tolerance: Option<String>,
    principles: Option<Vec<String>>,
    objectives: Option<Vec<String>>,
    constraints: Option<Vec<String>>,
}

fn ours<'a, T: Read<'a>>(bytes: &'a [u8]) -> T {
    json::decode(bytes, &Limits::default(), Profile::Strict)
        .expect("sound")
        .0
}

fn serde<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> T {
    serde_json::from_slice(bytes).expect("sound")
}

type Run = (&'static str, fn(&[u8]));

const RUNS: [Run; 5] = [
    ("ours, owned", |bytes| {
        drop(black_box(ours::<Task>(black_box(bytes))))
    }),
    ("ours, borrowed view", |bytes| {
        drop(black_box(ours::<View<'_>>(black_box(bytes))))
    }),
    ("ours, raw", |bytes| {
        black_box(ours::<Raw<'_>>(black_box(bytes)));
    }),
    ("serde_json, payload raw", |bytes| {
        drop(black_box(serde::<SerdeTask>(black_box(bytes))))
    }),
    ("serde_json, payload a tree", |bytes| {
        drop(black_box(serde::<SerdeTree>(black_box(bytes))))
    }),
];

fn summary() {
    const ROUNDS: usize = 31;
    const RUNS_A_ROUND: u32 = 2_000;
    let mut times = vec![Vec::new(); RUNS.len()];
    for _ in 0..ROUNDS {
        for (n, (_, run)) in RUNS.iter().enumerate() {
            let start = Instant::now();
            for _ in 0..RUNS_A_ROUND {
                run(TEXT.as_bytes());
            }
            if let Some(times) = times.get_mut(n) {
                times.push(start.elapsed().as_nanos() / u128::from(RUNS_A_ROUND));
            }
        }
    }
    let median = |times: &Vec<u128>| {
        let mut sorted = times.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied().unwrap_or(1)
    };
    let base = times.last().map_or(1, median);
    println!(
        "\n{} bytes; times of serde_json with the payload as a tree: {base} ns",
        TEXT.len()
    );
    for ((name, _), times) in RUNS.iter().zip(&times) {
        let own = median(times);
        println!("{name:<28} {own:>6} ns");
        let what = format!("JSON: {name} / serde_json into owned types");
        report(&what, own as f64 / base as f64, Bar::None);
    }
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("json");
    group.throughput(Throughput::Bytes(TEXT.len() as u64));
    for (name, run) in RUNS {
        group.bench_function(name, |bencher| bencher.iter(|| run(TEXT.as_bytes())));
    }
    group.finish();
    criterion.final_summary();
    summary();
}
