//! The command line, read by hand.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::secured::{TlsFiles, shown};

/// The help text.
pub(super) const USAGE: &str = "\
A UAP hub: fleet agents register with it, jobs come as JSON lines, and everything that happens is printed as
JSON lines.

usage: hub [OPTIONS] [FILES...]

  --listen ADDRESS    where agents find it; default 127.0.0.1:9000, port 0 takes any free one; the address is
                      the first line that is printed
  --store DIR         keeps jobs and their ends in that folder: a hub that is killed goes on with them when it
                      is started again
  --archive DIR       moves what the store does not need any more to that folder: all ends but the last of --keep-ends, at
                      the start and each time that as many have come since. Whole files of 64 MiB go there, and --store with
                      that folder and --results prints what is in them. The ids of jobs that went are free again
  --keep-ends N       ends that stay in the store when others are archived, 1 to 1000000; default 1000
  --results           prints the ends of all jobs in the store, and does nothing else
  --nats URL          shares one queue of jobs with other hubs, on NATS JetStream
  --ack-wait SECONDS  how long a hub of the queue may be silent about a job before another gets it, 1 to 86400; default 30.
                      The first hub of a queue settles it
  --max-deliveries N  how often hubs of the queue may take a job that gets no end, 1 to 1000000; default 20. A hub that
                      gives it back, because it has no room or leaves, has not taken it
  --token-file FILE   agents must show a token of the file, which has NAME TOKEN on each line. What the hub gives to one name
                      is of no use to another, whoever learns the id. Those whose token stands alone on its line count as
                      one; with certificates these tell agents apart
  --tls-cert FILE     serves over TLS with this certificate (PEM)
  --tls-key FILE      its private key (PEM)
  --tls-ca FILE       agents must show a certificate that this authority (PEM) signed, and are told apart by it
  --max-control-bytes N
                      bytes of a registration or control message, 1 to 67108864; default 1048576
  --max-per-peer N    agents, and connections, that one peer may have, 1 to 1000000; default 1000. A peer is a
                      certificate, the name of a token, or an address; connections count by address
  --grace SECONDS     how long an agent that was cut off may take to come back, 0 to 86400; default 0. Its sessions go on
                      if it can resume them (hub-agent --resume, --resume-limit)
  --max-jobs N        jobs that may wait or run, 1 to 1000000; default 10000. Beyond it no more are read, or taken from the
                      queue
  --drain-ms N        how long agents have for what they run when the hub is interrupted, 0 to 86400000; default 500
  --attempts N        how often a job may be begun when agents are lost, 1 to 100; default 1
  --exit-when-done    exits when all input is read and every job has ended; without it the hub runs until it is
                      interrupted. From the queue it takes nothing more then, ends what its agents run for other hubs, and gives
                      back what waits
  --help              this text

Without FILES jobs are read from standard input; - is standard input, too.

