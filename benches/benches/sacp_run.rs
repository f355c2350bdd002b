//! Running plans and finding agents: `cargo bench -p benches --bench sacp_run`.
//!
//! Prints the time of a step in the runner and of a query among 100,000 agents, each beside a hash-map lookup of the same
//! run, and the exact nearest ten of 10,000 vectors against a plain loop over the same numbers.

#![expect(
    clippy::expect_used,
    reason = "a bench whose subject is refused has nothing to say"
)]
#![expect(clippy::print_stdout, reason = "the summary is the result")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::collections::HashMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use benches::{Bar, report};
use criterion::Criterion;
use sacp::registry::{AgentRecord, MemoryRegistry, Query, Registry};
use sacp::runner::{Config, Input, Output, Runner};
use sacp::{Act, Item, Message, Plan};
use ubos_common::id::IdSource;
use ubos_common::json::RawBuf;
use ubos_common::time::{Mono, Now, Timestamp};

const DIMENSION: usize = 384;
const VECTORS: usize = 10_000;
const AGENTS: usize = 100_000;
const STEPS: usize = 1_000;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let vectors = vectors();
    let near = near(&vectors);
    let wanted: Vec<f32> = vectors
        .iter()
        .skip(7 * DIMENSION)
        .take(DIMENSION)
        .copied()
        .collect();
    let many = many();
    let query = Query::default().with_verb("verb-17").with_tool("TOOL-17");
    assert_eq!(many.query(&query).len(), 100);
    let message = plan();
    let mut group = criterion.benchmark_group("sacp");
    group.bench_function("nearest ten of 10,000 x 384", |b| {
        b.iter(|| near.similar(black_box(&wanted), 10, -1.0))
    });
    group.bench_function("query by verb and tool among 100,000", |b| {
        b.iter(|| many.query(black_box(&query)))
    });
    group.bench_function("run of 1,000 steps", |b| {
        b.iter(|| run(black_box(&message)))
    });
    group.finish();

    let plain = best_of(50, || plain_loop(&vectors, black_box(&wanted)));
    let ours = best_of(50, || near.similar(black_box(&wanted), 10, -1.0));
    println!("\nnearest ten of 10,000 x 384: {ours:?}, plain loop {plain:?}");
    report(
        "SACP: nearest ten of 10,000 x 384 / a plain loop",
        ratio(ours, plain),
        Bar::AtMost(1.2),
    );
    let names: HashMap<String, usize> = (0..AGENTS).map(|n| (format!("agent-{n}"), n)).collect();
    let lookup = best_of(20, || {
        for key in KEYS.into_iter().cycle().take(1000) {
            black_box(names.get(black_box(key)));
        }
    }) / 1000;
    let asked = best_of(200, || many.query(black_box(&query)));
    println!(
        "query by verb and tool, 100 of 100,000 agents: {asked:?}; a hash-map lookup {lookup:?}"
    );
    report(
        "SACP: us of a query by verb and tool, 100 of 100,000 agents",
        asked.as_secs_f64() * 1e6,
        Bar::AtMost(5.0),
    );
    let ran = best_of(50, || run(black_box(&message)));
    let step = ran / u32::try_from(STEPS).expect("a thousand");
    println!("runner, a step of a plan of 1,000: {step:?}; a hash-map lookup {lookup:?}");
    report(
        "SACP: us of a step of a plan of 1,000",
        step.as_secs_f64() * 1e6,
        Bar::AtMost(2.0),
    );
}

const KEYS: [&str; 4] = ["agent-1", "agent-70000", "agent-99999", "agent-31415"];

fn ratio(a: Duration, b: Duration) -> f64 {
    a.as_secs_f64() / b.as_secs_f64()
}

/// The shortest of so many runs: what the machine can do when nobody disturbs it.
fn best_of<T>(runs: usize, mut run: impl FnMut() -> T) -> Duration {
    let timed = (0..runs).map(|_| {
        let start = Instant::now();
        black_box(run());
        start.elapsed()
    });
    timed.min().expect("at least one run")
}

fn vectors() -> Vec<f32> {
    let mut ids = IdSource::seeded(3);
    let number = |bits: u64| f32::from(i16::try_from(bits % 2001).expect("small") - 1000) / 1000.0;
    (0..VECTORS * DIMENSION)
        .map(|_| number(ids.bits()))
        .collect()
}

fn record(name: &str, verb: &str, tool: &str) -> AgentRecord {
    AgentRecord::new(
        name.into(),
        vec![verb.into()],
        vec![tool.into()],
        vec![],
        vec!["list".into()],
        "does it".into(),
    )
}

fn near(vectors: &[f32]) -> MemoryRegistry {
    let mut registry = MemoryRegistry::default();
    for (n, row) in vectors.chunks(DIMENSION).enumerate() {
        let mut record = record(&format!("agent-{n}"), "verb", "TOOL");
        record.embedding = Some(row.iter().map(|x| f64::from(*x)).collect());
        registry.add_agent(record).expect("room");
    }
    registry
}

/// A hundred agents for each of a thousand pairs.
fn many() -> MemoryRegistry {
    let mut registry = MemoryRegistry::default();
    for n in 0..AGENTS {
        let pair = n % 1000;
        let mut record = record(
            &format!("agent-{n}"),
            &format!("verb-{pair}"),
            &format!("TOOL-{pair}"),
        );
        record.confidence_score = Some(f64::from(u32::try_from(n % 97).expect("small")) / 97.0);
        registry.add_agent(record).expect("room");
    }
    registry
}

/// What a plain loop does: one sum a row, the ten greatest kept in order.
fn plain_loop(rows: &[f32], wanted: &[f32]) -> Vec<(f32, usize)> {
    let mut best: Vec<(f32, usize)> = Vec::with_capacity(11);
    for (n, row) in rows.chunks_exact(DIMENSION).enumerate() {
        let mut sum = 0.0;
        for (a, b) in row.iter().zip(wanted) {
            sum += a * b;
        }
        if best.len() < 10 || best.last().is_some_and(|(least, _)| sum > *least) {
            let place = best.partition_point(|(other, _)| *other >= sum);
            best.insert(place, (sum, n));
            best.truncate(10);
        }
    }
    best
}

/// A thousand steps: acts in a row and groups of eight with a join.
fn plan() -> Message {
    let mut plan = Plan::default();
    for _ in 0..STEPS / 10 {
        plan.push(Act::new("fetch", "TOOL"));
        plan.push(Item::group((0..8).map(|_| Act::new("fetch", "TOOL"))));
        plan.push(Act::join("MERGE"));
    }
    Message::new("BENCH", plan)
}

fn run(message: &Message) -> usize {
    let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
    let mut runner = Runner::new(message, Config::default()).expect("a plan that runs");
    let output = RawBuf::parse("1").expect("a number");
    runner.start(now);
    let mut dispatched = 0;
    while let Some(next) = runner.poll_output() {
        if let Output::Dispatch { ticket, .. } = next {
            dispatched += 1;
            let input = Input::Succeeded {
                ticket,
                output: output.clone(),
            };
            runner.handle_input(now, input).expect("it runs");
        }
    }
    assert_eq!(dispatched, STEPS);
    dispatched
}
