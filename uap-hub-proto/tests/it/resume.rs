//! Sessions that outlive their connections, over a proxy that cuts.

#![allow(
    clippy::disallowed_methods,
    reason = "the proxy's connections are tasks"
)]

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{AbortHandle, JoinSet},
};
use uap_hub_proto::{
    role::{
        agent::Event,
        hub::{self, Job, JobEvent, Verdict},
    },
    transport::{
        client::{AgentBuilder, AgentHandle},
        server::{HubHandle, JobHandle, ServerConfig, serve},
    },
    wire::{Severity, TestResult},
};
use ubos_common::id::IdSource;

use crate::loopback::within;

const AGENTS: usize = 10;
const SESSIONS: usize = 100;
const CUTS: usize = 1000;
/// Lines of each session, spread over all cuts.
const LINES: usize = 20;

/// Passes connections on to a hub until they are cut.
pub(crate) struct Proxy {
    pub(crate) url: String,
    open: Arc<Mutex<HashMap<u64, AbortHandle>>>,
    /// Whether connections are closed at once.
    is_away: Arc<AtomicBool>,
}

impl Proxy {
    pub(crate) async fn start(hub: &HubHandle) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let hub = hub.url();
        let (scheme, hub) = hub.split_once("://").unwrap();
        let url = format!("{scheme}://{}", listener.local_addr().unwrap());
        let hub = hub.to_owned();
        let open = Arc::new(Mutex::new(HashMap::new()));
        let connections = Arc::clone(&open);
        let is_away = Arc::<AtomicBool>::default();
        let closes = Arc::clone(&is_away);
        tokio::spawn(async move {
            for number in 0.. {
                let (mut agent, _) = listener.accept().await.unwrap();
                if closes.load(Ordering::Relaxed) {
                    continue;
                }
                let hub = hub.clone();
                let passing = tokio::spawn(async move {
                    let mut hub = TcpStream::connect(hub).await.unwrap();
                    // It ends when either side does.
                    let _ = tokio::io::copy_bidirectional(&mut agent, &mut hub).await;
                });
                let passing = passing.abort_handle();
                connections.lock().unwrap().insert(number, passing);
            }
        });
        Self { url, open, is_away }
    }

    /// Cuts one connection; false if there is none.
    pub(crate) fn cut(&self, ids: &mut IdSource) -> bool {
        let mut open = self.open.lock().unwrap();
        open.retain(|_, passing| !passing.is_finished());
        let numbers: Vec<_> = open.keys().copied().collect();
        let Some(at) = usize::try_from(ids.bits())
            .unwrap()
            .checked_rem(numbers.len())
        else {
            return false;
        };
        open.remove(&numbers[at]).unwrap().abort();
        true
    }
}

/// An agent whose handlers write their lines as the cuts go on, and return after the last.
fn agent(url: &str, cuts: &watch::Receiver<usize>) -> AgentHandle {
    let cuts = cuts.clone();
    AgentBuilder::new("a")
        .configure(|config| {
            config
                .with_resume(true)
                .with_max_sessions(SESSIONS / AGENTS)
                .with_first_retry(Duration::from_millis(5))
                .with_longest_retry(Duration::from_millis(50))
        })
        .on_test("t", move |_, context| {
            let mut cuts = cuts.clone();
            async move {
                for line in 0..LINES {
                    // The sender lives as long as the test.
                    let _ = cuts
                        .wait_for(|cuts| *cuts >= line * CUTS / (LINES - 1))
                        .await;
                    context.log(Severity::Info, line.to_string()).await?;
                }
                Ok(TestResult::completed("done"))
            }
        })
        .start(url)
        .unwrap()
}

/// The lines of a job, in the order in which they came.
async fn lines(mut job: JobHandle) -> (Vec<String>, usize, Verdict) {
    let (mut lines, mut resumed) = (Vec::new(), 0);
    loop {
        match job.next_event().await {
            Some(JobEvent::Telemetry { telemetry, .. }) => lines.push(telemetry.message),
            Some(JobEvent::Resumed { .. }) => resumed += 1,
            Some(JobEvent::Ended(outcome)) => return (lines, resumed, outcome.verdict),
            Some(_) => {}
            None => panic!("the job has no end"),
        }
    }
}

