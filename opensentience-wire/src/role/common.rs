//! What a connection keeps whichever side it is: its phase, the codec, deadlines and outputs.

use ubos_common::id::IdSource;
use ubos_common::machine::{Outbox, Timers};
use ubos_common::time::Now;

use super::Input;
use crate::envelope::Encoder;
use crate::error::{CommandError, ConnectionError, FrameError};
use crate::frame::FrameDecoder;
use crate::limits::{Limits, MAX_FRAME_BYTES};
use crate::trace::trace;

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The hello or its answer is awaited.
    Handshake,
    Open,
    /// No new calls; running ones may end.
    Draining,
    Closed,
}

/// The state that both sides of a connection have, with deadlines `T` and outputs `O`.
#[derive(Debug)]
pub(super) struct CommonState<T, O> {
    pub(super) phase: Phase,
    decoder: FrameDecoder,
    pub(super) encoder: Encoder,
    pub(super) timers: Timers<T>,
    /// No input is read for a while.
    pub(super) is_throttled: bool,
    /// What came while the side waits for a decision of its driver; `None` while it does not.
    held: Option<Held>,
    pub(super) out: Outbox<O>,
}

impl<T: Ord + core::hash::Hash + Clone, O> CommonState<T, O> {
    pub(super) fn new(ids: IdSource, limits: &Limits) -> Self {
        Self {
            phase: Phase::Handshake,
            // The handshake must pass whatever limit the welcome announces.
            decoder: FrameDecoder::new(MAX_FRAME_BYTES),
            encoder: Encoder::new(ids, MAX_FRAME_BYTES),
            timers: Timers::new(),
            is_throttled: false,
            held: None,
            out: Outbox::new(limits.max_waiting_outputs),
        }
    }

    pub(super) const fn check_open(&self) -> Result<(), CommandError> {
        match self.phase {
            Phase::Handshake => Err(CommandError::NotOpen),
            Phase::Open => Ok(()),
            Phase::Draining | Phase::Closed => Err(CommandError::Closing),
        }
    }

    /// Whether the handshake succeeded and the connection has not ended.
    pub(super) const fn has_session(&self) -> bool {
        matches!(self.phase, Phase::Open | Phase::Draining)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    pub(super) fn accepts_input(&self) -> bool {
        let waits = self.is_throttled || self.held.is_some();
        !self.is_closed() && !waits && !self.out.is_full()
    }

    /// Keeps what comes, the rest of the same bytes too, until the side resumes.
    pub(super) fn pause(&mut self) {
        self.held.get_or_insert_default();
    }
}

/// Input that is to be handled later. A driver that asks whether input is accepted adds nothing to it.
#[derive(Debug, Default)]
struct Held {
    bytes: Vec<u8>,
    ended: bool,
}

/// One side of a connection: what it does with frames, with their absence, and at its deadlines.
pub(super) trait Connection {
    type Timer: Ord + core::hash::Hash + Clone + core::fmt::Debug;
    type Output;

    fn common(&mut self) -> &mut CommonState<Self::Timer, Self::Output>;

    /// The limit for frames that this side receives after the handshake.
    fn max_frame_bytes(&self) -> usize;

    fn on_frame(&mut self, now: Now, frame: &[u8]) -> Result<(), ConnectionError>;

    /// Ends the connection: its bytes are no frames.
    fn on_bad_frame(&mut self, now: Now, error: FrameError) -> ConnectionError;

    /// Ends the connection: the peer sends nothing more.
    fn on_disconnect(&mut self, now: Now);

    fn on_timer(&mut self, now: Now, timer: &Self::Timer);

    fn on_input(&mut self, now: Now, input: Input<'_>) -> Result<(), ConnectionError> {
        trace!(?input, phase = ?self.common().phase, "input");
        if self.common().is_closed() {
            return Err(ConnectionError::Closed);
        }
        if let Some(held) = &mut self.common().held {
            match input {
                Input::Bytes(bytes) => held.bytes.extend_from_slice(bytes),
                Input::Eof => held.ended = true,
            }
            return Ok(());
        }
        match input {
            Input::Bytes(bytes) => self.on_bytes(now, bytes),
            Input::Eof => match self.common().decoder.finish() {
                Ok(()) => {
                    self.on_disconnect(now);
                    Ok(())
                }
                Err(error) => Err(self.on_bad_frame(now, error)),
            },
        }
    }

