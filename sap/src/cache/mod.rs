//! The write-once cache: outcomes that were vetted once answer equal tasks again.
//!
//! ```text
//! caching  whose outcomes may answer which tasks
//! key      what two tasks have in common when one answer serves both
//! record   what is kept, never changed
//! policy   whether a record answers this task, as a pure function
//! store    where records are kept
//! ```

#[cfg(feature = "driver")]
mod caching;
mod key;
mod policy;
mod record;

pub use crate::evidence::{CacheKey, Fingerprint};
#[cfg(feature = "driver")]
pub use caching::Caching;
pub use key::{DropMembers, Essence, KeyError, Keys, WholePayload};
pub use policy::{Decision, Found, MissReason, decide, is_read};
pub(crate) use record::SAP_VERSION;
pub use record::{CacheRecord, CacheStore, Lookup};
