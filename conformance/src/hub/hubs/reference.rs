//! Hubs in memory, on virtual time: the reference, and its mutants.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use prost::Message as _;
use ubos_common::{
    id::IdSource,
    time::{Mono, Now, Timestamp},
};

use super::{HubAction, HubPeer};
use uap_hub_proto::{
    capability::Skill,
    id::StreamId,
    role::{
        Rpc,
        agent::{Inbound, Outbound},
        hub::{self, Config, Hub, Input, Job, Output},
    },
    status::{Code, Status},
    wire::{
        AgentRegistration, ListenResponse, Payload, SessionProposal, SessionReady, TestInit,
        TestProposalDetails, listen_request, listen_response::Event, session_proposal::Details,
    },
};

/// How a mutant differs from the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutation {
    OneIdForAll,
    RefusesEmpty,
    TakesAnything,
    ListensToAll,
    WrongRefusal,
    AnyKind,
    SecondStream,
    EndsReplacedUnknown,
    EndsReplacedOk,
    ReadyUnasked,
    KeepsRefused,
    WaitsForReady,
    AsksAnybody,
    EndsOnStray,
    TakesForeign,
    ForgetsLost,
    OpensEarly,
    WaitsForFirst,
    SendsTwice,
    EndsOnEmpty,
    EndsOnLate,
    SmallMessages,
    NeverEnds,
    OtherType,
}

/// The hub of `uap-hub-proto`, in memory.
#[derive(Debug)]
pub struct HubReference {
    hub: Hub,
    now: Now,
    opened: u64,
    calls: BTreeMap<StreamId, Call>,
    mutation: Option<Mutation>,
    /// The first client id, and the number of registrations.
    ids: (String, usize),
    /// The number of results.
    results: usize,
    /// The skill of its jobs.
    skill: Skill,
}

#[derive(Debug)]
struct Call {
    rpc: Rpc,
    key: String,
    actions: VecDeque<HubAction>,
    /// Actions that are held back until the agent sends a message.
    held: VecDeque<HubAction>,
    has_sent: bool,
    is_over: bool,
}

impl Default for HubReference {
    fn default() -> Self {
        Self::new()
    }
}

impl HubReference {
    /// A hub without agents and jobs.
    #[must_use]
    pub fn new() -> Self {
        #[expect(clippy::expect_used, reason = "the default configuration")]
        let hub = Hub::new(Config::default(), IdSource::seeded(1)).expect("a good configuration");
        Self {
            hub,
            now: Now::new(Mono::ZERO, Timestamp::EPOCH),
            opened: 0,
            calls: BTreeMap::new(),
            mutation: None,
            ids: (String::new(), 0),
            results: 0,
            skill: Skill::test("echo"),
        }
    }

    /// The same with jobs that require another skill.
    #[must_use]
    pub fn with_skill(mut self, skill: Skill) -> Self {
        self.skill = skill;
        self
    }

    pub(super) fn mutated(mutation: Mutation) -> Self {
        Self {
            mutation: Some(mutation),
            ..Self::new()
        }
    }

