//! A hub and its fleet over real sockets.

use std::{future::pending, time::Duration};

use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, transport::Channel};
use uap_hub_proto::{
    capability::Skill,
    id::ClientId,
    role::{
        agent,
        hub::{Config, Job, JobEvent, Verdict},
    },
    state::State,
    transport::{
        client::{AgentBuilder, AgentHandle, HandlerError},
        server::{HubHandle, ServerConfig, serve},
    },
    wire::{
        AgentRegistration, ListenRequest, Payload, Severity, StepReport, StepStatus, TestResponse,
        TestResult, TranslationResult, agent_hub_client::AgentHubClient,
    },
};

pub(crate) async fn hub() -> HubHandle {
    at([127, 0, 0, 1]).await
}

/// A hub at any port of an address.
async fn at(ip: [u8; 4]) -> HubHandle {
    serve((ip, 0).into(), ServerConfig::default())
        .await
        .unwrap()
}

fn sums(payloads: &[Payload]) -> Result<u64, HandlerError> {
    let text = std::str::from_utf8(
        payloads
            .first()
            .ok_or_else(|| HandlerError::invalid("no figures"))?
            .data(),
    )?;
    Ok(text
        .lines()
        .map(str::parse::<u64>)
        .sum::<Result<u64, _>>()?)
}

/// An agent that sums figures, translates, fails, panics and hangs.
fn worker(name: &str) -> AgentBuilder {
    let name_of_agent = name.to_owned();
    AgentBuilder::new(name)
        .on_test("sum", move |payloads, context| {
            let name = name_of_agent.clone();
            async move {
                context.progress(0, payloads.len(), "figures").await?;
                context.log(Severity::Info, "adding").await?;
                let sum = sums(&payloads)?;
                let report = StepReport::new(format!("{sum} by {name}"), StepStatus::Passed);
                Ok(TestResult::completed(sum.to_string()).with_report(report))
            }
        })
        .on_translation("upper", |payloads, _| async move {
            let upper = payloads
                .iter()
                .map(|payload| payload.data().to_ascii_uppercase());
            Ok(TranslationResult::completed(
                upper
                    .map(|data| Payload::file("text", "t", "text/plain", data))
                    .collect(),
            ))
        })
        .on_test("fail", |_, _| async { Err(HandlerError::new("cannot")) })
        .on_test("panic", |_, _| async { panic!("on purpose") })
        .on_test("unclear", |_, _| async {
            Ok(TestResult::new(State::Running, "not done"))
        })
        .on_test("hang", |_, _| pending())
        .configure(|config| config.with_capabilities([Skill::test("unhandled").into()]))
}

fn figures(text: &'static str) -> Vec<Payload> {
    vec![Payload::file("figures", "f.txt", "text/plain", text)]
}

fn named(hub: &HubHandle, name: &str) -> ClientId {
    let agents = hub.agents();
    agents
        .into_iter()
        .find(|agent| agent.name == name)
        .unwrap()
        .client_id
}

/// How long what must come is waited for: longer than the busiest machine takes.
const LONG: Duration = Duration::from_secs(300);

pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, future)
        .await
        .expect("should end long before")
}

// spec: HUB-4-5, HUB-4-1, HUB-4-8, HUB-4-9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_agents_share_many_jobs() {
    let hub = hub().await;
    let _agents: Vec<AgentHandle> = ["one", "two"]
        .map(|name| worker(name).start(&hub.url()).unwrap())
        .into();
    within(hub.wait_for_agents(2)).await.unwrap();
    let jobs: Vec<_> = (0..40)
        .map(|_| hub.submit(Job::test("sum", figures("1\n2\n39"))).unwrap())
        .collect();
    let mut by = std::collections::BTreeMap::new();
    for job in jobs {
        let outcome = within(job.outcome()).await;
        assert_eq!(
            (outcome.verdict, outcome.message.as_str()),
            (Verdict::Completed, "42")
        );
        *by.entry(outcome.agent.unwrap()).or_insert(0) += 1;
    }
    assert_eq!(by.len(), 2, "both worked: {by:?}");
    let job = hub
        .submit(Job::translation("upper", figures("abc")))
        .unwrap();
    let Some(uap_hub_proto::message::JobResult::Translation(result)) =
        within(job.outcome()).await.result
    else {
        panic!("no translation");
    };
    assert_eq!(result.payloads[0].data(), b"ABC");
    assert!(hub.agents().iter().all(|agent| agent.load == 0));
}

