//! The folder and the files beneath a log, as traits.

use std::fmt;
use std::io;
use std::sync::Arc;

/// A flat folder of files. Names are plain ASCII without separators.
///
/// What `create`, `rename` and `remove` change is durable only after [`sync`](Self::sync).
pub trait LogDir: fmt::Debug + Send + Sync {
    /// Names of the files, in any order.
    ///
    /// # Errors
    /// What the folder answers.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Creates a file to write and read; one of this name is emptied.
    ///
    /// # Errors
    /// What the folder answers.
    fn create(&self, name: &str) -> io::Result<Arc<dyn LogFile>>;

    /// Opens an existing file, to write too when `write` is set.
    ///
    /// # Errors
    /// `NotFound` where there is none; else what the folder answers.
    fn open(&self, name: &str, write: bool) -> io::Result<Arc<dyn LogFile>>;

    /// Renames a file, replacing one of the new name.
    ///
    /// # Errors
    /// What the folder answers.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// What the folder answers.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes the names durable.
    ///
    /// # Errors
    /// What the folder answers; the names are in doubt then.
    fn sync(&self) -> io::Result<()>;

    /// Takes the writer's lock of the folder itself, which falls with the guard or the process; `None` when another
    /// holds it. No file that somebody may remove stands for it.
    ///
    /// # Errors
    /// What the folder answers.
    fn lock(&self) -> io::Result<Option<DirLock>>;

    /// A text that two folders share only when they are one, however they are named; `None` where nothing tells.
    ///
    /// # Errors
    /// What the folder answers.
    fn identity(&self) -> io::Result<Option<String>> {
        Ok(None)
    }
}

/// A file of a [`LogDir`]; all offsets are absolute, so that handles can be shared.
#[expect(clippy::len_without_is_empty, reason = "nobody asks an empty file")]
pub trait LogFile: fmt::Debug + Send + Sync {
    /// Reads what is there at `offset`, at most `buffer`; 0 at the end of the file.
    ///
    /// # Errors
    /// What the file answers.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    /// What the file answers; any part may have been written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes the bytes and the length durable.
    ///
    /// # Errors
    /// What the file answers; every write since the last good sync is in doubt then, also after a second call.
    fn sync(&self) -> io::Result<()>;

    /// Length, in bytes.
    ///
    /// # Errors
    /// What the file answers.
    fn len(&self) -> io::Result<u64>;

    /// Cuts the file, or extends it with zeroes.
    ///
    /// # Errors
    /// What the file answers.
    fn set_len(&self, bytes: u64) -> io::Result<()>;

    /// Extends the file to `bytes` of zeroes whose place on the disk is taken, so that a later sync has no
    /// metadata to write. Bytes that are there stay.
    ///
    /// # Errors
    /// What the file answers, `StorageFull` among others.
    fn allocate(&self, bytes: u64) -> io::Result<()>;

    /// Takes the writer's lock of this file, which falls with the handle; `false` when another handle has it. So one
    /// file that lies in two folders has one writer. Where the lock of the folder suffices, there is nothing to do.
    ///
    /// # Errors
    /// What the file answers.
    fn lock(&self) -> io::Result<bool> {
        Ok(true)
    }
}

/// Holds the writer's lock of a folder for as long as it lives.
pub struct DirLock(#[expect(dead_code, reason = "only its drop matters")] Box<dyn Send + Sync>);

impl DirLock {
    /// A lock that falls when `guard` is dropped.
    #[must_use]
    pub fn new(guard: impl Send + Sync + 'static) -> Self {
        Self(Box::new(guard))
    }
}

impl fmt::Debug for DirLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DirLock")
    }
}

/// At most `length` bytes from `offset` on: fewer where the file ends before.
pub(crate) fn read_up_to(file: &dyn LogFile, length: usize, offset: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let read = read_full(file, &mut bytes, offset)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Reads until `buffer` is full or the file ends; tells how much.
pub(crate) fn read_full(file: &dyn LogFile, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
