//! Hubs in memory, on virtual time: ours, and ours with one clause broken.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use prost::Message as _;
use ubos_common::{
    id::IdSource,
    time::{Mono, Now, Timestamp},
};

use super::{HubPeer, Said};
use crate::{
    capability::Skill,
    id::StreamId,
    role::{
        Rpc,
        agent::{Inbound, Outbound},
        hub::{self, Config, Hub, Input, Job, Output},
    },
    status::{Code, Status},
    wire::{
        AgentRegistration, ListenResponse, Payload, SessionProposal, SessionReady,
        TestProposalDetails, listen_request, listen_response::Event, session_proposal::Details,
    },
};

/// The clause that a twin breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Breach {
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

/// This crate's hub, in memory.
#[derive(Debug)]
pub struct Reference {
    hub: Hub,
    now: Now,
    opened: u64,
    calls: BTreeMap<StreamId, Call>,
    breach: Option<Breach>,
    /// The first id that was given, and how many were.
    ids: (String, usize),
    /// Sessions that ended on the agent's word.
    results: usize,
}

#[derive(Debug)]
struct Call {
    rpc: Rpc,
    key: String,
    said: VecDeque<Said>,
    /// What is kept back until the agent says something.
    held: VecDeque<Said>,
    has_spoken: bool,
    is_over: bool,
}

impl Default for Reference {
    fn default() -> Self {
        Self::new()
    }
}

impl Reference {
    /// A hub without agents and jobs.
    #[must_use]
    pub fn new() -> Self {
        Self {
            hub: Hub::new(Config::default().ids(IdSource::seeded(1))),
            now: Now::new(Mono::ZERO, Timestamp::EPOCH),
            opened: 0,
            calls: BTreeMap::new(),
            breach: None,
            ids: (String::new(), 0),
            results: 0,
        }
    }

    pub(super) fn breaking(breach: Breach) -> Self {
        Self {
            breach: Some(breach),
            ..Self::new()
        }
    }

    fn breaks(&self, breach: Breach) -> bool {
        self.breach == Some(breach)
    }

    fn input(&mut self, input: Input<'_>) {
        // A stream name is new each time, and the hub does not shut down.
        let _ = self.hub.handle_input(self.now, input);
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(output) = self.hub.poll_output() {
            let (stream, said) = match output {
                Output::Send { stream, message } => (stream, Said::Message(said(message))),
                Output::End { stream, status } => (stream, Said::Ended(status)),
                _ => continue,
            };
            self.hear(stream, said);
        }
    }

    /// What the hub says, as the twin tells it.
    fn hear(&mut self, stream: StreamId, mut said: Said) {
        let breach = self.breach;
        let Some(call) = self.calls.get_mut(&stream).filter(|call| !call.is_over) else {
            return;
        };
        match (breach, &mut said) {
            (Some(Breach::EndsReplacedUnknown), Said::Ended(status))
                if status.code == Code::Aborted =>
            {
                status.code = Code::Unknown;
            }
            (Some(Breach::EndsReplacedOk), Said::Ended(status)) if status.code == Code::Aborted => {
                *status = Status::ok();
            }
            (Some(Breach::ListensToAll), Said::Ended(status))
                if call.rpc == Rpc::Listen && status.code == Code::NotFound =>
            {
                return;
            }
            (Some(Breach::WrongRefusal), Said::Ended(status))
                if call.rpc != Rpc::Listen && status.code == Code::InvalidArgument =>
            {
                status.code = Code::NotFound;
            }
            (Some(Breach::AnyKind), Said::Ended(status))
                if call.rpc == Rpc::Translate && status.code == Code::FailedPrecondition =>
            {
                status.code = Code::Unknown;
            }
            (Some(Breach::SecondStream), Said::Ended(status))
                if status.message == "the session has a stream" =>
            {
                said = Said::Message(Inbound::Test(crate::wire::TestInit::default()));
            }
            (Some(Breach::OpensEarly), Said::Ended(status))
                if status.message == "the session is not ready" =>
            {
                said = Said::Message(Inbound::Test(crate::wire::TestInit::default()));
            }
            (Some(Breach::NeverEnds), Said::Ended(status))
                if call.rpc == Rpc::Execute && status.code == Code::Ok =>
            {
                return;
            }
            (Some(Breach::OtherType), Said::Message(Inbound::Test(init))) => {
                init.test_type.push_str(" of another kind");
            }
            (Some(Breach::ReadyUnasked), Said::Message(Inbound::Listen(message))) => {
                let unasked = match &message.event {
                    Some(Event::SessionProposal(proposal)) => Some(proposal.session_id.clone()),
                    _ => None,
                };
                if let Some(session_id) = unasked {
                    call.said.push_back(said);
                    let event = Some(Event::SessionReady(SessionReady { session_id }));
                    let ready = Inbound::Listen(ListenResponse { event });
                    call.said.push_back(Said::Message(ready));
                    return;
                }
            }
            (
                Some(Breach::KeepsRefused | Breach::ForgetsLost),
                Said::Message(Inbound::Listen(_)),
            ) if self.ids.1 > 1 && call.key != self.ids.0 => {
                return;
            }
            (Some(Breach::SendsTwice), Said::Message(Inbound::Test(_))) => {
                call.said.push_back(said.clone());
            }
            (Some(Breach::WaitsForReady), Said::Message(Inbound::Listen(_)))
            | (Some(Breach::WaitsForFirst), Said::Message(Inbound::Test(_)))
                if !call.has_spoken =>
            {
                call.held.push_back(said);
                return;
            }
            _ => {}
        }
        call.said.push_back(said);
    }

