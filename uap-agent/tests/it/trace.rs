//! Traces: lines that read back, and a page that nothing in a run can break.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::StreamExt;
use futures::executor::block_on;
use futures::future::BoxFuture;
use proptest::prelude::*;
use uap_agent::{
    AgentOptions, ExecutionStrategy, PlanOptions, ReactOptions, Runtime, SubagentTool, agent, plan,
    react,
};
use uap_agent::{Trace, TraceError, TraceLimits};
use ubos_common::driver::Sleep;
use ubos_common::id::IdSource;
use ubos_common::time::{Mono, Now, Timestamp};
use upp::{ErrorCode, FnTool, Reply, Tool, object};

use crate::support::{calling, echo, options, script};

/// A clock that goes on by 10 ms whenever it is read.
#[derive(Default)]
pub(crate) struct Ticking(AtomicU64);

impl Sleep for Ticking {
    fn now(&self) -> Now {
        let ms = self.0.fetch_add(10, Ordering::Relaxed);
        let wall = Timestamp::from_unix(1_700_000_000 + i64::try_from(ms / 1000).unwrap());
        Now::new(Mono::from_millis(ms), wall.unwrap())
    }
    fn sleep_until(&self, _: Mono) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

fn traced(replies: impl IntoIterator<Item = Reply>, limits: TraceLimits) -> Trace {
    traced_by(react(ReactOptions::default()).unwrap(), replies, limits)
}

fn traced_by(
    execution: Arc<dyn ExecutionStrategy>,
    replies: impl IntoIterator<Item = Reply>,
    limits: TraceLimits,
) -> Trace {
    let clock = Arc::new(Ticking::default());
    let hostile = FnTool::new("hostile", "", object("{}").unwrap(), |_, _| async {
        let text = "</pre></script><script>alert(1)</script>\u{1b}[2J\u{202e}\u{0}\" onload='x'";
        Ok(upp::json_text(text))
    });
    let options = AgentOptions::new(script(replies) as _)
        .with_tools([echo("echo"), Arc::new(hostile) as Arc<dyn Tool>])
        .with_execution(execution)
        .with_runtime(Runtime::new(clock.clone(), IdSource::seeded(7)));
    let agent = agent(options).unwrap();
    let mut run = agent.stream("Is it <b>safe</b>?", &agent.initial_state());
    let mut trace = Trace::new(limits).unwrap();
    block_on(async {
        while let Some(event) = run.next().await {
            trace.push(clock.now(), &event);
        }
        trace.end(clock.now(), &run.result().await);
    });
    trace
}

fn hostile_run() -> Vec<Reply> {
    vec![
        Reply::text("<script>think()</script>").costing(1_200, 30),
        // No agent has a tool of the last name, and a model may call it all the same.
        calling("both", "c\"1", r#"{"a":"<&>"}"#)
            .calling("c2", "hostile", object("{}").unwrap())
            .calling("c3", "<i>", object("{}").unwrap()),
        Reply::text("& again"),
        Reply::text("done -->").costing(7, 1),
    ]
}

#[test]
fn a_page_has_its_headings_in_order() {
    let page = traced(hostile_run(), TraceLimits::default()).to_html();
    let wanted = [
        "<h1>Agent run</h1>",
        "<h2>Timeline</h2>",
        "<span>Event</span>",
        ">Start</span>",
        ">Duration</span>",
        ">Tokens in</span>",
        ">Tokens out</span>",
    ];
    let mut rest = page.as_str();
    for heading in wanted {
        let (_, after) = rest
            .split_once(heading)
            .unwrap_or_else(|| panic!("{heading}: {page}"));
        rest = after;
    }
    assert!(!page.contains("<h2>Plan</h2>"), "the run has no plan");
}

#[test]
fn a_plan_says_how_many_steps_it_has() {
    for (steps, said) in [
        (r#"{"id":"a","description":"x"}"#, "1 step"),
        (
            r#"{"id":"a","description":"x"},{"id":"b","description":"y"}"#,
            "2 steps",
        ),
    ] {
        let replies = [format!(r#"{{"steps":[{steps}]}}"#), "x".into(), "y".into()];
        let planned = plan(PlanOptions::default()).unwrap();
        let page = traced_by(planned, replies.map(Reply::text), TraceLimits::default()).to_html();
        assert!(
            page.contains("<h2>Plan</h2>") && page.contains(&format!(">{said}<")),
            "{page}"
        );
    }
}

// spec: UAP-11-3
#[test]
fn what_is_written_reads_back_and_draws_the_same() {
    let trace = traced(hostile_run(), TraceLimits::default());
    let mut lines = Vec::new();
    trace.write_lines(&mut lines).unwrap();
    let read = Trace::read_lines(&lines, TraceLimits::default()).unwrap();
    assert!(read == trace && read.to_html() == trace.to_html());
    let text = String::from_utf8(lines).unwrap();
    let first = text.lines().next().unwrap();
    let wanted =
        r#"{"at":1700000000000,"event":{"source":"uap","uap":{"type":"step_start","step":1,"#;
    assert!(first.starts_with(wanted), "{first}");
    let last = text.lines().last().unwrap();
    assert!(last.contains(r#""end":{"input":"Is it <b>safe</b>?","answer":"done -->","usage":{"#));
    assert_eq!(text.lines().count(), trace.len());
}

#[test]
fn a_page_tells_the_run_and_nothing_in_it_is_markup() {
    let page = traced(hostile_run(), TraceLimits::default()).to_html();
    for told in [
        "Step 1 · reasoning",
        "Step 2 · reasoning",
        "3 tools at once",
        "Completed",
        "&lt;i&gt;",
        "Is it &lt;b&gt;safe&lt;/b&gt;?",
        "<span class=\"n\"><span class=\"vh\"> in </span>1\u{202f}200</span>",
        "&lt;script&gt;think()&lt;/script&gt;",
        "&lt;/pre&gt;&lt;/script&gt;&lt;script&gt;alert(1)",
        "\u{241b}[2J⟨U+202E⟩\u{2400}&quot; onload=&#39;x&#39;",
        "<dt>Tool calls</dt><dd>3",
        "default-src &#39;none&#39;",
    ] {
        assert!(page.contains(told), "{told}");
    }
    assert!(!page.contains("<script") && !page.contains("http:") && !page.contains("https:"));
    assert!(page.chars().all(|c| c == '\n' || !c.is_control()));
    balanced(&page);
}

/// Every element that is opened is closed, in order.
fn balanced(page: &str) {
    let body = &page[page.find("</style>").unwrap()..];
    let mut open = vec!["html", "head", "style"];
    for tag in body.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').unwrap();
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name)),
            None => open.push(tag.split(' ').next().unwrap()),
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn a_failure_is_told_with_what_there_was() {
    let replies = [
        Reply::text("think"),
        Reply::error(ErrorCode::RateLimited, "slow <down>"),
    ];
    let page = traced(replies, TraceLimits::default()).to_html();
    assert!(page.contains(">Failed<") && page.contains("✕ failed"));
    assert!(
        page.contains("RATE_LIMITED (scripted): slow &lt;down&gt;"),
        "{page}"
    );
    let nothing = Trace::default();
    assert!(nothing.is_empty() && nothing.to_html().contains("No event was recorded"));
}

#[test]
fn what_does_not_fit_is_counted() {
    let whole = traced(hostile_run(), TraceLimits::default());
    let by_count = traced(hostile_run(), TraceLimits::default().with_max_events(5));
    let by_bytes = traced(hostile_run(), TraceLimits::default().with_max_bytes(900));
    let by_size = traced(
        hostile_run(),
        TraceLimits::default().with_max_event_bytes(200),
    );
    for trace in [&by_count, &by_bytes, &by_size] {
        let left_out = usize::try_from(trace.left_out().events).unwrap();
        assert!(left_out > 0 && trace.len() + left_out == whole.len());
        let mut lines = Vec::new();
        trace.write_lines(&mut lines).unwrap();
        let read = Trace::read_lines(&lines, TraceLimits::default()).unwrap();
        assert_eq!(
            (read.left_out(), read.to_html()),
            (trace.left_out(), trace.to_html())
        );
        assert!(trace.to_html().contains("Not the whole run"));
        assert!(lines.ends_with(b"}\n") && *trace != whole);
    }
    assert_eq!(by_count.len(), 5);
    // The shortest event alone fits as soon as it may be so long.
    let least = |limits: fn(usize) -> TraceLimits| {
        (1..500).find(|bytes| !traced(hostile_run(), limits(*bytes)).is_empty())
    };
    let event = least(|bytes| TraceLimits::default().with_max_event_bytes(bytes));
    let all = least(|bytes| TraceLimits::default().with_max_bytes(bytes));
    assert!(all.is_some() && all == event);
    let mut lines = Vec::new();
    by_bytes.write_lines(&mut lines).unwrap();
    assert!(lines.len() < 900 + 80);
    let refused = |limits| Trace::read_lines(&lines, limits).unwrap_err();
    let few = TraceLimits::default().with_max_events(1);
    let wanted = TraceError::TooLarge {
        limit: 1,
        unit: "events",
    };
    assert_eq!(refused(few), wanted);
    assert!(matches!(
        refused(TraceLimits::default().with_max_bytes(100)),
        TraceError::TooLarge { unit: "bytes", .. }
    ));
}

#[test]
fn lines_of_another_kind_are_refused_where_they_are_wrong() {
    let event = r#"{"source":"upp","upp":{"type":"message_stop","index":0,"delta":{}}}"#;
    let good = format!("{{\"at\":1,\"event\":{event}}}\n\n");
    for (bad, told) in [
        ("{\"at\":1", "line 3: "),
        (r#"{"at":-1,"end":{}}"#, "/at"),
        (r#"{"at":1}"#, "exactly one of"),
        (r#"{"at":1,"future":{}}"#, "exactly one of"),
        (r#"{"at":1,"event":{"source":"x"}}"#, "/event/source"),
        (r#"{"at":1,"event":{"source":"uap"}}"#, "/event"),
        (
            r#"{"at":1,"event":{"source":"upp","upp":{"type":"a","index":0}}}"#,
            "/event/upp/delta",
        ),
        (
            r#"{"at":1,"event":{"source":"uap","upp":{"type":"a","index":0,"delta":{}}}}"#,
            "/event",
        ),
        (r#"{"at":1,"end":{"usage":{}}}"#, "/end/usage/inputTokens"),
        (r#"{"at":1,"leftOut":{"events":1}}"#, "/leftOut/bytes"),
    ] {
        let lines = format!("{good}{bad}\n");
        let error = Trace::read_lines(lines.as_bytes(), TraceLimits::default()).unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("line 3: ") && text.contains(told),
            "{bad}: {text}"
        );
    }
}

// spec: UAP-8-3
#[test]
fn a_run_with_an_agent_inside_reads_back_and_nests() {
    let inner = agent(options(&script([Reply::text("found it")]))).unwrap();
    let ask = SubagentTool::new(inner, "ask", "", object("{}").unwrap(), |_| {
        Ok("look".into())
    });
    let replies = [
        Reply::default().calling("c1", "ask", object("{}").unwrap()),
        Reply::text("done"),
    ];
    let options = options(&script(replies)).with_tools([Arc::new(ask) as Arc<dyn Tool>]);
    let agent = agent(options).unwrap();
    let mut trace = Trace::default();
    let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
    let mut run = agent.stream("go", &agent.initial_state());
    block_on(async {
        while let Some(event) = run.next().await {
            trace.push(now, &event);
        }
        trace.end(now, &run.result().await);
    });
    let mut lines = Vec::new();
    trace.write_lines(&mut lines).unwrap();
    assert!(Trace::read_lines(&lines, TraceLimits::default()).unwrap() == trace);
    let page = trace.to_html();
    for told in [
        "<dt>Sub-agents</dt><dd>1</dd>",
        "<dt>Model calls</dt><dd>3</dd>",
        "found it",
    ] {
        assert!(page.contains(told), "{told}");
    }
    assert!(!page.contains("began"), "a clock that was not set");
    balanced(&page);
}

/// One line of a trace: an event of the agent.
fn line(at: u64, kind: &str, step: u64, data: &str) -> String {
    let uap = format!(r#"{{"type":"{kind}","step":{step},"agentId":"a","data":{data}}}"#);
    format!("{{\"at\":{at},\"event\":{{\"source\":\"uap\",\"uap\":{uap}}}}}\n")
}

/// One line of a trace: an event of the model or of a tool.
fn line_of_upp(at: u64, kind: &str, delta: &str) -> String {
    let upp = format!(r#"{{"type":"{kind}","index":0,"delta":{{{delta}}}}}"#);
    format!("{{\"at\":{at},\"event\":{{\"source\":\"upp\",\"upp\":{upp}}}}}\n")
}

fn page_of(lines: &[String]) -> String {
    let trace = Trace::read_lines(lines.concat().as_bytes(), TraceLimits::default());
    trace.unwrap().to_html()
}

#[test]
fn each_response_of_a_step_has_its_own_row() {
    let said = |at| ["message_start", "message_stop"].map(|kind| line_of_upp(at, kind, ""));
    let page = page_of(&[said(1), said(2)].concat());
    assert!(page.contains("<dt>Model calls</dt><dd>2</dd>"), "{page}");
}

#[test]
fn a_new_plan_has_nothing_of_the_one_before() {
    let step = |id: &str, status: &str| {
        format!(r#"{{"id":"{id}","description":"x","dependsOn":[],"status":"{status}"}}"#)
    };
    let (open, done) = (step("a", "pending"), step("a", "completed"));
    let page = page_of(&[
        line(0, "step_end", 1, &format!(r#"{{"plan":[{open}]}}"#)),
        line(1, "step_end", 1, &format!(r#"{{"planStep":{done}}}"#)),
        line(
            2,
            "step_end",
            1,
            &format!(r#"{{"plan":[{open},{}]}}"#, step("b", "pending")),
        ),
    ]);
    let statuses = |status: &str| page.matches(&format!("<td>{status}</td>")).count();
    assert_eq!(
        (statuses("pending"), statuses("completed")),
        (2, 0),
        "{page}"
    );
}

// spec: UAP-8-3
#[test]
fn sub_agents_stand_below_the_call_that_made_them() {
    let tool = |kind: &str, at: u64, more: &str| {
        let delta = format!(r#""toolCallId":"c1","toolName":"ask"{more}"#);
        line_of_upp(at, &format!("tool_execution_{kind}"), &delta)
    };
    let sub = |more: &str| {
        format!(r#"{{"subagentId":"s","subagentType":"explorer","parentToolCallId":"c1",{more}}}"#)
    };
    let inner = r#""innerEvent":{"source":"uap","uap":{"type":"step_start","step":1,"agentId":"child","data":{"iteration":1}}}"#;
    let lines = [
        line(0, "step_start", 1, r#"{"iteration":1}"#),
        tool("start", 10, ""),
        line(
            20,
            "subagent_start",
            1,
            &sub(r#""prompt":"look","timestamp":20"#),
        ),
        line(30, "subagent_event", 1, &sub(inner)),
        line(
            40,
            "subagent_end",
            1,
            &sub(r#""success":false,"error":"lost","timestamp":40"#),
        ),
        tool("end", 50, r#","result":"lost","isError":true"#),
        line(60, "step_end", 1, r#"{"iteration":1}"#),
        line(100, "step_start", 1, r#"{"iteration":1}"#),
        // The call of this one is not known: it stands below its step.
        line(110, "subagent_start", 1, &sub(r#""timestamp":110"#)),
        line(120, "subagent_event", 1, &sub(inner)),
    ];
    let page = page_of(&lines);
    let places: Vec<usize> = [
        "<summary class=\"k-tool failed\" style=\"--d:1\"><span class=\"what\"><span class=\"kind\">Tool",
        "<summary class=\"k-sub failed\" style=\"--d:2\"><span class=\"what\"><span class=\"kind\">Sub-agent",
        "<summary class=\"\" style=\"--d:3\"><span class=\"what\"><span class=\"name\">Step 1",
        "<h2>Run 2</h2>",
        "<summary class=\"k-sub\" style=\"--d:1\"><span class=\"what\"><span class=\"kind\">Sub-agent",
        "<summary class=\"\" style=\"--d:2\"><span class=\"what\"><span class=\"name\">Step 1",
    ]
    .iter()
    .map(|told| page.find(told).unwrap_or_else(|| panic!("{told} {page}")))
    .collect();
    assert!(places.is_sorted());
    assert!(page.contains("✕ failed") && page.contains("Run 2") && page.contains("lost"));
    balanced(&page);
    // What it left open ends with it.
    let number = |name: &str, n: u64| {
        format!(r#"<span class="n"><span class="vh"> {name} </span>{n}</span>"#)
    };
    assert!(page.contains(&(number("start", 30) + &number("took", 10))));
}

#[test]
fn an_end_alone_is_a_run() {
    let end = r#"{"at":1,"end":{"answer":"all that is left"}}"#;
    let trace = Trace::read_lines(end.as_bytes(), TraceLimits::default()).unwrap();
    assert!(trace.to_html().contains("all that is left"));
}

// spec: UAP-11-3
#[test]
fn times_from_elsewhere_are_drawn_however_far_apart() {
    for (from, to) in [(0, u64::MAX), (u64::MAX, 0), (1, u64::MAX / 50)] {
        let lines = [
            line(from, "step_start", 1, "{}"),
            line(to, "step_end", 1, "{}"),
        ];
        let read = Trace::read_lines(lines.concat().as_bytes(), TraceLimits::default());
        balanced(&read.unwrap().to_html());
    }
}

// spec: UAP-11-3
#[test]
fn a_trace_that_is_full_reads_back_within_its_own_bounds() {
    let whole = traced(hostile_run(), TraceLimits::default());
    let mut lines = Vec::new();
    whole.write_lines(&mut lines).unwrap();
    for most in 1..=lines.len() {
        let limits = TraceLimits::default().with_max_bytes(most);
        let (trace, mut lines) = (traced(hostile_run(), limits), Vec::new());
        trace.write_lines(&mut lines).unwrap();
        assert_eq!(Trace::read_lines(&lines, limits).unwrap(), trace, "{most}");
    }
}

/// What a page says below its style, a line an element that begins a row.
fn body(page: &str) -> String {
    let body = &page[page.find("</style>").unwrap()..];
    ["<details", "<h2", "<h3", "<div", "<span class=\"n", "<dt"]
        .iter()
        .fold(body.to_owned(), |text, tag| {
            text.replace(tag, &format!("\n{tag}"))
        })
}

// spec: UAP-11-3
#[test]
fn a_page_says_what_it_said_when_a_person_looked_at_it() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/vectors/trace");
    let lines = std::fs::read(format!("{folder}/lines.jsonl")).unwrap();
    let trace = Trace::read_lines(&lines, TraceLimits::default()).unwrap();
    let drawn = body(&trace.to_html());
    let known = std::fs::read_to_string(format!("{folder}/page.txt")).unwrap_or_default();
    if drawn != known {
        let place = std::env::temp_dir().join("uap-agent-trace-page.txt");
        std::fs::write(&place, &drawn).unwrap();
        let line = drawn.lines().zip(known.lines()).position(|(a, b)| a != b);
        panic!(
            "the page differs from vectors/trace/page.txt at line {:?}; where that is wanted, look at the page and copy {}",
            line.map(|line| line + 1),
            place.display()
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_lines_are_refused_or_drawn(
        edits in proptest::collection::vec((0_usize..100_000, 0_u8..4, any::<u8>()), 1..6),
    ) {
        let mut lines = Vec::new();
        traced(hostile_run(), TraceLimits::default()).write_lines(&mut lines).unwrap();
        for (at, edit, byte) in edits {
            let mut all: Vec<Vec<u8>> = lines.split(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
            let (n, count) = (at % all.len(), all.len());
            match edit {
                0 => drop(all.remove(n)),
                1 => all.swap(n, usize::from(byte) % count),
                2 => all.push(all[n].clone()),
                _ if !all[n].is_empty() => {
                    let place = at % all[n].len();
                    all[n][place] = byte;
                }
                _ => {}
            }
            lines = all.join(&b'\n');
        }
        if let Ok(trace) = Trace::read_lines(&lines, TraceLimits::default()) {
            balanced(&trace.to_html());
        }
    }
}
