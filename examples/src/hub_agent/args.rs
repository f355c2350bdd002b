//! The command line, read by hand.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::secured::{TlsFiles, shown};

/// The help text.
pub(super) const USAGE: &str = "\
A fleet agent of the UAP hub protocol: finds its hub, takes what it can do, comes back when the hub was away.

usage: hub-agent --hub URL [OPTIONS]

  --hub URL          where the hub is, as http://127.0.0.1:9000
  --name N           the agent's name for people; default hub-agent
  --max-sessions N   sessions at once; default 16
  --drain-ms N       how long sessions may go on after Ctrl-C or SIGTERM; default 5000
  --resume           goes on with its sessions when the connection was cut, with a hub that waits for that (hub --grace)
  --resume-limit S   how many seconds a session may be cut before it is given up, 1 to 86400; default 300. It needs --resume;
                     the hub gives up after its --grace
  --token-file FILE  a token to show on every call, the last word of the file's first line
  --tls-ca FILE      the authority (PEM) that must have signed the hub's certificate; the URL is https then
  --tls-cert FILE    the certificate (PEM) that the agent shows
  --tls-key FILE     its private key (PEM)
  --help             this text

tests:        echo   completes with its payloads of type text: the first as words if it is short, all as attachments
              sleep  completes after so many milliseconds as its payload of type text says, 1000 without one
              fail   fails, with its payload of type text as words
translations: upper  gives its payloads of type text back in capitals

exit codes: 0 after SIGTERM, 2 usage or a file that cannot be read, 3 something failed, 130 after Ctrl-C
";

/// The most seconds that a session may be cut.
const DAY: u64 = 24 * 60 * 60;

/// What was asked for.
#[derive(Debug)]
pub(super) struct Args {
    /// Where the hub is.
    pub(super) hub: String,
    /// The name for people.
    pub(super) name: String,
    /// Sessions at once.
    pub(super) max_sessions: usize,
    /// Whether sessions go on when the connection was cut.
    pub(super) resume: bool,
    /// How long a session may be cut.
    pub(super) resume_limit: Duration,
    /// How long sessions may go on at the end.
    pub(super) drain: Duration,
    /// Where a token stands.
    pub(super) token_file: Option<PathBuf>,
    /// Where certificates and keys stand.
    pub(super) tls: TlsFiles,
}

/// Reads the arguments behind the program's name; `None` asks for the help text.
pub(super) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Option<Args>, String> {
    let mut arguments = arguments.into_iter();
    let (mut hub, mut is_limited) = (None, false);
    let mut args = Args {
        hub: String::new(),
        name: "hub-agent".to_owned(),
        max_sessions: 16,
        resume: false,
        resume_limit: Duration::from_secs(300),
        drain: Duration::from_secs(5),
        token_file: None,
        tls: TlsFiles::default(),
    };
    while let Some(option) = arguments.next() {
        let name = option.to_string_lossy().into_owned();
        if matches!(name.as_str(), "--help" | "-h") {
            return Ok(None);
        }
        if name == "--resume" {
            args.resume = true;
            continue;
        }
        let mut value = || {
            arguments
                .next()
                .ok_or_else(|| format!("{name} needs a value"))
        };
        match name.as_str() {
            "--hub" => hub = Some(text(&name, value()?)?),
            "--name" => args.name = text(&name, value()?)?,
            "--max-sessions" => args.max_sessions = number(&name, value()?)?,
            "--resume-limit" => {
                let seconds = number(&name, value()?)?;
                if !(1..=DAY).contains(&seconds) {
                    return Err(format!("{name} needs a number from 1 to {DAY}"));
                }
                args.resume_limit = Duration::from_secs(seconds);
                is_limited = true;
            }
            "--drain-ms" => args.drain = Duration::from_millis(number(&name, value()?)?),
            "--token-file" => args.token_file = Some(value()?.into()),
            "--tls-ca" => args.tls.ca = Some(value()?.into()),
            "--tls-cert" => args.tls.cert = Some(value()?.into()),
            "--tls-key" => args.tls.key = Some(value()?.into()),
            _ => return Err(format!("unknown argument {}", shown(&name))),
        }
    }
    args.tls.check()?;
    if is_limited && !args.resume {
        return Err("--resume-limit needs --resume".to_owned());
    }
    args.hub = hub.ok_or("--hub is wanted")?;
    Ok(Some(args))
}

fn text(name: &str, value: OsString) -> Result<String, String> {
    value
        .into_string()
        .map_err(|_| format!("{name} needs UTF-8"))
}

fn number<T: std::str::FromStr>(name: &str, value: OsString) -> Result<T, String> {
    let value = text(name, value)?;
    value
        .parse()
        .map_err(|_| format!("{name} needs a whole number, and {value} is none"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Option<Args>, String> {
        parse(words.iter().map(OsString::from))
    }

    #[test]
    fn a_password_in_an_argument_is_not_shown() {
        let said = parsed(&["--hub=http://user:secret@host"]).unwrap_err();
        assert!(said.contains("host") && !said.contains("secret"), "{said}");
    }

    #[test]
    fn arguments_are_read_or_refused() {
        let args = parsed(&["--hub", "http://h", "--name", "n", "--drain-ms", "7"]);
        let args = args.unwrap().unwrap();
        assert_eq!((args.hub.as_str(), args.name.as_str()), ("http://h", "n"));
        assert_eq!(args.drain, Duration::from_millis(7));
        let args = parsed(&["--hub", "h", "--resume-limit", "9", "--resume"]);
        assert_eq!(args.unwrap().unwrap().resume_limit, Duration::from_secs(9));
        assert!(parsed(&["--help"]).unwrap().is_none());
        for wrong in [
            &[][..],
            &["--name", "n"],
            &["--hub"],
            &["--hub", "h", "--max-sessions", "-1"],
            &["--hub", "h", "more"],
            &["--hub", "h", "--resume-limit", "9"],
            &["--hub", "h", "--resume", "--resume-limit", "0"],
            &["--hub", "h", "--resume", "--resume-limit", "86401"],
            &["--hub", "h", "--tls-cert", "c"],
            &["--hub", "h", "--tls-key", "k"],
        ] {
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
    }
}
