//! `sacp`: a validator.

use std::ffi::OsString;

use sacp::conformance::{Validator, cases};
use ubos_common::conformance::{ConformanceReport, prove, run};

use super::{Proof, command};

/// A validator that is a program.
struct Program(Vec<OsString>);

impl Validator for Program {
    fn answer(&mut self, message: &[u8]) -> Vec<u8> {
        command::ask(&self.0, "message", message).text
    }
}

/// Judges a validator that is a program.
pub(super) fn validator(program: &[OsString]) -> Result<ConformanceReport, String> {
    command::is_there(program)?;
    let cases = cases();
    Ok(run(&cases, cases.len(), |_| {
        Ok(Box::new(Program(program.to_vec())))
    }))
}

pub(super) fn proof() -> Proof {
    let cases = cases();
    super::library_proof("sacp", cases.len(), prove(&cases))
}
