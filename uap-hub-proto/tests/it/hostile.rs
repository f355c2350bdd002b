//! Attacks of strangers: on our hub, which stands them, and on hubs with a defect each, which the kit must find.

use std::{
    io::{BufRead as _, BufReader, Lines, Write as _},
    process::{Child, ChildStdout, Command, Stdio},
    sync::{
        Arc, Mutex, Once,
        atomic::{AtomicUsize, Ordering},
        mpsc::channel,
    },
    time::Duration,
};

use tokio::runtime::Runtime;
use uap_hub_proto::{
    capability::Skill,
    role::hub::{self, Candidate, Job, Placement},
    transport::server::{Denied, HubHandle, ServerConfig, serve},
    wire::Payload,
};
use ubos_common::secret::Secret;
use ubos_conformance::hub::{Attack, HostileRun};

/// What tells the process below that it is a hub.
const HUB: &str = "UAP_HUB_THAT_IS_ATTACKED";

/// The largest message that a hub takes by default.
const MESSAGE_BYTES: usize = 64 << 20;

/// How long the honest agent waits where nobody locks it out.
const LONG: Duration = Duration::from_secs(300);

/// A hub in a process of its own, so that its memory is its own.
struct Attacked {
    child: Child,
    /// Where it says that it has run for a minute; where it cannot, it ends.
    _lines: Lines<BufReader<ChildStdout>>,
}

impl Attacked {
    /// A hub that takes messages of at most so many bytes.
    fn start(max_message_bytes: usize) -> (Self, String) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "hostile::the_hub_that_is_attacked",
                "--nocapture",
            ])
            .env(HUB, max_message_bytes.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let url = lines.find_map(|line| Some(line.unwrap().split_once("hub at ")?.1.to_owned()));
        let url = url.expect("the hub is up");
        let hub = Self {
            child,
            _lines: lines,
        };
        (hub, url)
    }

    /// Attacks that see its memory and give it jobs. On a machine that is busy with something else everybody waits for long; who
    /// is locked out waits for ever.
    fn attack(&mut self, url: &str) -> HostileRun {
        let jobs = Mutex::new(self.child.stdin.take().unwrap());
        let run = HostileRun::new(url)
            .with_process(self.child.id())
            .with_patience(LONG)
            .with_feed(move |job| {
                let mut jobs = jobs.lock().unwrap();
                let _ = writeln!(jobs, "{}", to_line(&job));
            });
        tokens(run)
    }
}

