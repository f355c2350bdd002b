//! `osw`: a validator of OpenSentience messages and streams.

use std::ffi::OsString;

use opensentience_wire::conformance::{Kind, VECTORS};
use ubos_common::conformance::{ConformanceReport, prove, run};

use super::{Proof, command};

/// Judges a validator that is a program.
pub(super) fn validator(program: &[OsString]) -> Result<ConformanceReport, String> {
    command::is_there(program)?;
    Ok(run(VECTORS, VECTORS.len(), |_| {
        let program = program.to_vec();
        Ok(Box::new(move |kind: Kind, bytes: &[u8]| {
            command::ask(&program, kind.as_str(), bytes).code == Some(0)
        }))
    }))
}

pub(super) fn proof() -> Proof {
    (
        "osw",
        VECTORS.len(),
        prove(VECTORS).map_err(super::in_words),
    )
}
