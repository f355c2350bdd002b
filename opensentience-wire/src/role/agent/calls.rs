//! Calls, from arrival to their one result.

use core::time::Duration;

use ubos_common::json::{MemberWriter, RawObject, Write};
use ubos_common::time::{Mono, Now, Timestamp};

use super::state::{About, AgentConnection, Ending, OpenCall, Output, Timer};
use crate::envelope::Head;
use crate::error::{CommandError, EncodeError, ErrorCode, ErrorObject};
use crate::message::{Channel, ChunkData, MessageType, Status, ToolStream};
use crate::role::CallId;
use crate::role::idempotency::Key;
use crate::trace::{debug, trace};

/// A piece of output.
#[derive(Clone, Debug, PartialEq)]
pub struct Chunk {
    channel: Channel,
    data: ChunkData,
    /// Whether no more pieces come.
    pub done: bool,
}

impl Chunk {
    /// A text on a channel other than [`Channel::PartialResult`], which carries it as status then.
    #[must_use]
    pub fn text(channel: Channel, text: impl Into<String>) -> Self {
        let mut data = ChunkData::new();
        data.text = Some(text.into());
        let channel = match channel {
            Channel::PartialResult | Channel::Other(_) => Channel::Status,
            channel => channel,
        };
        Self {
            channel,
            data,
            done: false,
        }
    }

    /// A part of the result, as JSON.
    #[must_use]
    pub fn partial(json: RawObject) -> Self {
        let mut data = ChunkData::new();
        data.json = Some(json);
        Self {
            channel: Channel::PartialResult,
            data,
            done: false,
        }
    }
}

/// A text on [`Channel::Stdout`], the tool's ordinary output.
impl From<String> for Chunk {
    fn from(text: String) -> Self {
        Self::text(Channel::Stdout, text)
    }
}

/// A text on [`Channel::Stdout`], the tool's ordinary output.
impl From<&str> for Chunk {
    fn from(text: &str) -> Self {
        Self::text(Channel::Stdout, text)
    }
}

impl OpenCall {
    pub(super) fn new(
        about: About,
        bytes: usize,
        timeout: Option<Duration>,
        key: Option<Key>,
        follows: bool,
    ) -> Self {
        let timeout = timeout.map(|span| about.arrived.mono.saturating_add(span));
        Self {
            about,
            bytes,
            last_seq: 0,
            stream_done: false,
            canceled: false,
            stopped: false,
            ended: false,
            timeout,
            key,
            follows,
        }
    }

    pub(super) const fn has_ended(&self) -> bool {
        self.ended
    }

    pub(super) const fn must_be_stopped(&self) -> bool {
        !self.stopped && !self.follows
    }

    /// A time of its own, or one that came with a cancel.
    const fn may_have_deadline(&self) -> bool {
        self.timeout.is_some() || self.canceled
    }

    pub(super) const fn timeout(&self) -> Option<Mono> {
        self.timeout
    }
}

impl AgentConnection {
    /// Sends a piece of a call's output.
    ///
    /// # Errors
    ///
    /// The call has its result, its stream is done, the piece is too long, or too much output waits
    /// ([`CommandError::Backlog`]): then try again when some is taken.
    ///
    /// Spec: OpenSentience 4.3.2
    // impl: OSW-4.3-5
    pub fn stream(&mut self, now: Now, id: &CallId, chunk: Chunk) -> Result<(), CommandError> {
        let call = self.calls.get_mut(id).filter(|call| !call.ended);
        let call = call.ok_or(CommandError::NoSuchCall)?;
        if call.stream_done {
            return Err(CommandError::StreamDone);
        }
        if self.common.out.is_full() {
            return Err(CommandError::Backlog);
        }
        let seq = call.last_seq + 1;
        let mut payload = ToolStream::new(id.as_str().into(), seq, chunk.channel, chunk.data);
        payload.done = chunk.done.then_some(true);
        let head = Head::new(MessageType::ToolStream).correlation(&call.about.ids);
        let frame = self.common.encoder.encode(now.wall, &head, &payload)?;
        call.last_seq = seq;
        call.stream_done = chunk.done;
        self.common.out.push(Output::Transmit(frame));
        Ok(())
    }

    /// Says that a tool came back, and sends its result unless the call has ended before.
    ///
    /// An error of code [`ErrorCode::ToolCanceled`] ends the call canceled, any other failed.
    ///
    /// # Errors
    ///
    /// The call has its result already, or never was.
    ///
    /// Spec: OpenSentience 4.3.3
    // impl: OSW-4.3-7, OSW-4.4-3
    pub fn finish(
        &mut self,
        now: Now,
        id: &CallId,
        result: Result<RawObject, ErrorObject>,
    ) -> Result<(), CommandError> {
        // One that follows another has no tool that could come back.
        let runs = self.calls.get(id).is_some_and(|call| !call.follows);
        let call = if runs { self.forget(id) } else { None };
        let call = call.ok_or(CommandError::NoSuchCall)?;
        if call.may_have_deadline() {
            self.common.timers.clear(&Timer::Call(id.clone()));
        }
        self.end_followers(now, id, &call, &result);
        let done = if call.ended {
            Err(CommandError::NoSuchCall)
        } else {
            self.send_result(now, id.as_str(), &call.about, result);
            Ok(())
        };
        self.close_if_drained();
        done
    }

