//! The tables. SQLite and PostgreSQL have the same, with other names of types.

/// The version of the tables.
pub(super) const VERSION: i64 = 1;

/// The tables, as PostgreSQL knows them. Names are compared by their bytes everywhere.
///
/// `next` of a run and of a session is compared and set by every write. The columns of `uap_run` behind it say what its last
/// entries say. A checkpoint is a whole state (`back` is 0), or what makes it of the one before; a whole state stands `back`
/// checkpoints before it.
pub(super) const TABLES: [&str; 5] = [
    "CREATE TABLE IF NOT EXISTS uap_schema (version BIGINT PRIMARY KEY)",
    "CREATE TABLE IF NOT EXISTS uap_run (
        run TEXT COLLATE \"C\" PRIMARY KEY, next BIGINT NOT NULL, bytes BIGINT NOT NULL, ended BIGINT NOT NULL,
        epoch BIGINT NOT NULL, owner TEXT NOT NULL, term_ms BIGINT, at_ms BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS uap_entry (
        run TEXT COLLATE \"C\" NOT NULL, n BIGINT NOT NULL, entry TEXT NOT NULL, batch BIGINT NOT NULL,
        digest BYTEA NOT NULL, PRIMARY KEY (run, n))",
    "CREATE TABLE IF NOT EXISTS uap_session (
        session TEXT COLLATE \"C\" PRIMARY KEY, first BIGINT NOT NULL, next BIGINT NOT NULL, last TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS uap_checkpoint (
        session TEXT COLLATE \"C\" NOT NULL, n BIGINT NOT NULL, checkpoint TEXT NOT NULL, back BIGINT NOT NULL,
        about BYTEA NOT NULL, state BYTEA NOT NULL, digest BYTEA NOT NULL, PRIMARY KEY (session, n))",
];

/// Asks for the version; no row where the tables are new.
pub(super) const ASK_VERSION: &str = "SELECT version FROM uap_schema ORDER BY version DESC LIMIT 1";

pub(super) const SET_VERSION: &str =
    "INSERT INTO uap_schema (version) VALUES (?1) ON CONFLICT (version) DO NOTHING";
