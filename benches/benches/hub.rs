//! The UAP hub: placing a job among 10,000 agents, negotiated sessions a second, and the memory of idle agents:
//! `cargo bench -p benches --bench hub`; one part with `-- place`, `-- sessions` or `-- memory`;
//! `-- ours` and `-- by-hand` run sessions of one kind alone, for a profiler.
//!
//! Every part measures ours and its yardstick in one run, in turn, and prints their ratio.

#![expect(
    clippy::expect_used,
    reason = "a bench whose subject is refused has nothing to say"
)]
#![expect(clippy::print_stdout, reason = "the summary is the result")]
#![expect(
    clippy::disallowed_methods,
    reason = "a bench reads the clock and starts tasks"
)]

#[path = "hub/by_hand.rs"]
mod by_hand;

use std::{
    alloc::System,
    collections::HashMap,
    fs,
    hint::black_box,
    io::{BufRead as _, BufReader, Write as _},
    pin::Pin,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use benches::{Bar, report};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

use tokio::sync::mpsc;
use tokio_stream::{Stream, wrappers::ReceiverStream};
use tonic::{
    Request, Response, Status, Streaming,
    transport::{Channel, Server, server::TcpIncoming},
};
use uap_hub_proto::{
    capability::Skill,
    id::StreamId,
    role::{
        Rpc,
        hub::{Config, Hub, Input, Job, Verdict},
    },
    transport::{
        client::AgentBuilder,
        server::{ServerConfig, serve},
    },
    wire::{
        AgentRegistration, AgentRegistrationResponse, Capability, ListenRequest, ListenResponse,
        Payload, PayloadRequirement, TestCapability, TestInit, TestResponse, TestResult,
        TranslationInit, TranslationResponse,
        agent_hub_client::AgentHubClient,
        agent_hub_server::{AgentHub, AgentHubServer},
        capability::Format,
        test_response,
    },
};
use ubos_common::id::IdSource;
use ubos_common::time::{Mono, Now, Timestamp};

const AGENTS: usize = 10_000;
/// Kinds of payloads that jobs of one skill have.
const SHAPES: usize = 256;
#[global_allocator]
static GLOBAL: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Sessions at once.
const FLIGHT: usize = 64;
const SESSIONS: usize = 6400;
/// Streams of one connection.
const STREAMS: u32 = 1000;

fn main() {
    let part = std::env::args()
        .skip(1)
        .find(|word| !word.starts_with("--"));
    match part.as_deref() {
        Some("place") => place(),
        Some("sessions") => sessions(),
        Some("memory") => memory(),
        // For a profiler: sessions of one kind alone.
        Some("ours") => drop(measured(1, negotiated())),
        Some("by-hand") => drop(measured(1, sessions_by_hand())),
        Some("serve-ours") => on_runtime(serve_ours()),
        Some("serve-bare") => on_runtime(serve_bare()),
        _ => {
            place();
            sessions();
            memory();
        }
    }
}

fn on_runtime<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(future)
}

fn median(mut all: Vec<Duration>) -> Duration {
    all.sort_unstable();
    all.get(all.len() / 2).copied().unwrap_or_default()
}

/// A job from submission to its proposal, among agents that all can take it and are equal or all different; among jobs whose
/// payloads differ and that the same agents can do; and among jobs that each two agents can do.
fn place() {
    let plain = |_: usize| vec![Payload::file("p", "f", "text/plain", "x")];
    place_among("equal agents", |_| Skill::test("t").into(), plain);
    place_among("different agents", different, plain);
    let beside = |n: usize| {
        let mut payloads = plain(n);
        payloads.push(Payload::new(format!("beside-{}", n % SHAPES)));
        payloads
    };
    let kind = format!("different agents, {SHAPES} shapes of jobs");
    place_among(&kind, different, beside);
    let of_two = |n: usize| {
        let mime = format!("application/x-{}", n % SHAPES);
        vec![Payload::file("p", "f", mime, "x")]
    };
    let kind = format!("different agents, {SHAPES} shapes of jobs for two each");
    place_among(&kind, |n| different(n / 2), of_two);
    say_why();
}

/// Why a job waits that no agent can do, of jobs of more shapes than are known.
fn say_why() {
    let (mut hub, _) = fleet(different);
    let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
    let jobs: Vec<_> = (0..1_000)
        .map(|n| {
            let lacks = vec![Payload::new(format!("beside-{n}"))];
            let job = hub.submit(now, Job::test("t", lacks));
            while hub.poll_output().is_some() {}
            job.expect("is taken")
        })
        .collect();
    let asked = jobs.iter().map(|job| {
        let begun = Instant::now();
        black_box(hub.why_waiting(*job)).expect("it waits");
        begun.elapsed()
    });
    let micros = median(asked.collect()).as_secs_f64() * 1e6;
    let what =
        format!("hub: us to say why a job waits that none of {AGENTS} different agents can do");
    report(&what, micros, Bar::None);
}