    /// Takes a call out of the table.
    fn forget(&mut self, id: &CallId) -> Option<OpenCall> {
        let call = self.calls.remove(id)?;
        self.held_bytes -= call.bytes;
        Some(call)
    }

    /// Ends the calls that waited for this one's tool, and remembers what it came back with.
    // impl: OSW-4.3-10
    fn end_followers(&mut self, now: Now, id: &CallId, call: &OpenCall, result: &Ending) {
        let Some(key) = &call.key else {
            return;
        };
        let lasting = match result {
            Ok(_) => true,
            Err(error) => error.retryable != Some(true) && error.code != ErrorCode::ToolCanceled,
        };
        let end = lasting.then(|| (result.clone(), bytes_of(result)));
        for follower in self.memory.end(key, id, end) {
            let Some(call) = self.forget(&follower) else {
                continue;
            };
            self.common.timers.clear(&Timer::Call(follower.clone()));
            let copy = match self.has_room_for(result) {
                true => result.clone(),
                false => Err(too_many_copies()),
            };
            self.send_result(now, follower.as_str(), &call.about, copy);
        }
    }

    /// Whether a call may get a copy of what another was run for. A core asks for as many copies as it likes in one piece: those
    /// that wait have a bound.
    // impl: OSW-2-7
    pub(super) fn has_room_for(&self, result: &Ending) -> bool {
        let waiting = match self.common.out.is_empty() {
            true => 0,
            false => self.unsent_bytes,
        };
        waiting.saturating_add(bytes_of(result)) <= self.config.limits.max_inflight_bytes
    }

    // impl: OSW-4.3-9, OSW-4.4-2
    pub(super) fn on_call_deadline(&mut self, now: Now, id: &CallId) {
        let canceled = self.calls.get(id).is_some_and(|call| call.canceled);
        let error = if canceled {
            ErrorObject::of(ErrorCode::ToolCanceled, "canceled")
        } else {
            ErrorObject::of(ErrorCode::ToolTimeout, "no result in time")
        };
        self.stop(now, id);
        self.end_before_tool(now, id, error.noticed_by("agent.runtime"));
        self.close_if_drained();
    }

    /// Ends all calls before the connection does, which stops their tools.
    pub(super) fn cancel_all(&mut self, now: Now) {
        let ids: Vec<CallId> = self.calls.keys().cloned().collect();
        for id in ids {
            let error = ErrorObject::of(ErrorCode::ToolCanceled, "the connection is closing");
            self.end_before_tool(now, &id, error);
        }
    }

    /// Stops a call. One that no tool runs for, and one whose tool others wait for, ends here; of any other the tool is told
    /// to stop, once, and comes back.
    pub(super) fn stop(&mut self, now: Now, id: &CallId) {
        let Some(call) = self.calls.get_mut(id) else {
            return;
        };
        call.canceled = true;
        let key = call.key.clone();
        let canceled =
            || ErrorObject::of(ErrorCode::ToolCanceled, "canceled").noticed_by("agent.runtime");
        let Some(key) = key else {
            return self.stop_tool(id);
        };
        if call.follows {
            self.memory.leave(&key, id);
            if let Some(call) = self.forget(id) {
                self.common.timers.clear(&Timer::Call(id.clone()));
                self.send_result(now, id.as_str(), &call.about, Err(canceled()));
            }
            self.stop_unwanted(&key);
        } else if self.memory.is_waited_for(&key, id) {
            self.end_before_tool(now, id, canceled());
        } else {
            self.stop_tool(id);
        }
    }

    /// A tool that ran on for followers alone is stopped when none is left.
    fn stop_unwanted(&mut self, key: &Key) {
        let same = |call: &OpenCall| call.key.as_ref() == Some(key);
        let leader = self
            .calls
            .iter()
            .find(|(_, call)| !call.follows && call.ended && same(call));
        let leader = leader.map(|(id, _)| id.clone());
        if let Some(id) = leader.filter(|id| !self.memory.is_waited_for(key, id)) {
            self.stop_tool(&id);
        }
    }

    /// Tells a tool to stop, once.
    fn stop_tool(&mut self, id: &CallId) {
        if let Some(call) = self.calls.get_mut(id)
            && !call.follows
            && !core::mem::replace(&mut call.stopped, true)
        {
            call.canceled = true;
            trace!(call = %id, "tool is told to stop");
            self.common.out.push(Output::Cancel(id.clone()));
        }
    }

