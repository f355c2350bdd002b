//! What a database has to do for the stores.

/// A value of a statement.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Param<'a> {
    Int(i64),
    OptInt(Option<i64>),
    Text(&'a str),
    OptText(Option<&'a str>),
    Bytes(&'a [u8]),
}

/// A value of a row.
#[derive(Debug)]
pub(crate) enum Cell {
    Null,
    Int(i64),
    Text(String),
    Bytes(Vec<u8>),
}

/// A row of a result. Each value is taken once.
#[derive(Debug)]
pub(crate) struct Row(pub(super) Vec<Cell>);

impl Row {
    fn take(&mut self, column: usize) -> Cell {
        let cell = self.0.get_mut(column);
        cell.map_or(Cell::Null, |cell| core::mem::replace(cell, Cell::Null))
    }

    pub(crate) fn opt_int(&mut self, column: usize) -> Result<Option<i64>, DbFault> {
        match self.take(column) {
            Cell::Int(value) => Ok(Some(value)),
            Cell::Null => Ok(None),
            _ => Err(DbFault::type_of(column)),
        }
    }

    pub(crate) fn int(&mut self, column: usize) -> Result<i64, DbFault> {
        let value = self.opt_int(column)?;
        value.ok_or_else(|| DbFault::type_of(column))
    }

    /// A number that is never negative.
    pub(crate) fn count(&mut self, column: usize) -> Result<u64, DbFault> {
        let value = u64::try_from(self.int(column)?);
        value.map_err(|_| DbFault::type_of(column))
    }

    pub(crate) fn opt_text(&mut self, column: usize) -> Result<Option<String>, DbFault> {
        match self.take(column) {
            Cell::Text(text) => Ok(Some(text)),
            Cell::Null => Ok(None),
            _ => Err(DbFault::type_of(column)),
        }
    }

    pub(crate) fn text(&mut self, column: usize) -> Result<String, DbFault> {
        let text = self.opt_text(column)?;
        text.ok_or_else(|| DbFault::type_of(column))
    }

    pub(crate) fn opt_bytes(&mut self, column: usize) -> Result<Option<Vec<u8>>, DbFault> {
        match self.take(column) {
            Cell::Bytes(bytes) => Ok(Some(bytes)),
            Cell::Null => Ok(None),
            _ => Err(DbFault::type_of(column)),
        }
    }

    pub(crate) fn bytes(&mut self, column: usize) -> Result<Vec<u8>, DbFault> {
        let bytes = self.opt_bytes(column)?;
        bytes.ok_or_else(|| DbFault::type_of(column))
    }
}

/// A number as the databases keep it.
pub(crate) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Why a database did not do what it was asked.
#[derive(Debug)]
pub(crate) struct DbFault {
    pub(crate) text: Box<str>,
    /// Nothing of the transaction was done, and it may be tried again: the server is away, or has chosen another one.
    pub(super) may_pass: bool,
}

impl DbFault {
    pub(super) fn new(text: impl Into<Box<str>>) -> Self {
        Self {
            text: text.into(),
            may_pass: false,
        }
    }

    fn type_of(column: usize) -> Self {
        Self::new(format!("column {column} has another type than ours"))
    }
}

/// The boundaries of a transaction.
#[derive(Clone, Copy, Debug)]
pub(super) enum Boundary {
    /// All reads of it see one moment, and it writes nothing.
    BeginRead,
    /// A transaction that is sure to write: it waits for others here, or at the row that it locks.
    BeginWrite,
    Commit,
    RollBack,
}

/// An open connection. Statements are written with `?1` for the first value, and with `/*lock*/` behind the choice of a row
/// that others must not change before the end of the transaction.
pub(super) trait Link {
    fn at(&mut self, boundary: Boundary) -> Result<(), DbFault>;

    /// Runs a statement; how many rows it changed.
    fn execute(&mut self, text: &'static str, values: &[Param<'_>]) -> Result<u64, DbFault>;

    /// Gives the rows of a query, until one is not wanted any more.
    fn query(
        &mut self,
        text: &'static str,
        values: &[Param<'_>],
        each: &mut dyn FnMut(Row) -> bool,
    ) -> Result<(), DbFault>;

    /// Connects again where the connection is lost.
    fn renew(&mut self) -> Result<(), DbFault>;
}
