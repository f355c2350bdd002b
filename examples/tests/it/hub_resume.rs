//! `hub` and `hub-agent` over a connection that is cut while a job runs.

use serde_json::json;

use crate::hub_programs::{Agent, Hub, Proxy};

// spec: HUB-5-4
#[test]
fn a_job_goes_on_when_the_connection_was_cut() {
    let mut hub = Hub::start(&["--exit-when-done", "--grace", "600"]);
    let proxy = Proxy::start(hub.address().to_owned());
    let url = format!("http://{}", proxy.address);
    let _agent = Agent::start(&["--hub", &url, "--resume"]);
    let registered = hub.until("agent-registered");
    let upper = json!({
        "kind": "translation",
        "type": "upper",
        "makes": [{"type": "text", "mime_types": [], "always": true, "many": true}],
    });
    let skills = registered["skills"].as_array().unwrap();
    assert!(skills.contains(&upper), "{registered}");
    // On a busy machine a short job may have ended before the cut.
    let is_cut = |ms: &u64| {
        let wait = json!({"type": "text", "text": ms.to_string()});
        hub.say(&json!({"kind": "test", "type": "sleep", "payloads": [wait]}));
        hub.until("init-sent");
        proxy.cut();
        // The new stream may come before the hub has seen the end of the old one, and then no cut is told.
        hub.until_one_of(&["resumed", "result", "failed"])["event"] == "resumed"
    };
    let ms = [3_000, 30_000, 300_000].into_iter().find(is_cut).unwrap();
    let resumed = hub.seen.len();
    assert_eq!(hub.until("result")["message"], format!("slept {ms} ms"));
    let (code, lines) = hub.end();
    assert!(
        lines[resumed..]
            .iter()
            .all(|line| line["event"] != "init-sent"),
        "{lines:?}"
    );
    assert_eq!(code, Some(0));
}
