//! Agents in memory, on virtual time: ours, and ours with one clause broken.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use prost::Message as _;
use ubos_common::time::{Mono, Now, Timestamp};

use super::{AgentPeer, Did};
use crate::{
    capability::{Kind, Skill},
    id::StreamId,
    message::JobResult,
    role::{
        Rpc,
        agent::{self, Config, FleetAgent, Input, Output},
        hub::{Inbound, Outbound},
    },
    state::State,
    status::Status,
    wire::{
        ListenRequest, ListenResponse, SessionAcceptance, TestResponse, TestStatus, listen_request,
        listen_response, test_response,
    },
};

/// The clause that a twin breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Breach {
    RegistersNothing,
    SaysNothing,
    OtherClientId,
    OtherSessionId,
    OpensAtOnce,
    AnswersTwice,
    AcceptsAll,
    OpensForNobody,
    WaitsForJob,
    GoesBack,
    OneAtATime,
    SmallMessages,
    ResultOfNothing,
    NeverHalfCloses,
    DropsCall,
    RetriesAtOnce,
    RetriesAfterOk,
}

/// This crate's agent, in memory, with a handler that is done at once.
#[derive(Debug)]
pub struct Reference {
    agent: FleetAgent,
    now: Now,
    did: VecDeque<Did>,
    attempt: u64,
    rpcs: BTreeMap<StreamId, Rpc>,
    breach: Option<Breach>,
    /// What is kept back until the job comes.
    held: Vec<Did>,
}

impl Default for Reference {
    fn default() -> Self {
        Self::new()
    }
}

impl Reference {
    /// An agent that runs tests of one type.
    #[must_use]
    pub fn new() -> Self {
        Self::made(None)
    }

    pub(super) fn breaking(breach: Breach) -> Self {
        Self::made(Some(breach))
    }

    fn made(breach: Option<Breach>) -> Self {
        let mut config = Config::default()
            .name("reference".to_owned())
            .capabilities(vec![Skill::test("echo").into()]);
        if breach == Some(Breach::RetriesAtOnce) {
            config = config.first_retry(Duration::from_millis(1));
        }
        let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
        #[expect(clippy::expect_used, reason = "one capability with a name")]
        let mut agent = FleetAgent::new(config).expect("a good registration");
        agent.start(now);
        let mut twin = Self {
            agent,
            now,
            did: VecDeque::new(),
            attempt: 0,
            rpcs: BTreeMap::new(),
            breach,
            held: Vec::new(),
        };
        twin.drain();
        twin
    }

    fn breaks(&self, breach: Breach) -> bool {
        self.breach == Some(breach)
    }

    fn input(&mut self, input: Input) {
        // The twin never leaves.
        let _ = self.agent.handle_input(self.now, input);
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(output) = self.agent.poll_output() {
            match output {
                Output::Register {
                    attempt,
                    mut registration,
                } => {
                    self.attempt = attempt;
                    if self.breaks(Breach::RegistersNothing) {
                        registration
                            .capabilities
                            .push(crate::wire::Capability::default());
                    }
                    self.did.push_back(Did::Registers(registration));
                }
                Output::Open { stream, rpc, key } => self.opens(stream, rpc, key),
                Output::Send { stream, message } => self.says(stream, message),
                Output::HalfClose { stream } => {
                    if !self.breaks(Breach::NeverHalfCloses) {
                        self.did.push_back(Did::HalfCloses(stream));
                    }
                    if self.breaks(Breach::DropsCall) {
                        self.did.push_back(Did::Resets(stream));
                    }
                }
                Output::Drop { stream } => self.did.push_back(Did::Resets(stream)),
                Output::Run { session, .. } => {
                    let result = JobResult::bare(Kind::Test, State::Completed, "done");
                    // The session has just begun.
                    let _ = self.agent.finish(self.now, &session, result);
                }
                Output::Stop { .. } | Output::Event(_) => {}
            }
        }
    }

    fn opens(&mut self, stream: StreamId, rpc: Rpc, mut key: String) {
        match (self.breach, rpc) {
            (Some(Breach::OtherClientId), Rpc::Listen)
            | (Some(Breach::OtherSessionId), Rpc::Execute) => key.push('x'),
            (Some(Breach::OneAtATime), Rpc::Execute)
                if self.rpcs.values().any(|open| *open == Rpc::Execute) =>
            {
                return;
            }
            _ => {}
        }
        self.rpcs.insert(stream, rpc);
        let key = Some(key);
        self.did.push_back(Did::Opens { stream, rpc, key });
    }

    fn says(&mut self, stream: StreamId, message: agent::Outbound) {
        match message {
            agent::Outbound::Listen(message) => self.says_on_listen(stream, message),
            agent::Outbound::Test(message) => self.reports(stream, message),
            agent::Outbound::Translation(message) => {
                self.did
                    .push_back(Did::Says(stream, Inbound::Translation(message)));
            }
        }
    }

