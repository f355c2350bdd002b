//! Every fuzz corpus, replayed through its target's body by the stable compiler.

use std::fs;
use std::path::Path;

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
#[path = "../../../fuzz/bodies/sacp.rs"]
#[allow(
    unreachable_pub,
    clippy::expect_used,
    reason = "the target is a crate of its own"
)]
mod sacp;

#[path = "../../../fuzz/bodies/sap.rs"]
#[allow(
    unreachable_pub,
    clippy::expect_used,
    reason = "the target is a crate of its own"
)]
mod sap_messages;

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
fn sap_corpus() {
    replay("sap", sap_messages::check);
}

#[test]
fn sacp_corpus() {
    replay("sacp", sacp::check);
}

#[test]
fn hub_agent_corpus() {
    replay("hub_agent", hub_agent::check);
}

#[test]
fn hub_machine_corpus() {
    replay("hub_machine", hub_machine::check);
}

#[test]
fn hub_messages_corpus() {
    replay("hub_messages", hub_messages::check);
}
