//! The log on disk.

mod ahead;
mod appender;
mod archive;
mod catalog;
mod config;
mod error;
mod file;
mod fs;
mod judge;
mod open;
mod reader;
mod repair;
mod scan;
mod search;
#[cfg(any(test, feature = "testing"))]
mod sim;
mod ticket;
mod verify;
mod walk;
mod writer;

pub use archive::Archived;
pub use config::{Config, Sync};
pub use error::{AppendError, ArchiveError, Damage, OpenError, ReadError};
pub use file::{DirLock, LogDir, LogFile};
pub use fs::FsDir;
pub use open::{OpenReport, TornTail};
pub use reader::{Entry, Reader};
pub use repair::{Cut, Repaired};
#[cfg(any(test, feature = "testing"))]
pub use sim::{SimDisk, SimFault};
pub use ticket::{Batch, Ticket};
pub use verify::{FsckReport, Verified, Verify};
pub use walk::Finding;
pub use writer::Log;
