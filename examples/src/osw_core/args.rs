//! The command line, read by hand.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// The help text.
pub(super) const USAGE: &str = "\
Launches a command as an OpenSentience agent, calls its tools one after the other, and prints a JSON line for
everything that happens.

usage: core [OPTIONS] -- COMMAND ARGUMENTS...

  --agent-id ID          the id that the agent is launched with; default com.example.agent
  --heartbeat-ms N       how often it must say that it lives, 10 to 3600000; default 5000
  --handshake-ms N       how long its hello may take, and then its tools, 10 to 3600000; default 10000
  --max-frame-bytes N    the longest message, 1024 to 4294967295; default 4194304
  --script FILE          the calls, a JSON object a line; - is standard input; without it none is made
  --help                 this text

a call:  {\"call\":TOOL,\"input\":{...},\"timeout_ms\":N,\"cancel_after_ms\":N,\"idempotency_key\":KEY}
         TOOL is a tool's name or its full id; all but call may be left out

exit codes: 0 every call ended with a result of the agent's, whatever its status
            1 a call was refused, or ended without the agent's result
            2 usage, or a script that cannot be read
            3 the agent broke the protocol, or never registered a tool
            130 after Ctrl-C, 143 after SIGTERM
";

/// What was asked for.
#[derive(Debug)]
pub(super) struct Args {
    /// The id that the agent is launched with.
    pub(super) agent_id: String,
    /// How often it must say that it lives.
    pub(super) heartbeat: Duration,
    /// How long it may take to say hello.
    pub(super) handshake: Duration,
    /// The longest message.
    pub(super) max_frame_bytes: usize,
    /// Where the calls stand.
    pub(super) script: Option<PathBuf>,
    /// The command.
    pub(super) command: OsString,
    /// Its arguments.
    pub(super) arguments: Vec<OsString>,
}

/// Reads the arguments behind the program's name; `None` asks for the help text.
pub(super) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Option<Args>, String> {
    let mut arguments = arguments.into_iter();
    let (mut agent_id, mut heartbeat) = ("com.example.agent".to_owned(), 5_000);
    let (mut handshake, mut max_frame_bytes, mut script) = (10_000, 4_194_304, None);
    loop {
        let option = arguments.next().ok_or("a command is wanted, behind --")?;
        let name = option.to_string_lossy().into_owned();
        match name.as_str() {
            "--help" | "-h" => return Ok(None),
            "--" => break,
            "--agent-id" => {
                agent_id = value(&mut arguments, &name)?.to_string_lossy().into_owned();
                if agent_id.is_empty() || agent_id.contains('/') {
                    return Err("--agent-id needs an id without a slash".to_owned());
                }
            }
            "--heartbeat-ms" => heartbeat = number(&mut arguments, &name, 10, 3_600_000)?,
            "--handshake-ms" => handshake = number(&mut arguments, &name, 10, 3_600_000)?,
            "--max-frame-bytes" => {
                max_frame_bytes = number(&mut arguments, &name, 1_024, u64::from(u32::MAX))?
            }
            "--script" => script = Some(PathBuf::from(value(&mut arguments, &name)?)),
            _ => {
                return Err(format!(
                    "unknown option {name}; the command stands behind --"
                ));
            }
        }
    }
    let command = arguments.next().ok_or("a command is wanted behind --")?;
    Ok(Some(Args {
        agent_id,
        heartbeat: Duration::from_millis(heartbeat),
        handshake: Duration::from_millis(handshake),
        max_frame_bytes: usize::try_from(max_frame_bytes)
            .map_err(|_| "--max-frame-bytes is too large")?,
        script,
        command,
        arguments: arguments.collect(),
    }))
}

fn value(arguments: &mut impl Iterator<Item = OsString>, name: &str) -> Result<OsString, String> {
    arguments
        .next()
        .ok_or_else(|| format!("{name} needs a value"))
}

fn number(
    arguments: &mut impl Iterator<Item = OsString>,
    name: &str,
    least: u64,
    most: u64,
) -> Result<u64, String> {
    let given = value(arguments, name)?;
    let number = given.to_str().and_then(|text| text.parse::<u64>().ok());
    let number = number.filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("{name} needs a number from {least} to {most}"))
}
