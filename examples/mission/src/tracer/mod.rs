//! `trace FOLDER`: the tree of a mission, out of its stores.

pub mod args;
mod print;

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use ubos_common::violation::OneLine;

use super::page;
use super::rebuild::{Rebuilt, rebuild};
use args::{Args, Parsed, USAGE, parse};

/// Not every step has an end, and every message its cause.
const NOT_WHOLE: u8 = 1;
/// Usage, or a store that cannot be read.
const UNREADABLE: u8 = 2;
/// Something of ours failed.
const FAILED: u8 = 3;

/// The whole program.
#[must_use]
pub fn main() -> ExitCode {
    let complain = |said: &str, code: u8| {
        let _ = writeln!(io::stderr(), "trace: {}", OneLine(said));
        ExitCode::from(code)
    };
    let args = match parse(std::env::args_os().skip(1)) {
        Ok(Parsed::Run(args)) => args,
        Ok(Parsed::Help) => {
            let _ = io::stdout().write_all(USAGE.as_bytes());
            return ExitCode::SUCCESS;
        }
        Err(mistake) => return complain(&format!("{mistake} (see --help)"), UNREADABLE),
    };
    let rebuilt = match rebuild(&args.folder, &args.choice) {
        Ok(rebuilt) => rebuilt,
        Err(why) => {
            return complain(&format!("{}: {why}", args.folder.display()), UNREADABLE);
        }
    };
    match show(&args, &rebuilt) {
        Ok(()) => verdict(&rebuilt).into(),
        Err(why) => complain(&why, FAILED),
    }
}

/// What the exit code says: what could not be read comes before what is missing, because it may be there.
#[must_use]
pub fn verdict(rebuilt: &Rebuilt) -> u8 {
    match (rebuilt.has_unreadable(), rebuilt.is_whole()) {
        (true, _) => UNREADABLE,
        (false, false) => NOT_WHOLE,
        (false, true) => 0,
    }
}

fn show(args: &Args, rebuilt: &Rebuilt) -> Result<(), String> {
    if let Some(file) = &args.html {
        write_page(file, &args.folder, rebuilt)?;
    }
    let mut out = io::BufWriter::new(io::stdout().lock());
    let shown = match args.json {
        true => print::json(rebuilt, &mut out),
        false => print::text(rebuilt, &mut out),
    };
    match shown.and_then(|()| out.flush()) {
        // Whoever closes the pipe wants no more of it.
        Err(err) if err.kind() != io::ErrorKind::BrokenPipe => {
            Err(format!("standard output: {err}"))
        }
        _ => Ok(()),
    }
}

fn write_page(file: &Path, folder: &Path, rebuilt: &Rebuilt) -> Result<(), String> {
    let complaints = print::complaints(rebuilt);
    let folder = folder.display().to_string();
    let page = page::trace("from the stores in", &folder, &rebuilt.spans, &complaints);
    std::fs::write(file, page).map_err(|err| {
        let why = super::words::about_path(&err);
        format!("{}: {why}", file.display())
    })
}
