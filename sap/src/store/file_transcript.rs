//! A transcript on the hash-chained log.

use std::path::PathBuf;
use std::sync::Arc;

use ubos_common::log::{Config, FsDir, Log, LogDir, OpenError, OpenReport, ReadError, Verify};

use crate::transcript::{Entry, Head, Proof, Transcript, TranscriptError, Verdict};

/// What was archived.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Archived {
    /// Segments that were moved.
    pub segments: u64,
    /// The end of what is archived; absent when nothing was moved.
    pub head: Option<Head>,
}

/// A transcript in the files of a folder. One process writes it; anybody can verify it.
#[derive(Debug)]
pub struct FileTranscript {
    dir: Arc<dyn LogDir>,
    log: Log,
}

impl FileTranscript {
    /// Opens the transcript in a folder, or makes it there; `config` needs a log id for that.
    ///
    /// ```
    /// use sap::store::FileTranscript;
    /// use sap::transcript::{Transcript as _, Verdict};
    /// use sap::ubos_common::log::{Config, LogId};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let config = Config::default().log_id(LogId::from_bytes([7; 16]));
    /// let transcript = FileTranscript::open(folder.path(), config)?;
    /// assert_eq!(transcript.verify(None)?.verdict, Verdict::Intact);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`OpenError`]; damage is named and left as it is. A last entry that a crash cut short is dropped, and
    /// the [report](Self::report) says so.
    pub fn open(path: impl Into<PathBuf>, config: Config) -> Result<Self, OpenError> {
        Self::open_in(Arc::new(FsDir::create(path)?), config)
    }

    /// Opens the transcript in a folder of any kind.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_in(dir: Arc<dyn LogDir>, config: Config) -> Result<Self, OpenError> {
        let log = Log::open_in(Arc::clone(&dir), config)?;
        Ok(Self { dir, log })
    }

    /// What opening found.
    #[must_use]
    pub fn report(&self) -> &OpenReport {
        self.log.report()
    }

    /// Moves whole segments whose entries all have numbers below `before` into another folder, oldest first, each
    /// proven and synced there before it goes here. So entries are kept for as long as is wanted, and the chain
    /// holds over both folders: `head` of what was moved is where this one [goes on](Self::verify_after).
    ///
    /// # Errors
    ///
    /// The log failed, or does not hold; what was moved by then stays moved, and calling again goes on.
    pub fn archive(
        &self,
        before: u64,
        target: impl Into<PathBuf>,
    ) -> Result<Archived, TranscriptError> {
        let target = FsDir::create(target).map_err(store)?;
        let moved = self.log.archive(before, &target).map_err(store)?;
        Ok(Archived {
            segments: moved.segments,
            head: moved.head.map(|head| Head::new(head.to_string())),
        })
    }

    /// Proves what is left after archiving, and that it goes on from `head`.
    ///
    /// # Errors
    ///
    /// As [`verify`](Transcript::verify).
    pub fn verify_after(&self, head: &Head) -> Result<Proof, TranscriptError> {
        let head = head.as_str().parse().map_err(|_| TranscriptError::Head)?;
        self.prove(&Verify::default().after(head))
    }

    fn prove(&self, verify: &Verify) -> Result<Proof, TranscriptError> {
        match verify.run(self.dir.as_ref()) {
            Ok(proven) => Ok(Proof::new(
                proven.records,
                Head::new(proven.head.to_string()),
                Verdict::Intact,
            )),
            Err(ReadError::Damaged(damage)) => {
                let head = self.log.head();
                Ok(Proof::new(
                    head.next_sequence,
                    Head::new(head.to_string()),
                    Verdict::Broken {
                        record: damage.fault.sequence(),
                        what: damage.to_string(),
                    },
                ))
            }
            Err(other) => Err(store(other)),
        }
    }

    /// Makes all entries durable and gives the head to be kept elsewhere.
    ///
    /// # Errors
    ///
    /// The log failed.
    pub fn sync(&self) -> Result<Head, TranscriptError> {
        let head = self.log.sync().map_err(store)?;
        Ok(Head::new(head.to_string()))
    }
}

impl Transcript for FileTranscript {
    fn record(&self, entry: &Entry) -> Result<u64, TranscriptError> {
        let position = self.log.append(&entry.encode()).map_err(store)?;
        Ok(position.sequence)
    }

    fn read(&self, from: u64, max: usize) -> Result<Vec<Entry>, TranscriptError> {
        let mut reader = self.log.reader();
        reader.seek(from);
        let mut entries = Vec::new();
        while entries.len() < max
            && let Some(entry) = reader.next().map_err(store)?
        {
            entries.push(Entry::decode(entry.bytes)?);
        }
        Ok(entries)
    }

    fn verify(&self, kept: Option<&Head>) -> Result<Proof, TranscriptError> {
        let mut verify = Verify::default();
        if let Some(kept) = kept {
            verify = verify.kept(kept.as_str().parse().map_err(|_| TranscriptError::Head)?);
        }
        self.prove(&verify)
    }
}

fn store(error: impl std::error::Error + Send + Sync + 'static) -> TranscriptError {
    TranscriptError::Store(Box::new(error))
}
