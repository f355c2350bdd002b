//! Pictures.

use core::time::Duration;
use sacp::Graph;

use sacp::AnyMessage;
use sacp::draw::{StepState, StepView, dot, mermaid};

fn graph(text: &str) -> Graph {
    Graph::from(&AnyMessage::decode(text.as_bytes()).unwrap().0)
}

fn view(number: usize) -> StepView {
    match number {
        1 => StepView::new(StepState::Done, Some(Duration::from_millis(12))),
        2 => StepView::new(StepState::Running, None),
        _ => StepView::default(),
    }
}

// spec: SACP-3-6
#[test]
fn a_plan_is_drawn_with_states_and_times() {
    let graph = graph(
        r#"{"g":"TRIP","plan":[{"parallel":[["fetch","WEATHER",{}],["fetch","TRAINS",{}]]},["join","MERGE",{}],
            ["show","PRES",{"subtask":{"g":"INNER","plan":[["a","T",{}],["b","T",{}]]}}]]}"#,
    );
    let picture = mermaid(&graph, view);
    for line in [
        "flowchart TD",
        r#"s1["1 fetch WEATHER - done 12 ms"]:::done"#,
        r#"s2["2 fetch TRAINS - running"]:::running"#,
        r#"s3["3 join MERGE"]:::waiting"#,
        r#"subgraph t1["INNER"]"#,
        "s1 --> s3",
        "s2 --> s3",
        "s3 --> s4",
        "s4 -. subtask .-> s5",
        "s5 --> s6",
    ] {
        assert!(
            picture.lines().any(|l| l.trim() == line),
            "{line}\n{picture}"
        );
    }
    let lines = |word: &str| {
        picture
            .lines()
            .filter(|l| l.trim().starts_with(word))
            .count()
    };
    assert_eq!(
        (lines("subgraph"), lines("end"), lines("classDef")),
        (1, 1, 6)
    );
    let picture = dot(&graph, view);
    for line in [
        "digraph plan {",
        r##"s1 [label="1 fetch WEATHER - done 12 ms", fillcolor="#c8f0c8"];"##,
        r#"subgraph cluster_1 { label="INNER";"#,
        "s1 -> s3;",
        r#"s4 -> s5 [style=dashed, label="subtask"];"#,
    ] {
        assert!(
            picture.lines().any(|l| l.trim() == line),
            "{line}\n{picture}"
        );
    }
    assert_eq!(picture.lines().last(), Some("}"));
}

// spec: SACP-3-6
#[test]
fn words_end_no_label_and_groups_make_no_thicket() {
    let graph1 = graph(r#"{"g":"G","plan":[["a\"]; x","T\\\"\n--> s9",{}],["b","`<b>",{}]]}"#);
    let picture = mermaid(&graph1, |_| StepView::default());
    assert!(
        !picture.contains("\"];") && !picture.contains("--> s9") && !picture.contains('<'),
        "{picture}"
    );
    let picture = dot(&graph1, |_| StepView::default());
    assert!(
        picture.contains(r#"label="1 a\"]; x T\\\"--> s9""#),
        "{picture}"
    );
    let rings = graph(r#"{"g":"G","plan":[["a\u0007b","T",{}]]}"#);
    let picture = mermaid(&rings, |_| StepView::default());
    assert!(picture.contains(r#"s1["1 ab T"]"#), "{picture}");
    let act = r#"["a","T",{}]"#;
    let pair = format!(r#"{{"parallel":[{act},{act}]}}"#);
    let pairs = graph(&format!(r#"{{"g":"G","plan":[{pair},{pair}]}}"#));
    assert!(dot(&pairs, |_| StepView::default()).contains("j1 [shape=point];"));
    let group = format!(r#"{{"parallel":[{}]}}"#, [act; 300].join(","));
    let wide = graph(&format!(r#"{{"g":"G","plan":[{group},{group}]}}"#));
    let arrows = mermaid(&wide, |_| StepView::default())
        .lines()
        .filter(|l| l.contains("-->"))
        .count();
    assert_eq!(arrows, 600);
    let fallback = graph(
        r#"{"proto_ver":"1.0.0","msg_id":"m","ts":"2025-10-01T12:00:00Z","sender":"p","g":"G","state":"PENDING","plan":[
            {"id":"a","verb":"v","tool":"T","params":{},"on_error":"fallback","fallback_step":"b"},
            {"id":"b","verb":"v","tool":"T","params":{}}]}"#,
    );
    assert!(mermaid(&fallback, |_| StepView::default()).contains("s1 -. fallback .-> s2"));
}
