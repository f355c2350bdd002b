//! PostgreSQL.

use core::error::Error as _;
use core::future::Future;
use core::time::Duration;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;

use futures::TryStreamExt as _;
use futures_core::future::BoxFuture;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{IsNull, ToSql, Type, private::BytesMut, to_sql_checked};
use tokio_postgres::{Client, Config, Error, Statement};

use super::link::{Boundary, Cell, DbFault, Link, Param, Row};
use super::schema::TABLES;

/// How long a new connection and data on their way may take, where the application has not said so.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long the server may be silent where it has to answer: longer than it waits for the lock of another process. One that
/// has stopped does not close its connections.
const SILENCE: Duration = Duration::from_secs(15);

/// A write waits for another process as long as with SQLite. A commit is on the disk of the server when it returns.
const SETTINGS: &str = "SET lock_timeout = '10s';
    SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') IN ('off', 'local', 'remote_write');";

/// Two that make the tables at once would fail: one waits for the other.
const MAKING: &str = "SELECT pg_advisory_xact_lock(4991137304912871525)";

/// Connects; gives the client, and what moves its data until the connection ends.
pub(super) type Connect = Arc<
    dyn Fn(Config) -> BoxFuture<'static, Result<(Client, BoxFuture<'static, ()>), Error>>
        + Send
        + Sync,
>;

pub(super) struct PgLink {
    /// It runs while something is asked.
    runtime: Runtime,
    config: Config,
    connect: Connect,
    client: Client,
    moving: JoinHandle<()>,
    prepared: BTreeMap<&'static str, Statement>,
    /// An answer is missing: the connection is of no use any more.
    is_silent: bool,
}

/// What the server answers; no error where it is silent.
type Answer<T> = Result<T, Option<Error>>;

async fn answer<T>(asked: impl Future<Output = Result<T, Error>>) -> Answer<T> {
    match timeout(SILENCE, asked).await {
        Ok(answer) => answer.map_err(Some),
        Err(_) => Err(None),
    }
}

fn silent() -> DbFault {
    let text = format!("the server says nothing for {} seconds", SILENCE.as_secs());
    DbFault {
        may_pass: true,
        ..DbFault::new(text)
    }
}

impl PgLink {
    pub(super) fn open(mut config: Config, connect: Connect) -> Result<Self, DbFault> {
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(PATIENCE);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(PATIENCE);
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = runtime.map_err(|error| DbFault::new(error.to_string()))?;
        let (client, moving) = connected(&runtime, &config, &connect)?;
        Ok(Self {
            runtime,
            config,
            connect,
            client,
            moving,
            prepared: BTreeMap::new(),
            is_silent: false,
        })
    }

    /// Makes the tables, unless they are there: whoever uses them need not have the right to make them.
    pub(super) fn make_tables(&mut self) -> Result<(), DbFault> {
        let asked = "SELECT to_regclass('uap_schema') IS NOT NULL";
        let row = self.client.query_one(asked, &[]);
        let row = self.runtime.block_on(answer(row));
        if self.noted(row)?.try_get(0).map_err(fault)? {
            return Ok(());
        }
        let tables = TABLES.join(";");
        self.batch(&format!("BEGIN; {MAKING}; {tables}; COMMIT"))
    }

    fn batch(&mut self, text: &str) -> Result<(), DbFault> {
        if self.is_silent {
            return Err(silent());
        }
        let done = self
            .runtime
            .block_on(answer(self.client.batch_execute(text)));
        self.noted(done)
    }

    fn noted<T>(&mut self, answer: Answer<T>) -> Result<T, DbFault> {
        answer.map_err(|error| {
            self.is_silent |= error.is_none();
            error.map_or_else(silent, fault)
        })
    }

    fn prepared(&mut self, text: &'static str) -> Result<Statement, DbFault> {
        if self.is_silent {
            return Err(silent());
        }
        if let Some(statement) = self.prepared.get(text) {
            return Ok(statement.clone());
        }
        let ours = text.replace('?', "$").replace("/*lock*/", " FOR UPDATE");
        let statement = self.runtime.block_on(answer(self.client.prepare(&ours)));
        let statement = self.noted(statement)?;
        self.prepared.insert(text, statement.clone());
        Ok(statement)
    }

    /// Runs a statement, and gives its rows until one is not wanted any more; how many rows it changed.
    fn rows(
        &mut self,
        text: &'static str,
        values: &[Param<'_>],
        each: &mut dyn FnMut(&tokio_postgres::Row) -> Result<bool, Error>,
    ) -> Result<u64, DbFault> {
        let statement = self.prepared(text)?;
        let client = &self.client;
        let done = self.runtime.block_on(async {
            let rows = answer(client.query_raw(&statement, values.iter())).await?;
            let mut rows = pin!(rows);
            while let Some(row) = answer(rows.try_next()).await? {
                if !each(&row).map_err(Some)? {
                    break;
                }
            }
            Ok(rows.rows_affected().unwrap_or(0))
        });
        self.noted(done)
    }
}

fn connected(
    runtime: &Runtime,
    config: &Config,
    connect: &Connect,
) -> Result<(Client, JoinHandle<()>), DbFault> {
    let made = runtime.block_on(async {
        // Both within one silence, so that the error of what waits for it comes in time.
        let made = async {
            let (client, moving) = connect(config.clone()).await?;
            let moving = runtime.spawn(moving);
            client.batch_execute(SETTINGS).await?;
            Ok((client, moving))
        };
        answer(made).await
    });
    made.map_err(|error: Option<Error>| error.map_or_else(silent, fault))
}

impl Drop for PgLink {
    fn drop(&mut self) {
        self.moving.abort();
    }
}

impl Link for PgLink {
    fn at(&mut self, boundary: Boundary) -> Result<(), DbFault> {
        self.batch(match boundary {
            Boundary::BeginRead => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
            // Each statement sees what others have committed while it waited for the row.
            Boundary::BeginWrite => "BEGIN ISOLATION LEVEL READ COMMITTED",
            Boundary::Commit => "COMMIT",
            Boundary::RollBack => "ROLLBACK",
        })
    }

