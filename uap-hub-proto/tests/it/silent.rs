//! Networks that drop packets: no end hears of the cut, and both find out by their pings.

#![expect(
    clippy::disallowed_methods,
    reason = "the wire's connections are tasks, and a test looks at a clock"
)]

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
};
use uap_hub_proto::{
    role::{
        agent,
        hub::{self, Job, JobEvent, Verdict},
    },
    transport::{
        MIN_KEEP_ALIVE,
        client::{AgentBuilder, AgentHandle},
        server::{HubHandle, JobHandle, ServerConfig, serve},
    },
    wire::{Severity, TestResult},
};

use crate::loopback::within;

/// A wire to a hub that can be cut in the middle without either end noticing.
struct Wire {
    url: String,
    /// How often it was cut, and whether it is whole again for new connections.
    state: watch::Sender<(usize, bool)>,
}

impl Wire {
    async fn to(hub: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = watch::Sender::new((0, true));
        let mut seen = state.subscribe();
        tokio::spawn(async move {
            // Ends that were cut stay open in their tasks: nobody hears of it.
            while let Ok((near, _)) = listener.accept().await {
                let Ok(cuts) = seen
                    .wait_for(|(_, is_whole)| *is_whole)
                    .await
                    .map(|state| state.0)
                else {
                    return;
                };
                let far = TcpStream::connect(hub).await.unwrap();
                let (near_reads, near_writes) = near.into_split();
                let (far_reads, far_writes) = far.into_split();
                tokio::spawn(carry(near_reads, far_writes, seen.clone(), cuts));
                tokio::spawn(carry(far_reads, near_writes, seen.clone(), cuts));
            }
        });
        Self { url, state }
    }

    fn cut(&self) {
        self.state
            .send_modify(|state| *state = (state.0 + 1, false));
    }

    fn mend(&self) {
        self.state.send_modify(|state| state.1 = true);
    }
}

/// Carries bytes until either end closes or the wire is cut.
async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    state: watch::Receiver<(usize, bool)>,
    cuts: usize,
) {
    let mut buffer = [0; 4096];
    loop {
        let n = from.read(&mut buffer).await.unwrap_or(0);
        if state.borrow().0 != cuts {
            std::future::pending::<()>().await;
        }
        let sent = match buffer.get(..n) {
            None | Some([]) => return,
            Some(bytes) => to.write_all(bytes).await,
        };
        if sent.is_err() {
            return;
        }
    }
}

async fn hub(config: hub::Config) -> HubHandle {
    let config = ServerConfig::default()
        .with_hub(config)
        .with_keep_alive(MIN_KEEP_ALIVE)
        .with_keep_alive_timeout(Duration::from_secs(1));
    serve(([127, 0, 0, 1], 0).into(), config).await.unwrap()
}

/// An agent whose handler writes a line and waits for `go`.
fn agent(url: &str, go: &watch::Receiver<bool>) -> AgentHandle {
    let go = go.clone();
    AgentBuilder::new("a")
        .configure(|config| config.with_resume(true))
        .on_test("t", move |_, context| {
            let mut go = go.clone();
            async move {
                context.log(Severity::Info, "begun").await?;
                // The sender lives as long as the test.
                let _ = go.wait_for(|go| *go).await;
                context.log(Severity::Info, "went on").await?;
                Ok(TestResult::completed("done"))
            }
        })
        .with_keep_alive(MIN_KEEP_ALIVE)
        .with_keep_alive_timeout(Duration::from_secs(1))
        .start(url)
        .unwrap()
}

/// Reads the news of a job up to one that `is` true of.
async fn until(job: &mut JobHandle, is: impl Fn(&JobEvent) -> bool) -> Vec<JobEvent> {
    let mut seen = Vec::new();
    loop {
        let event = within(job.next_event()).await.expect("the job goes on");
        let is_last = is(&event);
        assert!(
            is_last || !matches!(event, JobEvent::Ended(_)),
            "{event:?} after {seen:?}"
        );
        seen.push(event);
        if is_last {
            return seen;
        }
    }
}

