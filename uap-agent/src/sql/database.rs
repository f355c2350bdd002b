//! A database that is open.

use core::fmt;
#[cfg(feature = "sqlite")]
use std::path::Path;
use std::sync::Arc;

use ubos_common::ConfigError;
use ubos_common::time::Timestamp;

use super::error::OpenError;
#[cfg(feature = "sqlite")]
use super::lite::LiteLink;
#[cfg(feature = "postgres")]
use super::pg::PgLink;
use super::pool::{Open, Pool};
#[cfg(feature = "postgres")]
use super::postgres_config::PostgresConfig;
use crate::checkpoint::{CheckpointConfig, SqlCheckpoints};
use crate::journal::{JournalError, SqlJournal};

/// The journals and the checkpoints of many agents, in one database that any number of processes have open.
///
/// Runs have a lease with a term, of 60 seconds unless [`AgentOptions::with_ownership`](crate::AgentOptions::with_ownership)
/// says otherwise: unlike a folder, a database does not say whether the process that wrote last is alive. A run whose process
/// was killed can be resumed once the term is over, or by force.
///
/// Threads do all work, so that no runtime waits for the database. While a server is away, work waits for it and is tried again,
/// for half a minute: from the call, or from when the server last did something where that is later. A server that says nothing
/// for 15 seconds counts as away, so that an error comes within a minute after the call or its last answer, however much waits.
/// A transaction whose commit got no answer is looked for before it is repeated. A read whose future is dropped before its turn
/// is left out; a write is done, though nobody awaits it.
///
/// Dropping the last clone waits for what was asked for, 10 seconds at most. The threads do the rest by themselves while the
/// process lives: await your writes before it ends.
///
/// | bound | |
/// |---|---|
/// | a run | 256 MiB with 32 bytes for each entry, and 256 levels of JSON; a row is measured before it is read |
/// | the names of all abandoned runs | 64 MiB with 64 bytes for each |
/// | names of runs and sessions | 1,024 bytes, none of them zero |
/// | waiting for another process | 10 seconds for each write |
///
/// ```
/// # #[cfg(feature = "sqlite")] {
/// use std::sync::Arc;
/// use uap_agent::sql::Database;
/// use uap_agent::{AgentOptions, CheckpointStore, agent};
/// use upp::{Reply, ScriptedModel};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let file = folder.path().join("agents.db");
/// # futures::executor::block_on(async {
/// let database = Database::sqlite(&file)?;
/// let checkpoints = Arc::new(database.checkpoints());
/// let model = ScriptedModel::new([Reply::text("hello")]);
/// let agent = agent(AgentOptions::new(Arc::new(model)).with_checkpoints(checkpoints.clone()).with_session_id("ann"))?;
/// let run = Arc::new(database.journal("order 17"));
/// let result = agent.record(run.clone(), "hi", &agent.initial_state()).result().await?;
///
/// // Later, perhaps in another process:
/// assert_eq!(agent.resume(run).await?.result().await?, result);
/// assert_eq!(checkpoints.load("ann").await?, Some(result.state));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// # }
/// ```
#[derive(Clone)]
pub struct Database {
    pool: Arc<Pool>,
}

impl Database {
    /// Opens a SQLite database in a file, which is created where it does not exist.
    ///
    /// # Errors
    ///
    /// The file cannot be opened, is no database, or has tables of another version.
    #[cfg(feature = "sqlite")]
    pub fn sqlite(file: impl AsRef<Path>) -> Result<Self, OpenError> {
        let file = file.as_ref().to_owned();
        let open: Open = Box::new(move || Ok(Box::new(LiteLink::open(&file)?)));
        Self::over([open])
    }

    /// Connects to PostgreSQL. Makes the tables where they are not there.
    ///
    /// # Errors
    ///
    /// A setting is out of its range; the server is not there, or refuses; the tables are of another version.
    #[cfg(feature = "postgres")]
    pub fn postgres(config: &PostgresConfig) -> Result<Self, OpenError> {
        let (connections, config, connect) = config.checked()?;
        let open = |_| {
            let (config, connect) = (config.clone(), Arc::clone(&connect));
            let open: Open = Box::new(move || {
                let mut link = PgLink::open(config, connect)?;
                link.make_tables()?;
                Ok(Box::new(link))
            });
            open
        };
        Self::over((0..connections).map(open))
    }

    pub(super) fn over(open: impl IntoIterator<Item = Open>) -> Result<Self, OpenError> {
        let pool = Arc::new(Pool::open(open)?);
        Ok(Self { pool })
    }

    /// The journal of a run, by a name of yours. It is empty until the run is recorded.
    #[must_use]
    pub fn journal(&self, run: impl Into<Arc<str>>) -> SqlJournal {
        SqlJournal::of(run.into(), Arc::clone(&self.pool))
    }

    /// A store of checkpoints. Two of one database are told apart as two processes are.
    #[must_use]
    pub fn checkpoints(&self) -> SqlCheckpoints {
        SqlCheckpoints::of(Arc::clone(&self.pool), &CheckpointConfig::default())
    }

    /// As [`Database::checkpoints`], with a configuration.
    ///
    /// # Errors
    ///
    /// A setting is 0.
    pub fn checkpoints_with(
        &self,
        config: &CheckpointConfig,
    ) -> Result<SqlCheckpoints, ConfigError> {
        config.check()?;
        Ok(SqlCheckpoints::of(Arc::clone(&self.pool), config))
    }

    /// The runs that have not ended and whose lease has: those that a process may take over, in the order of their names.
    /// Runs that wait for a person are among them.
    ///
    /// # Errors
    ///
    /// The database failed.
    pub async fn abandoned(&self, now: Timestamp) -> Result<Vec<String>, JournalError> {
        SqlJournal::abandoned(&self.pool, now).await
    }

    /// Removes the journal of a run. One that does not exist is not an error.
    ///
    /// # Errors
    ///
    /// The database failed.
    pub async fn delete_journal(&self, run: &str) -> Result<(), JournalError> {
        SqlJournal::delete(&self.pool, run).await
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("connections", &self.pool.connections())
            .finish_non_exhaustive()
    }
}
