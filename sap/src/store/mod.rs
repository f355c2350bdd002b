//! Where cache records and transcripts are kept: in memory, and (feature `log`) in files that show tampering.

#[cfg(feature = "log")]
mod file_cache;
#[cfg(feature = "log")]
mod file_transcript;
mod memory;

#[cfg(feature = "log")]
pub use file_cache::{FileCache, FileCacheError};
#[cfg(feature = "log")]
pub use file_transcript::FileTranscript;
pub use memory::{MemoryCache, MemoryTranscript};
