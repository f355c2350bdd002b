//! `conformance KIT ...`: judges validators and recorded exchanges, a verdict a clause.
//!
//! ```text
//! args     the command line
//! sap      a validator of SAP, or an exchange in files
//! sacp     a validator of SACP
//! hub      a hub on a port, an agent that calls one
//! command  a stranger's program that answers one message at a time
//! ```

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program speaks to its user"
)]

mod args;
mod command;
mod hub;
mod sacp;
mod sap;

use std::process::ExitCode;

use ubos_common::conformance::{ConformanceReport, ProofError};

use args::{Args, Form, Kit, Parsed, Subject};

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    if let Some(code) = hub::main(std::env::args_os().skip(1)) {
        return code;
    }
    let args = match args::parse(std::env::args_os().skip(1)) {
        Ok(Parsed::Run(args)) => args,
        Ok(Parsed::SelfTest) => return self_test(),
        Ok(Parsed::Help) => {
            print!("{}", args::USAGE);
            return ExitCode::SUCCESS;
        }
        Err(why) => {
            eprintln!("conformance: {why}; --help tells more");
            return ExitCode::from(2);
        }
    };
    match judge(&args) {
        Ok(report) => {
            show(&report, args.kit, args.form);
            ExitCode::from(u8::from(!report.is_conformant()))
        }
        Err(why) => {
            eprintln!("conformance: {why}");
            ExitCode::from(2)
        }
    }
}

fn judge(args: &Args) -> Result<ConformanceReport, String> {
    match (args.kit, &args.subject) {
        (Kit::Sap, Subject::Files(files)) => sap::exchange(files),
        (Kit::Sap, Subject::Command(command)) => sap::validator(command),
        (Kit::Sacp, Subject::Command(command)) => sacp::validator(command),
        (Kit::Sacp, Subject::Files(_)) => {
            Err("sacp judges a command, which stands behind --".to_owned())
        }
    }
}

fn show(report: &ConformanceReport, kit: Kit, form: Form) {
    match form {
        Form::Table => println!("{report}"),
        Form::Json => println!("{}", ubos_common::json::to_string(report)),
        Form::Junit => print!("{}", report.to_junit(kit.name())),
    }
}

/// Shows that each kit's good twins pass, and that its bad twins fail their clause and what they drag along alone.
fn self_test() -> ExitCode {
    let mut code = 0;
    for (name, cases, proof) in [
        sap::proof(),
        sacp::proof(),
        sap::checklist_proof(),
        hub::proof(),
        hub::agent_proof(),
    ] {
        match proof {
            Ok(()) => println!("{name}: {cases} cases hold"),
            Err(errors) => {
                code = 3;
                for error in errors {
                    println!("{name}: {error}");
                }
            }
        }
    }
    ExitCode::from(code)
}

/// A kit's name, how many cases it has, and whether they hold.
type Proof = (&'static str, usize, Result<(), Vec<ProofError>>);
