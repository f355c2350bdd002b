//! A task of 1 KB read strictly with every rule, against plain `serde_json` into owned types without any, and
//! against a tree and a compiled JSON Schema: `cargo bench -p benches --bench sap`.
//!
//! After the criterion group it prints ratios, from runs of both sides taken in turn.

#![expect(
    clippy::expect_used,
    reason = "a bench whose subject is refused has nothing to say"
)]
#![expect(clippy::print_stdout, reason = "the summary is the result")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::LazyLock;
use std::time::Instant;

use benches::{Bar, report};
use criterion::{Criterion, Throughput};
use jsonschema::{PatternOptions, Validator};
use sap::TaskView;
use sap::schemas;
use sap::validate::{Options, decode_task};
use serde::Deserialize;
use serde_json::Value;
use time::OffsetDateTime;
use ubos_common::json::Limits;
use uuid::Uuid;

/// The specification's task, compact, with the level that it lacks.
const TEXT: &str = r#"{"protocolVersion":"2.0","taskId":"7fbb32b6-0d2c-4c1a-9b75-2a4b3b0b6c0a","parentTaskId":null,"correlationId":"a7f5d5b2-13a8-4a0d-9ba2-6b1e3c6f9d11","issuedAt":"2025-09-28T10:15:23Z","issuer":{"agentId":"A-prime","agentKind":"agent","name":"AI Prime"},"target":{"agentId":"A-ml-001","capability":"consult.align"},"constitutionalContext":{"pressureLevel":"consulted","principles":["systems_over_willpower","blueprint_thinking","strategic_pause"],"pressure":{"systems_over_willpower":52,"blueprint_thinking":41,"strategic_pause":28},"objectives":["Outline SAP V2 spec"],"constraints":["No PII","Cite constitutional sources"],"riskTolerance":"low","territory":"EUFM","references":["ubos://constitution/books"],"cachePolicy":{"mode":"prefer","maxAgeSec":86400,"mustAlign":true}},"payload":{"topic":"UBOS SAP V2","depth":"detailed"},"outputContract":{"format":"json","schema":{"type":"object"}},"telemetry":{"priority":"high","deadline":"2025-09-28T11:00:00Z","budget":{"tokens":8000}},"replyTo":{"endpoint":"bus:inproc:prime","expectAck":true},"tags":["spec","protocol"],"meta":{"clientVersion":"ubos/1.7.0"}}"#;

/// What one writes first: derived serde into owned types, with ids and times typed and the payload a tree; no rule
/// is looked at, and nothing unknown is kept.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "read to be measured")]
struct Plain {
    protocol_version: String,
    task_id: Uuid,
    parent_task_id: Option<Uuid>,
    correlation_id: Uuid,
    #[serde(with = "time::serde::rfc3339")]
    issued_at: OffsetDateTime,
    issuer: PlainIssuer,
    target: PlainTarget,
    constitutional_context: PlainContext,
    payload: Value,
    output_contract: Option<PlainContract>,
    telemetry: Option<PlainTelemetry>,
    reply_to: Option<PlainReplyTo>,
    attachments: Option<Vec<Value>>,
    tags: Option<Vec<String>>,
    meta: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "read to be measured")]
struct PlainIssuer {
    agent_id: String,
    agent_kind: String,
    name: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "read to be measured")]
struct PlainTarget {
    agent_id: Option<String>,
    capability: String,
    routing_hints: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "read to be measured")]
struct PlainContext {
    pressure_level: String,
    principles: Option<Vec<String>>,
    pressure: Option<BTreeMap<String, f64>>,
    objectives: Option<Vec<String>>,
    constraints: Option<Vec<String>>,
    risk_tolerance: Option<String>,
    territory: Option<String>,
    references: Option<Vec<String>>,
    cache_policy: Option<PlainCachePolicy>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "read to be measured")]
struct PlainCachePolicy {
    mode: Option<String>,
    max_age_sec: Option<u64>,
    must_align: Option<bool>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "read to be measured")]
struct PlainContract {
    schema: Option<Value>,
    format: Option<String>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "read to be measured")]
struct PlainTelemetry {
    priority: Option<String>,
    #[serde(default, with = "time::serde::rfc3339::option")]
    deadline: Option<OffsetDateTime>,
    budget: Option<BTreeMap<String, f64>>,
    trace: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "read to be measured")]
struct PlainReplyTo {
    endpoint: Option<String>,
    expect_ack: Option<bool>,
}

static SCHEMA: LazyLock<Validator> = LazyLock::new(|| {
    let schema = serde_json::from_str(schemas::TASK).expect("a schema is JSON");
    jsonschema::draft202012::options()
        .offline()
        .should_validate_formats(true)
        .with_pattern_options(PatternOptions::regex())
        .build(&schema)
        .expect("the schema compiles")
});

type Run = (&'static str, fn(&[u8]));

const RUNS: [Run; 4] = [
    ("strict decode and validate", |bytes| {
        let read = decode_task(black_box(bytes), &Options::default());
        drop(black_box(read.expect("valid")));
    }),
    ("borrowed view", |bytes| {
        let view = TaskView::decode(black_box(bytes), &Limits::default());
        drop(black_box(view.expect("valid")));
    }),
    ("serde_json, owned", |bytes| {
        let plain: Plain = serde_json::from_slice(black_box(bytes)).expect("sound");
        drop(black_box(plain));
    }),
    ("tree and jsonschema", |bytes| {
        let tree: Value = serde_json::from_slice(black_box(bytes)).expect("sound");
        assert!(SCHEMA.is_valid(&tree));
        drop(black_box(tree));
    }),
];

fn summary() {
    const ROUNDS: usize = 31;
    const RUNS_A_ROUND: u32 = 2_000;
    let mut times = vec![Vec::new(); RUNS.len()];
    for _ in 0..ROUNDS {
        for ((_, run), times) in RUNS.iter().zip(&mut times) {
            let start = Instant::now();
            for _ in 0..RUNS_A_ROUND {
                run(TEXT.as_bytes());
            }
            times.push(start.elapsed().as_nanos() / u128::from(RUNS_A_ROUND));
        }
    }
    for times in &mut times {
        times.sort_unstable();
    }
    let median = |n: usize| {
        times
            .get(n)
            .and_then(|t| t.get(ROUNDS / 2))
            .map_or(1.0, |t| *t as f64)
    };
    println!("\n{} bytes", TEXT.len());
    for (n, (name, _)) in RUNS.iter().enumerate() {
        println!("{name:<28} {:>6} ns", median(n));
    }
    let ratio = |one, other| median(one) / median(other);
    report(
        "SAP: strict decode of a task / serde_json into owned types",
        ratio(0, 2),
        Bar::AtMost(0.75),
    );
    report(
        "SAP: borrowed view of a task / serde_json into owned types",
        ratio(1, 2),
        Bar::AtMost(0.6),
    );
    report(
        "SAP: strict decode of a task / a tree with jsonschema",
        ratio(0, 3),
        Bar::AtMost(0.5),
    );
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("sap");
    group.throughput(Throughput::Bytes(TEXT.len() as u64));
    for (name, run) in RUNS {
        group.bench_function(name, |bencher| bencher.iter(|| run(TEXT.as_bytes())));
    }
    group.finish();
    criterion.final_summary();
    summary();
}
