//! File operations that the stores share.

use std::path::Path;
use std::{fs, io};

use super::CheckpointError;

/// The error of a failed file operation.
pub(super) fn failed(error: io::Error) -> CheckpointError {
    CheckpointError::Failed(error.to_string().into())
}

/// Syncs the entries of a folder to the disk, where the platform can open folders.
#[expect(clippy::disallowed_types, reason = "a store in files")]
pub(super) fn sync(folder: &Path) -> Result<(), CheckpointError> {
    if cfg!(unix) {
        let folder = if folder.as_os_str().is_empty() {
            Path::new(".")
        } else {
            folder
        };
        let opened = fs::File::open(folder).map_err(failed)?;
        opened.sync_all().map_err(failed)?;
    }
    Ok(())
}

/// Creates a folder, and those above it that are missing. A crash of the machine leaves none of them behind without its
/// name: the entry of each is synced.
pub(super) fn create_folders(path: &Path) -> Result<(), CheckpointError> {
    create_with(path, &mut sync)
}

fn create_with(
    path: &Path,
    sync: &mut dyn FnMut(&Path) -> Result<(), CheckpointError>,
) -> Result<(), CheckpointError> {
    if path.as_os_str().is_empty() || path.is_dir() {
        return Ok(());
    }
    let parent = path.parent().unwrap_or_else(|| Path::new(""));
    create_with(parent, sync)?;
    match fs::create_dir(path) {
        // Another store may have created it meanwhile.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
        created => created.map_err(failed)?,
    }
    sync(parent)
}

/// The result of a file operation; `None` where the file does not exist.
pub(super) fn unless_missing<T>(result: io::Result<T>) -> Result<Option<T>, CheckpointError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: UAP-12-4
    #[test]
    fn the_entry_of_every_new_folder_is_synced() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("a/b/c");
        let mut synced = Vec::new();
        let mut note = |folder: &Path| {
            synced.push(folder.to_owned());
            Ok(())
        };
        create_with(&inner, &mut note).unwrap();
        create_with(&inner, &mut note).unwrap();
        assert!(inner.is_dir());
        assert_eq!(
            synced,
            ["", "a", "a/b"].map(|under| root.path().join(under))
        );
        fs::write(root.path().join("file"), "").unwrap();
        assert!(create_folders(&root.path().join("file/inside")).is_err());
    }

    // spec: UAP-12-4
    #[cfg(unix)]
    #[test]
    fn a_folder_that_is_gone_cannot_be_synced() {
        let root = tempfile::tempdir().unwrap();
        sync(root.path()).unwrap();
        assert!(sync(&root.path().join("gone")).is_err());
    }

    // spec: UAP-12-4
    #[test]
    fn a_folder_that_another_store_creates_meanwhile_is_no_error() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("a/b");
        let mut other = |_: &Path| fs::create_dir_all(&inner).map_err(failed);
        create_with(&inner, &mut other).unwrap();
        assert!(inner.is_dir());
        // A file in its place is one.
        let inner = root.path().join("c/d");
        let mut other = |_: &Path| fs::write(&inner, "").map_err(failed);
        assert!(create_with(&inner, &mut other).is_err());
    }
}
