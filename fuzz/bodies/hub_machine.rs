//! The hub under any order of calls, messages, losses and commands: each job ends once, and nothing is sent
//! on a call that is over.

use std::collections::BTreeMap;
use std::time::Duration;

use arbitrary::{Arbitrary as _, Result, Unstructured};
use uap_hub_proto::capability::Skill;
use uap_hub_proto::id::{JobId, SessionId, StreamId};
use uap_hub_proto::role::Rpc;
use uap_hub_proto::role::hub::{
    Config, Event, Hub, Inbound, Input, Job, JobEvent, Outbound, Output,
};
use uap_hub_proto::wire::{
    AgentRegistration, ListenRequest, Payload, SessionAcceptance, listen_request, listen_response,
};
use ubos_common::id::IdSource;
use ubos_common::time::{Mono, Now, Timestamp};

/// What a run has seen.
struct World {
    hub: Hub,
    now: Now,
    opened: u64,
    /// Calls that are open, with what they are for.
    open: BTreeMap<StreamId, Rpc>,
    agents: Vec<String>,
    sessions: Vec<String>,
    /// Jobs, and whether they have ended.
    jobs: BTreeMap<JobId, bool>,
    is_closed: bool,
}

/// Bytes choose what happens, one thing after the other.
pub fn check(bytes: &[u8]) {
    let config = Config::default()
        .with_prepare(bytes.len().is_multiple_of(2))
        .with_max_jobs(8)
        .with_max_agents(4)
        .with_max_sessions_per_agent(2)
        .with_max_remembered(2);
    let mut world = World {
        hub: Hub::new(config, IdSource::seeded(1)).expect("a configuration that works"),
        now: Now::new(Mono::ZERO, Timestamp::EPOCH),
        opened: 0,
        open: BTreeMap::new(),
        agents: Vec::new(),
        sessions: Vec::new(),
        jobs: BTreeMap::new(),
        is_closed: false,
    };
    let mut u = Unstructured::new(bytes);
    for _ in 0..400 {
        if u.is_empty() || world.step(&mut u).is_err() {
            break;
        }
        world.drain();
    }
    world.come_to_rest();
}

