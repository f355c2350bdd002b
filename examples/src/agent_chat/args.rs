//! The command line, read by hand.

use std::ffi::OsString;
use std::path::PathBuf;

/// The help text.
pub(super) const USAGE: &str = "\
Talks to an agent in the terminal: it answers while it thinks, uses tools, and its conversations branch.

usage: agent-chat [options]

  --model WHICH       scripted (the default: no network, no key), or a vendor and a model, as openai:gpt-5,
                      anthropic:claude-sonnet-4-5, google:gemini-2.5-flash, ollama:llama3
  --strategy WAY      loop (the default), react or plan
  --dir DIR           lets the agent read text files below DIR, 64 KiB each at most
  --checkpoints DIR   keeps states and the tree of branches in DIR
  --session NAME      which conversation to go on with (default: default); needs --checkpoints
  --ask-first TOOLS   which tools, as calc,read_file, wait for a person's approval; needs --checkpoints
  --pending           lists what the session waits for; this and the next three are for a second terminal
  --approve CALL      approves a call: CALL is its ID:DIGEST, as the list has it
  --reject CALL       rejects a call
  --answer CALL=TEXT  gives a result in place of the tool
  --trace FILE        what happens: a page to look at where FILE ends in .html, else JSON lines
  --help              this text

Keys are read from OPENAI_API_KEY, ANTHROPIC_API_KEY, GOOGLE_API_KEY and their like; OPENAI_BASE_URL,
ANTHROPIC_BASE_URL and GOOGLE_BASE_URL lead to other servers. The scripted model understands \"calc 2+3\",
\"count words of a text\", \"read FILE\", \"wait 3\", and several of them joined by \"and\"; it repeats anything else.

A line is a question; a line that begins with / is a command, and /help lists them. Ctrl-C ends the answer that is
being given, and the program where none is. Answers go to standard output, all else to standard error.

exit codes: 0 the end of the input or /quit, 1 the input was no terminal and a question of it failed, or what a second
terminal said was not taken (as while an answer is under way), 2 usage or what cannot be read, 3 something of ours
failed, 130 interrupted
";

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Args {
    /// Which model.
    pub(super) model: Which,
    /// How the agent goes about its work.
    pub(super) way: Way,
    /// What the agent may read below.
    pub(super) dir: Option<PathBuf>,
    /// Where states are kept.
    pub(super) checkpoints: Option<PathBuf>,
    /// Which conversation.
    pub(super) session: String,
    /// Where events go.
    pub(super) trace: Option<PathBuf>,
    /// Tools that wait for an approval.
    pub(super) ask_first: Vec<String>,
    /// What a second terminal does about a question, in place of a talk.
    pub(super) decides: Option<Decides>,
}

/// What a second terminal does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decides {
    /// Lists the questions.
    Lists,
    /// Approves a call.
    Approves(Asked),
    /// Rejects it.
    Rejects(Asked),
    /// Gives its result.
    Answers(Asked, String),
}

/// The call that a person has seen in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// The effect.
    pub(super) effect: u64,
    /// The first digits of the digest. The effect may have become another call meanwhile.
    pub(super) digest: String,
}

impl Asked {
    /// Digits of the digest that are enough to tell calls apart.
    pub(super) const DIGITS: usize = 8;
}

/// A model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// Ours, which needs nothing.
    Scripted,
    /// A vendor's.
    Real {
        /// The vendor.
        vendor: String,
        /// The model's name there.
        name: String,
    },
}

/// A strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Ask, run tools, ask again.
    Loop,
    /// Reason before each of that.
    React,
    /// Plan first.
    Plan,
}

/// What the command line comes to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    /// Talk.
    Run(Box<Args>),
    /// Show [`USAGE`].
    Help,
}

/// Reads the arguments behind the program's name.
pub(super) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Parsed, String> {
    let mut arguments = arguments.into_iter();
    let mut args = Args {
        model: Which::Scripted,
        way: Way::Loop,
        dir: None,
        checkpoints: None,
        session: "default".to_owned(),
        trace: None,
        ask_first: Vec::new(),
        decides: None,
    };
    let mut names_session = false;
    while let Some(argument) = arguments.next() {
        let (name, inline) = split(&argument);
        let mut value = |what: &str| {
            let given = inline.clone().or_else(|| arguments.next());
            let given = given.filter(|given| !given.is_empty());
            given.ok_or_else(|| format!("{name} needs {what}"))
        };
        match name.as_str() {
            "--help" | "-h" => return Ok(Parsed::Help),
            "--model" => args.model = model(&word(value("a model")?)?)?,
            "--strategy" => args.way = way(&word(value("a strategy")?)?)?,
            "--dir" => args.dir = Some(value("a folder")?.into()),
            "--checkpoints" => args.checkpoints = Some(value("a folder")?.into()),
            "--session" => {
                args.session = session(word(value("a name")?)?)?;
                names_session = true;
            }
            "--ask-first" => args.ask_first = tools(&word(value("names of tools")?)?),
            "--pending" => args.decides = Some(Decides::Lists),
            "--approve" => args.decides = Some(Decides::Approves(asked(&word(value("a call")?)?)?)),
            "--reject" => args.decides = Some(Decides::Rejects(asked(&word(value("a call")?)?)?)),
            "--answer" => {
                let given = word(value("a call and a text")?)?;
                let (call, text) = given
                    .split_once('=')
                    .ok_or("--answer needs a call, = and a text")?;
                args.decides = Some(Decides::Answers(asked(call)?, text.to_owned()));
            }
            "--trace" => args.trace = Some(value("a file")?.into()),
            option if option.starts_with('-') => return Err(format!("unknown option {option}")),
            other => return Err(format!("{other} is no option")),
        }
    }
    if names_session && args.checkpoints.is_none() {
        return Err("--session needs --checkpoints".to_owned());
    }
    let needs_folder = !args.ask_first.is_empty() || args.decides.is_some();
    if needs_folder && args.checkpoints.is_none() {
        return Err("approvals need --checkpoints".to_owned());
    }
    Ok(Parsed::Run(Box::new(args)))
}

