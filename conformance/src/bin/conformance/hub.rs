//! `hub` and `hub-agent`: a hub on a port, and an agent that calls one.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use uap_hub_proto::capability::Skill;
use ubos_conformance::hub::{TestFleet, TestHub, agent_kit, hub_kit};
use ubos_conformance::{ConnectError, Expectations, Report};

use super::args::Form;
use super::out::{printed, shown};
use super::{Proof, args, proof_of, with_floor};
use super::{command, hostile};

pub(super) const USAGE: &str = "\
Judges a hub of the UAP hub protocol, or an agent that calls one, or attacks a hub as strangers do.

usage: conformance hub --url URL [--type T] [--kind K] [--report FORM] [-- COMMAND...]
       conformance hub-agent --listen ADDRESS [--report FORM]
       conformance hub-hostile --url URL [--pid PID] [--seconds N] [--patience N] [--max-growth BYTES] [--token-file FILE] [--attack NAME]... [-- COMMAND...]

A hub is judged by a fleet that calls it. For most cases it must have jobs to offer: tests (or, with --kind translation,
translations) of type T (echo by default). Either they wait there already, some thirty of them, or COMMAND gives it one more; it is run for each that is wanted, {} among its
arguments becoming T, and killed where it has not ended after 10 seconds.

An agent is judged by a hub at ADDRESS, as 127.0.0.1:9000: start it with that for its hub; it may come at any time within 75
seconds. Its first capability is what it is asked for, with made-up payloads of the types that it requires.

A hub is attacked in up to 19 ways, one after the other, for N seconds each (default 5), while an honest agent registers,
listens, and does a job if COMMAND gives any, again and again. The table shows how long that took it, and by how much the memory of process PID grew. The hub must serve
it each time within the seconds of --patience (default 10; more where the machine is busy with something else), and grow by at most BYTES (default 536870912). Four attacks need jobs: COMMAND is started once and
gives the hub what it reads, JSON lines as those of the program hub; the last line says how many it did not read. Where the hub wants tokens, FILE has two lines: the last word of the first
is shown by the attackers, that of the second by the honest agent, and neither must learn what is the other's. --attack runs this one
alone, named as in the table, and may be given more than once. Attack nobody else's hub.

  --expect FILE   what the author of the peer declares about it; conformance --help tells more
  --report FORM   table (the default), json or junit
  --help          this text

exit codes: 0 it conforms, 1 it does not, or too little of it could be judged, 2 usage, nobody there
";

/// How long an agent may take to come: as long as the longest pause, and some.
const PATIENCE: Duration = Duration::from_secs(75);

/// Cases that an honest agent may leave unjudged: it may take one session at a time.
const OPTIONAL: usize = 1;

/// Judges what the arguments say, if they are for this kit.
pub(super) fn main(arguments: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut arguments = arguments.into_iter();
    let kit = match arguments.next()?.to_str()? {
        "hub" => "hub",
        "hub-agent" => "hub-agent",
        "hub-hostile" => return Some(hostile::main(arguments)),
        _ => return None,
    };
    let judged = match parse(kit, arguments) {
        Ok(None) => {
            return Some(printed(USAGE, 0));
        }
        Ok(Some(asked)) => judge(&asked).map(|report| (report, asked.form)),
        Err(why) => Err(why),
    };
    Some(match judged {
        Ok((report, form)) => show(&report, form),
        Err(why) => {
            note!("conformance: {why}");
            ExitCode::from(2)
        }
    })
}

/// What was asked for.
struct Asked {
    subject: Subject,
    form: Form,
    expectations: Expectations,
}

enum Subject {
    Hub {
        url: String,
        skill: Skill,
        command: Vec<OsString>,
    },
    Agent {
        listen: std::net::SocketAddr,
    },
}

