//! Which files belong to the folder.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use ignore::WalkBuilder;
use ubos_common::canon::Digest;

use super::{Progress, ScanError};

/// A folder to be audited.
#[derive(Clone, Debug)]
pub struct Folder {
    /// Where it is.
    pub path: PathBuf,
    /// Whether ignore rules are left aside.
    pub no_ignore: bool,
    /// A folder inside it that does not count: the mission's own state.
    pub excluded: Option<PathBuf>,
}

/// One regular file.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its path below the folder.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
}

impl Folder {
    /// All regular files below the folder, in the order of their paths. Links are not followed.
    ///
    /// What cannot be listed is told to `unreadable` and left out.
    pub fn files(
        &self,
        unreadable: &mut dyn FnMut(String, String),
    ) -> Result<Vec<Entry>, ScanError> {
        let unlistable = |why: String| ScanError::Folder {
            path: self.path.display().to_string(),
            why,
        };
        fs::read_dir(&self.path).map_err(|err| unlistable(err.to_string()))?;
        let mut files = Vec::new();
        let excluded = self.excluded.clone();
        let walk = WalkBuilder::new(&self.path)
            .standard_filters(false)
            .hidden(false)
            .parents(false)
            .git_ignore(!self.no_ignore)
            .ignore(!self.no_ignore)
            .require_git(false)
            .follow_links(false)
            .filter_entry(move |entry| {
                entry.file_name() != OsStr::new(".git") && Some(entry.path()) != excluded.as_deref()
            })
            .build();
        for entry in walk {
            let entry = match entry {
                Ok(entry) => entry,
                Err(err) => {
                    unreadable(self.place(&err), reason(&err));
                    continue;
                }
            };
            if entry.file_type().is_some_and(|kind| kind.is_file()) {
                let path = entry
                    .path()
                    .strip_prefix(&self.path)
                    .unwrap_or_else(|_| entry.path())
                    .to_owned();
                match entry.metadata() {
                    Ok(meta) => files.push(Entry {
                        path,
                        bytes: meta.len(),
                    }),
                    Err(err) => unreadable(shown(&path), reason(&err)),
                }
            }
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(files)
    }

    /// The place of a file.
    pub fn at(&self, entry: &Entry) -> PathBuf {
        self.path.join(&entry.path)
    }

    /// The path that an error of the walk is about.
    fn place(&self, err: &ignore::Error) -> String {
        match err {
            ignore::Error::WithPath { path, .. } => {
                shown(path.strip_prefix(&self.path).unwrap_or(path))
            }
            ignore::Error::WithDepth { err, .. } | ignore::Error::WithLineNumber { err, .. } => {
                self.place(err)
            }
            _ => String::new(),
        }
    }
}

fn reason(err: &ignore::Error) -> String {
    err.io_error()
        .map_or_else(|| "cannot be listed".to_owned(), |io| io.kind().to_string())
}

/// A path as it is shown: lossy where it is no UTF-8.
pub(super) fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// A digest of what the passes will read, without reading it: every path with size, times and inode.
///
/// A file whose content changes gets another change time, and so another digest.
pub fn tree_digest(
    folder: &Folder,
    progress: &mut dyn Progress,
) -> Result<(Digest, usize), ScanError> {
    let files = folder.files(&mut |_, _| {})?;
    let mut text = Vec::with_capacity(files.len() * 64);
    for (n, entry) in files.iter().enumerate() {
        if n % 1_000 == 0 && !progress.files(n) {
            return Err(ScanError::Canceled);
        }
        let name = entry.path.as_os_str().as_bytes();
        text.extend_from_slice(&(name.len() as u64).to_le_bytes());
        text.extend_from_slice(name);
        let meta = fs::symlink_metadata(folder.at(entry));
        let numbers = meta.map_or([0; 7], |m| {
            [
                m.len().cast_signed(),
                m.mtime(),
                m.mtime_nsec(),
                m.ctime(),
                m.ctime_nsec(),
                m.ino().cast_signed(),
                i64::from(m.mode()),
            ]
        });
        for number in numbers {
            text.extend_from_slice(&number.to_le_bytes());
        }
    }
    text.push(u8::from(folder.no_ignore));
    Ok((Digest::of_bytes(&text), files.len()))
}
