//! Our hub with an agent in Python, and our agent with a hub in Python, bad habits included.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use examples::hub_agent::work;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use uap_hub_proto::convert::to_struct;
use uap_hub_proto::message::JobResult;
use uap_hub_proto::role::agent::Event;
use uap_hub_proto::role::hub::{self, Job, JobEvent, Outcome, Verdict};
use uap_hub_proto::transport::client::AgentHandle;
use uap_hub_proto::transport::server::{HubHandle, JobHandle, ServerConfig, serve};
use uap_hub_proto::wire::Payload;
use ubos_conformance::hub::{TestHub, agent_kit};
use ubos_conformance::{Expectations, Verdict as Judgement};

use crate::hub_programs::Proxy;

/// How long what must come is waited for: longer than Python takes to start on the busiest machine.
const LONG: Duration = Duration::from_secs(300);

/// A script that runs, and what it says; killed when it is dropped.
struct Python {
    child: Child,
    stdin: ChildStdin,
    said: Receiver<String>,
}

impl Python {
    #[expect(
        clippy::disallowed_methods,
        reason = "a thread that waits for a child's words"
    )]
    fn start(script: &str, arguments: &[&str]) -> Self {
        let python = std::env::var("UBOS_PYTHON").unwrap_or_else(|_| "python3".to_owned());
        let script = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("python")
            .join(script);
        let child = Command::new(&python)
            .arg("-u")
            .arg(script)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = child.unwrap_or_else(|err| panic!("UBOS_PYTHON={python}: {err}"));
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (tell, said) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, stdin, said }
    }

    fn says(&self, wanted: &str) -> String {
        loop {
            let line = self.said.recv_timeout(LONG);
            let line = line.unwrap_or_else(|_| {
                panic!("no {wanted:?}: are grpcio and grpcio-tools there? see examples/python")
            });
            if line.contains(wanted) {
                return line;
            }
        }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

// ---- our hub, their agent

fn a_hub(runtime: &Runtime, addr: SocketAddr) -> HubHandle {
    let serving = serve(addr, ServerConfig::default());
    runtime.block_on(serving).unwrap()
}

fn anywhere() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

fn their_agent(hub: &HubHandle, arguments: &[&str]) -> Python {
    let addr = hub.local_addr().to_string();
    let python = Python::start("agent.py", &[&["--hub", &addr], arguments].concat());
    python.says("listening");
    python
}

fn done(runtime: &Runtime, hub: &HubHandle, job: Job) -> Outcome {
    outcome(runtime, hub.submit(job).unwrap())
}

fn outcome(runtime: &Runtime, job: JobHandle) -> Outcome {
    let outcome = async { tokio::time::timeout(LONG, job.outcome()).await };
    runtime.block_on(outcome).unwrap()
}

/// Waits until an agent has said that it works.
fn runs(runtime: &Runtime, job: &mut JobHandle) {
    let status = async {
        while !matches!(
            job.next_event().await.expect("no end before it"),
            JobEvent::Status { .. }
        ) {}
    };
    let status = async { tokio::time::timeout(LONG, status).await };
    runtime.block_on(status).unwrap();
}

fn text(words: &str) -> Payload {
    let metadata = json!({"a": [1.5, null, {"b": true}]});
    Payload::file("text", "t.txt", "text/plain", words.to_owned())
        .with_metadata(to_struct(metadata.as_object().unwrap()).unwrap())
}

// spec: HUB-8-1, HUB-4-1, HUB-4-3, HUB-4-7
#[test]
fn our_hub_bears_the_habits_of_their_agent() {
    let runtime = Runtime::new().unwrap();
    let hub = a_hub(&runtime, anywhere());
    let _agent = their_agent(&hub, &[]);
    for (habit, verdict, words, has_result) in [
        ("echo", Verdict::Completed, "hello", true),
        ("status-after-result", Verdict::Completed, "result", true),
        ("result-after-status", Verdict::Completed, "status", true),
        (
            "status-only",
            Verdict::Completed,
            "no result follows",
            false,
        ),
        (
            "failed-status",
            Verdict::Failed,
            "a payload is missing",
            false,
        ),
        (
            "nothing",
            Verdict::Failed,
            "stream closed without result",
            false,
        ),
        ("reset", Verdict::Failed, "Stream error: ", false),
        ("large", Verdict::Completed, "large", true),
        ("echo", Verdict::Completed, "hello", true),
    ] {
        let outcome = done(&runtime, &hub, Job::test(habit, vec![text("hello")]));
        assert_eq!(outcome.verdict, verdict, "{habit}: {}", outcome.message);
        assert!(
            outcome.message.starts_with(words),
            "{habit}: {}",
            outcome.message
        );
        assert_eq!(outcome.result.is_some(), has_result, "{habit}");
    }
    let upper = done(&runtime, &hub, Job::translation("upper", vec![text("abc")]));
    let Some(JobResult::Translation(result)) = upper.result else {
        panic!("no translation")
    };
    assert_eq!(result.payloads[0].data(), b"ABC");
    assert_eq!(result.payloads[0].metadata, text("").metadata);
}

// spec: HUB-8-1, HUB-4-6, HUB-4-9, HUB-4-5
#[test]
fn payloads_of_6_megabytes_go_there_and_back_beside_others() {
    let runtime = Runtime::new().unwrap();
    let hub = a_hub(&runtime, anywhere());
    let _agent = their_agent(&hub, &["--speaks-first", "--no-ready"]);
    let large = Payload::file("large", "l", "application/octet-stream", vec![5; 6_000_000]);
    let jobs: Vec<_> = (0..8)
        .map(|n| match n % 2 {
            0 => Job::test("echo", vec![large.clone()]),
            _ => Job::test("echo", vec![text("small")]),
        })
        .map(|job| hub.submit(job).unwrap())
        .collect();
    for (n, job) in jobs.into_iter().enumerate() {
        let outcome = outcome(&runtime, job);
        let Some(JobResult::Test(result)) = outcome.result else {
            panic!("{n}: {}", outcome.message)
        };
        let wanted = if n % 2 == 0 {
            large.data()
        } else {
            &b"small"[..]
        };
        assert!(result.attachments[0].data == wanted, "{n}");
    }
}

// spec: HUB-8-1, HUB-5-1
#[test]
fn our_hub_outlives_their_agent_and_their_agent_our_hub() {
    let runtime = Runtime::new().unwrap();
    // Between two hubs no other test's takes the port.
    let hub = a_hub(&runtime, ([127, 0, 1, 3], 0).into());
    let addr = hub.local_addr();
    let agent = their_agent(&hub, &[]);
    let mut lost = hub.submit(Job::test("hang", vec![])).unwrap();
    runs(&runtime, &mut lost);
    agent.kill();
    assert_eq!(outcome(&runtime, lost).verdict, Verdict::Failed);
    let agent = their_agent(&hub, &[]);
    let echo = || Job::test("echo", vec![text("again")]);
    assert_eq!(done(&runtime, &hub, echo()).message, "again");
    runtime.block_on(hub.shutdown(Duration::ZERO)).unwrap();
    drop(hub);
    agent.says("lost: UNAVAILABLE");
    let hub = a_hub(&runtime, addr);
    agent.says("listening");
    assert_eq!(done(&runtime, &hub, echo()).message, "again");
}

// spec: HUB-8-1, HUB-7-1
#[test]
fn the_kit_finds_the_habits_of_their_agent_and_no_more() {
    let hub = TestHub::bind(anywhere()).unwrap();
    let addr = hub.url().replace("http://", "");
    let _agent = Python::start("agent.py", &["--hub", &addr]);
    assert!(hub.wait_for_agent(LONG));
    let kit = agent_kit();
    let expectations = Expectations::new().with_floor(kit.cases().len());
    let report = kit.run(&expectations, |_| Ok(hub.peer()));
    let found: Vec<_> = report
        .outcomes()
        .iter()
        .filter(|outcome| outcome.verdict != Judgement::Pass)
        .map(|outcome| outcome.name)
        .collect();
    // It waits for the job before it speaks, and always comes back after one second.
    let habits = [
        "acknowledges before the job arrives",
        "registers again after 1, 2 and 4 s",
    ];
    assert_eq!(found, habits, "{report}");
}

/// A hub that waits for agents that were cut off, behind a proxy that cuts, and their agent.
fn behind_a_proxy(runtime: &Runtime, arguments: &[&str]) -> (HubHandle, Proxy, Python) {
    let grace = Duration::from_secs(600);
    let config = hub::Config::default().with_resume_grace(grace);
    let config = ServerConfig::default().with_hub(config);
    let hub = runtime.block_on(serve(anywhere(), config)).unwrap();
    let proxy = Proxy::start(hub.local_addr().to_string());
    let python = Python::start(
        "agent.py",
        &[&["--hub", &proxy.address], arguments].concat(),
    );
    python.says("listening");
    (hub, proxy, python)
}

// spec: HUB-8-1, HUB-5-4
#[test]
fn a_session_of_their_agent_outlives_its_connection() {
    let runtime = Runtime::new().unwrap();
    let (hub, proxy, agent) = behind_a_proxy(&runtime, &["--resume"]);
    let mut job = hub.submit(Job::test("interrupted", vec![])).unwrap();
    agent.says("halfway");
    proxy.cut();
    let (mut lines, mut begun, mut resumed) = (Vec::new(), 0, 0);
    let outcome = loop {
        let next = async { tokio::time::timeout(LONG, job.next_event()).await };
        match runtime.block_on(next).unwrap().unwrap() {
            JobEvent::Telemetry { telemetry, .. } => lines.push(telemetry.message),
            JobEvent::Started { .. } => begun += 1,
            JobEvent::Resumed { .. } => resumed += 1,
            JobEvent::Ended(outcome) => break outcome,
            _ => {}
        }
    };
    assert_eq!(outcome.message, "all 20");
    let wanted: Vec<_> = (0..20).map(|line| line.to_string()).collect();
    assert_eq!((lines, begun), (wanted, 1), "each once, in order");
    assert!(resumed > 0);
    // It is the same agent, by its old id.
    let echo = Job::test("echo", vec![text("again")]);
    assert_eq!(done(&runtime, &hub, echo).agent, outcome.agent);
}

// spec: HUB-8-1, HUB-5-4, HUB-5-1
#[test]
fn their_agent_that_knows_nothing_of_resumption_is_treated_as_ever() {
    let runtime = Runtime::new().unwrap();
    let (hub, proxy, agent) = behind_a_proxy(&runtime, &[]);
    let mut job = hub.submit(Job::test("hang", vec![])).unwrap();
    runs(&runtime, &mut job);
    proxy.cut();
    let outcome = outcome(&runtime, job);
    let lost = (Verdict::Failed, "Agent disconnected".to_owned());
    assert_eq!((outcome.verdict, outcome.message), lost);
    agent.says("listening");
    let echo = done(&runtime, &hub, Job::test("echo", vec![text("again")]));
    assert_eq!(echo.message, "again");
    assert_ne!(echo.agent, outcome.agent, "it registers anew");
}

// ---- our agent, their hub

/// A hub, and its news as JSON.
fn their_hub(arguments: &[&str]) -> (Python, String) {
    let hub = Python::start("hub.py", arguments);
    let serving: Value = serde_json::from_str(&hub.says("serving")).unwrap();
    let address = format!("127.0.0.1:{}", serving["port"]);
    (hub, address)
}

impl Python {
    fn give(&mut self, job: &Value) {
        writeln!(self.stdin, "{job}").unwrap();
    }

    fn hears(&self, event: &str) -> Value {
        serde_json::from_str(&self.says(&format!("\"event\": \"{event}\""))).unwrap()
    }

    /// A result's state, words and bytes.
    fn outcome(&self) -> (String, String, u64) {
        let result = self.hears("result");
        let text = |name: &str| result[name].as_str().unwrap().to_owned();
        (
            text("state"),
            text("message"),
            result["bytes"].as_u64().unwrap(),
        )
    }
}

fn our_agent(hub: &str) -> AgentHandle {
    work::agent("ours").start(&format!("http://{hub}")).unwrap()
}

// spec: HUB-8-1, HUB-2-7, HUB-4-8
#[test]
fn our_agent_bears_the_habits_of_their_hub() {
    let runtime = Runtime::new().unwrap();
    let _entered = runtime.enter();
    for habits in [&[][..], &["--waits-for-first"], &["--never-ends"]] {
        let (mut hub, address) = their_hub(habits);
        let _agent = our_agent(&address);
        hub.hears("listening");
        hub.hears("ready");
        hub.give(&json!({"type": "echo", "text": "hello"}));
        assert_eq!(
            hub.outcome(),
            ("COMPLETED".into(), "hello".into(), 5),
            "{habits:?}"
        );
        hub.hears("half-closed");
        hub.give(&json!({"type": "nobody does this"}));
        assert_eq!(hub.hears("answer")["accepted"], false, "{habits:?}");
        hub.give(&json!({"type": "fail", "text": "as told"}));
        assert_eq!(hub.outcome().0, "FAILED");
        hub.give(&json!({"kind": "translation", "type": "upper", "text": "abc"}));
        let made = hub.hears("result");
        assert_eq!(
            (&made["state"], &made["text"]),
            (&json!("COMPLETED"), &json!("ABC"))
        );
    }
}

// spec: HUB-8-1, HUB-4-6
#[test]
fn our_agent_takes_and_sends_6_megabytes() {
    let runtime = Runtime::new().unwrap();
    let _entered = runtime.enter();
    let (mut hub, address) = their_hub(&[]);
    let _agent = our_agent(&address);
    hub.hears("listening");
    hub.give(&json!({"type": "echo", "text": "x".repeat(6_000_000), "bytes": 6_000_000}));
    let (state, _, bytes) = hub.outcome();
    assert_eq!((state.as_str(), bytes), ("COMPLETED", 6_000_000));
}

// spec: HUB-8-1, HUB-5-2
#[test]
fn our_agent_comes_back_to_their_hub() {
    let runtime = Runtime::new().unwrap();
    let _entered = runtime.enter();
    let (mut hub, address) = their_hub(&[]);
    // A hub that starts again may find its port taken.
    let to = Arc::new(Mutex::new(address));
    let proxy = Proxy::led_by(Arc::clone(&to));
    let agent = our_agent(&proxy.address);
    let mut news = agent.events();
    hub.hears("listening");
    hub.give(&json!({"do": "end-listen"}));
    hub.hears("listening");
    let mut pauses = Vec::new();
    while let Ok(event) = news.try_recv() {
        if let Event::Retrying { after, .. } = event {
            pauses.push(after);
        }
    }
    assert_eq!(
        pauses,
        [Duration::from_secs(1)],
        "an end with OK is no hot loop"
    );
    hub.kill();
    let (mut hub, address) = their_hub(&[]);
    *to.lock().unwrap() = address;
    hub.hears("listening");
    hub.give(&json!({"type": "echo", "text": "again"}));
    assert_eq!(hub.outcome().1, "again");
}
