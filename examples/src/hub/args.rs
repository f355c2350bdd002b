//! The command line, read by hand.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::secured::TlsFiles;

/// The help text.
pub(super) const USAGE: &str = "\
A UAP hub: fleet agents register with it, jobs come as JSON lines, and everything that happens is printed as
JSON lines.

usage: hub [OPTIONS] [FILES...]

  --listen ADDRESS    where agents find it; default 127.0.0.1:9000, port 0 takes any free one; the address is
                      the first line that is printed
  --store DIR         keeps jobs and their ends in that folder: a hub that is killed goes on with them when it
                      is started again
  --archive DIR       before it begins, moves what the store does not need any more to that folder: all ends but the
                      last 1000
  --results           prints the ends of all jobs in the store, and does nothing else
  --nats URL          shares one queue of jobs with other hubs, on NATS JetStream
  --token-file FILE   agents must show the token that is the file's first line. Without certificates all that have it count as
                      one: each can use what the hub gave to another, if it learns the id
  --tls-cert FILE     serves over TLS with this certificate (PEM)
  --tls-key FILE      its private key (PEM)
  --tls-ca FILE       agents must show a certificate that this authority (PEM) signed, and are told apart by it
  --max-control-bytes N
                      bytes of a registration or control message, 1 to 67108864; default 1048576
  --max-per-peer N    agents, and connections, that one peer may have, 1 to 1000000; default 1000. A peer is a
                      certificate, all that have the token, or an address; connections count by address
  --grace SECONDS     how long an agent that was cut off may take to come back, 0 to 86400; default 0. Its sessions go on
                      if it can resume them
  --attempts N        how often a job may be begun when agents are lost, 1 to 100; default 1
  --exit-when-done    exits when all input is read and every job has ended; without it the hub runs until it is
                      interrupted
  --help              this text

Without FILES jobs are read from standard input; - is standard input, too.

