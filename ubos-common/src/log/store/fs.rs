//! The real folder.
#![expect(
    clippy::disallowed_types,
    reason = "this module is where the log meets the disk"
)]

use super::file::{DirLock, LogDir, LogFile};
use rustix::fs::{FallocateFlags, FlockOperation, fallocate, fdatasync, flock};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
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

    /// The folder at `path`; it and those above it are made durably where they are missing.
    ///
    /// # Errors
    /// What the file system answers.
    pub fn create(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        create_folders(&path, &mut |folder| File::open(folder)?.sync_all())?;
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
        let folder = File::open(&self.path)?;
        if !try_lock(&folder)? {
            return Ok(None);
        }
        // Another folder may have come to this path between opening and locking.
        let (locked, there) = (folder.metadata()?, fs::metadata(&self.path)?);
        let same = (locked.dev(), locked.ino()) == (there.dev(), there.ino());
        Ok(same.then(|| DirLock::new(FsFile(folder))))
    }

    fn identity(&self) -> io::Result<Option<String>> {
        let folder = fs::metadata(&self.path)?;
        Ok(Some(format!("{}:{}", folder.dev(), folder.ino())))
    }
}

fn try_lock(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Makes the folder `path` and those above it that are missing. A new name is durable when the folder it stands in
/// was synced.
fn create_folders(path: &Path, sync: &mut dyn FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    if path.as_os_str().is_empty() || path.is_dir() {
        return Ok(());
    }
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or_else(|| Path::new("."));
    create_folders(parent, sync)?;
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
        answer => answer?,
    }
    sync(parent)
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

    fn lock(&self) -> io::Result<bool> {
        try_lock(&self.0)
    }
}

impl Drop for FsFile {
    fn drop(&mut self) {
        // A process that was started meanwhile may have inherited the file: closing it here would leave the lock with it.
        // Where none was taken, there is none to give back.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::{File, FsDir, FsFile, LogDir, LogFile, create_folders, fs};

    #[test]
    fn every_folder_that_is_made_is_durable() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a/b/c");
        let mut synced = Vec::new();
        create_folders(&path, &mut |folder| {
            synced.push(folder.to_owned());
            Ok(())
        })
        .unwrap();
        assert!(path.is_dir());
        let a = root.path().join("a");
        assert_eq!(synced, [root.path().to_owned(), a.clone(), a.join("b")]);
        create_folders(&path, &mut |folder| panic!("{} again", folder.display())).unwrap();
    }

    #[test]
    fn a_folder_that_another_makes_meanwhile_is_taken() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a/b");
        create_folders(&path, &mut |_| fs::create_dir_all(&path)).unwrap();
    }

    #[test]
    fn one_folder_has_one_identity_by_every_name() {
        let root = tempfile::tempdir().unwrap();
        let folder = FsDir::create(root.path().join("log")).unwrap();
        std::os::unix::fs::symlink("log", root.path().join("link")).unwrap();
        for name in ["link", "./log", "log/../log/."] {
            let other = FsDir::new(root.path().join(name));
            assert_eq!(folder.identity().unwrap(), other.identity().unwrap());
        }
        let other = FsDir::new(root.path());
        assert_ne!(folder.identity().unwrap(), other.identity().unwrap());
    }

    #[test]
    fn a_lock_is_given_back_though_a_started_process_has_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let open = || FsFile(File::open(folder.path()).unwrap());
        let (first, second) = (open(), open());
        // What a process inherits between its fork and its program.
        let inherited = first.0.try_clone().unwrap();
        assert!(first.lock().unwrap() && !second.lock().unwrap());
        drop(first);
        assert!(second.lock().unwrap());
        drop(inherited);
        assert!(!open().lock().unwrap());
    }
}