    fn is_mutated(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    fn input(&mut self, input: Input<'_>) {
        // Each stream id is new, and the hub does not shut down.
        let _ = self.hub.handle_input(self.now, input);
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(output) = self.hub.poll_output() {
            let (stream, action) = match output {
                Output::Send { stream, message } => (stream, HubAction::Sent(inbound(message))),
                Output::End { stream, status } => (stream, HubAction::Ended(status)),
                _ => continue,
            };
            self.act(stream, action);
        }
    }

    /// Records an action of the hub, as the mutant changes it.
    fn act(&mut self, stream: StreamId, mut action: HubAction) {
        let mutation = self.mutation;
        let Some(call) = self.calls.get_mut(&stream).filter(|call| !call.is_over) else {
            return;
        };
        if let HubAction::Ended(status) = &action {
            match changed_end(mutation, call.rpc, status.clone()) {
                Some(changed) => action = changed,
                None => return,
            }
        }
        match (mutation, &mut action) {
            (Some(Mutation::OtherType), HubAction::Sent(Inbound::Test(init))) => {
                init.test_type.push_str(" of another kind");
            }
            (Some(Mutation::OtherType), HubAction::Sent(Inbound::Translation(init))) => {
                init.target_format.push_str(" of another kind");
            }
            (Some(Mutation::ReadyUnasked), HubAction::Sent(Inbound::Listen(message))) => {
                let unasked = match &message.event {
                    Some(Event::SessionProposal(proposal)) => Some(proposal.session_id.clone()),
                    _ => None,
                };
                if let Some(session_id) = unasked {
                    call.actions.push_back(action);
                    let event = Some(Event::SessionReady(SessionReady { session_id }));
                    let ready = Inbound::Listen(ListenResponse { event });
                    call.actions.push_back(HubAction::Sent(ready));
                    return;
                }
            }
            (
                Some(Mutation::KeepsRefused | Mutation::ForgetsLost),
                HubAction::Sent(Inbound::Listen(_)),
            ) if self.ids.1 > 1 && call.key != self.ids.0 => {
                return;
            }
            (
                Some(Mutation::SendsTwice),
                HubAction::Sent(Inbound::Test(_) | Inbound::Translation(_)),
            ) => {
                call.actions.push_back(action.clone());
            }
            (Some(Mutation::WaitsForReady), HubAction::Sent(Inbound::Listen(_)))
            | (
                Some(Mutation::WaitsForFirst),
                HubAction::Sent(Inbound::Test(_) | Inbound::Translation(_)),
            ) if !call.has_sent => {
                call.held.push_back(action);
                return;
            }
            _ => {}
        }
        call.actions.push_back(action);
    }

    /// Ends a call with an error.
    fn end(&mut self, stream: StreamId, code: Code) {
        if let Some(call) = self.calls.get_mut(&stream) {
            call.actions
                .push_back(HubAction::Ended(Status::new(code, "refused by a mutant")));
            call.is_over = true;
        }
    }

    /// Whether the mutant refuses a message; the call has then ended.
    fn refuses(&mut self, stream: StreamId, message: &Outbound) -> bool {
        let size = match message {
            Outbound::Listen(message) => message.encoded_len(),
            Outbound::Test(message) => message.encoded_len(),
            Outbound::Translation(message) => message.encoded_len(),
        };
        let code = match (self.mutation, message) {
            (Some(Mutation::SmallMessages), _) if size > 4 << 20 => Code::ResourceExhausted,
            (Some(Mutation::EndsOnEmpty), Outbound::Test(message)) if message.event.is_none() => {
                Code::InvalidArgument
            }
            (Some(Mutation::EndsOnEmpty), Outbound::Translation(message))
                if message.event.is_none() =>
            {
                Code::InvalidArgument
            }
            (Some(Mutation::EndsOnLate), Outbound::Test(_) | Outbound::Translation(_))
                if self.results > 0 =>
            {
                Code::FailedPrecondition
            }
            (Some(Mutation::EndsOnStray), Outbound::Listen(message)) => match &message.event {
                Some(listen_request::Event::SessionAcceptance(answer))
                    if !answer.session_id.starts_with("JOB-")
                        || answer.session_id == "JOB-nobody" =>
                {
                    Code::InvalidArgument
                }
                _ => return false,
            },
            _ => return false,
        };
        self.end(stream, code);
        true
    }

    /// The stream of the agent that the proposal was made to, so that a foreign answer counts as its own.
    fn on_behalf(&self, stream: StreamId, message: &Outbound) -> StreamId {
        let Outbound::Listen(message) = message else {
            return stream;
        };
        let Some(listen_request::Event::SessionAcceptance(answer)) = &message.event else {
            return stream;
        };
        let asked = |call: &Call| call.rpc == Rpc::Listen && call.key == self.ids.0;
        match self.calls.iter().find(|(_, call)| asked(call)) {
            Some((owner, _)) if answer.session_id != "JOB-nobody" => *owner,
            _ => stream,
        }
    }
}

impl HubPeer for HubReference {
    fn register(&mut self, mut registration: AgentRegistration) -> Result<String, Status> {
        let is_empty = registration.capabilities.is_empty() && registration.display_name.is_empty();
        if self.is_mutated(Mutation::RefusesEmpty) && is_empty {
            return Err(Status::new(
                Code::InvalidArgument,
                "the registration is empty",
            ));
        }
        if self.is_mutated(Mutation::TakesAnything) {
            registration.capabilities.retain(|one| {
                uap_hub_proto::validate::Validate::validate(&AgentRegistration {
                    display_name: String::new(),
                    capabilities: vec![one.clone()],
                })
                .is_valid()
            });
        }
        let answer = self.hub.register(self.now, registration);
        self.drain();
        let mut id = answer.map_err(|error| error.status())?.client_id;
        self.ids.1 += 1;
        if self.ids.0.is_empty() {
            self.ids.0.clone_from(&id);
        }
        if self.is_mutated(Mutation::OneIdForAll) {
            id.clone_from(&self.ids.0);
        }
        Ok(id)
    }

