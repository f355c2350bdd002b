//! The command line, read by hand.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use ubos_conformance::Expectations;

use super::out::shown;

/// The help text.
pub(super) const USAGE: &str = "\
Judges somebody else's implementation, clause by clause.

usage: conformance sap [--report FORM] FILES...             a recorded exchange, by the checklist of section 12
       conformance sap [--report FORM] -- COMMAND...        a validator of SAP
       conformance sap-http --url URL --capability NAME     an endpoint of SAP over HTTP; --help behind it
       conformance sacp [--report FORM] -- COMMAND...       a validator of SACP
       conformance sacp-executor [--report FORM] -- COMMAND...
                                                            a program that runs plans of SACP, told and heard line by line
       conformance osw [--report FORM] -- COMMAND...        a validator of OpenSentience messages and streams
       conformance osw-agent [--report FORM] -- COMMAND...  an OpenSentience agent, which is launched and driven
       conformance osw-core [--report FORM] --launch COMMAND...
                                                            an OpenSentience core, which launches an agent of ours
       conformance osw-tap [--report FORM] [--to FILE] -- COMMAND...
                                                            an agent and the core that launches this program for it
       conformance uap-state [--report FORM] FILES...       states and thread trees of UAP, in the order in which they were saved
       conformance uap-state [--report FORM] -- COMMAND...  a validator of them
       conformance uap-run [--report FORM] FILES...         what agents of UAP left behind, as JSON lines
       conformance uap-resume [--report FORM] -- COMMAND... a program that records and resumes a run, which is killed and forked
       conformance hub --url URL, conformance hub-agent --listen ADDRESS
                                                            a hub of UAP, or an agent that calls one; --help behind them
       conformance hub-hostile --url URL                    attacks on a hub of UAP, and what an honest agent notices of them
       conformance self-test                                shows that the kits hold

