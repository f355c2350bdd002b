//! A case for each property.

use ubos_common::violation::Level;

use super::program::{Broken, ResumeProgram};
use super::properties::{self, Checked};
use crate::case::Recorder;
use crate::{Case, Judge, Kit, Protocol, Reach, Verdict};

/// Programs whose runs are killed and resumed.
#[derive(Debug)]
pub struct Resuming;

impl Protocol for Resuming {
    type Line = Result<String, String>;
    type Peer = ResumeProgram;

    fn describe(line: &Self::Line) -> String {
        match line {
            Ok(seen) => format!("held: {seen}"),
            Err(seen) => format!("broken: {seen}"),
        }
    }
}

/// The properties of a run that is resumed. The [module](super) says what the program does.
///
/// ```no_run
/// use ubos_conformance::Expectations;
/// use ubos_conformance::uap::{ResumeProgram, resume_kit};
///
/// let report = resume_kit().run(&Expectations::new(), |_| {
///     Ok(Box::new(ResumeProgram::new(["python3", "my_agent.py"])))
/// });
/// assert!(report.is_conformant(), "{report}");
/// ```
#[must_use]
pub fn resume_kit() -> Kit<Resuming> {
    let cases = [
        case(
            "prefix",
            "what was recorded before a kill is the beginning of the resumed run",
            properties::prefix,
        ),
        case(
            "once",
            "what is recorded is not done again",
            properties::exactly_once,
        ),
        case(
            "fork",
            "two forks with the same answers are the same, and leave the original",
            properties::forks,
        ),
        case(
            "checkpoint",
            "a checkpoint that is loaded is a state of the run",
            properties::checkpoints,
        ),
        case(
            "foreign",
            "a checkpoint of another session is not loaded",
            properties::foreign,
        ),
        case(
            "consume",
            "a question is answered once, and one of many resumers goes on",
            properties::consume_once,
        ),
        case(
            "recovery",
            "two resumptions are the same, and a changed program is told so",
            properties::recovery,
        ),
    ];
    Kit::new("uap-resume", cases)
}

fn case(
    property: &'static str,
    name: &'static str,
    check: fn(&ResumeProgram) -> Checked,
) -> Case<Resuming> {
    let scenario =
        move |program: &mut ResumeProgram, recorder: &mut Recorder<_>| match check(program) {
            Ok(seen) => recorder.record(Ok(seen)),
            Err(Broken::Seen(what)) => recorder.record(Err(what)),
            Err(Broken::Unknown(verb)) => recorder.peer_does_not_know(verb),
        };
    Case::new(
        Reach::Drive,
        ("UAP-12-5", name),
        scenario,
        Property::default,
        || Box::new(ResumeProgram::built_in(None)),
        move || Box::new(ResumeProgram::built_in(Some(property))),
    )
    .at_level(Level::Advice)
}

/// Says what the check of one property said.
#[derive(Default)]
struct Property(Option<Verdict>);

impl Judge<Result<String, String>> for Property {
    fn see(&mut self, line: &Result<String, String>) {
        self.0 = Some(match line {
            Ok(_) => Verdict::Pass,
            Err(seen) => Verdict::fail("the program", seen.clone()),
        });
    }

    fn verdict(&mut self) -> Verdict {
        let none = || Verdict::not_applicable("nothing was seen");
        self.0.take().unwrap_or_else(none)
    }
}