impl Drop for Attacked {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Callers are told apart by their tokens.
fn by_token(config: ServerConfig) -> ServerConfig {
    config.with_authorize(|caller| async move {
        let token = caller.bearer_token();
        let unknown = || Denied::Unauthenticated("a token is wanted".to_owned());
        token.map(Into::into).ok_or_else(unknown)
    })
}

/// A job of which the other process reads the payloads: types, MIME types and sizes.
fn of_line(line: &str) -> Job {
    let words: Vec<_> = line.split_whitespace().collect();
    let payload = |words: &[&str]| {
        let data = vec![0; words[2].parse().unwrap()];
        Payload::file(words[0], "f", words[1], data)
    };
    let payloads = words[2..].chunks(3).map(payload).collect();
    let limit = Duration::from_millis(words[1].parse().unwrap());
    Job::test(words[0], payloads).with_time_limit(limit)
}

fn to_line(job: &Job) -> String {
    let payloads = job.payloads.iter().map(|payload| {
        let mime_type = &payload.attachment.as_ref().unwrap().mime_type;
        let size = payload.data().len();
        format!("{} {mime_type} {size}", payload.r#type)
    });
    let payloads = payloads.collect::<Vec<_>>().join(" ");
    let limit = job.time_limit.unwrap().as_millis();
    format!("{} {limit} {payloads}", job.skill.name())
}

#[expect(clippy::print_stdout, reason = "the process that attacks reads it")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_hub_that_is_attacked() {
    let Ok(bytes) = std::env::var(HUB) else {
        return;
    };
    let bytes = bytes.parse().unwrap();
    // Who attacks a hub that takes too much has long for it: on a busy machine the jobs would end before.
    let more = if bytes > MESSAGE_BYTES { 30 } else { 1 };
    let config = hub::Config::default()
        .with_max_message_bytes(bytes)
        .with_resume_grace(Duration::from_secs(10));
    let config = ServerConfig::default().with_hub(config);
    let hub = serve(([127, 0, 0, 1], 0).into(), by_token(config));
    let hub = hub.await.unwrap();
    println!("hub at {}", hub.url());
    let jobs = tokio::task::spawn_blocking(move || {
        for line in std::io::stdin().lines() {
            let mut job = of_line(&line.unwrap());
            job.time_limit = job.time_limit.map(|limit| limit * more);
            // One that the hub has no room for is lost.
            drop(hub.submit(job));
        }
    });
    jobs.await.unwrap();
}

fn tokens(run: HostileRun) -> HostileRun {
    let token = |text: &str| Secret::new(text.to_owned());
    run.with_tokens(token("attacker"), token("honest"))
}

// spec: HUB-4-6, HUB-2-4, HUB-6-3
#[test]
fn our_hub_stands_strangers() {
    let (mut hub, url) = Attacked::start(MESSAGE_BYTES);
    let run = hub.attack(&url).with_time(Duration::from_millis(150));
    let report = run.run().unwrap();
    assert!(report.is_survived(), "{report}");
    assert!(report.calm.served > 0 && report.calm.failed == 0);
    assert_eq!(report.rounds.len(), Attack::ALL.len());
    for round in &report.rounds {
        assert!(round.attempts > 0, "{:?}", round.attack);
        assert!(round.grown.is_some(), "its process is known");
    }
    drop(hub);
    // Nobody listens at a port that is held, and no other test's hub gets it.
    let held = tokio::net::TcpSocket::new_v4().unwrap();
    held.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let refused = HostileRun::new(format!("http://{}", held.local_addr().unwrap()))
        .with_time(Duration::from_millis(50))
        .run();
    assert_eq!(
        refused.unwrap_err().kind(),
        std::io::ErrorKind::ConnectionRefused
    );
}

#[test]
fn attacks_that_need_jobs_are_left_out_without_them() {
    let (_runtime, served) = served(ServerConfig::default());
    let run = HostileRun::new(served.url())
        .with_attacks(&[Attack::ManyShapes, Attack::Garbage])
        .with_patience(LONG)
        .with_time(Duration::from_millis(10));
    let report = run.run().unwrap();
    assert_eq!(report.rounds.len(), 1, "{report}");
}

#[test]
fn a_feed_that_blocks_holds_up_the_attack_alone() {
    /// Panics of the threads that attack.
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let thread = std::thread::current();
        let is_ours = thread.name().is_some_and(|name| name == "hub-hostile");
        PANICS.fetch_add(usize::from(is_ours), Ordering::Relaxed);
        before(info);
    }));
    let (_runtime, served) = served(ServerConfig::default());
    let (open, gate) = channel::<()>();
    let (gate, fed) = (Mutex::new(gate), Arc::new(()));
    let is_fed = Arc::clone(&fed);
    let run = HostileRun::new(served.url())
        .with_attacks(&[Attack::EndedSessions, Attack::Garbage])
        .with_feed(move |_| {
            let _is_fed = &is_fed;
            // Until the run is over.
            let _ = gate.lock().map(|gate| gate.recv());
        })
        .with_time(Duration::from_millis(50));
    let report = run.run().unwrap();
    assert_eq!(report.rounds[0].attempts, 0, "{report}");
    assert!(report.rounds[1].attempts > 0, "{report}");
    drop((open, run));
    while Arc::strong_count(&fed) > 1 {
        std::thread::yield_now();
    }
    assert_eq!(PANICS.load(Ordering::Relaxed), 0);
}

#[test]
fn an_honest_agent_whose_job_does_not_come_is_locked_out() {
    let (_runtime, served) = served(ServerConfig::default());
    let (fed, first) = (served.clone(), Once::new());
    let run = HostileRun::new(served.url())
        .with_attacks(&[Attack::Garbage])
        // The one in the calm before the attack runs, and no other.
        .with_feed(move |job| first.call_once(|| drop(fed.submit(job))))
        // A busy machine has 2 of 5 parts of it for the job.
        .with_patience(Duration::from_secs(30))
        .with_time(Duration::from_nanos(1));
    let report = run.run().unwrap();
    assert_eq!((report.calm.served, report.calm.failed), (1, 0), "{report}");
    assert!(
        report.to_string().contains("FAILED: locked out"),
        "{report}"
    );
    assert!(!report.is_survived());
}

fn served(config: ServerConfig) -> (Runtime, HubHandle) {
    let runtime = Runtime::new().unwrap();
    let served = serve(([127, 0, 0, 1], 0).into(), config);
    let served = runtime.block_on(served).unwrap();
    (runtime, served)
}

