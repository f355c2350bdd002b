//! The real folder.
#![expect(
    clippy::disallowed_types,
    reason = "this module is where the log meets the disk"
)]

use super::file::{DirLock, LogDir, LogFile};
use rustix::fs::{FallocateFlags, FlockOperation, fallocate, fdatasync, flock};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A folder of the file system.
#[derive(Clone, Debug)]
pub struct FsDir {
    path: PathBuf,
}

impl FsDir {
    /// The folder at `path`, which exists.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The folder at `path`, made durably if it is not there.
    ///
    /// # Errors
    /// What the file system answers.
    pub fn create(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        if !path.is_dir() {
            fs::create_dir_all(&path)?;
            if let Some(parent) = path.parent() {
                let parent = if parent.as_os_str().is_empty() {
                    Path::new(".")
                } else {
                    parent
                };
                File::open(parent)?.sync_all()?;
            }
        }
        Ok(Self { path })
    }

    /// Where the folder is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl LogDir for FsDir {
    fn list(&self) -> io::Result<Vec<String>> {
        let names =
            fs::read_dir(&self.path)?.map(|entry| Ok(entry?.file_name().into_string().ok()));
        names.filter_map(Result::transpose).collect()
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        Ok(Arc::new(FsFile(options.open(self.path.join(name))?)))
    }

    fn open(&self, name: &str, write: bool) -> io::Result<Arc<dyn LogFile>> {
        let file = OpenOptions::new()
            .read(true)
            .write(write)
            .open(self.path.join(name))?;
        Ok(Arc::new(FsFile(file)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    fn lock(&self) -> io::Result<Option<DirLock>> {
        let mut options = OpenOptions::new();
        let file = options
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.path.join(LOCK))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(DirLock::new(file))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// A file of the file system.
#[derive(Debug)]
struct FsFile(File);

impl LogFile for FsFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        // On Linux this also writes a changed length: what a reader needs to find the bytes again.
        Ok(fdatasync(&self.0)?)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        match fallocate(&self.0, FallocateFlags::empty(), 0, bytes) {
            // A file system that cannot take place ahead still keeps the promise of zeroes.
            Err(rustix::io::Errno::OPNOTSUPP) if self.len()? < bytes => self.set_len(bytes),
            Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            answer => Ok(answer?),
        }
    }
}

const LOCK: &str = "lock";
