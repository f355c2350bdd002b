//! Agents in memory, on virtual time: the reference, and its mutants.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use prost::Message as _;
use ubos_common::id::IdSource;
use ubos_common::time::{Mono, Now, Timestamp};

use super::{AgentAction, AgentPeer};
use uap_hub_proto::{
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

/// How a mutant differs from the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutation {
    EmptyCapability,
    SkipsReady,
    OtherClientId,
    OtherSessionId,
    OpensAtOnce,
    AnswersTwice,
    AcceptsAll,
    OpensUnaccepted,
    WaitsForJob,
    GoesBack,
    OneAtATime,
    SmallMessages,
    ResultWithoutStatus,
    NeverHalfCloses,
    DropsCall,
    RetriesAtOnce,
    RetriesAfterOk,
}

/// The agent of `uap-hub-proto`, in memory, with a handler that finishes at once.
#[derive(Debug)]
pub struct AgentReference {
    agent: FleetAgent,
    now: Now,
    actions: VecDeque<AgentAction>,
    attempt: u64,
    rpcs: BTreeMap<StreamId, Rpc>,
    mutation: Option<Mutation>,
    /// Actions that are held back until the job arrives.
    held: Vec<AgentAction>,
}

impl Default for AgentReference {
    fn default() -> Self {
        Self::new()
    }
}

impl AgentReference {
    /// An agent that runs tests of one type.
    #[must_use]
    pub fn new() -> Self {
        Self::create(None)
    }

    pub(super) fn mutated(mutation: Mutation) -> Self {
        Self::create(Some(mutation))
    }

    fn create(mutation: Option<Mutation>) -> Self {
        let mut config = Config::default()
            .with_name("reference".to_owned())
            .with_capabilities(vec![Skill::test("echo").into()]);
        if mutation == Some(Mutation::RetriesAtOnce) {
            config = config.with_first_retry(Duration::from_millis(1));
        }
        let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
        #[expect(
            clippy::expect_used,
            reason = "the default configuration with one capability"
        )]
        let mut agent = FleetAgent::new(config, IdSource::seeded(1)).expect("a good registration");
        agent.start(now);
        let mut agent_peer = Self {
            agent,
            now,
            actions: VecDeque::new(),
            attempt: 0,
            rpcs: BTreeMap::new(),
            mutation,
            held: Vec::new(),
        };
        agent_peer.drain();
        agent_peer
    }

    fn is_mutated(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    fn input(&mut self, input: Input) {
        // The reference never shuts down.
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
                    if self.is_mutated(Mutation::EmptyCapability) {
                        registration
                            .capabilities
                            .push(uap_hub_proto::wire::Capability::default());
                    }
                    self.actions
                        .push_back(AgentAction::Registered(registration));
                }
                Output::Open {
                    stream, rpc, key, ..
                } => self.opened(stream, rpc, key),
                Output::Send { stream, message } => self.sent(stream, message),
                Output::HalfClose { stream } => {
                    if !self.is_mutated(Mutation::NeverHalfCloses) {
                        self.actions.push_back(AgentAction::HalfClosed(stream));
                    }
                    if self.is_mutated(Mutation::DropsCall) {
                        self.actions.push_back(AgentAction::Reset(stream));
                    }
                }
                Output::Drop { stream } => self.actions.push_back(AgentAction::Reset(stream)),
                Output::Run { session, .. } => {
                    let result = JobResult::bare(Kind::Test, State::Completed, "done");
                    // The session has just begun.
                    let _ = self.agent.finish(self.now, &session, result);
                }
                _ => {}
            }
        }
    }

    fn opened(&mut self, stream: StreamId, rpc: Rpc, mut key: String) {
        match (self.mutation, rpc) {
            (Some(Mutation::OtherClientId), Rpc::Listen)
            | (Some(Mutation::OtherSessionId), Rpc::Execute) => key.push('x'),
            (Some(Mutation::OneAtATime), Rpc::Execute)
                if self.rpcs.values().any(|open| *open == Rpc::Execute) =>
            {
                return;
            }
            _ => {}
        }
        self.rpcs.insert(stream, rpc);
        let key = Some(key);
        self.actions
            .push_back(AgentAction::Opened { stream, rpc, key });
    }

    fn sent(&mut self, stream: StreamId, message: agent::Outbound) {
        match message {
            agent::Outbound::Listen(message) => self.sent_on_listen(stream, message),
            agent::Outbound::Test(message) => self.reported(stream, message),
            agent::Outbound::Translation(message) => {
                self.actions
                    .push_back(AgentAction::Sent(stream, Inbound::Translation(message)));
            }
        }
    }

    fn sent_on_listen(&mut self, stream: StreamId, mut message: ListenRequest) {
        match (self.mutation, &mut message.event) {
            (Some(Mutation::SkipsReady), Some(listen_request::Event::Ready(()))) => {
                message.event = None;
            }
            (
                Some(Mutation::AcceptsAll),
                Some(listen_request::Event::SessionAcceptance(answer)),
            ) => {
                answer.accepted = true;
            }
            _ => {}
        }
        let said = AgentAction::Sent(stream, Inbound::Listen(message.clone()));
        self.actions.push_back(said.clone());
        let Some(listen_request::Event::SessionAcceptance(answer)) = message.event else {
            return;
        };
        if self.is_mutated(Mutation::AnswersTwice) && answer.accepted {
            self.actions.push_back(said);
        }
        if self.is_mutated(Mutation::OpensAtOnce) && answer.accepted {
            self.open_unasked(&answer);
        }
    }

    fn open_unasked(&mut self, answer: &SessionAcceptance) {
        self.actions.push_back(AgentAction::Opened {
            stream: StreamId(1_000),
            rpc: Rpc::Execute,
            key: Some(answer.session_id.clone()),
        });
    }

    fn reported(&mut self, stream: StreamId, mut message: TestResponse) {
        if !self.rpcs.contains_key(&stream) {
            return;
        }
        let is_result = matches!(message.event, Some(test_response::Event::Result(_)));
        if self.is_mutated(Mutation::GoesBack) && is_result {
            let status = TestStatus {
                state: State::Acknowledged.to_wire(Kind::Test),
                message: String::new(),
            };
            let event = Some(test_response::Event::Status(status));
            let back = TestResponse {
                timestamp: None,
                event,
                number: 0,
            };
            self.actions
                .push_back(AgentAction::Sent(stream, Inbound::Test(back)));
        }
        if self.is_mutated(Mutation::ResultWithoutStatus)
            && let Some(test_response::Event::Result(result)) = &mut message.event
        {
            result.status = None;
        }
        let said = AgentAction::Sent(stream, Inbound::Test(message));
        if self.is_mutated(Mutation::WaitsForJob) && !is_result {
            self.held.push(said);
        } else {
            self.actions.extend(self.held.drain(..));
            self.actions.push_back(said);
        }
    }
}