/// An agent that takes plain text, and a type that no other takes.
fn different(n: usize) -> Capability {
    let script = PayloadRequirement {
        r#type: "p".into(),
        is_required: true,
        is_repeatable: false,
        accepted_mime_types: vec![format!("application/x-{n}"), "text/plain".into()],
    };
    let format = Some(Format::Test(TestCapability {
        r#type: "t".into(),
        payloads: vec![script],
    }));
    Capability { format }
}

/// A hub whose agents listen, and their names.
fn fleet(capability: impl Fn(usize) -> Capability) -> (Hub, HashMap<String, usize>) {
    let config = Config::default()
        .with_max_agents(AGENTS)
        .with_max_jobs(AGENTS);
    let mut hub = Hub::new(config, IdSource::seeded(1)).expect("a configuration that works");
    let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
    let mut agents = HashMap::new();
    for n in 0..AGENTS {
        let registration = AgentRegistration {
            display_name: "a".into(),
            capabilities: vec![capability(n)],
        };
        let id = hub
            .register(now, registration)
            .expect("registers")
            .client_id;
        let opened = Input::Opened {
            stream: StreamId(n as u64),
            rpc: Rpc::Listen,
            key: Some(&id),
            identity: None,
            resume: None,
        };
        hub.handle_input(now, opened).expect("listens");
        agents.insert(id, n);
        while hub.poll_output().is_some() {}
    }
    (hub, agents)
}

fn place_among(
    kind: &str,
    capability: impl Fn(usize) -> Capability,
    payloads: impl Fn(usize) -> Vec<Payload>,
) {
    let (mut hub, agents) = fleet(capability);
    let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
    let (mut placed, mut looked_up) = (Vec::new(), Vec::new());
    let keys: Vec<String> = agents.keys().cloned().collect();
    for (n, key) in keys.iter().cycle().take(50_000).enumerate() {
        let job = Job::test("t", payloads(n));
        let begun = Instant::now();
        let job = hub.submit(now, job).expect("is taken");
        placed.push(begun.elapsed());
        while hub.poll_output().is_some() {}
        hub.cancel(now, job).expect("is there");
        while hub.poll_output().is_some() {}
        let begun = Instant::now();
        for _ in 0..10 {
            black_box(agents.get(black_box(key.as_str())));
        }
        looked_up.push(begun.elapsed() / 10);
    }
    let (placed, looked_up) = (median(placed), median(looked_up));
    println!("place: a job among {AGENTS} {kind} {placed:?}, a hash map's lookup {looked_up:?}");
    let (what, micros) = (
        format!("hub: us to place a job among {AGENTS} {kind}"),
        placed.as_secs_f64() * 1e6,
    );
    report(&what, micros, Bar::AtMost(5.0));
}

/// Sessions from submission to result, against the same protocol by hand, and against streams that are opened, exchanged over,
/// and closed; with one thread and with two.
fn sessions() {
    for threads in [1, 2] {
        let (mut ours, mut by_hand, mut plain) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..15 {
            plain.push(measured(threads, plain_streams()));
            by_hand.push(measured(threads, sessions_by_hand()));
            ours.push(measured(threads, negotiated()));
        }
        let [ours, by_hand, plain] = [ours, by_hand, plain].map(Cost::median);
        println!(
            "sessions, {threads} threads, {FLIGHT} at once: {:.0}/s, {:.2} of {:.0}/s by hand, {:.2} of {:.0}/s plain streams",
            ours.rate(),
            ours.rate() / by_hand.rate(),
            by_hand.rate(),
            ours.rate() / plain.rate(),
            plain.rate(),
        );
        println!(
            "    processor time {:.0} us, by hand {:.0} us: {:.2}; allocations {}, by hand {}",
            ours.processor.as_secs_f64() * 1e6 / SESSIONS as f64,
            by_hand.processor.as_secs_f64() * 1e6 / SESSIONS as f64,
            by_hand.processor.as_secs_f64() / ours.processor.as_secs_f64(),
            ours.allocations / SESSIONS,
            by_hand.allocations / SESSIONS,
        );
        if threads == 1 {
            for (whose, cost) in [("ours", ours), ("by hand", by_hand)] {
                let each = cost.allocations as f64 / SESSIONS as f64;
                let what = format!("hub: allocations a session, of both ends, {whose}");
                report(&what, each, Bar::None);
            }
        }
        // Over the processor time, which waiting for other processes does not change.
        let ratio = by_hand.processor.as_secs_f64() / ours.processor.as_secs_f64();
        let bar = if threads == 1 {
            Bar::AtLeast(0.8)
        } else {
            Bar::None
        };
        report(
            &format!(
                "hub sessions, {FLIGHT} at once, {threads} threads: by hand / ours, processor time"
            ),
            ratio,
            bar,
        );
    }
}

