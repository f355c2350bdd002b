//! Agents that do not read what they are sent.

use std::time::Duration;

use tokio_stream::StreamExt as _;
use tonic::transport::{Channel, Endpoint};
use uap_hub_proto::{
    role::{RESUME_KEY, SESSION_ID_KEY, hub},
    transport::server::{HubHandle, ServerConfig, serve},
    wire::{Attachment, Payload, TestInit, agent_hub_client::AgentHubClient},
};

use crate::{loopback::within, wires::accepted};

/// The smallest limit of a message that is nothing special.
const MOST: usize = 1 << 20;

/// A job of nearly as many bytes as a message may have.
fn large() -> hub::Job {
    let payload = Payload {
        r#type: "text".to_owned(),
        attachment: Some(Attachment {
            data: vec![7; MOST - 1_000].into(),
            ..Attachment::default()
        }),
        ..Payload::default()
    };
    hub::Job::test("t", vec![payload])
}

/// A hub, and an agent whose streams let 64 KiB through until they are read.
async fn hub() -> (HubHandle, AgentHubClient<Channel>) {
    let machine = hub::Config::default()
        .with_max_message_bytes(MOST)
        .with_max_queued_bytes(4 * MOST)
        .with_resume_grace(Duration::from_secs(60));
    let config = ServerConfig::default().with_hub(machine);
    let hub = serve(([127, 0, 0, 1], 0).into(), config).await.unwrap();
    let endpoint = Endpoint::from_shared(hub.url()).unwrap();
    let endpoint = endpoint.initial_stream_window_size(65_535);
    let channel = endpoint.connect().await.unwrap();
    let client = AgentHubClient::new(channel).max_decoding_message_size(MOST);
    (hub, client)
}

/// Opens a session's stream for the `opening`th time.
async fn open(
    client: &mut AgentHubClient<Channel>,
    session: &str,
    opening: u64,
) -> Result<tonic::Streaming<TestInit>, tonic::Status> {
    let mut request = tonic::Request::new(tokio_stream::pending());
    let metadata = request.metadata_mut();
    metadata.insert(SESSION_ID_KEY, session.parse().unwrap());
    metadata.insert(RESUME_KEY, format!("job {opening}").parse().unwrap());
    Ok(within(client.execute(request)).await?.into_inner())
}

// spec: HUB-4-6
#[tokio::test]
async fn what_an_agent_does_not_read_is_no_more_than_all_jobs() {
    let (hub, mut client) = hub().await;
    let _job = hub.submit(large()).unwrap();
    let (session, _answers, _listening) = accepted(&mut client).await;
    let mut unread = Vec::new();
    for opening in 1..=4 {
        unread.push(open(&mut client, &session, opening).await.unwrap());
    }
    let end = open(&mut client, &session, 5).await.unwrap_err();
    assert_eq!(end.code(), tonic::Code::ResourceExhausted, "{end}");
}

// spec: HUB-4-6
#[tokio::test]
async fn an_agent_that_reads_may_open_its_session_as_often_as_it_likes() {
    let (hub, mut client) = hub().await;
    let _job = hub.submit(large()).unwrap();
    let (session, _answers, _listening) = accepted(&mut client).await;
    for opening in 1..=12 {
        let mut opened = open(&mut client, &session, opening).await.unwrap();
        let init = within(opened.next()).await.unwrap().unwrap();
        assert_eq!(init.payloads.len(), 1, "{opening}");
    }
}
