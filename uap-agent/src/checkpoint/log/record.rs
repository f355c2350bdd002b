//! What one save writes.

use ubos_common::id::Uuid;
use ubos_common::json::{self, Limits, RawBuf, RawObject, read_raw};
use ubos_common::time::Timestamp;
use ubos_common::violation::Profile;

use crate::checkpoint::head::{Piece, damaged, grown};
use crate::checkpoint::seal::sealing::Place;
use crate::checkpoint::{CheckpointError, CheckpointMetadata};
use crate::state::AgentState;

ubos_common::wire! {
    /// A checkpoint: a whole state, or what makes it of the one before.
    pub(super) struct Record {
        /// The checkpoint's id.
        required checkpoint: Uuid = "c", "UAP-12-4";
        /// Seconds since 1970.
        required at: i64 = "t", "UAP-12-4";
        /// Nanoseconds within that second; absent where there are none.
        nullable nanos: u32 = "n", "UAP-12-4";
        /// The state's step.
        required step: u64 = "s", "UAP-12-4";
        /// The agent; absent where it is that of the record before.
        nullable agent: String = "a", "UAP-12-4";
        /// The session, beside a whole state; absent in records from before it was written.
        nullable session: String = "o", "UAP-12-4";
        /// Members of the metadata that its type does not know.
        nullable known: RawObject = "x", "UAP-12-4";
        /// Records back to the last whole state; absent where this is one.
        nullable back: u64 = "b", "UAP-12-4";
        /// A whole state.
        nullable state: RawBuf = "f", "UAP-12-4";
        /// What is new.
        nullable delta: RawBuf = "d", "UAP-12-4";
    }
}

impl Record {
    /// What a piece says of a checkpoint; `agent` saved the record before.
    pub(super) fn new_of(
        metadata: &CheckpointMetadata,
        piece: Piece,
        agent: &str,
        back: u64,
    ) -> Self {
        let text = match piece {
            Piece::Whole(text) => return Self::whole(metadata, text),
            Piece::Difference(text) => text,
        };
        let mut record = Self::of(metadata);
        record.agent = Some(metadata.agent_id.clone()).filter(|new| new != agent);
        record.back = Some(back);
        record.delta = Some(RawBuf::assume_sound(text));
        record
    }

    /// A whole state, as JSON.
    pub(super) fn whole(metadata: &CheckpointMetadata, state: String) -> Self {
        let mut record = Self::of(metadata);
        record.agent = Some(metadata.agent_id.clone());
        record.session = Some(metadata.session_id.clone());
        record.state = Some(RawBuf::assume_sound(state));
        record
    }

    fn of(metadata: &CheckpointMetadata) -> Self {
        let at = metadata.timestamp.unix();
        let mut record = Self::new(metadata.checkpoint_id, at, metadata.step);
        record.nanos = Some(metadata.timestamp.subsec_nanos()).filter(|nanos| *nanos > 0);
        if !metadata.extra.is_empty() {
            let mut known = Vec::new();
            let mut object = json::MemberWriter::begin(&mut known);
            metadata.extra.write_into(&mut object);
            object.end();
            let text = String::from_utf8(known).unwrap_or_default();
            record.known = RawObject::new(RawBuf::assume_sound(text));
        }
        record
    }

    /// The metadata, once it is known who saved.
    pub(super) fn metadata(
        &self,
        session: &str,
        agent: &str,
        limits: &Limits,
    ) -> Result<CheckpointMetadata, CheckpointError> {
        let at = Timestamp::new(self.at, self.nanos.unwrap_or(0));
        let at = at.ok_or_else(|| damaged("the time is out of range"))?;
        let mut metadata = CheckpointMetadata::new(
            session.to_owned(),
            self.checkpoint,
            at,
            self.step,
            agent.to_owned(),
        );
        if let Some(known) = &self.known {
            let read = read_raw::<Unknown>(known.as_raw(), limits, Profile::Strict);
            metadata.extra = read.map_err(damaged)?.0.extra;
        }
        Ok(metadata)
    }

    /// The state, made of the one before where this is a difference.
    pub(super) fn apply(
        &self,
        before: Option<&AgentState>,
        limits: &Limits,
    ) -> Result<AgentState, CheckpointError> {
        if let Some(state) = &self.state {
            return AgentState::from_json(state.as_str().as_bytes(), limits).map_err(damaged);
        }
        let (Some(before), Some(delta)) = (before, &self.delta) else {
            return Err(damaged("a difference to nothing"));
        };
        grown(before, delta.as_str().as_bytes(), limits)
    }
}

ubos_common::wire! {
    /// An object whose members are all unknown.
    struct Unknown {}
}

/// The place of a record, to which its seal is bound.
pub(super) const fn record_place(session: &str, number: u64) -> Place<'_> {
    Place {
        session,
        kind: "log",
        number,
    }
}
