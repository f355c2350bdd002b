//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Args {
    /// Where tasks are posted.
    pub url: String,
    /// The file of the token that says who asks.
    pub token: Option<PathBuf>,
    /// The task.
    pub task: TaskFrom,
}

/// Where the task comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskFrom {
    /// A file, `-` for standard input.
    File(PathBuf),
    /// Options.
    Options(Draft),
}

/// A task as options say it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Draft {
    /// What is to be done.
    pub capability: String,
    /// JSON text.
    pub payload: Option<String>,
    /// The issuer's id.
    pub issuer: Option<String>,
    /// The one agent that may do it.
    pub agent: Option<String>,
    /// How much deliberation the decision gets.
    pub level: Option<String>,
    /// The domain.
    pub territory: Option<String>,
    /// How the cache is used.
    pub cache: Option<String>,
}

/// What the command line comes to.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed {
    /// Send.
    Run(Box<Args>),
    /// Show [`USAGE`].
    Help,
}

/// The help text.
pub const USAGE: &str = "\
Sends one SAP V2.0 task over HTTP, and prints what is said about it as JSON lines.

usage: sap-send URL FILE
       sap-send URL --capability NAME [options]

  URL                where tasks are posted, such as http://127.0.0.1:8080/sap/tasks
  FILE               the task, - for standard input
  --capability NAME  what is to be done, such as text.upper
  --payload JSON     its inputs, an object (default {})
  --issuer ID        who asks (default sap-send)
  --agent ID         the one agent that may do it
  --level WORD       instant, consulted or deliberated (default instant)
  --territory NAME   the domain
  --cache MODE       prefer, only or bypass
  --token FILE       the bearer token in this file says who asks; goes with a task from a file, too
  --help             this text

exit codes: 0 succeeded, or taken where results go elsewhere, or sent before and still at work; 1 not valid,
            turned away, failed, escalated or cancelled; 2 usage or an unreadable file; 3 no answer, or one that
            breaks the protocol or does not end the task; 130 after Ctrl-C, 143 after SIGTERM
";

/// Reads the arguments behind the program's name.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Parsed, String> {
    let mut arguments = arguments.into_iter();
    let (mut url, mut file, mut token) = (None, None, None);
    let mut draft = Draft::default();
    let mut has_options = false;
    while let Some(argument) = arguments.next() {
        let shown = argument.to_string_lossy().into_owned();
        let (name, inline) = match shown.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
            _ => (shown.as_str(), None),
        };
        let mut value = |what: &str| {
            let next = || {
                arguments
                    .next()
                    .map(|value| value.to_string_lossy().into_owned())
            };
            let value = inline
                .clone()
                .or_else(next)
                .filter(|value| !value.is_empty());
            value.ok_or_else(|| format!("{name} needs {what}"))
        };
        match name {
            "--help" | "-h" => return Ok(Parsed::Help),
            "--capability" => draft.capability = value("a name")?,
            "--payload" => draft.payload = Some(value("an object")?),
            "--issuer" => draft.issuer = Some(value("an id")?),
            "--agent" => draft.agent = Some(value("an id")?),
            "--level" => draft.level = Some(value("a level")?),
            "--territory" => draft.territory = Some(value("a name")?),
            "--cache" => draft.cache = Some(value("a mode")?),
            "--token" => token = Some(value("a file")?.into()),
            option if option.starts_with('-') && option.len() > 1 => {
                return Err(format!("unknown option {option}"));
            }
            _ if url.is_none() => url = Some(shown.clone()),
            _ if file.is_none() => file = Some(PathBuf::from(argument)),
            _ => return Err("more than one file".into()),
        }
        has_options |= name.starts_with("--") && name != "--token";
    }
    let url = url.ok_or("no URL")?;
    let task = match file {
        Some(_) if has_options => return Err("a file and options that say the task".into()),
        Some(file) => TaskFrom::File(file),
        None if draft.capability.is_empty() => return Err("no file and no --capability".into()),
        None => TaskFrom::Options(draft),
    };
    Ok(Parsed::Run(Box::new(Args { url, token, task })))
}
