//! A message of SACP 0.1 read and validated, against `serde_json::Value` and the same checks by hand:
//! `cargo bench -p benches --bench sacp`.
//!
//! After the criterion group it prints ratios, from runs of both sides taken in turn.

#![expect(
    clippy::expect_used,
    reason = "a bench whose subject is refused has nothing to say"
)]
#![expect(clippy::print_stdout, reason = "the summary is the result")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Instant;

use benches::{Bar, report};
use criterion::{Criterion, Throughput};
use sacp::MessageView;
use sacp::{AnyMessage, Message};
use serde::de::IgnoredAny;
use serde_json::Value;

/// The specification's second sample, compact.
const SMALL: &str = r#"{"msg_id":"task-9823","g":"SUMMARIZE_FEEDBACK","ctx":{"lang":"en","test_mode":true},"plan":[["extract","FEEDBACK_DOC",{"range":"Q2"}],["analyze","SENTIMENT",{}],["generate","SUMMARY",{"length":"short"}]],"out_fmt":"human","state":"PENDING"}"#;

/// A thousand acts, every tenth entry a group of four with a join.
fn large() -> String {
    let mut text = String::from(r#"{"msg_id":"m1","g":"BULK","plan":["#);
    let act = |n: usize| {
        format!(r#"["fetch","SOURCE_{n}",{{"city":"Paris","limit":{n},"tags":["a","b"]}}]"#)
    };
    let mut acts = 0;
    let mut entry = 0;
    while acts < 1_000 {
        let separator = if entry == 0 { "" } else { "," };
        entry += 1;
        if entry % 10 == 0 {
            let members: Vec<String> = (0..4).map(|n| act(acts + n)).collect();
            let members = members.join(",");
            acts += 5;
            let _ = write!(
                text,
                r#"{separator}{{"parallel":[{members}]}},["join","MERGE",{{}}]"#
            );
        } else {
            let _ = write!(text, "{separator}{}", act(acts));
            acts += 1;
        }
    }
    text.push_str("]}");
    text
}

/// The rules of the validator over a tree, as one writes them by hand.
fn is_valid(message: &Value) -> bool {
    let Some(members) = message.as_object() else {
        return false;
    };
    let text = |name: &str| match members.get(name) {
        Some(value) => value.as_str().is_some_and(|text| !text.is_empty()),
        None => true,
    };
    let word = |name: &str, words: &[&str]| match members.get(name) {
        Some(value) => value.as_str().is_some_and(|word| words.contains(&word)),
        None => true,
    };
    let ctx = match members.get("ctx") {
        Some(ctx) => ctx
            .as_object()
            .is_some_and(|ctx| ctx.get("test_mode").is_none_or(Value::is_boolean)),
        None => true,
    };
    members.contains_key("g")
        && text("g")
        && text("msg_id")
        && text("reply_to")
        && ctx
        && word("out_fmt", &["human", "raw", "summary"])
        && word("state", &["PENDING", "IN_PROGRESS", "DONE", "FAILED"])
        && word("proto_ver", &["0.1"])
        && members.get("test_mode").is_none_or(Value::is_boolean)
        && members.get("subtask").is_none_or(is_valid)
        && members
            .get("plan")
            .and_then(Value::as_array)
            .is_some_and(|plan| {
                let mut behind_group = false;
                plan.iter().all(|item| {
                    let good = is_item(item, 0)
                        && (behind_group || item.get(0).is_none_or(|verb| verb != "join"));
                    behind_group = item.is_object();
                    good
                })
            })
}

fn is_item(item: &Value, depth: usize) -> bool {
    match item {
        Value::Array(parts) => match parts.as_slice() {
            [
                Value::String(verb),
                Value::String(tool),
                Value::Object(params),
            ] => {
                let nested = params.get("subtask").filter(|value| value.is_object());
                !verb.is_empty() && !tool.is_empty() && nested.is_none_or(is_valid)
            }
            _ => false,
        },
        Value::Object(group) => {
            depth < 8
                && group.len() == 1
                && group
                    .get("parallel")
                    .and_then(Value::as_array)
                    .is_some_and(|members| {
                        !members.is_empty()
                            && members.iter().all(|member| {
                                is_item(member, depth + 1)
                                    && member.get(0).is_none_or(|verb| verb != "join")
                            })
                    })
        }
        _ => false,
    }
}

type Run = (&'static str, fn(&[u8]));

const RUNS: [Run; 5] = [
    ("ours, borrowed view", |bytes| {
        drop(black_box(
            MessageView::decode(black_box(bytes)).expect("valid"),
        ));
    }),
    ("ours, owned", |bytes| {
        drop(black_box(Message::decode(black_box(bytes)).expect("valid")));
    }),
    ("ours, either edition", |bytes| {
        drop(black_box(
            AnyMessage::decode(black_box(bytes)).expect("valid"),
        ));
    }),
    ("serde_json, skipped", |bytes| {
        black_box(serde_json::from_slice::<IgnoredAny>(black_box(bytes)).expect("sound"));
    }),
    ("serde_json::Value + checks", |bytes| {
        let message: Value = serde_json::from_slice(black_box(bytes)).expect("sound");
        assert!(black_box(is_valid(&message)), "valid");
    }),
];

fn summary(what: &str, text: &str, runs_a_round: u32) {
    const ROUNDS: usize = 31;
    let mut times = vec![Vec::new(); RUNS.len()];
    for _ in 0..ROUNDS {
        for (n, (_, run)) in RUNS.iter().enumerate() {
            let start = Instant::now();
            for _ in 0..runs_a_round {
                run(text.as_bytes());
            }
            if let Some(times) = times.get_mut(n) {
                times.push(start.elapsed().as_nanos() / u128::from(runs_a_round));
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
        "\n{what}, {} bytes; how many times faster than Value + checks, {base} ns",
        text.len()
    );
    for ((name, _), times) in RUNS.iter().zip(&times) {
        let own = median(times);
        println!("{name:<28} {own:>8} ns");
        let compared = format!("SACP, {what}: a tree with the same checks / {name}");
        report(&compared, base as f64 / own as f64, Bar::None);
    }
}

fn main() {
    let large = large();
    let mut criterion = Criterion::default().configure_from_args();
    for (what, text) in [("small", SMALL), ("thousand", &large)] {
        let mut group = criterion.benchmark_group(format!("sacp/{what}"));
        group.throughput(Throughput::Bytes(text.len() as u64));
        for (name, run) in RUNS {
            group.bench_function(name, |bencher| bencher.iter(|| run(text.as_bytes())));
        }
        group.finish();
    }
    criterion.final_summary();
    summary("a small message", SMALL, 5_000);
    summary("a thousand acts", &large, 20);
}