    fn says_on_listen(&mut self, stream: StreamId, mut message: ListenRequest) {
        match (self.breach, &mut message.event) {
            (Some(Breach::SaysNothing), Some(listen_request::Event::Ready(()))) => {
                message.event = None;
            }
            (Some(Breach::AcceptsAll), Some(listen_request::Event::SessionAcceptance(answer))) => {
                answer.accepted = true;
            }
            _ => {}
        }
        let said = Did::Says(stream, Inbound::Listen(message.clone()));
        self.did.push_back(said.clone());
        let Some(listen_request::Event::SessionAcceptance(answer)) = message.event else {
            return;
        };
        if self.breaks(Breach::AnswersTwice) && answer.accepted {
            self.did.push_back(said);
        }
        if self.breaks(Breach::OpensAtOnce) && answer.accepted {
            self.invents_stream(&answer);
        }
    }

    fn invents_stream(&mut self, answer: &SessionAcceptance) {
        self.did.push_back(Did::Opens {
            stream: StreamId(1_000),
            rpc: Rpc::Execute,
            key: Some(answer.session_id.clone()),
        });
    }

    fn reports(&mut self, stream: StreamId, mut message: TestResponse) {
        if !self.rpcs.contains_key(&stream) {
            return;
        }
        let is_result = matches!(message.event, Some(test_response::Event::Result(_)));
        if self.breaks(Breach::GoesBack) && is_result {
            let status = TestStatus {
                state: State::Acknowledged.to_wire(Kind::Test),
                message: String::new(),
            };
            let event = Some(test_response::Event::Status(status));
            let back = TestResponse {
                timestamp: None,
                event,
            };
            self.did.push_back(Did::Says(stream, Inbound::Test(back)));
        }
        if self.breaks(Breach::ResultOfNothing)
            && let Some(test_response::Event::Result(result)) = &mut message.event
        {
            result.status = None;
        }
        let said = Did::Says(stream, Inbound::Test(message));
        if self.breaks(Breach::WaitsForJob) && !is_result {
            self.held.push(said);
        } else {
            self.did.extend(self.held.drain(..));
            self.did.push_back(said);
        }
    }
}

impl AgentPeer for Reference {
    fn next(&mut self, patience: Duration) -> Option<Did> {
        let until = self.now.mono.saturating_add(patience);
        loop {
            if let Some(did) = self.did.pop_front() {
                return Some(did);
            }
            let next = self.agent.poll_timeout().filter(|next| *next <= until);
            let to = next.unwrap_or(until);
            self.now = self.now.plus(to.saturating_since(self.now.mono));
            next?;
            self.agent.handle_timeout(self.now);
            self.drain();
        }
    }

    fn answer(&mut self, answer: Result<String, Status>) {
        let attempt = self.attempt;
        self.input(match answer {
            Ok(client_id) => Input::Registered { attempt, client_id },
            Err(status) => Input::RegisterFailed {
                attempt,
                reason: status.message,
            },
        });
    }

    fn send(&mut self, stream: StreamId, message: Outbound) {
        if let Outbound::Listen(ListenResponse {
            event: Some(listen_response::Event::SessionReady(ready)),
        }) = &message
            && self.breaks(Breach::OpensForNobody)
            && ready.session_id == "JOB-nobody"
        {
            let session_id = ready.session_id.clone();
            return self.invents_stream(&SessionAcceptance {
                session_id,
                accepted: true,
                reason: String::new(),
            });
        }
        let message = match message {
            Outbound::Listen(message) => agent::Inbound::Listen(message),
            Outbound::Test(message) => {
                if self.breaks(Breach::SmallMessages) && message.encoded_len() > 4 << 20 {
                    return self.did.push_back(Did::Resets(stream));
                }
                agent::Inbound::Test(message)
            }
            Outbound::Translation(message) => agent::Inbound::Translation(message),
        };
        self.input(Input::Message { stream, message });
    }

    fn end(&mut self, stream: StreamId, status: Status) {
        let is_listen = self.rpcs.remove(&stream) == Some(Rpc::Listen);
        let hot = self.breaks(Breach::RetriesAfterOk)
            && is_listen
            && status.code == crate::status::Code::Ok;
        self.input(Input::Ended { stream, status });
        if hot && let Some(next) = self.agent.poll_timeout() {
            // The machine's clock goes on to its retry, the twin's does not.
            let late = self.now.plus(next.saturating_since(self.now.mono));
            self.agent.handle_timeout(late);
            self.drain();
        }
    }

    fn elapsed(&self) -> Duration {
        self.now.mono.saturating_since(Mono::ZERO)
    }
}
