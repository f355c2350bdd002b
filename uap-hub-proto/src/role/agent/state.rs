//! The state of the fleet agent.

use std::{collections::HashMap, time::Duration};

use ubos_common::{
    id::IdSource,
    machine::{Backoff, Outbox, Timers},
    time::{Mono, Now},
    trace_context::TraceContext,
};

use super::{config::Config, event::Output, kept::Kept};
use crate::{
    capability::{Skill, Skills},
    hash::{ById, OwnIds},
    id::{SessionId, StreamId},
    role::slots::{SlotKey as SessionKey, Slots},
};

/// The agent's side of the protocol, without IO.
///
/// ```text
///          start          registered
/// Idle ----------> Registering ----------> Listening
///                    ^   | failed              | ended, however         ^
///                    |   v                     |                        | resuming
///                    Pausing <-----------------+------------------------+
///
/// shutdown: -> Leaving -> Closed
/// ```
///
/// Sessions have stages of their own and outlive a lost control stream:
/// `Accepted -> Opened -> Running -> Finishing`. With [`Config::with_resume`] they outlive their own calls, too: one that was
/// cut is opened again, at any of the last three.
///
/// ```
/// use uap_hub_proto::ubos_common::{id::IdSource, time::{Mono, Now, Timestamp}};
/// use uap_hub_proto::{capability::Skill, role::agent::*};
///
/// let config = Config::default().with_name("a").with_capabilities(vec![Skill::test("sum").into()]);
/// let mut agent = FleetAgent::new(config, IdSource::seeded(1))?;
/// agent.start(Now::new(Mono::ZERO, Timestamp::EPOCH));
/// assert!(matches!(agent.poll_output(), Some(Output::Register { attempt: 1, .. })));
/// # Ok::<(), uap_hub_proto::ConfigError>(())
/// ```
///
/// Spec: UAP hub 2 to 5
#[derive(Debug)]
pub struct FleetAgent {
    pub(super) config: Config,
    pub(super) ids: IdSource,
    pub(super) skills: Skills,
    pub(super) phase: Phase,
    pub(super) backoff: Backoff,
    pub(super) attempt: u64,
    /// The last stream id.
    pub(super) opened: u64,
    pub(super) is_leaving: bool,
    /// The client id to listen with again, if resuming is on.
    pub(super) resumable: Option<String>,
    pub(super) sessions: Slots<Session>,
    pub(super) by_id: HashMap<SessionId, SessionKey>,
    pub(super) streams: ById<StreamId, SessionKey>,
    pub(super) timers: Timers<Timer, OwnIds>,
    pub(super) outputs: Outbox<Output>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Idle,
    Registering,
    Listening {
        stream: StreamId,
        since: Mono,
        heard: bool,
    },
    Pausing,
    /// Half-closed `Listen`, waiting for the hub's end of it.
    Leaving {
        stream: StreamId,
    },
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Timer {
    /// `Register` takes too long, the pause is over, or the hub does not close `Listen`.
    Control,
    /// What that means depends on the session's stage.
    Session(SessionKey),
    /// Running sessions have had their time.
    Drain,
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: SessionId,
    pub(super) skill: Skill,
    pub(super) stage: SessionStage,
    /// The control stream on which its proposal was answered.
    pub(super) answered_on: StreamId,
    /// The call; `None` before it is opened, and while it is cut.
    pub(super) stream: Option<StreamId>,
    /// How often its call was opened.
    pub(super) opened: u64,
    /// The place of its job in a trace.
    pub(super) trace: Option<TraceContext>,
    pub(super) kept: Kept,
    /// The pauses between attempts to open a cut call again.
    pub(super) backoff: Backoff,
    /// When the call was cut, until the hub has answered on a new one.
    pub(super) cut_at: Option<Mono>,
    /// How long it was cut before that, since the session made way.
    pub(super) cut_before: Duration,
    /// When the hub answered on a call that was opened again, unless the session has made way since.
    pub(super) resumed_at: Option<Mono>,
}

impl Session {
    /// How long its call was cut since the session made way.
    pub(super) fn cut_for(&self, now: Now) -> Duration {
        let cut = self.cut_at.map(|since| now.mono.saturating_since(since));
        self.cut_before.saturating_add(cut.unwrap_or_default())
    }

    /// The hub has something new of the session, so that what is cut from now on has all its time.
    pub(super) fn made_way(&mut self) {
        self.backoff.reset();
        self.cut_before = Duration::ZERO;
        self.resumed_at = None;
    }

    /// Whether its call was cut.
    pub(super) fn is_cut(&self) -> bool {
        self.stream.is_none() && self.stage != SessionStage::Accepted
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionStage {
    /// The proposal is accepted.
    Accepted,
    /// The call is open and acknowledged, the job has not come.
    Opened,
    /// The handler runs.
    Running,
    /// The result is sent; the call waits for the hub's end.
    Finishing,
}
