//! `sacp`: a validator.

use std::ffi::OsString;

use ubos_conformance::sacp::{Answer, SacpVector, vector_kit};
use ubos_conformance::{Expectations, Report};

use super::{Proof, UNKNOWN, command, proof_of, with_floor};

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
        Ok(Box::new(move |vector: &SacpVector| {
            let answer = command::ask(&program, "message", vector.message());
            (answer.code != Some(UNKNOWN)).then(|| Answer::read(&answer.text))
        }))
    }))
}

pub(super) fn proof() -> Proof {
    proof_of(&vector_kit())
}