/// Whether the kit finds that a hub does not stand an attack.
fn is_found(config: ServerConfig, attack: Attack) -> bool {
    let (_runtime, served) = served(by_token(config));
    // A busy machine needs longer to take all places.
    let mut was_served = false;
    [1, 4, 16, 64].into_iter().any(|seconds| {
        let fed = served.clone();
        let run = HostileRun::new(served.url())
            .with_attacks(&[attack])
            .with_feed(move |job| drop(fed.submit(job)))
            .with_time(Duration::from_secs(seconds));
        match tokens(run).run() {
            // It has not stood the last attack.
            Err(_) if was_served => true,
            report => {
                was_served = true;
                !report.unwrap().is_survived()
            }
        }
    })
}

// spec: HUB-2-4
#[test]
fn a_hub_without_quotas_does_not_stand_strangers_that_listen() {
    let config = hub::Config::default().with_max_agents(100);
    let config = ServerConfig::default().with_hub(config);
    assert!(is_found(config, Attack::NamesThatListen));
}

// spec: HUB-2-4
#[test]
fn a_hub_whose_bytes_are_for_anybody_does_not_stand_large_names() {
    let config = hub::Config::default()
        .with_max_registered_bytes(8 << 20)
        .with_max_registered_bytes_per_peer(8 << 20);
    let config = ServerConfig::default().with_hub(config);
    assert!(is_found(config, Attack::RegisteredBytes));
}

// spec: HUB-4-6
#[test]
fn a_hub_whose_connections_are_for_anybody_does_not_stand_health_calls_alone() {
    let config = ServerConfig::default()
        .with_max_connections(100)
        .with_max_connections_per_address(100);
    assert!(is_found(config, Attack::HealthCallsAlone));
}

// spec: HUB-6-3
#[test]
fn a_hub_that_takes_all_for_one_tells_of_the_sessions_of_others() {
    let (_runtime, served) = served(ServerConfig::default());
    let fed = served.clone();
    let run = HostileRun::new(served.url())
        .with_attacks(&[Attack::EndedSessions])
        .with_feed(move |job| drop(fed.submit(job)))
        .with_time(Duration::from_secs(1));
    let report = tokens(run).run().unwrap();
    assert!(report.rounds[0].breaches > 0, "{report}");
    assert!(!report.is_survived());
}

// spec: HUB-4-6
#[test]
fn a_hub_that_keeps_more_of_messages_does_not_stand_those_that_stop() {
    // What ours may keep of one address, 256 MiB, and half as much for what stands beside it.
    let most = 384 << 20;
    let report = |max_message_bytes, seconds, patience| {
        let (mut hub, url) = Attacked::start(max_message_bytes);
        let run = hub.attack(&url).with_max_growth(most);
        let run = run.with_attacks(&[Attack::StoppedMessages]);
        let run = run.with_patience(patience);
        run.with_time(Duration::from_secs(seconds)).run().unwrap()
    };
    let ours = report(MESSAGE_BYTES, 1, LONG);
    assert!(ours.is_survived(), "{ours}");
    // The bounds follow the largest message. A busy machine needs longer to come there; whom such a hub locks out need not wait.
    let patience = Duration::from_secs(10);
    let broken = |seconds| report(2 * MESSAGE_BYTES, seconds, patience);
    assert!(
        [1, 4, 16, 64]
            .into_iter()
            .any(|seconds| !broken(seconds).is_survived())
    );
}

// spec: HUB-4-6
#[test]
fn our_hub_keeps_no_copies_of_jobs_that_are_not_read() {
    let (mut hub, url) = Attacked::start(MESSAGE_BYTES);
    let run = hub.attack(&url).with_attacks(&[Attack::UnreadJobs]);
    // Two jobs, if each of their openings had a copy.
    let run = run.with_max_growth(128 << 20);
    let report = run.with_time(Duration::from_secs(1)).run().unwrap();
    assert!(report.is_survived(), "{report}");
}

/// Ranks agents as slowly as one that looks at all of them.
#[derive(Debug)]
struct Slow;

impl Placement for Slow {
    fn rank(&self, _: &Candidate<'_>, _: &Skill) -> [u64; 2] {
        std::thread::sleep(Duration::from_secs(1));
        [0; 2]
    }
}

// spec: HUB-3-6
#[test]
fn a_hub_that_places_slowly_does_not_stand_many_shapes() {
    let config = hub::Config::default().with_placement(Slow);
    let config = ServerConfig::default().with_hub(config);
    assert!(is_found(config, Attack::ManyShapes));
}
