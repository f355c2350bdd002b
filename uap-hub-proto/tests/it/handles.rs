//! What the handles of hub and agent promise.

use std::{
    future::pending,
    sync::{Arc, Condvar, Mutex},
    time::Duration,
};

use tokio::sync::{Notify, mpsc};
use uap_hub_proto::{
    capability::Skill,
    id::JobId,
    role::{
        agent,
        hub::{
            Candidate, CommandError, Config, Event, Job, JobEvent, Outcome, Phase, Placement,
            Record, Verdict,
        },
    },
    state::State,
    store::{JobStore, MemoryStore, StoreError},
    transport::{
        MIN_KEEP_ALIVE,
        client::{AgentBuilder, Context, HandlerError},
        server::{JobHandle, ServerConfig, serve},
    },
    wire::{
        PayloadRequirement, Severity, TestCapability, TestResult, TranslationCapability,
        TranslationResult,
    },
};

use ubos_common::id::IdSource;

use crate::loopback::{hub, within};

#[derive(Debug, thiserror::Error)]
#[error("the file cannot be read")]
struct Unreadable(#[from] std::io::Error);

fn read() -> Result<(), Unreadable> {
    Err(std::io::Error::other("the disk is away").into())
}

// spec: HUB-4-1
#[tokio::test]
async fn an_error_is_told_with_its_causes() {
    let hub = hub().await;
    let (tell, mut failures) = mpsc::unbounded_channel();
    let agent = AgentBuilder::new("a")
        .on_test("t", |_, _| async {
            read()?;
            Ok(TestResult::completed(""))
        })
        .on_failure(move |session, failure| {
            let is_kept = failure.source().unwrap().is::<Unreadable>();
            let _ = tell.send((session.to_string(), failure.message().to_owned(), is_kept));
            panic!("nothing comes of it");
        })
        .start(&hub.url())
        .unwrap();
    let id = within(agent.connected()).await.unwrap();
    assert_eq!(
        hub.agents()[0].client_id,
        id,
        "it may be offered jobs by now"
    );
    let job = hub.submit(Job::test("t", vec![])).unwrap();
    let outcome = within(job.outcome()).await;
    assert_eq!(outcome.message, "the file cannot be read: the disk is away");
    let (session, message, is_kept) = within(failures.recv()).await.unwrap();
    assert!(session.starts_with("JOB-") && is_kept, "{session}");
    assert_eq!(message, outcome.message);
    within(agent.shutdown(Duration::ZERO)).await;
    assert_eq!(within(agent.connected()).await, None);
}

/// A store whose disk has stopped, until it is repaired.
#[derive(Debug, Default)]
struct Stuck(Arc<(Mutex<bool>, Condvar)>);

impl JobStore for Stuck {
    fn write(&self, _: &[(JobId, Record)]) -> Result<(), StoreError> {
        let stuck = self.0.0.lock().unwrap();
        drop(self.0.1.wait_while(stuck, |is_open| !*is_open).unwrap());
        Ok(())
    }

    fn unfinished(&self) -> Result<Vec<(JobId, Job)>, StoreError> {
        Ok(Vec::new())
    }

    fn outcome(&self, _: JobId) -> Result<Option<Outcome>, StoreError> {
        Ok(None)
    }

    fn labelled(&self, _: &str) -> Result<Option<JobId>, StoreError> {
        Ok(None)
    }
}

/// Has the disk go on, without which the runtime would wait for it.
struct Repair(Arc<(Mutex<bool>, Condvar)>);

impl Drop for Repair {
    fn drop(&mut self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }
}

#[tokio::test]
async fn a_store_that_hangs_does_not_keep_a_hub_from_leaving() {
    let store = Stuck::default();
    let _repair = Repair(store.0.clone());
    let config = ServerConfig::default().with_store(Arc::new(store));
    let hub = serve(([127, 0, 0, 1], 0).into(), config).await.unwrap();
    let job = hub.submit(Job::test("t", vec![])).unwrap();
    for _ in 0..2 {
        let left = within(hub.shutdown(Duration::ZERO)).await.unwrap_err();
        assert_eq!(left.kind(), std::io::ErrorKind::TimedOut);
        assert!(left.to_string().contains("wait for it: 1"), "{left}");
    }
    let outcome = within(job.outcome()).await;
    assert_eq!(outcome.verdict, Verdict::Failed);
    let told = outcome.store_error.unwrap();
    assert!(told.contains("had not answered"), "{told}");
}

#[test]
fn an_error_is_the_source_of_the_failure_that_it_made() {
    let failure = HandlerError::from(read().unwrap_err());
    assert!(failure.into_source().unwrap().is::<Unreadable>());
    assert!(HandlerError::new("no error").into_source().is_none());
    let missing = || -> Result<(), HandlerError> { Ok(None.ok_or("nothing is there")?) };
    let text = missing().unwrap_err().into_source().unwrap();
    assert_eq!(text.to_string(), "nothing is there");
}

/// Tells that the handler that holds it has ended.
pub(crate) struct Ends(pub(crate) Arc<Notify>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// A handler that reports and then hangs until it is stopped.
pub(crate) async fn hang(context: Context, _ends: Ends) -> Result<TestResult, HandlerError> {
    context.status("there").await?;
    pending().await
}

/// Waits until the handler of a job has reported.
pub(crate) async fn reported(job: &mut JobHandle) {
    loop {
        let event = within(job.next_event()).await.expect("no end before");
        if matches!(&event, JobEvent::Status { message, .. } if message == "there") {
            return;
        }
    }
}

// spec: HUB-4-7
#[tokio::test]
async fn a_handler_that_listens_ends_by_itself() {
    let hub = hub().await;
    let (said, mut heard) = mpsc::unbounded_channel();
    let stopped = Arc::new(Notify::new());
    let ended = stopped.clone();
    let _agent = AgentBuilder::new("a")
        .on_test("listens", move |_, context| {
            let said = said.clone();
            async move {
                context.status("there").await?;
                context.cancelled().await;
                tokio::task::yield_now().await;
                // Whoever asks once more is told at once.
                context.cancelled().await;
                said.send(context.status("too late").await.is_err())
                    .unwrap();
                Ok(TestResult::completed("too late"))
            }
        })
        .on_test("does not", move |_, context| {
            hang(context, Ends(ended.clone()))
        })
        .start(&hub.url())
        .unwrap();
    for skill in ["listens", "does not"] {
        let mut job = hub.submit(Job::test(skill, vec![])).unwrap();
        reported(&mut job).await;
        job.cancel().unwrap();
        assert_eq!(within(job.outcome()).await.verdict, Verdict::Cancelled);
    }
    assert!(
        within(heard.recv()).await.unwrap(),
        "its reports are refused"
    );
    within(stopped.notified()).await;
}

#[tokio::test]
async fn the_first_reader_misses_nothing() {
    let hub = hub().await;
    let agent = AgentBuilder::new("a")
        .on_test("t", |_, _| async { Ok(TestResult::completed("")) })
        .start(&hub.url())
        .unwrap();
    within(agent.connected()).await;
    let first = within(agent.events().recv()).await;
    assert!(
        matches!(first, Ok(agent::Event::Listening { .. })),
        "{first:?}"
    );
    let mut news = hub.events();
    assert!(matches!(
        news.recv().await,
        Ok(Event::AgentRegistered { .. })
    ));
    assert!(matches!(
        news.recv().await,
        Ok(Event::AgentAvailable { .. })
    ));
    assert!(
        hub.events().is_empty() && agent.events().is_empty(),
        "only the first"
    );
}

// spec: HUB-3-6
#[tokio::test]
async fn handles_say_why_a_job_waits() {
    let hub = hub().await;
    let job = hub.submit(Job::test("t", Vec::new())).unwrap();
    let why = Some("no agent offers test type \"t\"".to_owned());
    assert_eq!(
        (hub.why_waiting(job.id()), job.why_waiting()),
        (why.clone(), why)
    );
}

#[tokio::test]
async fn a_hub_that_is_inspected_refuses_commands() {
    let hub = hub().await;
    let waiting = hub.submit(Job::test("t", vec![])).unwrap();
    let other = crate::loopback::hub().await;
    let id = waiting.id();
    let refused = hub.inspect(|view| {
        drop(waiting);
        assert_eq!(view.counts().waiting_jobs, 1);
        assert!(
            other.inspect(|_| hub.cancel(id)).is_err(),
            "one inside the other"
        );
        assert!(other.submit(Job::test("t", vec![])).is_ok());
        [
            hub.submit(Job::test("t", vec![])).map(drop),
            hub.cancel(id),
            hub.set_agent_paused(&"a".into(), true),
            hub.drain_agent(&"a".into()),
        ]
    });
    assert_eq!(refused, [(); 4].map(|()| Err(CommandError::Inspecting)));
    let panics = |inside: &dyn Fn()| {
        let inside = std::panic::AssertUnwindSafe(|| hub.inspect(|_| inside()));
        let words = *(std::panic::catch_unwind(inside).unwrap_err())
            .downcast::<&str>()
            .unwrap();
        assert!(words.contains("inside HubHandle::inspect"), "{words}");
    };
    panics(&|| drop(hub.agents()));
    panics(&|| hub.inspect(|_| ()));
    hub.cancel(id).unwrap();
}

// spec: HUB-3-2
#[tokio::test]
async fn capabilities_are_built_and_targets_are_shown() {
    let hub = hub().await;
    let image = PayloadRequirement::new("image").with_mime_type("image/png");
    let page = PayloadRequirement::new("page").repeatable();
    let capability = TranslationCapability::from("text")
        .with_source(image.clone().required())
        .with_target(page.clone());
    let agent = AgentBuilder::new("a")
        .on_translation(capability, |payloads, _| async {
            Ok(TranslationResult::completed(payloads).with_status(State::Completed, "read"))
        })
        .on_test(
            TestCapability::from("t").with_payload(image),
            |_, _| async { Ok(TestResult::default().with_status(State::Invalid, "not like this")) },
        )
        .start(&hub.url())
        .unwrap();
    within(agent.connected()).await;
    let info = hub.agents().remove(0);
    let targets = [(Skill::translation("text"), vec![page])];
    assert_eq!(info.target_payloads, targets.into());
    let picture = || uap_hub_proto::wire::Payload::file("image", "i", "image/png", "i");
    let job = hub
        .submit(Job::translation("text", vec![picture()]))
        .unwrap();
    let outcome = within(job.outcome()).await;
    assert_eq!(
        (outcome.verdict, outcome.message.as_str()),
        (Verdict::Completed, "read")
    );
    let job = hub.submit(Job::test("t", vec![picture()])).unwrap();
    assert_eq!(within(job.outcome()).await.verdict, Verdict::Invalid);
    for unfit in [
        Job::test("t", vec![picture(), picture()]),
        Job::translation("text", vec![]),
    ] {
        let unfit = unfit.with_wait_limit(Duration::from_millis(1));
        let outcome = within(hub.submit(unfit).unwrap().outcome()).await;
        assert_eq!(outcome.verdict, Verdict::Unplaced, "{}", outcome.message);
    }
}

// spec: HUB-6-1, HUB-4-4
#[tokio::test]
async fn restored_jobs_that_nobody_takes_run_to_their_end() {
    let store = Arc::new(MemoryStore::default());
    let mut ids = IdSource::seeded(0);
    let jobs: [JobId; 2] = [ids.next_id(), ids.next_id()];
    for id in jobs {
        let accepted = Record::Accepted(Job::test("t", vec![]));
        store.write(&[(id, accepted)]).unwrap();
    }
    let config = ServerConfig::default().with_store(store.clone());
    let hub = serve(([127, 0, 0, 1], 0).into(), config).await.unwrap();
    let _agent = AgentBuilder::new("a")
        .on_test("t", |_, context| async move {
            for line in 0..1000 {
                context.log(Severity::Info, line.to_string()).await?;
            }
            Ok(TestResult::completed("done"))
        })
        .start(&hub.url())
        .unwrap();
    let ended = async {
        while !store.unfinished().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(ended).await;
    for job in hub.take_restored() {
        let outcome = within(job.outcome()).await;
        assert_eq!(outcome.verdict, Verdict::Completed, "the end is kept");
    }
}

// spec: HUB-6-1
#[tokio::test]
async fn whoever_takes_a_restored_job_reads_its_events() {
    let store = Arc::new(MemoryStore::default());
    let accepted = Record::Accepted(Job::test("t", vec![]));
    store
        .write(&[(IdSource::seeded(0).next_id(), accepted)])
        .unwrap();
    let config = ServerConfig::default().with_store(store);
    let hub = serve(([127, 0, 0, 1], 0).into(), config).await.unwrap();
    let mut job = hub.take_restored().remove(0);
    let ended = Arc::new(Notify::new());
    let _agent = AgentBuilder::new("a")
        .on_test("t", move |_, context| hang(context, Ends(ended.clone())))
        .start(&hub.url())
        .unwrap();
    reported(&mut job).await;
}

// spec: HUB-4-6
#[tokio::test]
async fn an_agent_refuses_keep_alives_that_are_too_close() {
    let start = |keep_alive| {
        let agent = AgentBuilder::new("a").with_keep_alive(keep_alive);
        agent.start("http://127.0.0.1:1").map(drop)
    };
    assert_eq!(start(MIN_KEEP_ALIVE), Ok(()));
    let refused = start(MIN_KEEP_ALIVE - Duration::from_millis(1)).unwrap_err();
    assert!(
        refused.to_string().starts_with("keep_alive is"),
        "{refused}"
    );
    let agent = AgentBuilder::new("a").with_keep_alive_timeout(Duration::ZERO);
    let refused = agent.start("http://127.0.0.1:1").map(drop).unwrap_err();
    assert!(
        refused.to_string().starts_with("keep_alive_timeout is"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_hub_refuses_bounds_of_nothing() {
    let config = ServerConfig::default;
    for (config, field) in [
        (
            config().with_keep_alive_timeout(Duration::ZERO),
            "keep_alive_timeout",
        ),
        (
            config().with_register_timeout(Duration::ZERO),
            "register_timeout",
        ),
        (config().with_max_connections(0), "max_connections"),
        (
            config().with_max_control_messages(0),
            "max_control_messages",
        ),
        (
            config().with_max_control_message_bytes(0),
            "max_control_message_bytes",
        ),
        (
            config().with_max_connections_per_address(0),
            "max_connections_per_address",
        ),
        (
            config().with_first_call_timeout(Duration::ZERO),
            "first_call_timeout",
        ),
        (config().with_idle_timeout(Duration::ZERO), "idle_timeout"),
        (
            config().with_session_message_timeout(Duration::ZERO),
            "session_message_timeout",
        ),
        (config().with_max_streams(0), "max_streams"),
    ] {
        let refused = serve(([127, 0, 0, 1], 0).into(), config).await.map(drop);
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(&format!("{field} is")), "{refused}");
    }
}

// spec: HUB-2-7
#[tokio::test]
async fn an_agent_that_is_run_works_until_it_is_dropped() {
    let hub = hub().await;
    let agent = AgentBuilder::new("a").on_test("t", |_, _| async { Ok(TestResult::completed("")) });
    let job = hub.submit(Job::test("t", vec![])).unwrap();
    let url = hub.url();
    tokio::select! {
        ended = agent.run(&url) => panic!("{ended:?}"),
        outcome = within(job.outcome()) => assert_eq!(outcome.verdict, Verdict::Completed),
    }
}

// spec: HUB-5-2
#[tokio::test]
async fn an_agent_whose_hub_is_away_is_not_connected() {
    let hub = hub().await;
    let agent = AgentBuilder::new("a")
        .on_test("t", |_, _| async { Ok(TestResult::completed("")) })
        .start(&hub.url())
        .unwrap();
    within(agent.connected()).await.unwrap();
    let mut news = agent.events();
    drop(hub);
    while !matches!(
        within(news.recv()).await.unwrap(),
        agent::Event::Retrying { .. }
    ) {}
    tokio::select! {
        biased;
        id = agent.connected() => panic!("{id:?}"),
        () = tokio::task::yield_now() => {}
    }
}

// spec: HUB-5-3
#[tokio::test]
async fn no_agent_is_available_to_a_hub_that_has_left() {
    let hub = hub().await;
    let agent = AgentBuilder::new("a").start(&hub.url()).unwrap();
    within(agent.connected()).await.unwrap();
    within(hub.wait_for_agents(1)).await.unwrap();
    within(hub.shutdown(Duration::ZERO)).await.unwrap();
    let waited = within(hub.wait_for_agents(1)).await;
    assert_eq!(waited, Err(CommandError::ShuttingDown));
    assert_eq!(hub.wait_for_agents(0).await, Ok(()));
}

#[tokio::test]
async fn a_hub_is_paused_by_its_handle() {
    let hub = hub().await;
    let phase = || hub.inspect(|view| view.phase());
    hub.set_paused(true);
    assert_eq!(phase(), Phase::Paused);
    hub.set_paused(false);
    assert_eq!(phase(), Phase::Open);
}

// spec: HUB-4-6
#[tokio::test]
async fn a_hub_refuses_keep_alives_that_are_too_close() {
    let start = async |keep_alive| {
        let config = ServerConfig::default().with_keep_alive(keep_alive);
        serve(([127, 0, 0, 1], 0).into(), config).await.map(drop)
    };
    assert!(start(MIN_KEEP_ALIVE).await.is_ok());
    let refused = start(MIN_KEEP_ALIVE - Duration::from_millis(1)).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("keep_alive is"), "{refused}");
}

/// A placement that always panics.
#[derive(Debug)]
struct Panics;

impl Placement for Panics {
    fn rank(&self, _: &Candidate<'_>, _: &Skill) -> [u64; 2] {
        panic!("a rank")
    }

    fn affinity<'j>(&self, _: &'j Job) -> Option<&'j str> {
        panic!("a key")
    }
}

// spec: HUB-3-6
#[tokio::test]
async fn a_hub_whose_placement_panics_runs_jobs() {
    let config = Config::default().with_placement(Panics);
    let config = ServerConfig::default().with_hub(config);
    let hub = serve(([127, 0, 0, 1], 0).into(), config).await.unwrap();
    let _agent = AgentBuilder::new("a")
        .on_test("t", |_, _| async { Ok(TestResult::completed("done")) })
        .start(&hub.url())
        .unwrap();
    for _ in 0..2 {
        let job = hub.submit(Job::test("t", vec![])).unwrap();
        let outcome = within(job.outcome()).await;
        assert_eq!(outcome.verdict, Verdict::Completed);
    }
    within(hub.shutdown(Duration::ZERO)).await.unwrap();
}
