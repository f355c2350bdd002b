//! `sacp-plan FILE`: a plan checked before anything runs, its findings under their source lines, and its picture.
//!
//! ```text
//! args      the command line
//! library   verbs, tools and agents from a file
//! run       the plan run, with commands as its tools
//! show      a finding for people, or as a JSON line
//! ```

pub mod args;
pub mod library;
pub mod run;
pub mod show;

use std::io::{self, Read, Write};
use std::path::Path;
use std::process::ExitCode;

use sacp::Source;
use sacp::check::{Config, check_plan};
use sacp::draw::{StepView, dot, mermaid};
use sacp::registry::{MemoryRegistry, Registry};
use sacp::role::Answer;
use sacp::validate::findings;
use sacp::{AnyMessage, Reply, check};
use ubos_common::json::{Limits, Position};
use ubos_common::violation::{Level, Violation};

use args::{Args, Drawing, Parsed};
use run::Ran;

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = std::env::args_os().skip(1);
    let (mut out, mut talk) = (io::stdout().lock(), io::stderr().lock());
    // Where nobody listens, nobody is told.
    match args::parse(arguments) {
        Ok(Parsed::Help) => match out.write_all(args::USAGE.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => FAILED.into(),
        },
        Ok(Parsed::Run(args)) => match run(&args, &mut out, &mut talk) {
            Ok(code) => code.into(),
            Err(error) => {
                let _ = writeln!(talk, "sacp-plan: {error}");
                FAILED.into()
            }
        },
        Err(why) => {
            let _ = writeln!(talk, "sacp-plan: {why}; --help tells more");
            UNREADABLE.into()
        }
    }
}

/// Checks and draws a plan; gives the exit code.
///
/// # Errors
///
/// What is found cannot be written.
pub fn run(args: &Args, out: &mut dyn Write, talk: &mut dyn Write) -> io::Result<u8> {
    let registry = match args.library.as_deref().map(read_library).transpose() {
        Ok(registry) => registry,
        Err(why) => {
            let _ = writeln!(talk, "sacp-plan: {why}");
            return Ok(UNREADABLE);
        }
    };
    let bytes = match read(&args.file) {
        Ok(bytes) => bytes,
        Err(error) => {
            let _ = writeln!(talk, "sacp-plan: {}: {error}", args.file.display());
            return Ok(UNREADABLE);
        }
    };
    let text = String::from_utf8_lossy(&bytes);
    let source = Source::new(&text);
    let message = AnyMessage::decode(&bytes).ok().map(|(message, _)| message);
    if let (Some(message), true) = (&message, args.run) {
        return match run::run(message, registry, &args.tools, args.overrule, talk)? {
            Ran::Answered(answer) => show_answer(&answer, out),
            Ran::Stopped(code) => Ok(code),
        };
    }
    let told = told(&bytes, source, message.as_ref(), registry.as_ref());
    let file = args.file.to_string_lossy();
    for (violation, repairs) in &told {
        if args.json {
            out.write_all(&show::json_line(source, violation, repairs))?;
        } else {
            out.write_all(show::finding(&file, source, violation, repairs).as_bytes())?;
        }
    }
    if let (Some(message), false) = (&message, args.json) {
        draw(message, args.drawing, out)?;
    }
    out.flush()?;
    let refused = told
        .iter()
        .any(|(violation, _)| violation.level == Level::Must);
    Ok(u8::from(refused))
}

/// Writes an answer as a line; gives the exit code.
fn show_answer(answer: &Answer, out: &mut dyn Write) -> io::Result<u8> {
    let (line, is_done) = match answer {
        Answer::Reply(reply) => {
            let is_done = match reply {
                Reply::Message(_) => true,
                Reply::V10(answer) => answer.state == sacp::v1::State::Done,
                _ => false,
            };
            (ubos_common::json::to_string(reply), is_done)
        }
        Answer::Prose(prose) => (ubos_common::json::to_string(prose), true),
        _ => return Ok(FAILED),
    };
    writeln!(out, "{line}")?;
    out.flush()?;
    Ok(u8::from(!is_done))
}

type Told = (Violation, Vec<check::Repair>);

/// Every finding, in the order of the text.
fn told(
    bytes: &[u8],
    source: Source<'_>,
    message: Option<&AnyMessage>,
    registry: Option<&MemoryRegistry>,
) -> Vec<Told> {
    let report = findings(bytes, None);
    let mut told: Vec<Told> = report
        .iter()
        .map(|found| (found.clone(), Vec::new()))
        .collect();
    if report.unlisted() > 0 {
        let what = format!("{} more findings", report.unlisted());
        let level = if report.is_valid() {
            Level::Advice
        } else {
            Level::Must
        };
        told.push((Violation::new("", "unlisted", "", level, what), Vec::new()));
    }
    if let Some(message) = message {
        let registry = registry.map(|registry| registry as &dyn Registry);
        let checked = check_plan(message, registry, &Config::default());
        told.extend(
            checked
                .into_iter()
                .map(|finding| (finding.violation, finding.repairs)),
        );
    }
    let pointers: Vec<String> = told
        .iter()
        .map(|(found, _)| found.pointer.clone())
        .collect();
    let spans = source.spans(pointers.iter().map(String::as_str));
    for (violation, _) in &mut told {
        if let (None, Some(span)) = (violation.position, spans.get(violation.pointer.as_str())) {
            violation.position = Some(span.position);
        }
    }
    told.sort_by_key(|(violation, _)| violation.position.map_or(Position::new(0, 0), |at| at));
    told
}

fn draw(message: &AnyMessage, drawing: Drawing, out: &mut dyn Write) -> io::Result<()> {
    let graph = sacp::Graph::from(message);
    let picture = match drawing {
        Drawing::Mermaid => mermaid(&graph, |_| StepView::default()),
        Drawing::Dot => dot(&graph, |_| StepView::default()),
        Drawing::None => return Ok(()),
    };
    out.write_all(picture.as_bytes())
}

fn read_library(file: &Path) -> Result<MemoryRegistry, String> {
    let bytes = read(file).map_err(|error| format!("{}: {error}", file.display()))?;
    library::read(&bytes).map_err(|why| format!("{}: not a library: {why}", file.display()))
}

/// A file, or standard input for `-`; one byte more than allowed is enough to see that it is too large.
fn read(file: &Path) -> io::Result<Vec<u8>> {
    let bound = u64::try_from(Limits::default().max_bytes).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    let source: &mut dyn Read = if file.as_os_str() == "-" {
        &mut io::stdin().lock()
    } else {
        #[expect(clippy::disallowed_types, reason = "files are what the program reads")]
        &mut std::fs::File::open(file)?
    };
    source
        .take(bound.saturating_add(1))
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

const UNREADABLE: u8 = 2;
const FAILED: u8 = 3;
