//! Where cache records and transcripts are kept: in memory, and (feature `log`) in files that show tampering. Signals and
//! what is learned of them are kept in files, too.

#[cfg(feature = "log")]
mod file_cache;
#[cfg(feature = "log")]
mod file_signals;
#[cfg(feature = "log")]
mod file_transcript;
#[cfg(feature = "log")]
mod fsck;
#[cfg(feature = "log")]
mod library;
#[cfg(feature = "driver")]
mod made;
#[cfg(not(feature = "driver"))]
#[path = "made_at_once.rs"]
mod made;
mod memory_cache;
mod memory_transcript;
#[cfg(feature = "log")]
mod proof;
mod redacting;
#[cfg(feature = "log")]
mod thread;

#[cfg(feature = "log")]
pub use file_cache::{FileCache, FileCacheError};
#[cfg(feature = "log")]
pub use file_signals::{FileSignals, ReadBack, ReadBackError};
#[cfg(feature = "log")]
pub use file_transcript::FileTranscript;
#[cfg(feature = "log")]
pub use fsck::{StoreFinding, StoreKind, StoreReport, fsck};
#[cfg(feature = "log")]
pub use library::Library;
pub use memory_cache::MemoryCache;
pub use memory_transcript::MemoryTranscript;
pub use redacting::Redacting;
#[cfg(feature = "log")]
pub use thread::wait_for_dropped;
