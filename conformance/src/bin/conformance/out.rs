//! What the program says on standard output. A reader that has gone is no fault; a disk without room is one.

use std::io::{self, Write as _};
use std::process::ExitCode;

/// Writes a text whole, or says why not.
pub(super) fn print(text: &str) -> Result<(), String> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    match written {
        Err(err) if err.kind() != io::ErrorKind::BrokenPipe => {
            Err(format!("standard output: {err}"))
        }
        _ => Ok(()),
    }
}

/// Writes a text; gives the exit code where that went well, else 3.
pub(super) fn printed(text: &str, code: u8) -> ExitCode {
    match print(text) {
        Ok(()) => ExitCode::from(code),
        Err(why) => {
            note!("conformance: {why}");
            ExitCode::from(3)
        }
    }
}