impl AgentPeer for AgentReference {
    fn next(&mut self, timeout: Duration) -> Option<AgentAction> {
        let until = self.now.mono.saturating_add(timeout);
        loop {
            if let Some(action) = self.actions.pop_front() {
                return Some(action);
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
            && self.is_mutated(Mutation::OpensUnaccepted)
            && ready.session_id == "JOB-nobody"
        {
            let session_id = ready.session_id.clone();
            return self.open_unasked(&SessionAcceptance {
                session_id,
                accepted: true,
                reason: String::new(),
            });
        }
        let message = match message {
            Outbound::Listen(message) => agent::Inbound::Listen(message),
            Outbound::Test(message) => {
                if self.is_mutated(Mutation::SmallMessages) && message.encoded_len() > 4 << 20 {
                    return self.actions.push_back(AgentAction::Reset(stream));
                }
                agent::Inbound::Test(message)
            }
            Outbound::Translation(message) => agent::Inbound::Translation(message),
        };
        self.input(Input::Message { stream, message });
    }

    fn end(&mut self, stream: StreamId, status: Status) {
        let is_listen = self.rpcs.remove(&stream) == Some(Rpc::Listen);
        let hot = self.is_mutated(Mutation::RetriesAfterOk)
            && is_listen
            && status.code == uap_hub_proto::status::Code::Ok;
        self.input(Input::Ended { stream, status });
        if hot && let Some(next) = self.agent.poll_timeout() {
            // The clock of the machine runs ahead to its retry, so that it retries at once.
            let late = self.now.plus(next.saturating_since(self.now.mono));
            self.agent.handle_timeout(late);
            self.drain();
        }
    }

    fn elapsed(&self) -> Duration {
        self.now.mono.saturating_since(Mono::ZERO)
    }
}