fn is_line(event: &JobEvent, words: &str) -> bool {
    matches!(event, JobEvent::Telemetry { telemetry, .. } if telemetry.message == words)
}

// spec: HUB-4-6, HUB-5-1
#[tokio::test]
async fn both_sides_notice_a_dead_idle_peer() {
    let hub = hub(hub::Config::default()).await;
    let wire = Wire::to(hub.local_addr()).await;
    let (_go, waits) = watch::channel(false);
    // The pings count from the last frame, which comes before the cut.
    let started = std::time::Instant::now();
    let agent = agent(&wire.url, &waits);
    within(hub.wait_for_agents(1)).await.unwrap();
    let (mut of_hub, mut of_agent) = (hub.events(), agent.events());
    wire.cut();
    let both = async {
        while !matches!(of_hub.recv().await.unwrap(), hub::Event::AgentGone { .. }) {}
        while !matches!(
            of_agent.recv().await.unwrap(),
            agent::Event::Retrying { .. }
        ) {}
    };
    within(both).await;
    assert!(
        started.elapsed() > MIN_KEEP_ALIVE / 2,
        "never pinged more often than every 10 s"
    );
}

// spec: HUB-5-4
#[tokio::test]
async fn a_session_outlives_a_cut_that_only_pings_can_notice() {
    let config = hub::Config::default().with_resume_grace(Duration::from_secs(600));
    let hub = hub(config).await;
    let wire = Wire::to(hub.local_addr()).await;
    let (go, waits) = watch::channel(false);
    let _agent = agent(&wire.url, &waits);
    let mut job = hub.submit(Job::test("t", vec![])).unwrap();
    until(&mut job, |event| is_line(event, "begun")).await;
    let mut news = hub.events();
    wire.cut();
    until(&mut job, |event| matches!(event, JobEvent::Cut { .. })).await;
    let away = async {
        loop {
            match news.recv().await.unwrap() {
                hub::Event::AgentAway { .. } => return,
                hub::Event::AgentGone { reason, .. } => panic!("gone: {reason}"),
                _ => {}
            }
        }
    };
    within(away).await;
    wire.mend();
    until(&mut job, |event| matches!(event, JobEvent::Resumed { .. })).await;
    go.send_replace(true);
    let rest = until(&mut job, |event| matches!(event, JobEvent::Ended(_))).await;
    assert!(rest.iter().any(|event| is_line(event, "went on")));
    assert!(!rest.iter().any(|event| is_line(event, "begun")));
    let ended = |event: &JobEvent| matches!(event, JobEvent::Ended(end) if end.verdict == Verdict::Completed);
    assert!(rest.last().is_some_and(ended), "{rest:?}");
}

// spec: HUB-5-1
#[tokio::test]
async fn a_job_that_may_start_again_does_after_a_cut_that_only_pings_can_notice() {
    let hub = hub(hub::Config::default().with_max_attempts(2)).await;
    let wire = Wire::to(hub.local_addr()).await;
    let (go, waits) = watch::channel(false);
    let _agent = agent(&wire.url, &waits);
    let mut job = hub.submit(Job::test("t", vec![])).unwrap();
    until(&mut job, |event| is_line(event, "begun")).await;
    wire.cut();
    let lost = until(&mut job, |event| matches!(event, JobEvent::Requeued { .. })).await;
    let is_lost = |event: &JobEvent| matches!(event, JobEvent::Requeued { reason, .. } if reason == "Agent disconnected");
    assert!(lost.last().is_some_and(is_lost), "{lost:?}");
    go.send_replace(true);
    wire.mend();
    let outcome = within(job.outcome()).await;
    assert_eq!(outcome.verdict, Verdict::Completed, "{outcome:?}");
}
