//! The command line, read by hand: a kind, one option, files.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use super::kind::{self, KINDS, Kind};

/// What was asked for.
#[derive(Debug)]
pub struct Args {
    /// What the files are to be.
    pub kind: &'static Kind,
    /// How they are judged; one of the kind's profiles.
    pub profile: Option<String>,
    /// The files; `-` is standard input.
    pub files: Vec<PathBuf>,
}

/// What the command line comes to.
#[derive(Debug)]
pub enum Parsed {
    /// Judge.
    Run(Args),
    /// Show [`usage`].
    Help,
}

/// The help text.
#[must_use]
pub fn usage() -> String {
    let mut text = String::from(
        "\
Judges files, and prints one JSON line for each: valid or not, and every finding.

usage: validate KIND [--profile PROFILE] FILES...

  --profile       how strictly, or by which version; see below
  --help          this text

A file called - is standard input.

kinds:
",
    );
    for kind in KINDS {
        let profiles = match kind.profiles {
            [] => String::new(),
            profiles => format!(" (profiles: {})", profiles.join(", ")),
        };
        text += &format!("  {:<16}{}{profiles}\n", kind.name, kind.about);
    }
    text + "\nexit codes: 0 all valid, 1 some not, 2 usage or unreadable file, 3 something failed\n"
}

/// Reads the arguments behind the program's name.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Parsed, String> {
    let mut arguments = arguments.into_iter();
    let (mut kind, mut profile, mut files) = (None, None, Vec::new());
    let mut plain = false;
    while let Some(argument) = arguments.next() {
        match argument.to_str().filter(|_| !plain) {
            Some("--") => plain = true,
            Some("--help" | "-h") => return Ok(Parsed::Help),
            Some("--profile") => profile = Some(given(arguments.next().as_deref())?),
            Some(option) if option.starts_with("--profile=") => {
                profile = Some(given(option.get("--profile=".len()..).map(OsStr::new))?);
            }
            Some(option) if option.starts_with('-') && option.len() > 1 => {
                return Err(format!("unknown option {option}"));
            }
            _ if kind.is_none() => kind = Some(kind_of(&argument)?),
            _ => files.push(PathBuf::from(argument)),
        }
    }
    let kind = kind.ok_or("a kind is wanted, and files")?;
    if files.is_empty() {
        return Err("files are wanted".to_owned());
    }
    check_profile(kind, profile.as_deref())?;
    Ok(Parsed::Run(Args {
        kind,
        profile,
        files,
    }))
}

fn given(value: Option<&OsStr>) -> Result<String, String> {
    match value.and_then(OsStr::to_str) {
        Some(value) if !value.is_empty() => Ok(value.to_owned()),
        _ => Err("--profile needs a profile".to_owned()),
    }
}

fn kind_of(word: &OsStr) -> Result<&'static Kind, String> {
    let word = word.to_string_lossy();
    kind::named(&word).ok_or_else(|| {
        let names: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
        format!("no kind {word}; there are {}", names.join(", "))
    })
}

fn check_profile(kind: &Kind, profile: Option<&str>) -> Result<(), String> {
    match profile {
        Some(profile) if kind.profiles.is_empty() => Err(format!(
            "{} has no profiles, not {profile} either",
            kind.name
        )),
        Some(profile) if !kind.profiles.contains(&profile) => Err(format!(
            "{} has no profile {profile}; there are {}",
            kind.name,
            kind.profiles.join(", ")
        )),
        _ => Ok(()),
    }
}