a job:  {\"kind\":\"test\"|\"translation\", \"type\":TYPE, \"payloads\":[PAYLOAD...], \"agent\":NAME, \"timeout_ms\":N,
         \"priority\":-128..127, \"group\":GROUP, \"id\":ID}
        kind and type are needed. agent is a display name or a client id; the job waits for it. Anybody who may
        register may have that display name: it proves nothing. A job that a store has after a restart goes to any agent that
        can do it. timeout_ms is for the whole job. Of equal priority, groups take turns. A store takes each id once.
        1000 jobs, or 256 MiB, may wait for agents that are not there; when the hub is interrupted they are failed
payload: {\"type\":TYPE, \"name\":NAME, \"mime_type\":MIME, \"text\":TEXT | \"base64\":DATA | \"file\":PATH,
         \"metadata\":{...}}

events, each with at, the hub's time:
        listening, archived, not-archived (and why), agent-registered, agent-listening, agent-away, agent-gone, audit, missed,
        left-out; submitted, restored, known, waiting, proposed, accepted, rejected, ready, init-sent, status, telemetry, cut, resumed, requeued, and for each job
        one of result (the agent gave one) and failed (it did not), both with state; refused, for a line that is no job.
        waiting says why no agent has the job, after a second and when the reason is another, ever more rarely; a job of a queue
        is told of by the hub that has it
        status and telemetry have the agent's time as agent_at; audit is an action of an agent that was ignored
a line: has at most 16 KiB about an agent, 1 MiB about a job on its way, 96 MiB about its end; left_out_bytes says what is missing
        8 MiB of lines may wait to be read. Beyond it news of agents is left out, and a line left-out counts it; jobs wait
        until their lines are read, and no more are read. Jobs of a queue run on: their news is left out, and their ends are told
        later. A signal is heard all the same; the last lines have 2 s then, and the exit code is 3 if nobody reads them

exit codes: 0 every job ended COMPLETED
            1 some job did not
            2 usage, a line that is no job, or an input, address or store that cannot be used
            3 something of the hub failed
            130 after Ctrl-C, 143 after SIGTERM
";

/// The most bytes of a message in any call.
const MAX_CONTROL_BYTES: u64 = 64 << 20;

/// The most agents of one peer, jobs, and deliveries of one.
const MILLION: u64 = 1_000_000;

/// The most seconds that something may take.
const DAY: u64 = 24 * 60 * 60;

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Args {
    /// Where agents find the hub.
    pub(super) listen: SocketAddr,
    /// Where jobs and ends are kept.
    pub(super) store: Option<PathBuf>,
    /// Where what the store does not need any more goes.
    pub(super) archive: Option<PathBuf>,
    /// Ends that stay in the store when others are archived.
    pub(super) keep_ends: usize,
    /// Whether to print the stored ends only.
    pub(super) results: bool,
    /// The NATS server.
    pub(super) nats: Option<String>,
    /// How long a hub may be silent about a job of the queue.
    pub(super) ack_wait: Duration,
    /// How often hubs may take a job of the queue.
    pub(super) max_deliveries: i64,
    /// Where the tokens of the agents stand.
    pub(super) token_file: Option<PathBuf>,
    /// Where certificates and keys stand.
    pub(super) tls: TlsFiles,
    /// Bytes of a control message, where they are limited by hand.
    pub(super) max_control_bytes: Option<usize>,
    /// Agents and connections of one peer.
    pub(super) max_per_peer: usize,
    /// How long an agent that was cut off may take to come back.
    pub(super) grace: Duration,
    /// Jobs that may wait or run.
    pub(super) max_jobs: usize,
    /// How long agents have when the hub is interrupted.
    pub(super) drain: Duration,
    /// How often a job may be begun.
    pub(super) attempts: u32,
    /// Whether to exit when there is nothing left to do.
    pub(super) exit_when_done: bool,
    /// Where jobs are read from; standard input where there is none.
    pub(super) files: Vec<PathBuf>,
}

impl Default for Args {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 9000)),
            store: None,
            archive: None,
            keep_ends: 1000,
            results: false,
            nats: None,
            ack_wait: Duration::from_secs(30),
            max_deliveries: 20,
            token_file: None,
            tls: TlsFiles::default(),
            max_control_bytes: None,
            max_per_peer: 1000,
            grace: Duration::ZERO,
            max_jobs: 10_000,
            drain: Duration::from_millis(500),
            attempts: 1,
            exit_when_done: false,
            files: Vec::new(),
        }
    }
}

