//! SQLite.

use core::time::Duration;
use std::path::Path;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Error, ToSql, params_from_iter};

use super::link::{Boundary, Cell, DbFault, Link, Param, Row};
use super::schema::TABLES;

/// How long a write waits for another process.
const BUSY: Duration = Duration::from_secs(10);

pub(super) struct LiteLink {
    connection: Connection,
}

impl LiteLink {
    /// Opens a file, which is created where it does not exist.
    pub(super) fn open(file: &Path) -> Result<Self, DbFault> {
        let connection = Connection::open(file).map_err(fault)?;
        connection.busy_timeout(BUSY).map_err(fault)?;
        // A commit is on the disk when it returns, and readers do not wait for it.
        let mut text = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;".to_owned();
        for table in TABLES {
            let table = table
                .replace("BIGINT", "INTEGER")
                .replace("BYTEA", "BLOB")
                .replace("COLLATE \"C\"", "COLLATE BINARY");
            text += &format!("{table} STRICT;");
        }
        connection.execute_batch(&text).map_err(fault)?;
        Ok(Self { connection })
    }
}

impl Link for LiteLink {
    fn at(&mut self, boundary: Boundary) -> Result<(), DbFault> {
        let text = match boundary {
            Boundary::BeginRead => "BEGIN",
            Boundary::BeginWrite => "BEGIN IMMEDIATE",
            Boundary::Commit => "COMMIT",
            Boundary::RollBack => "ROLLBACK",
        };
        self.connection.execute_batch(text).map_err(fault)
    }

    fn execute(&mut self, text: &'static str, values: &[Param<'_>]) -> Result<u64, DbFault> {
        let mut statement = self.connection.prepare_cached(text).map_err(fault)?;
        let changed = statement.execute(params_from_iter(values)).map_err(fault)?;
        Ok(changed as u64)
    }

    fn query(
        &mut self,
        text: &'static str,
        values: &[Param<'_>],
        each: &mut dyn FnMut(Row) -> bool,
    ) -> Result<(), DbFault> {
        let mut statement = self.connection.prepare_cached(text).map_err(fault)?;
        let columns = statement.column_count();
        let mut rows = statement.query(params_from_iter(values)).map_err(fault)?;
        while let Some(row) = rows.next().map_err(fault)? {
            let cells: Result<_, _> = (0..columns).map(|n| row.get_ref(n).map(cell)).collect();
            if !each(Row(cells.map_err(fault)?)) {
                break;
            }
        }
        Ok(())
    }

    /// A file is not lost.
    fn renew(&mut self) -> Result<(), DbFault> {
        Ok(())
    }
}

impl ToSql for Param<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match *self {
            Self::Int(value) | Self::OptInt(Some(value)) => ValueRef::Integer(value),
            Self::OptInt(None) | Self::OptText(None) => ValueRef::Null,
            Self::Text(text) | Self::OptText(Some(text)) => ValueRef::Text(text.as_bytes()),
            Self::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

/// A value that cannot be one of ours is null: who wants another type is told so.
fn cell(value: ValueRef<'_>) -> Cell {
    match value {
        ValueRef::Integer(value) => Cell::Int(value),
        ValueRef::Text(text) => {
            core::str::from_utf8(text).map_or(Cell::Null, |text| Cell::Text(text.into()))
        }
        ValueRef::Blob(bytes) => Cell::Bytes(bytes.into()),
        ValueRef::Null | ValueRef::Real(_) => Cell::Null,
    }
}

fn fault(error: Error) -> DbFault {
    DbFault::new(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_waits_for_others_and_for_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let link = LiteLink::open(&folder.path().join("agents.db")).unwrap();
        let asked = |text| {
            let number = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
            link.connection.query_row(text, [], number).unwrap()
        };
        assert_eq!(asked("PRAGMA busy_timeout"), 10_000);
        // 2 is FULL.
        assert_eq!(asked("PRAGMA synchronous"), 2);
    }
}