    fn open(&mut self, rpc: Rpc, key: Option<&str>) -> StreamId {
        self.opened += 1;
        let stream = StreamId(self.opened);
        let call = Call {
            rpc,
            key: key.unwrap_or_default().to_owned(),
            actions: VecDeque::new(),
            held: VecDeque::new(),
            has_sent: false,
            is_over: false,
        };
        self.calls.insert(stream, call);
        self.input(Input::Opened {
            stream,
            rpc,
            key,
            identity: None,
            resume: None,
        });
        if self.is_mutated(Mutation::AsksAnybody)
            && rpc == Rpc::Listen
            && self.hub.view().counts().jobs > 0
        {
            let proposal = SessionProposal {
                session_id: "JOB-for-anybody".to_owned(),
                details: Some(Details::Test(TestProposalDetails {
                    r#type: self.skill().name().to_owned(),
                })),
            };
            let event = Some(Event::SessionProposal(proposal));
            self.act(
                stream,
                HubAction::Sent(Inbound::Listen(ListenResponse { event })),
            );
        }
        stream
    }

    fn send(&mut self, stream: StreamId, message: Outbound) {
        let held = match self.calls.get_mut(&stream) {
            Some(call) if !call.is_over => {
                call.has_sent = true;
                std::mem::take(&mut call.held)
            }
            _ => return,
        };
        if let Some(call) = self.calls.get_mut(&stream) {
            call.actions.extend(held);
        }
        if self.refuses(stream, &message) {
            return;
        }
        let stream = match self.is_mutated(Mutation::TakesForeign) {
            true => self.on_behalf(stream, &message),
            false => stream,
        };
        let message = match message {
            Outbound::Listen(message) => hub::Inbound::Listen(message),
            Outbound::Test(message) => {
                let event = message.event.as_ref();
                let ends = event.is_some_and(|event| {
                    matches!(event, uap_hub_proto::wire::test_response::Event::Result(_))
                });
                self.results += usize::from(ends);
                hub::Inbound::Test(message)
            }
            Outbound::Translation(message) => {
                let event = message.event.as_ref();
                let ends = event.is_some_and(|event| {
                    matches!(
                        event,
                        uap_hub_proto::wire::translation_response::Event::Result(_)
                    )
                });
                self.results += usize::from(ends);
                hub::Inbound::Translation(message)
            }
        };
        self.input(Input::Message { stream, message });
    }

    fn half_close(&mut self, stream: StreamId) {
        self.input(Input::HalfClosed { stream });
    }

    fn reset(&mut self, stream: StreamId) {
        let reason = "reset".to_owned();
        self.input(Input::Reset { stream, reason });
    }

    fn next(&mut self, stream: StreamId, timeout: Duration) -> Option<HubAction> {
        let until = self.now.mono.saturating_add(timeout);
        loop {
            let call = self.calls.get_mut(&stream)?;
            if let Some(action) = call.actions.pop_front() {
                return Some(action);
            }
            let next = self.hub.poll_timeout().filter(|next| *next <= until);
            let to = next.unwrap_or(until);
            self.now = self.now.plus(to.saturating_since(self.now.mono));
            next?;
            self.hub.handle_timeout(self.now);
            self.drain();
        }
    }

    fn want_job(&mut self) {
        let job = Job::new(self.skill(), vec![Payload::new("text")]);
        // An empty hub has room for a job.
        let _ = self.hub.submit(self.now, job);
        self.drain();
    }

    fn skill(&self) -> Skill {
        self.skill.clone()
    }
}

fn inbound(message: hub::Outbound) -> Inbound {
    match message {
        hub::Outbound::Listen(message) => Inbound::Listen(message),
        hub::Outbound::Test(message) => Inbound::Test(message),
        hub::Outbound::Translation(message) => Inbound::Translation(message),
    }
}

/// The end of a call, as the mutant changes it; `None` drops it.
fn changed_end(mutation: Option<Mutation>, rpc: Rpc, status: Status) -> Option<HubAction> {
    let other = |code| Some(HubAction::Ended(Status::new(code, status.message.as_str())));
    let job = || Some(HubAction::Sent(Inbound::Test(TestInit::default())));
    match (mutation, status.code) {
        (Some(Mutation::EndsReplacedUnknown), Code::Aborted) => other(Code::Unknown),
        (Some(Mutation::EndsReplacedOk), Code::Aborted) => Some(HubAction::Ended(Status::ok())),
        (Some(Mutation::ListensToAll), Code::NotFound) if rpc == Rpc::Listen => None,
        (Some(Mutation::WrongRefusal), Code::InvalidArgument) if rpc != Rpc::Listen => {
            other(Code::NotFound)
        }
        (Some(Mutation::AnyKind), Code::FailedPrecondition)
            if status.message == "the session is of the other kind" =>
        {
            other(Code::Unknown)
        }
        (Some(Mutation::SecondStream), _) if status.message == "the session has a stream" => job(),
        (Some(Mutation::OpensEarly), _) if status.message == "the session is not ready" => job(),
        (Some(Mutation::NeverEnds), Code::Ok) if rpc != Rpc::Listen => None,
        _ => Some(HubAction::Ended(status)),
    }
}