    // impl: OSW-2-8
    fn on_bytes(&mut self, now: Now, mut bytes: &[u8]) -> Result<(), ConnectionError> {
        // A frame borrows from the decoder while it is handled.
        let mut decoder = core::mem::take(&mut self.common().decoder);
        let result = loop {
            match decoder.decode(bytes) {
                Ok((_, None)) => break Ok(()),
                Ok((taken, Some(frame))) => {
                    let result = self.on_frame(now, frame);
                    bytes = bytes.get(taken..).unwrap_or_default();
                    if result.is_err() || self.common().is_closed() {
                        break result;
                    }
                    if self.common().is_throttled {
                        self.common().pause();
                    }
                    if let Some(held) = &mut self.common().held {
                        held.bytes.extend_from_slice(bytes);
                        break result;
                    }
                    // A frame behind the welcome in the same bytes is under the welcome's limit already.
                    decoder.set_limit(self.max_frame_bytes());
                }
                Err(error) => break Err(self.on_bad_frame(now, error)),
            }
        };
        self.common().decoder = decoder;
        result
    }

    /// Handles what came since the pause. It may pause again.
    fn resume(&mut self, now: Now) -> Result<(), ConnectionError> {
        let Some(Held { bytes, ended }) = self.common().held.take() else {
            return Ok(());
        };
        if self.common().is_closed() {
            return Ok(());
        }
        self.on_bytes(now, &bytes)?;
        match ended && !self.common().is_closed() {
            true => self.on_input(now, Input::Eof),
            false => Ok(()),
        }
    }

    fn on_due(&mut self, now: Now) {
        while !self.common().is_closed()
            && let Some(timer) = self.common().timers.pop_due(now.mono)
        {
            trace!(?timer, "timer");
            self.on_timer(now, &timer);
        }
    }
}

/// Gives a [`Connection`] the methods of a machine, and the trait that forwards to them.
macro_rules! impl_machine {
    ($connection:ident) => {
        impl $connection {
            /// Takes bytes of the peer, or the end of its stream.
            ///
            /// # Errors
            ///
            /// The peer broke the protocol and the connection has ended, or it had ended before. What is
            /// still to be sent, and the end, are among the outputs.
            pub fn handle_input(
                &mut self,
                now: Now,
                input: Input<'_>,
            ) -> Result<(), ConnectionError> {
                self.on_input(now, input)
            }

            /// Does what is due: a timeout, a heartbeat, the end of a call.
            pub fn handle_timeout(&mut self, now: Now) {
                self.on_due(now);
            }

            /// The next output, or `None` when there is none.
            pub fn poll_output(&mut self) -> Option<Output> {
                self.common.out.pop()
            }

            /// Takes the memory of a frame that was sent, for the next one.
            #[cfg(feature = "tokio")]
            pub(crate) fn reuse(&mut self, frame: Vec<u8>) {
                self.common.encoder.reuse(frame);
            }

            /// When [`handle_timeout`](Self::handle_timeout) is due next.
            #[must_use]
            pub fn poll_timeout(&self) -> Option<Mono> {
                self.common.timers.next()
            }

            /// Whether more input is welcome: the connection has not ended, and fewer outputs wait than
            /// [`Limits::max_waiting_outputs`](crate::limits::Limits).
            #[must_use]
            pub fn accepts_input(&self) -> bool {
                self.common.accepts_input()
            }

            /// Whether the connection has ended.
            #[must_use]
            pub fn is_closed(&self) -> bool {
                self.common.is_closed()
            }
        }

        ubos_common::forward_machine! { [] $connection: Input<'a> => Output, ConnectionError }
    };
}

pub(super) use impl_machine;
