//! The independent check: a hub and a fleet of two on loopback, each recounting half of the folder.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use uap_hub_proto::convert::{from_struct, to_duration, to_struct, to_timestamp};
use uap_hub_proto::message::JobResult;
use uap_hub_proto::role::hub::{Job, JobEvent, Outcome, Verdict};
use uap_hub_proto::store::JobStore;
use uap_hub_proto::transport::client::{AgentBuilder, AgentHandle, HandlerError};
use uap_hub_proto::transport::server::{HubHandle, JobHandle, ServerConfig, serve};
use uap_hub_proto::wire::{Payload, Summary, TestResult};
use ubos_common::os::Clock;

use super::scan::{Count, Folder, recount};
use super::screen::{Screen, Who};
use super::step_id::{self, Cause};
use super::step_words;

/// Agents of the fleet.
pub const AGENTS: usize = 2;
/// How long agents may take to register.
const ARRIVAL: Duration = Duration::from_secs(60);
/// How long a share may wait for an agent.
const WAIT: Duration = Duration::from_secs(30);

/// A hub with its agents.
#[derive(Debug)]
pub struct Fleet {
    hub: HubHandle,
    agents: Vec<AgentHandle>,
    screen: Screen,
}

/// What the fleet came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// Sessions that ran.
    pub sessions: u64,
    /// Their counts together.
    pub count: Count,
}

impl Fleet {
    /// Starts the hub on a free loopback port, and the agents; jobs are kept in a store.
    ///
    /// Jobs that an earlier mission left without an end are cancelled: nobody waits for them.
    pub async fn start(
        folder: &Folder,
        jobs: Arc<dyn JobStore>,
        screen: &Screen,
    ) -> Result<Self, String> {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        let hub = serve(address, ServerConfig::default().with_store(jobs))
            .await
            .map_err(|err| format!("the hub: {err}"))?;
        for left in hub.take_restored() {
            // No agent is there yet, so that it waits and can be cancelled.
            if left.cancel().is_ok() {
                left.outcome().await;
            }
        }
        screen.say(Who::Hub, format!("listens on {}", hub.local_addr()));
        let mut agents = Vec::new();
        for n in 1..=AGENTS {
            agents.push(
                agent(n, folder)
                    .start(&hub.url())
                    .map_err(|err| format!("fleet agent {n}: {err}"))?,
            );
        }
        tokio::time::timeout(ARRIVAL, hub.wait_for_agents(AGENTS))
            .await
            .map_err(|_| {
                format!(
                    "{} of {AGENTS} agents came within {ARRIVAL:?}",
                    hub.agents().len()
                )
            })?
            .map_err(|err| err.to_string())?;
        screen.say(
            Who::Hub,
            format!("{AGENTS} agents registered and listening"),
        );
        Ok(Self {
            hub,
            agents,
            screen: screen.clone(),
        })
    }

    /// Lets the fleet recount the folder, a share an agent, because of a task.
    pub async fn recount(&self, cause: &Cause) -> Result<Check, String> {
        let mut jobs = Vec::new();
        for share in 0..AGENTS {
            // The ids that say what the job is for go along, as far as its agent.
            let about = metadata(&json!({
                "share": share,
                "of": AGENTS,
                "correlationId": cause.run,
                "taskId": cause.task,
                "submittedAt": Clock::default().now().wall.to_string(),
            }))?;
            let payload = Payload::new("share").with_metadata(about);
            let job = Job::test("recount", vec![payload]).with_wait_limit(WAIT);
            jobs.push(self.hub.submit(job).map_err(|err| err.to_string())?);
        }
        let followed = jobs
            .into_iter()
            .enumerate()
            .map(|(share, job)| self.follow(share, job, cause));
        let outcomes = futures::future::join_all(followed).await;
        let mut check = Check::default();
        for (share, outcome) in outcomes.into_iter().enumerate() {
            if outcome.verdict != Verdict::Completed {
                return Err(format!(
                    "share {share}: {:?}: {}",
                    outcome.verdict, outcome.message
                ));
            }
            check.sessions += 1;
            check.count = check
                .count
                .plus(count_in(&outcome).ok_or("a result without a count")?);
        }
        Ok(check)
    }

