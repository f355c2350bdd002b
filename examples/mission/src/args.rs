//! The command line, read by hand: six options.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Args {
    /// The folder to audit.
    pub folder: PathBuf,
    /// One JSON document on standard output instead of the screen.
    pub json: bool,
    /// Where cache, transcript and checkpoints live.
    pub state: PathBuf,
    /// Whether ignore rules are left aside.
    pub no_ignore: bool,
    /// A real model that writes the report.
    pub model: Option<String>,
    /// Where the steps are drawn as a page.
    pub trace: Option<PathBuf>,
}

/// What the command line comes to.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed {
    /// Audit.
    Run(Args),
    /// Show [`USAGE`].
    Help,
}

/// The help text.
pub const USAGE: &str = "\
Audits a folder of source text by way of five agent protocols.

usage: mission [FOLDER] [options]

  FOLDER          what to audit; the current folder by default
  --json          one JSON document on standard output, nothing else
  --state DIR     where cache, transcript, checkpoints and what `trace` reads live
                  (default: $XDG_STATE_HOME/ubos-mission or ~/.local/state/ubos-mission)
  --trace FILE    draw the steps of both processes as a tree with times,
                  a page of HTML; the report's page, DIR/report.html, has it too
  --no-ignore     count files that .gitignore and .ignore leave out
  --model NAME    let a real model write the report (needs OPENAI_API_KEY;
                  OPENAI_BASE_URL for any compatible server; in a build
                  with --features model)
  --help          this text

exit codes: 0 done, 1 done and secrets found, 2 usage or unreadable folder,
            3 something failed, 130 interrupted, 143 asked to end
";

/// Reads the arguments behind the program's name.
pub fn parse(
    arguments: impl IntoIterator<Item = OsString>,
    environment: impl Fn(&str) -> Option<OsString>,
) -> Result<Parsed, String> {
    let mut arguments = arguments.into_iter();
    let (mut folder, mut state, mut model, mut trace) = (None, None, None, None);
    let (mut json, mut no_ignore, mut plain) = (false, false, false);
    while let Some(argument) = arguments.next() {
        let (name, inline) = split(&argument);
        let mut value = |what: &str| {
            inline
                .clone()
                .or_else(|| arguments.next())
                .filter(|v| !v.is_empty())
                .ok_or_else(|| format!("{name} needs {what}"))
        };
        match name.as_str() {
            "--" if !plain => plain = true,
            "--help" | "-h" if !plain => return Ok(Parsed::Help),
            "--json" | "--no-ignore" if !plain && inline.is_some() => {
                return Err(format!("{name} takes no value"));
            }
            "--json" if !plain => json = true,
            "--no-ignore" if !plain => no_ignore = true,
            "--state" if !plain => state = Some(PathBuf::from(value("a folder")?)),
            "--trace" if !plain => trace = Some(PathBuf::from(value("a file")?)),
            "--model" if !plain => model = Some(value("a name")?.to_string_lossy().into_owned()),
            option if option.starts_with('-') && option.len() > 1 && !plain => {
                return Err(format!("unknown option {option}"));
            }
            _ if folder.is_none() => folder = Some(PathBuf::from(argument)),
            _ => return Err("more than one folder".to_owned()),
        }
    }
    Ok(Parsed::Run(Args {
        folder: folder.unwrap_or_else(|| PathBuf::from(".")),
        json,
        state: state.map_or_else(|| default_state(environment), Ok)?,
        no_ignore,
        model,
        trace,
    }))
}

/// An argument's name, and what stands behind its `=`: a path there may be no UTF-8.
pub(crate) fn split(argument: &OsStr) -> (String, Option<OsString>) {
    let bytes = argument.as_bytes();
    let at = bytes
        .iter()
        .position(|byte| *byte == b'=')
        .filter(|_| bytes.starts_with(b"--"));
    let Some((name, value)) = at.and_then(|at| bytes.split_at_checked(at)) else {
        return (argument.to_string_lossy().into_owned(), None);
    };
    let value = OsStr::from_bytes(value.get(1..).unwrap_or_default());
    (
        String::from_utf8_lossy(name).into_owned(),
        Some(value.to_owned()),
    )
}

fn default_state(environment: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, String> {
    let set = |name: &str| {
        environment(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let base = set("XDG_STATE_HOME").filter(|path| path.is_absolute());
    base.or_else(|| set("HOME").map(|home| home.join(".local/state")))
        .map(|base| base.join("ubos-mission"))
        .ok_or_else(|| "no HOME and no --state: where is the state to live?".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arguments: &[&str]) -> Result<Parsed, String> {
        parse(arguments.iter().map(OsString::from), |name| {
            (name == "HOME").then(|| "/home/u".into())
        })
    }

    #[test]
    fn options_stand_anywhere_and_folders_may_look_like_options() {
        let Ok(Parsed::Run(args)) = read(&[
            "--json",
            "src",
            "--state=/s",
            "--model",
            "m",
            "--no-ignore",
            "--trace=t.html",
        ]) else {
            panic!("refused");
        };
        assert_eq!(
            (args.folder, args.json, args.state),
            ("src".into(), true, "/s".into())
        );
        assert_eq!((args.model.as_deref(), args.no_ignore), (Some("m"), true));
        assert_eq!(args.trace, Some("t.html".into()));
        let Ok(Parsed::Run(args)) = read(&["--", "--json"]) else {
            panic!("refused")
        };
        assert_eq!((args.folder, args.json), ("--json".into(), false));
        let Ok(Parsed::Run(args)) = read(&[]) else {
            panic!("refused")
        };
        assert_eq!(
            (args.folder, args.state),
            (".".into(), "/home/u/.local/state/ubos-mission".into())
        );
        assert_eq!(read(&["-h"]), Ok(Parsed::Help));
    }

    #[test]
    fn mistakes_are_named() {
        for (arguments, said) in [
            (vec!["--what"], "--what"),
            (vec!["a", "b"], "more than one"),
            (vec!["--state"], "--state needs"),
            (vec!["--trace"], "--trace needs"),
            (vec!["--model="], "--model needs"),
            (vec!["--json=no"], "takes no value"),
        ] {
            assert!(
                read(&arguments).unwrap_err().contains(said),
                "{arguments:?}"
            );
        }
        assert!(parse([], |_| None).unwrap_err().contains("HOME"));
    }

    #[test]
    fn a_path_behind_an_equals_sign_keeps_its_bytes() {
        let argument = OsStr::from_bytes(b"--state=/s/\xff=").to_owned();
        let Ok(Parsed::Run(args)) = parse([argument], |_| None) else {
            panic!("refused")
        };
        assert_eq!(args.state.as_os_str(), OsStr::from_bytes(b"/s/\xff="));
    }
}
