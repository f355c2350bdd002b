//! `conformance KIT ...`: judges somebody's implementation of a protocol, with a verdict for each clause.
//!
//! ```text
//! args       the command line
//! sap        a validator of SAP, or an exchange in files
//! sap_http   an endpoint of SAP that runs
//! sacp       a validator of SACP
//! executor   a program that runs plans of SACP
//! osw        a validator of OpenSentience messages and streams
//! osw_agent  an OpenSentience agent
//! osw_core   an OpenSentience core
//! osw_tap    what passes between the two
//! uap        states and trees, a validator of them, what runs left behind, or a program whose run is resumed
//! resume_agent the program that proves the last
//! hub        a hub on a port, an agent that calls one
//! hostile    attacks on a hub
//! out        standard output
//! command    a stranger's program that answers one message at a time
//! ```

/// A line on standard error; where nobody reads it any more, none.
macro_rules! note {
    ($($said:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($said)*);
    }};
}

mod args;
mod command;
mod executor;
mod hostile;
mod hub;
mod osw;
#[cfg(unix)]
mod osw_agent;
#[cfg(unix)]
mod osw_core;
#[cfg(unix)]
mod osw_tap;
mod out;
mod resume_agent;
mod resume_owner;
mod resume_store;
mod sacp;
mod sap;
mod sap_http;
mod uap;

use std::process::ExitCode;

use ubos_conformance::uap::LevelReport;
use ubos_conformance::{Expectations, Protocol, Report};

use args::{Args, Form, Kit, Parsed, Subject};

/// The exit code of a peer program that does not know what it is asked.
const UNKNOWN: i32 = 127;

/// The expectations of the author, with a floor for a kit where they have none.
fn with_floor(expectations: &Expectations, floor: usize) -> Expectations {
    expectations.clone().or_floor(floor)
}

fn main() -> ExitCode {
    #[cfg(unix)]
    if let Some(code) = osw_core::test_agent() {
        return code;
    }
    if let Some(code) = resume_agent::main() {
        return code;
    }
    if let Some(code) = executor::test_executor() {
        return code;
    }
    if let Some(code) = hub::main(std::env::args_os().skip(1)) {
        return code;
    }
    if let Some(code) = sap_http::main(std::env::args_os().skip(1)) {
        return code;
    }
    let args = match args::parse(std::env::args_os().skip(1)) {
        Ok(Parsed::Run(args)) => args,
        Ok(Parsed::SelfTest) => return self_test(),
        Ok(Parsed::Help) => {
            return out::printed(args::USAGE, 0);
        }
        Err(why) => {
            note!("conformance: {why}; --help tells more");
            return ExitCode::from(2);
        }
    };
    let shown = judge(&args).and_then(|judgement| judgement.show(&args).map(|()| judgement));
    match shown {
        Ok(judgement) => ExitCode::from(u8::from(!judgement.is_conformant())),
        Err(Stop::Usage(why)) => {
            note!("conformance: {why}");
            ExitCode::from(2)
        }
        Err(Stop::Fault(why)) => {
            note!("conformance: {why}");
            ExitCode::from(3)
        }
    }
}

/// Why there is no report.
enum Stop {
    /// The request cannot be carried out.
    Usage(String),
    /// This program failed.
    Fault(String),
}

impl From<String> for Stop {
    fn from(why: String) -> Self {
        Self::Usage(why)
    }
}

/// The reports of a run, one for each party that was judged, by name.
struct Judgement {
    reports: Vec<(&'static str, Report)>,
    /// The levels of the specification, where it has some.
    levels: Vec<LevelReport>,
}

impl Judgement {
    fn is_conformant(&self) -> bool {
        self.reports
            .iter()
            .all(|(_, report)| report.is_conformant())
    }

    fn show(&self, args: &Args) -> Result<(), Stop> {
        let text = self.text(args.form);
        match &args.to {
            None => out::print(&text).map_err(Stop::Fault)?,
            Some(file) => std::fs::write(file, text)
                .map_err(|err| Stop::Usage(format!("{}: {err}", file.display())))?,
        }
        Ok(())
    }

    fn text(&self, form: Form) -> String {
        let one = self.reports.len() == 1;
        let mut parts = self.reports.iter().map(|(name, report)| match form {
            Form::Table if one => format!("{}\n{}", report, self.level_lines()),
            Form::Table => format!("{name}\n{}\n", report),
            Form::Json if one => self.with_levels(ubos_common::json::to_string(report)),
            Form::Json => format!("\"{name}\":{}", ubos_common::json::to_string(report)),
            Form::Junit => report.to_junit(),
        });
        match form {
            Form::Json if one => parts.collect::<String>() + "\n",
            Form::Json => format!("{{{}}}\n", parts.collect::<Vec<_>>().join(",")),
            Form::Table => parts.collect::<Vec<_>>().join("\n"),
            Form::Junit if one => parts.collect(),
            Form::Junit => suites(&mut parts),
        }
    }
}

impl Judgement {
    fn level_lines(&self) -> String {
        self.levels
            .iter()
            .map(|level| format!("{level}\n"))
            .collect()
    }