a job:  {\"kind\":\"test\"|\"translation\", \"type\":TYPE, \"payloads\":[PAYLOAD...], \"agent\":NAME, \"timeout_ms\":N,
         \"priority\":-128..127, \"group\":GROUP, \"id\":ID}
        kind and type are needed. agent is a display name or a client id; the job waits for it. timeout_ms is
        for the whole job. Of equal priority, groups take turns. A store takes each id once.
payload: {\"type\":TYPE, \"name\":NAME, \"mime_type\":MIME, \"text\":TEXT | \"base64\":DATA | \"file\":PATH,
         \"metadata\":{...}}

events, each with at, the hub's time:
        listening, agent-registered, agent-listening, agent-away, agent-gone, audit; submitted, restored, known,
        proposed, accepted, rejected, ready, init-sent, status, telemetry, cut, resumed, requeued, and for each job
        one of result (the agent gave one) and failed (it did not), both with state; refused, for a line that is no job.
        status and telemetry have the agent's time as agent_at; audit is an action of an agent that was ignored

exit codes: 0 every job ended COMPLETED
            1 some job did not
            2 usage, a line that is no job, or an input, address or store that cannot be used
            3 something of the hub failed
            130 after Ctrl-C, 143 after SIGTERM
";

/// The most bytes of a message in any call.
const MAX_CONTROL_BYTES: usize = 64 << 20;

/// The most agents of one peer.
const MAX_PER_PEER: usize = 1_000_000;

/// The most seconds that an agent may be away.
const MAX_GRACE: u64 = 24 * 60 * 60;

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Args {
    /// Where agents find the hub.
    pub(super) listen: SocketAddr,
    /// Where jobs and ends are kept.
    pub(super) store: Option<PathBuf>,
    /// Where what the store does not need any more goes.
    pub(super) archive: Option<PathBuf>,
    /// Whether to print the stored ends only.
    pub(super) results: bool,
    /// The NATS server.
    pub(super) nats: Option<String>,
    /// Where the token of the agents stands.
    pub(super) token_file: Option<PathBuf>,
    /// Where certificates and keys stand.
    pub(super) tls: TlsFiles,
    /// Bytes of a control message, where they are limited by hand.
    pub(super) max_control_bytes: Option<usize>,
    /// Agents and connections of one peer.
    pub(super) max_per_peer: usize,
    /// How long an agent that was cut off may take to come back.
    pub(super) grace: Duration,
    /// How often a job may be begun.
    pub(super) attempts: u32,
    /// Whether to exit when there is nothing left to do.
    pub(super) exit_when_done: bool,
    /// Where jobs are read from; standard input where there is none.
    pub(super) files: Vec<PathBuf>,
}

/// Reads the arguments behind the program's name; `None` asks for the help text.
pub(super) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Option<Args>, String> {
    let mut arguments = arguments.into_iter();
    let mut args = Args {
        listen: SocketAddr::from(([127, 0, 0, 1], 9000)),
        store: None,
        archive: None,
        results: false,
        nats: None,
        token_file: None,
        tls: TlsFiles::default(),
        max_control_bytes: None,
        max_per_peer: 1000,
        grace: Duration::ZERO,
        attempts: 1,
        exit_when_done: false,
        files: Vec::new(),
    };
    while let Some(argument) = arguments.next() {
        let name = argument.to_string_lossy().into_owned();
        let mut value = |what: &str| {
            let value = arguments.next().filter(|value| !value.is_empty());
            value.ok_or_else(|| format!("{name} needs {what}"))
        };
        match name.as_str() {
            "--help" | "-h" => return Ok(None),
            "--listen" => {
                let given = value("an address")?.to_string_lossy().into_owned();
                args.listen = given.parse().map_err(|_| {
                    format!("--listen needs an address like 127.0.0.1:9000, not {given}")
                })?;
            }
            "--store" => args.store = Some(value("a folder")?.into()),
            "--archive" => args.archive = Some(value("a folder")?.into()),
            "--results" => args.results = true,
            "--nats" => args.nats = Some(value("a URL")?.to_string_lossy().into_owned()),
            "--attempts" => {
                let given = value("a number")?;
                let number = given.to_str().and_then(|text| text.parse().ok());
                args.attempts = number
                    .filter(|number| (1..=100).contains(number))
                    .ok_or("--attempts needs a number from 1 to 100")?;
            }
            "--grace" => {
                let given = value("a number")?;
                let seconds = given.to_str().and_then(|text| text.parse().ok());
                let seconds = seconds.filter(|seconds| *seconds <= MAX_GRACE);
                let refused = || format!("--grace needs a number from 0 to {MAX_GRACE}");
                args.grace = Duration::from_secs(seconds.ok_or_else(refused)?);
            }
            "--token-file" => args.token_file = Some(value("a file")?.into()),
            "--tls-cert" => args.tls.cert = Some(value("a file")?.into()),
            "--tls-key" => args.tls.key = Some(value("a file")?.into()),
            "--tls-ca" => args.tls.ca = Some(value("a file")?.into()),
            "--max-control-bytes" => {
                let given = value("a number")?;
                let number = given.to_str().and_then(|text| text.parse().ok());
                let number = number.filter(|number| (1..=MAX_CONTROL_BYTES).contains(number));
                let refused =
                    || format!("--max-control-bytes needs a number from 1 to {MAX_CONTROL_BYTES}");
                args.max_control_bytes = Some(number.ok_or_else(refused)?);
            }
            "--max-per-peer" => {
                let given = value("a number")?;
                let number = given.to_str().and_then(|text| text.parse().ok());
                let number = number.filter(|number| (1..=MAX_PER_PEER).contains(number));
                let refused = || format!("--max-per-peer needs a number from 1 to {MAX_PER_PEER}");
                args.max_per_peer = number.ok_or_else(refused)?;
            }
            "--exit-when-done" => args.exit_when_done = true,
            option if option.starts_with("--") => return Err(format!("unknown option {option}")),
            _ => args.files.push(argument.into()),
        }
    }
    if args.store.is_some() && args.nats.is_some() {
        return Err("--store and --nats exclude each other: the queue keeps the jobs".to_owned());
    }
    args.tls.check()?;
    if args.tls.ca.is_some() && args.tls.cert.is_none() {
        return Err("--tls-ca needs --tls-cert: the hub's own certificate".to_owned());
    }
    if args.archive.is_some() && args.store.is_none() {
        return Err("--archive needs --store".to_owned());
    }
    if args.results && args.store.is_none() {
        return Err("--results needs --store".to_owned());
    }
    Ok(Some(args))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Option<Args>, String> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn a_command_line_is_read() {
        let args = read("--listen 127.0.0.1:0 a.jsonl --store d --attempts 3 --exit-when-done -");
        let args = args.unwrap().unwrap();
        assert_eq!((args.listen.port(), args.attempts), (0, 3));
        assert_eq!(args.files, [PathBuf::from("a.jsonl"), PathBuf::from("-")]);
        assert_eq!(read("--help"), Ok(None));
        for wrong in [
            "--listen",
            "--listen here",
            "--attempts 0",
            "--grace x",
            "--grace 86401",
            "--what",
            "--max-control-bytes 0",
            "--max-control-bytes 67108865",
            "--max-per-peer 0",
            "--max-per-peer 1000001",
            "--tls-cert c",
            "--tls-key k",
            "--tls-ca a",
            "--token-file",
            "--results",
            "--archive d",
            "--store d --nats nats://x",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