// spec: HUB-4-2
#[tokio::test]
async fn the_caller_gets_everything_in_order() {
    let hub = hub().await;
    let _agent = worker("one").start(&hub.url()).unwrap();
    let mut job = hub.submit(Job::test("sum", figures("1"))).unwrap();
    let mut seen = Vec::new();
    while let Some(event) = within(job.next_event()).await {
        seen.push(match event {
            JobEvent::Offered { .. } => "offered".to_owned(),
            JobEvent::Accepted { .. } => "accepted".to_owned(),
            JobEvent::Ready { .. } => "ready".to_owned(),
            JobEvent::Started { .. } => "started".to_owned(),
            JobEvent::Status { state, message, .. } => format!("{state:?} {message}"),
            JobEvent::Telemetry { telemetry, .. } => telemetry.message,
            JobEvent::Ended(outcome) => outcome.message,
            other => format!("{other:?}"),
        });
    }
    let wanted = [
        "offered",
        "accepted",
        "ready",
        "started",
        "Acknowledged ",
        "Running ",
        "Running 0/1 figures",
        "adding",
        "1",
    ];
    assert_eq!(seen, wanted);
}

// spec: HUB-4-7
#[tokio::test]
async fn a_handler_that_fails_fails_its_job_alone() {
    let hub = hub().await;
    let _agent = worker("one").start(&hub.url()).unwrap();
    for (name, payloads, verdict, message) in [
        ("fail", vec![], Verdict::Failed, "cannot"),
        ("panic", vec![], Verdict::Failed, "the handler panicked"),
        (
            "unclear",
            vec![],
            Verdict::Failed,
            "the state of the result is not terminal",
        ),
        (
            "unhandled",
            vec![],
            Verdict::Failed,
            "the agent has no handler",
        ),
        ("sum", vec![], Verdict::Invalid, "no figures"),
        (
            "sum",
            figures("x"),
            Verdict::Failed,
            "invalid digit found in string",
        ),
        ("sum", figures("7"), Verdict::Completed, "7"),
    ] {
        let outcome = within(hub.submit(Job::test(name, payloads)).unwrap().outcome()).await;
        assert_eq!(
            (outcome.verdict, outcome.message.as_str()),
            (verdict, message),
            "{name}"
        );
        assert!(outcome.result.is_some());
    }
}

// spec: HUB-3-1, HUB-3-7
#[tokio::test]
async fn a_refused_job_goes_to_another_agent() {
    let hub = hub().await;
    let _busy = worker("busy")
        .configure(|config| config.with_max_sessions(0))
        .start(&hub.url())
        .unwrap();
    within(hub.wait_for_agents(1)).await.unwrap();
    let busy = named(&hub, "busy");
    let mut job = hub.submit(Job::test("sum", figures("3"))).unwrap();
    loop {
        if let JobEvent::Declined { reason, .. } = within(job.next_event()).await.unwrap() {
            assert_eq!(reason, "the agent is busy");
            break;
        }
    }
    let _free = worker("free").start(&hub.url()).unwrap();
    let outcome = within(job.outcome()).await;
    assert_eq!(outcome.verdict, Verdict::Completed);
    assert_eq!(outcome.agent, Some(named(&hub, "free")));
    let outcome = within(
        hub.submit(Job::test("sum", vec![]).with_agent(busy))
            .unwrap()
            .outcome(),
    )
    .await;
    assert_eq!(
        (outcome.verdict, outcome.message.as_str()),
        (Verdict::Refused, "the agent is busy")
    );
}

// spec: HUB-5-1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_agent_fails_its_sessions_and_no_others() {
    let hub = hub().await;
    let killed = worker("killed").start(&hub.url()).unwrap();
    within(hub.wait_for_agents(1)).await.unwrap();
    let mut lost = hub.submit(Job::test("hang", vec![])).unwrap();
    while !matches!(
        within(lost.next_event()).await.expect("no end before it"),
        JobEvent::Started { .. }
    ) {}
    let _stays = worker("stays").start(&hub.url()).unwrap();
    within(hub.wait_for_agents(2)).await.unwrap();
    drop(killed);
    let outcome = within(lost.outcome()).await;
    assert_eq!(outcome.verdict, Verdict::Failed);
    // Which stream the hub sees end first is the network's choice.
    let words = [
        "Agent disconnected",
        "Stream error: ",
        "stream closed without result",
    ];
    assert!(
        words.iter().any(|words| outcome.message.starts_with(words)),
        "{}",
        outcome.message
    );
    let sum = hub.submit(Job::test("sum", figures("3"))).unwrap();
    assert_eq!(within(sum.outcome()).await.verdict, Verdict::Completed);
    let only_one = async {
        while hub.agents().len() != 1 {
            tokio::task::yield_now().await;
        }
    };
    within(only_one).await;
}