/// What all sessions of a run took.
#[derive(Clone, Copy)]
struct Cost {
    time: Duration,
    processor: Duration,
    allocations: usize,
}

impl Cost {
    fn rate(&self) -> f64 {
        SESSIONS as f64 / self.time.as_secs_f64()
    }

    fn median(all: Vec<Self>) -> Self {
        Self {
            time: median(all.iter().map(|one| one.time).collect()),
            processor: median(all.iter().map(|one| one.processor).collect()),
            allocations: all.first().map_or(0, |one| one.allocations),
        }
    }
}

/// Runs a part on a runtime of its own. Its processor time is that of the whole process.
fn measured(threads: usize, part: impl Future<Output = Cost>) -> Cost {
    let mut builder = match threads {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.worker_threads(threads).enable_all().build();
    runtime.expect("a runtime").block_on(part)
}

/// The time that the processor has spent on this process.
fn processor_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/schedstat").expect("Linux");
    let own = stat
        .split_whitespace()
        .next()
        .and_then(|word| word.parse().ok());
    let tasks = fs::read_dir("/proc/self/task").expect("Linux");
    let of_task = |task: std::io::Result<fs::DirEntry>| {
        let stat = fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        stat.split_whitespace().next()?.parse::<u64>().ok()
    };
    let all: u64 = tasks.filter_map(of_task).sum();
    Duration::from_nanos(all.max(own.unwrap_or_default()))
}

async fn sessions_by_hand() -> Cost {
    let hub = by_hand::Hub::new();
    let (url, _server) = bare(hub.clone()).await;
    let _agent = tokio::spawn(by_hand::agent(connect(&url).await));
    hub.wait_for_agent().await;
    let run = |count: usize| {
        let hub = hub.clone();
        async move {
            for _ in 0..count {
                hub.run().await;
            }
        }
    };
    all_at_once(run).await
}

async fn negotiated() -> Cost {
    let config = Config::default().with_max_sessions_per_agent(FLIGHT);
    let config = ServerConfig::default().with_hub(config);
    let hub = serve(([127, 0, 0, 1], 0).into(), config)
        .await
        .expect("a port");
    let _agent = AgentBuilder::new("a")
        .configure(|config| config.with_max_sessions(FLIGHT))
        .on_test("t", |_, _| async { Ok(TestResult::completed("done")) })
        .start(&hub.url())
        .expect("starts");
    hub.wait_for_agents(1).await.expect("the hub lives");
    let run = |count: usize| {
        let hub = hub.clone();
        async move {
            for _ in 0..count {
                let job = hub.submit(Job::test("t", vec![Payload::new("p")]));
                let outcome = job.expect("is taken").outcome().await;
                assert_eq!(outcome.verdict, Verdict::Completed);
            }
        }
    };
    all_at_once(run).await
}

async fn plain_streams() -> Cost {
    let (url, _server) = bare(Bare).await;
    let channel = connect(&url).await;
    let run = |count: usize| {
        let mut client = AgentHubClient::new(channel.clone());
        async move {
            for _ in 0..count {
                let (requests, stream) = mpsc::channel(4);
                let stream = client.execute(ReceiverStream::new(stream)).await;
                let mut answers = stream.expect("opens").into_inner();
                assert!(answers.message().await.expect("an answer").is_some());
                let event = test_response::Event::Result(TestResult::completed("done"));
                let result = TestResponse {
                    timestamp: None,
                    event: Some(event),
                    number: 0,
                };
                requests.send(result).await.expect("is read");
                drop(requests);
                assert!(answers.message().await.expect("an end").is_none());
            }
        }
    };
    all_at_once(run).await
}

async fn all_at_once<F: Future<Output = ()> + Send + 'static>(run: impl Fn(usize) -> F) -> Cost {
    // Warm up, so that connections stand.
    run(10).await;
    let (allocated, spent) = (GLOBAL.stats().allocations, processor_time());
    let begun = Instant::now();
    let tasks: Vec<_> = (0..FLIGHT)
        .map(|_| tokio::spawn(run(SESSIONS / FLIGHT)))
        .collect();
    for task in tasks {
        task.await.expect("ends well");
    }
    Cost {
        time: begun.elapsed(),
        processor: processor_time().saturating_sub(spent),
        allocations: GLOBAL.stats().allocations - allocated,
    }
}

