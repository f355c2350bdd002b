//! Sessions that outlive their streams: numbered reports, streams that are cut and opened again.

use std::num::NonZeroU64;

use ubos_common::time::Now;

use super::{
    AuditKind, Hub, JobEvent, Timer, Use,
    execution::init,
    session::{Reports, SessionKey, Stage},
};
use crate::{
    id::StreamId,
    role::Resume,
    state::State,
    status::{Code, Status, brief},
    trace::{debug, trace},
};

/// After so many reports the agent is told that the hub has them, so that it need not keep them.
const ACKNOWLEDGED_REPORTS: u64 = 16;
/// After so many bytes of reports as well.
const ACKNOWLEDGED_BYTES: usize = 64 << 10;

impl Reports {
    pub(super) const fn new(resume: Resume) -> Self {
        Self {
            opening: resume.opening(),
            received: 0,
            acknowledged: 0,
            bytes: 0,
        }
    }

    /// Whether the agent has shown that it has the job: its first report is sent before that.
    pub(super) const fn has_job(&self) -> bool {
        self.received > 1
    }

    /// The last number that came, of which the agent is told now.
    pub(super) const fn acknowledge(&mut self) -> u64 {
        self.bytes = 0;
        self.acknowledged = self.received;
        self.received
    }

    const fn is_due(&self) -> bool {
        let reports = self.received - self.acknowledged;
        reports >= ACKNOWLEDGED_REPORTS || self.bytes >= ACKNOWLEDGED_BYTES
    }
}

impl Hub {
    /// The connection of a session was lost. Where its agent can resume it, it waits for that, and while the hub drains no longer
    /// than that lasts; returns whether it does.
    // impl: HUB-5-4
    pub(super) fn detach(&mut self, now: Now, id: SessionKey, reason: &str) -> bool {
        let Some(session) = self.sessions.get_mut(id) else {
            return false;
        };
        let (Stage::Open { stream, .. }, Some(_)) = (&mut session.stage, session.reports) else {
            return false;
        };
        *stream = None;
        debug!(session = %session.id, "session cut");
        let (job, name) = (session.job, session.id.clone());
        let grace = now.mono.saturating_add(self.config.resume_grace);
        self.timers.set(Timer::Session(id), grace);
        let cut = JobEvent::Cut {
            session: name,
            reason: brief(reason),
        };
        self.minor_event(now, job, cut);
        true
    }

    /// The agent opened the stream of a session again, perhaps before the hub has seen the end of the last one.
    pub(super) fn reattach(&mut self, now: Now, stream: StreamId, id: SessionKey, resume: Resume) {
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        let Stage::Open {
            stream: current,
            state,
            ..
        } = &mut session.stage
        else {
            return;
        };
        let old = current.replace(stream);
        let is_terminal = state.is_some_and(State::is_terminal);
        let (job, name) = (session.job, session.id.clone());
        if let Some(reports) = &mut session.reports {
            reports.opening = resume.opening();
        }
        debug!(session = %name, stream = stream.0, "session resumed");
        if let Some(old) = old {
            let why = "the session was resumed on another stream";
            self.end_stream(old, Status::new(Code::Aborted, why));
        }
        self.streams.open(stream, Use::Session(id));
        let resumed = JobEvent::Resumed { session: name };
        self.minor_event(now, job, resumed);
        match resume {
            Resume::Job(_) => {
                let payloads = self.queue.payloads(job, true);
                self.send_init(stream, id, payloads);
            }
            Resume::Reports(_) => self.acknowledge(stream, id),
        }
        if is_terminal {
            let linger = now.mono.saturating_add(self.config.linger);
            self.timers.set(Timer::Session(id), linger);
        } else {
            self.watch(now, id);
        }
        self.adjust_reading(now, job);
    }

    /// Takes note of a report by its number and its bytes; returns whether it came for the first time.
    pub(super) fn is_new(
        &mut self,
        stream: StreamId,
        id: SessionKey,
        number: Option<(NonZeroU64, usize)>,
    ) -> bool {
        let Some(session) = self.sessions.get_mut(id) else {
            return false;
        };
        let job = session.job;
        let (Some(reports), Some((number, bytes))) = (session.reports.as_mut(), number) else {
            // An agent that stops numbering them does not keep its reports any more: when the connection is lost, there is
            // nothing to wait for.
            session.reports = session.reports.filter(|reports| reports.received == 0);
            return true;
        };
        let (number, last) = (number.get(), reports.received);
        if number <= last {
            trace!(session = %session.id, number, "report came again");
            return false;
        }
        let had_job = reports.has_job();
        reports.received = number;
        reports.bytes = reports.bytes.saturating_add(bytes);
        let (is_due, has_job) = (reports.is_due(), reports.has_job());
        if number > last + 1 {
            self.audit_session(AuditKind::MissingReports, id);
        }
        if has_job && !had_job && !self.may_be_sent_again(job) {
            // The payloads are not needed any more.
            self.queue.payloads(job, false);
        }
        // An agent that does not read is told later.
        if is_due && !self.streams.is_blocked(stream) {
            self.acknowledge(stream, id);
        }
        true
    }

    /// Tells the agent which reports the hub has.
    fn acknowledge(&mut self, stream: StreamId, id: SessionKey) {
        if let Some(session) = self.sessions.get_mut(id)
            && let Some(reports) = &mut session.reports
        {
            let number = reports.acknowledge();
            let message = init(
                session.skill.kind(),
                String::new(),
                Vec::new(),
                Some(number),
            );
            self.send(stream, message);
        }
    }
}
