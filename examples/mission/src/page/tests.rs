use std::time::Duration;

use ubos_common::time::Timestamp;

use super::*;
use crate::output::*;
use crate::scan::{Language, Largest};
use crate::screen::Who;
use crate::trace::Span;

fn at(millis: u64) -> Timestamp {
    Timestamp::EPOCH.saturating_add(Duration::from_millis(millis))
}

fn spans() -> Spans {
    let span = |id: &str, parent: Option<&str>, from, to, outcome: &str| Span {
        id: id.to_owned(),
        parent: parent.map(str::to_owned),
        who: Who::Wire,
        name: format!("<{id}>"),
        in_tools: id == "pass",
        started: at(from),
        ended: Some(at(to)),
        outcome: outcome.to_owned(),
    };
    let mut spans = Spans::default();
    spans.list.push(span("mission", None, 0, 2000, "done"));
    spans
        .list
        .push(span("call", Some("mission"), 500, 1500, "failed: no \"x\""));
    spans
        .list
        .push(span("pass", Some("call"), 600, 620, "done"));
    let mut open = span("open", Some("mission"), 1000, 1000, "");
    open.ended = None;
    spans.list.push(open);
    spans.more = 7;
    spans
}

fn document() -> Document {
    let language = |bytes| Language {
        files: 1,
        lines: 2,
        bytes,
    };
    Document {
        folder: FolderCounts {
            files: 1234,
            lines: 5,
            bytes: 1_234_567,
            languages: [
                ("Rust".to_owned(), language(1000)),
                ("C".to_owned(), language(333)),
            ]
            .into(),
        },
        largest: vec![Largest {
            path: "<script>alert(1)</script>\n\"&".to_owned(),
            bytes: 1000,
        }],
        notes: Vec::new(),
        duplicates: vec![vec!["a".to_owned(), "b".to_owned()]; 12],
        secrets: vec![Note {
            path: "key".to_owned(),
            line: 3,
            kind: "AWS access key".to_owned(),
        }],
        truncated: Truncated {
            duplicates: 5,
            ..Truncated::default()
        },
        unreadable: Vec::new(),
        sap: SapPart::default(),
        sacp: SacpPart::default(),
        opensentience: WirePart::default(),
        hub: HubPart {
            agents: 2,
            sessions: 2,
            agree: true,
        },
        agent: AgentPart::default(),
        transcript: TranscriptPart {
            records: 9,
            verified: true,
            head: "head-of-chain".to_owned(),
        },
        report: String::new(),
    }
}

#[test]
fn a_page_runs_nothing_that_a_name_says() {
    let page = report(&document(), "/a <b>", &spans());
    assert!(!page.contains("<script"), "{page}");
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;\u{fffd}&quot;&amp;"));
    assert!(page.contains("/a &lt;b&gt;"));
    let opened = page.matches("<div").count();
    assert_eq!(opened, page.matches("</div>").count());
}

#[test]
fn a_page_shows_what_was_found_and_says_what_it_leaves_out() {
    let page = report(&document(), "/a", &spans());
    for wanted in [
        "1,234,567",
        "width:100.0%",
        "width:33.3%",
        "<summary>2 more</summary>",
        "… and 5 that are not listed",
        "<dd class=\"bad\">1</dd>",
        "line 3: AWS access key",
        "head-of-chain",
        "No TODO or FIXME.",
    ] {
        assert!(page.contains(wanted), "{wanted}");
    }
}

#[test]
fn steps_are_drawn_on_one_scale() {
    let page = trace("of", "/a", &spans(), &[]);
    for wanted in [
        "<span>2,000 ms</span>",
        "left:25.0%;width:50.0%",
        "left:30.0%;width:1.0%",
        "20.0 ms",
        "row tools\"",
        "failed: no &quot;x&quot;",
        "did not end",
        "… and 7 steps that are not drawn",
    ] {
        assert!(page.contains(wanted), "{wanted}: {page}");
    }
    let depth = |name: &str| {
        let row = page.find(&format!("&lt;{name}&gt;")).unwrap();
        let depth = page[..row].rfind("--d:").unwrap() + 4;
        page[depth..=depth].to_owned()
    };
    assert_eq!(
        ["mission", "call", "pass", "open"].map(depth),
        ["0", "1", "2", "1"]
    );
}