/// The same service without a hub behind it.
struct Bare;

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl AgentHub for Bare {
    type ListenStream = Answers<ListenResponse>;
    type ExecuteStream = Answers<TestInit>;
    type TranslateStream = Answers<TranslationInit>;

    async fn register(
        &self,
        _: Request<AgentRegistration>,
    ) -> Result<Response<AgentRegistrationResponse>, Status> {
        Ok(Response::new(AgentRegistrationResponse::default()))
    }

    async fn listen(
        &self,
        request: Request<Streaming<ListenRequest>>,
    ) -> Result<Response<Self::ListenStream>, Status> {
        let (answers, stream) = mpsc::channel(16);
        let mut messages = request.into_inner();
        tokio::spawn(async move {
            while let Ok(Some(_)) = messages.message().await {}
            drop(answers);
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }

    async fn execute(
        &self,
        request: Request<Streaming<TestResponse>>,
    ) -> Result<Response<Self::ExecuteStream>, Status> {
        let (answers, stream) = mpsc::channel(2);
        let mut messages = request.into_inner();
        tokio::spawn(async move {
            let init = TestInit {
                test_type: "t".into(),
                payloads: vec![Payload::new("p")],
                acknowledged: None,
            };
            let _ = answers.send(Ok(init)).await;
            while let Ok(Some(_)) = messages.message().await {}
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }

    async fn translate(
        &self,
        _: Request<Streaming<TranslationResponse>>,
    ) -> Result<Response<Self::TranslateStream>, Status> {
        Err(Status::unimplemented(""))
    }
}

async fn bare(service: impl AgentHub) -> (String, tokio::task::JoinHandle<()>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let addr = listener.local_addr().expect("an address");
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let serving = Server::builder()
        .http2_keepalive_interval(Some(Duration::from_secs(20)))
        .initial_stream_window_size(256 << 10)
        .initial_connection_window_size(64 << 20)
        .max_concurrent_streams(STREAMS)
        .serve_with_incoming(AgentHubServer::new(service), incoming);
    let server = tokio::spawn(async { serving.await.expect("serves") });
    (format!("http://{addr}"), server)
}

async fn connect(url: &str) -> Channel {
    let endpoint = Channel::from_shared(url.to_owned()).expect("a URL");
    endpoint
        .tcp_nodelay(true)
        .connect()
        .await
        .expect("connects")
}

async fn serve_ours() {
    let config = ServerConfig::default()
        .with_hub(Config::default().with_max_agents_per_peer(AGENTS))
        .with_max_streams(STREAMS);
    let hub = serve(([127, 0, 0, 1], 0).into(), config)
        .await
        .expect("a port");
    println!("{}", hub.url());
    std::io::stdout().flush().expect("is read");
    std::future::pending::<()>().await;
}

async fn serve_bare() {
    let (url, _server) = bare(Bare).await;
    println!("{url}");
    std::io::stdout().flush().expect("is read");
    std::future::pending::<()>().await;
}

/// A server as a process of its own.
struct Process {
    child: Child,
    url: String,
}

impl Process {
    fn start(mode: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("a program"))
            .arg(mode)
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut url = String::new();
        let mut out = BufReader::new(child.stdout.take().expect("an output"));
        out.read_line(&mut url).expect("a line");
        Self {
            child,
            url: url.trim().to_owned(),
        }
    }

    /// Resident memory, in KiB.
    fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.expect("Linux");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let words = line.expect("a figure").split_whitespace();
        words.flat_map(str::parse).next().expect("a number")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What 10,000 idle agents that listen take of a hub, and as many streams of a bare server.
fn memory() {
    on_runtime(async {
        let bare = idle("serve-bare").await;
        let ours = idle("serve-ours").await;
        println!("memory: {AGENTS} idle agents take {ours} KiB, bare streams {bare} KiB");
        report(
            "hub: memory of idle agents / of bare gRPC streams",
            ours as f64 / bare as f64,
            Bar::None,
        );
    });
}

async fn idle(mode: &str) -> u64 {
    let server = Process::start(mode);
    // Connections and what the first streams make are no agents'.
    let before = server.resident();
    let mut held = Vec::new();
    let mut channels = Vec::new();
    for n in 0..AGENTS {
        if n % (STREAMS as usize - 1) == 0 {
            channels.push(connect(&server.url).await);
        }
        let mut client = AgentHubClient::new(channels.last().cloned().expect("connected"));
        let registration = AgentRegistration {
            display_name: format!("agent {n}"),
            capabilities: vec![Skill::test("t").into()],
        };
        let id = client.register(registration).await.expect("registers");
        let (requests, stream) = mpsc::channel::<ListenRequest>(1);
        let mut request = Request::new(ReceiverStream::new(stream));
        let id = id.into_inner().client_id;
        request
            .metadata_mut()
            .insert("x-client-id", id.parse().expect("a header"));
        // A hub sends no headers before it has something to say.
        let call = tokio::spawn(async move { client.listen(request).await });
        held.push((requests, call));
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    server.resident() - before
}
