//! A hub with a store, killed at any moment, again and again.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use tokio::task::JoinSet;
use uap_hub_proto::{
    id::JobId,
    role::hub::{Job, JobEvent, Verdict},
    store::{FileStore, JobStore},
    transport::{
        client::AgentBuilder,
        server::{HubHandle, JobHandle, ServerConfig, serve},
    },
    wire::{Payload, TestResult},
};
use ubos_common::{
    id::IdSource,
    log::{Config, LogId},
};

/// Folder of the hub's store, given to the process that is killed.
const DIR: &str = "HUB_KILL_TEST_DIR";
/// Set where that process shall end what there is, and itself.
const FINISH: &str = "HUB_KILL_TEST_FINISH";
const KILLS: usize = 100;

fn open(dir: &Path) -> FileStore {
    let config = Config::default()
        .with_log_id(LogId::from_bytes([1; 16]))
        .with_segment_bytes(256 << 10);
    FileStore::open(dir, config).unwrap()
}

/// What a process said before it died: accepted jobs, and verdicts by job.
#[derive(Default)]
struct Said {
    accepted: BTreeSet<JobId>,
    ended: BTreeMap<JobId, String>,
}

impl Said {
    fn hear(&mut self, line: &str) {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["accepted", id] => assert!(self.accepted.insert(id.parse().unwrap())),
            ["ended", id, verdict] => {
                let twice = self.ended.insert(id.parse().unwrap(), verdict.to_owned());
                assert_eq!(twice, None, "{id} has its end twice");
            }
            // The test harness speaks too.
            _ => {}
        }
    }
}

/// Runs the process below and kills it `after` it first spoke.
fn run(dir: &Path, said: &mut Said, after: Option<Duration>) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "kill::the_process_that_is_killed", "--nocapture"])
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
    if after.is_none() {
        command.env(FINISH, "1");
    }
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    if let Some(after) = after {
        let first = lines.by_ref().map(Result::unwrap).find(|line| line == "up");
        assert!(first.is_some(), "it did not come up");
        std::thread::sleep(after);
        child.kill().unwrap();
    }
    // A last line that is torn is no line: it has no end, and is too short to be an id.
    for line in lines.map_while(Result::ok) {
        said.hear(&line);
    }
    let status = child.wait().unwrap();
    assert_eq!(status.success(), after.is_none());
}

// spec: HUB-6-1
#[test]
fn a_killed_hub_loses_no_job_and_repeats_no_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = IdSource::from_os().unwrap();
    let mut said = Said::default();
    for _ in 0..KILLS {
        let after = Duration::from_micros(random.bits() % 40_000);
        run(dir.path(), &mut said, Some(after));
    }
    run(dir.path(), &mut said, None);
    let store = open(dir.path());
    assert_eq!(store.unfinished().unwrap(), [], "every job has its end");
    for id in &said.accepted {
        let outcome = store.outcome(*id).unwrap();
        let outcome = outcome.unwrap_or_else(|| panic!("{id} is lost"));
        assert_eq!(outcome.verdict, Verdict::Completed);
        if let Some(told) = said.ended.get(id) {
            assert_eq!(*told, outcome.message);
        }
    }
    assert!(!said.ended.is_empty(), "no end was told");
}

/// Says what happens to a job, each line with one write.
#[expect(
    clippy::print_stdout,
    reason = "the process that kills this one reads it"
)]
async fn follow(mut job: JobHandle) {
    while let Some(event) = job.next_event().await {
        match event {
            JobEvent::Stored => println!("accepted {}", job.id()),
            JobEvent::Ended(outcome) => println!("ended {} {}", job.id(), outcome.message),
            _ => {}
        }
    }
}

#[expect(
    clippy::print_stdout,
    reason = "the process that kills this one reads it"
)]
async fn work(hub: &HubHandle, finish: bool) {
    let mut jobs = JoinSet::new();
    hub.take_restored().into_iter().for_each(|job| {
        jobs.spawn(follow(job));
    });
    println!("up");
    while !finish || !jobs.is_empty() {
        if !finish && jobs.len() < 16 {
            let payload = Payload::file("n", "n", "", jobs.len().to_string());
            jobs.spawn(follow(
                hub.submit(Job::test("echo", vec![payload])).unwrap(),
            ));
        } else {
            jobs.join_next().await;
        }
    }
}

/// Not a test by itself: what the one above runs, where it says so.
#[test]
fn the_process_that_is_killed() {
    let Ok(dir) = std::env::var(DIR) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let store = Arc::new(open(Path::new(&dir)));
        let config = ServerConfig::default().with_store(store);
        let hub = serve(([127, 0, 0, 1], 0).into(), config).await.unwrap();
        let _agent = AgentBuilder::new("echo")
            .on_test("echo", |payloads, _| async move {
                let text = String::from_utf8_lossy(payloads[0].data()).into_owned();
                Ok(TestResult::completed(text))
            })
            .start(&hub.url())
            .unwrap();
        hub.wait_for_agents(1).await.unwrap();
        work(&hub, std::env::var(FINISH).is_ok()).await;
        hub.shutdown(Duration::ZERO).await.unwrap();
    });
}
