//! An agent that does what it should: how long it waits for the hub.

use std::time::Duration;

use tonic::transport::Endpoint;
use uap_hub_proto::{
    role::hub::Job,
    state::State,
    wire::{Payload, PayloadRequirement, TestResponse, TestResult, test_response},
};
use ubos_common::os::Clock;

use super::{
    client::{Shown, client},
    feed::Feed,
    jobs::{Taker, of_session},
};

/// How long an honest agent may take to register, listen and do its job before it counts as locked out, if nothing else is said.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// The test type of its job.
const SKILL: &str = "honest";

/// The pause between two trips.
const PAUSE: Duration = Duration::from_millis(10);

/// How long an honest agent took from connecting until it listened; and until its job had ended, where the hub is given any.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Latency {
    /// How often it got so far.
    pub served: usize,
    /// How often it was locked out: not in time, although it tried again and again.
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

/// Connects, registers, listens, and does a job if there is a feed, again and again, for a time.
pub(super) async fn trips(
    endpoint: &Endpoint,
    shown: &Shown,
    feed: Option<&Feed>,
    clock: &Clock,
    (time, patience): (Duration, Duration),
) -> Latency {
    let (mut times, mut failed) = (Vec::new(), 0);
    let end = clock.now().mono.saturating_add(time);
    loop {
        let begin = clock.now().mono;
        if begin >= end && times.len() + failed > 0 {
            return Latency::of(times, failed);
        }
        match tokio::time::timeout(patience, trip(endpoint, shown, feed, patience)).await {
            Ok(()) => times.push(clock.now().mono.saturating_since(begin)),
            Err(_) => failed += 1,
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Tries until it is served, as an agent does whose registration was displaced.
async fn trip(endpoint: &Endpoint, shown: &Shown, feed: Option<&Feed>, patience: Duration) {
    // One that the hub had no room for, or that was lost on its way, is given again.
    let job_limit = patience * 2 / 5;
    while is_served(endpoint, shown, feed, job_limit).await.is_none() {
        tokio::time::sleep(PAUSE).await;
    }
}

async fn is_served(
    endpoint: &Endpoint,
    shown: &Shown,
    feed: Option<&Feed>,
    job_limit: Duration,
) -> Option<()> {
    let client = client(endpoint.connect().await.ok()?, shown);
    // It does a little: it needs room for what it can do, as any does.
    let text = PayloadRequirement {
        r#type: "text".to_owned(),
        is_required: true,
        is_repeatable: false,
        accepted_mime_types: vec!["text/plain".to_owned(), "text/markdown".to_owned()],
    };
    let mut agent = Taker::start(client, SKILL, vec![text]).await?;
    let Some(feed) = feed else {
        return Some(());
    };
    let does_its_job = async {
        let text = Payload::file("text", "t", "text/plain", "x");
        let job = Job::test(SKILL, vec![text]);
        feed.give_job(job.with_time_limit(job_limit)).await;
        let session = agent.ready().await?;
        let result = TestResult::new(State::Completed, "done");
        let result = TestResponse {
            timestamp: None,
            event: Some(test_response::Event::Result(result)),
            number: 0,
        };
        let reports = tokio_stream::once(result);
        let opened = agent.client.execute(of_session(&session, reports)).await;
        let mut opened = opened.ok()?.into_inner();
        // The hub ends the stream well where it has the result.
        while opened.message().await.ok()?.is_some() {}
        Some(())
    };
    let done = tokio::time::timeout(job_limit, does_its_job).await;
    done.ok().flatten()
}
