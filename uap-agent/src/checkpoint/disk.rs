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

/// The result of a file operation; `None` where the file does not exist.
pub(super) fn unless_missing<T>(result: io::Result<T>) -> Result<Option<T>, CheckpointError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(error)),
    }
}
