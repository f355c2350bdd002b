//! Flow control: messages for blocked streams, and events that nobody reads.

use ubos_common::time::Now;

use super::{
    AuditKind, CommandError, Event, Hub, JobEvent, Outbound, Output, Use,
    queue::Unread,
    session::{SessionKey, Stage},
};
use crate::{
    id::{JobId, StreamId},
    status::{Code, Status},
};

impl Hub {
    /// Tells that the reader of a job has read `events` events, of `bytes` bytes as
    /// [`JobEvent::weight`] counts them. Beyond the limit of unread events the stream of the job is
    /// paused ([`Output::Pause`]) until half of them is read.
    pub fn events_read(&mut self, now: Now, job: JobId, events: usize, bytes: usize) {
        if let Some(entry) = self.queue.get_mut(job) {
            entry.unread.events = entry.unread.events.saturating_sub(events);
            entry.unread.bytes = entry.unread.bytes.saturating_sub(bytes);
        }
        self.adjust_reading(now, job);
    }

    /// Reports that the events of a job have no reader any more: none comes but the end, and they no longer pause its stream.
    ///
    /// # Errors
    ///
    /// No such job waits or runs.
    pub fn mute(&mut self, now: Now, job: JobId) -> Result<(), CommandError> {
        let entry = self.queue.get_mut(job).ok_or(CommandError::UnknownJob)?;
        entry.unread = Unread {
            is_muted: true,
            ..Unread::default()
        };
        self.adjust_reading(now, job);
        Ok(())
    }

    pub(super) fn job_event(&mut self, now: Now, job: JobId, event: JobEvent) {
        if let Some(entry) = self.queue.get_mut(job) {
            // The end is told when the job is not there any more.
            if entry.unread.is_muted {
                return;
            }
            entry.unread.events += 1;
            entry.unread.bytes += event.weight();
            self.adjust_reading(now, job);
        }
        self.event(Event::Job { job, event });
    }

    /// Whether as many events are unread as may be.
    fn is_behind(&self, unread: Unread) -> bool {
        unread.events >= self.config.max_unread_events
            || unread.bytes >= self.config.max_unread_bytes
    }

    /// As [`job_event`](Self::job_event), for events that an agent can cause though it is not read.
    pub(super) fn minor_event(&mut self, now: Now, job: JobId, event: JobEvent) {
        let entry = self.queue.get(job);
        if !entry.is_some_and(|entry| self.is_behind(entry.unread)) {
            self.job_event(now, job, event);
        }
    }

    /// Pauses or resumes the stream of a job.
    // impl: HUB-4-4
    pub(super) fn adjust_reading(&mut self, now: Now, job: JobId) {
        let Some(entry) = self.queue.get(job) else {
            return;
        };
        let unread = entry.unread;
        let session = entry
            .session()
            .and_then(|id| Some((id, self.sessions.get(id)?)));
        let Some((id, session)) = session else {
            return;
        };
        let Stage::Open {
            stream: Some(stream),
            ..
        } = session.stage
        else {
            return;
        };
        let (events, bytes) = (self.config.max_unread_events, self.config.max_unread_bytes);
        let is_over = self.is_behind(unread);
        let is_low = unread.events <= events / 2 && unread.bytes <= bytes / 2;
        if is_over && self.streams.set_paused(stream, true) {
            self.outputs.push(Output::Pause { stream });
            self.unwatch(id);
        } else if is_low {
            self.go_on_reading(now, id, stream);
        }
    }

    /// Resumes the stream of a session that ends, so that the end of the stream is seen.
    pub(super) fn go_on_reading(&mut self, now: Now, session: SessionKey, stream: StreamId) {
        if self.streams.set_paused(stream, false) {
            self.outputs.push(Output::Resume { stream });
            self.watch(now, session);
        }
    }

    /// Sends a message, or queues it for a blocked stream.
    pub(super) fn send(&mut self, stream: StreamId, message: Outbound) {
        let Some(flow) = self.streams.open.get_mut(&stream) else {
            return;
        };
        if !flow.is_blocked {
            self.outputs.push(Output::Send { stream, message });
        } else if flow.unsent.len() < self.config.max_unsent {
            flow.unsent.push_back(message);
        } else if !self.streams.overflown.contains(&stream) {
            self.streams.overflown.push(stream);
        }
    }

    pub(super) fn unblock(&mut self, stream: StreamId) {
        if let Some(flow) = self.streams.open.get_mut(&stream) {
            flow.is_blocked = false;
            for message in std::mem::take(&mut flow.unsent) {
                self.outputs.push(Output::Send { stream, message });
            }
        }
    }

    /// Its queue is full: the agent does not read, and counts as lost.
    pub(super) fn overflown(&mut self, now: Now, stream: StreamId) {
        let Some(purpose) = self.streams.purpose(stream).cloned() else {
            return;
        };
        let reason = "the agent does not read";
        if let Use::Listen(agent) = purpose {
            self.audit(AuditKind::SlowReader, Some(agent.clone()), None);
            self.agent_gone(now, &agent, reason);
        }
        self.end_stream(stream, Status::new(Code::ResourceExhausted, reason));
    }

    pub(super) fn end_stream(&mut self, stream: StreamId, status: Status) {
        self.streams.close(stream);
        self.outputs.push(Output::End { stream, status });
    }
}