// spec: HUB-4-4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_that_nobody_reads_stops_nobody_else() {
    let config = ServerConfig::default().with_hub(Config::default().with_max_unread_events(8));
    let hub = serve(([127, 0, 0, 1], 0).into(), config).await.unwrap();
    let _agent = worker("one")
        .on_test("flood", |_, context| async move {
            for n in 0..500 {
                context
                    .log(Severity::Info, format!("{n} {}", "x".repeat(10_000)))
                    .await?;
            }
            Ok(TestResult::completed("flooded"))
        })
        .start(&hub.url())
        .unwrap();
    let mut flood = hub.submit(Job::test("flood", vec![])).unwrap();
    while !matches!(
        within(flood.next_event()).await.expect("no end before it"),
        JobEvent::Telemetry { .. }
    ) {}
    for _ in 0..20 {
        let outcome = within(
            hub.submit(Job::test("sum", figures("5")))
                .unwrap()
                .outcome(),
        )
        .await;
        assert_eq!(outcome.verdict, Verdict::Completed);
    }
    let mut lines = 1;
    loop {
        match within(flood.next_event()).await.unwrap() {
            JobEvent::Telemetry { telemetry, .. } => {
                assert!(
                    telemetry.message.starts_with(&format!("{lines} ")),
                    "in order"
                );
                lines += 1;
            }
            JobEvent::Ended(outcome) => {
                break assert_eq!((outcome.message.as_str(), lines), ("flooded", 500));
            }
            _ => {}
        }
    }
}

// spec: HUB-5-3, HUB-2-6
#[tokio::test]
async fn shutdown_drains_sessions_before_agents_are_disconnected() {
    let hub = hub().await;
    let agent = worker("one").start(&hub.url()).unwrap();
    let mut news = agent.events();
    within(hub.wait_for_agents(1)).await.unwrap();
    let hangs = hub.submit(Job::test("hang", vec![])).unwrap();
    let never = hub.submit(Job::test("nobody does this", vec![])).unwrap();
    within(hub.shutdown(Duration::from_millis(200)))
        .await
        .unwrap();
    assert_eq!(within(hangs.outcome()).await.verdict, Verdict::Cancelled);
    assert_eq!(within(never.outcome()).await.verdict, Verdict::Cancelled);
    let reason = loop {
        if let agent::Event::Retrying { reason, .. } = within(news.recv()).await.unwrap() {
            break reason;
        }
    };
    assert_eq!(reason, "Listen ended: the hub is shutting down");
    within(agent.shutdown(Duration::ZERO)).await;
}

// spec: HUB-5-2
#[tokio::test]
async fn an_agent_finds_a_hub_that_comes_back() {
    // Meanwhile no other test's hub takes its port.
    let first = at([127, 0, 1, 1]).await;
    let addr = first.local_addr();
    let fast = |config: agent::Config| config.with_first_retry(Duration::from_millis(20));
    let _agent = worker("one").configure(fast).start(&first.url()).unwrap();
    within(first.wait_for_agents(1)).await.unwrap();
    within(first.shutdown(Duration::ZERO)).await.unwrap();
    drop(first);
    let second = serve(addr, ServerConfig::default()).await.unwrap();
    within(second.wait_for_agents(1)).await.unwrap();
    let outcome = within(
        second
            .submit(Job::test("sum", figures("2")))
            .unwrap()
            .outcome(),
    )
    .await;
    assert_eq!(outcome.verdict, Verdict::Completed);
}

