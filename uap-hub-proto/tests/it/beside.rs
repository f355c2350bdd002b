//! The services beside the hub's: health, which takes no token, and reflection.

use std::time::Duration;

use tokio::task::JoinSet;
use tonic::{
    Code, Request,
    codegen::{Service as _, http},
    transport::Channel,
};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
};
use uap_hub_proto::transport::server::{Denied, HubHandle, ServerConfig, serve};

use crate::{loopback::within, wires::Begun};

const CALLS: [&str; 2] = [
    "grpc.health.v1.Health/Check",
    "grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
];

async fn hub(config: ServerConfig) -> (HubHandle, Channel) {
    let hub = serve(([127, 0, 0, 1], 0).into(), config).await.unwrap();
    let endpoint = Channel::from_shared(hub.url()).unwrap();
    let channel = endpoint.connect().await.unwrap();
    (hub, channel)
}

/// A call whose message has this length and never comes to its end; the status that it ends with.
async fn begin(hub: &HubHandle, mut channel: Channel, call: &str, length: u32) -> Code {
    let body = [&[0][..], &length.to_be_bytes(), &[0; 9]].concat();
    let request = http::Request::post(format!("{}/{call}", hub.url()))
        .header("content-type", "application/grpc")
        .body(tonic::body::Body::new(Begun(Some(body.into()))))
        .unwrap();
    std::future::poll_fn(|cx| channel.poll_ready(cx))
        .await
        .unwrap();
    let answer = channel.call(request).await.unwrap();
    if let Some(status) = tonic::Status::from_header_map(answer.headers()) {
        return status.code();
    }
    let mut body = answer.into_body();
    loop {
        let frame = std::future::poll_fn(|cx| {
            http_body::Body::poll_frame(std::pin::Pin::new(&mut body), cx)
        });
        let frame = frame.await.expect("trailers come").unwrap();
        if let Ok(trailers) = frame.into_trailers() {
            return tonic::Status::from_header_map(&trailers).unwrap().code();
        }
    }
}

// spec: HUB-4-6, HUB-6-3
#[tokio::test]
async fn their_messages_are_small_and_have_a_time() {
    let [health, reflection] = CALLS;
    // Here the time is not over before the size is seen.
    let (patient, channel) = hub(ServerConfig::default()).await;
    let large = within(begin(&patient, channel, health, 4 << 20)).await;
    assert_eq!(large, Code::ResourceExhausted);
    let config = ServerConfig::default().with_register_timeout(Duration::from_millis(100));
    let (hub, channel) = hub(config).await;
    let late = within(begin(&hub, channel.clone(), health, 100)).await;
    assert_eq!(late, Code::DeadlineExceeded);
    // Reflection says nothing of messages that it cannot read: its calls end.
    for length in [4 << 20, 100] {
        within(begin(&hub, channel.clone(), reflection, length)).await;
    }
}

// spec: HUB-6-3
#[tokio::test]
async fn the_hook_is_asked_about_reflection_and_not_about_health() {
    let config = ServerConfig::default()
        .with_authorize(|_| async { Err(Denied::Unauthenticated("nobody".to_owned())) });
    let (_hub, channel) = hub(config).await;
    let mut health = HealthClient::new(channel.clone());
    let checked = health.check(HealthCheckRequest::default());
    assert!(within(checked).await.is_ok());
    let mut reflection = ServerReflectionClient::new(channel);
    let asked =
        reflection.server_reflection_info(tokio_stream::pending::<ServerReflectionRequest>());
    let denied = within(asked).await.unwrap_err();
    assert_eq!(denied.code(), Code::Unauthenticated);
}

// spec: HUB-4-6, HUB-6-3
#[tokio::test]
async fn a_connection_has_few_of_their_calls() {
    let (_hub, channel) = hub(ServerConfig::default()).await;
    let watch = || {
        let mut client = HealthClient::new(channel.clone());
        async move {
            client
                .watch(Request::new(HealthCheckRequest::default()))
                .await
        }
    };
    let mut watches = JoinSet::new();
    for _ in 0..9 {
        watches.spawn(watch());
    }
    let opened = within(watches.join_all()).await;
    let codes: Vec<_> = opened.iter().filter_map(|one| one.as_ref().err()).collect();
    assert_eq!(codes.len(), 1, "{codes:?}");
    assert_eq!(codes[0].code(), Code::ResourceExhausted);
    drop(opened);
    while within(watch()).await.is_err() {
        tokio::task::yield_now().await;
    }
}