/// Reads the arguments behind the program's name; `None` asks for the help text.
pub(super) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Option<Args>, String> {
    let mut arguments = arguments.into_iter();
    let mut args = Args::default();
    while let Some(argument) = arguments.next() {
        let name = argument.to_string_lossy().into_owned();
        let mut value = |what: &str| {
            let value = arguments.next().filter(|value| !value.is_empty());
            value.ok_or_else(|| format!("{name} needs {what}"))
        };
        let mut number = |least: u64, most: u64| {
            let given = value("a number")?;
            let number = given.to_str().and_then(|text| text.parse().ok());
            let number = number.filter(|number| (least..=most).contains(number));
            number.ok_or_else(|| format!("{name} needs a number from {least} to {most}"))
        };
        match name.as_str() {
            "--help" | "-h" => return Ok(None),
            "--listen" => {
                let given = value("an address")?.to_string_lossy().into_owned();
                args.listen = given.parse().map_err(|_| {
                    format!(
                        "--listen needs an address like 127.0.0.1:9000, not {}",
                        shown(&given)
                    )
                })?;
            }
            "--store" => args.store = Some(value("a folder")?.into()),
            "--archive" => args.archive = Some(value("a folder")?.into()),
            "--keep-ends" => args.keep_ends = size(number(1, MILLION)?),
            "--results" => args.results = true,
            "--nats" => args.nats = Some(value("a URL")?.to_string_lossy().into_owned()),
            "--ack-wait" => args.ack_wait = Duration::from_secs(number(1, DAY)?),
            "--max-deliveries" => args.max_deliveries = size(number(1, MILLION)?),
            "--attempts" => args.attempts = size(number(1, 100)?),
            "--grace" => args.grace = Duration::from_secs(number(0, DAY)?),
            "--drain-ms" => args.drain = Duration::from_millis(number(0, DAY * 1000)?),
            "--token-file" => args.token_file = Some(value("a file")?.into()),
            "--tls-cert" => args.tls.cert = Some(value("a file")?.into()),
            "--tls-key" => args.tls.key = Some(value("a file")?.into()),
            "--tls-ca" => args.tls.ca = Some(value("a file")?.into()),
            "--max-control-bytes" => {
                args.max_control_bytes = Some(size(number(1, MAX_CONTROL_BYTES)?));
            }
            "--max-per-peer" => args.max_per_peer = size(number(1, MILLION)?),
            "--max-jobs" => args.max_jobs = size(number(1, MILLION)?),
            "--exit-when-done" => args.exit_when_done = true,
            option if option.starts_with("--") => {
                return Err(format!("unknown option {}", shown(option)));
            }
            _ => args.files.push(argument.into()),
        }
    }
    check(&args)?;
    Ok(Some(args))
}

/// A number that its bounds keep small.
fn size<T: TryFrom<u64> + Default>(number: u64) -> T {
    T::try_from(number).unwrap_or_default()
}

/// Whether the options fit together.
fn check(args: &Args) -> Result<(), String> {
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
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Option<Args>, String> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn a_password_in_an_argument_is_not_shown() {
        for wrong in [
            "--nats=nats://user:secret@host",
            "--listen nats://user:secret@host",
        ] {
            let said = read(wrong).unwrap_err();
            assert!(said.contains("host") && !said.contains("secret"), "{said}");
        }
    }

    #[test]
    fn a_command_line_is_read() {
        let args = read("--listen 127.0.0.1:0 a.jsonl --store d --attempts 3 --exit-when-done -");
        let args = args.unwrap().unwrap();
        assert_eq!((args.listen.port(), args.attempts), (0, 3));
        let more = read("--max-jobs 7 --drain-ms 9 --max-deliveries 2 --grace 0 --ack-wait 86400");
        let more = more.unwrap().unwrap();
        assert_eq!((more.max_jobs, more.max_deliveries), (7, 2));
        assert_eq!(
            (more.drain, more.ack_wait.as_secs()),
            (Duration::from_millis(9), 86_400)
        );
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
            "--max-jobs 0",
            "--max-jobs 1000001",
            "--ack-wait 0",
            "--max-deliveries 0",
            "--drain-ms 86400001",
            "--tls-cert c",
            "--tls-key k",
            "--tls-ca a",
            "--token-file",
            "--results",
            "--archive d",
            "--store d --archive d --keep-ends 0",
            "--store d --nats nats://x",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
