//! Bounded JSON: what every wire message is read and written with.
//!
//! [`Reader`] is a pull parser over text whose UTF-8 was checked once. It enforces [`Limits`] before it
//! allocates, refuses duplicate members at every depth, and builds no tree. Three layers stand on it:
//!
//! * [`Read`] and [`Write`] for a type, written by hand or by [`wire!`](crate::wire) and
//!   [`words!`](crate::words): known members typed, unknown ones kept raw, every breach of the shape
//!   noted with its clause in one pass.
//! * [`Raw`] and [`RawBuf`]: one value, checked and kept as text, for payloads that are read in a second step.
//! * [`decode`]: bytes to a typed value and a [`Report`](crate::violation::Report).
//!
//! Places are paid for on the failing path alone: a fault carries a byte offset, and pointer, line and
//! column are computed from the text when somebody asks.
//!
//! ```
//! use ubos_common::json::{self, Limits, RawBuf};
//! use ubos_common::violation::Profile;
//!
//! ubos_common::wire! {
//!     /// An envelope whose payload is read later, by type.
//!     pub struct Envelope {
//!         /// What the payload is.
//!         required kind: String = "type", "DEMO-1";
//!         /// Read in a second step.
//!         required payload: RawBuf = "payload", "DEMO-2";
//!     }
//! }
//!
//! let bytes = br#"{"type":"greeting","payload":{"hello":[1,2]},"x-new":1e3}"#;
//! let (envelope, report) = json::decode::<Envelope>(bytes, &Limits::default(), Profile::Strict)?;
//! assert!(report.is_empty());
//! assert_eq!(envelope.payload.as_str(), r#"{"hello":[1,2]}"#);
//! assert_eq!(json::to_string(&envelope), r#"{"type":"greeting","payload":{"hello":[1,2]},"x-new":1e3}"#);
//!
//! let refused = json::decode::<Envelope>(br#"{"type":7}"#, &Limits::default(), Profile::Strict).unwrap_err();
//! assert_eq!(refused.to_string().lines().count(), 2); // both breaches, each at its pointer
//! # Ok::<(), json::DecodeError>(())
//! ```

mod error;
mod kind;
mod limits;
mod locate;
mod raw;
mod read;
mod read_raw;
mod reader;
mod scan;
mod wire;
mod words;
mod write;

pub use error::{DecodeError, Fault, FaultKind, JsonError};
pub use kind::Kind;
pub use limits::Limits;
pub use locate::Position;
#[cfg(feature = "schema")]
pub(crate) use raw::has_reserved_name;
pub use raw::{Members, Raw, RawBuf, RawObject};
#[doc(hidden)]
pub use read::read_uuid;
pub use read::{Read, decode, decode_alone, read_raw};
pub use reader::{Mark, Reader};
#[doc(hidden)]
pub use wire::{Presence, Slot, refuse_double};
pub use write::{MemberWriter, Write, escape_into, to_string, to_vec};
