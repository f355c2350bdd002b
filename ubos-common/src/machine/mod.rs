//! State machines without IO: their interface, and the parts that they are made of.
//!
//! | part | what it is for |
//! |---|---|
//! | [`Machine`] | the interface of every machine |
//! | [`forward_machine`](crate::forward_machine) | implements it by a type's own methods |
//! | [`Outbox`] | the bounded queue of its outputs |
//! | [`Timers`] | its deadlines by key |
//! | [`Backoff`] | delays between attempts |
//! | `driver::drive` (feature `driver`) | runs a machine whose effects are futures |
//! | `testing::Lab` (feature `testing`) | runs machines on virtual time, over links that fail |
//!
//! A driver gives a machine inputs with the time, takes its outputs until there are none, and calls it when
//! its timeout is due:
//!
//! ```
//! use core::time::Duration;
//! use ubos_common::machine::{Machine, Outbox};
//! use ubos_common::time::{Mono, Now, Timestamp};
//!
//! /// Answers each byte with itself, a second later.
//! struct Echo { due: Option<(Mono, u8)>, out: Outbox<u8> }
//!
//! impl Machine for Echo {
//!     type Input<'a> = u8;
//!     type Output = u8;
//!     type Error = core::convert::Infallible;
//!
//!     fn handle_input(&mut self, now: Now, byte: u8) -> Result<(), Self::Error> {
//!         self.due = Some((now.mono.saturating_add(Duration::from_secs(1)), byte));
//!         Ok(())
//!     }
//!     fn handle_timeout(&mut self, now: Now) {
//!         if let Some((_, byte)) = self.due.take_if(|(at, _)| *at <= now.mono) {
//!             self.out.push(byte);
//!         }
//!     }
//!     fn poll_output(&mut self) -> Option<u8> { self.out.pop() }
//!     fn poll_timeout(&self) -> Option<Mono> { self.due.map(|(at, _)| at) }
//!     fn accepts_input(&self) -> bool { self.due.is_none() && !self.out.is_full() }
//!     fn is_closed(&self) -> bool { false }
//! }
//!
//! let mut echo = Echo { due: None, out: Outbox::new(8) };
//! let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
//! echo.handle_input(now, b'!').unwrap();
//! assert!(!echo.accepts_input() && echo.poll_output().is_none());
//! echo.handle_timeout(now.plus(Duration::from_secs(1)));
//! assert_eq!(echo.poll_output(), Some(b'!'));
//! ```

mod backoff;
mod forward;
mod outbox;
mod timers;

pub use backoff::Backoff;
pub use outbox::Outbox;
pub use timers::Timers;

use crate::time::{Mono, Now};

/// A protocol role as a state machine without IO.
///
/// Rules that hold for every implementation:
///
/// * After any call that takes `&mut self` the driver takes outputs until there are none and then asks for
///   the timeout. Forgetting that may delay, never corrupt.
/// * An early or repeated [`handle_timeout`](Self::handle_timeout) changes nothing.
/// * The same inputs at the same times give the same outputs, however a byte stream is split.
/// * An error from [`handle_input`](Self::handle_input) means that the one peer of this machine broke the
///   protocol for good. Its farewell is already among the outputs, so the driver goes on draining.
/// * After its end a machine refuses inputs.
pub trait Machine {
    /// What comes in: bytes, messages, answers to requests.
    type Input<'a>;
    /// What goes out, in one order: bytes or messages to send, events, requests to the world, the end.
    type Output;
    /// Why an input is refused.
    type Error;

    /// Takes one input.
    ///
    /// # Errors
    ///
    /// The peer broke the protocol for good, or the machine has ended.
    fn handle_input(&mut self, now: Now, input: Self::Input<'_>) -> Result<(), Self::Error>;

    /// Does what is due at `now`.
    fn handle_timeout(&mut self, now: Now);

    /// The next output, or `None` when there is none.
    fn poll_output(&mut self) -> Option<Self::Output>;

    /// When [`handle_timeout`](Self::handle_timeout) is due next.
    fn poll_timeout(&self) -> Option<Mono>;

    /// Whether more input is welcome; the driver stops reading while it is not.
    fn accepts_input(&self) -> bool;

    /// Whether the machine has ended.
    fn is_closed(&self) -> bool;
}
