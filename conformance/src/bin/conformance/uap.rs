//! `uap-state` and `uap-run`: states and trees of UAP, a validator of them, or what runs left behind.

use std::ffi::OsString;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use ubos_common::json::{Limits, RawBuf, decode};
use ubos_common::violation::Profile;
use ubos_conformance::uap::{FileKind, FileVector, Recording, file_kit, run_kit};
use ubos_conformance::{Expectations, Report, Validity};

use super::{Proof, UNKNOWN, command, proof_of, with_floor};

/// Bytes of a file.
const LONGEST: u64 = 1 << 30;

/// Cases that the events of any run put to the test.
const EVENTS: usize = 5;

/// Judges a validator that is a program.
pub(super) fn validator(
    program: &[OsString],
    expectations: &Expectations,
) -> Result<Report, String> {
    command::is_there(program)?;
    let kit = file_kit();
    let expectations = with_floor(expectations, kit.cases().len() / 2);
    Ok(kit.run(&expectations, |_| {
        let program = program.to_vec();
        Ok(Box::new(move |vector: &FileVector| {
            let kind = match vector.kind {
                FileKind::State => "uap-state",
                _ => "uap-thread-tree",
            };
            let answer = command::ask(&program, kind, vector.text.as_bytes());
            (answer.code != Some(UNKNOWN)).then(|| Validity::of(answer.code == Some(0)))
        }))
    }))
}

/// Judges states and trees, a file each, in the order in which they were saved.
pub(super) fn states(files: &[PathBuf], expectations: &Expectations) -> Result<Report, String> {
    let mut recording = Recording::new();
    for file in files {
        let text = read(file)?;
        recording = match is_tree(text.as_bytes()) {
            true => recording.tree(text.as_bytes()),
            false => recording.state(text.as_bytes()),
        };
    }
    Ok(judged(&recording, &with_floor(expectations, 1)))
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
pub(super) fn run(files: &[PathBuf], expectations: &Expectations) -> Result<Report, String> {
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
    Ok(judged(&recording, &with_floor(expectations, EVENTS)))
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

fn judged(recording: &Recording, expectations: &Expectations) -> Report {
    run_kit().run(expectations, |_| Ok(Box::new(recording.clone())))
}

pub(super) fn proof() -> Proof {
    proof_of(&file_kit())
}

pub(super) fn runs_proof() -> Proof {
    proof_of(&run_kit())
}

/// Judges a program whose run is killed and resumed.
pub(super) fn resume(program: &[OsString], expectations: &Expectations) -> Result<Report, String> {
    command::is_there(program)?;
    let kit = ubos_conformance::uap::resume_kit();
    let expectations = with_floor(expectations, kit.cases().len() / 2);
    Ok(kit.run(&expectations, |_| {
        Ok(Box::new(ubos_conformance::uap::ResumeProgram::new(
            program.to_vec(),
        )))
    }))
}