A file of an exchange has a JSON object a line: {\"task\":{...}}, {\"result\":{...}}, {\"nack\":{...}}, in the order in
which they were seen; {\"record\":{...}} and {\"signal\":{...}} are entries of the logs of cache and learning.

A validator of SAP is run once for each message: {} among its arguments becomes task or result, the message stands on its
standard input, and it exits with 0 where the message is valid, else with 1:
    conformance sap -- validate sap-{} -
A validator of SACP gets the message in the same way and writes the answer of the protocol, VALID, ERR or REQ_CLARIFY, to its
standard output. An executor of SACP is launched anew for each case and gets a JSON object a line: {\"start\":MESSAGE},
{\"succeed\":CALL,\"output\":VALUE}, {\"fail\":CALL,\"message\":TEXT,\"retryable\":BOOL}, {\"time\":MS} since the beginning,
{\"cancel\":true}, or {\"heard\":MESSAGE} with a state of somebody else. It writes {\"call\":CALL,\"verb\":..,\"tool\":..,\"inputs\":[..]},
{\"stop\":CALL}, {\"answer\":REPLY}, {\"state\":WORD} or {\"refused\":CODE}, and ends each turn with {\"ready\":true}; where it does not
know a line it writes {\"unknown\":true} before. One that keeps every rule, to try:
    conformance sacp-executor -- conformance sacp-test-executor
A validator of OpenSentience is run as one of SAP is, {} being message or stream.

A line of a UAP run is an event of a stream, {\"source\":...}, or one of a trace, {\"at\":ms,\"event\":{...}}; {\"state\":{...}}
is a state that was saved, {\"tree\":{...}} a thread tree, {\"log\":\"...\"} a line of the logging middleware. The four levels of
section 14 are told behind the verdicts. For a validator of UAP {} is uap-state or uap-thread-tree:
    conformance uap-state -- validate {} -

A program that resumes runs gets a verb and a folder behind its arguments; the documentation of ubos_conformance::uap::resume_kit
has the verbs. It is killed at each of its effects, resumed, asked and answered by several processes at once, and forked:
    conformance uap-resume -- python3 my_agent.py

An agent is launched anew for each case. With the five reference tools (hello_world, stream_counter, sleep, invalid_input,
large_output) all of it is judged, without them the rest is.

In the command of a core {} becomes the path of the agent that it is to launch. That agent offers the reference tools; what
the core calls is judged, so let it call hello_world and stream_counter, and sleep with a timeout and with a cancel:
    conformance osw-core --launch core --script opensentience-wire/vectors/calls.jsonl -- {}

A tap stands in for an agent in the command line of a core, launches the agent itself, lets everything pass and judges it.
When both have ended it writes its report to FILE, else to standard output:
    core --script calls -- conformance osw-tap --to report -- agent

A program that does not know what it is asked exits with 127; it is not failed for that, but half of the cases must judge it. FILE of --expect is a JSON object:
    {\"floor\":6, \"supports\":[\"OSW-4.3\"], \"out_of_reach\":{\"OSW-4.3-10\":\"why\"}, \"known_failures\":{\"name of a case\":\"why\"}}
A MUST that was not tested fails the run unless it is declared out of reach there; known failures run all the same.

  --expect FILE   what the author of the peer declares about it
  --report FORM   table (the default), json or junit
  --help          this text

exit codes: 0 it conforms, 1 it does not, 2 usage or what cannot be read or started, 3 a kit does not hold, or a fault of ours
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
    /// Where they go; to standard output where it is `None`.
    pub(super) to: Option<PathBuf>,
    /// What the author of the peer declares.
    pub(super) expectations: Expectations,
}

/// A protocol whose kit is here.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kit {
    Sap,
    Sacp,
    SacpExecutor,
    Osw,
    OswAgent,
    OswCore,
    OswTap,
    UapState,
    UapRun,
    UapResume,
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
            Self::SacpExecutor => "sacp-executor",
            Self::Osw => "osw",
            Self::OswAgent => "osw-agent",
            Self::OswCore => "osw-core",
            Self::OswTap => "osw-tap",
            Self::UapState => "uap-state",
            Self::UapRun => "uap-run",
            Self::UapResume => "uap-resume",
        }
    }

    fn of(word: &str) -> Option<Self> {
        use Kit::{
            Osw, OswAgent, OswCore, OswTap, Sacp, SacpExecutor, Sap, UapResume, UapRun, UapState,
        };
        let kits = [
            Sap,
            Sacp,
            SacpExecutor,
            Osw,
            OswAgent,
            OswCore,
            OswTap,
            UapState,
            UapRun,
            UapResume,
        ];
        kits.into_iter().find(|kit| kit.name() == word)
    }

    /// What stands before a command.
    const fn mark(self) -> &'static str {
        match self {
            Self::OswCore => "--launch",
            _ => "--",
        }
    }

    /// What to say where nothing to judge was given.
    fn wanted(self) -> String {
        let (name, mark) = (self.name(), self.mark());
        match self {
            Self::Sap | Self::UapState => {
                format!("{name}: files are wanted, or a command behind {mark}")
            }
            Self::UapRun => format!("{name}: files are wanted"),
            _ => format!("{name}: a command is wanted behind {mark}"),
        }
    }
}

/// Reads the arguments behind the program's name.
pub(super) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Parsed, String> {
    let mut arguments = arguments.into_iter();
    let kit = arguments
        .next()
        .ok_or("a kit is wanted: sap, sap-http, sacp, sacp-executor, osw, osw-agent, osw-core, osw-tap, uap-state, uap-run, uap-resume, hub, hub-agent, hub-hostile or self-test")?;
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
        other => Kit::of(other).ok_or_else(|| format!("no kit {other}"))?,
    };
    let (mut form, mut to, mut files) = (Form::Table, None, Vec::new());
    let mut expectations = Expectations::new();
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("--help" | "-h") => return Ok(Parsed::Help),
            Some("--report") => form = form_of(arguments.next())?,
            Some("--expect") => expectations = expectations_of(arguments.next())?,
            Some("--to") => to = Some(PathBuf::from(arguments.next().ok_or("--to needs a file")?)),
            Some(mark) if mark == kit.mark() => {
                let command: Vec<OsString> = arguments.collect();
                if command.is_empty() {
                    return Err(kit.wanted());
                }
                if !files.is_empty() {
                    return Err(format!("files or a command behind {mark}, not both"));
                }
                let subject = Subject::Command(command);
                return Ok(Parsed::Run(Args {
                    kit,
                    subject,
                    form,
                    to,
                    expectations,
                }));
            }
            Some(option) if option.starts_with('-') && option.len() > 1 => {
                return Err(format!("unknown option {}", shown(option)));
            }
            _ => files.push(PathBuf::from(argument)),
        }
    }
    if files.is_empty() {
        return Err(kit.wanted());
    }
    let subject = Subject::Files(files);
    Ok(Parsed::Run(Args {
        kit,
        subject,
        form,
        to,
        expectations,
    }))
}

/// Reads the file of expectations that an option names.
pub(super) fn expectations_of(file: Option<OsString>) -> Result<Expectations, String> {
    let file = file.ok_or("--expect needs a file")?;
    let place = Path::new(&file).display();
    let text = std::fs::read(&file).map_err(|err| format!("{place}: {err}"))?;
    Expectations::from_json(&text).map_err(|err| format!("{place}: {err}"))
}

pub(super) fn form_of(word: Option<OsString>) -> Result<Form, String> {
    match word.as_deref().and_then(std::ffi::OsStr::to_str) {
        Some("table") => Ok(Form::Table),
        Some("json") => Ok(Form::Json),
        Some("junit") => Ok(Form::Junit),
        _ => Err("--report needs table, json or junit".to_owned()),
    }
}
