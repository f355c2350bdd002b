//! The tool process: this program again, launched by the core, with the passes as tools.

use std::env;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use opensentience_wire::message::{Channel, SemVer, ToolSpec};
use opensentience_wire::role::agent::Chunk;
use opensentience_wire::transport::tokio::{Agent, ToolContext, ToolError};
use serde::Serialize;
use serde_json::json;
use ubos_common::json::RawObject;

use super::scan::{self, Cut, Folder, ScanError};

/// The agent's name; its tools are below it.
pub const AGENT_ID: &str = "dev.ubos.mission.tools";
/// The tool that only waits, so that there is something to cancel.
pub const WAIT: &str = "wait";

/// Set for the tool process alone.
const ROLE: &str = "UBOS_MISSION_TOOLS";
const FOLDER: &str = "UBOS_MISSION_FOLDER";
const NO_IGNORE: &str = "UBOS_MISSION_NO_IGNORE";
const EXCLUDED: &str = "UBOS_MISSION_EXCLUDED";

/// Whether this process was launched to be the tools.
#[must_use]
pub fn is_tool_process() -> bool {
    env::var_os(ROLE).is_some()
}

/// What the tool process needs to know, by its environment: paths may be no UTF-8.
#[must_use]
pub fn environment(folder: &Folder) -> Vec<(&'static str, OsString)> {
    let mut variables = vec![
        (ROLE, "1".into()),
        (FOLDER, folder.path.clone().into_os_string()),
    ];
    if folder.no_ignore {
        variables.push((NO_IGNORE, "1".into()));
    }
    if let Some(excluded) = &folder.excluded {
        variables.push((EXCLUDED, excluded.clone().into_os_string()));
    }
    variables
}

/// Serves the tools until the core says goodbye or vanishes.
pub async fn serve() -> ExitCode {
    let Some(folder) = env::var_os(FOLDER).map(PathBuf::from) else {
        return ExitCode::from(3);
    };
    let folder = Folder {
        path: folder,
        no_ignore: env::var_os(NO_IGNORE).is_some(),
        excluded: env::var_os(EXCLUDED).map(PathBuf::from),
    };
    let Ok(version) = env!("CARGO_PKG_VERSION").parse::<SemVer>() else {
        return ExitCode::from(3);
    };
    // They take no input.
    let agent = Agent::new(version)
        .with_tools_checking_inputs()
        .blocking_tool(
            spec("lines", "counts files, lines and bytes by language"),
            pass(&folder, |folder, on| object(&scan::languages(folder, on)?)),
        )
        .blocking_tool(
            spec("sizes", "finds the largest files"),
            pass(&folder, |folder, on| {
                object(&json!({ "largest": scan::largest(folder, on)? }))
            }),
        )
        .blocking_tool(
            spec("notes", "finds TODO and FIXME"),
            pass(&folder, |folder, on| {
                listed("notes", scan::notes(folder, on)?)
            }),
        )
        .blocking_tool(
            spec("copies", "finds files of equal content"),
            pass(&folder, |folder, on| {
                listed("duplicates", scan::duplicates(folder, on)?)
            }),
        )
        .blocking_tool(
            spec("secrets", "finds what looks like a secret"),
            pass(&folder, |folder, on| {
                listed("secrets", scan::secrets(folder, on)?)
            }),
        )
        .tool(
            spec(WAIT, "waits for a minute, or until it is canceled"),
            async |context, _| {
                // Told before waiting, so that a cancel is known to reach a tool that runs.
                context
                    .send(Chunk::text(Channel::Status, "waiting"))
                    .await
                    .map_err(|_| ToolError::canceled())?;
                tokio::select! {
                    () = tokio::time::sleep(Duration::from_secs(60)) => Ok(RawObject::empty()),
                    () = context.cancelled() => Err(ToolError::canceled()),
                }
            },
        );
    match agent.serve_from_env().await {
        Ok(_) => ExitCode::SUCCESS,
        // The parent captures this, and shows it with what it says of the launch.
        Err(error) => {
            let mut err = std::io::stderr();
            // There is nobody else to tell.
            let _ = writeln!(err, "mission: the tools cannot be served: {error}");
            ExitCode::from(3)
        }
    }
}

fn spec(name: &str, description: &str) -> ToolSpec {
    let schema =
        RawObject::from_serialize(&json!({ "type": "object", "additionalProperties": false }));
    ToolSpec::local(name, description, schema.ok().flatten().unwrap_or_default())
}

type Pass = fn(&Folder, &mut dyn scan::Progress) -> Result<RawObject, PassError>;

/// A tool out of a pass: it tells how far it is, and looks whether it is cancelled.
fn pass(
    folder: &Folder,
    run: Pass,
) -> impl Fn(ToolContext, RawObject) -> Result<RawObject, ToolError> + Send + Sync + 'static {
    /// Files between two words about progress.
    const STRIDE: usize = 1_024;
    let folder = folder.clone();
    move |context, _input| {
        let mut told = 0;
        let mut on = |files: usize| {
            if files == 0 || files - told >= STRIDE {
                told = files;
                // A core that listens no more cancels.
                let _ = context.blocking_send(format!("{files} files"));
            }
            !context.is_cancelled()
        };
        run(&folder, &mut on).map_err(|err| match err {
            PassError::Scan(ScanError::Canceled) => ToolError::canceled(),
            PassError::Scan(err) => ToolError::failed(err.to_string()),
            PassError::Write(err) => ToolError::failed(err.to_string()),
        })
    }
}

#[derive(Debug, thiserror::Error)]
enum PassError {
    #[error(transparent)]
    Scan(#[from] ScanError),
    #[error(transparent)]
    Write(#[from] serde_json::Error),
}

fn object(value: &impl Serialize) -> Result<RawObject, PassError> {
    Ok(RawObject::from_serialize(value)?.unwrap_or_default())
}

/// A list with the number of entries that it leaves out: at most a megabyte, whatever the length of paths.
fn listed<T: Serialize>(name: &str, (entries, mut more): Cut<T>) -> Result<RawObject, PassError> {
    const ROOM: usize = 1 << 20;
    let (mut room, mut kept) = (ROOM, Vec::new());
    for entry in &entries {
        let value = serde_json::to_value(entry)?;
        let bytes = value.to_string().len();
        if bytes > room {
            more += 1;
            continue;
        }
        room -= bytes;
        kept.push(value);
    }
    object(&json!({ name: kept, "more": more }))
}
