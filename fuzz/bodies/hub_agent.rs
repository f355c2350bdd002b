//! The fleet agent under any order of hubs' words, ends and commands: it sends on open calls alone, runs and
//! stops each handler once, and nothing follows its end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use arbitrary::{Arbitrary as _, Result, Unstructured};
use uap_hub_proto::capability::{Kind, Skill};
use uap_hub_proto::id::{SessionId, StreamId};
use uap_hub_proto::message::JobResult;
use uap_hub_proto::role::Rpc;
use uap_hub_proto::role::agent::{Config, Event, FleetAgent, Inbound, Input, Outbound, Output};
use uap_hub_proto::state::State;
use uap_hub_proto::status::{Code, Status};
use uap_hub_proto::wire::{
    ListenResponse, SessionProposal, SessionReady, Telemetry, TestProposalDetails, listen_response,
    session_proposal::Details,
};
use ubos_common::id::IdSource;
use ubos_common::time::{Mono, Now, Timestamp};

/// What a run has seen.
struct World {
    agent: FleetAgent,
    now: Now,
    attempt: u64,
    opened: u64,
    /// Calls that are open, and whether more may be sent.
    open: BTreeMap<StreamId, (Rpc, bool)>,
    running: BTreeSet<SessionId>,
    is_closed: bool,
}