    fn execute(&mut self, text: &'static str, values: &[Param<'_>]) -> Result<u64, DbFault> {
        self.rows(text, values, &mut |_| Ok(true))
    }

    fn query(
        &mut self,
        text: &'static str,
        values: &[Param<'_>],
        each: &mut dyn FnMut(Row) -> bool,
    ) -> Result<(), DbFault> {
        let read = self.rows(text, values, &mut |row| {
            let cells: Result<_, _> = (0..row.len()).map(|n| cell(row, n)).collect();
            Ok(each(Row(cells?)))
        });
        read.map(drop)
    }

    fn renew(&mut self) -> Result<(), DbFault> {
        if self.is_silent || self.client.is_closed() {
            self.prepared.clear();
            let (client, moving) = connected(&self.runtime, &self.config, &self.connect)?;
            self.moving.abort();
            (self.client, self.moving, self.is_silent) = (client, moving, false);
        }
        Ok(())
    }
}

/// A value that cannot be one of ours is null: who wants another type is told so.
fn cell(row: &tokio_postgres::Row, column: usize) -> Result<Cell, Error> {
    let Some(kind) = row
        .columns()
        .get(column)
        .map(|column| column.type_().clone())
    else {
        return Ok(Cell::Null);
    };
    let cell = match kind {
        Type::INT8 => row.try_get::<_, Option<i64>>(column)?.map(Cell::Int),
        Type::TEXT => row.try_get::<_, Option<String>>(column)?.map(Cell::Text),
        Type::BYTEA => row.try_get::<_, Option<Vec<u8>>>(column)?.map(Cell::Bytes),
        _ => None,
    };
    Ok(cell.unwrap_or(Cell::Null))
}

impl ToSql for Param<'_> {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn core::error::Error + Sync + Send>> {
        match self {
            Self::Int(value) => value.to_sql_checked(kind, out),
            Self::OptInt(value) => value.to_sql_checked(kind, out),
            Self::Text(text) => text.to_sql_checked(kind, out),
            Self::OptText(text) => text.to_sql_checked(kind, out),
            Self::Bytes(bytes) => bytes.to_sql_checked(kind, out),
        }
    }

    fn accepts(kind: &Type) -> bool {
        [Type::INT8, Type::TEXT, Type::BYTEA].contains(kind)
    }

    to_sql_checked!();
}

/// The error, with what the server says. It names tables, and no values.
pub(super) fn fault(error: Error) -> DbFault {
    let may_pass = match error.code() {
        Some(code) => may_pass(code),
        None => {
            error.is_closed()
                || error
                    .source()
                    .is_some_and(|source| source.is::<std::io::Error>())
        }
    };
    let said = error
        .as_db_error()
        .map(|said| Cow::from(said.message().to_owned()));
    let cause = || error.source().map(|source| source.to_string().into());
    let why: Option<Cow<'_, str>> = said.or_else(cause);
    DbFault {
        may_pass,
        ..DbFault::new(format!(
            "{error}{}",
            why.map(|why| format!(": {why}")).unwrap_or_default()
        ))
    }
}

fn may_pass(code: &SqlState) -> bool {
    // Class 08 is that of broken connections.
    PASSING.contains(code) || code.code().starts_with("08")
}

/// The server ends or starts, or has chosen another of two transactions that wait for each other.
const PASSING: [SqlState; 5] = [
    SqlState::ADMIN_SHUTDOWN,
    SqlState::CRASH_SHUTDOWN,
    SqlState::CANNOT_CONNECT_NOW,
    SqlState::T_R_DEADLOCK_DETECTED,
    SqlState::T_R_SERIALIZATION_FAILURE,
];

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn a_server_that_ends_and_a_connection_that_breaks_may_be_there_again() {
        for code in ["57P01", "40001", "08006", "08000"] {
            assert!(may_pass(&SqlState::from_code(code)), "{code}");
        }
        for code in ["42P01", "23505", "28P01"] {
            assert!(!may_pass(&SqlState::from_code(code)), "{code}");
        }
    }

    /// The configuration that a connection is made with.
    fn used(config: Config) -> Config {
        let noted = Arc::new(Mutex::new(None));
        let kept = Arc::clone(&noted);
        let connect: Connect = Arc::new(move |config| {
            *kept.lock().unwrap() = Some(config);
            Box::pin(async { Err("port=none".parse::<Config>().unwrap_err()) })
        });
        assert!(PgLink::open(config, connect).is_err());
        let used = noted.lock().unwrap().take();
        used.unwrap()
    }

    #[test]
    fn a_connection_has_a_bound_in_time_and_that_of_the_application_first() {
        let bounds = |config: &Config| {
            let tcp = config.get_tcp_user_timeout().copied();
            (config.get_connect_timeout().copied(), tcp)
        };
        assert_eq!(
            bounds(&used(Config::new())),
            (Some(PATIENCE), Some(PATIENCE))
        );
        let (one, other) = (Duration::from_secs(3), Duration::from_secs(4));
        let mut config = Config::new();
        config.connect_timeout(one).tcp_user_timeout(other);
        assert_eq!(bounds(&used(config)), (Some(one), Some(other)));
    }
}
