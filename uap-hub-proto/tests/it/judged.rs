//! The kits over sockets, against our own hub and agent.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    time::Duration,
};

use tokio::runtime::Runtime;
use uap_hub_proto::{
    capability::Skill,
    role::hub::{self, Job},
    transport::{
        client::AgentBuilder,
        server::{HubHandle, ServerConfig, serve},
    },
    wire::{Payload, TestResult},
};
use ubos_conformance::hub::{Attack, HostileRun, TestFleet, TestHub, agent_kit, hub_kit};
use ubos_conformance::{ConnectError, Expectations};

fn a_hub(runtime: &Runtime) -> HubHandle {
    let serving = serve(([127, 0, 0, 1], 0).into(), ServerConfig::default());
    runtime.block_on(serving).unwrap()
}

// spec: HUB-7-1, HUB-4-6
#[test]
fn our_hub_conforms_over_sockets() {
    conforms(&Skill::test("echo"));
}

// spec: HUB-7-1, HUB-4-6
#[test]
fn our_hub_conforms_with_translations_over_sockets() {
    conforms(&Skill::translation("upper"));
}

fn conforms(skill: &Skill) {
    let runtime = Runtime::new().unwrap();
    let served = a_hub(&runtime);
    let kit = hub_kit();
    let expectations = Expectations::new().with_floor(kit.cases().len());
    let report = kit.run(&expectations, |_| {
        let fed = served.clone();
        let submit = move |skill: &Skill| {
            // The next case runs what this one leaves.
            drop(fed.submit(Job::new(skill.clone(), vec![Payload::new("text")])));
        };
        match TestFleet::connect(&served.url(), skill.clone(), submit) {
            Ok(fleet) => Ok(Box::new(fleet)),
            Err(error) => Err(ConnectError::Unreachable(error.to_string())),
        }
    });
    assert!(report.is_conformant(), "{report}");
}

// spec: HUB-7-1, HUB-2-7, HUB-4-6, HUB-5-2
#[test]
fn our_agent_conforms_over_sockets() {
    let hub = TestHub::bind(([127, 0, 0, 1], 0).into()).unwrap();
    let runtime = Runtime::new().unwrap();
    let _entered = runtime.enter();
    let agent = AgentBuilder::new("judged")
        .on_test("echo", |_, _| async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            Ok(TestResult::completed("done"))
        })
        .start(&hub.url())
        .unwrap();
    let kit = agent_kit();
    let expectations = Expectations::new().with_floor(kit.cases().len());
    let report = kit.run(&expectations, |_| Ok(hub.peer()));
    drop(agent);
    assert!(report.is_conformant(), "{report}");
}

/// What tells the process below that it is a hub.
const HUB: &str = "UAP_HUB_THAT_IS_ATTACKED";

/// A hub in a process of its own, so that its memory is its own.
struct Attacked(Child);

impl Attacked {
    fn start() -> (Self, String) {
        let mut hub = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "judged::the_hub_that_is_attacked", "--nocapture"])
            .env(HUB, "")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(hub.stdout.take().unwrap()).lines();
        let url = lines.find_map(|line| Some(line.unwrap().split_once("hub at ")?.1.to_owned()));
        (Self(hub), url.expect("the hub is up"))
    }
}

impl Drop for Attacked {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[expect(clippy::print_stdout, reason = "the process that attacks reads it")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_hub_that_is_attacked() {
    if std::env::var(HUB).is_err() {
        return;
    }
    let hub = serve(([127, 0, 0, 1], 0).into(), ServerConfig::default());
    let hub = hub.await.unwrap();
    println!("hub at {}", hub.url());
    std::future::pending().await
}

// spec: HUB-4-6, HUB-2-4
#[test]
fn our_hub_stands_strangers() {
    let (hub, url) = Attacked::start();
    let run = HostileRun::new(&url)
        .with_process(hub.0.id())
        .with_time(Duration::from_millis(150));
    let report = run.run().unwrap();
    assert!(report.is_survived(), "{report}");
    assert!(report.calm.served > 0 && report.calm.failed == 0);
    assert_eq!(report.rounds.len(), Attack::ALL.len());
    for round in &report.rounds {
        assert!(round.attempts > 0, "{:?}", round.attack);
        assert!(round.grown.is_some(), "its process is known");
    }
    // Nobody listens there any more.
    drop(hub);
    let refused = HostileRun::new(url)
        .with_time(Duration::from_millis(50))
        .run();
    assert_eq!(
        refused.unwrap_err().kind(),
        std::io::ErrorKind::ConnectionRefused
    );
}

// spec: HUB-2-4
#[test]
fn a_hub_without_quotas_does_not_stand_strangers_that_listen() {
    let runtime = Runtime::new().unwrap();
    let config = hub::Config::default().with_max_agents(100);
    let served = serve(
        ([127, 0, 0, 1], 0).into(),
        ServerConfig::default().with_hub(config),
    );
    let served = runtime.block_on(served).unwrap();
    // A busy machine needs longer to take all places.
    let is_survived = [1, 4, 16, 64].into_iter().all(|seconds| {
        let run = HostileRun::new(served.url())
            .with_attacks(&[Attack::NamesThatListen])
            .with_time(Duration::from_secs(seconds));
        run.run().unwrap().is_survived()
    });
    assert!(!is_survived);
}