// spec: HUB-5-4
#[tokio::test]
async fn a_thousand_cuts_lose_no_session_and_no_report() {
    let config = hub::Config::default().with_resume_grace(GRACE);
    let hub = serve(
        ([127, 0, 0, 1], 0).into(),
        ServerConfig::default().with_hub(config),
    );
    let hub = hub.await.unwrap();
    let proxy = Proxy::start(&hub).await;
    let (count, cuts) = watch::channel(0);
    let _agents: Vec<_> = (0..AGENTS).map(|_| agent(&proxy.url, &cuts)).collect();
    let mut jobs = JoinSet::new();
    for _ in 0..SESSIONS {
        jobs.spawn(lines(hub.submit(Job::test("t", vec![])).unwrap()));
    }
    let runs = |hub: &HubHandle| hub.inspect(|view| view.counts().sessions);
    while runs(&hub) < SESSIONS {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut ids = IdSource::seeded(0);
    while *count.borrow() < CUTS {
        if proxy.cut(&mut ids) {
            count.send_modify(|cuts| *cuts += 1);
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let wanted: Vec<_> = (0..LINES).map(|line| line.to_string()).collect();
    let mut resumptions = 0;
    while let Some(job) = jobs.join_next().await {
        let (lines, resumed, verdict) = job.unwrap();
        assert_eq!(verdict, Verdict::Completed);
        assert_eq!(lines, wanted);
        resumptions += resumed;
    }
    assert!(resumptions > SESSIONS, "{resumptions}");
}

/// Lines of a session that is cut once.
const MANY: usize = 500;
/// How long a hub waits for an agent that was cut off: longer than any test.
pub(crate) const GRACE: Duration = Duration::from_secs(600);

/// Cuts a session when so many of its lines are written, and reads its events then at the latest.
async fn survives_a_cut(hub: hub::Config, is_read: bool, cut_at: usize, retry: Duration) {
    let config = ServerConfig::default().with_hub(hub.with_resume_grace(GRACE));
    survives_a_cut_of(config, AgentBuilder::new("a"), is_read, cut_at, retry).await;
}

/// The same of a hub and an agent that are set up in some way.
pub(crate) async fn survives_a_cut_of(
    config: ServerConfig,
    agent: AgentBuilder,
    is_read: bool,
    cut_at: usize,
    retry: Duration,
) {
    let hub = serve(([127, 0, 0, 1], 0).into(), config).await.unwrap();
    let proxy = Proxy::start(&hub).await;
    let (count, mut written) = watch::channel(0);
    let count = Arc::new(count);
    let (noticed, is_noticed) = watch::channel(false);
    let agent = agent
        .configure(|config| config.with_resume(true).with_first_retry(retry))
        .on_test("t", move |_, context| {
            let (count, mut is_noticed) = (Arc::clone(&count), is_noticed.clone());
            async move {
                for line in 0..MANY {
                    context.log(Severity::Info, line.to_string()).await?;
                    count.send_replace(line);
                    if line > cut_at {
                        // The sender lives as long as the test.
                        let _ = is_noticed.wait_for(|is_noticed| *is_noticed).await;
                    }
                }
                Ok(TestResult::completed("done"))
            }
        })
        .start(&proxy.url)
        .unwrap();
    let mut job = Some(hub.submit(Job::test("t", vec![])).unwrap());
    let mut reading = JoinSet::new();
    if is_read {
        reading.spawn(lines(job.take().unwrap()));
    }
    written.wait_for(|line| *line > cut_at).await.unwrap();
    let mut ids = IdSource::seeded(0);
    let mut news = agent.events();
    proxy.is_away.store(true, Ordering::Relaxed);
    while proxy.cut(&mut ids) {}
    while !matches!(within(news.recv()).await, Ok(Event::SessionCut { .. })) {}
    noticed.send_replace(true);
    // More than three times as many as may wait at one time.
    let go_on = written.wait_for(|line| *line > cut_at + 200);
    within(go_on).await.unwrap();
    proxy.is_away.store(false, Ordering::Relaxed);
    if let Some(job) = job {
        reading.spawn(lines(job));
    }
    let (lines, resumed, verdict) = within(reading.join_next()).await.unwrap().unwrap();
    assert_eq!((resumed > 0, verdict), (true, Verdict::Completed));
    let wanted: Vec<_> = (0..MANY).map(|line| line.to_string()).collect();
    assert_eq!(lines, wanted);
}

// spec: HUB-5-4
#[tokio::test]
async fn many_reports_that_wait_for_a_slow_reader_survive_a_cut() {
    // The hub reads a few of them until somebody reads their events.
    let config = hub::Config::default().with_max_unread_events(8);
    survives_a_cut(config, false, 200, Duration::from_millis(5)).await;
}

// spec: HUB-5-4
#[tokio::test]
async fn reports_that_were_made_while_the_hub_was_away_make_room_for_more() {
    let away = Duration::from_millis(100);
    survives_a_cut(hub::Config::default(), true, 5, away).await;
}
