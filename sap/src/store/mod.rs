//! Where cache records and transcripts are kept: in memory, and (feature `log`) in files that show tampering.

#[cfg(feature = "log")]
mod file_cache;
#[cfg(feature = "log")]
mod file_transcript;
#[cfg(feature = "log")]
mod fsck;
mod memory;
mod redacting;
#[cfg(feature = "log")]
mod thread;

#[cfg(feature = "log")]
pub use file_cache::{FileCache, FileCacheError};
#[cfg(feature = "log")]
pub use file_transcript::FileTranscript;
#[cfg(feature = "log")]
pub use fsck::{StoreFinding, StoreKind, StoreReport, fsck};
pub use memory::{MemoryCache, MemoryTranscript};
pub use redacting::Redacting;
