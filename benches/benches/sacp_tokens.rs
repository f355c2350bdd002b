//! Bytes and tokens of SACP messages in each of their forms, by the tokenizers of two families of models, beside
//! the same calls as MCP requests: `cargo bench -p benches --bench sacp_tokens --features yardsticks`.

#![expect(
    clippy::expect_used,
    reason = "a bench whose subject is refused has nothing to say"
)]
#![expect(clippy::print_stdout, reason = "the table is the result")]

use benches::{Bar, report};
use sacp::AliasTable;
use sacp::{AnyMessage, line};
use serde_json::{Value, json};
use tiktoken_rs::CoreBPE;

const SAMPLES: [(&str, &str); 4] = [
    (
        "hotel (section 2)",
        r#"{"msg_id":"abc123","g":"FIND_HOTEL","ctx":{"loc":"Paris","in":"06-01","out":"06-05","bdg":150,"am":["wifi","bf"]},"plan":[["s","H_API",{"c":"Paris","p_max":150}],["r","RANK",{"c":["p","rt"]}],["p","PRES",{"n":5}]],"out_fmt":"human","state":"PENDING"}"#,
    ),
    (
        "feedback (section 6)",
        r#"{"msg_id":"task-9823","g":"SUMMARIZE_FEEDBACK","ctx":{"lang":"en","test_mode":true},"plan":[["extract","FEEDBACK_DOC",{"range":"Q2"}],["analyze","SENTIMENT",{}],["generate","SUMMARY",{"length":"short"}]],"out_fmt":"human","state":"PENDING"}"#,
    ),
    (
        "groups and a join",
        r#"{"msg_id":"trip-7","g":"PLAN_TRIP","ctx":{"budget":900,"city":"Lyon","days":3},"plan":[{"parallel":[["fetch","WEATHER",{"city":"Lyon","days":3}],["fetch","TRAINS",{"to":"Lyon","class":2}],["search","H_API",{"city":"Lyon","price_max":120}]]},["join","MERGE",{}],["rank","RANK",{"by":["price","rating"]}],["present","PRES",{"count":5}]],"state":"PENDING"}"#,
    ),
    (
        "1.0 with retries",
        r#"{"proto_ver":"1.0.0","msg_id":"m-1","ts":"2025-10-01T12:00:00Z","sender":"planner","g":"PLAN_TRIP","ctx":{"city":"Lyon"},"plan":[{"id":"w","verb":"fetch","tool":"WEATHER","params":{"city":"Lyon"},"timeout_ms":5000},{"id":"t","verb":"fetch","tool":"TRAINS","params":{"to":"Lyon"},"retry":{"max_attempts":3,"backoff_ms":100}},{"id":"m","verb":"merge","tool":"MERGE","params":{},"depends_on":["w","t"],"output_key":"trip"}],"state":"PENDING"}"#,
    ),
];

/// The same calls as requests of MCP, one a line; goal, context, order and groups are not said.
fn as_mcp(message: &AnyMessage) -> String {
    let graph = sacp::Graph::from(message);
    let calls = graph.steps().iter().map(|step| {
        let arguments: Value = step.act.params.deserialize().expect("an object");
        let name = format!("{}_{}", step.act.verb, step.act.tool);
        json!({"jsonrpc": "2.0", "id": step.number, "method": "tools/call", "params": {"name": name, "arguments": arguments}})
            .to_string()
    });
    calls.collect::<Vec<_>>().join("\n")
}

fn pretty(text: &str) -> String {
    let value: Value = serde_json::from_str(text).expect("sound");
    serde_json::to_string_pretty(&value).expect("written")
}

fn main() {
    let tokenizers: [(&str, CoreBPE); 2] = [
        ("o200k", tiktoken_rs::o200k_base().expect("embedded")),
        ("cl100k", tiktoken_rs::cl100k_base().expect("embedded")),
    ];
    let [first, second] = &tokenizers;
    println!(
        "{:<22} {:<14} {:>6} {:>7} {:>7}  of compact",
        "message", "form", "bytes", first.0, second.0
    );
    for (name, text) in SAMPLES {
        let (message, _) = AnyMessage::decode(text.as_bytes()).expect("valid");
        let line = line::write(&message);
        assert_eq!(
            line::read(&line).expect("its own form").encode(),
            message.encode()
        );
        let short = AliasTable::default()
            .encode_compact(&message)
            .expect("one spelling");
        let short = Some(String::from_utf8(short).expect("text"));
        let forms = [
            ("line", Some(line)),
            ("compact JSON", Some(text.to_owned())),
            ("with aliases", short),
            ("pretty JSON", Some(pretty(text))),
            ("MCP tools/call", Some(as_mcp(&message))),
        ];
        let count =
            |tokenizer: &(&str, CoreBPE), text: &str| tokenizer.1.encode_ordinary(text).len();
        let base = (count(first, text), count(second, text));
        for (form, told) in forms {
            let Some(told) = told else { continue };
            let tokens = (count(first, &told), count(second, &told));
            println!(
                "{name:<22} {form:<14} {:>6} {:>7} {:>7}  {:.2} {:.2}",
                told.len(),
                tokens.0,
                tokens.1,
                tokens.0 as f64 / base.0 as f64,
                tokens.1 as f64 / base.1 as f64,
            );
            if form == "line" {
                let what = format!(
                    "SACP: tokens of the line form / of compact JSON, {name}, {}",
                    first.0
                );
                report(&what, tokens.0 as f64 / base.0 as f64, Bar::AtMost(0.6));
            }
        }
    }
}
