//! PostgreSQL.

use core::error::Error as _;
use core::time::Duration;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use ::postgres::error::SqlState;
use ::postgres::fallible_iterator::FallibleIterator as _;
use ::postgres::types::{IsNull, ToSql, Type, private::BytesMut, to_sql_checked};
use ::postgres::{Client, Config, Error, Statement};

use super::link::{Boundary, Cell, DbFault, Link, Param, Row};
use super::schema::TABLES;

/// How long a new connection and data on their way may take, where the application has not said so.
const PATIENCE: Duration = Duration::from_secs(10);

/// A write waits for another process as long as with SQLite. A commit is on the disk of the server when it returns.
const SETTINGS: &str = "SET lock_timeout = '10s';
    SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') IN ('off', 'local', 'remote_write');";

/// Two that make the tables at once would fail: one waits for the other.
const MAKING: &str = "SELECT pg_advisory_xact_lock(4991137304912871525)";

/// Connects.
pub(super) type Connect = Arc<dyn Fn(&Config) -> Result<Client, Error> + Send + Sync>;

pub(super) struct PgLink {
    config: Config,
    connect: Connect,
    client: Client,
    prepared: BTreeMap<&'static str, Statement>,
}

impl PgLink {
    pub(super) fn open(mut config: Config, connect: Connect) -> Result<Self, DbFault> {
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(PATIENCE);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(PATIENCE);
        }
        let client = connected(&config, &connect)?;
        Ok(Self {
            config,
            connect,
            client,
            prepared: BTreeMap::new(),
        })
    }

    /// Makes the tables, unless they are there: whoever uses them need not have the right to make them.
    pub(super) fn make_tables(&mut self) -> Result<(), DbFault> {
        let asked = "SELECT to_regclass('uap_schema') IS NOT NULL";
        let is_there = self.client.query_one(asked, &[]).map_err(fault)?;
        if is_there.try_get(0).map_err(fault)? {
            return Ok(());
        }
        let mut transaction = self.client.transaction().map_err(fault)?;
        transaction.batch_execute(MAKING).map_err(fault)?;
        for table in TABLES {
            transaction.batch_execute(table).map_err(fault)?;
        }
        transaction.commit().map_err(fault)
    }

    fn prepared(&mut self, text: &'static str) -> Result<Statement, DbFault> {
        if let Some(statement) = self.prepared.get(text) {
            return Ok(statement.clone());
        }
        let ours = text.replace('?', "$").replace("/*lock*/", " FOR UPDATE");
        let statement = self.client.prepare(&ours).map_err(fault)?;
        self.prepared.insert(text, statement.clone());
        Ok(statement)
    }
}

fn connected(config: &Config, connect: &Connect) -> Result<Client, DbFault> {
    let mut client = connect(config).map_err(fault)?;
    client.batch_execute(SETTINGS).map_err(fault)?;
    Ok(client)
}

impl Link for PgLink {
    fn at(&mut self, boundary: Boundary) -> Result<(), DbFault> {
        let text = match boundary {
            Boundary::BeginRead => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
            // Each statement sees what others have committed while it waited for the row.
            Boundary::BeginWrite => "BEGIN ISOLATION LEVEL READ COMMITTED",
            Boundary::Commit => "COMMIT",
            Boundary::RollBack => "ROLLBACK",
        };
        self.client.batch_execute(text).map_err(fault)
    }

    fn execute(&mut self, text: &'static str, values: &[Param<'_>]) -> Result<u64, DbFault> {
        let statement = self.prepared(text)?;
        let mut rows = self
            .client
            .query_raw(&statement, values.iter())
            .map_err(fault)?;
        while rows.next().map_err(fault)?.is_some() {}
        Ok(rows.rows_affected().unwrap_or(0))
    }

    fn query(
        &mut self,
        text: &'static str,
        values: &[Param<'_>],
        each: &mut dyn FnMut(Row) -> bool,
    ) -> Result<(), DbFault> {
        let statement = self.prepared(text)?;
        let mut rows = self
            .client
            .query_raw(&statement, values.iter())
            .map_err(fault)?;
        while let Some(row) = rows.next().map_err(fault)? {
            let cells: Result<_, _> = (0..row.len()).map(|n| cell(&row, n)).collect();
            if !each(Row(cells.map_err(fault)?)) {
                break;
            }
        }
        Ok(())
    }

    fn renew(&mut self) -> Result<(), DbFault> {
        if self.client.is_closed() {
            self.prepared.clear();
            self.client = connected(&self.config, &self.connect)?;
        }
        Ok(())
    }
}

/// A value that cannot be one of ours is null: who wants another type is told so.
fn cell(row: &::postgres::Row, column: usize) -> Result<Cell, Error> {
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
        Some(code) => PASSING.contains(code) || code.code().starts_with("08"),
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

/// The server ends or starts, or has chosen another of two transactions that wait for each other.
const PASSING: [SqlState; 5] = [
    SqlState::ADMIN_SHUTDOWN,
    SqlState::CRASH_SHUTDOWN,
    SqlState::CANNOT_CONNECT_NOW,
    SqlState::T_R_DEADLOCK_DETECTED,
    SqlState::T_R_SERIALIZATION_FAILURE,
];