    async fn follow(&self, share: usize, mut job: JobHandle, cause: &Cause) -> Outcome {
        let trace = self.screen.trace();
        let (id, task) = (step_id::job(job.id()), step_id::task(&cause.task));
        let step = trace.begin(Who::Hub, &*id, Some(&task), step_words::share(share as u64));
        let mut session = None;
        let say = |what: String| {
            self.screen
                .say(Who::Hub, format!("share {}: {what}", share + 1))
        };
        while let Some(event) = job.next_event().await {
            match event {
                JobEvent::Offered {
                    session: id_of_session,
                    agent,
                } => {
                    let known = self
                        .hub
                        .agents()
                        .into_iter()
                        .find(|known| known.client_id == agent);
                    let name = known.map_or_else(|| agent.to_string(), |known| known.name);
                    let name = step_words::session(&name);
                    let of_session = step_id::session(id_of_session);
                    session = Some(trace.begin(Who::Hub, of_session, Some(&id), name));
                    say("proposed".to_owned());
                }
                JobEvent::Ready { .. } => say("accepted, ready".to_owned()),
                JobEvent::Started { .. } => say("executing".to_owned()),
                JobEvent::Status { state, message, .. } => {
                    say(format!("{state:?} {message}").trim().to_owned())
                }
                JobEvent::Ended(outcome) => {
                    say(format!("result: {:?} {}", outcome.verdict, outcome.message));
                    let end = step_words::job_end(outcome.verdict);
                    if let Some(session) = session {
                        session.end(&*end);
                    }
                    step.end(end);
                    return outcome;
                }
                _ => {}
            }
        }
        job.outcome().await
    }

    /// Ends agents and hub.
    pub async fn stop(self) {
        const DRAIN: Duration = Duration::from_millis(500);
        for agent in &self.agents {
            agent.shutdown(DRAIN).await;
        }
        if let Err(err) = self.hub.shutdown(DRAIN).await {
            self.screen.say(Who::Hub, format!("ended with {err}"));
        }
    }
}

fn agent(n: usize, folder: &Folder) -> AgentBuilder {
    let folder = folder.clone();
    let name = format!("counter-{n}");
    AgentBuilder::new(name.clone()).on_test("recount", move |payloads, context| {
        let (folder, name) = (folder.clone(), name.clone());
        async move {
            let started = Clock::default().now();
            let (share, of) =
                share_in(&payloads).ok_or_else(|| HandlerError::invalid("no share"))?;
            context.progress(0, 1, "counting").await?;
            let counted =
                tokio::task::spawn_blocking(move || recount(&folder, share, of)).await??;
            let Count {
                files,
                lines,
                bytes,
            } = counted;
            let mut summary = Summary::of(
                metadata(&json!({
                    "files": files,
                    "lines": lines,
                    "bytes": bytes,
                    "session": context.session().to_string(),
                    "agent": name,
                }))
                .map_err(HandlerError::new)?,
            );
            let ended = Clock::default().now();
            summary.start_time = Some(to_timestamp(started.wall));
            summary.total_duration = to_duration(ended.wall.saturating_since(started.wall)).ok();
            let said = format!("{files} files, {lines} lines, {bytes} bytes");
            Ok(TestResult::completed(said).with_summary(summary))
        }
    })
}

fn share_in(payloads: &[Payload]) -> Option<(usize, usize)> {
    let share = payloads.iter().find(|payload| payload.r#type == "share")?;
    let numbers = from_struct(share.metadata.as_ref()?).ok()?;
    let number = |name: &str| whole(numbers.get(name)?).and_then(|n| usize::try_from(n).ok());
    Some((number("share")?, number("of").filter(|of| *of > 0)?))
}

fn count_in(outcome: &Outcome) -> Option<Count> {
    let Some(JobResult::Test(result)) = &outcome.result else {
        return None;
    };
    let numbers = from_struct(result.summary.as_ref()?.metadata.as_ref()?).ok()?;
    let number = |name: &str| whole(numbers.get(name)?);
    Some(Count {
        files: number("files")?,
        lines: number("lines")?,
        bytes: number("bytes")?,
    })
}

/// A whole number: protobuf's free-form numbers are doubles, exact to 2^53.
fn whole(value: &Value) -> Option<u64> {
    let exact = value.as_u64();
    exact.or_else(|| {
        value
            .as_f64()
            .filter(|f| f.fract() == 0.0 && *f >= 0.0)
            .and_then(|f| format!("{f}").parse().ok())
    })
}

fn metadata(members: &Value) -> Result<prost_types::Struct, String> {
    let members = members.as_object().ok_or("no object")?;
    to_struct(members).map_err(|err| err.to_string())
}

#[cfg(test)]
mod tests {
    use uap_hub_proto::store::MemoryStore;

    use super::super::scan::languages;
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn two_agents_come_to_the_same_count_as_the_audit() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..7usize {
            std::fs::write(
                dir.path().join(format!("f{n}.txt")),
                "line\n".repeat(n * 3000),
            )
            .unwrap();
        }
        std::fs::write(dir.path().join("binary"), b"\0\n\n").unwrap();
        let folder = Folder {
            path: dir.path().to_owned(),
            no_ignore: false,
            excluded: None,
        };
        let jobs = Arc::new(MemoryStore::default());
        let fleet = Fleet::start(&folder, jobs, &Screen::new(true))
            .await
            .unwrap();
        let check = fleet.recount(&Cause::new("run", "task")).await.unwrap();
        fleet.stop().await;
        let figures = languages(&folder, &mut |_: usize| true).unwrap();
        let counted = Count {
            files: figures.files,
            lines: figures.lines,
            bytes: figures.bytes,
        };
        assert_eq!(
            check,
            Check {
                sessions: 2,
                count: counted
            }
        );
    }
}
