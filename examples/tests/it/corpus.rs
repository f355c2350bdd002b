//! Every fuzz corpus, replayed through its target's body by the stable compiler.

use std::fs;
use std::path::Path;
use std::time::Duration;

#[path = "../../../fuzz/bodies/canon.rs"]
#[allow(
    unreachable_pub,
    clippy::expect_used,
    reason = "the target is a crate of its own"
)]
mod canon;
#[path = "../../../fuzz/bodies/hub_agent.rs"]
#[allow(
    unreachable_pub,
    clippy::expect_used,
    clippy::panic,
    reason = "the target is a crate of its own"
)]
mod hub_agent;
#[path = "../../../fuzz/bodies/hub_machine.rs"]
#[allow(
    unreachable_pub,
    clippy::expect_used,
    clippy::panic,
    reason = "the target is a crate of its own"
)]
mod hub_machine;
#[path = "../../../fuzz/bodies/hub_messages.rs"]
#[allow(
    unreachable_pub,
    clippy::expect_used,
    clippy::panic,
    reason = "the target is a crate of its own"
)]
mod hub_messages;
#[path = "../../../fuzz/bodies/json.rs"]
#[allow(
    unreachable_pub,
    clippy::expect_used,
    reason = "the target is a crate of its own"
)]
mod json;
#[path = "../../../fuzz/bodies/log.rs"]
#[allow(
    unreachable_pub,
    clippy::expect_used,
    reason = "the target is a crate of its own"
)]
mod log;
#[path = "../../../fuzz/bodies/osw_agent.rs"]
#[allow(
    unreachable_pub,
    clippy::expect_used,
    reason = "the target is a crate of its own"
)]
mod osw_agent;
#[path = "../../../fuzz/bodies/osw_core.rs"]
#[allow(
    unreachable_pub,
    clippy::expect_used,
    reason = "the target is a crate of its own"
)]
mod osw_core;
#[path = "../../../fuzz/bodies/osw_frames.rs"]
#[allow(
    unreachable_pub,
    clippy::expect_used,
    reason = "the target is a crate of its own"
)]
mod osw_frames;
#[path = "../../../fuzz/bodies/sacp.rs"]
#[allow(
    unreachable_pub,
    clippy::expect_used,
    reason = "the target is a crate of its own"
)]
mod sacp;
#[path = "../../../fuzz/bodies/sacp_repair.rs"]
#[allow(
    unreachable_pub,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "the target is a crate of its own"
)]
mod sacp_repair;

#[path = "../../../fuzz/bodies/sap.rs"]
#[allow(
    unreachable_pub,
    clippy::expect_used,
    reason = "the target is a crate of its own"
)]
mod sap_messages;
#[path = "../../../fuzz/bodies/schema.rs"]
#[allow(
    unreachable_pub,
    dead_code,
    reason = "the target is a crate of its own, and judges the times"
)]
mod schema;
#[path = "../../../fuzz/bodies/texts.rs"]
#[allow(
    unreachable_pub,
    clippy::expect_used,
    clippy::panic,
    reason = "the target is a crate of its own"
)]
mod texts;
#[path = "../../../fuzz/bodies/uap_state.rs"]
#[allow(
    unreachable_pub,
    clippy::expect_used,
    reason = "the target is a crate of its own"
)]
mod uap_state;
#[path = "../../../fuzz/bodies/uap_tree.rs"]
#[allow(
    unreachable_pub,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "the target is a crate of its own"
)]
mod uap_tree;
#[path = "../../../fuzz/bodies/upp_message.rs"]
#[allow(
    unreachable_pub,
    clippy::expect_used,
    reason = "the target is a crate of its own"
)]
mod upp_message;
#[path = "../../../fuzz/bodies/upp_sse.rs"]
#[allow(
    unreachable_pub,
    clippy::expect_used,
    reason = "the target is a crate of its own"
)]
mod upp_sse;

fn replay(target: &str, check: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fuzz/corpus")
        .join(target);
    let mut inputs = 0;
    for entry in fs::read_dir(&corpus).unwrap() {
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        check(&bytes);
        // Its prefixes and its bytes turned one by one are inputs too, and cost nothing.
        for n in 0..bytes.len().min(200) {
            check(&bytes[..n]);
            let mut turned = bytes.clone();
            turned[n] ^= 1 << (n % 8);
            check(&turned);
        }
        inputs += 1;
    }
    assert!(inputs > 0, "no corpus at {}", corpus.display());
}

#[test]
fn json_corpus() {
    replay("json", json::check);
}

#[test]
fn canon_corpus() {
    replay("canon", canon::check);
}

#[test]
fn log_corpus() {
    replay("log", log::check);
}

#[test]
fn schema_corpus() {
    // Only the fuzz target judges times.
    replay("schema", |bytes| {
        let _ = schema::check(bytes, Duration::default);
    });
}

#[test]
fn sap_corpus() {
    replay("sap", sap_messages::check);
}

#[test]
fn sacp_corpus() {
    replay("sacp", sacp::check);
}

#[test]
fn sacp_repair_corpus() {
    replay("sacp-repair", sacp_repair::check);
}

#[test]
fn osw_agent_corpus() {
    replay("osw-agent", osw_agent::check);
}

#[test]
fn osw_core_corpus() {
    replay("osw-core", osw_core::check);
}

#[test]
fn osw_frames_corpus() {
    replay("osw-frames", osw_frames::check);
}

#[test]
fn hub_agent_corpus() {
    replay("hub-agent", hub_agent::check);
}

#[test]
fn hub_machine_corpus() {
    replay("hub-machine", hub_machine::check);
}

#[test]
fn hub_messages_corpus() {
    replay("hub-messages", hub_messages::check);
}

#[test]
fn texts_corpus() {
    replay("texts", texts::check);
}

#[test]
fn uap_state_corpus() {
    replay("uap-state", uap_state::check);
}

#[test]
fn uap_tree_corpus() {
    replay("uap-tree", uap_tree::check);
}

#[test]
fn upp_message_corpus() {
    replay("upp-message", upp_message::check);
}

#[test]
fn upp_sse_corpus() {
    replay("upp-sse", upp_sse::check);
}
