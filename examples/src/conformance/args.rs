//! The command line, read by hand.

use std::ffi::OsString;
use std::path::PathBuf;

/// The help text.
pub(super) const USAGE: &str = "\
Judges somebody else's implementation, clause by clause.

usage: conformance sap [--report FORM] FILES...         a recorded exchange, by the checklist of section 12
       conformance sap [--report FORM] -- COMMAND...    a validator of SAP
       conformance sacp [--report FORM] -- COMMAND...   a validator of SACP
       conformance hub --url URL, conformance hub-agent --listen ADDRESS
                                                        a hub of UAP, or an agent that calls one; --help behind them
       conformance self-test                            shows that the kits hold

A file of an exchange has a JSON object a line: {\"task\":{...}}, {\"result\":{...}}, {\"nack\":{...}}, in the order in
which they were seen; {\"record\":{...}} and {\"signal\":{...}} are entries of the logs of cache and learning.

A validator of SAP is run once for each message: {} among its arguments becomes task or result, the message stands on its
standard input, and it exits with 0 where the message is valid, else with 1:
    conformance sap -- validate sap-{} -
A validator of SACP gets the message in the same way and writes the answer of the protocol, VALID, ERR or REQ_CLARIFY, to its
standard output.

  --report FORM   table (the default), json or junit
  --help          this text

exit codes: 0 it conforms, 1 it does not, 2 usage or an unreadable file, 3 a kit does not hold
";

/// What was asked for.
#[derive(Debug)]
pub(super) struct Args {
    /// Which protocol.
    pub(super) kit: Kit,
    /// What is judged.
    pub(super) subject: Subject,
    /// How the verdicts are shown.
    pub(super) form: Form,
}

/// A protocol whose kit is here.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kit {
    Sap,
    Sacp,
}

/// What is judged.
#[derive(Debug)]
pub(super) enum Subject {
    Files(Vec<PathBuf>),
    Command(Vec<OsString>),
}

/// How verdicts are shown.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    Table,
    Json,
    Junit,
}

/// What the command line comes to.
#[derive(Debug)]
pub(super) enum Parsed {
    Run(Args),
    SelfTest,
    Help,
}

impl Kit {
    /// Its word on the command line.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Sap => "sap",
            Self::Sacp => "sacp",
        }
    }
}

/// Reads the arguments behind the program's name.
pub(super) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Parsed, String> {
    let mut arguments = arguments.into_iter();
    let kit = arguments
        .next()
        .ok_or("a kit is wanted: sap, sacp or self-test")?;
    let kit = match kit.to_string_lossy().as_ref() {
        "--help" | "-h" => return Ok(Parsed::Help),
        "self-test" => {
            return match arguments.next() {
                None => Ok(Parsed::SelfTest),
                Some(more) => Err(format!(
                    "self-test takes nothing, and {} was given",
                    more.to_string_lossy()
                )),
            };
        }
        "sap" => Kit::Sap,
        "sacp" => Kit::Sacp,
        other => return Err(format!("no kit {other}; there are sap, sacp and self-test")),
    };
    let (mut form, mut files) = (Form::Table, Vec::new());
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("--help" | "-h") => return Ok(Parsed::Help),
            Some("--report") => form = form_of(arguments.next())?,
            Some("--") => {
                let command: Vec<OsString> = arguments.collect();
                if command.is_empty() || !files.is_empty() {
                    return Err("files or a command behind --, not both and not neither".to_owned());
                }
                return Ok(Parsed::Run(Args {
                    kit,
                    subject: Subject::Command(command),
                    form,
                }));
            }
            Some(option) if option.starts_with('-') && option.len() > 1 => {
                return Err(format!("unknown option {option}"));
            }
            _ => files.push(PathBuf::from(argument)),
        }
    }
    if files.is_empty() {
        return Err("files are wanted, or a command behind --".to_owned());
    }
    Ok(Parsed::Run(Args {
        kit,
        subject: Subject::Files(files),
        form,
    }))
}

pub(super) fn form_of(word: Option<OsString>) -> Result<Form, String> {
    match word.as_deref().and_then(std::ffi::OsStr::to_str) {
        Some("table") => Ok(Form::Table),
        Some("json") => Ok(Form::Json),
        Some("junit") => Ok(Form::Junit),
        _ => Err("--report needs table, json or junit".to_owned()),
    }
}
