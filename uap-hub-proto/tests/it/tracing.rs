//! Spans with session ids, and nothing of a payload, an id that opens doors, or a token.

use uap_hub_proto::{
    role::hub::{self, Job},
    transport::{
        client::AgentBuilder,
        server::{ServerConfig, serve},
    },
    wire::{Payload, TestResult},
};
use ubos_common::testing::Traces;

use crate::loopback::within;

#[tokio::test]
async fn spans_have_ids_and_nothing_of_the_payload() {
    let traces = Traces::of("uap_hub");
    let hub = hub::Config::default().with_max_jobs(77);
    let config = ServerConfig::default().with_hub(hub);
    let hub = serve(([127, 0, 0, 1], 0).into(), config).await.unwrap();
    let payload = Payload::file("text", "t", "text/plain", "payload bytes");
    let job = hub.submit(Job::test("echo", vec![payload])).unwrap();
    let _agent = AgentBuilder::new("traced")
        .with_bearer_token(String::from("sesame"))
        .on_test("echo", |payloads, context| async move {
            context.status("payload words").await?;
            Ok(TestResult::completed(String::from_utf8_lossy(
                payloads[0].data(),
            )))
        })
        .start(&hub.url())
        .unwrap();
    assert_eq!(within(job.outcome()).await.message, "payload bytes");
    let client_id = hub.agents()[0].client_id.to_string();
    hub.shutdown(std::time::Duration::from_secs(5))
        .await
        .unwrap();
    let said = traces.text();
    for wanted in [
        "message=opened\nside=\"hub\"",
        "message=opened\nside=\"agent\"",
        "message=ended\nside=\"hub\"",
        "message=ended\nside=\"agent\"",
        "span hub.session",
        "session_id=JOB-",
        "skill=test type \"echo\"",
        "state=Completed",
        "message=job accepted",
        "message=session opened",
        "message=job ended",
        "message=hub: message received",
        "message=agent: message received",
        "message=result sent",
        "message=listening",
        "message=over",
        "rpc=Execute",
        "name=\"reports\"",
        "name=\"jobs\"\nwaiting=1\nrunning=0\nbound=77",
        "name=\"jobs\"\nwaiting=0\nrunning=1\nbound=77",
        "name=\"jobs\"\nwaiting=0\nrunning=0\nbound=77",
    ] {
        assert!(said.contains(wanted), "{wanted} in {said}");
    }
    for secret in ["payload", "sesame", client_id.as_str()] {
        assert!(!said.contains(secret), "{secret} in {said}");
    }
}
