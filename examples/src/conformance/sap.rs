//! `sap`: a validator, or an exchange in files.

use std::ffi::OsString;
use std::path::PathBuf;

use sap::conformance::{CHECKLIST, Kind, Line, Recording, VECTORS, checklist};
use serde::Deserialize;
use serde_json::value::RawValue;
use ubos_common::conformance::{ConformanceReport, prove, run};

use super::{Proof, command};

/// Judges a validator that is a program.
pub(super) fn validator(program: &[OsString]) -> Result<ConformanceReport, String> {
    command::is_there(program)?;
    Ok(run(VECTORS, VECTORS.len(), |_| {
        let program = program.to_vec();
        Ok(Box::new(move |kind: Kind, text: &[u8]| {
            command::ask(&program, kind.as_str(), text).code == Some(0)
        }))
    }))
}

/// Judges a recorded exchange.
pub(super) fn exchange(files: &[PathBuf]) -> Result<ConformanceReport, String> {
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
    Ok(checklist(&recording))
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
    (
        "sap",
        VECTORS.len(),
        prove(VECTORS).map_err(super::in_words),
    )
}

pub(super) fn checklist_proof() -> Proof {
    (
        "sap checklist",
        CHECKLIST.len(),
        prove(CHECKLIST).map_err(super::in_words),
    )
}