// spec: HUB-2-6, HUB-5-2
#[tokio::test]
async fn a_hub_that_is_dropped_lets_its_agents_and_jobs_go() {
    // Meanwhile no other test's hub takes its port.
    let first = at([127, 0, 1, 2]).await;
    let addr = first.local_addr();
    let fast = |config: agent::Config| config.with_first_retry(Duration::from_millis(20));
    let _agent = worker("one").configure(fast).start(&first.url()).unwrap();
    within(first.wait_for_agents(1)).await.unwrap();
    let job = first.submit(Job::test("hang", vec![])).unwrap();
    drop(first);
    assert_eq!(within(job.outcome()).await.verdict, Verdict::Cancelled);
    // The port is free once the task that listens is gone.
    let second = within(async {
        loop {
            match serve(addr, ServerConfig::default()).await {
                Ok(hub) => break hub,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    });
    within(second.await.wait_for_agents(1)).await.unwrap();
}

// spec: HUB-3-1
#[tokio::test]
async fn the_prepare_hook_comes_before_the_session_is_ready() {
    let config = ServerConfig::default().with_prepare(|_, session| async move {
        if session.as_str().starts_with("TRN-") {
            Err("no room".to_owned())
        } else {
            Ok(())
        }
    });
    let hub = serve(([127, 0, 0, 1], 0).into(), config).await.unwrap();
    let _agent = worker("one").start(&hub.url()).unwrap();
    let outcome = within(
        hub.submit(Job::test("sum", figures("2")))
            .unwrap()
            .outcome(),
    )
    .await;
    assert_eq!(outcome.verdict, Verdict::Completed);
    let outcome = within(
        hub.submit(Job::translation("upper", vec![]))
            .unwrap()
            .outcome(),
    )
    .await;
    assert_eq!(
        (outcome.verdict, outcome.message.as_str()),
        (Verdict::Failed, "preparation failed: no room")
    );
}

// spec: HUB-4-6
#[tokio::test]
async fn a_message_over_the_limit_is_resource_exhausted() {
    let small = Config::default().with_max_message_bytes(100_000);
    let hub = serve(
        ([127, 0, 0, 1], 0).into(),
        ServerConfig::default().with_hub(small),
    )
    .await
    .unwrap();
    let big = |size| {
        Job::test(
            "sum",
            vec![Payload::file("f", "f", "text/plain", vec![b'1'; size])],
        )
    };
    assert!(hub.submit(big(100_001)).is_err());
    let _agent = AgentBuilder::new("big")
        .on_test("big", |_, _| async {
            Ok(TestResult::completed("x".repeat(200_000)))
        })
        .start(&hub.url())
        .unwrap();
    let outcome = within(hub.submit(Job::test("big", vec![])).unwrap().outcome()).await;
    assert_eq!(outcome.verdict, Verdict::Failed);
    assert!(
        outcome.message.starts_with("Stream error: "),
        "{}",
        outcome.message
    );
    // Five MiB, over gRPC's usual four, pass under the default.
    let hub = self::hub().await;
    let _agent = worker("one").start(&hub.url()).unwrap();
    let text = "1\n".repeat(5 << 19);
    let job = Job::test("sum", vec![Payload::file("f", "f", "text/plain", text)]);
    assert_eq!(
        within(hub.submit(job).unwrap().outcome()).await.message,
        (5 << 19).to_string()
    );
}

/// A call as a stranger makes it: what it is ended with.
async fn refused(hub: &HubHandle, rpc: &str, key: Option<&str>) -> (Code, String) {
    let channel = Channel::from_shared(hub.url())
        .unwrap()
        .connect()
        .await
        .unwrap();
    let mut client = AgentHubClient::new(channel);
    fn request<T>(
        rpc: &str,
        key: Option<&str>,
    ) -> (tokio::sync::mpsc::Sender<T>, Request<ReceiverStream<T>>) {
        let (sender, messages) = tokio::sync::mpsc::channel(1);
        let mut request = Request::new(ReceiverStream::new(messages));
        let name = if rpc == "listen" {
            "x-client-id"
        } else {
            "x-session-id"
        };
        if let Some(key) = key {
            request.metadata_mut().insert(name, key.parse().unwrap());
        }
        (sender, request)
    }
    let status = if rpc == "listen" {
        let (_open, request) = request::<ListenRequest>(rpc, key);
        match client.listen(request).await {
            Err(status) => status,
            Ok(mut answer) => within(answer.get_mut().message()).await.unwrap_err(),
        }
    } else {
        let (_open, request) = request::<TestResponse>(rpc, key);
        match client.execute(request).await {
            Err(status) => status,
            Ok(mut answer) => within(answer.get_mut().message()).await.unwrap_err(),
        }
    };
    (status.code(), status.message().to_owned())
}

// spec: HUB-2-2, HUB-1-1, HUB-2-1
#[tokio::test]
async fn calls_without_a_good_name_end_with_their_status() {
    let hub = hub().await;
    for key in [None, Some(""), Some("nobody")] {
        assert_eq!(
            refused(&hub, "listen", key).await,
            (Code::NotFound, "Invalid Client ID".to_owned())
        );
    }
    for key in [None, Some("")] {
        assert_eq!(refused(&hub, "execute", key).await.0, Code::InvalidArgument);
    }
    assert_eq!(
        refused(&hub, "execute", Some("JOB-1")).await.0,
        Code::NotFound
    );
    let channel = Channel::from_shared(hub.url())
        .unwrap()
        .connect()
        .await
        .unwrap();
    let mut client = AgentHubClient::new(channel);
    let unnamed = || AgentRegistration {
        display_name: String::new(),
        capabilities: vec![Skill::test("a").into()],
    };
    let one = client
        .register(unnamed())
        .await
        .unwrap()
        .into_inner()
        .client_id;
    let two = client
        .register(unnamed())
        .await
        .unwrap()
        .into_inner()
        .client_id;
    assert_ne!(one, two);
    let empty = AgentRegistration {
        display_name: "x".into(),
        capabilities: vec![Skill::test("").into()],
    };
    let status = client.register(empty).await.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::InvalidArgument, "capabilities[0].test.type is empty")
    );
}
