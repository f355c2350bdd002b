//! The command line, read by hand: a folder, and how it is shown.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::args::split;
use crate::rebuild::Choice;

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Args {
    /// The state folder.
    pub folder: PathBuf,
    /// Which of its runs.
    pub choice: Choice,
    /// A line of JSON a step, instead of text.
    pub json: bool,
    /// Where the tree is drawn as a page.
    pub html: Option<PathBuf>,
}

/// What the command line comes to.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed {
    /// Show.
    Run(Args),
    /// Show [`USAGE`].
    Help,
}

/// The help text.
pub const USAGE: &str = "\
Shows what a run of `mission` did, as one tree with times, out of its stores alone:
log of steps, SAP transcript, OpenSentience audit, hub store, journal of the agent.
Names each message whose cause no store holds. The transcript has whole seconds:
a task ended up to a second later than it is shown to.

usage: trace FOLDER [options]

  FOLDER          the state folder of `mission` (its --state)
  --run ID        the run whose correlation id begins so; by default the last one
  --all           all runs of the folder
  --json          a line of JSON for each step, message without a cause, and store
  --html FILE     draw the tree as a page of HTML, too
  --help          this text

exit codes: 0 every step has an end and every message its cause, 1 not so,
            2 usage, or a store that cannot be read, 3 something failed
";

/// Reads the arguments behind the program's name.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Parsed, String> {
    let mut arguments = arguments.into_iter();
    let (mut folder, mut run, mut html) = (None, None, None);
    let (mut all, mut json, mut plain) = (false, false, false);
    while let Some(argument) = arguments.next() {
        let (name, inline) = split(&argument);
        let mut value = |what: &str| {
            inline
                .clone()
                .or_else(|| arguments.next())
                .filter(|value| !value.is_empty())
                .ok_or_else(|| format!("{name} needs {what}"))
        };
        match name.as_str() {
            "--" if !plain => plain = true,
            "--help" | "-h" if !plain => return Ok(Parsed::Help),
            "--json" | "--all" if !plain && inline.is_some() => {
                return Err(format!("{name} takes no value"));
            }
            "--json" if !plain => json = true,
            "--all" if !plain => all = true,
            "--run" if !plain => run = Some(value("an id")?.to_string_lossy().into_owned()),
            "--html" if !plain => html = Some(PathBuf::from(value("a file")?)),
            option if option.starts_with('-') && option.len() > 1 && !plain => {
                return Err(format!("unknown option {option}"));
            }
            _ if folder.is_none() => folder = Some(PathBuf::from(argument)),
            _ => return Err("more than one folder".to_owned()),
        }
    }
    let choice = match (run, all) {
        (Some(_), true) => return Err("--run and --all exclude each other".to_owned()),
        (Some(run), false) => Choice::Run(run),
        (None, true) => Choice::All,
        (None, false) => Choice::Last,
    };
    Ok(Parsed::Run(Args {
        folder: folder.ok_or("which folder?")?,
        choice,
        json,
        html,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arguments: &[&str]) -> Result<Parsed, String> {
        parse(arguments.iter().map(OsString::from))
    }

    #[test]
    fn a_folder_and_how_it_is_shown() {
        let args = |folder: &str, choice, json, html: Option<&str>| {
            Ok(Parsed::Run(Args {
                folder: folder.into(),
                choice,
                json,
                html: html.map(PathBuf::from),
            }))
        };
        assert_eq!(read(&["s"]), args("s", Choice::Last, false, None));
        assert_eq!(
            read(&["--json", "--run=ab", "s", "--html", "t.html"]),
            args("s", Choice::Run("ab".into()), true, Some("t.html"))
        );
        assert_eq!(
            read(&["--all", "--", "--json"]),
            args("--json", Choice::All, false, None)
        );
        assert_eq!(read(&["s", "-h"]), Ok(Parsed::Help));
    }

    #[test]
    fn mistakes_are_named() {
        for (arguments, said) in [
            (&[][..], "which folder"),
            (&["a", "b"], "more than one"),
            (&["a", "--what"], "--what"),
            (&["a", "--run"], "--run needs"),
            (&["a", "--html="], "--html needs"),
            (&["a", "--json=1"], "takes no value"),
            (&["a", "--run", "x", "--all"], "exclude"),
        ] {
            assert!(read(arguments).unwrap_err().contains(said), "{arguments:?}");
        }
    }
}
