//! What a play does: it is one side of a connection, says things, and waits for what comes.

use core::time::Duration;

use crate::Recorder;
use ubos_common::id::IdSource;
use ubos_common::json::{RawBuf, RawObject, Write};
use ubos_common::time::Mono;

use super::observed::ObservedState;
use super::recording::{Launch, Line, LineKind, LineReader};
use super::writer::{Head, Writer, frame};
use super::{Peer, Received};
use opensentience_wire::Correlation;
use opensentience_wire::message::{MessageType, Side};

/// The kit's side of a connection, and the recording of both sides.
pub(super) struct TestPeer<'a> {
    under_test: &'a mut (dyn Peer + 'static),
    recorder: &'a mut Recorder<Line>,
    reader: LineReader,
    pub(super) state: ObservedState,
    pub(super) me: Side,
    writer: Writer,
    responder: Responder,
    /// What is still to be done, and when.
    pub(super) scheduled: Vec<(Mono, Action)>,
    pub(super) open: bool,
}

/// What a side does by itself when a line comes.
pub(super) type Responder = fn(&mut TestPeer<'_>, &Line);

/// Something that is done at its time.
pub(super) type Action = Box<dyn FnOnce(&mut TestPeer<'_>)>;

impl<'a> TestPeer<'a> {
    /// Launches the peer under test; `None` where that cannot be done.
    pub(super) fn launch(
        under_test: &'a mut (dyn Peer + 'static),
        recorder: &'a mut Recorder<Line>,
        me: Side,
        responder: Responder,
    ) -> Option<Self> {
        let mut session = Self {
            under_test,
            recorder,
            reader: LineReader::new(),
            state: ObservedState::default(),
            me,
            writer: Writer::new(IdSource::seeded(u64::from(me == Side::Core))),
            responder,
            scheduled: Vec::new(),
            open: false,
        };
        session.relaunch().then_some(session)
    }

    /// Launches the peer anew.
    pub(super) fn relaunch(&mut self) -> bool {
        let launch = self.under_test.launch();
        launch.is_some_and(|launch| {
            self.begin(launch, false);
            true
        })
    }

    /// Connects once more with the same launch.
    pub(super) fn reconnect(&mut self) -> bool {
        let Some(launch) = self
            .state
            .launch
            .clone()
            .filter(|_| self.under_test.reconnect())
        else {
            return false;
        };
        self.begin(launch, true);
        true
    }

    fn begin(&mut self, launch: Launch, again: bool) {
        self.scheduled.clear();
        self.open = true;
        let line = self.reader.begin(self.under_test.now().mono, launch, again);
        self.record(line);
    }

    /// Sets what it does by itself when a message comes.
    pub(super) fn respond_with(&mut self, responder: Responder) {
        self.responder = responder;
    }

    /// Whether more would be of no use: the recording is full.
    pub(super) const fn is_over(&self) -> bool {
        self.recorder.is_full()
    }

    fn record(&mut self, line: Line) {
        self.state.observe(&line);
        let responder = self.responder;
        let heard = line.from != self.me && matches!(line.kind, LineKind::Message(_));
        if heard {
            self.recorder.record(line.clone());
            responder(self, &line);
        } else {
            self.recorder.record(line);
        }
    }

    /// Sends bytes as they are.
    pub(super) fn send_bytes(&mut self, bytes: &[u8]) {
        let (now, me) = (self.under_test.now().mono, self.me);
        let mut lines = Vec::new();
        self.reader.read(now, me, bytes, |line| lines.push(line));
        for line in lines {
            self.record(line);
        }
        if self.open {
            self.under_test.send(bytes);
        }
    }

    /// A frame of a text as it is.
    pub(super) fn send_text(&mut self, body: &str) {
        self.send_bytes(&frame(body.as_bytes()));
    }

    /// A message; gives the frame without sending it.
    pub(super) fn encode<P: Write + ?Sized>(&mut self, head: &Head<'_>, payload: &P) -> Vec<u8> {
        let now = self.under_test.now().wall;
        self.writer.write(now, head, payload)
    }

    /// Sends a message.
    pub(super) fn send<P: Write + ?Sized>(&mut self, head: &Head<'_>, payload: &P) {
        let frame = self.encode(head, payload);
        self.send_bytes(&frame);
    }

    /// Sends a message of a type with a payload that is written here.
    pub(super) fn send_payload(&mut self, kind: MessageType, payload: &str) {
        self.send(&Head::new(kind), &object(payload));
    }

    /// Sends nothing more.
    pub(super) fn close(&mut self) {
        if self.open {
            self.under_test.close();
        }
    }

    /// Receives until `done` holds, the peer has ended, or the span is over; gives whether `done` holds.
    pub(super) fn wait_until(
        &mut self,
        within: Duration,
        done: impl Fn(&ObservedState) -> bool,
    ) -> bool {
        let end = self.under_test.now().mono.saturating_add(within);
        loop {
            if done(&self.state) {
                return true;
            }
            let now = self.under_test.now().mono;
            if !self.open || now >= end || self.is_over() {
                return false;
            }
            self.receive(end.saturating_since(now));
        }
    }

    /// Receives until the peer ends, at most for a span, and records that nothing more came.
    pub(super) fn wait(&mut self, span: Duration) {
        self.wait_until(span, |_| false);
        let at = self.under_test.now().mono;
        let from = self.me.other();
        let kind = LineKind::Silence;
        self.record(Line { at, from, kind });
    }

    /// Takes one piece of what the peer sends, or does what is due.
    fn receive(&mut self, within: Duration) {
        let now = self.under_test.now().mono;
        let next = self.scheduled.iter().map(|(at, _)| *at).min();
        let wait = next.map_or(within, |at| within.min(at.saturating_since(now)));
        let heard = self.under_test.receive(wait);
        let now = self.under_test.now().mono;
        match heard {
            Received::Bytes(bytes) => {
                let mut lines = Vec::new();
                let from = self.me.other();
                self.reader.read(now, from, &bytes, |line| lines.push(line));
                for line in lines {
                    self.record(line);
                }
            }
            Received::End => {
                self.open = false;
                self.scheduled.clear();
                let line = self.reader.end(now, self.me.other());
                self.record(line);
            }
            Received::Nothing => {}
        }
        self.run_due();
    }

    fn run_due(&mut self) {
        let now = self.under_test.now().mono;
        while let Some(n) = self.scheduled.iter().position(|(at, _)| *at <= now) {
            let (_, action) = self.scheduled.swap_remove(n);
            action(self);
        }
    }

    /// Does something later.
    pub(super) fn schedule(&mut self, span: Duration, action: Action) {
        let at = self.under_test.now().mono.saturating_add(span);
        self.scheduled.push((at, action));
    }
}

/// An object from a text of ours.
pub(super) fn object(text: &str) -> RawObject {
    let value = RawBuf::parse(text).ok().and_then(RawObject::new);
    value.unwrap_or_default()
}

/// The three ids of a call.
pub(super) fn ids(
    request: &str,
    correlation: Option<&str>,
    causation: Option<&str>,
) -> Correlation {
    let mut ids = Correlation::default();
    ids.request_id = Some(request.into());
    ids.correlation_id = correlation.map(Into::into);
    ids.causation_id = causation.map(Into::into);
    ids
}

/// Milliseconds, short to write.
pub(super) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