    /// A report in JSON with a member for its levels.
    fn with_levels(&self, report: String) -> String {
        match report.strip_suffix('}') {
            Some(open) if !self.levels.is_empty() => {
                let levels = ubos_common::json::to_string(&self.levels);
                format!("{open},\"levels\":{levels}}}")
            }
            _ => report,
        }
    }
}

/// Many suites in one document.
fn suites(parts: &mut dyn Iterator<Item = String>) -> String {
    let bare = parts.map(|part| {
        part.lines()
            .skip(1)
            .map(|line| format!("{line}\n"))
            .collect::<String>()
    });
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n{}</testsuites>\n",
        bare.collect::<String>()
    )
}

fn judge(args: &Args) -> Result<Judgement, Stop> {
    let expectations = &args.expectations;
    let report = match (args.kit, &args.subject) {
        (Kit::Sap, Subject::Files(files)) => sap::exchange(files, expectations)?,
        (Kit::Sap, Subject::Command(command)) => sap::validator(command, expectations)?,
        (Kit::Sacp, Subject::Command(command)) => sacp::validator(command, expectations)?,
        (Kit::SacpExecutor, Subject::Command(command)) => executor::judge(command, expectations)?,
        (Kit::Osw, Subject::Command(command)) => osw::validator(command, expectations)?,
        #[cfg(unix)]
        (Kit::OswAgent, Subject::Command(command)) => osw_agent::judge(command, expectations)?,
        #[cfg(unix)]
        (Kit::OswCore, Subject::Command(command)) => osw_core::judge(command, expectations)?,
        #[cfg(unix)]
        (Kit::OswTap, Subject::Command(command)) => return osw_tap::judge(command, expectations),
        (Kit::UapState, Subject::Files(files)) => {
            return Ok(with_levels(args, uap::states(files, expectations)?));
        }
        (Kit::UapState, Subject::Command(command)) => {
            return Ok(with_levels(args, uap::validator(command, expectations)?));
        }
        (Kit::UapRun, Subject::Files(files)) => {
            return Ok(with_levels(args, uap::run(files, expectations)?));
        }
        (Kit::UapResume, Subject::Command(command)) => uap::resume(command, expectations)?,
        (kit @ Kit::UapRun, Subject::Command(_)) => {
            let name = kit.name();
            return Err(Stop::Usage(format!(
                "{name} judges files; --help tells more"
            )));
        }
        (kit, _) => {
            let name = kit.name();
            return Err(Stop::Usage(format!(
                "{name} judges a command; --help tells more"
            )));
        }
    };
    Ok(Judgement {
        reports: vec![(args.kit.name(), report)],
        levels: Vec::new(),
    })
}

/// A report of UAP, whose clauses stand at levels.
fn with_levels(args: &Args, report: Report) -> Judgement {
    let levels = ubos_conformance::uap::levels([&report]).into();
    Judgement {
        reports: vec![(args.kit.name(), report)],
        levels,
    }
}

/// Proves each kit: its references pass, and each mutant fails its clause and what its case names alone.
fn self_test() -> ExitCode {
    let (mut code, mut text) = (0, String::new());
    for (name, cases, proof) in proofs() {
        match proof {
            Ok(()) => text.push_str(&format!("{name}: {cases} cases hold\n")),
            Err(errors) => {
                code = 3;
                for error in errors {
                    text.push_str(&format!("{name}: {error}\n"));
                }
            }
        }
    }
    out::printed(&text, code)
}

fn proofs() -> Vec<Proof> {
    let mut proofs = vec![
        sap::proof(),
        sacp::proof(),
        executor::proof(),
        sap::checklist_proof(),
        sap_http::proof(),
        osw::proof(),
        hub::proof(),
        hub::agent_proof(),
        uap::proof(),
        uap::runs_proof(),
    ];
    #[cfg(unix)]
    proofs.extend([osw_agent::proof(), osw_core::proof()]);
    proofs
}

/// A kit's name, how many cases it has, and whether they hold.
type Proof = (&'static str, usize, Result<(), Vec<String>>);

/// Proves a kit of the package `ubos-conformance`.
fn proof_of<P: Protocol>(kit: &ubos_conformance::Kit<P>) -> Proof {
    let proof = kit.prove();
    (kit.name(), kit.cases().len(), proof.map_err(in_words))
}

/// Errors as they are shown.
fn in_words<E: ToString>(errors: Vec<E>) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}
