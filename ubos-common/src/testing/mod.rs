//! A lab for machines: any number of them on virtual time, over links that fail.
//!
//! The lab runs any [`Machine`](crate::machine::Machine). A [`Wiring`] beside it says what arrivals mean to the
//! machine and what becomes of its outputs, as the code around a driver does outside of tests; a world with
//! effects answers them after a while, and may crash the process at any of them.
//!
//! One seed is one run: the lab draws every latency, split and loss from it, so a failing seed is a
//! reproducible test. It also wakes machines too early now and then, which must change nothing.
//!
//! ```
//! use ubos_common::machine::{Machine, Outbox};
//! use ubos_common::testing::{Actions, Arrival, Faults, Lab, LinkId, LinkKind, Wiring};
//! use ubos_common::time::{Mono, Now};
//!
//! /// Counts the bytes that it gets, and answers each byte below 3 with the next one.
//! struct Parrot { heard: usize, out: Outbox<Vec<u8>> }
//!
//! impl Parrot {
//!     fn new() -> Self { Self { heard: 0, out: Outbox::new(16) } }
//! }
//!
//! impl Machine for Parrot {
//!     type Input<'a> = &'a [u8];
//!     type Output = Vec<u8>;
//!     type Error = core::convert::Infallible;
//!     fn handle_input(&mut self, _: Now, bytes: &[u8]) -> Result<(), Self::Error> {
//!         self.heard += bytes.len();
//!         self.out.push(bytes.iter().filter(|b| **b < 3).map(|b| b + 1).collect());
//!         Ok(())
//!     }
//!     fn handle_timeout(&mut self, _: Now) {}
//!     fn poll_output(&mut self) -> Option<Vec<u8>> { self.out.pop() }
//!     fn poll_timeout(&self) -> Option<Mono> { None }
//!     fn accepts_input(&self) -> bool { !self.out.is_full() }
//!     fn is_closed(&self) -> bool { false }
//! }
//!
//! /// One link, which carries the bytes of both sides.
//! struct Wire(LinkId);
//!
//! impl Wiring<Parrot> for Wire {
//!     type Event = ();
//!     type Answer = ();
//!     fn deliver(&mut self, machine: &mut Parrot, now: Now, arrival: Arrival<'_, ()>) {
//!         if let Arrival::Bytes(_, bytes) = arrival {
//!             machine.handle_input(now, bytes).unwrap();
//!         }
//!     }
//!     fn perform(&mut self, _: &mut Parrot, _: Now, bytes: Vec<u8>, actions: &mut Actions<(), ()>) {
//!         actions.send(self.0, bytes);
//!     }
//! }
//!
//! let mut lab = Lab::new(42);
//! let link = LinkId::new(0);
//! let (one, other) = (lab.add(Parrot::new(), Wire(link)), lab.add(Parrot::new(), Wire(link)));
//! lab.connect(one, other, LinkKind::Stream, Faults::rough());
//! lab.with(one, |parrot, _now| parrot.out.push(vec![1, 1, 1]));
//! lab.run(1_000);
//! assert_eq!((lab.machine(one).heard, lab.machine(other).heard), (3, 6));
//! ```

mod crash;
mod lab;
mod link;
mod node;
#[cfg(feature = "tracing")]
mod traces;

pub use crash::CrashPoint;
pub use lab::{Lab, Step};
pub use link::{Faults, LinkId, LinkKind};
pub use node::{Actions, Arrival, NodeId, Wiring};
#[cfg(feature = "tracing")]
pub use traces::Traces;
