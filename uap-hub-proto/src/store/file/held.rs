//! The log of a store, which is opened again after it failed.

use std::{
    io,
    sync::{Arc, PoisonError, RwLock},
};

use ubos_common::log::{
    AppendError, Config, DirLock, Head, Log, LogDir, LogFile, OpenError, OpenReport, Position,
    Reader, format::Limits,
};

/// A folder whose lock the store holds, so that no other process gets the log between a failure and its opening again.
#[derive(Debug)]
pub(super) struct Held {
    dir: Arc<dyn LogDir>,
    _lock: DirLock,
}

impl Held {
    pub(super) fn lock(dir: Arc<dyn LogDir>) -> Result<Arc<Self>, OpenError> {
        let lock = dir.lock()?.ok_or(OpenError::Locked)?;
        Ok(Arc::new(Self { dir, _lock: lock }))
    }
}

impl LogDir for Held {
    fn list(&self) -> io::Result<Vec<String>> {
        self.dir.list()
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        self.dir.create(name)
    }

    fn open(&self, name: &str, write: bool) -> io::Result<Arc<dyn LogFile>> {
        self.dir.open(name, write)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.dir.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.dir.remove(name)
    }

    fn sync(&self) -> io::Result<()> {
        self.dir.sync()
    }

    /// It is locked already.
    fn lock(&self) -> io::Result<Option<DirLock>> {
        Ok(Some(DirLock::new(())))
    }

    fn identity(&self) -> io::Result<Option<String>> {
        self.dir.identity()
    }
}

/// The log, or where it ended when it failed.
#[derive(Debug)]
pub(super) struct Journal {
    dir: Arc<Held>,
    config: Config,
    limits: Limits,
    state: RwLock<Condition>,
}

#[derive(Debug)]
enum Condition {
    Open {
        log: Box<Log>,
        /// How often it was opened, which tells a failure of this log from one of an earlier.
        opened: u64,
    },
    Failed {
        /// The end of what was acknowledged.
        head: Head,
        report: OpenReport,
        opened: u64,
    },
}

/// Why nothing was appended.
#[derive(Debug, thiserror::Error)]
pub(super) enum JournalError {
    /// The records exceed the limits of the log, which is as before.
    #[error(transparent)]
    Append(AppendError),
    /// A write or sync failed.
    #[error("the log could not be written ({0})")]
    Write(io::ErrorKind),
    /// It failed, and was not opened again since.
    #[error("the log failed earlier and is not open")]
    Failed,
    /// It failed earlier and cannot be opened again.
    #[error("the log failed earlier and cannot be opened again")]
    Reopen(#[from] OpenError),
    /// Records that were acknowledged are not there any more.
    #[error(
        "the log failed earlier and ends at record {found} now, but {wanted} were acknowledged"
    )]
    Shortened {
        /// Records that were acknowledged.
        wanted: u64,
        /// Records that are there.
        found: u64,
    },
}

impl From<AppendError> for JournalError {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::Poisoned(kind) => Self::Write(kind),
            error => Self::Append(error),
        }
    }
}

impl Journal {
    pub(super) fn open(dir: Arc<Held>, config: Config, limits: Limits) -> Result<Self, OpenError> {
        let log = Log::open_in(dir.clone(), config.clone())?;
        Ok(Self {
            dir,
            config,
            limits,
            state: RwLock::new(Condition::Open {
                log: Box::new(log),
                opened: 1,
            }),
        })
    }

    /// A reader of what was acknowledged, and, while the log failed, perhaps of what was not.
    pub(super) fn reader(&self) -> Reader {
        self.look(|state| match state {
            Condition::Open { log, .. } => log.reader(),
            Condition::Failed { .. } => Reader::open_in(self.dir.clone(), self.limits),
        })
    }

    pub(super) fn head(&self) -> Head {
        self.look(|state| match state {
            Condition::Open { log, .. } => log.head(),
            Condition::Failed { head, .. } => *head,
        })
    }

    pub(super) fn report(&self) -> OpenReport {
        self.look(|state| match state {
            Condition::Open { log, .. } => log.report().clone(),
            Condition::Failed { report, .. } => report.clone(),
        })
    }

    pub(super) fn has_failed(&self) -> bool {
        self.look(|state| matches!(state, Condition::Failed { .. }))
    }

    /// Calls the log unless it failed.
    pub(super) fn with_log<T>(&self, act: impl FnOnce(&Log) -> T) -> Result<T, JournalError> {
        self.look(|state| match state {
            Condition::Open { log, .. } => Ok(act(log)),
            Condition::Failed { .. } => Err(JournalError::Failed),
        })
    }

    /// Appends records, all or none. A log that fails is given up: whether they are there, only opening it again tells.
    pub(super) fn append(&self, records: &[&[u8]]) -> Result<Vec<Position>, JournalError> {
        let (done, opened) = self.look(|state| match state {
            Condition::Open { log, opened } => (
                log.append_batch(records).map_err(JournalError::from),
                *opened,
            ),
            Condition::Failed { opened, .. } => (Err(JournalError::Failed), *opened),
        });
        if let Err(JournalError::Write(_)) = done {
            self.give_up(opened);
        }
        Ok(done?.positions)
    }

    fn give_up(&self, failed: u64) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if let Condition::Open { log, opened } = &*state
            && *opened == failed
        {
            *state = Condition::Failed {
                head: log.head(),
                report: log.report().clone(),
                opened: failed,
            };
        }
    }

    /// Opens the log again where it failed. Before it is used, `settle` gets it with the first record that was not
    /// acknowledged; where that fails, too, it stays closed.
    pub(super) fn reopen<E: From<JournalError>>(
        &self,
        settle: impl FnOnce(&Log, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let Condition::Failed { head, opened, .. } = &*state else {
            return Ok(());
        };
        let log = Log::open_in(self.dir.clone(), self.config.clone());
        let log = log.map_err(JournalError::from)?;
        let (wanted, found) = (head.next_sequence, log.head().next_sequence);
        if found < wanted || (found == wanted && log.head() != *head) {
            return Err(JournalError::Shortened { wanted, found }.into());
        }
        settle(&log, wanted)?;
        let opened = opened + 1;
        *state = Condition::Open {
            log: Box::new(log),
            opened,
        };
        Ok(())
    }

    fn look<T>(&self, look: impl FnOnce(&Condition) -> T) -> T {
        look(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }
}