/// Bytes choose what happens, one thing after the other.
pub fn check(bytes: &[u8]) {
    let config = Config::default()
        .with_capabilities(vec![
            Skill::test("echo").into(),
            Skill::translation("upper").into(),
        ])
        .with_max_sessions(2)
        .with_resume(bytes.len().is_multiple_of(2));
    let mut world = World {
        agent: FleetAgent::new(config, IdSource::seeded(1)).expect("good capabilities"),
        now: Now::new(Mono::ZERO, Timestamp::EPOCH),
        attempt: 0,
        opened: 0,
        open: BTreeMap::new(),
        running: BTreeSet::new(),
        is_closed: false,
    };
    world.agent.start(world.now);
    world.drain();
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
        match u.int_in_range(0..=9)? {
            0 => {
                let attempt = self.attempt.saturating_sub(u.int_in_range(0..=1)?);
                let input = match u.ratio(3, 4)? {
                    true => Input::Registered {
                        attempt,
                        client_id: "id".to_owned(),
                    },
                    false => Input::RegisterFailed {
                        attempt,
                        reason: "down".to_owned(),
                    },
                };
                self.input(input);
            }
            1..=3 => self.hub_says(u)?,
            4 => {
                let message = match u.arbitrary()? {
                    true => Inbound::Test(u.arbitrary()?),
                    false => Inbound::Translation(u.arbitrary()?),
                };
                let stream = self.stream(u)?;
                self.input(Input::Message { stream, message });
            }
            5 => {
                let stream = self.stream(u)?;
                let code =
                    *u.choose(&[Code::Ok, Code::Unavailable, Code::NotFound, Code::Aborted])?;
                self.open.remove(&stream);
                self.input(Input::Ended {
                    stream,
                    status: Status::new(code, "over"),
                });
            }
            6 | 7 => self.command(u)?,
            _ => self.pass(Duration::from_millis(u.int_in_range(0..=70_000)?)),
        }
        if u.ratio(1, 100)? {
            self.agent.shutdown(self.now, Duration::from_secs(1));
        }
        Ok(())
    }

    fn input(&mut self, input: Input) {
        let told = self.agent.handle_input(self.now, input);
        assert_eq!(told.is_err(), self.is_closed);
    }

    fn stream(&self, u: &mut Unstructured<'_>) -> Result<StreamId> {
        Ok(StreamId(u.int_in_range(0..=self.opened + 1)?))
    }

    fn hub_says(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let session_id = (*u.choose(&["JOB-1", "JOB-2", "JOB-3", ""])?).to_owned();
        let event = match u.int_in_range(0..=4)? {
            0 => ListenResponse::arbitrary(u)?.event,
            1 | 2 => Some(listen_response::Event::SessionProposal(SessionProposal {
                session_id,
                details: Some(Details::Test(TestProposalDetails {
                    r#type: "echo".to_owned(),
                })),
            })),
            _ => Some(listen_response::Event::SessionReady(SessionReady {
                session_id,
            })),
        };
        let mut listens = self.open.iter().filter(|(_, (rpc, _))| *rpc == Rpc::Listen);
        let stream = match listens.next_back() {
            Some((stream, _)) => *stream,
            None => self.stream(u)?,
        };
        let message = Inbound::Listen(ListenResponse { event });
        self.input(Input::Message { stream, message });
        Ok(())
    }

    fn command(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let running: Vec<_> = self.running.iter().cloned().collect();
        let session = match u.choose(&running) {
            Ok(session) => session.clone(),
            Err(_) => SessionId::from("JOB-1"),
        };
        let states = [
            State::Acknowledged,
            State::Running,
            State::Completed,
            State::Invalid,
        ];
        let state = *u.choose(&states)?;
        let kind = *u.choose(&[Kind::Test, Kind::Translation])?;
        let refused = match u.int_in_range(0..=2)? {
            0 => self.agent.status(self.now, &session, state, "on").is_err(),
            1 => self
                .agent
                .telemetry(self.now, &session, Telemetry::arbitrary(u)?)
                .is_err(),
            _ => {
                let result = JobResult::bare(kind, state, "done");
                let refused = self.agent.finish(self.now, &session, result).is_err();
                if !refused {
                    self.running.remove(&session);
                }
                refused
            }
        };
        assert!(refused || running.contains(&session));
        Ok(())
    }

    fn pass(&mut self, span: Duration) {
        let end = self.now.mono.saturating_add(span);
        while let Some(next) = self.agent.poll_timeout().filter(|next| *next <= end) {
            self.now = self.now.plus(next.saturating_since(self.now.mono));
            self.agent.handle_timeout(self.now);
            self.drain();
        }
        self.now = self.now.plus(end.saturating_since(self.now.mono));
    }

    fn drain(&mut self) {
        while let Some(output) = self.agent.poll_output() {
            assert!(!self.is_closed, "nothing follows the end");
            match output {
                Output::Register { attempt, .. } => {
                    assert!(attempt > self.attempt);
                    self.attempt = attempt;
                }
                Output::Open { stream, rpc, .. } => {
                    assert!(stream.0 > self.opened, "a fresh name");
                    self.opened = stream.0;
                    self.open.insert(stream, (rpc, true));
                }
                Output::Send { stream, message } => {
                    let rpc = match message {
                        Outbound::Listen(_) => Rpc::Listen,
                        Outbound::Test(_) => Rpc::Execute,
                        Outbound::Translation(_) => Rpc::Translate,
                    };
                    assert_eq!(self.open.get(&stream), Some(&(rpc, true)));
                }
                Output::HalfClose { stream } => {
                    let call = self.open.get_mut(&stream).expect("half-closed once open");
                    assert!(core::mem::replace(&mut call.1, false), "and once");
                }
                Output::Drop { stream } => {
                    self.open.remove(&stream).expect("dropped once open");
                }
                Output::Run { session, .. } => assert!(self.running.insert(session), "run once"),
                Output::Stop { session } => assert!(self.running.remove(&session), "stopped once"),
                Output::Event(Event::Closed) => self.is_closed = true,
                _ => {}
            }
        }
    }

    /// It leaves, whatever the hub does.
    fn come_to_rest(&mut self) {
        self.drain();
        self.agent.shutdown(self.now, Duration::from_secs(1));
        self.drain();
        self.pass(Duration::from_secs(600));
        assert!(self.is_closed && self.agent.is_closed(), "it left");
        assert!(self.running.is_empty(), "no handler is left");
        assert_eq!(self.agent.poll_timeout(), None);
    }
}
