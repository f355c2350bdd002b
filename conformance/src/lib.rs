//! Kits that judge anybody's implementation of the UBOS agent protocols, clause by clause.
//!
//! A [`Kit`] is a list of [`Case`]s for one role of one [`Protocol`]. A case runs a scenario against a peer,
//! which is recorded line by line, and a [`Judge`] reads the recording. The same judges listen to live
//! traffic between two other parties with [`Kit::tap`].
//!
//! [`Kit::run`] judges a stranger; [`Expectations`] hold what the stranger's author declares about it.
//! [`Kit::prove`] judges the kit: each case brings a reference, which must pass every case, and a mutant,
//! which must fail its own clause and no other that the case does not name. A judge that never fails, or
//! fails for another reason than its clause, is found this way. Kits of vectors bring a mutant more for each word of each
//! closed list, which refuses that word alone: a word that no valid vector shows is found, too.
//!
//! ```
//! use ubos_conformance::{Case, Expectations, Judge, Kit, Protocol, Reach, Verdict};
//!
//! /// A peer of the toy protocol answers a number with the next one.
//! struct Toy;
//! impl Protocol for Toy {
//!     type Line = (u64, u64);
//!     type Peer = dyn FnMut(u64) -> u64;
//! }
//!
//! #[derive(Default)]
//! struct Answers(Option<String>);
//! impl Judge<(u64, u64)> for Answers {
//!     fn see(&mut self, &(asked, answered): &(u64, u64)) {
//!         if answered != asked + 1 {
//!             self.0 = Some(format!("{answered} for {asked}"));
//!         }
//!     }
//!     fn verdict(&mut self) -> Verdict {
//!         self.0.take().map_or(Verdict::Pass, |seen| Verdict::fail("the answer", seen))
//!     }
//! }
//!
//! let case = Case::<Toy>::new(
//!     Reach::Drive,
//!     ("TOY-1", "answers with the next number"),
//!     |peer, recorder| for n in [1, 7] { let answer = peer(n); recorder.record((n, answer)); },
//!     Answers::default,
//!     || Box::new(|n| n + 1),
//!     || Box::new(|n| n),
//! );
//! let kit = Kit::new("toy", [case]);
//! kit.prove().unwrap();
//! let report = kit.run(&Expectations::new().with_floor(1), |_| Ok(Box::new(|n| n * 2)));
//! assert!(!report.is_conformant());
//! assert!(report.to_string().contains("14 for 7"));
//! ```
//!
//! # Features
//!
//! | feature | module | what it judges |
//! |---|---|---|
//! | `sap` | [`sap`] | SAP V2.0 |
//! | `sacp` | [`sacp`] | SACP 0.1 and 1.0 |
//! | `osw` | [`osw`] | OpenSentience runtime v1 |
//! | `uap` | [`uap`] | UAP-1.1 |
//! | `hub` | [`hub`] | UAP hub v1 |
//! | `sqlite`, `postgres` | [`uap`] | nothing more: the program that proves the kit of resumed runs also keeps its run in these |
//! | `external-tests` | | nothing more: tests that start a PostgreSQL server |

mod case;
mod expectations;
mod kit;
mod report;
mod vector;
#[cfg(any(feature = "osw", feature = "sacp", feature = "sap", feature = "uap"))]
mod word_list;

#[cfg(feature = "hub")]
pub mod hub;
#[cfg(feature = "osw")]
pub mod osw;
#[cfg(feature = "sacp")]
pub mod sacp;
#[cfg(feature = "sap")]
pub mod sap;
#[cfg(feature = "uap")]
pub mod uap;

pub use case::{Case, Judge, Protocol, Reach, Recorder, Verdict};
pub use expectations::{Expectations, ExpectationsError};
pub use kit::{ConnectError, Kit, ProofError, Tap};
pub use report::{CaseOutcome, Report};
pub use ubos_common;
pub use vector::{Answered, TestVector, Validator, Validity, Vectors, vector_kit};

/// The README's example, which names the feature that it needs.
#[cfg(all(doctest, feature = "sap"))]
#[doc = include_str!("../README.md")]
struct Readme;