fn parse(
    kit: &str,
    mut arguments: impl Iterator<Item = OsString>,
) -> Result<Option<Asked>, String> {
    let (mut form, mut url, mut listen) = (Form::Table, None, None);
    let (mut skill, mut command) = ("echo".to_owned(), Vec::new());
    let mut make: fn(&str) -> Skill = |name| Skill::test(name);
    let mut expectations = Expectations::new();
    while let Some(argument) = arguments.next() {
        let name = argument.to_string_lossy().into_owned();
        let mut value = || {
            let value = arguments.next().and_then(|value| value.into_string().ok());
            value.ok_or_else(|| format!("{name} needs a value"))
        };
        match (name.as_str(), kit) {
            ("--help" | "-h", _) => return Ok(None),
            ("--expect", _) => expectations = args::expectations_of(arguments.next())?,
            ("--report", _) => form = args::form_of(arguments.next())?,
            ("--url", "hub") => url = Some(value()?),
            ("--type", "hub") => skill = value()?,
            ("--kind", "hub") => match value()?.as_str() {
                "test" => make = |name| Skill::test(name),
                "translation" => make = |name| Skill::translation(name),
                _ => return Err("--kind needs test or translation".to_owned()),
            },
            ("--", "hub") => command.extend(arguments.by_ref()),
            ("--listen", "hub-agent") => {
                let addr = value()?.parse();
                listen = Some(addr.map_err(|_| "--listen needs an address as 127.0.0.1:9000")?);
            }
            _ => {
                return Err(format!(
                    "unknown argument {}; --help tells more",
                    shown(&name)
                ));
            }
        }
    }
    let subject = match (kit, url, listen) {
        ("hub", Some(url), _) => Subject::Hub {
            url,
            skill: make(&skill),
            command,
        },
        ("hub", None, _) => return Err("--url is wanted".to_owned()),
        (_, _, Some(listen)) => Subject::Agent { listen },
        _ => return Err("--listen is wanted".to_owned()),
    };
    Ok(Some(Asked {
        subject,
        form,
        expectations,
    }))
}

fn judge(asked: &Asked) -> Result<Report, String> {
    match &asked.subject {
        Subject::Hub {
            url,
            skill,
            command,
        } => judge_hub(url, skill, command, &asked.expectations),
        Subject::Agent { listen } => judge_agent(*listen, &asked.expectations),
    }
}

fn judge_hub(
    url: &str,
    skill: &Skill,
    command: &[OsString],
    expectations: &Expectations,
) -> Result<Report, String> {
    let connect = || {
        let command = command.to_vec();
        let feed = move |skill: &Skill| feed(&command, skill);
        let fleet = TestFleet::connect(url, skill.clone(), feed);
        fleet.map_err(|err| format!("{}: {}", shown(url), with_causes(&err)))
    };
    connect()?;
    let kit = hub_kit();
    let expectations = with_floor(expectations, kit.cases().len());
    Ok(kit.run(&expectations, |_| match connect() {
        Ok(fleet) => Ok(Box::new(fleet)),
        Err(why) => Err(ConnectError::Unreachable(why)),
    }))
}

/// An error with its causes, on one line.
fn with_causes(err: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(err.source(), |cause| cause.source());
    causes.fold(err.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Gives the hub one more job.
fn feed(command: &[OsString], skill: &Skill) {
    let Some((program, arguments)) = command.split_first() else {
        return;
    };
    let arguments = arguments.iter().map(|argument| {
        let filled = argument
            .to_str()
            .map(|text| text.replace("{}", skill.name()));
        filled.map_or_else(|| argument.clone(), OsString::from)
    });
    let started = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .process_group(0)
        .spawn();
    match started.and_then(command::ended_in_time) {
        Ok(status) if status.success() => {}
        Ok(status) => note!("conformance: the command that gives jobs ended with {status}"),
        Err(err) => note!("conformance: the command that gives jobs: {err}"),
    }
}

fn judge_agent(
    listen: std::net::SocketAddr,
    expectations: &Expectations,
) -> Result<Report, String> {
    let hub = TestHub::bind(listen).map_err(|err| format!("{listen}: {err}"))?;
    note!("conformance: waiting for an agent at {}", hub.url());
    if !hub.wait_for_agent(PATIENCE) {
        return Err(format!("no agent came in {PATIENCE:?}"));
    }
    let kit = agent_kit();
    let expectations = with_floor(expectations, kit.cases().len() - OPTIONAL);
    Ok(kit.run(&expectations, |_| Ok(hub.peer())))
}

/// Prints a report; gives the exit code.
pub(super) fn show(report: &Report, form: Form) -> ExitCode {
    let text = match form {
        Form::Table => format!("{report}\n"),
        Form::Json => format!("{}\n", ubos_common::json::to_string(report)),
        Form::Junit => report.to_junit(),
    };
    printed(&text, u8::from(!report.is_conformant()))
}

pub(super) fn proof() -> Proof {
    proof_of(&hub_kit())
}

pub(super) fn agent_proof() -> Proof {
    proof_of(&agent_kit())
}
