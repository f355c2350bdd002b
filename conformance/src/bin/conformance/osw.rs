//! `osw`: a validator of OpenSentience messages and streams.

use std::ffi::OsString;

use ubos_conformance::osw::{Vector, vector_kit};
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
            let answer = command::ask(&program, vector.kind.as_str(), vector.bytes);
            (answer.code != Some(UNKNOWN)).then(|| Validity::of(answer.code == Some(0)))
        }))
    }))
}

pub(super) fn proof() -> Proof {
    super::proof_of(&vector_kit())
}
