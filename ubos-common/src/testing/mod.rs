//! A lab for machines: two or more of them on virtual time, over links that fail.
//!
//! One seed is one run: the lab draws every latency, split and loss from it, so a failing seed is a
//! reproducible test. Put your own agent in by implementing [`Node`] for it; the roles of the protocol
//! crates implement it already.
//!
//! ```
//! use ubos_common::testing::{Action, Faults, Lab, LinkId, LinkKind, Node};
//! use ubos_common::time::{Mono, Now};
//!
//! /// Counts what it hears, and answers each byte once.
//! #[derive(Default)]
//! struct Parrot { heard: usize, out: Vec<(LinkId, Vec<u8>)> }
//!
//! impl Node for Parrot {
//!     type Event = ();
//!     fn receive(&mut self, _: Now, link: LinkId, bytes: &[u8]) {
//!         self.heard += bytes.len();
//!         let answer: Vec<u8> = bytes.iter().filter(|b| **b < 3).map(|b| b + 1).collect();
//!         self.out.push((link, answer));
//!     }
//!     fn poll(&mut self) -> Option<Action<()>> {
//!         self.out.pop().map(|(link, bytes)| Action::Send(link, bytes))
//!     }
//! }
//!
//! let mut lab = Lab::new(42, [Parrot::default(), Parrot::default()]);
//! let link = lab.connect(0, 1, LinkKind::Stream, Faults::rough());
//! lab.with(0, |node, _now| node.out.push((link, vec![1, 1, 1])));
//! lab.run(1_000);
//! assert_eq!((lab.node(0).heard, lab.node(1).heard), (3, 6));
//! ```

mod lab;
mod link;

pub use lab::{Action, Lab, Node, Step};
pub use link::{Faults, LinkId, LinkKind};

#[cfg(test)]
mod tests;
