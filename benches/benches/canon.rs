//! Cache keys: canonical JSON and BLAKE3 of one value of 1 KB and of 64 KB, against
//! `serde_json::to_vec` (which does not canonicalise) and `serde_json_canonicalizer`.
//!
//! After the criterion groups it prints ratios, from runs of both sides taken in turn.

#![expect(
    clippy::expect_used,
    reason = "a bench whose subject is refused has nothing to say"
)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput};
use serde::Serialize;
use serde_json::{Value, json};
use ubos_common::canon::{self, Digest, Domain};

/// The parts of a cache key, in order. What is inside is not: fields stand as people write them.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Key {
    capability: &'static str,
    output_contract: Contract,
    payload: Payload,
    principles: Vec<&'static str>,
    sap_version: &'static str,
    territory: Option<&'static str>,
}

#[derive(Serialize)]
struct Payload {
    items: Vec<Item>,
}

#[derive(Serialize)]
struct Contract {
    schema: &'static str,
    strict: bool,
}

#[derive(Serialize)]
struct Item {
    id: u64,
    title: String,
    note: &'static str,
    score: f64,
    weight: f64,
    tags: [&'static str; 3],
    place: Place,
    active: bool,
}

#[derive(Serialize)]
struct Place {
    x: f64,
    y: i64,
    label: &'static str,
    zone: Zone,
}

#[derive(Serialize)]
struct Zone {
    code: u32,
    name: &'static str,
}

fn key(items: u32) -> Key {
    let item = |n: u32| Item {
        id: 100_000 + u64::from(n) * 7,
        title: format!("Quarterly report number {n} for the northern region"),
        note: "line one\nsaid \"two\"",
        score: f64::from(n) * 0.37 + 0.123_456_789,
        weight: 1.0 / f64::from(n + 3),
        tags: ["finance", "café", "draft"],
        place: Place {
            x: f64::from(n) + 0.5,
            y: -i64::from(n) * 31,
            label: "shelf",
            zone: Zone {
                code: n,
                name: "inner ring",
            },
        },
        active: n.is_multiple_of(2),
    };
    Key {
        sap_version: "2.0",
        capability: "report.summarise",
        territory: Some("eu-north"),
        principles: vec!["do-no-harm", "explain", "privacy"],
        payload: Payload {
            items: (0..items).map(item).collect(),
        },
        output_contract: Contract {
            schema: "https://example.org/schemas/summary.json",
            strict: true,
        },
    }
}

/// One value in the three forms in which it comes.
struct Subject {
    name: &'static str,
    typed: Key,
    value: Value,
    wire: String,
}

impl Subject {
    fn new(name: &'static str, items: u32) -> Self {
        let typed = key(items);
        let value = json!(typed);
        let wire = serde_json::to_string(&typed).expect("plain data");
        assert_eq!(
            canonicalizer(&typed),
            ours_typed(&typed),
            "same key, {name}"
        );
        assert_eq!(
            canonicalizer(&typed),
            ours_value(&value),
            "same key, {name}"
        );
        assert_eq!(canonicalizer(&typed), ours_wire(&wire), "same key, {name}");
        Self {
            name,
            typed,
            value,
            wire,
        }
    }
}

fn ours_typed<T: Serialize>(value: &T) -> Digest {
    canon::digest(&Domain::plain(), value).expect("has a canonical form")
}

fn ours_value(value: &Value) -> Digest {
    canon::digest_value(&Domain::plain(), value).expect("has a canonical form")
}

fn ours_wire(json: &str) -> Digest {
    canon::digest_str(&Domain::plain(), json).expect("has a canonical form")
}

fn serde_json<T: Serialize>(value: &T) -> Digest {
    Digest::of_bytes(&serde_json::to_vec(value).expect("plain data"))
}

fn canonicalizer<T: Serialize>(value: &T) -> Digest {
    Digest::of_bytes(&serde_json_canonicalizer::to_vec(value).expect("plain data"))
}

fn parse_and_canonicalizer(json: &str) -> Digest {
    canonicalizer(&serde_json::from_str::<Value>(json).expect("is JSON"))
}

type Run<'r> = &'r dyn Fn() -> Digest;

fn groups(criterion: &mut Criterion, subject: &Subject) {
    let mut group = criterion.benchmark_group(format!("canon/{}", subject.name));
    group.throughput(Throughput::Bytes(subject.wire.len() as u64));
    let mut bench = |name: &str, run: Run<'_>| {
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter(run)
        });
    };
    let Subject {
        typed, value, wire, ..
    } = subject;
    bench("typed/ours", &|| ours_typed(black_box(typed)));
    bench("typed/serde_json", &|| serde_json(black_box(typed)));
    bench("typed/canonicalizer", &|| canonicalizer(black_box(typed)));
    bench("value/ours", &|| ours_value(black_box(value)));
    bench("value/serde_json", &|| serde_json(black_box(value)));
    bench("value/canonicalizer", &|| canonicalizer(black_box(value)));
    bench("wire/ours", &|| ours_wire(black_box(wire)));
    bench("wire/parse+canonicalizer", &|| {
        parse_and_canonicalizer(black_box(wire))
    });
    group.finish();
}