    /// Ends a call as a hub does that cannot bear what it heard.
    fn end(&mut self, stream: StreamId, code: Code) {
        if let Some(call) = self.calls.get_mut(&stream) {
            call.said
                .push_back(Said::Ended(Status::new(code, "that is not to be borne")));
            call.is_over = true;
        }
    }

    /// What an agent says, as the twin takes it; whether it told the hub nothing of it.
    fn minds(&mut self, stream: StreamId, message: &Outbound) -> bool {
        let size = match message {
            Outbound::Listen(message) => message.encoded_len(),
            Outbound::Test(message) => message.encoded_len(),
            Outbound::Translation(message) => message.encoded_len(),
        };
        let code = match (self.breach, message) {
            (Some(Breach::SmallMessages), _) if size > 4 << 20 => Code::ResourceExhausted,
            (Some(Breach::EndsOnEmpty), Outbound::Test(message)) if message.event.is_none() => {
                Code::InvalidArgument
            }
            (Some(Breach::EndsOnLate), Outbound::Test(_)) if self.results > 0 => {
                Code::FailedPrecondition
            }
            (Some(Breach::EndsOnStray), Outbound::Listen(message)) => match &message.event {
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

    /// Lets an answer count as that of the agent whom the hub asked.
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

impl HubPeer for Reference {
    fn register(&mut self, mut registration: AgentRegistration) -> Result<String, Status> {
        let is_empty = registration.capabilities.is_empty() && registration.display_name.is_empty();
        if self.breaks(Breach::RefusesEmpty) && is_empty {
            return Err(Status::new(Code::InvalidArgument, "say who you are"));
        }
        if self.breaks(Breach::TakesAnything) {
            registration.capabilities.retain(|one| {
                crate::validate::Validate::validate(&AgentRegistration {
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
        if self.breaks(Breach::OneIdForAll) {
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
            said: VecDeque::new(),
            held: VecDeque::new(),
            has_spoken: false,
            is_over: false,
        };
        self.calls.insert(stream, call);
        self.input(Input::Opened { stream, rpc, key });
        if self.breaks(Breach::AsksAnybody) && rpc == Rpc::Listen && self.hub.job_count() > 0 {
            let proposal = SessionProposal {
                session_id: "JOB-for-anybody".to_owned(),
                details: Some(Details::Test(TestProposalDetails {
                    r#type: self.skill().name().to_owned(),
                })),
            };
            let event = Some(Event::SessionProposal(proposal));
            self.hear(
                stream,
                Said::Message(Inbound::Listen(ListenResponse { event })),
            );
        }
        stream
    }

    fn send(&mut self, stream: StreamId, message: Outbound) {
        let held = match self.calls.get_mut(&stream) {
            Some(call) if !call.is_over => {
                call.has_spoken = true;
                std::mem::take(&mut call.held)
            }
            _ => return,
        };
        if let Some(call) = self.calls.get_mut(&stream) {
            call.said.extend(held);
        }
        if self.minds(stream, &message) {
            return;
        }
        let stream = match self.breaks(Breach::TakesForeign) {
            true => self.on_behalf(stream, &message),
            false => stream,
        };
        let message = match message {
            Outbound::Listen(message) => hub::Inbound::Listen(message),
            Outbound::Test(message) => {
                let event = message.event.as_ref();
                let ends = event.is_some_and(|event| {
                    matches!(event, crate::wire::test_response::Event::Result(_))
                });
                self.results += usize::from(ends);
                hub::Inbound::Test(message)
            }
            Outbound::Translation(message) => hub::Inbound::Translation(message),
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

    fn next(&mut self, stream: StreamId, patience: Duration) -> Option<Said> {
        let until = self.now.mono.saturating_add(patience);
        loop {
            let call = self.calls.get_mut(&stream)?;
            if let Some(said) = call.said.pop_front() {
                return Some(said);
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
        let job = Job::test(self.skill().name(), vec![Payload::new("text")]);
        // An empty hub has room for a job.
        let _ = self.hub.submit(self.now, job);
        self.drain();
    }

    fn skill(&self) -> Skill {
        Skill::test("echo")
    }
}

fn said(message: hub::Outbound) -> Inbound {
    match message {
        hub::Outbound::Listen(message) => Inbound::Listen(message),
        hub::Outbound::Test(message) => Inbound::Test(message),
        hub::Outbound::Translation(message) => Inbound::Translation(message),
    }
}