fn tools(word: &str) -> Vec<String> {
    word.split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

fn asked(word: &str) -> Result<Asked, String> {
    let parts = word.split_once(':').and_then(|(id, digest)| {
        let is_digest = (Asked::DIGITS..=64).contains(&digest.len())
            && digest.bytes().all(|digit| digit.is_ascii_hexdigit());
        Some((id.parse().ok()?, digest.to_ascii_lowercase())).filter(|_| is_digest)
    });
    let (effect, digest) =
        parts.ok_or_else(|| format!("{word} is no call; --pending lists them as ID:DIGEST"))?;
    Ok(Asked { effect, digest })
}

/// An argument's name, and what stands behind its `=`. Only a word that is UTF-8 is looked into.
fn split(argument: &OsString) -> (String, Option<OsString>) {
    match argument.to_str().and_then(|text| text.split_once('=')) {
        Some((name, value)) if name.starts_with("--") => (name.to_owned(), Some(value.into())),
        _ => (argument.to_string_lossy().into_owned(), None),
    }
}

fn word(value: OsString) -> Result<String, String> {
    let no_text = |value: OsString| format!("{} is no UTF-8", value.to_string_lossy());
    value.into_string().map_err(no_text)
}

fn model(word: &str) -> Result<Which, String> {
    match word.split_once(':') {
        None if word == "scripted" => Ok(Which::Scripted),
        Some((vendor, name)) if !vendor.is_empty() && !name.is_empty() => Ok(Which::Real {
            vendor: vendor.to_owned(),
            name: name.to_owned(),
        }),
        _ => Err(format!(
            "--model needs scripted, or a vendor and a model as openai:gpt-5, and {word} was given"
        )),
    }
}

fn way(word: &str) -> Result<Way, String> {
    match word {
        "loop" => Ok(Way::Loop),
        "react" => Ok(Way::React),
        "plan" => Ok(Way::Plan),
        _ => Err(format!(
            "--strategy needs loop, react or plan, and {word} was given"
        )),
    }
}

/// A name that is a folder's name on every system.
fn session(name: String) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.len() <= 100 && name.chars().all(plain) && !name.starts_with('.') {
        Ok(name)
    } else {
        Err("--session needs a name of at most 100 letters, digits, -, _ and .".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Parsed, String> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn a_command_line_is_read() {
        let Ok(Parsed::Run(args)) = read(
            "--model openrouter:some/model:free --strategy=plan --dir d --checkpoints c --session a-b.1 --trace t",
        ) else {
            panic!("refused");
        };
        assert_eq!(
            args.model,
            Which::Real {
                vendor: "openrouter".into(),
                name: "some/model:free".into()
            }
        );
        assert_eq!((args.way, args.session.as_str()), (Way::Plan, "a-b.1"));
        assert_eq!(read("--help"), Ok(Parsed::Help));
    }

    #[test]
    fn mistakes_are_named() {
        for (line, said) in [
            ("--what", "--what"),
            ("hello", "hello is no option"),
            ("--model gpt", "gpt"),
            ("--model :x", ":x"),
            ("--strategy tree", "tree"),
            ("--dir", "--dir needs"),
            ("--dir=", "--dir needs"),
            ("--session x", "--checkpoints"),
            ("--ask-first calc", "--checkpoints"),
            ("--approve 1:01234567", "--checkpoints"),
            ("--checkpoints c --approve one", "one is no call"),
            ("--checkpoints c --approve 1", "1 is no call"),
            (
                "--checkpoints c --approve 1:0123456",
                "1:0123456 is no call",
            ),
            (
                "--checkpoints c --reject 1:0123456g",
                "1:0123456g is no call",
            ),
            ("--checkpoints c --answer 1:01234567", "= and a text"),
            ("--checkpoints c --session ../x", "--session needs"),
            ("--checkpoints c --session .x", "--session needs"),
        ] {
            let why = read(line).unwrap_err();
            assert!(why.contains(said), "{line}: {why}");
        }
    }
}
