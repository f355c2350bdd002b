//! An agent that does what it should: how long it waits for the hub.

use std::time::Duration;

use tonic::{Request, transport::Endpoint};
use uap_hub_proto::{
    role::CLIENT_ID_KEY,
    wire::{
        AgentRegistration, Capability, ListenRequest, PayloadRequirement, TestCapability,
        capability::Format,
    },
};
use ubos_common::os::Clock;

use super::{
    client::{Shown, client},
    target::silence,
};

/// How long an honest agent may take to register and listen before it counts as locked out.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// The pause between two trips.
const PAUSE: Duration = Duration::from_millis(10);

/// How long an honest agent took from connecting until it listened.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Latency {
    /// How often it got to listen.
    pub served: usize,
    /// How often it was locked out: not in 10 s, although it tried again and again.
    pub failed: usize,
    /// The median of the times.
    pub median: Duration,
    /// The time that 99 of 100 did not exceed.
    pub p99: Duration,
}

impl Latency {
    fn of(mut times: Vec<Duration>, failed: usize) -> Self {
        times.sort_unstable();
        let at = |percent: usize| {
            times
                .get(times.len().saturating_sub(1) * percent / 100)
                .copied()
        };
        Self {
            served: times.len(),
            failed,
            median: at(50).unwrap_or_default(),
            p99: at(99).unwrap_or_default(),
        }
    }
}

/// Connects, registers and listens, again and again, for a time.
pub(super) async fn trips(
    endpoint: &Endpoint,
    shown: &Shown,
    clock: &Clock,
    time: Duration,
) -> Latency {
    let (mut times, mut failed) = (Vec::new(), 0);
    let end = clock.now().mono.saturating_add(time);
    loop {
        let begin = clock.now().mono;
        if begin >= end && times.len() + failed > 0 {
            return Latency::of(times, failed);
        }
        match tokio::time::timeout(PATIENCE, trip(endpoint, shown)).await {
            Ok(()) => times.push(clock.now().mono.saturating_since(begin)),
            Err(_) => failed += 1,
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Tries until it listens, as an agent does whose registration was displaced.
async fn trip(endpoint: &Endpoint, shown: &Shown) {
    while listens(endpoint, shown).await.is_none() {
        tokio::time::sleep(PAUSE).await;
    }
}

async fn listens(endpoint: &Endpoint, shown: &Shown) -> Option<()> {
    let mut client = client(endpoint.connect().await.ok()?, shown);
    let answer = client.register(registration()).await.ok()?;
    let (_held, nothing) = silence::<ListenRequest>();
    let mut request = Request::new(nothing);
    let id = answer.into_inner().client_id.parse().ok()?;
    request.metadata_mut().insert(CLIENT_ID_KEY, id);
    client.listen(request).await.ok().map(drop)
}

/// Of an agent that does a little: it needs room for what it can do, as any does.
fn registration() -> AgentRegistration {
    let text = PayloadRequirement {
        r#type: "text".to_owned(),
        is_required: true,
        is_repeatable: false,
        accepted_mime_types: vec!["text/plain".to_owned(), "text/markdown".to_owned()],
    };
    let test = TestCapability {
        r#type: "honest".to_owned(),
        payloads: vec![text],
    };
    let format = Some(Format::Test(test));
    AgentRegistration {
        display_name: "honest".to_owned(),
        capabilities: vec![Capability { format }],
    }
}
