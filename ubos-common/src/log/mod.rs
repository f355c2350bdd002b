//! The append-only, hash-chained log.
//!
//! What was acknowledged stays: after a killed process, a power cut, a full or failing disk. What was changed
//! is found: every block of records names the digest of the block before it, and a [`Head`] kept elsewhere
//! finds records that were removed from the end. What is proven is the bytes on the disk.
//!
//! ```text
//! Log        one writer: append, submit/wait, batches; one sync for all that wait; archive
//! Reader     many, also in other processes: from a sequence on, or one record by position
//! Verify     the whole chain, or everything that is wrong with it
//! format     the bytes, without IO
//! LogDir     the folder beneath, real (FsDir) or simulated with all its failures (SimDisk, feature `testing`)
//! ```
//!
//! Two different things happen to the end of a log. A write that a crash tore was never acknowledged: opening
//! cuts it off and says so ([`OpenReport::torn`]). Bytes that were there in full and do not hold were changed:
//! opening names them ([`OpenError::Damaged`]) and touches nothing. The store tells them apart by what a disk
//! can do: it writes a sector of 512 bytes whole or not at all, on ground that was zero before.
//!
//! It does not keep others from writing to the files, does not encrypt, and does not compress.
//!
//! | bound | default |
//! |---|---|
//! | record | 16 MiB |
//! | records of one commit | 32 MiB |
//! | records that wait for a commit | 4 MiB, then submitting commits first |
//! | segment | 64 MiB, then the next one |

pub mod format;
mod head;
mod kind;
mod store;

pub use crate::canon::Digest;
pub use head::{Head, HeadError, LogId, Position};
pub use kind::{Kind, KindError};
pub use store::*;
