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

/// An address, or an argument with one, without the name and the password before its last `@`: what is shown gets into logs.
pub(super) fn shown(text: &str) -> String {
    let Some((before, host)) = text.rsplit_once('@') else {
        return text.to_owned();
    };
    let scheme = before.split_once("://").map(|(scheme, _)| scheme);
    scheme.map_or_else(|| host.to_owned(), |scheme| format!("{scheme}://{host}"))
}