impl World {
    fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        match u.int_in_range(0..=11)? {
            0 => {
                let skills = [Skill::test("echo"), Skill::translation("upper")];
                let capabilities = skills.into_iter().map(Into::into).collect();
                let registration = AgentRegistration {
                    display_name: String::new(),
                    capabilities,
                };
                let answer = self.hub.register(self.now, registration);
                self.agents.extend(answer.map(|answer| answer.client_id));
            }
            1 => self.submit(u)?,
            2 => {
                let key = choose(u, &self.agents)?;
                self.open(Rpc::Listen, key);
            }
            3 => {
                let key = choose(u, &self.sessions)?;
                let rpc = *u.choose(&[Rpc::Execute, Rpc::Translate])?;
                self.open(rpc, key);
            }
            4 | 5 => self.answer(u)?,
            6 | 7 => self.report(u)?,
            8 => {
                let stream = self.stream(u)?;
                self.open.remove(&stream);
                let input = match u.arbitrary()? {
                    true => Input::HalfClosed { stream },
                    false => Input::Reset {
                        stream,
                        reason: "lost".to_owned(),
                    },
                };
                // A hub that is shut down says so.
                let _ = self.hub.handle_input(self.now, input);
            }
            9 => {
                let jobs: Vec<_> = self.jobs.keys().copied().collect();
                if let Ok(job) = u.choose(&jobs) {
                    let _ = self.hub.cancel(self.now, *job);
                }
            }
            10 => {
                let session = SessionId::from(choose(u, &self.sessions)?.unwrap_or_default());
                let done = match u.arbitrary()? {
                    true => Ok(()),
                    false => Err("no room".to_owned()),
                };
                let _ = self.hub.prepared(self.now, &session, done);
            }
            _ => self.pass(Duration::from_millis(u.int_in_range(0..=40_000)?)),
        }
        if u.ratio(1, 200)? {
            self.hub.shutdown(self.now, Duration::from_secs(1));
        }
        Ok(())
    }

    fn submit(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let payloads = vec![Payload::arbitrary(u)?];
        let mut job = match u.arbitrary()? {
            true => Job::test("echo", payloads),
            false => Job::translation("upper", payloads),
        };
        if u.ratio(1, 4)? {
            let agent = choose(u, &self.agents)?.unwrap_or_default();
            job = job.with_agent(agent.into());
        }
        if let Ok(job) = self.hub.submit(self.now, job) {
            assert!(self.jobs.insert(job, false).is_none(), "a fresh name");
        }
        Ok(())
    }

    fn open(&mut self, rpc: Rpc, key: Option<String>) {
        self.opened += 1;
        let stream = StreamId(self.opened);
        self.open.insert(stream, rpc);
        let key = key.as_deref();
        let opened = self.hub.handle_input(
            self.now,
            Input::Opened {
                stream,
                rpc,
                key,
                identity: None,
                resume: None,
            },
        );
        assert!(opened.is_ok() || self.hub.is_closed());
    }

    fn stream(&self, u: &mut Unstructured<'_>) -> Result<StreamId> {
        Ok(StreamId(u.int_in_range(0..=self.opened + 1)?))
    }

    fn answer(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let stream = self.stream(u)?;
        let answer = SessionAcceptance {
            session_id: choose(u, &self.sessions)?.unwrap_or_default(),
            accepted: u.ratio(3, 4)?,
            reason: String::new(),
        };
        let event = Some(listen_request::Event::SessionAcceptance(answer));
        let message = match u.ratio(1, 8)? {
            true => ListenRequest::arbitrary(u)?,
            false => ListenRequest { event },
        };
        self.say(stream, Inbound::Listen(message));
        Ok(())
    }

    fn report(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let stream = self.stream(u)?;
        let message = match u.arbitrary()? {
            true => Inbound::Test(u.arbitrary()?),
            false => Inbound::Translation(u.arbitrary()?),
        };
        self.say(stream, message);
        Ok(())
    }

    fn say(&mut self, stream: StreamId, message: Inbound) {
        let told = self
            .hub
            .handle_input(self.now, Input::Message { stream, message });
        assert!(told.is_ok() || self.hub.is_closed());
    }

    fn pass(&mut self, span: Duration) {
        let end = self.now.mono.saturating_add(span);
        while let Some(next) = self.hub.poll_timeout().filter(|next| *next <= end) {
            self.now = self.now.plus(next.saturating_since(self.now.mono));
            self.hub.handle_timeout(self.now);
            self.drain();
        }
        self.now = self.now.plus(end.saturating_since(self.now.mono));
    }

    fn drain(&mut self) {
        while let Some(output) = self.hub.poll_output() {
            assert!(!self.is_closed, "nothing follows the end");
            match output {
                Output::Send { stream, message } => {
                    let rpc = self.open.get(&stream).expect("sent on an open call");
                    match (rpc, message) {
                        (Rpc::Listen, Outbound::Listen(message)) => {
                            if let Some(listen_response::Event::SessionProposal(offer)) =
                                message.event
                            {
                                self.sessions.push(offer.session_id);
                            }
                        }
                        (Rpc::Execute, Outbound::Test(_))
                        | (Rpc::Translate, Outbound::Translation(_)) => {}
                        (rpc, message) => panic!("{message:?} on {rpc:?}"),
                    }
                }
                // A driver tells a lost call in its own time: its end may cross that.
                Output::End { stream, .. } => drop(self.open.remove(&stream)),
                Output::Event(Event::Job { job, event }) => {
                    let has_ended = self.jobs.entry(job).or_default();
                    assert!(!*has_ended, "{event:?} after the end");
                    *has_ended = matches!(event, JobEvent::Ended(_));
                }
                Output::Event(Event::Closed) => self.is_closed = true,
                _ => {}
            }
        }
    }

    /// Everybody leaves, and all waits end.
    fn come_to_rest(&mut self) {
        self.drain();
        while let Some((stream, _)) = self.open.pop_first() {
            let reason = "over".to_owned();
            let _ = self
                .hub
                .handle_input(self.now, Input::Reset { stream, reason });
            self.drain();
        }
        for session in core::mem::take(&mut self.sessions) {
            let _ = self
                .hub
                .prepared(self.now, &session.into(), Err("over".to_owned()));
            self.drain();
        }
        self.pass(Duration::from_secs(3600));
        assert!(
            self.jobs.values().all(|has_ended| *has_ended),
            "a job was lost"
        );
        assert_eq!(self.hub.view().counts().jobs, 0);
        let mut agents = self.hub.view().agents();
        assert!(agents.all(|agent| agent.load == 0 && !agent.is_available));
    }
}

/// One of the names, sometimes one of nobody, sometimes none.
fn choose(u: &mut Unstructured<'_>, names: &[String]) -> Result<Option<String>> {
    Ok(match u.int_in_range(0..=9)? {
        0 => None,
        1 => Some("nobody".to_owned()),
        _ => u.choose(names).ok().cloned(),
    })
}
