//! The logs of a session: one, and for a moment its successor.
//!
//! ```text
//! <folder>/<session>/g0000000000000000/    the log; the highest number counts
//! <folder>/<session>/new/                  one that is being written
//! <folder>/<session>/gone/                 one that is being removed
//! ```
//!
//! A log gets its number when it is whole and on the disk, so that whatever a crash leaves, one log counts, and it has a
//! record.

use std::fs;
use std::path::{Path, PathBuf};

use ubos_common::id::IdSource;
use ubos_common::log::{AppendError, Config, Log, LogId, OpenError, Sync};

use super::options::Options;
use super::record::{Record, record_place};
use crate::checkpoint::CheckpointError;
use crate::checkpoint::disk::{failed, sync, unless_missing};
use crate::checkpoint::head::damaged;

const NEW: &str = "new";
const GONE: &str = "gone";

/// Bytes that a log takes ahead on the disk while it is open.
const SEGMENT: u64 = 1 << 20;

/// The kind of a session's log.
const KIND: &str = "uap-checkpoints";

pub(super) fn folder(session: &Path, number: u64) -> PathBuf {
    session.join(format!("g{number:016x}"))
}

/// The log of a session that counts.
pub(super) fn current(session: &Path) -> Result<Option<u64>, CheckpointError> {
    Ok(all(session)?.into_iter().max())
}

fn all(session: &Path) -> Result<Vec<u64>, CheckpointError> {
    let Some(entries) = unless_missing(fs::read_dir(session))? else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for entry in entries {
        let name = entry.map_err(failed)?.file_name();
        let digits = name.to_str().and_then(|name| name.strip_prefix('g'));
        let digits = digits.filter(|digits| digits.len() == 16);
        found.extend(digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()));
    }
    Ok(found)
}

/// Removes what a crash has left. The session is held.
pub(super) fn clean(session: &Path) -> Result<(), CheckpointError> {
    let found = all(session)?;
    let counts = found.iter().max().copied();
    for old in found.into_iter().filter(|old| Some(*old) != counts) {
        unless_missing(fs::remove_dir_all(folder(session, old)))?;
    }
    unless_missing(fs::remove_dir_all(session.join(NEW)))?;
    unless_missing(fs::remove_dir_all(session.join(GONE))).map(drop)
}

/// Writes a log and puts it in the place of the one that counts. The session is held.
pub(super) fn write(
    session: &Path,
    name: &str,
    options: &Options,
    mut next: impl FnMut() -> Result<Option<Record>, CheckpointError>,
) -> Result<u64, CheckpointError> {
    clean(session)?;
    let mut ids =
        IdSource::from_os().map_err(|error| CheckpointError::Failed(error.to_string().into()))?;
    let config = config(options).with_log_id(LogId::from(ids.uuid()));
    let log = Log::open(session.join(NEW), config.with_sync(Sync::None)).map_err(unopened)?;
    while let Some(record) = next()? {
        append(&log, name, options, &record)?;
    }
    log.close().map_err(unwritten)?;
    let before = current(session)?;
    let number = before.map_or(Some(0), |before| before.checked_add(1));
    let number = number.ok_or_else(|| damaged("a log with the last number there is"))?;
    fs::rename(session.join(NEW), folder(session, number)).map_err(failed)?;
    sync(session)?;
    if let Some(before) = before {
        // What is left of it does not count any more.
        let _ = fs::remove_dir_all(folder(session, before));
    }
    Ok(number)
}

/// Removes the log that counts. The session is held.
pub(super) fn remove(session: &Path) -> Result<(), CheckpointError> {
    clean(session)?;
    if let Some(number) = current(session)? {
        fs::rename(folder(session, number), session.join(GONE)).map_err(failed)?;
        sync(session)?;
    }
    unless_missing(fs::remove_dir_all(session)).map(drop)
}

pub(super) fn open(session: &Path, number: u64, options: &Options) -> Result<Log, CheckpointError> {
    Log::open(folder(session, number), config(options)).map_err(unopened)
}

/// Appends a record; tells how many bytes it has.
pub(super) fn append(
    log: &Log,
    session: &str,
    options: &Options,
    record: &Record,
) -> Result<usize, CheckpointError> {
    let text = ubos_common::json::to_vec(record);
    let place = record_place(session, log.head().next_sequence);
    let bytes = options.sealing.seal(&place, &text)?;
    log.append(&bytes).map_err(unwritten)?;
    Ok(bytes.len())
}

fn config(options: &Options) -> Config {
    Config::default()
        .with_kind(KIND)
        .with_segment_bytes(SEGMENT)
        .with_limits(options.log_limits())
}

fn unopened(error: OpenError) -> CheckpointError {
    match error {
        OpenError::Locked => CheckpointError::InUse,
        OpenError::Damaged(damage) => damaged(damage),
        OpenError::Io(error) => failed(error),
        other => CheckpointError::Failed(other.to_string().into()),
    }
}

fn unwritten(error: AppendError) -> CheckpointError {
    CheckpointError::Failed(error.to_string().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options {
            sealing: crate::checkpoint::seal::sealing::Sealing::default(),
            max_bytes: 1024,
            history: 1,
        }
    }

    // spec: UAP-12-4
    #[test]
    #[cfg_attr(miri, ignore = "an interpreter takes no place on a disk ahead")]
    fn a_removal_that_was_cut_short_is_ended() {
        let (place, options) = (tempfile::tempdir().unwrap(), options());
        let session = place.path().join("s");
        for left in [folder(&session, 3), session.join(NEW), session.join(GONE)] {
            fs::create_dir_all(left.join("left")).unwrap();
        }
        fs::create_dir_all(folder(&session, 5)).unwrap();
        clean(&session).unwrap();
        let left = fs::read_dir(&session).unwrap().count();
        assert_eq!((left, current(&session)), (1, Ok(Some(5))));
        write(&session, "s", &options, || Ok(None)).unwrap();
        fs::create_dir_all(session.join(GONE).join("left")).unwrap();
        remove(&session).unwrap();
        assert!(!session.exists());
    }

    #[test]
    fn a_disk_that_fails_is_told_by_its_own_text() {
        let broken = std::io::Error::other("the disk is broken");
        let wanted = CheckpointError::Failed("the disk is broken".into());
        assert_eq!(unopened(OpenError::Io(broken)), wanted);
    }

    // spec: UAP-12-4
    #[test]
    #[cfg_attr(miri, ignore = "an interpreter takes no place on a disk ahead")]
    fn a_log_that_is_open_is_in_use_even_where_its_session_is_not_locked() {
        let (session, options) = (tempfile::tempdir().unwrap(), options());
        let number = write(session.path(), "s", &options, || Ok(None)).unwrap();
        let held = open(session.path(), number, &options).unwrap();
        let refused = open(session.path(), number, &options).map(drop);
        assert_eq!(refused, Err(CheckpointError::InUse));
        drop(held);
        assert!(open(session.path(), number, &options).is_ok());
    }
}
