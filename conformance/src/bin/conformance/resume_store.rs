//! Where the program that proves the kit of resumed runs keeps its run: in files, in SQLite or in PostgreSQL.
//!
//! The variable `UAP_RESUME_STORE` says which: `files`, `sqlite`, or `postgres` and the address of a server on which
//! databases can be made.

use std::path::Path;
use std::sync::Arc;

use uap_agent::journal::{FileJournal, Journal};
use uap_agent::{CheckpointStore, LogCheckpoints};

use super::resume_agent::Stop;

pub(super) fn journal(folder: &Path) -> Result<Arc<dyn Journal>, Stop> {
    match told().as_str() {
        "files" => Ok(Arc::new(FileJournal::open(folder.join("journal"))?)),
        #[cfg(any(feature = "sqlite", feature = "postgres"))]
        other => Ok(Arc::new(database::open(other, folder)?.journal("run"))),
        #[cfg(not(any(feature = "sqlite", feature = "postgres")))]
        other => Err(unknown(other)),
    }
}

/// Whether the store locks a run for the process that has it open.
pub(super) fn locks_runs() -> bool {
    told() == "files"
}

pub(super) fn checkpoints(folder: &Path) -> Result<Arc<dyn CheckpointStore>, Stop> {
    match told().as_str() {
        "files" => {
            let store = LogCheckpoints::open(folder.join("checkpoints"));
            Ok(Arc::new(store?))
        }
        #[cfg(any(feature = "sqlite", feature = "postgres"))]
        other => Ok(Arc::new(database::open(other, folder)?.checkpoints())),
        #[cfg(not(any(feature = "sqlite", feature = "postgres")))]
        other => Err(unknown(other)),
    }
}

fn told() -> String {
    std::env::var("UAP_RESUME_STORE").unwrap_or_else(|_| "files".to_owned())
}

fn unknown(store: &str) -> Stop {
    Stop::Unreadable(format!("this program is built without the store {store:?}"))
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod database {
    use std::path::Path;

    use uap_agent::sql::Database;

    use super::super::resume_agent::Stop;
    use super::unknown;

    pub(super) fn open(store: &str, folder: &Path) -> Result<Database, Stop> {
        let (kind, address) = store.split_once(' ').unwrap_or((store, ""));
        let _ = (folder, address);
        match kind {
            #[cfg(feature = "sqlite")]
            "sqlite" => {
                std::fs::create_dir_all(folder).map_err(|error| Stop::unreadable(&error))?;
                Database::sqlite(folder.join("agents.db")).map_err(|error| Stop::unreadable(&error))
            }
            #[cfg(feature = "postgres")]
            "postgres" => super::server::open(address, folder),
            _ => Err(unknown(store)),
        }
    }
}

#[cfg(feature = "postgres")]
mod server {
    use std::path::Path;

    use postgres::{Client, NoTls};
    use uap_agent::sql::{Database, PostgresConfig};
    use ubos_common::canon::Digest;

    use super::super::resume_agent::Stop;

    /// The file of a folder that names its database, and the folder that it was made for.
    const FILE: &str = "database";

    /// The database of a folder. That of a folder that was copied is a copy of its database.
    pub(super) fn open(address: &str, folder: &Path) -> Result<Database, Stop> {
        let path = folder.display().to_string();
        let name = format!(
            "run_{}",
            Digest::of_bytes(path.as_bytes())
                .to_string()
                .replace(':', "_")
        );
        let name = name.get(..48).unwrap_or(&name).to_owned();
        let told = format!("{name}\n{path}");
        let file = folder.join(FILE);
        let known = match std::fs::read(&file) {
            Ok(bytes) => Some(String::from_utf8(bytes).map_err(|error| Stop::unreadable(&error))?),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(Stop::unreadable(&error)),
        };
        if known.as_ref() != Some(&told) {
            let from = known
                .as_deref()
                .map(|known| known.split_once('\n').unwrap_or((known, "")).0);
            make(address, &name, from)?;
            std::fs::create_dir_all(folder).map_err(|error| Stop::unreadable(&error))?;
            std::fs::write(file, told).map_err(|error| Stop::unreadable(&error))?;
        }
        let config = PostgresConfig::new(format!("{address} dbname={name}")).with_connections(1);
        Database::postgres(&config).map_err(|error| Stop::unreadable(&error))
    }

    fn make(address: &str, name: &str, from: Option<&str>) -> Result<(), Stop> {
        let from = from.unwrap_or("template0");
        let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        if from.is_empty() || !from.bytes().all(is_name) {
            return Err(Stop::Unreadable(
                "the name of the database is damaged".to_owned(),
            ));
        }
        let mut client = Client::connect(&format!("{address} dbname=postgres"), NoTls)
            .map_err(|error| Stop::unreadable(&error))?;
        // A folder whose file was damaged may have one already.
        let drop = format!("DROP DATABASE IF EXISTS {name}");
        let create = format!("CREATE DATABASE {name} TEMPLATE {from}");
        if name != from {
            client
                .execute(&drop, &[])
                .map_err(|error| Stop::unreadable(&error))?;
            client
                .execute(&create, &[])
                .map_err(|error| Stop::unreadable(&error))?;
        }
        Ok(())
    }
}
