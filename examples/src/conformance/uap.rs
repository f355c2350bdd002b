//! `uap-state` and `uap-run`: states and trees of UAP, a validator of them, or what runs left behind.

use std::ffi::OsString;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use uap_agent::conformance::{FILES, Kind, RUNS, Recording, runs};
use ubos_common::conformance::{ConformanceReport, prove};
use ubos_common::json::{Limits, RawBuf, decode};
use ubos_common::violation::Profile;

use super::{Proof, command};

/// Bytes of a file.
const LONGEST: u64 = 1 << 30;

/// Cases that the events of any run put to the test.
const EVENTS: usize = 5;

/// Judges a validator that is a program.
pub(super) fn validator(program: &[OsString]) -> Result<ConformanceReport, String> {
    command::is_there(program)?;
    Ok(ubos_common::conformance::run(FILES, FILES.len(), |_| {
        let program = program.to_vec();
        Ok(Box::new(move |kind: Kind, bytes: &[u8]| {
            command::ask(&program, kind.as_str(), bytes).code == Some(0)
        }))
    }))
}

/// Judges states and trees, a file each, in the order in which they were saved.
pub(super) fn states(files: &[PathBuf]) -> Result<ConformanceReport, String> {
    let mut recording = Recording::new();
    for file in files {
        let text = read(file)?;
        recording = match is_tree(text.as_bytes()) {
            true => recording.tree(text.as_bytes()),
            false => recording.state(text.as_bytes()),
        };
    }
    Ok(runs(&recording, 1))
}

ubos_common::wire! {
    /// What tells a tree from a state.
    struct Looked {
        /// A tree has them.
        optional nodes: RawBuf = "nodes", "";
    }
}

fn is_tree(text: &[u8]) -> bool {
    let limits = Limits::default().with_max_bytes(Recording::MAX_LINE_BYTES);
    let read = decode::<Looked>(text, &limits, Profile::Lenient);
    read.is_ok_and(|(read, _)| read.nodes.is_some())
}

/// Judges what runs left behind, the lines of one file behind those of the other.
pub(super) fn run(files: &[PathBuf]) -> Result<ConformanceReport, String> {
    let mut recording = Recording::new();
    for file in files {
        let lines = Recording::read_lines(&read(file)?);
        let lines = lines.map_err(|err| format!("{}, {err}", file.display()))?;
        recording = lines
            .lines()
            .iter()
            .cloned()
            .fold(recording, Recording::with);
    }
    Ok(runs(&recording, EVENTS))
}

fn read(file: &Path) -> Result<String, String> {
    let place = file.display();
    #[expect(clippy::disallowed_types, reason = "files are what the program reads")]
    let opened = std::fs::File::open(file).map_err(|err| format!("{place}: {err}"))?;
    let mut text = String::new();
    let read = opened.take(LONGEST + 1).read_to_string(&mut text);
    read.map_err(|err| format!("{place}: {err}"))?;
    if u64::try_from(text.len()).is_ok_and(|length| length > LONGEST) {
        return Err(format!("{place}: longer than {LONGEST} bytes"));
    }
    Ok(text)
}

pub(super) fn proof() -> Proof {
    (
        "uap-state",
        FILES.len(),
        prove(FILES).map_err(super::in_words),
    )
}

pub(super) fn runs_proof() -> Proof {
    ("uap-run", RUNS.len(), prove(RUNS).map_err(super::in_words))
}