/// Median of the times of each run, all taken in turn so that noise falls on all alike.
fn medians<const N: usize>(runs: [Run<'_>; N]) -> [Duration; N] {
    const ROUNDS: usize = 201;
    const REPEATS: u32 = 10;
    let mut times = [const { Vec::new() }; N];
    for _ in 0..ROUNDS {
        for (run, times) in runs.iter().zip(&mut times) {
            times.push(timed(|| {
                for _ in 0..REPEATS {
                    black_box(run());
                }
            }));
        }
    }
    times.map(|mut times| {
        times.sort_unstable();
        times.get(ROUNDS / 2).copied().unwrap_or_default() / REPEATS
    })
}

#[expect(clippy::disallowed_methods, reason = "a bench reads the clock")]
fn timed(run: impl FnOnce()) -> Duration {
    let start = Instant::now();
    run();
    start.elapsed()
}

#[expect(clippy::print_stdout, reason = "the summary of a bench")]
fn summary(subject: &Subject) {
    let Subject {
        name,
        typed,
        value,
        wire,
    } = subject;
    let report = |source: &str, ours: Duration, other: &str, theirs: Duration, ratio: f64| {
        println!("{name:>6} {source:<6} {ours:>10.2?}  {other:<22} {theirs:>10.2?}");
        benches::report(
            &format!("canon, {name} of {source}, against {other}"),
            ratio,
            benches::Bar::None,
        );
    };
    let over = |a: Duration, b: Duration| a.as_secs_f64() / b.as_secs_f64();
    let sources: [(&str, [Run<'_>; 3]); 2] = [
        (
            "typed",
            [
                &|| ours_typed(black_box(typed)),
                &|| serde_json(black_box(typed)),
                &|| canonicalizer(black_box(typed)),
            ],
        ),
        (
            "value",
            [
                &|| ours_value(black_box(value)),
                &|| serde_json(black_box(value)),
                &|| canonicalizer(black_box(value)),
            ],
        ),
    ];
    for (source, runs) in sources {
        let [ours, plain, theirs] = medians(runs);
        report(source, ours, "ours / to_vec", plain, over(ours, plain));
        report(
            source,
            ours,
            "canonicalizer / ours",
            theirs,
            over(theirs, ours),
        );
    }
    let [ours, theirs] = medians([&|| ours_wire(black_box(wire)), &|| {
        parse_and_canonicalizer(black_box(wire))
    }]);
    report(
        "wire",
        ours,
        "parse+canon. / ours",
        theirs,
        over(theirs, ours),
    );
}

fn main() {
    let subjects = [Subject::new("1 KB", 3), Subject::new("64 KB", 215)];
    let mut criterion = Criterion::default().configure_from_args();
    for subject in &subjects {
        groups(&mut criterion, subject);
    }
    criterion.final_summary();
    let only_criterion = ["--test", "--list", "--profile-time"];
    if std::env::args().any(|argument| only_criterion.contains(&argument.as_str())) {
        return;
    }
    for subject in &subjects {
        summary(subject);
    }
}
