//! `validate KIND [--profile P] FILES…`: one JSON line a file.
//!
//! ```text
//! args   the command line
//! kind   the table of kinds: one small file each
//! osw    osw-message, osw-stream
//! sacp   sacp
//! sap    sap-task, sap-result
//! uap    uap-state, uap-thread-tree
//! ```

pub mod args;
pub mod kind;
pub mod osw;
pub mod sacp;
pub mod sap;
pub mod uap;

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::ExitCode;

use ubos_common::json::MemberWriter;
use ubos_common::violation::Report;

use args::{Args, Parsed};
use kind::Kind;

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = std::env::args_os().skip(1);
    let (mut out, mut talk) = (io::stdout().lock(), io::stderr().lock());
    // Where nobody listens, nobody is told.
    match args::parse(arguments) {
        Ok(Parsed::Help) => match out.write_all(args::usage().as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => FAILED.into(),
        },
        Ok(Parsed::Run(args)) => match run(&args, &mut out, &mut talk) {
            Ok(code) => code.into(),
            Err(error) => {
                let _ = writeln!(talk, "validate: {error}");
                FAILED.into()
            }
        },
        Err(why) => {
            let _ = writeln!(talk, "validate: {why}; --help tells more");
            USAGE.into()
        }
    }
}

/// Judges every file; gives the exit code.
///
/// # Errors
///
/// The verdicts cannot be written.
pub fn run(args: &Args, out: &mut dyn Write, talk: &mut dyn Write) -> io::Result<u8> {
    let mut code = 0;
    for file in &args.files {
        match read(file, args.kind.max_bytes) {
            Ok(bytes) => {
                let report = (args.kind.judge)(&bytes, args.profile.as_deref());
                out.write_all(&line(file, args.kind, &report))?;
                code = code.max(u8::from(!report.is_valid()));
            }
            Err(error) => {
                let _ = writeln!(talk, "validate: {}: {error}", file.display());
                code = USAGE;
            }
        }
    }
    out.flush()?;
    Ok(code)
}

/// A file, or standard input for `-`; one byte more than allowed is enough to see that it is too large.
fn read(file: &Path, max_bytes: usize) -> io::Result<Vec<u8>> {
    let bound = u64::try_from(max_bytes).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    let source: &mut dyn Read = if file.as_os_str() == OsStr::new("-") {
        &mut io::stdin().lock()
    } else {
        #[expect(clippy::disallowed_types, reason = "files are what the program reads")]
        &mut std::fs::File::open(file)?
    };
    source
        .take(bound.saturating_add(1))
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn line(file: &Path, kind: &Kind, report: &Report) -> Vec<u8> {
    let mut line = Vec::new();
    let mut object = MemberWriter::begin(&mut line);
    object.member("file", &*file.to_string_lossy());
    object.member("kind", kind.name);
    object.member("valid", &report.is_valid());
    object.member("findings", report);
    object.end();
    line.push(b'\n');
    line
}

const USAGE: u8 = 2;
const FAILED: u8 = 3;
