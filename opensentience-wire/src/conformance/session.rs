//! What a play does: it is one side of a connection, says things, and waits for what comes.

use core::time::Duration;

use ubos_common::conformance::Recorder;
use ubos_common::id::IdSource;
use ubos_common::json::{RawBuf, RawObject, Write};
use ubos_common::time::Mono;

use super::course::Course;
use super::line::{Ear, Launch, Line, What};
use super::{Peer, Received};
use crate::envelope::{Correlation, Encoder, Head};
use crate::message::{MessageType, Side};

/// One side of a connection that is played, and recorded.
pub(super) struct Session<'a> {
    peer: &'a mut (dyn Peer + 'static),
    recorder: &'a mut Recorder<Line>,
    ear: Ear,
    pub(super) course: Course,
    pub(super) me: Side,
    encoder: Encoder,
    manners: Manners,
    /// What is still to be done, and when.
    pub(super) agenda: Vec<(Mono, Todo)>,
    pub(super) open: bool,
}

/// What a side does by itself when a line comes.
pub(super) type Manners = fn(&mut Session<'_>, &Line);

/// Something that is done at its time.
pub(super) type Todo = Box<dyn FnOnce(&mut Session<'_>)>;

impl<'a> Session<'a> {
    /// The peer is launched; `None` where it cannot be.
    pub(super) fn launch(
        peer: &'a mut (dyn Peer + 'static),
        recorder: &'a mut Recorder<Line>,
        me: Side,
        manners: Manners,
    ) -> Option<Self> {
        let mut session = Self {
            peer,
            recorder,
            ear: Ear::new(),
            course: Course::default(),
            me,
            encoder: Encoder::new(IdSource::seeded(u64::from(me == Side::Core)), usize::MAX),
            manners,
            agenda: Vec::new(),
            open: false,
        };
        session.relaunch().then_some(session)
    }

    /// Launches the peer anew.
    pub(super) fn relaunch(&mut self) -> bool {
        let launch = self.peer.launch();
        launch.is_some_and(|launch| {
            self.begin(launch, false);
            true
        })
    }

    /// Connects once more with the same launch.
    pub(super) fn reconnect(&mut self) -> bool {
        let Some(launch) = self.course.launch.clone().filter(|_| self.peer.again()) else {
            return false;
        };
        self.begin(launch, true);
        true
    }

    fn begin(&mut self, launch: Launch, again: bool) {
        self.agenda.clear();
        self.open = true;
        let line = self.ear.begin(self.peer.now().mono, launch, again);
        self.record(line);
    }

    /// Whether more would be of no use: the recording is full.
    pub(super) const fn is_over(&self) -> bool {
        self.recorder.is_full()
    }

    fn record(&mut self, line: Line) {
        self.course.follow(&line);
        let manners = self.manners;
        let heard = line.from != self.me && matches!(line.what, What::Message(_));
        if heard {
            self.recorder.record(line.clone());
            manners(self, &line);
        } else {
            self.recorder.record(line);
        }
    }

    /// Sends bytes as they are.
    pub(super) fn raw(&mut self, bytes: &[u8]) {
        let (now, me) = (self.peer.now().mono, self.me);
        let mut lines = Vec::new();
        self.ear.hear(now, me, bytes, |line| lines.push(line));
        for line in lines {
            self.record(line);
        }
        if self.open {
            self.peer.send(bytes);
        }
    }

    /// A frame of a text as it is.
    pub(super) fn text(&mut self, body: &str) {
        self.raw(&frame(body.as_bytes()));
    }

    /// A message; gives the frame without sending it.
    pub(super) fn written<P: Write + ?Sized>(&mut self, head: &Head<'_>, payload: &P) -> Vec<u8> {
        let now = self.peer.now().wall;
        self.encoder.encode(now, head, payload).unwrap_or_default()
    }

    /// Sends a message.
    pub(super) fn say<P: Write + ?Sized>(&mut self, head: &Head<'_>, payload: &P) {
        let frame = self.written(head, payload);
        self.raw(&frame);
    }

    /// Sends a message of a type with a payload that is written here.
    pub(super) fn plain(&mut self, kind: MessageType, payload: &str) {
        self.say(&Head::new(kind), &object(payload));
    }

    /// Sends nothing more.
    pub(super) fn close(&mut self) {
        if self.open {
            self.peer.close();
        }
    }

    /// Listens until something is so, the peer has ended, or the span is over; gives whether it is so.
    pub(super) fn until(&mut self, within: Duration, so: impl Fn(&Course) -> bool) -> bool {
        let end = self.peer.now().mono.saturating_add(within);
        loop {
            if so(&self.course) {
                return true;
            }
            let now = self.peer.now().mono;
            if !self.open || now >= end || self.is_over() {
                return false;
            }
            self.listen(end.saturating_since(now));
        }
    }

    /// Listens until the peer ends, at most so long; that nothing more came is recorded.
    pub(super) fn rest(&mut self, span: Duration) {
        self.until(span, |_| false);
        let at = self.peer.now().mono;
        let from = self.me.other();
        let what = What::Silence;
        self.record(Line { at, from, what });
    }

    /// Takes one piece of what the peer sends, or does what is due.
    fn listen(&mut self, within: Duration) {
        let now = self.peer.now().mono;
        let next = self.agenda.iter().map(|(at, _)| *at).min();
        let wait = next.map_or(within, |at| within.min(at.saturating_since(now)));
        let heard = self.peer.receive(wait);
        let now = self.peer.now().mono;
        match heard {
            Received::Bytes(bytes) => {
                let mut lines = Vec::new();
                let from = self.me.other();
                self.ear.hear(now, from, &bytes, |line| lines.push(line));
                for line in lines {
                    self.record(line);
                }
            }
            Received::End => {
                self.open = false;
                self.agenda.clear();
                let line = self.ear.end(now, self.me.other());
                self.record(line);
            }
            Received::Nothing => {}
        }
        self.do_what_is_due();
    }

    fn do_what_is_due(&mut self) {
        let now = self.peer.now().mono;
        while let Some(n) = self.agenda.iter().position(|(at, _)| *at <= now) {
            let (_, todo) = self.agenda.swap_remove(n);
            todo(self);
        }
    }

    /// Does something later.
    pub(super) fn later(&mut self, span: Duration, todo: Todo) {
        let at = self.peer.now().mono.saturating_add(span);
        self.agenda.push((at, todo));
    }
}

/// A frame of whatever bytes.
pub(super) fn frame(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    // No body here comes near the most that a prefix can say.
    let _ = crate::frame::encode_frame(&mut out, usize::MAX, |out| out.extend_from_slice(body));
    out
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
    Correlation {
        request_id: Some(request.into()),
        correlation_id: correlation.map(Into::into),
        causation_id: causation.map(Into::into),
    }
}

/// Milliseconds, short to write.
pub(super) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
