//! Which files belong to the folder.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ignore::{Walk, WalkBuilder};
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

/// Folders that are left out, each with the rules that are of no use.
type Unsound = Arc<Mutex<Vec<(PathBuf, &'static str)>>>;

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
        if !self.no_ignore
            && let Some(name) = unsound_rules(&self.path)
        {
            return Err(unlistable(in_no_use(name)));
        }
        let unsound = Unsound::default();
        let mut files = Vec::new();
        for entry in self.walk(&unsound) {
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
        for (path, name) in unsound
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
        {
            let path = path.strip_prefix(&self.path).unwrap_or(path);
            unreadable(shown(path), in_no_use(name));
        }
        files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        files.shrink_to_fit();
        Ok(files)
    }

    /// Goes through everything that counts; folders whose rules are of no use are left out and told.
    fn walk(&self, unsound: &Unsound) -> Walk {
        let (excluded, left_out, ruled) =
            (self.excluded.clone(), Arc::clone(unsound), !self.no_ignore);
        WalkBuilder::new(&self.path)
            .standard_filters(false)
            .hidden(false)
            .parents(false)
            .git_ignore(ruled)
            .ignore(ruled)
            .require_git(false)
            .follow_links(false)
            .filter_entry(move |entry| {
                if entry.file_name() == ".git" || Some(entry.path()) == excluded.as_deref() {
                    return false;
                }
                let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
                let unsound = (ruled && is_folder).then(|| unsound_rules(entry.path()));
                let Some(name) = unsound.flatten() else {
                    return true;
                };
                let mut left_out = left_out.lock().unwrap_or_else(PoisonError::into_inner);
                left_out.push((entry.path().to_owned(), name));
                false
            })
            .build()
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

/// A folder's rules that cannot be read to their end: a pipe would be waited for, a device has no end.
fn unsound_rules(folder: &Path) -> Option<&'static str> {
    /// Bytes of rules: each becomes a part of one large pattern.
    const RULES: u64 = 1 << 20;
    [".gitignore", ".ignore"].into_iter().find(|name| {
        fs::metadata(folder.join(name))
            .is_ok_and(|meta| !meta.is_dir() && (!meta.is_file() || meta.len() > RULES))
    })
}

fn in_no_use(name: &str) -> String {
    format!("its {name} is no file of at most 1 MiB")
}

fn reason(err: &ignore::Error) -> String {
    err.io_error()
        .map_or_else(|| "cannot be listed".to_owned(), |io| io.kind().to_string())
}

/// A path as it is shown: lossy where it is no UTF-8, and without what a name may hold of a private key, which no
/// result may say.
pub(super) fn shown(path: &Path) -> String {
    path.to_string_lossy()
        .replace("PRIVATE KEY-----", "PRIVATE KEY\u{2026}")
}

/// A digest of what the passes will read, without reading it: every path with size, times and inode.
///
/// A file whose content changes gets another change time, and so another digest.
pub fn tree_digest(
    folder: &Folder,
    progress: &mut dyn Progress,
) -> Result<(Digest, usize), ScanError> {
    let files = folder.files(&mut |_, _| {})?;
    let mut hasher = blake3::Hasher::new();
    for (n, entry) in files.iter().enumerate() {
        if n % 1_000 == 0 && !progress.files(n) {
            return Err(ScanError::Canceled);
        }
        let name = entry.path.as_os_str().as_bytes();
        hasher.update(&(name.len() as u64).to_le_bytes());
        hasher.update(name);
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
            hasher.update(&number.to_le_bytes());
        }
    }
    hasher.update(&[u8::from(folder.no_ignore)]);
    let digest = Digest::from_bytes(*hasher.finalize().as_bytes());
    Ok((digest, files.len()))
}
