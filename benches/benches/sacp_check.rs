//! Checking plans: `cargo bench -p benches --bench sacp_check`.
//!
//! Prints the time of checking 1,000 unknown tools among 100, 1,000 and 10,000 agents for their verb, and of plans of 1.0 whose
//! ends have no name, twice as long each time.

#![expect(
    clippy::expect_used,
    reason = "a bench whose subject is refused has nothing to say"
)]
#![expect(clippy::print_stdout, reason = "the summary is the result")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use benches::{Bar, report};
use sacp::AnyMessage;
use sacp::check::{Config, check_plan};
use sacp::registry::{AgentRecord, MemoryRegistry, Registry, ToolDef, VerbDef};
use ubos_common::json::RawBuf;

fn main() {
    let unknown = unknown(1_000);
    let times = [100, 1_000, 10_000].map(|agents| {
        let registry = registry(agents);
        let time = best_of(10, || check(&unknown, Some(&registry)));
        println!("check of 1,000 unknown tools among {agents} agents: {time:?}");
        time
    });
    let [few, .., many] = times;
    report(
        "SACP: check of a plan among 10,000 agents / among 100",
        ratio(many, few),
        Bar::AtMost(2.0),
    );
    let times = [2_497, 4_995, 9_990].map(|steps| {
        let ends = ends(steps);
        let time = best_of(10, || check(&ends, None));
        println!("check of {steps} ends without a name: {time:?}");
        time
    });
    let [short, .., long] = times;
    report(
        "SACP: check of 9,990 ends without a name / of 2,497",
        ratio(long, short),
        Bar::None,
    );
}

fn check(message: &AnyMessage, registry: Option<&MemoryRegistry>) -> usize {
    let registry = registry.map(|registry| registry as &dyn Registry);
    check_plan(black_box(message), registry, &Config::default()).len()
}

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

/// Agents for one verb, each with a tool of its own.
fn registry(agents: usize) -> MemoryRegistry {
    let mut registry = MemoryRegistry::default();
    let any = RawBuf::parse("\"any\"").expect("JSON");
    let verb = VerbDef::new("search".into(), "d".into(), vec![], any);
    registry.add_verb(verb).expect("room");
    for n in 0..agents {
        let (tool, verbs) = (format!("TOOL-{n}"), vec!["search".to_owned()]);
        let def = ToolDef::new(tool.clone(), "d".into(), verbs.clone());
        registry.add_tool(def).expect("room");
        let name = format!("agent-{n}");
        let agent = AgentRecord::new(name, verbs, vec![tool], vec![], vec![], "d".into());
        registry.add_agent(agent).expect("room");
    }
    registry
}

fn unknown(acts: usize) -> AnyMessage {
    let acts: Vec<String> = (0..acts)
        .map(|n| format!(r#"["search","TOOLS-{n}",{{}}]"#))
        .collect();
    let text = format!(r#"{{"g":"G","plan":[{}]}}"#, acts.join(","));
    AnyMessage::decode(text.as_bytes()).expect("a message").0
}

fn ends(steps: usize) -> AnyMessage {
    let steps: Vec<String> = (0..steps)
        .map(|n| format!(r#"{{"id":"s{n}","verb":"v","tool":"T","params":{{}}}}"#))
        .collect();
    let text = format!(
        r#"{{"proto_ver":"1.0.0","msg_id":"m","ts":"2025-10-01T12:00:00Z","sender":"s","g":"G","state":"PENDING","plan":[{}]}}"#,
        steps.join(",")
    );
    AnyMessage::decode(text.as_bytes()).expect("a message").0
}
