//! A hub queues a job, and an agent asks to be registered.

use uap_hub_proto::capability::Skill;
use uap_hub_proto::role::agent::{self, FleetAgent};
use uap_hub_proto::role::hub::{self, Hub, Job};
use uap_hub_proto::ubos_common::id::IdSource;
use uap_hub_proto::ubos_common::time::{Mono, Now, Timestamp};
use uap_hub_proto::wire::Payload;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
    let mut hub = Hub::new(hub::Config::default(), IdSource::seeded(1))?;
    let job = hub.submit(now, Job::test("echo", vec![Payload::new("text")]))?;
    assert!(hub.view().job(job).is_some());
    let config = agent::Config::default().with_capabilities([Skill::test("echo").into()]);
    let mut agent = FleetAgent::new(config, IdSource::seeded(2))?;
    agent.start(now);
    let Some(agent::Output::Register { registration, .. }) = agent.poll_output() else {
        return Err("no registration".into());
    };
    assert!(!hub.register(now, registration)?.client_id.is_empty());
    Ok(())
}