    /// Sends the result of a call whose tool has not come back; it keeps its place until it does.
    fn end_before_tool(&mut self, now: Now, id: &CallId, error: ErrorObject) {
        let Some(mut call) = self.calls.remove(id) else {
            return;
        };
        if !core::mem::replace(&mut call.ended, true) {
            self.send_result(now, id.as_str(), &call.about, Err(error));
        }
        self.calls.insert(id.clone(), call);
    }

    // impl: OSW-2-7, OSW-3-4, OSW-3-10, OSW-4.3-8
    pub(super) fn send_result(
        &mut self,
        now: Now,
        call_id: &str,
        about: &About,
        result: Result<RawObject, ErrorObject>,
    ) {
        let limit = self.config.limits.max_tool_output_bytes;
        let result = match result {
            Ok(output) if output.as_str().len() > limit => {
                Err(crate::role::output_too_large(output.as_str().len(), limit))
            }
            result => result,
        };
        match self.encode_result(now, call_id, about, result) {
            Ok(frame) => self.push_result(frame),
            Err(refused) => {
                let error = match refused {
                    EncodeError::TooLarge { length, limit } => {
                        crate::role::output_too_large(length, limit)
                    }
                    EncodeError::HoldsToken => {
                        let message = "the result held the session token";
                        ErrorObject::of(ErrorCode::ToolInternal, message)
                    }
                };
                match self.encode_result(now, call_id, about, Err(error)) {
                    Ok(frame) => self.push_result(frame),
                    Err(_) => {
                        let rule = "a result that cannot be written";
                        self.reject(ErrorCode::FrameTooLarge, rule);
                    }
                }
            }
        }
    }

    fn push_result(&mut self, frame: Vec<u8>) {
        if self.common.out.is_empty() {
            self.unsent_bytes = 0;
        }
        self.unsent_bytes = self.unsent_bytes.saturating_add(frame.len());
        self.common.out.push(Output::Transmit(frame));
    }

    fn encode_result(
        &mut self,
        now: Now,
        call_id: &str,
        about: &About,
        result: Result<RawObject, ErrorObject>,
    ) -> Result<Vec<u8>, EncodeError> {
        let status = match &result {
            Ok(_) => Status::Succeeded,
            Err(error) if error.code == ErrorCode::ToolCanceled => Status::Canceled,
            Err(_) => Status::Failed,
        };
        debug!(call = call_id, %status, "call ended");
        let (output, error) = match result {
            Ok(output) => (Some(output), None),
            Err(mut error) => {
                // For the developers of the tool, and theirs alone.
                // impl: OSW-3-6
                error.debug = None;
                (None, Some(error))
            }
        };
        let outcome = LentOutcome {
            call_id,
            status,
            output,
            error,
            started: about.arrived.wall,
            // The calendar may have been set back in between.
            finished: now.wall.max(about.arrived.wall),
            metrics: Metrics {
                duration: now.mono.saturating_since(about.arrived.mono),
            },
        };
        let head = Head::new(MessageType::ToolResult)
            .in_reply_to(Some(&about.message_id))
            .correlation(&about.ids);
        self.common.encoder.encode(now.wall, &head, &outcome)
    }
}

/// The refusal of one copy more.
pub(super) fn too_many_copies() -> ErrorObject {
    let message = "the results that wait to be sent have as many bytes as they may";
    ErrorObject::of(ErrorCode::ToolBusy, message).noticed_by("agent.runtime")
}

fn bytes_of(result: &Ending) -> usize {
    match result {
        Ok(output) => output.as_str().len(),
        Err(error) => error.weight(),
    }
}

/// A [`ToolOutcome`](crate::message::ToolOutcome), written from what is there.
struct LentOutcome<'a> {
    call_id: &'a str,
    status: Status,
    output: Option<RawObject>,
    error: Option<ErrorObject>,
    started: Timestamp,
    finished: Timestamp,
    metrics: Metrics,
}

impl Write for LentOutcome<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        object.known("\"call_id\":", self.call_id);
        object.known("\"status\":", &self.status);
        object.known_optional("\"output\":", self.output.as_ref());
        object.known_optional("\"error\":", self.error.as_ref());
        object.known("\"started_at\":", &self.started);
        object.known("\"finished_at\":", &self.finished);
        object.known("\"metrics\":", &self.metrics);
        object.end();
    }
}

/// The figures of a call.
struct Metrics {
    duration: Duration,
}

impl Write for Metrics {
    fn write(&self, out: &mut Vec<u8>) {
        let millis = u64::try_from(self.duration.as_millis()).unwrap_or(u64::MAX);
        let mut object = MemberWriter::begin(out);
        object.known("\"duration_ms\":", &millis);
        object.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_no_part_of_a_result() {
        let channel = |channel| Chunk::text(channel, "t").channel;
        assert_eq!(channel(Channel::Log), Channel::Log);
        assert_eq!(channel(Channel::PartialResult), Channel::Status);
        assert_eq!(channel(Channel::from("new")), Channel::Status);
    }
}
