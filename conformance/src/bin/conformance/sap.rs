//! `sap`: a validator, or an exchange in files.

use std::ffi::OsString;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::value::RawValue;
use ubos_conformance::sap::{Line, Recording, Vector, checklist_kit, vector_kit};
use ubos_conformance::{Expectations, Report, Validity};

use super::{Proof, UNKNOWN, command, with_floor};

/// Judges a validator that is a program.
pub(super) fn validator(
    program: &[OsString],
    expectations: &Expectations,
) -> Result<Report, String> {
    command::is_there(program)?;
    let kit = vector_kit();
    let expectations = with_floor(expectations, kit.cases().len() / 2);
    Ok(kit.run(&expectations, |_| {
        let program = program.to_vec();
        Ok(Box::new(move |vector: &Vector| {
            let answer = command::ask(&program, vector.kind.as_str(), vector.text.as_bytes());
            (answer.code != Some(UNKNOWN)).then(|| Validity::of(answer.code == Some(0)))
        }))
    }))
}

/// Judges a recorded exchange.
pub(super) fn exchange(files: &[PathBuf], expectations: &Expectations) -> Result<Report, String> {
    let mut recording = Recording::new();
    for file in files {
        let place = file.display();
        let text = std::fs::read_to_string(file).map_err(|err| format!("{place}: {err}"))?;
        for (n, line) in text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty())
        {
            let written = serde_json::from_str(line)
                .map_err(|err| format!("{place}, line {}: {err}", n + 1))?;
            recording = add(recording, &written);
        }
    }
    Ok(checklist_kit().run(expectations, |_| Ok(Box::new(recording.clone()))))
}

/// One line of a recording; the name says what it is.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Written<'a> {
    #[serde(borrow)]
    Task(&'a RawValue),
    #[serde(borrow)]
    Result(&'a RawValue),
    #[serde(borrow)]
    Nack(&'a RawValue),
    #[serde(borrow)]
    Record(&'a RawValue),
    #[serde(borrow)]
    Signal(&'a RawValue),
}

fn add(recording: Recording, written: &Written<'_>) -> Recording {
    let bytes = |value: &RawValue| value.get().as_bytes().to_vec();
    let has = |recording: &Recording, log: &Line| recording.lines().contains(log);
    match written {
        Written::Task(value) => recording.with(Line::Task(bytes(value))),
        Written::Result(value) => recording.with(Line::Result(bytes(value))),
        Written::Nack(value) => recording.with(Line::Nack(bytes(value))),
        Written::Record(value) if has(&recording, &Line::CacheLog) => {
            recording.with(Line::Record(bytes(value)))
        }
        Written::Record(value) => recording
            .with(Line::CacheLog)
            .with(Line::Record(bytes(value))),
        Written::Signal(value) if has(&recording, &Line::SignalLog) => {
            recording.with(Line::Signal(bytes(value)))
        }
        Written::Signal(value) => recording
            .with(Line::SignalLog)
            .with(Line::Signal(bytes(value))),
    }
}

pub(super) fn proof() -> Proof {
    super::proof_of(&vector_kit())
}

pub(super) fn checklist_proof() -> Proof {
    super::proof_of(&checklist_kit())
}
