//! What the page of a long trace takes: a test of its own process, for it looks at the memory of the whole process.

#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    reason = "a test that panics has failed, and says why"
)]

use uap_agent::{AgentStreamEvent, Trace, TraceLimits};
use ubos_common::json::Limits;
use ubos_common::time::{Mono, Now, Timestamp};

/// A figure of this process, in bytes.
fn memory(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    let kib: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib << 10
}

/// Fills a trace with rounds of events until it is full.
fn full(text: usize) -> Trace {
    let limits = Limits::default()
        .with_max_string_bytes(8 << 20)
        .with_max_bytes(8 << 20);
    let event = |json: &str| AgentStreamEvent::from_json(json.as_bytes(), &limits).unwrap();
    let mut trace = Trace::new(TraceLimits::default().with_max_events(1_000_000)).unwrap();
    let text = "<lorem & ipsum> ".repeat(text / 16);
    for n in 0_u64.. {
        let now = Now::new(Mono::from_nanos(n * 1_000_000), Timestamp::EPOCH);
        let step = |kind: &str, data: &str| {
            format!(
                r#"{{"source":"uap","uap":{{"type":"{kind}","step":{n},"agentId":"a","data":{data}}}}}"#
            )
        };
        for json in [
            step("step_start", r#"{"phase":"reasoning"}"#),
            step("reasoning", &format!(r#"{{"reasoning":"{text}"}}"#)),
            step(
                "action",
                &format!(
                    r#"{{"toolCalls":[{{"toolCallId":"c{n}","toolName":"t","arguments":{{"a":"{text}"}}}}]}}"#
                ),
            ),
            step("of_its_own", &format!(r#"{{"a":[1,2,{{"b":"{text}"}}]}}"#)),
            step("step_end", r#"{"phase":"reasoning"}"#),
        ] {
            trace.push(now, &event(&json));
        }
        if trace.left_out().events > 0 {
            return trace;
        }
    }
    trace
}

#[test]
fn a_full_trace_is_laid_out_within_four_times_its_size() {
    for text in [0, 960, 160_000] {
        let trace = full(text);
        let size = 64 << 20;
        // From here on the peak counts anew.
        std::fs::write("/proc/self/clear_refs", "5").unwrap();
        let before = memory("VmRSS");
        let page = trace.to_html();
        let took = memory("VmHWM").saturating_sub(before);
        let shown = page.matches("more events are in the lines").count();
        assert_eq!(shown, usize::from(trace.len() > 100_000), "{text}");
        // The trace itself is one of the four.
        assert!(
            took < 3 * size,
            "{text}: {took} bytes, the page {}",
            page.len()
        );
    }
}
